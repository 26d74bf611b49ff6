"""The swarm of Docker that machines are in, and the network of a trial that spans them.

Swarm does membership, discovery and the network. The lab starts no swarm services: a service cannot have the box of the
lab's containers (docs/how-to/machines.md).
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from stampede.docker.client import DockerError, Machine, together
from stampede.docker.cluster.probe import IMAGE
from stampede.docker.commands import ANSWERS_WITHIN_S
from stampede.docker.containers import BOX, label_options, overlay_name
from stampede.docker.leftovers import is_manager
from stampede.errors import LabError

PORTS = "Between machines, TCP 2377 and 7946, and UDP 7946 and 4789 must be open."
ATTEMPTS = 4
_TOO_BUSY = re.compile(r"attaching to network failed|Could not attach to network|network \S+ not found")
"""What an engine says if its swarm did not answer within 20 s, or has not told the engine of a network yet."""


@dataclass(frozen=True)
class Node:
    """A machine as a member of a swarm: the id of its engine, and its node; empty: it is in no swarm."""

    machine: Machine
    engine: str
    node: str
    is_manager: bool


def nodes_of(machines: Sequence[Machine]) -> list[Node]:
    """Ask every engine for its swarm. Raise LabError if an engine does not answer, or if two machines have the same."""
    nodes: list[Node] = []
    for machine in machines:
        try:
            info = machine.info(ANSWERS_WITHIN_S)
        except DockerError as error:  # an engine that is stopped never answers
            reason = str(error) if error.exit_code is not None else f"no answer within {ANSWERS_WITHIN_S} s"
            hint = "docker context ls lists the contexts; docker --context NAME version asks an engine."
            raise LabError(f"The engine of {machine.name} does not answer: {reason}", hint) from None
        if same := [node.machine.name for node in nodes if node.engine == info["ID"]]:
            hint = "Remove one of them from the file of machines."
            raise LabError(f"{same[0]} and {machine.name} are the same engine.", hint)
        swarm = info["Swarm"] if info["Swarm"]["LocalNodeState"] == "active" else {}
        nodes.append(Node(machine, info["ID"], swarm.get("NodeID", ""), swarm.get("ControlAvailable", False)))
    return nodes


def check_joined(nodes: Sequence[Node]) -> None:
    """Raise LabError unless all machines are in one swarm, and one of them is its manager."""
    manager = next((node for node in nodes if node.is_manager), None)
    members = manager.machine.run("node", "ls", "--quiet").split() if manager else []
    if strange := [node.machine.name for node in nodes if node.node not in members]:
        swarm = f"{' '.join((manager or nodes[0]).machine.docker)} swarm"
        makes = "" if manager else f"{swarm} init makes a swarm, docker node promote NODE makes a manager; "
        hint = (
            f"{makes}{swarm} join-token worker prints the command that a machine joins with, after it has left any "
            f"other swarm (docker swarm leave). {PORTS}"
        )
        if not manager and all(node.node for node in nodes):
            hint = "Add the swarm's manager to the file of machines. Or there: docker node promote NODE"
        raise LabError(
            f"These machines are in no swarm that a machine of the file manages: {', '.join(strange)}. So containers "
            "share no network.",
            hint=hint,
        )


async def create_network(machines: Sequence[Machine], project: str) -> None:
    """Create the overlay network of a trial, out of which nothing leads. Raise DockerError if that fails.

    An engine that is no manager learns of the network when a container there joins the network, and Compose refuses a
    network that the engine does not know. So a container that only sleeps joins it on each machine.
    """
    labels, name = label_options(project), overlay_name(project)
    for manager in machines:
        if await is_manager(manager):
            break
    else:
        raise LabError("None of the machines is a manager of a swarm any more.", hint="stampede machines")
    await manager.call("network", "create", "--driver", "overlay", "--attachable", "--internal", *labels, name)
    join = ("run", "--detach", "--init", "--network", name, *labels, *BOX, IMAGE, "sleep", "infinity")
    others = [machine for machine in machines if machine != manager]
    await together(retry_joining(partial(machine.call, *join)) for machine in others)


async def retry_joining(do: Callable[[], Awaitable[object]]) -> None:
    """Do something again, up to ATTEMPTS times in all, if a swarm was too busy to let a container join a network.

    Raise DockerError for any other reason, and after the last attempt.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await do()
        except DockerError as error:
            if attempt == ATTEMPTS or not _TOO_BUSY.search(error.said):
                raise
        else:
            return

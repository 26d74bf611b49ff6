"""The swarm of Docker that machines are in, so that a network can span them.

Swarm does membership, discovery and the network. The lab starts no swarm services: a service cannot have the box of the
lab's containers (docs/how-to/machines.md).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from stampede.docker.client import DockerError, Machine
from stampede.docker.commands import ANSWERS_WITHIN_S
from stampede.errors import LabError

PORTS = "Between machines, TCP 2377 and 7946, and UDP 7946 and 4789 must be open."


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
            machine.run("version", "--format", "{{.Server.Version}}", within_s=ANSWERS_WITHIN_S)
        except DockerError as error:  # an engine that is stopped never answers
            reason = str(error) if error.exit_code is not None else f"no answer within {ANSWERS_WITHIN_S} s"
            hint = "docker context ls lists the contexts; docker --context NAME version asks an engine."
            raise LabError(f"The engine of {machine.name} does not answer: {reason}", hint) from None
        info = json.loads(machine.run("info", "--format", "{{json .}}"))
        if same := [node.machine.name for node in nodes if node.engine == info["ID"]]:
            hint = "Remove one of them from the file of machines."
            raise LabError(f"{same[0]} and {machine.name} are the same engine.", hint)
        swarm = info["Swarm"] if info["Swarm"]["LocalNodeState"] == "active" else {}
        nodes.append(Node(machine, info["ID"], swarm.get("NodeID", ""), swarm.get("ControlAvailable", False)))
    return nodes


def check_joined(nodes: Sequence[Node]) -> None:
    """Raise LabError unless all machines are in one swarm, and one of them is its manager."""

    def listed(names: Sequence[str]) -> str:
        return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"

    manager = next((node for node in nodes if node.is_manager), None)
    missing = [node.machine.name for node in nodes if not node.node]
    if not manager and len(missing) < len(nodes):
        names = ", ".join(node.machine.name for node in nodes)
        raise LabError(
            f"None of {names} is a manager of a swarm, so the lab cannot make networks.",
            hint="Add a manager to the file of machines, or promote a machine: docker node promote NODE",
        )
    if not manager or missing:
        first = " ".join((manager or nodes[0]).machine.docker)
        join = f"{first} swarm join-token worker prints the command that a machine joins with. {PORTS}"
        raise LabError(
            f"{listed(missing)} in no swarm, so containers share no network.",
            hint=join if manager else f"{first} swarm init makes a swarm; {join}",
        )
    members = manager.machine.run("node", "ls", "--quiet").split()
    if strange := [node.machine.name for node in nodes if node.node not in members]:
        raise LabError(
            f"{listed(strange)} in another swarm than {manager.machine.name}.",
            hint="Leave that swarm there (docker swarm leave), and join this one.",
        )

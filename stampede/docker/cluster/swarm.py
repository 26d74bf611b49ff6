"""Join machines to a swarm of Docker, whose networks span the machines, and leave the swarm again.

Swarm does membership, discovery and the network. The lab starts no swarm services: a service cannot have the box of the
lab's containers (docs/how-to/machines.md).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stampede.docker.client import DockerError, Machine
from stampede.docker.cluster.machines import Cluster
from stampede.docker.commands import ANSWERS_WITHIN_S, Say
from stampede.errors import LabError

JOINED = "stampede.joined"
"""The label of a swarm's node that the lab has joined to the swarm."""
MADE = "stampede.made"
"""The label of the node on which the lab has made the swarm."""
PORT = 2377


@dataclass(frozen=True)
class Node:
    """A machine as a member of a swarm: the id of its engine, and its node; empty: it is in no swarm."""

    machine: Machine
    engine: str
    node: str
    is_manager: bool
    address: str


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
        manages, address = swarm.get("ControlAvailable", False), swarm.get("NodeAddr", "")
        nodes.append(Node(machine, info["ID"], swarm.get("NodeID", ""), manages, address))
    return nodes


def check_joined(nodes: Sequence[Node]) -> None:
    """Raise LabError unless all machines are in one swarm, and one of them is its manager."""
    if missing := [node.machine.name for node in nodes if not node.node]:
        raise LabError(
            f"{_listed(missing)} in no swarm, so containers share no network.", hint="stampede machines join"
        )
    manager = _manager(nodes)
    members = _members(manager.machine)
    if strange := [node.machine.name for node in nodes if node.node not in members]:
        raise LabError(
            f"{_listed(strange)} in another swarm than {manager.machine.name}.",
            hint="Leave that swarm there (docker swarm leave), then: stampede machines join",
        )


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _manager(nodes: Sequence[Node]) -> Node:
    found = next((node for node in nodes if node.is_manager), None)
    if found is None:
        names = ", ".join(node.machine.name for node in nodes)
        raise LabError(
            f"None of {names} is a manager of its swarm, so the lab cannot make networks.",
            hint="Add a manager to the file of machines, or promote a machine: docker node promote NODE",
        )
    return found


def _members(manager: Machine) -> dict[str, Mapping[str, str]]:
    """Return the labels of each node of a swarm by the node's id."""
    nodes = json.loads(manager.run("node", "inspect", *manager.run("node", "ls", "--quiet").split()))
    return {node["ID"]: node["Spec"].get("Labels") or {} for node in nodes}


def join(cluster: Cluster, machines: Sequence[Machine], say: Say) -> None:
    """Put all machines into one swarm, and make the swarm if there is none. Silent if there is nothing to do.

    Raise LabError if machines are in different swarms, or if an engine refuses.
    """
    nodes = nodes_of(machines)
    if not any(node.node for node in nodes):
        first = nodes[0]
        _swarm(first.machine, "init", *_advertised(cluster, first.machine))
        nodes = nodes_of(machines)
        first.machine.run("node", "update", "--label-add", f"{MADE}=true", nodes[0].node)
        say(f"Made a swarm on {first.machine.name}.")
    manager = _manager([node for node in nodes if node.node])
    outside = [node for node in nodes if not node.node]
    check_joined([node for node in nodes if node.node])
    token = manager.machine.run("swarm", "join-token", "--quiet", "worker") if outside else ""
    for node in outside:
        address = cluster.machines[manager.machine.name].address or manager.address
        _swarm(node.machine, "join", *_advertised(cluster, node.machine), "--token", token, f"{address}:{PORT}")
        [joined] = nodes_of([node.machine])
        manager.machine.run("node", "update", "--label-add", f"{JOINED}=true", joined.node)
        say(f"{node.machine.name} has joined the swarm of {manager.machine.name}.")


def leave(machines: Sequence[Machine], say: Say) -> None:
    """Undo what ``join`` did: machines that it joined leave the swarm, and a swarm that it made ends.

    A swarm that the lab made goes on while it has other members.
    """
    nodes = [node for node in nodes_of(machines) if node.node]
    if not nodes:
        return
    manager = _manager(nodes)
    labels = _members(manager.machine)
    for node in nodes:
        if JOINED in labels.get(node.node, {}):
            _swarm(node.machine, "leave")
            manager.machine.run("node", "rm", "--force", node.node)
            say(f"{node.machine.name} has left the swarm.")
    made = next((node for node in nodes if MADE in labels.get(node.node, {})), None)
    if made is None:
        return
    others = len(_members(made.machine)) - 1
    if others:
        members = "1 other member" if others == 1 else f"{others} other members"
        say(f"The swarm of {made.machine.name} has {members}, so it goes on.")
        return
    _swarm(made.machine, "leave", "--force")
    say(f"The swarm of {made.machine.name} has ended.")


def _swarm(machine: Machine, verb: str, *words: str) -> None:
    try:
        machine.run("swarm", verb, *words)
    except DockerError as error:
        raise LabError(
            f"{machine.name} could not {verb if verb != 'init' else 'make'} a swarm: {error}",
            hint=f"The machines must reach each other at port {PORT} (TCP), 7946 (TCP and UDP) and 4789 (UDP).",
        ) from None


def _advertised(cluster: Cluster, machine: Machine) -> list[str]:
    address = cluster.machines[machine.name].address
    return ["--advertise-addr", address] if address else []

"""Remove containers and networks by their label: those of one project, or those of killed runs of an owner."""

import time
from collections.abc import Sequence

from python_on_whales.exceptions import DockerException
from python_on_whales.utils import run

from stampede.docker.cluster.machines import Machine
from stampede.docker.cluster.swarm import is_manager
from stampede.docker.containers import OWNER_LABEL, PROJECT, owner, suppress_docker_errors

ATTEMPTS = 5
LOOK_AGAIN_S = 1


def remove_leftovers(machines: Sequence[Machine]) -> list[str]:
    """Remove the containers and networks of this user's killed runs on these machines; return their projects' names.

    Call it only while no run is measuring. Leave alone what was started by hand, by other users or by other machines.
    """
    projects: set[str] = set()
    for _ in range(ATTEMPTS):
        found, _ = remove_labelled(machines, f"{OWNER_LABEL}={owner()}")
        if not found:
            break
        projects |= found
        time.sleep(LOOK_AGAIN_S)  # after its runner was killed, Compose may still start another container
    return sorted(projects)


def remove_project(machines: Sequence[Machine], project: str) -> bool:
    """Remove the containers and networks of one project, and return whether all of them are gone."""
    _, refusing = remove_labelled(machines, f"{PROJECT}={project}", ATTEMPTS)
    return not refusing


def remove_labelled(machines: Sequence[Machine], label: str, attempts: int = 1) -> tuple[set[str], list[Machine]]:
    """Remove the containers and then the networks with a label. Return their projects, and the machines that refused.

    A machine that keeps a container keeps its networks, too.
    """
    projects: set[str] = set()
    refusing: list[Machine] = []
    for remove in (_remove_containers, _remove_networks):  # no network goes before the last container in it
        left = [machine for machine in machines if machine not in refusing]
        for _ in range(attempts):
            for machine in [*left]:
                with suppress_docker_errors():
                    projects |= remove(machine, label)
                    left.remove(machine)
        refusing += left
    return projects, refusing


def _remove_containers(machine: Machine, label: str) -> set[str]:
    found = _listed(machine, "container", label, "--all")
    if found:
        machine.client.container.remove([container for container, _, _ in found], force=True, volumes=True)
    return {project for _, project, _ in found}


def _remove_networks(machine: Machine, label: str) -> set[str]:
    """Remove the networks with a label, and return the names of their projects.

    Raise DockerException if an engine refuses to remove one of them, after all others were removed. Only a manager of a
    swarm can remove a network that spans machines; on other machines it goes with its containers.
    """
    projects = set()
    refused: DockerException | None = None
    for network, project, scope in _listed(machine, "network", label):
        try:
            if scope == "swarm" and not is_manager(machine.client):
                continue
            machine.client.network.remove(network)
        except DockerException as error:
            if "not found" not in str(error.stderr):  # a swarm may still list what has gone
                refused = error
        else:
            projects.add(project)
    if refused:
        raise refused
    return projects


def _listed(machine: Machine, kind: str, label: str, *options: str) -> list[list[str]]:
    """Return the id, the project and the scope of each container or network with a label; a container has no scope.

    The engine is asked once for all of them: each attribute of a ``Container`` would be a process of its own.
    """
    scope = "{{.Scope}}" if kind == "network" else ""
    columns = f'{{{{.ID}}}}\t{{{{.Label "{PROJECT}"}}}}\t{scope}'
    command = [*machine.docker, kind, "ls", "--no-trunc", "--filter", f"label={label}", "--format", columns, *options]
    return [line.split("\t") for line in str(run(command)).splitlines()]

"""Remove the containers and networks of killed runs, which carry the label of their owner."""

import time
from collections.abc import Sequence

from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException

from lab.engine.cluster.machines import Machine
from lab.engine.cluster.swarm import is_manager
from lab.engine.containers import OWNER_LABEL, PROJECT, LabelFilter, labels_of, owner, suppress_docker_errors

ATTEMPTS = 5
LOOK_AGAIN_S = 1


def remove_leftovers(machines: Sequence[Machine]) -> list[str]:
    """Remove the containers and networks of this user's killed runs on these machines; return their projects' names.

    Call it only while no run is measuring. Leave alone what was started by hand, by other users or by other machines.
    """
    projects: set[str] = set()
    for _ in range(ATTEMPTS):
        found = _remove_all_of_mine(machines)
        if not found:
            break
        projects |= found
        time.sleep(LOOK_AGAIN_S)  # after its runner was killed, Compose may still start another container
    return sorted(projects)


def remove_containers(client: DockerClient, mine: LabelFilter) -> set[str]:
    """Remove the containers with a label, and return the names of their projects."""
    containers = client.container.list(all=True, filters=mine)
    projects = {labels_of(one)[PROJECT] for one in containers}
    if containers:
        client.container.remove(containers, force=True, volumes=True)
    return projects


def remove_networks(client: DockerClient, mine: LabelFilter) -> set[str]:
    """Remove the networks with a label, and return the names of their projects.

    Raise DockerException if an engine refuses to remove one of them, after all others were removed. Only a manager of a
    swarm can remove a network that spans machines; on other machines it goes with its containers.
    """
    projects = set()
    refused: DockerException | None = None
    for network in client.network.list(filters=mine):
        try:
            project, spans_machines = (network.labels or {})[PROJECT], network.scope == "swarm"
            if spans_machines and not is_manager(client):
                continue
            network.remove()
        except DockerException as error:
            if "not found" not in str(error.stderr):  # a swarm may still list what has gone
                refused = error
        else:
            projects.add(project)
    if refused:
        raise refused
    return projects


def _remove_all_of_mine(machines: Sequence[Machine]) -> set[str]:
    mine: LabelFilter = [("label", f"{OWNER_LABEL}={owner()}")]
    projects = set()
    for remove in (remove_containers, remove_networks):
        for machine in machines:
            with suppress_docker_errors():
                projects |= remove(machine.client, mine)
    return projects

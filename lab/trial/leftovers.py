"""Remove the containers and networks of killed runs, which carry the label of their owner."""

import time

from python_on_whales import DockerClient

from lab.trial.containers import OWNER_LABEL, PROJECT, LabelFilter, labels_of, owner, tolerating_docker_errors

ATTEMPTS = 5
LOOK_AGAIN_S = 1


def remove_leftovers() -> list[str]:
    """Remove the containers and networks of this user's killed runs on this machine, and return their projects' names.

    Call it only while no run is measuring. Leave alone what was started by hand, by other users or by other machines.
    """
    projects: set[str] = set()
    for _ in range(ATTEMPTS):
        found = _remove_all_of_mine()
        if not found:
            break
        projects |= found
        time.sleep(LOOK_AGAIN_S)  # after its runner was killed, Compose may still start another container
    return sorted(projects)


def _remove_all_of_mine() -> set[str]:
    client = DockerClient()
    mine: LabelFilter = [("label", f"{OWNER_LABEL}={owner()}")]
    projects = set()
    with tolerating_docker_errors():
        for container in client.container.list(all=True, filters=mine):
            projects.add(labels_of(container)[PROJECT])
            container.remove(force=True, volumes=True)
        for network in client.network.list(filters=mine):
            projects.add((network.labels or {})[PROJECT])
            network.remove()
    return projects

"""The network that the containers of a trial on several machines share."""

from python_on_whales.utils import run

from lab.cluster.engines import Engines
from lab.cluster.swarm import is_manager
from lab.errors import LabError
from lab.trial.compose import overlay_name
from lab.trial.containers import OWNER_LABEL, PROJECT, owner


def create_network(engines: Engines, project: str) -> None:
    """Create the overlay network of a trial, out of which nothing leads. Raise DockerException if that fails."""
    manager = next((place for place in engines.places if is_manager(place.client)), None)
    if manager is None:
        raise LabError("None of the machines is a manager of a swarm any more.", hint="lab machines check")
    encrypted = ["--opt", "encrypted"] if engines.encrypted else []
    run([*manager.docker, "network", "create", "--driver", "overlay", "--attachable", "--internal", *encrypted,
         "--label", f"{OWNER_LABEL}={owner()}", "--label", f"{PROJECT}={project}", overlay_name(project)])  # fmt: skip

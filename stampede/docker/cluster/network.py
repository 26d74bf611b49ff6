"""The network that the containers of a trial on several machines share."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from python_on_whales.exceptions import DockerException
from python_on_whales.utils import run

from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.machines import Machine
from stampede.docker.cluster.probe import IMAGE
from stampede.docker.cluster.swarm import is_manager
from stampede.docker.containers import BOX, label_options, overlay_name
from stampede.errors import LabError


def create_network(engines: Engines, project: str) -> None:
    """Create the overlay network of a trial, out of which nothing leads. Raise DockerException if that fails.

    An engine that is no manager learns of the network when a container there joins the network, and Compose refuses a
    network that the engine does not know. So a container that only sleeps joins it on each machine.
    """
    manager = next((machine for machine in engines.machines if is_manager(machine.client)), None)
    if manager is None:
        raise LabError("None of the machines is a manager of a swarm any more.", hint="stampede machines check")
    labels = label_options(project)
    encrypted = ["--opt", "encrypted"] if engines.encrypted else []
    run([*manager.docker, "network", "create", "--driver", "overlay", "--attachable", "--internal", *encrypted, *labels,
         overlay_name(project)])  # fmt: skip

    def join(machine: Machine) -> None:
        options = ["--detach", "--init", "--network", overlay_name(project), *labels, *BOX]
        retry_joining(lambda: run([*machine.docker, "run", *options, IMAGE, "sleep", "infinity"]))

    others = [machine for machine in engines.machines if machine != manager]
    with ThreadPoolExecutor(len(others) or 1) as pool:
        list(pool.map(join, others))


def retry_joining(do: Callable[[], object]) -> None:
    """Do something again, up to ATTEMPTS times in all, if a swarm was too busy to let a container join a network.

    Raise DockerException for any other reason, and after the last attempt.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            do()
        except DockerException as error:
            if attempt == ATTEMPTS or not _TOO_BUSY.search(str(error.stderr)):
                raise
        else:
            return


ATTEMPTS = 4
_TOO_BUSY = re.compile(r"attaching to network failed|Could not attach to network|network \S+ not found")
"""What an engine says if its swarm did not answer within 20 s, or has not told the engine of a network yet."""

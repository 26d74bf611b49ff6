"""The network that the containers of a trial on several machines share."""

import re
from collections.abc import Awaitable, Callable

from stampede.docker.client import DockerError, Machine, together
from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.probe import IMAGE
from stampede.docker.containers import BOX, label_options, overlay_name
from stampede.docker.leftovers import is_manager
from stampede.errors import LabError


async def create_network(engines: Engines, project: str) -> None:
    """Create the overlay network of a trial, out of which nothing leads. Raise DockerError if that fails.

    An engine that is no manager learns of the network when a container there joins the network, and Compose refuses a
    network that the engine does not know. So a container that only sleeps joins it on each machine.
    """
    labels = label_options(project)
    for manager in engines.machines:
        if await is_manager(manager):
            break
    else:
        raise LabError("None of the machines is a manager of a swarm any more.", hint="stampede machines")
    await manager.call("network", "create", "--driver", "overlay", "--attachable", "--internal", *labels,
                       overlay_name(project))  # fmt: skip

    async def join(machine: Machine) -> None:
        options = ["--detach", "--init", "--network", overlay_name(project), *labels, *BOX]
        await retry_joining(lambda: machine.call("run", *options, IMAGE, "sleep", "infinity"))

    await together(join(machine) for machine in engines.machines if machine != manager)


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


ATTEMPTS = 4
_TOO_BUSY = re.compile(r"attaching to network failed|Could not attach to network|network \S+ not found")
"""What an engine says if its swarm did not answer within 20 s, or has not told the engine of a network yet."""

"""Start the containers of a trial by Compose, on one machine or on several machines."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from stampede.docker.cluster.network import retry_joining
from stampede.experiment.model import Load
from stampede.plan import PlannedTrial
from stampede.plan.placement import k6_service
from stampede.run.trial.compose import Composed

UP_WITHIN_S = 60
START_WITHIN_S = 600
"""How long all services of a trial may take to start, with a command before the application and the services beside."""
AT_ONCE = 2
"""How many trials on several machines start their servers at the same time: a swarm lets containers join its networks
slowly, and gives up after 20 s."""
_TURNS = threading.Semaphore(AT_ONCE)


def start_order(trial: PlannedTrial, *, overlay: bool) -> list[list[str]]:
    """Return the services to start, in the order of starting. On one machine, Compose finds the order itself."""
    if not overlay:
        return [[trial.variant.front, *(["api"] if trial.load.api else [])]]
    beside = [name for name in trial.services_beside if name not in (trial.variant.front, "client")]
    return [beside, [trial.variant.service], [trial.variant.front]]


def start_services(services: Sequence[str], composed: Sequence[Composed]) -> None:
    """Start services on all machines at the same time, and wait until they are healthy. Raise DockerException."""

    def up(part: Composed) -> None:
        if mine := [name for name in services if name in part.services]:
            retry_joining(lambda: part.client.compose.up(mine, detach=True, wait=True, no_build=True, pull="never",
                                                    quiet=True, wait_timeout=UP_WITHIN_S))  # fmt: skip

    with _TURNS if len(composed) > 1 else nullcontext(), ThreadPoolExecutor(len(composed)) as pool:
        list(pool.map(up, composed))


def create_generators(load: Load, composed: Sequence[Composed]) -> None:
    """Create the load generators, which the lab starts later. Raise DockerException if Compose fails."""
    generators = [k6_service(number) for number in range(1, load.generators + 1)] + ["client"] * bool(load.client)
    for part in composed:
        if mine := [name for name in generators if name in part.services]:
            part.client.compose.create(mine, no_build=True, pull="never")

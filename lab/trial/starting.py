"""Start the containers of a trial by Compose, on one machine or on several machines."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from python_on_whales.exceptions import DockerException

from lab.cluster.placing import k6_service
from lab.experiment.model import Load
from lab.plan import PlannedTrial
from lab.trial.compose import Composed

UP_WITHIN_S = 60
ATTEMPTS = 3
_NOT_ATTACHED = "attaching to network failed"
"""What an engine says if its swarm did not answer within 20 s where a container joins a network. Many containers that
start at the same time may be too many for a swarm."""


def in_order(trial: PlannedTrial, *, overlay: bool) -> list[list[str]]:
    """Return the services to start, in the order of starting. On one machine, Compose finds the order itself."""
    if not overlay:
        return [[trial.variant.front, *(["api"] if trial.load.api else [])]]
    beside = [name for name in trial.services_beside if name not in (trial.variant.front, "client")]
    return [beside, [trial.variant.service], [trial.variant.front]]


def start(services: Sequence[str], composed: Sequence[Composed]) -> None:
    """Start services on all machines at the same time, and wait until they are healthy. Raise DockerException."""

    def up(one: Composed) -> None:
        mine = [name for name in services if name in one.services]
        for attempt in range(1, ATTEMPTS * bool(mine) + 1):
            try:
                one.client.compose.up(mine, detach=True, wait=True, no_build=True, pull="never",
                                      quiet=True, wait_timeout=UP_WITHIN_S)  # fmt: skip
            except DockerException as error:
                if attempt == ATTEMPTS or _NOT_ATTACHED not in str(error.stderr):
                    raise
            else:
                return

    with ThreadPoolExecutor(len(composed)) as pool:
        list(pool.map(up, composed))


def create_generators(load: Load, composed: Sequence[Composed]) -> None:
    """Create the load generators, which the lab starts later. Raise DockerException if Compose fails."""
    generators = [k6_service(number) for number in range(1, load.generators + 1)] + ["client"] * bool(load.client)
    for one in composed:
        if mine := [name for name in generators if name in one.services]:
            one.client.compose.create(mine, no_build=True, pull="never")

"""Decide which containers of a trial run on which machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lab.engine.cluster.machines import Place, for_load, for_servers
from lab.limits import Room

if TYPE_CHECKING:
    from lab.plan import PlannedTrial


def k6_service(number: int) -> str:
    """Return the service of a k6 container, given its number from 1."""
    return "k6" if number == 1 else f"k6-{number}"


def placed(trial: "PlannedTrial", places: Sequence[Place]) -> list[dict[str, int]]:
    """Return how many containers of each service run on each machine, in the order of ``places``.

    The replicas of the server and the load generators take turns among their machines. All other services run on the
    first machine for servers, but a client that misbehaves runs on the first machine for load.
    """
    servers, load = for_servers(places), for_load(places)
    found: dict[str, dict[str, int]] = {place.name: {} for place in places}
    for replica in range(trial.variant.replicas):
        mine = found[servers[replica % len(servers)].name]
        mine[trial.variant.service] = mine.get(trial.variant.service, 0) + 1
    for service in trial.services_beside:
        found[(load if service == "client" else servers)[0].name][service] = 1
    for number in range(1, trial.load.generators + 1):
        found[load[(number - 1) % len(load)].name][k6_service(number)] = 1
    return [found[place.name] for place in places]


@dataclass(frozen=True)
class Rooms:
    """The memory of each machine of a cluster, in the order of ``places``."""

    places: Sequence[Place]
    rooms: Sequence[Room]

    what: ClassVar[str] = "these machines"

    def problem(self, trials: Sequence["PlannedTrial"]) -> str | None:
        """Return why the containers of trials side by side do not fit; None if they fit."""
        needed: list[dict[str, int]] = [{} for _ in self.places]
        for trial in trials:
            for mine, counts in zip(needed, placed(trial, self.places), strict=True):
                for service, count in counts.items():
                    kind = service.partition("-")[0] if service.startswith("k6") else service
                    mine[kind] = mine.get(kind, 0) + count * _each_mib(trial, service)
        for place, room, mine in zip(self.places, self.rooms, needed, strict=True):
            if problem := room.problem_of(mine):
                return f"on {place.name}, {problem}"
        return None


def _each_mib(trial: "PlannedTrial", service: str) -> int:
    """Return the memory limit of one container of a service, in MiB."""
    if service.startswith("k6"):
        return trial.load.k6_mib(trial.duration)
    of_service = trial.needed_mib[service]
    return of_service // trial.variant.replicas if service == trial.variant.service else of_service

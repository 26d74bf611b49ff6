"""A service as its owner describes it in a file: the classes of its requests, and what the machine has."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stampede.advise.offered import OfferedLoad
from stampede.advise.options import ServingOption
from stampede.errors import WrongUse
from stampede.experiment.model import Experiment, Load
from stampede.experiment.yaml_file import read_yaml
from stampede.logs.formats import Clock
from stampede.predict.system import simulated_class
from stampede.records.classes import Classes, RequestClass, as_json
from stampede.records.mistakes import Place, Wording, reason_of
from stampede.records.model import Model
from stampede.servers.limits import WORKER_MIB

ONE_PROCESS = 0.7
"""A process whose threads compute for more than this part of the time is too few: they share one interpreter lock."""


class Service(Model):
    """The file: the classes of requests by name, and what the machine has."""

    cores: int = Field(ge=1, le=1024)
    memory_mib: int = Field(ge=64)
    worker_mib: float | None = Field(None, gt=0)
    threads: int | None = Field(None, ge=1, le=4096)
    clock: Clock | None = None
    waits: bool = False
    peak: float = Field(1.0, ge=1, le=1000)
    classes: Classes

    @property
    def at_peak(self) -> dict[str, RequestClass]:
        """The classes as they come in the busiest minute."""
        return {name: asked.times(self.peak) for name, asked in self.classes.items()}

    @property
    def unknown(self) -> list[str]:
        """The classes of which the file does not say how much a request computes."""
        return [name for name, asked in self.classes.items() if asked.computes is None]

    @property
    def at_work(self) -> float:
        """How many requests are at work at once on average, if none waits."""
        return sum(asked.at_work for asked in self.at_peak.values())

    @property
    def cores_at_most(self) -> float:
        """How many cores are busy if requests compute all that they may compute."""
        return sum(
            asked.at_work * (1.0 if asked.computes is None else asked.computes) for asked in self.at_peak.values()
        )

    def load(self, unknown: float = 0.0) -> OfferedLoad:
        """Return what is to be served in the busiest minute.

        ``unknown`` is the part of its time that a request computes if the file does not say it.
        """
        return OfferedLoad(
            classes=[simulated_class(name, asked, unknown) for name, asked in self.at_peak.items()],
            computes=bool(self.cores_at_most),
            cores=self.cores,
            memory_mib=self.memory_mib,
            worker_mib=self.worker_mib or WORKER_MIB["flask_app"],
            least_workers=2 if self.cores > 1 and self.cores_at_most > ONE_PROCESS else 1,
            threads=self.threads,
        )


def tries(service: Service, ways: Sequence[ServingOption]) -> Experiment:
    """Return an experiment that measures ways to serve a described service. Raise WrongUse if its requests compute."""
    if computing := [name for name, asked in service.classes.items() if asked.computes]:
        problem = (
            f"The classes cannot be tried, because the lab's requests would sleep, but those of {computing[0]} compute."
        )
        raise WrongUse(
            problem, hint="Leave out TRY or computes, or measure gil-sharing and ask for advice about that run."
        )
    sleeping = {name: asked.model_copy(update={"computes": None}) for name, asked in service.at_peak.items()}
    asked = {
        "script": "classes.js",
        "settings": {"classes": as_json(sleeping)},
        "duration": {"short": "60s", "full": "5m"},
    }
    try:
        load = Load.model_validate(asked)
    except ValidationError as error:
        raise WrongUse(f"The classes cannot be tried: {reason_of(error, Load, asked)}.") from None
    twice = {way.name: max(256, ceil(2 * way.memory_mib / way.variant.replicas)) for way in ways}
    return Experiment(
        title="Advice for a described service, tried",
        question="Is the way that theory recommends the fastest?",
        load=load,
        parallel=True,
        variants={way.name: way.variant.model_copy(update={"memory_mib": twice[way.name]}) for way in ways},
    )


def read_service(path: Path) -> Service:
    """Read and check the description of a service. Raise WrongUse with the place of the first mistake."""
    return read_yaml(path, Service, WORDING)


def _duration(place: Place, values: Any) -> str | None:  # noqa: ANN401  # the file may hold anything
    """Return what to write where a log gave no durations."""
    missing = place[-1:] == ("takes_s",) and values["classes"][place[1]]["takes_s"] is None
    return "how many seconds a request takes, which the log does not say" if missing else None


WORDING = Wording(allowed=_duration, hint="docs/how-to/advise.md has an example of such a file.")

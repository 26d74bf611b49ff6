"""A service as its owner describes it in a file: the classes of its requests, and what the machine has."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from stampede.advise.options import OfferedLoad, ServingOption
from stampede.advise.ranking import Case, predict_case
from stampede.errors import WrongUse
from stampede.experiment.model import Experiment, Load
from stampede.experiment.variations import computing
from stampede.experiment.yaml_file import YamlFile
from stampede.logs.formats import Clock
from stampede.predict.options import MOST_REPLICAS
from stampede.predict.system import simulated_class
from stampede.records.classes import Between, Classes, RequestClass, as_json
from stampede.records.mistakes import Place, Wording, reason_of
from stampede.records.model import Model
from stampede.resources import LEAST, Found
from stampede.servers.base import WORKER_MIB, Balance

ONE_PROCESS = 0.7
"""A process whose threads compute for more than this part of the time is too few: they share one interpreter lock."""


COMPUTES = (0.0, 0.5, 1.0)
"""The parts of its time that a request may compute, for which the options are ranked if nobody says it."""
UTILISED = 0.7
"""So busy are the cores of the pods at most, if the file does not say how many pods there are."""


class Service(Model):
    """The file: the classes of requests by name, and what the machine, or each container, has."""

    cores: int | None = Field(None, ge=1, le=1024)
    cpus: float | None = Field(None, ge=LEAST["cpus"], le=1024)
    memory_mib: int = Field(ge=64)
    replicas: int | None = Field(None, ge=1, le=MOST_REPLICAS)
    balance: Balance = "round_robin"
    worker_mib: float | None = Field(None, gt=0)
    threads: int | None = Field(None, ge=1, le=4096)
    clock: Clock | None = None
    waits: bool = False
    peak: float = Field(1.0, ge=1, le=1000)
    classes: Classes

    @model_validator(mode="after")
    def _has_cores(self) -> Self:
        if (self.cores is None) == (self.cpus is None):
            raise ValueError("give either cores, which the machine has, or cpus, the limit of each container, or name "
                             "a file with limits: --limits k8s/web.yaml")  # fmt: skip
        return self

    @property
    def at_peak(self) -> dict[str, RequestClass]:
        """The classes as they come in the busiest minute.

        Where the file says one duration, requests take up to a tenth less: if all took exactly as long, users
        who never pause would send in step for ever, and two who compute would always or never meet.
        """
        found = {name: asked.times(self.peak) for name, asked in self.classes.items()}
        return {name: asked.model_copy(update={"takes_s": Between(least=0.9 * asked.takes_s, most=asked.takes_s)})
                if isinstance(asked.takes_s, float | int) else asked for name, asked in found.items()}  # fmt: skip

    @property
    def unknown(self) -> list[str]:
        """The classes of which the file does not say how much a request computes."""
        return [name for name, asked in self.classes.items() if asked.computes is None]

    @property
    def at_work(self) -> float:
        """How many requests are at work at once on average, if none waits."""
        return sum(asked.at_work for asked in self.at_peak.values())

    def cores_busy(self, unknown: float) -> float:
        """Return how many cores are busy if requests compute for this part of their time where the file is silent."""
        return sum(asked.at_work * (unknown if asked.computes is None else asked.computes)
                   for asked in self.at_peak.values())  # fmt: skip

    def load(self, unknown: float = 0.0) -> OfferedLoad:
        """Return what is to be served in the busiest minute.

        ``unknown`` is the part of its time that a request computes if the file does not say it.
        """
        needed = ceil(self.cores_busy(unknown) / (UTILISED * self.cpus)) if self.cpus else 1
        pods = self.replicas or min(MOST_REPLICAS, max(1, needed))
        cores = self.cpus * pods if self.cpus else float(self.cores or 1)
        of_pods = self.cpus is not None or self.replicas is not None  # not of a machine
        each, most = pods if of_pods else 1, self.cores_busy(1.0)
        return OfferedLoad(
            classes=[simulated_class(name, asked, unknown) for name, asked in self.at_peak.items()],
            computes=bool(most), cores=cores, cpus=self.cpus, balance=self.balance,
            pods=pods if of_pods else None, memory_mib=self.memory_mib,
            worker_mib=self.worker_mib or WORKER_MIB["flask_app"],
            least_workers=2 if cores / each > 1 and most / each > ONE_PROCESS else 1,
            threads=self.threads,
        )  # fmt: skip

    def cases(self) -> list[Case]:
        """Return what theory predicts; if the file does not say how much requests compute, for several parts."""
        parts = COMPUTES if self.unknown else (None,)
        return [predict_case(self.load(part or 0.0), part) for part in parts]


def tries(service: Service, ways: Sequence[ServingOption]) -> Experiment:
    """Return an experiment that measures ways to serve a described service. Raise WrongUse if the lab cannot send it.

    Requests compute as long as the file says; where it is silent, they sleep.
    """
    computes = any(asked.computes for asked in service.classes.values())
    classes = {name: asked.model_copy(update={"computes": asked.computes or None})
               for name, asked in service.at_peak.items()}  # fmt: skip
    duration = {"short": "60s", "full": "5m"}
    asked = {"script": "classes.js", "settings": {"classes": as_json(classes)}, "duration": duration}
    try:
        load = Load.model_validate(asked)
    except ValidationError as error:
        raise WrongUse(f"The classes cannot be tried: {reason_of(error, Load, asked)}.") from None
    twice = {way.name: max(256, ceil(2 * way.memory_mib / way.variant.replicas)) for way in ways}
    experiment = Experiment(
        title="Advice for a described service, tried",
        question="Is the way that theory recommends the fastest?",
        load=load,
        parallel=not computes,
        burns=computes,
        variants={way.name: way.variant.model_copy(update={"memory_mib": twice[way.name]}) for way in ways},
    )
    return computing(experiment, "")


def read_service(path: Path, resources: Found | None = None) -> Service:
    """Read and check the description of a service. Raise WrongUse with the place of the first mistake.

    ``resources`` are what each container may use, which counts more than what the file says.
    """
    file = YamlFile(path, WORDING)
    if resources and isinstance(file.values, dict):
        if "cpus" in resources:
            file.values.pop("cores", None)
        file.values |= {key: value for key, (value, _) in resources.items()}
    return file.read_as(Service)


def _duration(place: Place, values: Any) -> str | None:  # noqa: ANN401  # the file may hold anything
    missing = place[-1:] == ("takes_s",) and values["classes"][place[1]]["takes_s"] is None
    return "how many seconds a request takes, which the log does not say" if missing else None


WORDING = Wording(allowed=_duration, hint="docs/how-to/advise.md has an example of such a file.")

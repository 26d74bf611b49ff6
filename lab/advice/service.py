"""A service as its owner describes it in a file: the classes of its requests, and what the machine has."""

from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from analysis.model import Model, Name
from analysis.nearest import nearest_first
from lab.advice.load import Load
from lab.errors import WrongUse
from lab.experiment.file import read_yaml
from lab.experiment.messages import line_of
from lab.limits import WORKER_MIB
from theory.model import Class, Closed, Constant, Distribution, Exponential, Given, Open, Step, Uniform

Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
Short = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]


class Between(Model):
    """Durations of which every length between two ends is as likely."""

    least: Short
    most: Seconds

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least, {self.least:g} s, is more than most, {self.most:g} s")
        return self


class Mean(Model):
    """Durations that are mostly short and sometimes long (exponential)."""

    mean: Seconds


def _kind(takes: object) -> str:
    """Return which kind of durations a file means."""
    if isinstance(takes, dict):
        return "a mean" if "mean" in takes else "two ends"
    return "a list" if isinstance(takes, list) else "a number"


class Requests(Model):
    """One class of requests: how they come, and how long one of them takes if it never waits, in seconds."""

    users: int | None = Field(None, ge=1, le=100_000)
    pause_s: Short = 0
    per_second: float | None = Field(None, gt=0, le=1_000_000, allow_inf_nan=False)
    takes_s: Annotated[
        Annotated[Seconds, Tag("a number")]
        | Annotated[Between, Tag("two ends")]
        | Annotated[Mean, Tag("a mean")]
        | Annotated[list[Seconds], Field(min_length=2), Tag("a list")],
        Discriminator(_kind),
    ]
    computes: float = Field(0, ge=0, le=1)

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.users is None) == (self.per_second is None):
            raise ValueError("give either users or per_second: who sends these requests, or how many come per second")
        if self.pause_s and self.users is None:
            raise ValueError("pause_s is for users; requests per second come however long the last one takes")
        return self

    def of(self, name: str) -> Class:
        """Return the class for the simulator: a request first computes its part, and then waits."""
        takes = self._takes()
        steps = [Step(_times(takes, self.computes), "compute"), Step(_times(takes, 1 - self.computes))]
        arrivals = Closed(self.users, Constant(self.pause_s)) if self.users else Open(self.per_second or 0.0)
        return Class(name, arrivals, [step for step in steps if step.takes.mean > 0])

    def _takes(self) -> Distribution:
        match self.takes_s:
            case Between(least=least, most=most):
                return Uniform(least, most)
            case Mean(mean=mean):
                return Exponential(mean)
            case list(measured):
                return Given(np.array(measured))
            case seconds:
                return Constant(seconds)


class Service(Model):
    """The file: the classes of requests by name, and what the machine has."""

    cores: int = Field(ge=1, le=1024)
    memory_mib: int = Field(ge=64)
    worker_mib: float = Field(WORKER_MIB["flask_app"], gt=0)
    threads: int | None = Field(None, ge=1, le=4096)
    classes: dict[Name, Requests] = Field(min_length=1)

    def load(self) -> Load:
        """Return what is to be served."""
        return Load(
            classes=[one.of(name) for name, one in self.classes.items()],
            computes=any(one.computes for one in self.classes.values()),
            cores=self.cores,
            memory_mib=self.memory_mib,
            worker_mib=self.worker_mib,
            threads=self.threads,
        )


def read_service(path: Path) -> Service:
    """Read and check the description of a service. Raise WrongUse with the place of the first mistake."""
    document, values = read_yaml(path)
    try:
        return Service.model_validate(values)
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        place = tuple(part for part in first["loc"] if part not in _KINDS)
        where = ".".join(map(str, place))
        if first["type"] == "extra_forbidden":
            of = next((_KEYS[part] for part in first["loc"] if part in _KEYS), Requests if len(place) > 2 else Service)
            says = f"unknown key; there are {nearest_first(str(place[-1]), list(of.model_fields))}"
        elif first["type"] == "missing":
            says = "missing key"
        elif first["type"] == "value_error":
            says = str(first["ctx"]["error"])
        else:
            says = f"{first['input']!r}: {first['msg'].lower()}"
        at = f"{path.name}:{line_of(document, place)}: {where}" if where else path.name
        raise WrongUse(f"{at}: {says}", hint="docs/advice.md has an example of such a file.") from None


_KEYS: dict[str, type[Model]] = {"two ends": Between, "a mean": Mean}
_KINDS = {*_KEYS, "a number", "a list"}
"""What pydantic adds to a place to say which kind of ``takes_s`` it means."""


def _times(takes: Distribution, share: float) -> Distribution:
    """Return the durations, each multiplied by a share."""
    match takes:
        case Constant(seconds):
            return Constant(seconds * share)
        case Uniform(least, most):
            return Uniform(least * share, most * share)
        case Exponential(mean):
            return Exponential(mean * share)
        case Given(measured):
            return Given(measured * share)

"""How experiment files name a measured number: its variant, load, class of request, metric and statistic."""

from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from analysis.metrics import OF_ALL_REQUESTS, STATISTICS, MetricName, Statistic, unit
from analysis.metrics.spread import REQUESTS_BY_WORKER, evenness
from analysis.metrics.times import RESPONSE_TIME
from analysis.model import Model, Name


class Measure(Model):
    """A statistic of one metric, for one class of request or for all classes together (None)."""

    request: str | None = None
    metric: MetricName
    stat: Statistic

    @model_validator(mode="after")
    def _metric_has_statistic(self) -> Self:
        _check_statistic(self.request, self.metric, self.stat)
        return self


def _check_statistic(request: str | None, metric: str, stat: str) -> None:
    """Raise ValueError if the metric lacks the statistic, or if a metric of all requests has a class of request."""
    if stat not in STATISTICS[metric]:
        raise ValueError(f"metric {metric} has no stat {stat}; it has {', '.join(STATISTICS[metric])}")
    if request and metric in OF_ALL_REQUESTS:
        raise ValueError(f"metric {metric} is of all requests; leave request out")


class Quantity(Measure):
    """One number of an experiment. ``load`` may be left out if the experiment has only one load."""

    variant: Name
    load: Name | None = None


class Curve(Model):
    """A picture of how a setting changes statistics: one panel for each statistic, with the setting along the axis."""

    over: str = Field(description="The setting that is drawn along the axis.")
    values: list[Measure] = Field(min_length=1)


class Published(Model):
    """What a source published for one variant: statistics of one metric, requests by worker, or steps of a burst."""

    variant: Name
    load: Name | None = None
    request: str | None = None
    metric: MetricName
    stats: dict[Statistic, FiniteFloat] = Field({})
    counts: list[int] = Field(default=[], description="Requests per worker, in any order.")
    steps: list[FiniteFloat] = Field(
        default=[], description="The response times of the requests of one burst, in ms, in order of completion."
    )
    divided_by: FiniteFloat = Field(
        1, gt=0, description="How many times shorter the lab's requests are. Published times are divided by it."
    )
    within: FiniteFloat | None = Field(
        None,
        gt=0,
        le=10,
        description="How far the measured figures may be from these, as a share: 0.15; without within, 0.25.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if [bool(self.stats), bool(self.counts), bool(self.steps)].count(True) != 1:
            raise ValueError("give exactly one of stats, counts and steps")
        if self.counts and self.metric != REQUESTS_BY_WORKER.name:
            raise ValueError("counts belong to metric requests_by_worker")
        if self.steps:
            self._check_steps()
        for stat in self.stats:
            _check_statistic(self.request, self.metric, stat)
        if self.divided_by != 1 and not self.steps and "ms" not in {unit(self.metric, stat) for stat in self.stats}:
            raise ValueError("divided_by is for times")
        return self

    def _check_steps(self) -> None:
        if self.metric != RESPONSE_TIME.name:
            raise ValueError("steps belong to metric response_time")
        if self.request:
            raise ValueError("steps are of all requests; leave request out")
        if min(self.steps) <= 0:
            raise ValueError(f"steps: {min(self.steps):g} ms is not a response time; a response time is more than 0 ms")
        for one, after in pairwise(self.steps):
            if after < one:
                raise ValueError(f"steps are in order of completion; {after:g} ms comes after {one:g} ms")

    @property
    def figures_here(self) -> dict[str, float]:
        """The statistics that this lab should measure; for published counts, the statistics of how even they are."""
        return {
            stat: value / self.divided_by if unit(self.metric, stat) == "ms" else value
            for stat, value in (self.stats | evenness(self.counts)).items()
        }

    @property
    def steps_here(self) -> list[float]:
        """The steps that this lab should measure, in ms."""
        return [step / self.divided_by for step in self.steps]


class Claim(Model):
    """A sentence with a test: a measured value, or the ratio of two measured values, is compared with a bound."""

    says: str
    value: Quantity
    relative_to: Quantity | None = Field(None, description="Divide the value by this value before comparing it.")
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    cores: int | None = Field(
        None, ge=2, description="With fewer cores for the servers on any machine, the claim is undecided."
    )
    role: Literal["answer", "cure"] | None = Field(
        None, description="The report opens with the claims that answer the experiment's question, or name a cure."
    )

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a claim needs exactly one of at_least and at_most")
        return self

    @property
    def variants(self) -> set[str]:
        """The variants that must be measured before this claim has a verdict."""
        return {quantity.variant for quantity in self.quantities}

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities that the claim needs: its value, and the value that it is relative to."""
        return [self.value] + ([self.relative_to] if self.relative_to else [])

    def expects_failures_of(self, variant: str, load: str, request: str) -> bool:
        """Whether this claim says that requests of one class fail in one variant under one load."""
        value = self.value
        return (
            value.metric == "failures"
            and self.at_least is not None
            and value.variant == variant
            and value.load in (None, load)
            and value.request in (None, request)
        )

    @property
    def bound(self) -> str:
        """The bound in words, e.g. ``>= 1000``."""
        return f"{'>=' if self.at_least is not None else '<='} {self.limit:g}"

    @property
    def limit(self) -> float:
        """The bound as a number."""
        limit = self.at_least if self.at_least is not None else self.at_most
        assert limit is not None
        return limit

    def holds(self, value: float) -> bool:
        """Whether ``value``, in the metric's unit or as a ratio, satisfies the bound."""
        return value >= self.limit if self.at_least is not None else value <= self.limit

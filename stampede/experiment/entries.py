"""What an experiment file says of measured numbers: claims, published figures and curves, with every name checked."""

from itertools import pairwise
from typing import Self

from pydantic import Field, FiniteFloat, model_validator

from stampede.evaluate import metrics
from stampede.evaluate.metrics import STATISTICS, MetricName, Statistic
from stampede.records.claims import Claim, Curve, Measure, Published, Quantity
from stampede.records.model import Name


class MeasureEntry(Measure):
    """A statistic of one metric, for one class of request or for all classes together (None)."""

    metric: MetricName = Field(description="A metric; docs/reference/metrics.md explains each.")
    stat: Statistic = Field(description="A statistic of the metric.")

    @model_validator(mode="after")
    def _metric_has_statistic(self) -> Self:
        _check_statistic(self.request_class, self.metric, self.stat)
        return self


def _check_statistic(request_class: str | None, metric: str, stat: str) -> None:
    """Raise ValueError if the metric lacks the statistic, or if a metric of all requests has a class of request."""
    if stat not in STATISTICS[metric]:
        raise ValueError(f"metric {metric} has no stat {stat}; it has {', '.join(STATISTICS[metric])}")
    if request_class and metric in metrics.OF_ALL_REQUESTS:
        raise ValueError(f"metric {metric} is of all requests; leave request_class out")


class QuantityEntry(MeasureEntry, Quantity):
    """One number of an experiment. ``load`` may be left out if the experiment has only one load."""

    variant: Name = Field(description="The variant.")
    load: Name | None = Field(None, description="The load, if there are several.")


class CurveEntry(Curve):
    """A picture of how a setting changes statistics: one panel for each statistic, with the setting along the axis."""

    values: list[MeasureEntry] = Field(min_length=1)  # type: ignore[assignment]  # a list that is only read


class PublishedEntry(Published):
    """What a source published for one variant: statistics of one metric, requests by worker, or steps of a burst."""

    variant: Name = Field(description="The variant.")
    load: Name | None = Field(None, description="The load, if there are several.")
    metric: MetricName = Field(description="A metric; docs/reference/metrics.md explains each.")
    stats: dict[Statistic, FiniteFloat] = Field({}, description="The published values by statistic.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if [bool(self.stats), bool(self.counts), bool(self.completion_times)].count(True) != 1:
            raise ValueError("give exactly one of stats, counts and completion_times")
        if self.counts and self.metric != metrics.REQUESTS_BY_WORKER.name:
            raise ValueError("counts belong to metric requests_by_worker")
        for stat in self.stats:
            _check_statistic(self.request_class, self.metric, stat)
        if not self.completion_times:
            if self.divided_by != 1 and "ms" not in {metrics.unit(self.metric, stat) for stat in self.stats}:
                raise ValueError("divided_by is for times")
            return self
        if self.metric != metrics.RESPONSE_TIME.name:
            raise ValueError("completion_times belong to metric response_time")
        if self.request_class:
            raise ValueError("completion_times are of all requests; leave request_class out")
        if (least := min(self.completion_times)) <= 0:
            raise ValueError(f"completion_times: {least:g} ms must be above 0 ms, as every response time")
        for before, after in pairwise(self.completion_times):
            if after < before:
                raise ValueError(f"completion_times are in order of completion; {after:g} ms comes after {before:g} ms")
        return self


class ClaimEntry(Claim):
    """A sentence with a test: a measured value, or the ratio of two measured values, is compared with a bound."""

    value: QuantityEntry
    relative_to: QuantityEntry | None = Field(None, description="Divide the value by this value before comparing it.")

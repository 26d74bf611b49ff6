"""The words for a measured number: which variant, load and class of request, which metric, which statistic."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Metric = Literal[
    "overhead",
    "response_time",
    "throughput",
    "requests_by_worker",
    "connections_by_worker",
    "requests_by_connection",
    "accept_attempts",
    "accept_failures",
    "processor",
    "memory",
    "queued",
    "failures",
    "beside_free_thread",
    "recovery",
    "burst",
    "visit",
    "visits_failed",
    "capacity",
    "rows_written",
    "rows_unreported",
    "database_connections",
]
Statistic = Literal[
    "min", "avg", "stdev", "p10", "p25", "p50", "p60", "p75", "p80", "p90", "p95", "p99", "p99.9", "max",
    "per_second", "of_ideal", "largest_share", "max_over_mean", "jain_index", "correlation",
    "per_connection", "per_request", "total", "share", "count",
]  # fmt: skip

TIME_STATISTICS: tuple[Statistic, ...] = get_args(Statistic)[: get_args(Statistic).index("max") + 1]
_EVENNESS: tuple[Statistic, ...] = ("largest_share", "max_over_mean", "jain_index")
STATISTICS: dict[Metric, tuple[Statistic, ...]] = {
    "overhead": TIME_STATISTICS,
    "response_time": TIME_STATISTICS,
    "throughput": ("per_second", "of_ideal"),
    "requests_by_worker": _EVENNESS,
    "connections_by_worker": (*_EVENNESS, "correlation"),
    "requests_by_connection": ("avg", "max"),
    "accept_attempts": ("per_connection",),
    "accept_failures": ("per_connection",),
    "processor": ("per_request",),
    "memory": ("total",),
    "queued": ("count",),
    "failures": ("share", "count"),
    "beside_free_thread": ("count", "share", "total", "max"),
    "recovery": ("avg", "max"),
    "burst": ("total", "largest_share"),
    "visit": TIME_STATISTICS,
    "visits_failed": ("share", "count"),
    "capacity": ("per_second",),
    "rows_written": ("count",),
    "rows_unreported": ("count",),
    "database_connections": ("max",),
}
"""What can be said of each metric. docs/method.md says how each is computed."""

OF_ALL_REQUESTS: tuple[Metric, ...] = (
    "accept_attempts",
    "accept_failures",
    "processor",
    "memory",
    "queued",
    "recovery",
    "burst",
    "visit",
    "visits_failed",
    "capacity",
    "rows_written",
    "rows_unreported",
    "database_connections",
)
"""The metrics of a trial as a whole: what servers and their database tell of themselves, what follows a stall, a burst
and a visit know no classes."""

_UNITS: dict[Metric, str] = {
    "overhead": "ms",
    "response_time": "ms",
    "throughput": "requests/s",
    "requests_by_connection": "requests",
    "accept_attempts": "attempts",
    "accept_failures": "failures",
    "processor": "ms",
    "memory": "MiB",
    "beside_free_thread": "ms",
    "recovery": "ms",
    "burst": "ms",
    "visit": "ms",
    "capacity": "visits/s",
    "database_connections": "connections",
}
_PLAIN: dict[Statistic, str] = {
    "of_ideal": "share",
    "largest_share": "share",
    "share": "share",
    "max_over_mean": "ratio",
    "jain_index": "index",
    "correlation": "index",
}
_COUNTED: dict[Metric, str] = {"visits_failed": "visits", "rows_written": "rows", "rows_unreported": "rows"}


def unit(metric: Metric, stat: Statistic) -> str:
    """Return the unit of a statistic."""
    return _COUNTED.get(metric, "requests") if stat == "count" else _PLAIN.get(stat) or _UNITS[metric]


NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""Names of experiments, variants and loads: they become folders and container names."""


class Model(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Measure(Model):
    """A statistic of one metric, of one class of request or of all together (None)."""

    request: str | None = None
    metric: Metric
    stat: Statistic

    @model_validator(mode="after")
    def _metric_has_statistic(self) -> Self:
        if self.stat not in STATISTICS[self.metric]:
            known = ", ".join(STATISTICS[self.metric])
            raise ValueError(f"metric {self.metric} has no stat {self.stat}; it has {known}")
        if self.request and self.metric in OF_ALL_REQUESTS:
            raise ValueError(f"metric {self.metric} is of all requests; leave request out")
        return self


class Quantity(Measure):
    """One number of an experiment. ``load`` may be left out when there is one."""

    variant: Name
    load: Name | None = None


class Curve(Model):
    """A picture of what a setting does: one panel for each statistic, the variants in the order of their setting."""

    over: str = Field(description="The setting that runs along the axis.")
    values: list[Measure] = Field(min_length=1)


class Published(Model):
    """What a source printed for one variant: statistics of one metric, requests by worker, or the steps of a burst."""

    variant: Name
    load: Name | None = None
    request: str | None = None
    metric: Metric
    stats: dict[Statistic, FiniteFloat] = Field({})
    counts: list[int] = Field(default=[], description="Requests per worker, in any order.")
    steps: list[FiniteFloat] = Field(
        default=[], description="The response times of requests that were sent at once, in ms, in order of completion."
    )
    divided_by: FiniteFloat = Field(
        1, gt=0, description="The lab is so many times quicker: published figures are divided by this."
    )
    within: FiniteFloat | None = Field(
        None,
        gt=0,
        le=10,
        description="How far the measured figures may be from these, as a share: 0.15; without it there is no verdict.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if [bool(self.stats), bool(self.counts), bool(self.steps)].count(True) != 1:
            raise ValueError("give exactly one of stats, counts and steps")
        if self.counts and self.metric != "requests_by_worker":
            raise ValueError("counts belong to metric requests_by_worker")
        if self.counts and self.within is not None:
            raise ValueError("within belongs to stats and steps; counts have no verdict")
        if self.steps:
            self._check_steps()
        for stat in self.stats:
            Measure(request=self.request, metric=self.metric, stat=stat)
            if self.within is not None and not self.stats[stat]:
                raise ValueError(f"stats.{stat} is 0, by which nothing can be divided; leave it or within out")
        if self.divided_by != 1 and not self.steps and "ms" not in {unit(self.metric, stat) for stat in self.stats}:
            raise ValueError("divided_by is for times")
        return self

    def _check_steps(self) -> None:
        if self.metric != "response_time":
            raise ValueError("steps belong to metric response_time")
        if self.request:
            raise ValueError("steps are of all requests; leave request out")
        if min(self.steps) <= 0:
            raise ValueError(f"steps: {min(self.steps):g} ms is no time that a request takes")
        for one, after in pairwise(self.steps):
            if after < one:
                raise ValueError(f"steps are in order of completion; {after:g} ms comes after {one:g} ms")

    @property
    def figures_here(self) -> dict[Statistic, float]:
        """What the statistics should be in this lab, with those of how even the counts are."""
        return {
            stat: value / self.divided_by if unit(self.metric, stat) == "ms" else value
            for stat, value in (self.stats | evenness(self.counts)).items()
        }

    @property
    def steps_here(self) -> list[float]:
        """What the steps should be in this lab, in ms."""
        return [step / self.divided_by for step in self.steps]


class Claim(Model):
    """A sentence with a test: a measured value, or its ratio to another, against one bound."""

    says: str
    value: Quantity
    relative_to: Quantity | None = Field(None, description="Divide the value by this one before comparing.")
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None

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
        """The quantities that it compares with its bound or each other."""
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
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"

    def holds(self, value: float) -> bool:
        """Whether ``value``, in the metric's unit or as a ratio, keeps the bound."""
        if self.at_least is not None:
            return value >= self.at_least
        assert self.at_most is not None
        return value <= self.at_most


def percentile(stat: Statistic) -> float | None:
    """Return the q of a percentile, between 0 and 100; None for other statistics."""
    return float(stat[1:]) if stat[0] == "p" and stat[1].isdecimal() else None


def rows_needed(stat: Statistic) -> int:
    """Return how many rows a statistic needs before it may be printed: p99 needs 100, p99.9 needs 1000.

    At least one row must lie beyond a percentile, so that the sample carries it.
    """
    q = percentile(stat)
    if q is not None:
        return round(100 / min(q, 100 - q))
    return 2 if stat == "stdev" else 1


def aggregate(stat: Statistic, column: str) -> str:
    """Return what computes a statistic of times in SQL, from a column of them; percentiles are interpolated."""
    if (q := percentile(stat)) is not None:
        return f"quantile_cont({column}, {q / 100})"
    return {"min": "min", "max": "max", "avg": "avg", "stdev": "stddev_samp"}[stat] + f"({column})"


def failures_allowed(stat: Statistic) -> float:
    """Return the share of failed requests, or visits, from which on a statistic of their times is not printed.

    Had they been answered, they might have been the slowest: a p99 means nothing when one request in a hundred failed.
    """
    q = percentile(stat)
    return 1 if q is None else 1 - q / 100


def statistics_of(request: str | None) -> Iterator[tuple[Metric, Statistic]]:
    """Yield every metric and statistic that one class of request can have; None: all classes together."""
    for metric, statistics in STATISTICS.items():
        if request is None or metric not in OF_ALL_REQUESTS:
            for stat in statistics:
                yield metric, stat


def evenness(counts: Sequence[int]) -> dict[Statistic, float]:
    """Return how evenly a count is spread over workers, idle ones being zeros; nothing of nothing.

    Jain's index (Jain, Chiu and Hawe 1984) is 1 when all are equal and 1/n when one of n has everything.
    """
    total = sum(counts)
    if not total:
        return {}
    return {
        "largest_share": max(counts) / total,
        "max_over_mean": max(counts) * len(counts) / total,
        "jain_index": total**2 / (len(counts) * sum(count**2 for count in counts)),
    }

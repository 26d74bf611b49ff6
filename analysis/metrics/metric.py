"""How a family declares and computes its metrics, and the rules for each statistic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # loading DuckDB would double the time of short commands
    import duckdb

    from analysis.metrics.simulated import SimulatedTrial
    from analysis.read.observed import Observed

Stats = dict[tuple[str, str], float]
"""Measured values by the names of metric and statistic, in the units that the metrics declare."""
Likely = Mapping[tuple[str, str], tuple[float, ...]]
"""By the same names, values that a statistic could have had about as likely (``statistics.intervals.Draw``)."""
Doubt = tuple[Literal["invalid", "suspect", "note"], str]
"""A reason to doubt a trial, and the verdict that follows from it. A note leaves the verdict as it is."""

TIME_STATISTICS = (
    "min", "avg", "stdev", "p10", "p25", "p50", "p60", "p75", "p80", "p90", "p95", "p99", "p99.9", "max",
)  # fmt: skip
"""The statistics of a metric that has a time for each request or visit."""
TIMES = dict.fromkeys(TIME_STATISTICS, "ms")
"""The units of these statistics."""
PRINTED = ("min", "p50", "p90", "p99")
"""The statistics of times that a table always shows; it shows the others only if they were published."""


@dataclass(frozen=True)
class Counted:
    """Statistics of one metric with their units, and how they are counted; tables show them in this order.

    ``how`` is a plain sentence in Markdown; its links are relative to docs/method.md.
    """

    units: Mapping[str, str]
    how: str


@dataclass(frozen=True)
class Metric:
    """One thing that is measured in a trial.

    ``of_all``: the metric is computed for the trial as a whole, and not for each class of request. ``sample`` is what
    the statistics are computed from; if a value is missing, the reason may be that the sample was too small or that too
    much of it failed. None: the metric has no sample. ``called`` is how titles name the metric of a class.
    ``between_clocks`` is the statistic that shows the effect, if the metric compares times of several machines, so that
    it depends on how their clocks differ; None: the metric compares only times of one machine.
    """

    name: str
    counted: tuple[Counted, ...]
    of_all: bool = False
    sample: Literal["requests", "visits"] | None = "requests"
    called: str = "{metric} of {requests} requests"
    between_clocks: str | None = None

    @property
    def units(self) -> dict[str, str]:
        """The unit of each statistic, in the order in which tables show them."""
        return {stat: unit for some in self.counted for stat, unit in some.units.items()}


class Finding(NamedTuple):
    """What a family found for one class of request in one trial; ``request`` is None for all classes together.

    If a metric was computed from something other than answered requests, such as visits, ``carried_by`` says from how
    many.
    """

    request: str | None
    stats: Stats
    carried_by: Mapping[str, int] = {}
    likely: Mapping[tuple[str, str], tuple[float, ...]] = {}


@dataclass(frozen=True)
class Family:
    """Metrics that belong together.

    ``measure`` yields the findings from a trial's rows (the views ``requests`` and ``classes``) and observations.
    ``doubts`` yields reasons to doubt a trial; it is called only for trials that have requests.
    ``measure_simulated`` yields the same findings as ``measure`` from the requests of a simulated trial.
    """

    metrics: tuple[Metric, ...]
    measure: Callable[[duckdb.DuckDBPyConnection, Observed], Iterable[Finding]]
    doubts: Callable[[Observed], Iterable[Doubt]] = lambda _: ()
    measure_simulated: Callable[[SimulatedTrial], Iterable[Finding]] = lambda _: ()


@cache
def percentile(stat: str) -> float | None:
    """Return the q of a percentile, between 0 and 100; None for other statistics."""
    return float(stat[1:]) if re.fullmatch(r"p[0-9]+(\.[0-9]+)?", stat) else None


@cache
def rows_needed(stat: str) -> int:
    """Return how many rows a statistic needs before it may be printed: p99 needs 100, p99.9 needs 1000.

    At least one row must lie beyond a percentile.
    """
    q = percentile(stat)
    if q is not None:
        return round(100 / min(q, 100 - q))
    return 2 if stat == "stdev" else 1


@cache
def failures_allowed(stat: str) -> float:
    """Return the share of failed requests, or visits, at which a statistic of their times is no longer printed.

    The failed requests might have been the slowest. So if one request in a hundred failed, there is no p99.
    """
    q = percentile(stat)
    return 1 if q is None else 1 - q / 100


def aggregate(stat: str, column: str) -> str:
    """Return the SQL that computes a statistic from a column of times; percentiles are interpolated."""
    if (q := percentile(stat)) is not None:
        return f"quantile_cont({column}, {q / 100})"
    return {"min": "min", "max": "max", "avg": "avg", "stdev": "stddev_samp"}[stat] + f"({column})"

"""How a family declares its metrics, what it offers to the pipeline, and what is true of each statistic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:  # to load DuckDB takes as long as a command that derives nothing
    import duckdb

    from analysis.observed import Observed

Key = tuple[str, str, int]
"""A variant, a load and the number of a trial."""
Stats = dict[tuple[str, str], float]
"""Measured values by the names of metric and statistic, each in the unit that the metric declares."""
Doubt = tuple[Literal["invalid", "suspect", "note"], str]
"""What a reason does to the verdict on a trial, and the reason. A note leaves the verdict as it is."""

TIME_STATISTICS = (
    "min", "avg", "stdev", "p10", "p25", "p50", "p60", "p75", "p80", "p90", "p95", "p99", "p99.9", "max",
)  # fmt: skip
"""The statistics of a metric that is a time of each request or visit."""
TIMES = dict.fromkeys(TIME_STATISTICS, "ms")
"""The units of these statistics."""
PRINTED = ("min", "p50", "p90", "p99")
"""The statistics of times that a table shows even if nobody published them."""

OF_TRIAL = "variant = $variant AND load = $load AND trial = $trial"
"""Which rows belong to one trial, in SQL; ``of_trial`` returns the parameters."""


@dataclass(frozen=True)
class Counted:
    """Statistics of one metric with their units, in the order of tables, and how they are counted.

    ``how`` is a plain sentence in Markdown, with links from docs/method.md.
    """

    units: Mapping[str, str]
    how: str


@dataclass(frozen=True)
class Metric:
    """One thing that is measured of a trial.

    ``of_all``: the metric is of the trial as a whole, and a class of request has none of its own. ``sample`` is what
    each statistic is computed from, so that a sample which is too small or failed too often explains a missing value;
    None: the metric has no sample. ``called`` is how titles call the metric of a class.
    """

    name: str
    counted: tuple[Counted, ...]
    of_all: bool = False
    sample: Literal["requests", "visits"] | None = "requests"
    called: str = "{metric} of {requests} requests"

    @property
    def units(self) -> dict[str, str]:
        """The unit of each statistic, in the order of tables."""
        return {stat: unit for some in self.counted for stat, unit in some.units.items()}


class Finding(NamedTuple):
    """What a family found for one class of request in one trial; ``request`` is None for all classes together.

    ``carried_by`` says how many visits or other things a metric was computed from, if they are not answered requests.
    """

    request: str | None
    stats: Stats
    carried_by: Mapping[str, int] = {}


@dataclass(frozen=True)
class Family:
    """Metrics that belong together.

    ``measure`` yields what the rows of a trial (the views ``requests`` and ``classes``) and its observations show.
    ``doubts`` yields the family's reasons to doubt a trial that has requests.
    """

    metrics: tuple[Metric, ...]
    measure: Callable[[duckdb.DuckDBPyConnection, Observed], Iterable[Finding]]
    doubts: Callable[[Observed], Iterable[Doubt]] = lambda _: ()


def of_trial(key: Key) -> dict[str, Any]:
    """Return the parameters of ``OF_TRIAL``."""
    return dict(zip(("variant", "load", "trial"), key, strict=True))


def percentile(stat: str) -> float | None:
    """Return the q of a percentile, between 0 and 100; None for other statistics."""
    return float(stat[1:]) if stat[0] == "p" and stat[1].isdecimal() else None


def rows_needed(stat: str) -> int:
    """Return how many rows a statistic needs before it may be printed: p99 needs 100, p99.9 needs 1000.

    At least one row must lie beyond a percentile, so that the sample carries it.
    """
    q = percentile(stat)
    if q is not None:
        return round(100 / min(q, 100 - q))
    return 2 if stat == "stdev" else 1


def failures_allowed(stat: str) -> float:
    """Return the share of failed requests, or visits, from which on a statistic of their times is not printed.

    Had they been answered, they might have been the slowest: a p99 means nothing when one request in a hundred failed.
    """
    q = percentile(stat)
    return 1 if q is None else 1 - q / 100


def aggregate(stat: str, column: str) -> str:
    """Return what computes a statistic of times in SQL, from a column of them; percentiles are interpolated."""
    if (q := percentile(stat)) is not None:
        return f"quantile_cont({column}, {q / 100})"
    return {"min": "min", "max": "max", "avg": "avg", "stdev": "stddev_samp"}[stat] + f"({column})"

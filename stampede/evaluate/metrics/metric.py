"""What a metric is, what a family of metrics computes, and the rules for each statistic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # loading DuckDB would double the time of short commands
    import duckdb

    from stampede.evaluate.metrics.likely import Times
    from stampede.evaluate.read.requests import Requests
    from stampede.evaluate.read.trial_data import TrialData
    from stampede.records.run import LoadRecord, VariantRecord

Severity = Literal["invalid", "suspect", "note"]
ValidityIssue = tuple[Severity, str]
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
class Metric:
    """One thing that is measured in a trial.

    ``units`` has the unit of each statistic, in the order in which tables show them. ``how`` says how they are counted:
    a plain sentence in Markdown, or one for each statistic; links are relative to docs/reference/metrics.md.

    ``of_all``: the metric is computed for the trial as a whole, and not for each class of request. ``sample`` is what
    the statistics are computed from; if a value is missing, the reason may be that the sample was too small or that too
    much of it failed. None: the metric has no sample. ``called`` is how titles name the metric.

    ``shown`` says when a report has a table of the metric; there is always one if a claim or a published figure names
    the metric. ``if not 0`` looks at the first statistic. ``compared`` are the statistics by which ``stampede compare``
    compares; None: p50, p90 and p99 of times, else the first statistic; none of a metric that is only shown if asked
    for.
    """

    name: str
    units: Mapping[str, str]
    how: str | Mapping[str, str]
    of_all: bool = False
    sample: Literal["requests", "visits"] | None = "requests"
    called: str = "{metric} of {requests} requests"
    shown: Literal["always", "if not 0", "if asked for"] = "if asked for"
    compared: tuple[str, ...] | None = None

    @property
    def is_of_times(self) -> bool:
        """Whether the metric has a time for each request or visit."""
        return self.units == TIMES

    def explained(self) -> list[tuple[str, list[str]]]:
        """Return how statistics are counted, each sentence with the statistics that follow it."""
        hows = dict.fromkeys(self.units, self.how) if isinstance(self.how, str) else self.how
        return [(how, [*stats]) for how, stats in groupby(self.units, hows.__getitem__)]

    @property
    def comparable(self) -> tuple[str, ...]:
        """The statistics that ``stampede compare`` compares."""
        if self.compared is not None:
            return self.compared
        if self.shown == "if asked for":
            return ()
        return ("p50", "p90", "p99") if self.is_of_times else tuple(self.units)[:1]


class Sample(NamedTuple):
    """The times in ms of ``made`` requests or visits, without those that failed."""

    times_ms: Times
    made: int

    def carries(self, stat: str) -> bool:
        """Whether there are enough times for a statistic, and few enough failures."""
        answered = self.times_ms.size  # if it is 0, no statistic has enough times, and made may be 0, too
        return answered >= rows_needed(stat) and (self.made - answered) / self.made < failures_allowed(stat)


class MetricValues(NamedTuple):
    """What a trial says of a metric, for one class of request; ``request_class`` is None for all classes together.

    ``stats`` are in the units that the metric declares; ``likely`` has values that a statistic could have had about as
    likely (``statistics.intervals.Draw``). A metric of times has its ``sample``. ``carried_by`` is from how many visits
    the metric was computed; None: from answered requests.
    """

    metric: Metric
    request_class: str | None
    stats: Mapping[str, float]
    likely: Mapping[str, tuple[float, ...]] = {}
    sample: Sample | None = None
    carried_by: int | None = None


@dataclass(frozen=True)
class Family:
    """How metrics that belong together are computed.

    ``measure`` yields what the requests of a trial say, measured or simulated; ``observe`` what only a measured trial
    says, by its rows (the view ``requests``) and its observations. ``issues`` yields reasons to doubt a trial that has
    requests.
    """

    measure: Callable[[Requests, VariantRecord, LoadRecord], Iterable[MetricValues]] = lambda *_: ()
    observe: Callable[[TrialData, Requests, duckdb.DuckDBPyConnection], Iterable[MetricValues]] = lambda *_: ()
    issues: Callable[[TrialData], Iterable[ValidityIssue]] = lambda _: ()


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
    return 1 if q is None else round(1 - q / 100, 6)  # 1 - 99 / 100 is more than 1 / 100

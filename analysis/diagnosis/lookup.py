"""Look up the figures of a summary: what requests lose outside the application, and other statistics."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.records.summary import Limit, Row, Summary

STATISTICS = ("p99", "p90", "p50")
"""The percentiles by which ways to serve are compared, the first choice first."""


@dataclass(frozen=True)
class Lost:
    """What the requests of a class lose outside the application with one way to serve, in ms, with its interval."""

    ms: float
    low: float
    high: float
    values: Sequence[float] = ()


WITHIN_WORK: frozenset[Limit] = frozenset({"event-loop", "interpreter-lock", "thread-pool", "inside"})
"""The limits for which requests wait while they count as at work, so that overhead does not show these waits."""


class Figures:
    """The figures of a summary, by variant, class and statistic."""

    def __init__(self, summary: Summary) -> None:
        """Take a summary."""
        self._rows = {(row.variant, row.request, row.metric, row.stat): row for row in summary.rows}
        limits = {one.limit for one in summary.diagnosis.bottlenecks} if summary.diagnosis else set()
        self.waits_within_work = bool(limits & WITHIN_WORK)

    def value(self, variant: str, request: str | None, metric: str, stat: str) -> float | None:
        """Return a measured value; None: it was not measured."""
        row = self._rows.get((variant, request, metric, stat))
        return row.measured if row else None

    def row(self, variant: str, request: str | None, metric: str, stat: str) -> Row | None:
        """Return a row of the summary; None: there is none."""
        return self._rows.get((variant, request, metric, stat))

    def lost(self, variant: str, request: str, stat: str) -> Lost | None:
        """Return what the requests of a class lose. Without an interval, the trials' extremes take its place.

        If requests wait while they are at work, it is their whole response time.
        """
        row = self.row(variant, request, "response_time" if self.waits_within_work else "overhead", stat)
        if row is None or row.measured is None:
            return None
        values = list(row.values.values()) or [row.measured]
        low, high = (row.low, row.high) if row.low is not None and row.high is not None else (min(values), max(values))
        return Lost(row.measured, low, high, values)

    def classes(self, variant: str) -> list[str]:
        """Return the classes of requests, in order."""
        return sorted({request for of, request, _, _ in self._rows if of == variant and request})

    def statistic(self, request: str, variants: Sequence[str]) -> str | None:
        """Return the highest percentile that was measured of all variants."""
        return next((one for one in STATISTICS if all(self.lost(name, request, one) for name in variants)), None)

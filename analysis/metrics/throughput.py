"""How many requests were answered per second, and how near this is to what would be possible without waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.metrics.metric import OF_TRIAL, Counted, Family, Finding, Metric, Stats, of_trial

if TYPE_CHECKING:
    import duckdb

    from analysis.observed import Observed

THROUGHPUT = Metric(
    "throughput",
    (
        Counted(
            {"per_second": "requests/s"},
            "answered requests, divided by the time from the first request sent to the last answer",
        ),
        Counted(
            {"of_ideal": "share"},
            "the throughput of a [closed loop](#closed-and-open-loops), as a share of what it would be "
            "without waits: 1 − Σ overhead / Σ (time from a user's first request to its last answer)",
        ),
    ),
)

_SPANS = f"""
SELECT request, epoch(max(sent + to_milliseconds(coalesce(duration_ms, 0)))) - epoch(min(sent)) AS seconds
FROM classes WHERE {OF_TRIAL} GROUP BY request
"""  # noqa: S608  # made of constants

# A user of a closed loop sends nothing while it waits. Without the overhead, the same requests would take that much
# less time.
_OF_IDEAL = f"""
SELECT request, 1 - sum(lost_ms) / nullif(sum(span_ms), 0) AS of_ideal
FROM (SELECT request, sum(overhead_ms) AS lost_ms, epoch_ms(max(answered)) - epoch_ms(min(sent)) AS span_ms
      FROM classes WHERE {OF_TRIAL} AND answered IS NOT NULL
      GROUP BY request, generator, split_part(id, '-', 1))
GROUP BY request
"""  # noqa: S608


def measure(database: duckdb.DuckDBPyConnection, trial: Observed) -> Iterator[Finding]:
    """Yield the throughput of each class; ``of_ideal`` only in a closed loop, where a wait delays the next request."""
    closed = trial.load.loop == "closed"
    of_ideal = dict(database.execute(_OF_IDEAL, of_trial(trial.key)).fetchall()) if closed else {}
    for request, seconds in database.execute(_SPANS, of_trial(trial.key)).fetchall():
        stats: Stats = {}
        if (answered := trial.requests.of_class(request).answered) and seconds:
            stats[THROUGHPUT.name, "per_second"] = answered / seconds
        if (share := of_ideal.get(request)) is not None:
            stats[THROUGHPUT.name, "of_ideal"] = share
        yield Finding(request, stats)


FAMILY = Family((THROUGHPUT,), measure)

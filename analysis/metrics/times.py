"""How long requests took, and how much of this time was overhead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.metrics.metric import (
    OF_TRIAL,
    TIMES,
    Counted,
    Family,
    Finding,
    Metric,
    aggregate,
    failures_allowed,
    of_trial,
    rows_needed,
)

if TYPE_CHECKING:
    import duckdb

    from analysis.observed import Observed

OVERHEAD = Metric(
    "overhead",
    (Counted(TIMES, "response time minus service time of each answered request"),),
)
RESPONSE_TIME = Metric(
    "response_time",
    (Counted(TIMES, "k6's `http_req_duration` of each answered request"),),
)
_COLUMNS = ((OVERHEAD, "overhead_ms"), (RESPONSE_TIME, "duration_ms"))


def measure(database: duckdb.DuckDBPyConnection, trial: Observed) -> Iterator[Finding]:
    """Yield the times of each class. Leave out statistics that ``rows_needed`` or ``failures_allowed`` rule out."""
    keys = [(metric.name, stat, column) for metric, column in _COLUMNS for stat in metric.units]
    query = f"""
        SELECT request, {", ".join(aggregate(stat, column) for _, stat, column in keys)}
        FROM classes WHERE {OF_TRIAL} AND error IS NULL GROUP BY request
    """  # noqa: S608  # made of constants
    for request, *times_ms in database.execute(query, of_trial(trial.key)).fetchall():
        count = trial.requests.of_class(request)
        yield Finding(
            request,
            {
                (metric, stat): time_ms
                for (metric, stat, _), time_ms in zip(keys, times_ms, strict=True)
                if time_ms is not None
                and count.answered >= rows_needed(stat)
                and count.failed / count.sent < failures_allowed(stat)
            },
        )


FAMILY = Family((OVERHEAD, RESPONSE_TIME), measure)

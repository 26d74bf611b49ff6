"""Which requests failed, and why. analysis.verdict.validity decides whether failures make a trial doubtful."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.metrics.metric import Counted, Family, Finding, Metric
from analysis.records.summary import ErrorRow

if TYPE_CHECKING:
    import duckdb

    from analysis.metrics.simulated import SimulatedTrial
    from analysis.read import Key
    from analysis.read.observed import Observed

FAILURES = Metric(
    "failures",
    (
        Counted(
            {"share": "share", "count": "requests"},
            "requests that failed: refused, cut off, unanswered or answered with an error; the share is of the "
            "requests sent",
        ),
    ),
)

_ERRORS = """
SELECT variant, load, trial, request, error, count(*)::INTEGER AS requests
FROM requests WHERE error IS NOT NULL GROUP BY ALL
ORDER BY requests DESC, variant, load, trial, request, error
"""


def measure(_: duckdb.DuckDBPyConnection, trial: Observed) -> Iterator[Finding]:
    """Yield how many requests of each class failed."""
    for request in trial.requests.names:
        count = trial.requests.of_class(request)
        share = count.failed / count.sent
        yield Finding(request, {(FAILURES.name, "share"): share, (FAILURES.name, "count"): count.failed})


def error_rows(database: duckdb.DuckDBPyConnection, trusted: set[Key]) -> Iterator[ErrorRow]:
    """Yield why requests failed in the trusted trials, the most frequent reason first."""
    names = list(ErrorRow.model_fields)
    for row in database.execute(_ERRORS).fetchall():
        if row[:3] in trusted:
            yield ErrorRow.model_validate(dict(zip(names, row, strict=True)))


def measure_simulated(trial: SimulatedTrial) -> Iterator[Finding]:
    """Yield how many requests of each class of a simulated trial were refused."""
    for request, mine in trial.of_each():
        failed, sent = int((mine & ~trial.answered).sum()), int(mine.sum())
        if sent:
            yield Finding(request, {(FAILURES.name, "share"): failed / sent, (FAILURES.name, "count"): failed})


FAMILY = Family((FAILURES,), measure, measure_simulated=measure_simulated)

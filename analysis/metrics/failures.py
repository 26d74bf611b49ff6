"""Which requests failed, and why. analysis.verdict.validity decides whether failures make a trial doubtful."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from analysis.metrics.metric import Family, Metric, MetricValues
from analysis.records.summary import ErrorRow

if TYPE_CHECKING:
    import duckdb

    from analysis.metrics.simulated import SimulatedTrial
    from analysis.read import Key
    from analysis.read.trial_data import TrialData

FAILURES = Metric(
    "failures",
    {"share": "share", "count": "requests"},
    "requests that failed: refused, cut off, unanswered or answered with an error; the share is of the requests sent",
    compared=("share",),
)

_ERRORS = """
SELECT variant, load, trial, request_class, error, count(*)::INTEGER AS requests
FROM requests WHERE error IS NOT NULL GROUP BY ALL
ORDER BY requests DESC, variant, load, trial, request_class, error
"""


def _measure(_: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    for request_class in trial.requests.names:
        count = trial.requests.of_class(request_class)
        share = count.failed / count.sent
        yield MetricValues(request_class, FAILURES.keyed({"share": share, "count": count.failed}))


def error_rows(database: duckdb.DuckDBPyConnection, trusted: Container[Key]) -> Iterator[ErrorRow]:
    """Yield why requests failed in the trusted trials, the most frequent reason first."""
    names = list(ErrorRow.model_fields)
    for row in database.execute(_ERRORS).fetchall():
        if row[:3] in trusted:
            yield ErrorRow.model_validate(dict(zip(names, row, strict=True)))


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    for request_class, mine in trial.each_class():
        failed, sent = int((mine & ~trial.answered).sum()), int(mine.sum())
        if sent:
            yield MetricValues(request_class, FAILURES.keyed({"share": failed / sent, "count": failed}))


FAMILY = Family((FAILURES,), _measure, measure_simulated=_measure_simulated)

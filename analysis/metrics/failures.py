"""Which requests failed, and why. analysis.verdict.validity decides whether failures make a trial doubtful."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from analysis.metrics.metric import Family, Metric, MetricValues
from analysis.read import OF_TRIAL, of_trial
from analysis.records.summary import ErrorRow

if TYPE_CHECKING:
    import duckdb

    from analysis.metrics.simulated import SimulatedTrial
    from analysis.read import Key
    from analysis.read.trial_data import TrialData

FAILURES = Metric(
    "failures",
    {"share": "share", "count": "requests", "in_a_row": "requests"},
    {
        "share": "requests that failed (refused, cut off, unanswered or answered with an error), divided by the "
        "requests sent",
        "count": "requests that failed",
        "in_a_row": "the most requests of a class that failed one after the other, in the order of sending",
    },
    compared=("share",),
)

_ERRORS = """
SELECT variant, load, trial, request_class, error, count(*)::INTEGER AS requests
FROM requests WHERE error IS NOT NULL GROUP BY ALL
ORDER BY requests DESC, variant, load, trial, request_class, error
"""


_FAILED = f"""
SELECT request_class, list(error IS NOT NULL ORDER BY sent, id, generator)
FROM classes WHERE {OF_TRIAL} GROUP BY request_class
"""  # noqa: S608  # made of a constant


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    for request_class, failed in database.execute(_FAILED, of_trial(trial.key)).fetchall():
        yield MetricValues(request_class, FAILURES.keyed(_statistics(failed)))


def _statistics(failed: Sequence[bool]) -> dict[str, float]:
    """Return the statistics of requests in the order of sending, given which of them failed."""
    in_a_row = max((len([*run]) for has_failed, run in groupby(failed) if has_failed), default=0)
    return {"share": sum(failed) / len(failed), "count": sum(failed), "in_a_row": in_a_row}


def error_rows(database: duckdb.DuckDBPyConnection, trusted: Container[Key]) -> Iterator[ErrorRow]:
    """Yield why requests failed in the trusted trials, the most frequent reason first."""
    names = list(ErrorRow.model_fields)
    for row in database.execute(_ERRORS).fetchall():
        if row[:3] in trusted:
            yield ErrorRow.model_validate(dict(zip(names, row, strict=True)))


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    for request_class, mine in trial.each_class():
        if mine.any():
            yield MetricValues(request_class, FAILURES.keyed(_statistics((~trial.answered[mine]).tolist())))


FAMILY = Family((FAILURES,), _measure, measure_simulated=_measure_simulated)

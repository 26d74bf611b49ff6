"""Which requests failed, and why. stampede.evaluate.verdict.validity decides whether failures make a trial doubtful."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import duckdb

from stampede.evaluate.metrics import FAILURES
from stampede.evaluate.metrics.metric import Family, MetricValues
from stampede.evaluate.metrics.simulated import SimulatedTrial
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.summary import ErrorRow

_FAILED = f"""
SELECT request_class, list(error IS NOT NULL ORDER BY sent, id, generator)
FROM requests WHERE {OF_TRIAL} GROUP BY GROUPING SETS ((request_class), ())
"""  # noqa: S608  # made of a constant


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    none_failed = [(request_class, [False]) for request_class in trial.requests.names]
    some_failed = trial.requests.answered < trial.requests.sent
    found = database.execute(_FAILED, of_trial(trial.key)).fetchall() if some_failed else none_failed
    for request_class, failed in found:
        yield MetricValues(request_class, FAILURES.keyed(_statistics(failed)))


def _statistics(failed: Sequence[bool]) -> dict[str, float]:
    """Return the statistics of requests in the order of sending, given which of them failed."""
    in_a_row = max((len([*run]) for has_failed, run in groupby(failed) if has_failed), default=0)
    return {"share": sum(failed) / len(failed), "count": sum(failed), "in_a_row": in_a_row}


def error_rows(trials: Iterable[TrialData]) -> list[ErrorRow]:
    """Return why requests failed in some trials, the most frequent reason first."""
    rows = [
        ErrorRow(**dict(zip(("variant", "load", "trial"), trial.key, strict=True)), request_class=totals.request_class,
                 error=error, requests=requests)
        for trial in trials
        for totals in trial.requests.classes
        for error, requests in totals.errors.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.requests, row.key, row.request_class, row.error))


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    for request_class, mine in trial.each_class():
        if mine.any():
            yield MetricValues(request_class, FAILURES.keyed(_statistics((~trial.answered[mine]).tolist())))


FAMILY = Family((FAILURES,), _measure, measure_simulated=_measure_simulated)

"""How requests, and the connections that brought them, are spread over the workers."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import correlation

import duckdb
import numpy as np

from stampede.evaluate.metrics import CONNECTIONS_BY_WORKER, REQUESTS_BY_CONNECTION, REQUESTS_BY_WORKER
from stampede.evaluate.metrics.metric import Family, MetricValues
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.requests import Requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord
from stampede.records.summary import WorkerRow

_CONNECTIONS = f"""
SELECT request_class, avg(requests), max(requests)
FROM (SELECT request_class, connection, count(*) AS requests
      FROM requests WHERE {OF_TRIAL} AND error IS NULL AND connection IS NOT NULL
      GROUP BY GROUPING SETS ((request_class, connection), (connection)))
GROUP BY request_class
"""  # noqa: S608  # made of constants


def _measure(requests: Requests, variant: VariantRecord, _: LoadRecord) -> Iterator[MetricValues]:
    for request_class, mine in requests.each_class():
        served = np.unique(requests.worker[mine & requests.answered], return_counts=True)[1].tolist()
        yield MetricValues(request_class, REQUESTS_BY_WORKER.keyed(evenness([*served, *_idle(variant, served)])))


def _idle(variant: VariantRecord, busy: Sequence[object]) -> list[int]:
    """Return a zero for each worker that served nothing; nobody knows how many an elastic server has."""
    return [] if variant.elastic else [0] * (variant.workers - len(busy))


def _observe(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    """Yield how evenly connections are spread over workers, and how many requests a connection carried."""
    for request_class, found in groupby(trial.requests.workers, lambda totals: totals.request_class):
        rows = [*found]
        idle = _idle(trial.variant, rows)
        requests, connections = [*(row.requests for row in rows), *idle], [*(row.connections for row in rows), *idle]
        stats = evenness(connections)
        if len(set(requests)) > 1 and len(set(connections)) > 1:
            stats["correlation"] = correlation(requests, connections)
        yield MetricValues(request_class, CONNECTIONS_BY_WORKER.keyed(stats))
    if any(totals.connections for totals in trial.requests.workers):
        for request_class, average, most in database.execute(_CONNECTIONS, of_trial(trial.key)).fetchall():
            yield MetricValues(request_class, REQUESTS_BY_CONNECTION.keyed({"avg": average, "max": most}))


def worker_rows(trials: Iterable[TrialData]) -> Iterator[WorkerRow]:
    """Yield how many requests of each class each worker answered in each trial, the smallest number first."""
    for trial in trials:
        variant, load, number = trial.key
        for totals in trial.requests.workers:
            share = totals.requests / trial.requests.of_class(totals.request_class).answered
            yield WorkerRow(variant=variant, load=load, trial=number, share=share, **totals._asdict())


def evenness(counts: Sequence[int]) -> dict[str, float]:
    """Return how evenly counts are spread over workers; an idle worker counts as zero. Empty if all counts are zero.

    Jain's index (Jain, Chiu and Hawe 1984) is 1 if all n counts are equal, and 1/n if one worker has everything.
    """
    total = sum(counts)
    if not total:
        return {}
    return {
        "largest_share": max(counts) / total,
        "max_over_mean": max(counts) * len(counts) / total,
        "jain_index": total**2 / (len(counts) * sum(count**2 for count in counts)),
    }


FAMILY = Family((REQUESTS_BY_WORKER, CONNECTIONS_BY_WORKER, REQUESTS_BY_CONNECTION), _measure, _observe)

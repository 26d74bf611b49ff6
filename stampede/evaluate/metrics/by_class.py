"""What every class of requests has: its times, throughput and failures, and how it is spread over the workers.

``stampede.evaluate.verdict.validity`` decides whether failures make a trial doubtful.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import correlation

import duckdb
import numpy as np

from stampede.evaluate.metrics import (
    CONNECTIONS_BY_WORKER,
    FAILURES,
    OVERHEAD,
    REQUESTS_BY_CONNECTION,
    REQUESTS_BY_WORKER,
    RESPONSE_TIME,
    THROUGHPUT,
)
from stampede.evaluate.metrics.likely import Places, blocks, likely_percentiles
from stampede.evaluate.metrics.metric import TIME_STATISTICS, Family, Metric, MetricValues, Sample, percentile
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.requests import Requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord
from stampede.records.summary import ErrorRow, WorkerRow


def times_found(
    metric: Metric,
    request_class: str | None,
    sample: Sample,
    block: Places | None = None,
    carried_by: int | None = None,
) -> MetricValues:
    """Return what the times of requests or visits say of a metric of times.

    Percentiles are interpolated. Statistics that the sample does not carry are left out. ``block`` says in which block
    of time each request was sent, for likely values; None: there are none.
    """
    times_ms = sample.times_ms
    there = [stat for stat in TIME_STATISTICS if times_ms.size and sample.carries(stat)]
    levels = {stat: q / 100 for stat in there if (q := percentile(stat)) is not None}
    found = dict(zip(levels, np.quantile(times_ms, [*levels.values()]).tolist() if levels else (), strict=True))
    if there:
        found |= {"min": float(times_ms.min()), "max": float(times_ms.max()), "avg": float(times_ms.mean())}
    if "stdev" in there:
        found["stdev"] = float(times_ms.std(ddof=1))
    likely = () if block is None else likely_percentiles(times_ms, block, [*levels.values()])
    stats = {stat: found[stat] for stat in there}
    return MetricValues(metric, request_class, stats, dict(zip(levels, likely, strict=False)), sample, carried_by)


def _times(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield the times of each class, and likely values of their measured percentiles.

    The requests of a burst are sent at one moment, so blocks of time say nothing about how they depend on each other.
    """
    for request_class, mine in requests.each_class():
        answered = mine & requests.answered
        made = int(mine.sum())
        block = None if requests.simulated or load.burst else blocks(requests.sent_us[answered] / 1e6)
        for metric, column in ((OVERHEAD, requests.overhead_ms), (RESPONSE_TIME, requests.duration_ms)):
            yield times_found(metric, request_class, Sample(column[answered], made), block)


def _throughput(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield the throughput of each class; ``of_ideal`` only in a closed loop, where a wait delays the next request.

    A user of a closed loop sends nothing while it waits. Without the overhead, the same requests would take that much
    less time.
    """
    for request_class, mine in requests.each_class():
        answered = int(requests.answered[mine].sum())
        if not answered:
            continue
        stats: dict[str, float] = {}
        if seconds := float(requests.over_us[mine].max() / 1e6 - requests.sent_us[mine].min() / 1e6):
            stats["per_second"] = answered / seconds
        if load.loop == "closed":
            over = mine & np.isfinite(requests.answered_us)
            sent_ms, answered_ms = requests.sent_us[over] / 1000, requests.answered_us[over] / 1000
            if not requests.simulated:  # whole milliseconds
                sent_ms, answered_ms = np.floor(sent_ms + 0.5), np.floor(answered_ms + 0.5)
            user = np.unique(requests.user[over], return_inverse=True)[1]
            first_ms, last_ms = np.full(user.max() + 1, np.inf), np.full(user.max() + 1, -np.inf)
            np.minimum.at(first_ms, user, sent_ms)
            np.maximum.at(last_ms, user, answered_ms)
            if span_ms := float((last_ms - first_ms).sum()):
                stats["of_ideal"] = 1 - float(np.nansum(requests.overhead_ms[over])) / span_ms
        yield MetricValues(THROUGHPUT, request_class, stats)


def _failures(requests: Requests, _: VariantRecord, __: LoadRecord) -> Iterator[MetricValues]:
    for request_class, mine in requests.each_class():
        failed = ~requests.answered[mine]
        if failed.size:
            count, runs = int(failed.sum()), groupby(failed.tolist() if failed.any() else ())
            in_a_row = max((len([*run]) for has_failed, run in runs if has_failed), default=0)
            stats = {"share": count / failed.size, "count": count, "in_a_row": in_a_row}
            yield MetricValues(FAILURES, request_class, stats)


def _spread(requests: Requests, variant: VariantRecord, _: LoadRecord) -> Iterator[MetricValues]:
    for request_class, mine in requests.each_class():
        served = np.unique(requests.worker[mine & requests.answered], return_counts=True)[1].tolist()
        yield MetricValues(REQUESTS_BY_WORKER, request_class, evenness([*served, *_idle(variant, served)]))


def _idle(variant: VariantRecord, busy: Sequence[object]) -> list[int]:
    """Return a zero for each worker that served nothing; nobody knows how many an elastic server has."""
    return [] if variant.elastic else [0] * (variant.workers - len(busy))


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


_CONNECTIONS = f"""
SELECT request_class, avg(requests), max(requests)
FROM (SELECT request_class, connection, count(*) AS requests
      FROM requests WHERE {OF_TRIAL} AND error IS NULL AND connection IS NOT NULL
      GROUP BY GROUPING SETS ((request_class, connection), (connection)))
GROUP BY request_class
"""  # noqa: S608  # made of constants


def _connections(trial: TrialData, _: Requests, database: duckdb.DuckDBPyConnection) -> Iterator[MetricValues]:
    """Yield how evenly connections are spread over workers, and how many requests a connection carried."""
    for request_class, found in groupby(trial.requests.workers, lambda totals: totals.request_class):
        rows = [*found]
        idle = _idle(trial.variant, rows)
        requests, connections = [*(row.requests for row in rows), *idle], [*(row.connections for row in rows), *idle]
        stats = evenness(connections)
        if len(set(requests)) > 1 and len(set(connections)) > 1:
            stats["correlation"] = correlation(requests, connections)
        yield MetricValues(CONNECTIONS_BY_WORKER, request_class, stats)
    if any(totals.connections for totals in trial.requests.workers):
        for request_class, average, most in database.execute(_CONNECTIONS, of_trial(trial.key)).fetchall():
            yield MetricValues(REQUESTS_BY_CONNECTION, request_class, {"avg": average, "max": most})


def worker_rows(trials: Iterable[TrialData]) -> list[WorkerRow]:
    """Return how many requests of each class each worker answered in each trial, the smallest number first."""
    return [
        WorkerRow(**of_trial(trial.key), share=totals.requests / trial.requests.of_class(totals.request_class).answered,
                  **totals._asdict())
        for trial in trials
        for totals in trial.requests.workers
    ]  # fmt: skip


def error_rows(trials: Iterable[TrialData]) -> list[ErrorRow]:
    """Return why requests failed in some trials, the most frequent reason first."""
    rows = [
        ErrorRow(**of_trial(trial.key), request_class=totals.request_class, error=error, requests=requests)
        for trial in trials
        for totals in trial.requests.classes
        for error, requests in totals.errors.items()
    ]
    return sorted(rows, key=lambda row: (-row.requests, row.key, row.request_class, row.error))


TIME_FAMILY = Family(_times)
THROUGHPUT_FAMILY = Family(_throughput)
SPREAD_FAMILY = Family(_spread, _connections)
FAILURE_FAMILY = Family(_failures)

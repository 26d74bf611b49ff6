"""How many requests were answered per second, and how near this is to what would be possible without waits."""

from collections.abc import Iterator

import duckdb
import numpy as np

from stampede.evaluate.metrics import THROUGHPUT
from stampede.evaluate.metrics.metric import Family, MetricValues, Stats
from stampede.evaluate.metrics.simulated import SimulatedTrial
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.trial_data import TrialData

_SPANS = f"""
SELECT request_class, epoch(max(sent + to_milliseconds(coalesce(duration_ms, 0)))) - epoch(min(sent)) AS seconds
FROM requests WHERE {OF_TRIAL} GROUP BY GROUPING SETS ((request_class), ())
"""  # noqa: S608  # made of constants

# A user of a closed loop sends nothing while it waits. Without the overhead, the same requests would take that much
# less time.
_OF_IDEAL = f"""
SELECT request_class, 1 - sum(lost_ms) / nullif(sum(span_ms), 0) AS of_ideal
FROM (SELECT request_class, sum(overhead_ms) AS lost_ms, epoch_ms(max(answered)) - epoch_ms(min(sent)) AS span_ms
      FROM (SELECT request_class, overhead_ms, sent, answered, generator, split_part(id, '-', 1) AS user
            FROM requests WHERE {OF_TRIAL} AND answered IS NOT NULL)
      GROUP BY GROUPING SETS ((request_class, generator, user), (generator, user)))
GROUP BY request_class
"""  # noqa: S608


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    """Yield the throughput of each class; ``of_ideal`` only in a closed loop, where a wait delays the next request."""
    closed = trial.load.loop == "closed"
    of_ideal = dict(database.execute(_OF_IDEAL, of_trial(trial.key)).fetchall()) if closed else {}
    for request_class, seconds in database.execute(_SPANS, of_trial(trial.key)).fetchall():
        stats: Stats = {}
        if (answered := trial.requests.of_class(request_class).answered) and seconds:
            stats[THROUGHPUT.name, "per_second"] = answered / seconds
        if (share := of_ideal.get(request_class)) is not None:
            stats[THROUGHPUT.name, "of_ideal"] = share
        yield MetricValues(request_class, stats)


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    responses_s = trial.rows.ended - trial.rows.sent
    _, user = np.unique(
        trial.rows.of_class * (1 + trial.rows.user.max(initial=0)) + trial.rows.user, return_inverse=True
    )
    for request_class, mine in trial.each_class():
        answered = mine & trial.answered
        if not answered.any():
            continue
        seconds = trial.rows.ended[mine].max() - trial.rows.sent[mine].min()
        stats: Stats = {(THROUGHPUT.name, "per_second"): float(answered.sum() / seconds)} if seconds else {}
        if trial.load.loop == "closed":
            first, last = np.full(len(user), np.inf), np.full(len(user), -np.inf)
            np.minimum.at(first, user[answered], trial.rows.sent[answered])
            np.maximum.at(last, user[answered], trial.rows.ended[answered])
            span_s = (last - first)[np.isfinite(first)].sum()
            lost_s = (responses_s - trial.rows.asked)[answered].sum()
            if span_s:
                stats[THROUGHPUT.name, "of_ideal"] = float(1 - lost_s / span_s)
        yield MetricValues(request_class, stats)


FAMILY = Family((THROUGHPUT,), _measure, measure_simulated=_measure_simulated)

"""Bursts: whether their requests were sent at once, when each was answered, and which workers served them."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from stampede.evaluate.metrics import BURST, workers
from stampede.evaluate.metrics.metric import Family, MetricValues, ValidityIssue
from stampede.evaluate.metrics.simulated import SimulatedTrial
from stampede.evaluate.read import BURSTS, Key, of_trial
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import Run
from stampede.records.summary import WaveRow

WAVES = 60
"""The most waves that are told apart. A burst with more waves is more like a steady load."""
WAVE_FROM_MS = 100
"""Waves of shorter requests cannot be told apart, because the time on the network blurs them."""


class BurstRequest(NamedTuple):
    """One request of a burst. Times are in seconds since the burst was sent; None: the request failed before that."""

    sent_s: float
    began_s: float | None
    ended_s: float | None
    answered_s: float | None
    worker: str | None
    failed: bool


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    """Yield the medians over a trial's complete bursts: how long a burst took, and the busiest worker's share of it."""
    if not (size := trial.load.burst):
        return
    query = """
        SELECT median(total_ms), median(largest_share)
        FROM (SELECT burst, (epoch_us(max(answered) FILTER (WHERE error IS NULL)) - epoch_us(min(sent))) / 1000
                  AS total_ms FROM bursts WHERE whole GROUP BY burst)
        JOIN (SELECT burst, max(requests) / sum(requests) AS largest_share
              FROM (SELECT burst, worker, count(*) AS requests FROM bursts WHERE whole AND error IS NULL GROUP BY ALL)
              GROUP BY burst) USING (burst)
    """
    [(total_ms, largest_share)] = _rows(database, query, trial.key, size)
    if total_ms is not None:
        yield MetricValues(None, BURST.keyed({"total": total_ms, "largest_share": largest_share}))


def completion_times_ms(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> list[float]:
    """Return the response times of a burst in ms, the shortest first: medians over a trial's complete bursts.

    Failed requests have no response time. The first value is the median of the shortest response times, and so on.
    """
    query = """
        SELECT median(duration_ms)
        FROM (SELECT duration_ms, row_number() OVER (PARTITION BY burst ORDER BY duration_ms) AS place
              FROM bursts WHERE whole AND error IS NULL)
        GROUP BY place ORDER BY place
    """
    return [time_ms for (time_ms,) in _rows(database, query, key, size)]


def wave_rows(database: duckdb.DuckDBPyConnection, run: Run, trusted: Sequence[TrialData]) -> Iterator[WaveRow]:
    """Yield the waves of the first burst in each variant's first trusted trial, if the variant has several workers.

    A wave lasts as long as a request asks for. The middle of the first wave is when the first request began. There are
    no waves if there would be more than WAVES, or if a request asks for less than WAVE_FROM_MS.
    """
    query = f"""
        SELECT worker, wave, count(*)::INTEGER FROM (
            SELECT worker, service_time_ms,
                (1 + round((began - min(began) OVER ()) / (service_time_ms / 1000)))::INTEGER AS wave
            FROM bursts WHERE burst = 1 AND error IS NULL AND service_time_ms >= {WAVE_FROM_MS})
        GROUP BY worker, wave ORDER BY worker, wave
    """  # noqa: S608
    variants, loads = [each.name for each in run.variants], [each.name for each in run.loads]
    firsts = {trial.key[:2]: trial for trial in reversed(trusted)}
    for variant, load in sorted(firsts, key=lambda cell: (variants.index(cell[0]), loads.index(cell[1]))):
        first, size = firsts[variant, load], firsts[variant, load].load.burst
        if not size or first.variant.workers < 2:
            continue
        found = _rows(database, query, first.key, size)
        quick = _rows(database, f"FROM bursts WHERE burst = 1 AND service_time_ms < {WAVE_FROM_MS}", first.key, size)
        if quick or any(wave > WAVES for _, wave, _ in found):
            continue
        order = workers.in_order({worker for worker, _, _ in found})
        for worker, wave, requests in sorted(found, key=lambda row: (order.index(row[0]), row[1])):
            yield WaveRow(
                variant=variant, load=load, trial=first.record.trial, burst=1, worker=worker, wave=wave,
                requests=requests,
            )  # fmt: skip


def read_first_burst(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> list[BurstRequest]:
    """Return the requests of the first burst in the order of their answers; requests without an answer come last."""
    query = """
        SELECT epoch(sent) - first, began - first, ended - first, epoch(answered) - first, worker, error IS NOT NULL
        FROM (SELECT *, epoch(min(sent) OVER ()) AS first FROM bursts WHERE burst = 1)
        ORDER BY answered NULLS LAST, sent, id, generator
    """
    return [BurstRequest(*row) for row in _rows(database, query, key, size)]


def ordinal(place: int) -> str:
    """Return a number as an ordinal: 1st, 2nd, 3rd, 4th and so on."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ending}"


def _rows(database: duckdb.DuckDBPyConnection, query: str, key: Key, size: int) -> list[Any]:
    return database.execute(f"{BURSTS} {query}", of_trial(key) | {"size": size}).fetchall()


def _issues(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that all requests of a burst were sent before the first of them was answered."""
    if not trial.requests.sending:
        return
    bursts, early, in_last = trial.requests.sending
    if early:
        yield "suspect", f"in {early} of {bursts} bursts a request was answered before the last one was sent"
    if in_last != trial.load.burst:
        yield "suspect", f"the last burst has {in_last} of {trial.load.burst} requests"


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    if bursts := _simulated_bursts(trial):
        total_ms = [1000 * float(trial.rows.ended[burst].max() - trial.rows.sent[burst].min()) for burst in bursts]
        shares = [int(np.bincount(trial.rows.worker[burst]).max()) / len(burst) for burst in bursts]
        yield MetricValues(None, BURST.keyed({"total": median(total_ms), "largest_share": median(shares)}))


def simulated_completion_times_ms(trial: SimulatedTrial) -> list[float]:
    """Return the same as ``completion_times_ms`` for a simulated trial."""
    times_ms = [sorted(1000 * (trial.rows.ended - trial.rows.sent)[burst]) for burst in _simulated_bursts(trial)]
    return [median(place) for place in zip(*times_ms, strict=False)]


def _simulated_bursts(trial: SimulatedTrial) -> list[npt.NDArray[np.int64]]:
    """Return which requests make up each complete burst of a simulated trial, without refused requests."""
    if not (size := trial.load.burst):
        return []
    starts = range(0, len(trial.rows.sent) - size + 1, size)
    every = [np.arange(start, start + size) for start in starts]
    return [answered for burst in every if len(answered := burst[trial.answered[burst]])]


FAMILY = Family((BURST,), _measure, _issues, _measure_simulated)

"""Bursts: whether their requests were sent at once, when each was answered, and which workers served them."""

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics import BURST
from stampede.evaluate.metrics.metric import Family, MetricValues, ValidityIssue
from stampede.evaluate.read import BURSTS, Key, of_trial
from stampede.evaluate.read.requests import Ints, Requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord


class BurstRequest(NamedTuple):
    """One request of a burst. Times are in seconds since the burst was sent; None: the request failed before that."""

    sent_s: float
    began_s: float | None
    ended_s: float | None
    answered_s: float | None
    worker: str | None
    failed: bool


def _whole_bursts(requests: Requests, size: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the places of the requests of each whole burst, and of those that were answered."""
    of_k6 = np.flatnonzero(~requests.of_client)
    for start in range(0, len(of_k6) - size + 1, size):
        burst = of_k6[start : start + size]
        yield burst, burst[requests.answered[burst]]


def _measure(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield the medians over a trial's whole bursts: how long a burst took, and the busiest worker's share of it."""
    totals_ms, shares = [], []
    for burst, answered in _whole_bursts(requests, load.burst) if load.burst else ():
        if len(answered):
            total_us = requests.answered_us[answered].max() - requests.sent_us[burst].min()
            totals_ms.append(float(total_us) / 1000)
            served = np.unique(requests.worker[answered], return_counts=True)[1]
            shares.append(int(served.max()) / len(answered))
    if totals_ms:
        yield MetricValues(BURST, None, {"total": median(totals_ms), "largest_share": median(shares)})


def completion_times_ms(requests: Requests, size: int) -> list[float]:
    """Return the response times of a burst in ms, the shortest first: medians over a trial's whole bursts.

    Failed requests have no response time. The first value is the median of the shortest response times, and so on.
    """
    times_ms = [np.sort(requests.duration_ms[answered]).tolist() for _, answered in _whole_bursts(requests, size)]
    most = max(map(len, times_ms), default=0)
    return [median(burst[place] for burst in times_ms if place < len(burst)) for place in range(most)]


def read_first_burst(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> list[BurstRequest]:
    """Return the requests of the first burst in the order of their answers; requests without an answer come last."""
    query = f"""{BURSTS}
        SELECT epoch(sent) - first, began - first, ended - first, epoch(answered) - first, worker, error IS NOT NULL
        FROM (SELECT *, epoch(min(sent) OVER ()) AS first FROM bursts WHERE burst = 1)
        ORDER BY answered NULLS LAST, sent, id, generator
    """  # noqa: S608  # made of constants
    return [BurstRequest(*row) for row in database.execute(query, of_trial(key) | {"size": size}).fetchall()]


def ordinal(place: int) -> str:
    """Return a number as an ordinal: 1st, 2nd, 3rd, 4th and so on."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ending}"


def _issues(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that all requests of a burst were sent before the first of them was answered."""
    if not trial.requests.sending:
        return
    bursts, early, in_last = trial.requests.sending
    if early:
        yield "suspect", f"in {early} of {bursts} bursts a request was answered before the last one was sent"
    if in_last != trial.load.burst:
        yield "suspect", f"the last burst has {in_last} of {trial.load.burst} requests"


FAMILY = Family(_measure, issues=_issues)

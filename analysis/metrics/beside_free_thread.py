"""Which requests waited for a worker whose threads were all busy although another worker had a free thread.

``analysis.waiting`` computes the waits, for this family and for the picture of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from analysis.metrics.metric import Family, Finding, Metric
from analysis.read.observation import stalls_within

if TYPE_CHECKING:
    import duckdb

    from analysis.observed import Observed

BESIDE_FREE_THREAD = Metric(
    "beside_free_thread",
    {"count": "requests", "share": "share", "total": "ms", "max": "ms"},
    "How long a request waited for its worker, none of whose threads was free, while another worker had a free "
    "thread. `count`: requests that waited so for more than 50 ms in all. `share`: these requests divided by the "
    "answered requests. `total` and `max`: the sum and the longest of these waits, over all answered requests.",
    called="waits of {requests} requests beside a free thread",
)
RECOVERY = Metric(
    "recovery",
    {"avg": "ms", "max": "ms"},
    "How long after a stall of the service that the servers call (`api`) there was always a request that waited for a "
    "thread, on average and at most over the stalls of a trial.",
    of_all=True,
)


def measure(database: duckdb.DuckDBPyConnection, trial: Observed) -> Iterator[Finding]:
    """Yield how long requests of each class waited beside a free thread, and how long the servers took to recover.

    Of workers that are killed and replaced nobody knows how many there were at a time.
    """
    from analysis import waiting  # noqa: PLC0415  # NumPy loads as long as a command that derives nothing takes

    if trial.load.crashes:
        return
    answered = waiting.read_answered(database, *trial.key)
    if waits := waiting.of_variant(trial.variant, answered):
        of_class = [(name, answered.request == place) for place, name in enumerate(answered.classes)]
        for request, mine in [*of_class, (None, answered.request >= 0)]:
            values = waiting.statistics(waits.beside_s[mine])
            yield Finding(request, {(BESIDE_FREE_THREAD.name, stat): value for stat, value in values.items()})
    stalls = stalls_within(trial.containers, answered.first, answered.last_sent)
    if recoveries_s := list(waiting.recoveries_s(answered, stalls)):
        average_s, longest_s = fmean(recoveries_s), max(recoveries_s)
        yield Finding(None, {(RECOVERY.name, "avg"): 1000 * average_s, (RECOVERY.name, "max"): 1000 * longest_s})


FAMILY = Family((BESIDE_FREE_THREAD, RECOVERY), measure)

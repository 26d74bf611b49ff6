"""Between which bounds the findings lie if lines are missing: docs/how-to/diagnose.md says how often they did.

Each request counts once with the shortest wait that its lines allow, and once with the longest. If it is in both logs,
it waited for the difference of its durations, less the way to the server and back, and as much less or more as times
in whole seconds leave open. If it is in the balancer's log alone, and the balancer did not answer it itself, it waited
for at most as long as it took, and may have held a thread meanwhile. If it is in a server's log alone, or in neither,
it may have waited for as long as any request took. If lines have no ids, each missing line may have exchanged the pair
of the next line, which may have exchanged that of the line after it, and so on.
"""

from collections.abc import Sequence
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from stampede.evaluate.metrics.waiting import FROM_S, Segments, at_least, time_in
from stampede.logs.columns import Bounds, Floats
from stampede.logs.diagnose.capacity import Capacity, busy_times
from stampede.logs.diagnose.joining import MISSING
from stampede.logs.diagnose.requests import Requests

WAITS = (0.5, 0.9, 0.99)


class Ranges(NamedTuple):
    """The bounds of findings.

    ``missing`` is the share of the requests of which a line is missing, ``wrong`` that of the pairs of lines that may
    be of two requests. ``waited`` and ``avoidably`` are shares of the requests, ``avoidable``, ``full`` and ``idle``
    shares of the delay. ``usually`` is the share that waited if the missing requests are like the others. ``waits_s``
    are the quantiles WAITS of the queueing delay in seconds.
    """

    missing: float
    wrong: float
    waited: Bounds[float]
    usually: Bounds[float]
    avoidably: Bounds[float]
    avoidable: Bounds[float]
    full: Bounds[float]
    idle: Bounds[float]
    waits_s: Sequence[Bounds[float]]


class _Lost(NamedTuple):
    """What is missing: ``unserved`` are the requests that only a balancer has, and ``unsent`` counts all others.

    ``share`` is the share of all of them. So many pairs as ``wrong`` may be of two requests. No request took longer
    than ``longest_s``.
    """

    share: float
    unserved: Segments
    unsent: int
    wrong: int
    longest_s: float

    def of_all(self, joined: Bounds[Floats], unserved_s: Floats) -> Bounds[Floats]:
        """Return the times of all requests, from those in both logs and the most of those that only a balancer has."""
        unknown = self.unsent + self.wrong
        return Bounds(
            np.concatenate([np.zeros(len(unserved_s) + unknown), self.sure(joined.low)]),
            joined.likely,
            np.concatenate([np.sort(joined.high)[self.wrong :], unserved_s, [self.longest_s] * unknown]),
        )

    def sure(self, times_s: Floats) -> Floats:
        """Return times in order without the longest, of pairs that may be of two requests."""
        return np.sort(times_s)[: len(times_s) - self.wrong]

    def of_delay(self, cause: Bounds[Floats], waits: Bounds[Floats]) -> Bounds[float]:
        """Return which share of the delay a cause has; the delay that is missing may have any cause."""
        short_s, likely_s, long_s = (max(float(times_s.sum()), 1e-9) for times_s in waits)
        known, most_s = 1 - self.share, float(cause.high.sum()) + long_s - float(self.sure(waits.high).sum())
        low = known * float(self.sure(cause.low).sum()) / long_s
        return Bounds(low, float(cause.likely.sum()) / likely_s, min(known * most_s / short_s + self.share, 1.0))


def ranges_of(requests: Requests, capacity: Capacity, avoidable: Bounds[Floats]) -> Ranges | None:
    """Return the bounds of findings; None: hardly any line is missing.

    ``avoidable`` is how long each request waited avoidably if no line is missing.
    """
    if not (lost := _lost(requests)):
        return None
    joined, unserved = requests.joined, lost.unserved
    waits, avoidable = (each.map(lambda times_s: times_s[joined]) for each in (requests.waits_s, avoidable))
    less_s, more_s, lasted_s = requests.less_s[joined], requests.more_s[joined], unserved[:, 1] - unserved[:, 0]
    short_s = waits.likely[waits.likely <= FROM_S]  # the way to the server and back takes no longer than nearly all
    way_s = float(np.quantile(short_s, 0.99)) if len(short_s) else FROM_S
    of_all = lost.of_all(waits._replace(low=np.maximum(waits.low - way_s, 0)), lasted_s)
    waited, any_share = of_all.map(share_waiting), Bounds(0.0, 0.0, 1.0)
    avoidably, avoidable_share, full_share, idle_share = waited._replace(low=0.0), any_share, any_share, any_share
    if not requests.is_coarse:
        waiting = np.stack([requests.sent_s, requests.began_s], axis=1)[joined].T
        short, _, long = requests.at_work
        surely = capacity.full.low
        at_work = at_least(
            capacity.total, *busy_times(long, unserved, capacity.away, capacity.perhaps_away, capacity.lacking)
        )
        perhaps = at_least(1, *np.concatenate([capacity.full.high, at_work]).T)
        full = Bounds(surely, capacity.full.likely, perhaps).map(lambda times: time_in(times, *waiting))
        busy_s = time_in(at_least(1, *busy_times(short, surely, requests.held)), *waiting)
        most_busy_s = time_in(at_least(1, *busy_times(long, unserved, perhaps, requests.held)), *waiting)
        least_s = np.maximum(np.minimum(avoidable.low, waits.low - full.high) - way_s, 0)
        most_s = np.maximum(avoidable.high, 0 if capacity.seen == 1 else waits.high - full.low)
        avoidable = Bounds(least_s, avoidable.likely, most_s)
        avoidably = lost.of_all(avoidable, lasted_s - time_in(surely, *unserved.T)).map(share_waiting)
        avoidable_share = lost.of_delay(avoidable, waits)
        full_share = lost.of_delay(Bounds(np.maximum(full.low - less_s, 0), full.likely, full.high + more_s), waits)
        idle_s = np.maximum([waits.low - most_busy_s, waits.likely - busy_s, waits.high - busy_s], 0)
        idle_share = lost.of_delay(Bounds(*idle_s), waits)
    if not capacity.are_several and "workers" not in capacity.found:  # else, lines of another worker may be missing
        avoidably = avoidable_share = Bounds.exactly(0.0)
    waits_s = [
        Bounds(
            float(np.quantile(of_all.low, place, method="lower")),
            float(np.quantile(of_all.likely, place)),
            float(np.quantile(of_all.high, place, method="higher")),
        )
        for place in WAITS
    ]
    in_both = len(waits.likely)
    low, likely, high = waits.map(lambda times_s: int((times_s > FROM_S).sum()))
    low, high = max(low - lost.wrong, 0), min(high + lost.wrong, in_both)
    usually = Bounds(low - 2 * sqrt(low), likely, high + 2 * sqrt(high + 1))  # two standard deviations
    wrong = lost.wrong / in_both
    return Ranges(lost.share, wrong, waited, usually.map(lambda count: count / in_both), avoidably, avoidable_share,
                  full_share, idle_share, waits_s)  # fmt: skip


def _lost(requests: Requests) -> _Lost | None:
    joined, unserved = requests.joined, requests.unserved
    only_served = int((~joined & np.isin(requests.route, np.unique(requests.route[joined]))).sum())
    pairs = int(joined.sum())
    unsent = only_served + ceil(only_served * len(unserved) / max(pairs, 1))
    share = 1 - pairs / (pairs + len(unserved) + unsent)
    by_id = all(each.by_id for _, _, each in requests.joins)
    is_seen = by_id or not requests.is_coarse  # by whole seconds, most lines that are missing go unnoticed
    if share <= (MISSING if is_seen else 0) or not pairs:
        return None
    exchanged = 1 / max(1 - max(each.ambiguous for _, _, each in requests.joins), 1 / pairs)
    wrong = 0 if by_id else min(ceil((only_served + len(unserved)) * exchanged), pairs)
    took_s = np.concatenate([(requests.ended_s - requests.sent_s)[joined], unserved[:, 1] - unserved[:, 0]])
    return _Lost(share, unserved, unsent, wrong, float(took_s.max()))


def share_waiting(waits_s: Floats) -> float:
    """Return the share of requests that waited for longer than 50 ms."""
    return float((waits_s > FROM_S).mean())

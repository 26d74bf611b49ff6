"""Between which bounds the findings lie if lines are missing: docs/how-to/diagnose.md says how often they did.

Each request counts once with the shortest wait that its lines allow, and once with the longest. If it is in both logs,
it waited for the difference of its durations, less the way to the server and back, and as much less or more as times
in whole seconds leave open. If it is in the balancer's log
alone, and the balancer did not answer it itself, it waited for at most as long as it took, and may have held a thread
meanwhile. If it is in a server's log alone, or in neither, it may have waited for as long as any request took. If lines
have no ids, each missing line may have exchanged the pair of the next line, which may have exchanged that of the line
after it, and so on.
"""

from collections.abc import Sequence
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from stampede.evaluate.metrics.waiting import FROM_S, Segments, at_least, time_in
from stampede.logs.diagnose.capacity import Capacity, busy_times
from stampede.logs.diagnose.joining import MISSING
from stampede.logs.diagnose.logs import COARSE_S, Floats
from stampede.logs.diagnose.requests import Requests

WAITS = (0.5, 0.9, 0.99)


class Range(NamedTuple):
    """A value is at least ``low`` and at most ``high``."""

    low: float
    high: float


class Ranges(NamedTuple):
    """The bounds of findings.

    ``missing`` is the share of the requests of which a line is missing, ``wrong`` that of the pairs of lines that may
    be of two requests.
    ``waited`` and ``avoidably`` are shares of the requests, ``avoidable``, ``full`` and ``idle`` shares of the delay.
    ``usually`` is the share that waited if the missing requests are like the others. ``waits_s`` are the quantiles
    WAITS of the queueing delay in seconds.
    """

    missing: float
    wrong: float
    waited: Range
    usually: Range
    avoidably: Range
    avoidable: Range
    full: Range
    idle: Range
    waits_s: Sequence[Range]


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

    def of_all(self, least_s: Floats, most_s: Floats, unserved_s: Floats) -> tuple[Floats, Floats]:
        """Return the least and the most of all requests, from those of the requests that are in both logs.

        ``unserved_s`` is the most of those that only a balancer has.
        """
        unknown, longest_s = len(unserved_s) + self.unsent + self.wrong, [self.longest_s] * (self.unsent + self.wrong)
        return (np.concatenate([np.zeros(unknown), self.sure(least_s)]),
                np.concatenate([np.sort(most_s)[self.wrong :], unserved_s, longest_s]))  # fmt: skip

    def sure(self, times_s: Floats) -> Floats:
        """Return times in order without the longest, of pairs that may be of two requests."""
        return np.sort(times_s)[: len(times_s) - self.wrong]

    def of_delay(self, least_s: Floats, most_s: Floats, shortest_s: Floats, longest_s: Floats) -> Range:
        """Return which share of the delay a cause has; the delay that is missing may have any cause."""
        short_s, long_s = (max(float(waits_s.sum()), 1e-9) for waits_s in (shortest_s, longest_s))
        known, most = 1 - self.share, (float(most_s.sum()) + long_s - float(self.sure(longest_s).sum())) / short_s
        return Range(known * float(self.sure(least_s).sum()) / long_s, min(known * most + self.share, 1.0))


def ranges_of(requests: Requests, capacity: Capacity, avoidable_s: tuple[Floats, Floats]) -> Ranges | None:
    """Return the bounds of findings; None: hardly any line is missing.

    ``avoidable_s`` is how long each request waited avoidably at least and at most if no line is missing.
    """
    if not (lost := _lost(requests)):
        return None
    joined, unserved, nothing = requests.joined, lost.unserved, lost.unserved[:0]
    waited_s, lasted_s = requests.waited_s[joined], unserved[:, 1] - unserved[:, 0]
    less_s, more_s = requests.less_s[joined], requests.more_s[joined]
    shortest_s, longest_s = np.maximum(waited_s - less_s, 0), waited_s + more_s
    short_s = waited_s[waited_s <= FROM_S]  # the way to the server and back takes no longer than nearly all of these
    way_s = float(np.quantile(short_s, 0.99)) if len(short_s) else FROM_S
    low_s, high_s = lost.of_all(np.maximum(shortest_s - way_s, 0), longest_s, lasted_s)
    waited = _share(low_s, high_s)
    avoidably, avoidable, full, idle = Range(0.0, waited.high), Range(0.0, 1.0), Range(0.0, 1.0), Range(0.0, 1.0)
    if requests.tick_s < COARSE_S:
        waits = np.stack([requests.sent_s, requests.began_s], axis=1)[joined]
        surely, perhaps = capacity.full_within
        with_unserved = _at_work(capacity.total, requests.longest, [unserved, capacity.away])
        perhaps = at_least(1, *np.concatenate([perhaps, with_unserved]).T)
        full_s, most_full_s = (time_in(times, *waits.T) for times in (surely, perhaps))
        busy_s, most_busy_s = (
            time_in(_at_work(1, of, [also, full, requests.held]), *waits.T)
            for of, also, full in ((requests.shortest, nothing, surely), (requests.longest, unserved, perhaps))
        )
        least_s = np.maximum(np.minimum(avoidable_s[0][joined], shortest_s - most_full_s) - way_s, 0)
        most_s = np.maximum(avoidable_s[1][joined], longest_s - full_s)
        unserved_s = lasted_s - time_in(surely, *unserved.T)
        avoidably = _share(*lost.of_all(least_s, most_s, unserved_s))
        avoidable = lost.of_delay(least_s, most_s, shortest_s, longest_s)
        full = lost.of_delay(np.maximum(full_s - less_s, 0), most_full_s + more_s, shortest_s, longest_s)
        idle = lost.of_delay(np.maximum(shortest_s - most_busy_s, 0), longest_s - busy_s, shortest_s, longest_s)
    if not capacity.are_several:
        avoidably, avoidable = Range(0.0, 0.0), Range(0.0, 0.0)
    waits_s = [
        Range(float(np.quantile(low_s, place, method="lower")), float(np.quantile(high_s, place, method="higher")))
        for place in WAITS
    ]
    in_both = len(waited_s)
    low = max(int((shortest_s > FROM_S).sum()) - lost.wrong, 0)
    high = min(int((longest_s > FROM_S).sum()) + lost.wrong, in_both)
    usually = Range((low - 2 * sqrt(low)) / in_both, (high + 2 * sqrt(high + 1)) / in_both)  # two standard deviations
    return Ranges(lost.share, lost.wrong / in_both, waited, usually, avoidably, avoidable, full, idle, waits_s)


def _lost(requests: Requests) -> _Lost | None:
    joined, unserved = requests.joined, requests.unserved
    only_served = int((~joined & np.isin(requests.route, np.unique(requests.route[joined]))).sum())
    pairs = int(joined.sum())
    unsent = only_served + ceil(only_served * len(unserved) / max(pairs, 1))
    share = 1 - pairs / (pairs + len(unserved) + unsent)
    by_id = all(each.by_id for _, _, each in requests.joins)
    is_seen = by_id or requests.tick_s < COARSE_S  # by whole seconds, most lines that are missing go unnoticed
    if share <= (MISSING if is_seen else 0) or not pairs:
        return None
    exchanged = 1 / max(1 - max(each.ambiguous for _, _, each in requests.joins), 1 / pairs)
    wrong = 0 if by_id else min(ceil((only_served + len(unserved)) * exchanged), pairs)
    took_s = np.concatenate([(requests.ended_s - requests.sent_s)[joined], unserved[:, 1] - unserved[:, 0]])
    return _Lost(share, unserved, unsent, wrong, float(took_s.max()))


def _share(least_s: Floats, most_s: Floats) -> Range:
    return Range(float((least_s > FROM_S).mean()), float((most_s > FROM_S).mean()))


def _at_work(threads: int, requests: Requests, also: Sequence[Segments]) -> Segments:
    """Return when so many threads were at work, ``also`` in these times."""
    return at_least(threads, *busy_times(requests, np.concatenate(also)))

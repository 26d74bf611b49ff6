"""Between which bounds the findings probably lie if lines are missing: docs/how-to/diagnose.md says how often they did.

A request whose line is in the balancer's log alone waited between not at all and for as long as it took, and may have
held a thread meanwhile. A request that is in a server's log alone may have waited for as long as the longest did. If
lines have no ids, as many of the pairs may be of two requests as lines are missing. Two of these rules were tuned on
the trials that the page counts.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from analysis.metrics.waiting import FROM_S, at_least, time_in
from lab.apps.diagnose.capacity import Capacity
from lab.apps.diagnose.logs import COARSE_S, Floats
from lab.apps.diagnose.requests import Requests

WAITS = (0.5, 0.9, 0.99)


class Range(NamedTuple):
    """A value is at least ``low`` and at most ``high``."""

    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the bounds hardly differ."""
        return self.high - self.low < 0.005


_ANYTHING, _NONE = Range(0.0, 1.0), Range(0.0, 0.0)


class Ranges(NamedTuple):
    """The bounds of findings; ``missing`` is the share of the requests of which a line is missing.

    ``waited`` and ``avoidably`` are shares of the requests, ``avoidable``, ``full`` and ``idle`` shares of the delay.
    ``waits_s`` are the quantiles WAITS of the queueing delay in seconds.
    """

    missing: float
    waited: Range
    avoidably: Range
    avoidable: Range
    full: Range
    idle: Range
    waits_s: Sequence[Range]


def ranges_of(requests: Requests, capacity: Capacity, avoidable_s: Floats) -> Ranges | None:
    """Return the bounds of findings; None: no line is missing.

    ``avoidable_s`` is how long each request waited avoidably if no line is missing.
    """
    joined = requests.joined
    unsent = int((~joined & np.isin(requests.route, np.unique(requests.route[joined]))).sum())
    unserved = requests.unserved
    if not unsent + len(unserved):
        return None
    unknown = unsent + ceil(unsent * len(unserved) / max(int(joined.sum()), 1))  # and those that are in neither log
    by_id = all(each.by_id for _, _, each in requests.joins)
    sent_s, began_s = requests.sent_s[joined], requests.began_s[joined]
    waited_s, took_s = requests.waited_s[joined], unserved[:, 1] - unserved[:, 0]
    sent = len(waited_s) + len(unserved) + unknown
    wrong = min(0 if by_id else unsent + len(unserved), len(waited_s))

    def within(threads: int, *, maybe: bool, waits: tuple[Floats, Floats] = (sent_s, began_s)) -> Floats:
        """Return how long so many threads were at work during waits; ``maybe``: also of requests of unknown work."""
        also = unserved if maybe else unserved[:0]
        return time_in(at_least(threads, np.concatenate([requests.began_s, also[:, 0]]),
                                np.concatenate([requests.ended_s, also[:, 1]])), *waits)  # fmt: skip

    def surely(times_s: Floats) -> Floats:
        """Return times without the longest, of pairs of lines that may be of two requests."""
        return np.sort(np.maximum(times_s, 0))[: len(times_s) - wrong]

    def share(low_s: Floats, high_s: Floats, of_ours_s: Floats) -> Range:
        most = (high_s > FROM_S).sum() + (of_ours_s > FROM_S).sum() + unknown + wrong
        return Range(float((surely(low_s) > FROM_S).sum() / sent), min(float(most / sent), 1.0))

    def of_delay(low_s: Floats, high_s: Floats) -> Range:
        delay_s = max(float(waited_s.sum()), 1e-9)
        more_s = float(waited_s.sum() - surely(waited_s).sum())
        return Range(float(surely(low_s).sum()) / delay_s, min((float(high_s.sum()) + more_s) / delay_s, 1.0))

    total = capacity.total
    full_s, full_maybe_s = within(total, maybe=False), within(total, maybe=True)
    idle_s, idle_maybe_s = (waited_s - within(1, maybe=maybe) for maybe in (True, False))
    single = total == 1 or (capacity.workers == 1 and "workers" not in capacity.found)
    least_s = np.minimum(avoidable_s[joined], np.maximum(waited_s - full_maybe_s, 0))
    ours_s = took_s - within(total, maybe=False, waits=(unserved[:, 0], unserved[:, 1]))
    longest_s = max(float(waited_s.max()), float(took_s.max(initial=0.0)))
    at_most_s = np.concatenate([waited_s, took_s, np.full(unknown, longest_s)])
    at_least_s = np.concatenate([surely(waited_s), np.zeros(sent - len(waited_s) + wrong)])
    found = Ranges(
        (sent - len(waited_s)) / sent,
        share(waited_s, waited_s, took_s),
        _NONE if single else share(least_s, waited_s - full_s, ours_s),
        _NONE if single else of_delay(least_s, waited_s - full_s),
        of_delay(full_s, full_maybe_s),
        of_delay(idle_s, idle_maybe_s),
        [
            Range(
                float(np.quantile(at_least_s, place, method="lower")),
                float(np.quantile(at_most_s, place, method="higher")),
            )
            for place in WAITS
        ],
    )
    if by_id or requests.tick_s < COARSE_S:
        return found
    return found._replace(avoidable=_ANYTHING, full=_ANYTHING, idle=_ANYTHING)

"""What logs say of a service: who waited, for how long, where, when, and behind what."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stampede.evaluate.metrics.waiting import FROM_S, at_least, avoidable_waits, time_in
from stampede.logs.columns import Bounds, Flags, Floats, Integers
from stampede.logs.diagnose.capacity import Capacity, busy_times, work_until
from stampede.logs.diagnose.ranges import Ranges, ranges_of, share_waiting
from stampede.logs.diagnose.requests import Requests

Cause = Literal["", "idle", "avoidable", "full", "away", "unknown", "coarse", "missing"]
MOST_CLASSES = 6
"""So many routes are classes of their own: those whose requests waited longest in all, then the most frequent."""
NOTICED = 0.01
"""If at most this share of the requests waited for more than 50 ms, no request waits noticeably."""
ENOUGH = 10
"""So many requests that waited matter, however few they are among all."""
MOSTLY = 0.25
"""If so many requests miss a line, those may be unlike the others."""
PERIODS = 60
_MINUTE_S = 60


@dataclass(frozen=True)
class ClassFindings:
    """What the requests of one class waited, in seconds; shares are of its requests.

    ``waited`` is the share that waited more than 50 ms, ``avoidably`` the share that did so while a thread was free.
    """

    name: str
    requests: int
    latency_p99_s: float
    wait_p50_s: float
    wait_p90_s: Bounds[float]
    wait_p99_s: Bounds[float]
    longest_s: float
    waited: Bounds[float]
    avoidably: Bounds[float]

    @property
    def is_often_slow(self) -> bool:
        """Whether so many requests of the class waited that they matter alone."""
        return self.waited.likely > 0.05 and self.waited.likely * self.requests >= ENOUGH


@dataclass(frozen=True)
class Findings:
    """What the requests waited, in all and by class.

    ``queueing`` is the share of all latency that is queueing delay; ``avoidable`` is the share of all queueing delay
    during which a thread was free elsewhere, ``full`` the share during which all threads were at work or away, ``away``
    that of them in which some were away, and ``idle`` the share during which no request was at work. ``overtaken`` is
    the share of the delay of requests that waited more than 50 ms while later ones, of the same worker if the logs name
    it, were served at once. ``longest`` is the place of the longest wait. ``in_front`` says which classes held the busy
    threads meanwhile, as shares. ``periods_s`` is how long requests waited at most in each of PERIODS periods. ``load``
    is how many workers' worth of work came in each minute, and ``busy`` that in the minutes that are busy; without
    ``of_minutes``, the logs are shorter than a minute, and these are of all their time. ``bad_minute`` is when the
    worst minute began, if it matters alone, and the share of its requests that waited. ``ranges`` are bounds if lines
    are missing.
    """

    classes: list[ClassFindings]
    names: list[str]
    of_class: Integers
    avoidable_s: Floats
    queueing: float
    avoidable: Bounds[float]
    full: Bounds[float]
    away: float
    idle: Bounds[float]
    overtaken: float
    longest: int
    in_front: dict[str, float]
    periods_s: Floats
    load: Floats
    busy: Floats
    of_minutes: bool
    bad_minute: tuple[float, float] | None
    ranges: Ranges | None
    is_coarse: bool
    is_blurred: bool
    is_at_least: bool

    @property
    def cause(self) -> Cause:
        """What is true of most of the delay: no request was at work, a thread was free elsewhere, or none was free.

        ``away``: none was free, mostly because workers were killed or replaced.

        Empty: hardly any request waited. ``unknown``: none of these, as if there are fewer threads than the user says.
        ``coarse``: times in whole seconds do not tell it, or nothing tells how many threads there are besides.
        ``missing``: so many lines are missing that nobody can tell.
        """
        are_missing = self.ranges is not None and self.ranges.missing > NOTICED
        open_: Cause = "coarse" if (self.is_blurred or self.is_coarse) and not are_missing else "missing"
        slow = [self.waited, *(each.waited for each in self.classes if each.is_often_slow)]
        low, high = max(each.low for each in slow), max(each.high for each in slow)
        if self.bad_minute:
            low, high = max(low, self.bad_minute[1]), max(high, self.bad_minute[1])
        elif self.ranges:
            low, _, high = self.ranges.usually
        if low <= NOTICED:
            are_alike = not self.ranges or self.ranges.missing < MOSTLY  # else, the log of a host may be missing
            return "" if high <= NOTICED and are_alike else open_
        causes: dict[Cause, Bounds[float]] = {"idle": self.idle, "avoidable": self.avoidable, "full": self.full}
        for name, share in causes.items():
            if share.high >= 0.5:
                if name == "full" and self.is_at_least:
                    return "coarse" if self.is_coarse else open_
                found: Cause = "away" if name == "full" and self.away > self.full.likely / 2 else name
                return found if share.low >= 0.5 else open_
        return "coarse" if self.is_coarse else "unknown"

    @property
    def is_doubtful(self) -> bool:
        """Whether the logs do not tell how many requests waited to half a percentage point."""
        return self.waited.high - self.waited.low >= 0.005

    @property
    def unexplained(self) -> float:
        """The share of all queueing delay with no such cause: the request's own worker was at work, but not full."""
        return max(0.0, 1 - self.avoidable.likely - self.full.likely - self.idle.likely)

    @property
    def busy_load(self) -> float:
        """How many workers' worth of work came in the busy minutes, or in the busiest."""
        return float(self.busy.mean()) if len(self.busy) else float(self.load.max(initial=0.0))

    @property
    def waited(self) -> Bounds[float]:
        """The share of all requests that waited more than 50 ms."""
        return self._of_all([each.waited for each in self.classes])

    @property
    def avoidably(self) -> Bounds[float]:
        """The share of all requests that waited more than 50 ms while a thread was free."""
        return self._of_all([each.avoidably for each in self.classes])

    def _of_all(self, shares: Sequence[Bounds[float]]) -> Bounds[float]:
        counts, total = [each.requests for each in self.classes], max(sum(each.requests for each in self.classes), 1)
        return Bounds(*(sum(count * share for count, share in zip(counts, each, strict=True)) / total
                         for each in zip(*shares, strict=True)))  # fmt: skip


def findings_of(requests: Requests, capacity: Capacity, routes: Sequence[str]) -> Findings:
    """Return what requests waited. ``routes`` are the names of their routes."""
    waits, joined, sent_s, began_s = requests.waits_s, requests.joined, requests.sent_s, requests.began_s
    waited_s, long = waits.likely, waits.likely > FROM_S
    counts = long if 0 < long.mean() <= NOTICED else np.ones_like(long)  # a class may have waited among many others
    total_s, lasts_s = max(float(waited_s[counts].sum()), 1e-9), max(float(sent_s[-1]), 1e-9)

    def share(times_s: Floats) -> float:
        """Return which share of the delay these times are."""
        return float(times_s[counts].sum()) / total_s

    full = capacity.full.map(lambda times: time_in(times, sent_s, began_s))
    avoidable, longest = _avoidable(requests, capacity, full), requests.at_work.high
    unsure = joined & (np.maximum(requests.less_s, requests.more_s) >= 1)  # nobody knows when these held a thread
    unsure_at = at_least(1, longest.began_s[unsure], longest.ended_s[unsure])
    if not capacity.seen and "threads" in capacity.found and unsure.mean() > NOTICED:  # nor how many threads there are
        unsure_at = np.array([[0.0, float(requests.ended_s.max())]])
    avoidable = avoidable._replace(low=np.maximum(avoidable.low - time_in(unsure_at, sent_s, began_s), 0))
    away = at_least(2, *np.concatenate([at_least(1, *capacity.away.T), capacity.full.likely]).T)
    idle_s = np.zeros(len(requests))
    if not requests.is_coarse:
        at_work = at_least(1, *busy_times(requests, capacity.full.likely, requests.held, requests.hung))
        idle_s = np.maximum(waited_s - time_in(at_work, sent_s, began_s), 0)
    unsure_s = capacity.unsure_s if capacity.are_several else 0.0  # coarse times tell less of one request than of all
    more_s = requests.more_s * capacity.are_several
    widest = Bounds(
        np.clip(avoidable.low - unsure_s, 0, waits.low),
        avoidable.likely,
        np.minimum(avoidable.high + unsure_s + more_s, waits.high),
    )
    ranges = ranges_of(requests, capacity, widest)
    avoidable_share, full_share, idle_share = avoidable.map(share), full.map(share), Bounds.exactly(share(idle_s))

    periods_s = np.zeros(PERIODS)
    np.maximum.at(periods_s, np.minimum((sent_s / lasts_s * PERIODS).astype(np.int64), PERIODS - 1), waited_s)
    of_minutes, bad_minute = lasts_s >= _MINUTE_S, None
    load = np.array([requests.worked_s.sum() / max(lasts_s, 1.0)])
    if of_minutes:
        minute = (sent_s // _MINUTE_S).astype(np.int64)
        load = np.bincount(minute, weights=requests.worked_s)[: int(lasts_s // _MINUTE_S)] / _MINUTE_S
        in_minute, long_in = (np.bincount(minute[which], minlength=minute[-1] + 1) for which in (joined, long))
        worst = int(long_in.argmax())
        if long.mean() <= NOTICED and long_in[worst] >= ENOUGH and long_in[worst] > 0.2 * in_minute[worst]:
            bad_minute = float(worst * _MINUTE_S), float(long_in[worst] / in_minute[worst])

    names, class_of = _classes(requests, waited_s, routes)
    of_class = class_of[requests.route]
    unknown = _unknown(requests, of_class, class_of[requests.unserved_route], len(names), ranges)
    took_s = np.append((requests.ended_s - sent_s)[joined], np.diff(requests.unserved))
    return Findings(
        classes=[
            _class(name, requests, joined & (of_class == at), widest, ranges, unknown[at], took_s)
            for at, name in enumerate(names)
            if (joined & (of_class == at)).any()
        ],
        names=names,
        of_class=of_class,
        avoidable_s=avoidable.likely,
        queueing=float(waited_s.sum() / max((requests.ended_s - sent_s)[joined].sum(), 1e-9)),
        avoidable=ranges.avoidable._replace(likely=avoidable_share.likely) if ranges else avoidable_share,
        full=ranges.full._replace(likely=full_share.likely) if ranges else full_share,
        idle=ranges.idle._replace(likely=idle_share.likely) if ranges else idle_share,
        away=share(time_in(away, sent_s, began_s)),
        overtaken=_overtaken(requests, capacity),
        longest=int(waited_s.argmax()),
        in_front=_in_front(requests, capacity, avoidable.likely, names, of_class),
        periods_s=periods_s,
        load=load,
        busy=load[load > 0.9 * capacity.total],
        of_minutes=of_minutes,
        bad_minute=bad_minute,
        ranges=ranges,
        is_coarse=requests.is_coarse,
        is_blurred=requests.are_blurred,
        is_at_least=capacity.at_least and (requests.is_coarse or len(capacity.lacking) > 0),
    )


def _avoidable(requests: Requests, capacity: Capacity, full: Bounds[Floats]) -> Bounds[Floats]:
    """Return how long each request waited although a thread was free; ``full`` is while all threads were at work.

    If the logs name the workers, that is while all threads of its own worker were busy and another worker had a free
    thread. Otherwise, it is while fewer requests were at work than there are threads; with a single worker, no other
    worker has a free thread.
    """
    waits, never_s = requests.waits_s, np.zeros(len(requests))
    if not capacity.are_several:
        return Bounds(never_s, never_s, waits.high if capacity.may_be_more else never_s)
    if (capacity.place < 0).any():
        busy_s = never_s if requests.is_coarse and capacity.may_be_more else full.low
        free = ((waits.likely, full.high), (waits.likely, full.likely), (waits.high, busy_s))
        return Bounds(*(np.where(waited_s > capacity.unsure_s, np.maximum(waited_s - full_s, 0), 0)
                         for waited_s, full_s in free))  # fmt: skip
    names, worker = np.unique(requests.worker, return_inverse=True)
    workers, of = (len(names), worker) if capacity.restarts else (capacity.workers, capacity.place)

    def in_line(of_requests: Requests) -> tuple[Floats, Floats]:
        """Return how long requests waited avoidably, and for their own worker."""
        replaced = capacity.restarts > 0  # a worker that ended, and the next until it is loaded, has no free thread
        answered = of_requests.answered([], of, workers, of)
        lacking = np.array([of[requests.worker == each][0] for each in capacity.lacking_of], np.int64)
        answered = replace(  # a thread that a worker lacks is always busy
            answered,
            worker=np.append(answered.worker, lacking),
            sent_s=np.append(answered.sent_s, capacity.lacking[:, 0]),
            began_s=np.append(answered.began_s, capacity.lacking[:, 0]),
            ended_s=np.append(answered.ended_s, capacity.lacking[:, 1]),
        )
        found = avoidable_waits(answered, workers, capacity.threads, replaced=replaced)
        return found.beside_s[: len(requests)], found.own_s[: len(requests)]

    beside_s, _ = in_line(requests)
    if len(capacity.lacking) and capacity.at_least:  # the others may have more threads
        return Bounds(never_s, beside_s, waits.high)
    if not requests.is_coarse and capacity.full.high is capacity.full.likely:
        return Bounds.exactly(beside_s)
    sure_s = np.minimum(beside_s, np.maximum(waits.likely - full.high, 0))
    outside_s = np.maximum(waits.likely - full.likely, 0)
    likely_s = np.minimum(beside_s, outside_s) if len(capacity.perhaps_away) else beside_s
    if not requests.are_blurred:
        return Bounds(sure_s, sure_s if requests.is_coarse else likely_s, beside_s)
    short, _, long = requests.at_work
    (short_s, short_own_s), (long_s, long_own_s) = in_line(short), in_line(long)
    least_s, most_s = short_own_s - (long_own_s - long_s), long_own_s - (short_own_s - short_s)
    later_s = np.maximum(requests.less_s, requests.more_s) + requests.more_s  # than those of the longest requests began
    most_s = np.minimum(most_s + later_s, waits.high)
    return Bounds(np.clip(least_s, 0, sure_s), likely_s, np.maximum(most_s, beside_s))


def _overtaken(requests: Requests, capacity: Capacity) -> float:
    waited_s = requests.waited_s
    long, quick, overtaken_s = waited_s > FROM_S, requests.joined & (waited_s <= FROM_S), 0.0
    for place in np.unique(capacity.place):
        mine = long & (capacity.place == place)
        sent_s = requests.sent_s[quick & (capacity.place == place)]
        later = np.searchsorted(sent_s, requests.began_s[mine]) > np.searchsorted(sent_s, requests.sent_s[mine])
        overtaken_s += float(waited_s[mine][later].sum())
    return overtaken_s / max(float(waited_s[long].sum()), 1e-9)


def _classes(requests: Requests, waited_s: Floats, routes: Sequence[str]) -> tuple[list[str], Integers]:
    """Return the names of the classes, and the class of each route."""
    long_s = np.bincount(requests.route, weights=np.where(waited_s > FROM_S, waited_s, 0), minlength=len(routes))
    count = np.bincount(requests.route[requests.joined], minlength=len(routes))
    order = [int(route) for route in np.lexsort((-count, -long_s)) if count[route]]
    own = order if len(order) <= MOST_CLASSES else order[: MOST_CLASSES - 1]
    place = np.full(len(routes), len(own))
    place[own] = range(len(own))
    are_others = bool((place[requests.route] == len(own)).any())
    return [routes[route] for route in own] + ["other routes"] * are_others, place


def _unknown(
    requests: Requests, of_class: Integers, of_unserved: Integers, classes: int, ranges: Ranges | None
) -> Sequence[float]:
    """Return of which share of each class nobody knows anything, because lines are missing."""
    if not ranges:
        return [0.0] * classes
    joined = requests.joined
    is_known = np.isin(requests.route, np.unique(requests.route[joined]))
    pairs, served, unserved = (
        np.bincount(of, minlength=classes) for of in (of_class[joined], of_class[~joined & is_known], of_unserved)
    )
    pairs, alone = np.maximum(pairs, 1), served + unserved
    lost = alone + served * unserved / pairs
    wrong = ranges.wrong * pairs.sum() * alone / max(alone.sum(), 1) / pairs
    return [float(share) for share in np.minimum(lost / (pairs + lost) + wrong, 1.0)]


def _class(
    name: str,
    requests: Requests,
    mine: Flags,
    avoidable: Bounds[Floats],
    ranges: Ranges | None,
    unknown: float,
    took_s: Floats,
) -> ClassFindings:
    """Return what the requests of a class waited; a share of them is ``unknown``, but none took longer than others."""
    latency_s = (requests.ended_s - requests.sent_s)[mine]
    waits, avoidable = (each.map(lambda times_s: times_s[mine]) for each in (requests.waits_s, avoidable))

    def quantile(place: float) -> Bounds[float]:
        low, high = max(place - unknown, 0), place + unknown
        most_s = float(np.quantile(waits.high, high)) if high <= 1 else float(took_s.max())
        return Bounds(float(np.quantile(waits.low, low)), float(np.quantile(waits.likely, place)), most_s)

    low, likely, high = waits.map(share_waiting)
    waited = Bounds(max(low - unknown, 0.0), likely, min(high + unknown, 1.0))
    avoidably = avoidable.map(share_waiting)
    if ranges:
        least = min(avoidably.low, waited.low, ranges.avoidably.low)
        avoidably = Bounds(least, avoidably.likely, waited.high if ranges.avoidably.high else 0.0)
    return ClassFindings(name, len(latency_s), float(np.quantile(latency_s, 0.99)),
                         float(np.quantile(waits.likely, 0.5)), quantile(0.9), quantile(0.99),
                         float(waits.likely.max()), waited, avoidably)  # fmt: skip


def _in_front(
    requests: Requests, capacity: Capacity, avoidable_s: Floats, names: Sequence[str], of_class: Integers
) -> dict[str, float]:
    """Return which share of the work of each class was done in a worker while requests waited for it avoidably."""
    held_s = np.zeros(len(names))
    for worker in range(capacity.workers) if (capacity.place >= 0).all() else ():
        mine = capacity.place == worker
        waiting = mine & (avoidable_s > FROM_S)
        for at in range(len(names)):
            began_s, ended_s = (times[mine & (of_class == at)] for times in (requests.began_s, requests.ended_s))
            until = [work_until(times[waiting], began_s, ended_s) for times in (requests.began_s, requests.sent_s)]
            held_s[at] += (until[0] - until[1]).sum()
    return dict(zip(names, (held_s / held_s.sum()).tolist(), strict=True)) if held_s.sum() > 0 else {}

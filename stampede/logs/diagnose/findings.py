"""What logs say of a service: who waited, for how long, where, when, and behind what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stampede.evaluate.metrics.waiting import FROM_S, at_least, avoidable_waits, time_in
from stampede.logs.diagnose.capacity import Capacity, busy_times, work_until
from stampede.logs.diagnose.logs import COARSE_S, Flags, Floats, Integers
from stampede.logs.diagnose.ranges import Range, Ranges, ranges_of
from stampede.logs.diagnose.requests import Requests

Cause = Literal["", "idle", "avoidable", "full", "away", "unknown", "coarse", "missing"]
MOST_CLASSES = 6
"""So many routes are classes of their own: those whose requests waited longest in all, then the most frequent."""
NOTICED = 0.01
"""If at most this share of the requests waited for more than 50 ms, no request waits noticeably."""
ENOUGH = 10
"""So many requests that waited matter, however few they are among all."""
PERIODS = 60
_MINUTE_S = 60


@dataclass(frozen=True)
class ClassFindings:
    """What the requests of one class waited, in seconds; shares are of its requests.

    ``waited`` is the share that waited more than 50 ms, ``avoidably`` the share that did so while a thread was free;
    ``…_within`` are the ranges in which these and the quantiles lie if the logs do not tell them precisely.
    """

    name: str
    requests: int
    latency_p99_s: float
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    longest_s: float
    waited: float
    avoidably: float
    waited_within: Range
    avoidably_within: Range
    p90_within: Range
    p99_within: Range

    @property
    def is_often_slow(self) -> bool:
        """Whether so many requests of the class waited that they matter alone."""
        return self.waited > 0.05 and self.waited * self.requests >= ENOUGH


@dataclass(frozen=True)
class Findings:
    """What the requests waited, in all and by class.

    ``queueing`` is the share of all latency that is queueing delay; ``avoidable`` is the share of all queueing delay
    during which a thread was free elsewhere (``avoidable_within`` the range in which it lies), ``full`` the share
    during which all threads were at work or away, ``away`` that of them in which some were away, and ``idle`` the share
    during which no request was at work. ``overtaken`` is the share of the delay of requests that waited more than 50 ms
    while later ones, of the same worker if the logs name it, were served at once. ``longest`` is the place of the
    longest wait. ``in_front`` says which classes held the busy threads meanwhile, as shares. ``periods_s`` is how long
    requests waited at most in each of PERIODS periods. ``load`` is how many workers' worth of work came in each minute,
    ``busy_load`` the mean of those minutes that are busy, and ``busy_load_range`` their least and their most.
    ``ranges`` are bounds if lines are missing. Without ``of_minutes``, the logs are shorter than a minute, and ``load``
    is that of all their time.
    """

    classes: list[ClassFindings]
    names: list[str]
    of_class: Integers
    avoidable_s: Floats
    queueing: float
    avoidable: float
    avoidable_within: Range
    full: float
    full_within: Range
    away: float
    idle: float
    overtaken: float
    longest: int
    in_front: dict[str, float]
    periods_s: Floats
    load: Floats
    busy_load: float
    busy_load_range: tuple[float, float]
    busy_minutes: int
    of_minutes: bool
    ranges: Ranges | None
    is_coarse: bool
    is_blurred: bool
    is_at_least: bool
    bad_minute: tuple[float, float] | None
    """When the worst minute began, if it matters alone, and the share of its requests that waited."""

    @property
    def idle_within(self) -> Range:
        """Between which shares of the delay no request was at work."""
        return self.ranges.idle if self.ranges else Range(self.idle, self.idle)

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
        slow = [each.waited_within for each in self.classes if each.is_often_slow]
        usually = Range(max([self.waited_within.low, *(each.low for each in slow)]),
                        max([self.waited_within.high, *(each.high for each in slow)]))  # fmt: skip
        if self.bad_minute:
            usually = Range(max(usually.low, self.bad_minute[1]), max(usually.high, self.bad_minute[1]))
        elif self.ranges:
            usually = self.ranges.usually
        if usually.low <= NOTICED:
            return "" if usually.high <= NOTICED else open_
        causes: tuple[tuple[Cause, Range], ...] = (
            ("idle", self.idle_within), ("avoidable", self.avoidable_within), ("full", self.full_within)
        )  # fmt: skip
        for name, share in causes:
            if share.high >= 0.5:
                if name == "full" and self.is_coarse and self.is_at_least:
                    return "coarse"
                found: Cause = "away" if name == "full" and self.away > self.full / 2 else name
                return found if share.low >= 0.5 else open_
        return "coarse" if self.is_coarse else "unknown"

    @property
    def is_doubtful(self) -> bool:
        """Whether the logs do not tell how many requests waited to half a percentage point."""
        return self.waited_within.high - self.waited_within.low >= 0.005

    @property
    def unexplained(self) -> float:
        """The share of all queueing delay with no such cause: the request's own worker was at work, but not full."""
        return max(0.0, 1 - self.avoidable - self.full - self.idle)

    @property
    def waited(self) -> float:
        """The share of all requests that waited more than 50 ms."""
        return self._of_all([each.waited for each in self.classes])

    @property
    def waited_avoidably(self) -> float:
        """The share of all requests that waited more than 50 ms while a thread was free."""
        return self._of_all([each.avoidably for each in self.classes])

    @property
    def waited_within(self) -> Range:
        """Between which shares of the requests waited more than 50 ms."""
        return Range(*(self._of_all([each.waited_within[end] for each in self.classes]) for end in (0, 1)))

    @property
    def avoidably_within(self) -> Range:
        """Between which shares of the requests waited more than 50 ms while a thread was free."""
        return Range(*(self._of_all([each.avoidably_within[end] for each in self.classes]) for end in (0, 1)))

    def _of_all(self, shares: Sequence[float]) -> float:
        counts = [each.requests for each in self.classes]
        return sum(count * share for count, share in zip(counts, shares, strict=True)) / max(sum(counts), 1)


def findings_of(requests: Requests, capacity: Capacity, routes: Sequence[str]) -> Findings:
    """Return what requests waited. ``routes`` are the names of their routes."""
    waited_s, joined, sent_s, began_s = requests.waited_s, requests.joined, requests.sent_s, requests.began_s
    avoidable_s, within_s = avoidable_of(requests, capacity)
    names, class_of = _classes(requests, waited_s, routes)
    of_class, of_unserved = class_of[requests.route], class_of[requests.unserved_route]
    long = waited_s > FROM_S
    counts = long if 0 < long.mean() <= NOTICED else np.ones_like(long)  # a class may have waited among many others
    total_s, lasts_s = max(float(waited_s[counts].sum()), 1e-9), max(float(sent_s[-1]), 1e-9)
    longest_s = np.zeros(PERIODS)
    np.maximum.at(longest_s, np.minimum((sent_s / lasts_s * PERIODS).astype(np.int64), PERIODS - 1), waited_s)
    of_minutes, bad_minute = lasts_s >= _MINUTE_S, None
    load = np.array([requests.worked_s.sum() / max(lasts_s, 1.0)])
    if of_minutes:
        minute = (sent_s // _MINUTE_S).astype(np.int64)
        load = np.bincount(minute, weights=requests.worked_s)[: int(lasts_s // _MINUTE_S)] / _MINUTE_S
        in_minute, long_in = (np.bincount(minute[which], minlength=minute[-1] + 1) for which in (joined, long))
        worst = int(long_in.argmax())
        if long.mean() <= NOTICED and long_in[worst] >= ENOUGH and long_in[worst] > 0.2 * in_minute[worst]:
            bad_minute = float(worst * _MINUTE_S), float(long_in[worst] / in_minute[worst])
    busy = load[load > 0.9 * capacity.total]
    idle_s = np.zeros(len(requests))
    if requests.tick_s < COARSE_S:
        busy_s = busy_times(requests, np.concatenate([capacity.full, requests.held]))
        idle_s = np.maximum(waited_s - time_in(at_least(1, *busy_s), sent_s, began_s), 0)
    away, full = at_least(1, *capacity.away.T), capacity.full
    full_s, away_s = (time_in(times, sent_s, began_s)
                      for times in (full, at_least(2, *np.concatenate([away, full]).T)))  # fmt: skip
    unsure_s = capacity.unsure_s if capacity.are_several else 0.0  # if times are coarse
    least_s = np.clip(within_s[0] - unsure_s, 0, np.maximum(waited_s - requests.less_s, 0))
    most_s = np.minimum(within_s[1] + unsure_s + requests.more_s * capacity.are_several, waited_s + requests.more_s)
    ranges = ranges_of(requests, capacity, (least_s, most_s))

    def share(times_s: Floats) -> float:
        return float(times_s[counts].sum()) / total_s

    within, full_within = (Range(*map(share, ends)) for ends in (within_s, [
        time_in(each, sent_s, began_s) for each in capacity.full_within]))  # fmt: skip
    mine = [joined & (of_class == at) for at in range(len(names))]
    unknown, most_wait_s = np.zeros(len(names)), 0.0  # of which share of each class nobody knows anything
    if ranges:
        pairs = np.maximum(np.bincount(of_class[joined], minlength=len(names)), 1)
        has_pairs = np.bincount(requests.route[joined], minlength=len(routes)) > 0
        served = np.bincount(of_class[~joined & has_pairs[requests.route]], minlength=len(names))
        unserved = np.bincount(of_unserved, minlength=len(names))
        lost = served + unserved + served * unserved / pairs
        wrong = ranges.wrong * pairs.sum() * (served + unserved) / max((served + unserved).sum(), 1) / pairs
        unknown = np.minimum(lost / (pairs + lost) + wrong, 1.0)
        took_s = np.append((requests.ended_s - sent_s)[joined], np.diff(requests.unserved))
        most_wait_s = float(took_s.max())
    return Findings(
        classes=[_class(name, requests, avoidable_s, (least_s, most_s), which, ranges,
                        float(unknown[at]), most_wait_s)
                 for at, (name, which) in enumerate(zip(names, mine, strict=True)) if which.any()],
        names=names,
        of_class=of_class,
        avoidable_s=avoidable_s,
        queueing=float(waited_s.sum() / max((requests.ended_s - sent_s)[joined].sum(), 1e-9)),
        avoidable=share(avoidable_s),
        avoidable_within=ranges.avoidable if ranges else within,
        full=share(full_s),
        full_within=ranges.full if ranges else full_within,
        away=share(away_s),
        longest=int(waited_s.argmax()),
        idle=share(idle_s),
        overtaken=_overtaken(requests, capacity),
        in_front=dict(_in_front(requests, capacity, avoidable_s, names, of_class)),
        periods_s=longest_s,
        load=load,
        busy_load=float(busy.mean()) if len(busy) else float(load.max(initial=0.0)),
        busy_load_range=(float(busy.min(initial=np.inf)), float(busy.max(initial=0.0))),
        busy_minutes=len(busy),
        of_minutes=of_minutes,
        ranges=ranges,
        is_coarse=requests.tick_s >= COARSE_S,
        is_blurred=requests.are_blurred,
        is_at_least=capacity.at_least,
        bad_minute=bad_minute,
    )  # fmt: skip


def avoidable_of(requests: Requests, capacity: Capacity) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return how long each request waited although a thread was free, and the least and the most that the logs allow.

    If the logs name the workers, that is while all threads of its own worker were busy and another worker had a free
    thread. Otherwise, it is while fewer requests were at work than there are threads; with a single worker, no other
    worker has a free thread.
    """
    if not capacity.are_several:
        never_s = np.zeros(len(requests))
        return never_s, (never_s, never_s)
    if (capacity.place < 0).any():
        most_s, free_s, least_s = (np.where(waited_s > capacity.unsure_s, np.maximum(
            waited_s - time_in(full, requests.sent_s, requests.began_s), 0), 0) for waited_s, full in (
                (requests.waited_s + requests.more_s, capacity.full_within[0]), (requests.waited_s, capacity.full),
                (requests.waited_s, capacity.full_within[1])))  # fmt: skip
        return free_s, (least_s, most_s)
    names, worker = np.unique(requests.worker, return_inverse=True)
    workers, of = (len(names), worker) if capacity.restarts else (capacity.workers, capacity.place)

    def waits(of_requests: Requests) -> tuple[Floats, Floats]:
        """Return how long requests waited avoidably, and for their own worker."""
        replaced = capacity.restarts > 0  # a worker that ended, and the next until it is loaded, has no free thread
        answered = of_requests.answered([], of, workers, of)
        found = avoidable_waits(answered, workers, capacity.threads, replaced=replaced)
        return found.beside_s, found.own_s

    beside_s, _ = waits(requests)
    if requests.tick_s < COARSE_S and capacity.full_within[1] is capacity.full:
        return beside_s, (beside_s, beside_s)
    free_s = np.maximum(requests.waited_s - time_in(capacity.full_within[1], requests.sent_s, requests.began_s), 0)
    sure_s = np.minimum(beside_s, free_s)
    if not requests.are_blurred:
        return sure_s if requests.tick_s >= COARSE_S else beside_s, (sure_s, beside_s)
    (short_s, short_own_s), (long_s, long_own_s) = waits(requests.shortest), waits(requests.longest)
    least_s, most_s = short_own_s - (long_own_s - long_s), long_own_s - (short_own_s - short_s)
    later_s = np.maximum(requests.less_s, requests.more_s) + requests.more_s  # than those of the longest requests began
    most_s = np.minimum(most_s + later_s, requests.waited_s + requests.more_s)
    return beside_s, (np.clip(least_s, 0, sure_s), np.maximum(most_s, beside_s))


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


def _class(
    name: str, requests: Requests, avoidable_s: Floats, within_s: tuple[Floats, Floats], mine: Flags,
    ranges: Ranges | None, unknown: float, most_s: float,
) -> ClassFindings:  # fmt: skip
    """Return what the requests of a class waited; nobody knows anything of a share of them, but at most ``most_s``."""
    waited_s, latency_s = requests.waited_s[mine], (requests.ended_s - requests.sent_s)[mine]
    p50, p90, p99 = np.quantile(waited_s, (0.5, 0.9, 0.99)).tolist()
    shortest_s, longest_s = np.maximum(waited_s - requests.less_s[mine], 0), waited_s + requests.more_s[mine]
    p90s, p99s = Range(p90, p90), Range(p99, p99)
    if unknown or (shortest_s < longest_s).any():
        p90s, p99s = (
            Range(float(np.quantile(shortest_s, max(share - unknown, 0))),
                  float(np.quantile(longest_s, share + unknown)) if share + unknown <= 1 else most_s)
            for share in (0.9, 0.99)
        )  # fmt: skip
    waits_s = (waited_s, avoidable_s[mine], shortest_s, longest_s, *(times_s[mine] for times_s in within_s))
    waited, avoidably, low, high, least, most = (float((times_s > FROM_S).mean()) for times_s in waits_s)
    waited_within = Range(max(low - unknown, 0.0), min(high + unknown, 1.0))
    most = most if not ranges else waited_within.high if ranges.avoidably.high else 0.0
    return ClassFindings(name, len(latency_s), float(np.quantile(latency_s, 0.99)), p50, p90, p99,
                         float(waited_s.max()), waited, avoidably, waited_within,
                         Range(min(least, waited_within.low, ranges.avoidably.low) if ranges else least, most), p90s,
                         p99s)  # fmt: skip


def _in_front(
    requests: Requests, capacity: Capacity, avoidable_s: Floats, names: Sequence[str], of_class: Integers
) -> Iterator[tuple[str, float]]:
    """Yield which share of the work of each class was done in a worker while requests waited for it avoidably."""
    if (capacity.place < 0).any():
        return
    held_s = np.zeros(len(names))
    for worker in range(capacity.workers):
        mine = capacity.place == worker
        waiting = mine & (avoidable_s > FROM_S)
        for at in range(len(names)):
            began_s, ended_s = (times[mine & (of_class == at)] for times in (requests.began_s, requests.ended_s))
            until = [work_until(times[waiting], began_s, ended_s) for times in (requests.began_s, requests.sent_s)]
            held_s[at] += (until[0] - until[1]).sum()
    if held_s.sum() > 0:
        yield from zip(names, (held_s / held_s.sum()).tolist(), strict=True)

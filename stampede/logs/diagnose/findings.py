"""What logs say of a service: who waited, for how long, where, when, and behind what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stampede.evaluate.metrics.waiting import FROM_S, at_least, avoidable_waits, time_in
from stampede.logs.diagnose.capacity import Capacity, busy_times, work_until
from stampede.logs.diagnose.logs import COARSE_S, Floats, Integers
from stampede.logs.diagnose.ranges import Range, Ranges, ranges_of
from stampede.logs.diagnose.requests import Requests

MOST_CLASSES = 6
"""So many routes are classes of their own: those whose requests waited longest in all, then the most frequent."""
OTHERS = "other routes"
NOTICED = 0.01
"""If at most this share of the requests waited for more than 50 ms, no request waits noticeably."""
OFTEN, ENOUGH, BAD = 0.05, 10, 0.2
"""A class matters alone if more than this share of its requests waited so long, and so many of them; a minute from a
share of BAD on."""
PERIODS = 60
_MINUTE_S = 60
BUSY = 0.9
"""A minute is busy if requests for more than this share of the threads come in it."""


@dataclass(frozen=True)
class ClassFindings:
    """What the requests of one class waited, in seconds; shares are of its requests.

    ``waited`` is the share that waited more than 50 ms, ``avoidably`` the share that did so while a thread was free.
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

    @property
    def is_often_slow(self) -> bool:
        """Whether so many requests of the class waited that they matter, however few they are among all."""
        return self.waited > OFTEN and self.waited * self.requests >= ENOUGH


@dataclass(frozen=True)
class Findings:
    """What the requests waited, in all and by class.

    ``queueing`` is the share of all latency that is queueing delay; ``avoidable`` is the share of all queueing delay
    during which a thread was free elsewhere, ``full`` the share during which all threads were at work or away, ``away``
    that of them in which some were away, and ``idle`` the share during which no request was at work. ``overtaken`` is
    the share of the delay of requests that waited more than 50 ms while later ones, of the same worker if the logs name
    it, were served at once. ``longest`` is the place of the longest wait. ``in_front`` says which classes held the busy
    threads meanwhile, as shares. ``periods_s`` is how long requests waited at most in each of PERIODS periods. ``load``
    is how many workers' worth of work came in each minute, ``busy_load`` the mean of those minutes that are busy, and
    ``busy_load_range`` their least and their most. ``ranges`` are bounds if lines are missing. Without ``of_minutes``,
    the logs are shorter than a minute, and ``load`` is that of all their time.
    """

    classes: list[ClassFindings]
    names: list[str]
    of_class: Integers
    avoidable_s: Floats
    queueing: float
    avoidable: float
    full: float
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
    is_at_least: bool
    bad_minute: tuple[float, float] | None
    """When the worst minute began, if it matters alone, and the share of its requests that waited."""

    @property
    def cause(self) -> Literal["", "idle", "avoidable", "full", "away", "unknown", "coarse", "missing"]:
        """What is true of most of the delay: no request was at work, a thread was free elsewhere, or none was free.

        ``away``: none was free, mostly because workers were killed or replaced.

        Empty: hardly any request waited. ``unknown``: none of these, as if there are fewer threads than the user says.
        ``coarse``: times in whole seconds do not tell it, or nothing tells how many threads there are besides.
        ``missing``: so many lines are missing that nobody can tell.
        """
        most = max([self.waited, *(each.waited for each in self.classes if each.is_often_slow)])
        if self.bad_minute:
            most = max(most, self.bad_minute[1])
        usually = self.ranges.usually if self.ranges and not self.bad_minute else Range(most, most)
        if usually.low <= NOTICED:
            return "" if usually.high <= NOTICED else "missing"
        causes: tuple[tuple[Literal["idle", "avoidable", "full"], Range], ...] = (
            ("idle", self.ranges.idle if self.ranges else Range(self.idle, self.idle)),
            ("avoidable", self.ranges.avoidable if self.ranges else Range(self.avoidable, self.avoidable)),
            ("full", self.ranges.full if self.ranges else Range(self.full, self.full)),
        )
        for name, share in causes:
            if share.high >= 0.5:
                if name == "full" and self.is_coarse and self.is_at_least:
                    return "coarse"
                if name == "full" and self.away > self.full / 2:
                    return "away" if share.low >= 0.5 else "missing"
                return name if share.low >= 0.5 else "missing"
        return "coarse" if self.is_coarse else "unknown"

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

    def _of_all(self, shares: Sequence[float]) -> float:
        counts = [each.requests for each in self.classes]
        return sum(count * share for count, share in zip(counts, shares, strict=True)) / max(sum(counts), 1)


def findings_of(requests: Requests, capacity: Capacity, routes: Sequence[str]) -> Findings:
    """Return what requests waited. ``routes`` are the names of their routes."""
    waited_s, joined = requests.waited_s, requests.joined
    avoidable_s = avoidable_of(requests, capacity)
    names, of_class = _classes(requests, waited_s, routes)
    long = waited_s > FROM_S
    counts = long if 0 < long.mean() <= NOTICED else np.ones_like(long)  # a class may have waited among many others
    total_s, sent_s = max(float(waited_s[counts].sum()), 1e-9), requests.sent_s
    lasts_s = max(float(sent_s[-1]), 1e-9)
    longest_s = np.zeros(PERIODS)
    np.maximum.at(longest_s, np.minimum((sent_s / lasts_s * PERIODS).astype(np.int64), PERIODS - 1), waited_s)
    of_minutes = lasts_s >= _MINUTE_S
    load = np.array([requests.worked_s.sum() / max(lasts_s, 1.0)])
    if of_minutes:
        worked_s = np.bincount((sent_s // _MINUTE_S).astype(np.int64), weights=requests.worked_s)
        load = worked_s[: int(lasts_s // _MINUTE_S)] / _MINUTE_S
    busy, bad_minute = load[load > BUSY * capacity.total], None
    if long.mean() <= NOTICED and of_minutes:
        in_minute, long_in = (np.bincount((sent_s[which] // _MINUTE_S).astype(np.int64), minlength=len(worked_s))
                              for which in (joined, long))  # fmt: skip
        worst = int(long_in.argmax())
        if long_in[worst] >= ENOUGH and long_in[worst] > BAD * in_minute[worst]:
            bad_minute = float(worst * _MINUTE_S), float(long_in[worst] / in_minute[worst])
    idle_s = np.zeros(len(requests))
    if requests.tick_s < COARSE_S:
        working = at_least(1, *busy_times(requests, capacity.full))
        idle_s = np.maximum(waited_s - time_in(working, sent_s, requests.began_s), 0)
    away, full = (at_least(1, *times.T) for times in (capacity.away, capacity.full))
    full_s, away_s = (
        float(time_in(times, sent_s, requests.began_s)[counts].sum())
        for times in (full, at_least(2, *np.concatenate([away, full]).T))
    )
    return Findings(
        classes=[
            _class(name, requests, waited_s, avoidable_s, joined & (of_class == at))
            for at, name in enumerate(names)
            if (joined & (of_class == at)).any()
        ],
        names=names,
        of_class=of_class,
        avoidable_s=avoidable_s,
        queueing=float(waited_s.sum() / max((requests.ended_s - sent_s)[joined].sum(), 1e-9)),
        avoidable=float(avoidable_s[counts].sum() / total_s),
        full=full_s / total_s,
        away=away_s / total_s,
        longest=int(waited_s.argmax()),
        idle=float(idle_s[counts].sum() / total_s),
        overtaken=_overtaken(requests, capacity),
        in_front=dict(_in_front(requests, capacity, avoidable_s, names, of_class)),
        periods_s=longest_s,
        load=load,
        busy_load=float(busy.mean()) if len(busy) else float(load.max(initial=0.0)),
        busy_load_range=(float(busy.min(initial=np.inf)), float(busy.max(initial=0.0))),
        busy_minutes=len(busy),
        of_minutes=of_minutes,
        ranges=ranges_of(requests, capacity, avoidable_s),
        is_coarse=requests.tick_s >= COARSE_S,
        is_at_least=capacity.at_least,
        bad_minute=bad_minute,
    )


def avoidable_of(requests: Requests, capacity: Capacity) -> Floats:
    """Return how long each request waited although a thread was free.

    If the logs name the workers, that is while all threads of its own worker were busy and another worker had a free
    thread. Otherwise, it is while fewer requests were at work than there are threads; with a single worker, no other
    worker has a free thread.
    """
    if (capacity.place >= 0).all():
        names, worker = np.unique(requests.worker, return_inverse=True)
        workers, of = (len(names), worker) if capacity.restarts else (capacity.workers, capacity.place)
        answered = requests.answered([], of, workers, of)
        replaced = capacity.restarts > 0  # a worker that ended, and the next until it is loaded, has no free thread
        return avoidable_waits(answered, workers, capacity.threads, replaced=replaced).beside_s
    free_s = np.maximum(requests.waited_s - time_in(capacity.full, requests.sent_s, requests.began_s), 0)
    sure = capacity.total > 1 and ("workers" in capacity.found or capacity.workers > 1)
    return np.where(requests.waited_s > capacity.unsure_s, free_s, 0) if sure else np.zeros_like(free_s)


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
    """Return the names of the classes, and the class of each request."""
    long_s = np.bincount(requests.route, weights=np.where(waited_s > FROM_S, waited_s, 0), minlength=len(routes))
    count = np.bincount(requests.route[requests.joined], minlength=len(routes))
    order = [int(route) for route in np.lexsort((-count, -long_s)) if count[route]]
    own = order if len(order) <= MOST_CLASSES else order[: MOST_CLASSES - 1]
    place = np.full(len(routes), len(own))
    place[own] = range(len(own))
    of_class = place[requests.route]
    return [routes[route] for route in own] + ([OTHERS] if (of_class == len(own)).any() else []), of_class


def _class(
    name: str, requests: Requests, waited_s: Floats, avoidable_s: Floats, mine: npt.NDArray[np.bool_]
) -> ClassFindings:
    p50, p90, p99 = np.quantile(waited_s[mine], (0.5, 0.9, 0.99)).tolist()
    latency_s = (requests.ended_s - requests.sent_s)[mine]
    shares = [float((times[mine] > FROM_S).mean()) for times in (waited_s, avoidable_s)]
    longest_s = float(waited_s[mine].max())
    return ClassFindings(name, len(latency_s), float(np.quantile(latency_s, 0.99)), p50, p90, p99, longest_s, *shares)


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

"""How many workers and threads a service has, and when all of them were at work: told by the user, or found in logs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stampede.errors import WrongUse
from stampede.evaluate.metrics.waiting import FROM_S, NEVER, Segments, at_least, time_in
from stampede.logs.columns import Bounds, Floats, Integers
from stampede.logs.diagnose.requests import LONG_S, Requests
from stampede.records.words import plural

_WINDOW = 20  # if times are coarse, the requests at work are counted as means of windows of so many ticks


@dataclass(frozen=True)
class Capacity:
    """``workers`` workers of ``threads`` threads each; ``found`` are those of both that the user did not say.

    ``place`` says for each request which of the workers served it; -1: unknown. A worker that was started in the place
    of another worker has its place. ``restarts`` is how often that happened, and ``away`` when such a place had no
    worker, once for each of its threads, or a thread was held by a request that ended with its worker. ``perhaps_away``
    is, in the same way, when a place had no worker yet, or no longer, or a thread did not answer. ``lacking`` is when a
    worker with fewer threads was there, once for each thread that it lacks, and ``lacking_of`` which of the requests'
    workers it is. ``full`` is when all threads were at work or away (surely, likely, and perhaps), and ``unsure_s`` for
    how much of each wait nobody knows it if times are coarse. ``seen`` is how many workers are in the logs at once; 0:
    the logs name none. ``at_least``: there may be more threads, because no waits tell their number. ``doubts`` say
    where the logs contradict the user, in sentences.
    """

    workers: int
    threads: int
    found: Sequence[str]
    place: Integers
    restarts: int
    away: Segments
    perhaps_away: Segments
    lacking: Segments
    lacking_of: Integers
    full: Bounds[Segments]
    unsure_s: float = 0.0
    seen: int = 0
    at_least: bool = False
    doubts: Sequence[str] = ()

    @property
    def total(self) -> int:
        """How many threads there are in all."""
        return self.workers * self.threads

    @property
    def are_several(self) -> bool:
        """Whether a thread may be free elsewhere: with one worker, the request's own worker has all threads."""
        return self.total > 1 and (self.workers > 1 or (not self.seen and "workers" in self.found))

    @property
    def may_be_more(self) -> bool:
        """Whether there may be more workers and threads than were found: no log names them, and no waits tell it."""
        return self.at_least and not self.seen and "workers" in self.found


def capacity_of(requests: Requests, workers: int = 0, threads: int = 0) -> Capacity:
    """Return how many workers and threads served requests. ``workers`` and ``threads`` are what the user says; 0: find.

    If no log names the workers, all threads together are found, as threads of one worker. Raise WrongUse if more
    workers served requests at the same time than the user says.
    """
    found = [name for name, told in (("workers", workers), ("threads", threads)) if not told]
    place, away = places_of(requests)
    seen, is_coarse = 0 if (place < 0).any() else int(place.max()) + 1, requests.is_coarse
    if workers and workers < seen:
        raise WrongUse(f"--workers {workers}, but {seen} workers served requests at the same time.",
                       hint=f"--workers {seen}, or more if a worker served nothing")  # fmt: skip
    doubts, lacking, lacking_of = [], NEVER, np.empty(0, np.int64)
    if seen and workers > seen:
        doubts.append(f"Check --workers {workers}: only {plural(seen, 'worker')} served requests.")
    parts = [np.flatnonzero(place == of) for of in range(max(workers, seen))] if seen else [np.arange(len(requests))]
    most = max(most_at_once(requests, mine) for mine in parts)
    known = seen or workers
    if threads and known and not is_coarse and requests.joins and most > threads * (1 if seen else workers):
        where = "in one worker" if seen else f"although there are {workers} x {threads} threads"
        doubts.append(f"Check --threads {threads}: {most} requests were at work at once {where}.")
    workers = max(workers, seen, 1)
    if not threads:
        threads = max(1, round(most / workers)) if not seen else most
        if seen and not is_coarse:
            threads = int(np.sum([_contradicted(requests, mine, most) for mine in parts], axis=0).argmin()) + 1
            lacking, lacking_of = _lacking(requests, threads)
    restarts, held, unknown = len(away), requests.held, requests.held
    if seen:  # where a worker ended; a worker whose successor has its name seems to go on
        from_s, until_s = np.concatenate([[[-np.inf, -np.inf]], away[np.argsort(away[:, 0])]]).T
        at = np.searchsorted(from_s, held[:, 1], side="right") - 1
        gone = np.maximum.accumulate(until_s)[at] >= held[:, 1]
        while (over := gone & (until_s[at] < held[:, 1])).any():
            at = at - over
        unknown = held[~gone]
        went_s = np.where(gone, from_s[at], 0.0)  # it went on serving others until then
        held = np.stack([held[:, 0], np.maximum(held[:, 0], went_s)], axis=1) if threads > 1 else NEVER
    away = np.concatenate([np.repeat(away, threads, axis=0) if seen else NEVER, held])
    began_s, ended_s = busy_times(requests, away, lacking)
    full, unsure_s = at_least(workers * threads, began_s, ended_s), 0.0
    if is_coarse:  # all threads count as at work if hardly any is free on average
        unsure_s = _WINDOW / 2 * requests.tick_s
        middle_s, means = _at_work(began_s, ended_s, requests.tick_s)
        turns = np.flatnonzero(np.diff(np.concatenate([[False], means >= workers * threads - 0.35, [False]])))
        full = at_least(1, middle_s[turns[::2]] - unsure_s, middle_s[turns[1::2] - 1] + unsure_s)
    within = Bounds.exactly(full)
    absent = np.repeat(_absent(requests, parts), threads, axis=0) if seen else NEVER
    perhaps_away = np.concatenate([absent, requests.hung])
    if not is_coarse and (requests.are_blurred or len(unknown) or len(perhaps_away)):
        # nobody knows which workers went on while one ended with a request
        all_away = np.repeat(at_least(1, *unknown.T), workers * threads, axis=0)
        short, _, long = requests.at_work
        within = Bounds(*(at_least(workers * threads, *busy_times(*each)) for each in (
            (short, away, lacking), (requests, away, lacking, perhaps_away),
            (long, away, lacking, perhaps_away, all_away))))  # fmt: skip
    parts = [mine[~np.isin(requests.worker[mine], lacking_of)] for mine in parts]
    is_at_least = "threads" in found and not _waits_tell(requests, parts, threads if seen else workers * threads)
    unsure_s = 2 * requests.tick_s if seen and is_coarse else unsure_s
    return Capacity(workers, threads, found, place, restarts, away, perhaps_away, lacking, lacking_of, within, unsure_s,
                    seen, is_at_least, doubts)  # fmt: skip


def busy_times(requests: Requests, *away: Segments) -> tuple[Floats, Floats]:
    """Return when threads began and ended to be at work or away."""
    return (np.concatenate([requests.began_s, *(each[:, 0] for each in away)]),
            np.concatenate([requests.ended_s, *(each[:, 1] for each in away)]))  # fmt: skip


def places_of(requests: Requests) -> tuple[Integers, Segments]:
    """Return which place each request's worker has, and when places had no worker, between one worker and the next.

    A worker lives at least from its first request to its last request. Of two workers that hardly lived at the same
    time (a tenth of the shorter time), as during a deployment, the later has the place of the earlier.
    """
    place, away = np.full(len(requests), -1), []
    workers = np.unique(requests.worker[requests.worker >= 0])
    if not len(workers):
        return place, NEVER
    began_s, ended_s = np.full(workers.max() + 1, np.inf), np.full(workers.max() + 1, -np.inf)
    known = requests.worker >= 0
    np.minimum.at(began_s, requests.worker[known], requests.began_s[known])
    np.maximum.at(ended_s, requests.worker[known], requests.ended_s[known])
    first_s: list[float] = []
    last_s: list[float] = []
    of = np.full(workers.max() + 1, -1)
    for worker in sorted(workers, key=lambda worker: began_s[worker]):
        lasts_s = ended_s[worker] - began_s[worker]
        over_s = [each_s - began_s[worker] + requests.tick_s for each_s in last_s]
        free = [at for at, each_s in enumerate(over_s)
                if each_s <= max(0.0, 0.1 * min(lasts_s, began_s[worker] + each_s - first_s[at]))]  # fmt: skip
        at = max(free, key=lambda at: last_s[at], default=len(last_s))
        if free:
            away.append([last_s[at], max(last_s[at], began_s[worker])])
        last_s[at : at + 1], first_s[at : at + 1] = [ended_s[worker]], [began_s[worker]]
        of[worker] = at
    place[known] = of[requests.worker[known]]
    return place, np.array(away or NEVER)


def _absent(requests: Requests, of_workers: Sequence[Integers]) -> Segments:
    """Return when each worker had no request yet, or no more, if that is long compared with all of its pauses."""
    absent, last_s = [], float(requests.ended_s.max())
    for mine in of_workers:
        if len(mine):
            began_s, ended_s = requests.began_s[mine], np.maximum.accumulate(requests.ended_s[mine])
            pause_s = float((began_s[1:] - ended_s[:-1]).max(initial=0.0))
            absent += [times for times in ([0.0, float(began_s.min())], [float(ended_s[-1]), last_s])
                       if times[1] - times[0] > 2 * pause_s + LONG_S]  # fmt: skip
    return np.array(absent or NEVER)


def _contradicted(requests: Requests, mine: Integers, most: int) -> Integers:
    """Return how many requests of a worker are contradicted by each number of threads up to ``most``.

    With too few threads, requests are at work at once that could not be. With too many, requests wait although their
    worker has a free thread.
    """
    contradicted = []
    sent_s, began_s, ended_s = (times[mine] for times in (requests.sent_s, requests.began_s, requests.ended_s))
    for threads in range(1, most + 1):
        beyond_s = time_in(at_least(threads + 1, began_s, ended_s), began_s, ended_s)
        waited_s = began_s - sent_s
        free_s = waited_s - time_in(at_least(threads, began_s, ended_s), sent_s, began_s)
        contradicted.append(((beyond_s > FROM_S) | (free_s > np.maximum(FROM_S, waited_s / 2))).sum())
    return np.array(contradicted)


def _lacking(requests: Requests, threads: int) -> tuple[Segments, Integers]:
    """Return when workers with fewer threads were there, and which, once for each thread that they lack.

    They are those of another host, or of before or after a deployment. At least ten waits tell their number, and
    hardly any request contradicts it.
    """
    lacking, of = [], []
    for worker in np.unique(requests.worker):
        mine = np.flatnonzero(requests.worker == worker)
        contradicted = _contradicted(requests, mine, threads)
        own = int(contradicted.argmin()) + 1
        if contradicted[-1] >= 10 * max(contradicted[own - 1], 1) and _waits_tell(requests, [mine], own):
            lacking += [[requests.began_s[mine].min(), requests.ended_s[mine].max()]] * (threads - own)
            of += [worker] * (threads - own)
    return np.array(lacking or NEVER), np.array(of, np.int64)


def _waits_tell(requests: Requests, of_workers: Sequence[Integers], threads: int) -> bool:
    """Whether waits tell that a worker has no more threads: ten at least lasted nearly until one of so many was free.

    Waits of less than 5 ms do not tell it.
    """
    waited, explained = 0, 0
    for mine in of_workers:
        sent_s, began_s, ended_s = (times[mine] for times in (requests.sent_s, requests.began_s, requests.ended_s))
        full_s = time_in(at_least(threads, began_s, ended_s), sent_s, began_s)
        long = requests.joined[mine] & (began_s - sent_s > max(0.005, 2 * requests.tick_s))
        waited += int(long.sum())
        explained += int((long & (full_s > 0.9 * (began_s - sent_s))).sum())
    return explained >= 10 and explained > waited / 2


def most_at_once(requests: Requests, mine: Integers) -> int:
    """Return the most of these requests that were at work at once for longer than 50 ms.

    If times are coarse, it is the most that were at work at once on average in a window.
    """
    if not len(mine):
        return 1
    began_s, ended_s = requests.began_s[mine], requests.ended_s[mine]
    if requests.is_coarse:
        return max(1, round(float(_at_work(began_s, ended_s, requests.tick_s)[1].max(initial=1.0))))
    most = 1
    while (np.diff(at_least(most + 1, began_s, ended_s)) > FROM_S).any():
        most += 1
    return most


def _at_work(began_s: Floats, ended_s: Floats, tick_s: float) -> tuple[Floats, Floats]:
    """Return windows of _WINDOW ticks, one after each tick, and how many threads were at work in them on average."""
    edges = np.arange(0.0, float(ended_s.max()) + (_WINDOW + 1) * tick_s, tick_s)
    done_s = work_until(edges, began_s, ended_s)
    means = (done_s[_WINDOW:] - done_s[:-_WINDOW]) / (_WINDOW * tick_s)
    return edges[: len(means)] + _WINDOW / 2 * tick_s, means


def work_until(times_s: Floats, began_s: Floats, ended_s: Floats) -> Floats:
    """Return for each time how long requests were at work until then, all together."""

    def since(moments_s: Floats) -> Floats:
        """Return how much time has passed at each time since these moments, all together."""
        ordered = np.sort(moments_s)
        count = np.searchsorted(ordered, times_s, side="right")
        return np.asarray(count * times_s - np.concatenate([[0.0], np.cumsum(ordered)])[count])

    return since(began_s) - since(np.maximum(began_s, ended_s))

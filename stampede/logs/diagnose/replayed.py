"""The requests of logs, served again by the simulator in each way: today's, as far as it is recognised, and others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np

from stampede.evaluate.metrics.waiting import FROM_S, Answered, waits_in_line_s
from stampede.logs.columns import Flags, Floats
from stampede.logs.diagnose.capacity import Capacity
from stampede.logs.diagnose.findings import Findings
from stampede.logs.diagnose.requests import Requests
from stampede.predict.lanes import WhatIf, serve_otherwise
from stampede.predict.options import MORE_THREADS, OPTION_KINDS, OptionKind
from stampede.report.wording import percent
from stampede.theory import COMPILED

MOST = 100_000 if COMPILED else 2_000
"""So many requests are replayed at most: those around the longest wait."""
MOST_COMPUTING = MOST if COMPILED else 300
"""So many requests at most are replayed as if they only computed."""
SEEDS = 5 if COMPILED else 2
USUAL = ("shared", "limit", "one-process", "uwsgi", "reuse-port", "least-conn", "idle-thread", "queue")
"""The ways to serve, the most usual first. Of the ways that agree with the logs, the most usual is taken."""
HALVES = 0.5
"""A way is better if in each replay, at most this part of the requests that wait today waits with it."""
SMALLEST = ("limit", "more-threads", "idle-thread", "one-process", "shared", "reuse-port", "least-conn", "queue",
            "uwsgi")  # fmt: skip
"""The ways to serve, the smallest change first."""


class Served(NamedTuple):
    """A way to serve the requests: the share that waits for more than 50 ms, and the p99 of the waits in seconds.

    What depends on chance is a median over SEEDS replays; ``least`` and ``most`` are the extremes of the share.
    ``workers`` is how many workers served a request in each replay, at least, and ``threads`` how many threads each
    worker has. ``serves``, ``change`` and ``cost`` say
    what the way is, what to set for it, and what that costs. ``computing_p99_s`` is the p99 of the overhead in one
    replay in which requests compute all the time; None: this was not replayed. ``most_computing`` is for which share of
    their time requests may compute before the workers, each with one interpreter lock, no longer keep up.
    """

    label: str
    waited: float
    p99_s: float
    least: float
    most: float
    workers: int = 0
    threads: int = 0
    serves: str = ""
    change: str = ""
    cost: str = ""
    computing_p99_s: float | None = None
    most_computing: float = 1.0

    @property
    def is_setting(self) -> bool:
        """Whether the way is a setting of the server, and no other program."""
        return " = " in self.change

    @property
    def in_words(self) -> str:
        """What to set, how many requests wait then, and what it costs."""
        return f"{self.change}: {percent(self.waited)} wait." + (f" Cost: {self.cost}." if self.cost else "")


class Replay(NamedTuple):
    """What the simulator says of each way.

    ``today`` is the most usual way that agrees with the logs; None: none agrees. ``ways`` begin with the smallest
    change. ``threads`` is how many threads,
    taking all requests from one queue, let hardly any request wait; 0: more than four times as many as there are.
    ``measured`` is what the logs say of the same requests.
    """

    measured: Served
    today: Served | None
    ways: list[Served]
    threads: int

    @property
    def better(self) -> list[Served]:
        """The ways that are better than today's: the surely better ways first, then those with which fewer wait.

        Ways with which at most a tenth of the requests that wait today waits are equally good.
        """
        today = self.today
        if not today:
            return []
        better = [way for way in self.ways if way.most < HALVES * today.waited]
        return sorted(better, key=lambda way: (self.is_doubtful(way), way.waited > 0.1 * today.waited and way.waited))

    def is_doubtful(self, way: Served) -> bool:
        """Whether a way is worse than today's if requests compute all the time, which no log tells.

        Threads that are added to a worker share its interpreter lock, so they must make it better. A replay depends on
        chance.
        """
        if not self.today or way.computing_p99_s is None or self.today.computing_p99_s is None:
            return False
        share = 0.9 if way.threads > self.today.threads else 1.1
        return way.computing_p99_s > max(share * self.today.computing_p99_s, FROM_S)

    def as_values(self) -> dict[str, object]:
        """Return what the simulator says, for JSON."""
        return {"measured": self.measured._asdict(), "today": self.today and self.today._asdict(),
                "ways": [way._asdict() for way in self.ways], "threads": self.threads}  # fmt: skip


def replay(requests: Requests, capacity: Capacity, findings: Findings) -> Replay | None:
    """Return what the simulator says of the requests; None: there are too many workers to simulate.

    If no log names the workers, each thread is taken to be a worker of its own.
    """
    knows = bool(capacity.seen) or "workers" not in capacity.found
    workers, threads = (capacity.workers, capacity.threads) if knows else (capacity.total, 1)
    if workers > 32:
        return None
    shown = around_longest(requests.waited_s, MOST)
    answered = requests.answered(findings.names, findings.of_class, workers, capacity.place, shown)
    joined = requests.joined[shown]
    measured = _served("measured", [requests.waited_s[shown][joined]])._replace(workers=capacity.seen or workers)
    numbers: dict[str, int | str] = {"twice": 2 * threads, "total": capacity.total}
    numbers |= {"workers": workers, "threads": threads} if knows else {"workers": "workers", "threads": "threads"}
    found = _replays(answered, workers, threads, joined, OPTION_KINDS)
    usual = next((name for name in USUAL if name in found and _agrees(found[name], measured)), None)
    if usual:
        kind = next(kind for kind in OPTION_KINDS if kind.name == usual)
        more = replace(MORE_THREADS, settings=kind.settings, queues_inside=kind.queues_inside,
                       for_single_worker=kind.for_single_worker)  # fmt: skip
        if knows and findings.cause in ("avoidable", "full"):
            found |= _replays(answered, workers, 2 * threads, joined, [more])
        better = {usual, *(name for name, way in found.items() if way.most < HALVES * found[usual].waited)}
        few = around_longest(requests.waited_s, MOST_COMPUTING)
        computing = requests.answered(findings.names, findings.of_class, workers, capacity.place, few)
        busy = float((answered.ended_s - answered.began_s).sum() / max(np.ptp(answered.ended_s), 1e-9))
        for of, kinds in ((threads, OPTION_KINDS), (2 * threads, (more,))):
            replayed = [kind for kind in kinds if kind.name in better]
            for name, way in _served_each(computing, workers, of, 1, replayed, computing=True):
                overhead_s = float(np.quantile(way.waits_s[requests.joined[few]], 0.99))
                most = min(1.0, found[name].workers / busy)
                found[name] = found[name]._replace(computing_p99_s=overhead_s, most_computing=most)
    today = found[usual] if usual else None
    ways = [found[name]._replace(change=found[name].change.format(**numbers)) for name in SMALLEST if name in found]
    counts = range(capacity.total, 4 * capacity.total + 4)
    enough = (few for few in counts if (waits_in_line_s(answered, few) > FROM_S).mean() <= 0.01)
    return Replay(measured, today, ways, next(enough, 0))


def _replays(
    answered: Answered, workers: int, threads: int, joined: Flags, kinds: Sequence[OptionKind]
) -> dict[str, Served]:
    """Return what SEEDS replays of each way to serve say together."""
    replays: dict[str, list[WhatIf]] = {}
    for seed in range(SEEDS):
        for name, way in _served_each(answered, workers, threads, seed, kinds):
            replays.setdefault(name, []).append(way)
    return {
        kind.name: _served(kind.label, [each.waits_s[joined] for each in replays[kind.name]])._replace(
            workers=min(len(np.unique(each.worker)) for each in replays[kind.name]),
            threads=replays[kind.name][0].threads, serves=kind.serves, cost=kind.cost, change=kind.change)
        for kind in kinds if kind.name in replays
    }  # fmt: skip


def _served_each(
    answered: Answered, workers: int, threads: int, seed: int, kinds: Sequence[OptionKind], *, computing: bool = False
) -> Iterator[tuple[str, WhatIf]]:
    for way in serve_otherwise(answered, workers, threads, seed, kinds, computing=computing):
        if way.kind:
            yield way.kind.name, way


def around_longest(waited_s: Floats, most: int) -> slice:
    """Return the requests around the longest wait, at most so many."""
    first = max(0, min(int(waited_s.argmax()) - most // 2, len(waited_s) - most))
    return slice(first, first + most)


def _served(label: str, waits_s: Sequence[Floats]) -> Served:
    waited = [float((each > FROM_S).mean()) for each in waits_s]
    return Served(label, median(waited), median(float(np.quantile(each, 0.99)) for each in waits_s), min(waited),
                  max(waited))  # fmt: skip


def _agrees(served: Served, measured: Served) -> bool:
    """Whether replays agree with what was measured, to 5 points and a factor of two, and use no more workers."""
    if served.workers > measured.workers:
        return False
    p99 = sorted(max(each.p99_s, FROM_S) for each in (served, measured))
    return served.least - 0.05 <= measured.waited <= served.most + 0.05 and p99[1] <= 2 * p99[0]

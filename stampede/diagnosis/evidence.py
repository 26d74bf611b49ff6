"""The evidence by which rules find what limits a service as it is served today."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from stampede.diagnosis.deaths import DeathsByLimit, waited_for_places
from stampede.diagnosis.held import Loops, Stack, Stall, lost_times
from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.waiting import Answered, Times, Waits
from stampede.evaluate.statistics.losses import Figures
from stampede.records.run import TODAY, Run, VariantRecord
from stampede.records.summary import Estimate, Summary

SLOWER_TOGETHER, SLOWER_BY_MS = 1.5, 10
"""A request is held up inside the application if its median time at work under the load is more than so many times, and
more than so many ms above, the time that it takes alone."""
BY_MACHINE = 10
"""A request lacks a processor for at most so many times as long as it computes, and waits before its work begins."""
WAITS_MS, SLOWER = 50, 0.1
"""A class of requests waits if one request in a hundred loses more than this before its work begins, and more than this
part of what its median request takes at work."""
AVOIDABLE = 0.01
"""From this share of avoidable waits on, they are an alarm."""
COMPUTES = 0.7
"""From this part of the processors that the workers could use, the service is held up by computing."""
THROTTLES = 0.1
"""From this part of the time on in which a limit keeps workers from computing, too, also if they compute in bursts."""
COMPUTES_MS_PER_S = 200
"""Requests compute if they use a processor for so many ms of each second that they take alone; on a busy machine, what
computes takes several times as long also alone."""
STALLED = 0.01
"""From this share of the workers' time on, stalls of event loops, and full pools, are an alarm."""
SOME_TIME = 0.1
"""A line of code is named, and threads compute beside requests, from this share of the time on."""
BUSY, WORKERS_PART = 0.7, 0.5
"""From this part of all processors on, the machine is busy. If the workers use less than this part of what is used,
others keep it busy."""
MUCH_BYTES, MUCH_BYTES_PER_S = 10_000, 1_000_000
"""The workers write much if they write more than this for each request, or in each second."""
Loses = dict[str, tuple[str, float]]
"""What classes of requests lose: for each class the percentile, and its value in ms."""
Slower = dict[str, tuple[str, float, float]]
"""How long requests are at work: for each class the percentile, its value under the load, and one alone, in ms."""
HOLDS, HELD_PART = ("pool", "lock", "waits"), 0.2
"""Kinds of waits for what other requests may hold. From this part of the time of a class at work on, they count even if
its median request does not wait."""
MOST_LOOKED_AT = 300
"""At most so many avoidable waits of a trial are asked for who held the threads meanwhile."""


class LostTime(NamedTuple):
    """How much time each answered request of all trials lost, in seconds.

    ``takes_s`` is what it takes without a loss. It lost ``beside_s`` by avoidable waits, ``deaths_s`` while a worker's
    place was empty, ``before_s`` else before its work began (``idle_s`` of it while its own worker had a free thread),
    and ``at_work_s`` at work. If one queue led to all threads, it would wait for ``in_line_s``.
    """

    request_class: npt.NDArray[np.object_]
    takes_s: Times
    beside_s: Times
    deaths_s: Times
    before_s: Times
    idle_s: Times
    at_work_s: Times
    in_line_s: Times

    @property
    def all_s(self) -> float:
        """What all requests lost."""
        return float(sum(times.sum() for times in (self.beside_s, self.deaths_s, self.before_s, self.at_work_s)))

    @property
    def works_s(self) -> Times:
        """For how long each request is at work."""
        return self.takes_s + self.at_work_s

    def of(self, classes: Collection[str]) -> "LostTime":
        """Return what the requests of some classes lost."""
        mine = np.isin(self.request_class, [*classes])
        return LostTime._make(times[mine] for times in self)


@dataclass(frozen=True)
class Evidence:
    """What is known of a service as it is served today.

    ``rows`` has the view ``requests``, of trusted trials; ``loops`` says when event loops were held up and pools were
    full; ``alone_ms`` is how long a request of each class takes alone; ``busy`` is which share of all processors of the
    machine was busy; ``deaths`` are the workers that ended; ``thrown`` is an exception from the application's log.
    """

    summary: Summary
    run: Run
    rows: duckdb.DuckDBPyConnection
    loops: Loops
    alone_ms: Mapping[str, float]
    busy: float | None = None
    deaths: DeathsByLimit = field(default_factory=dict)
    thrown: str = ""

    @cached_property
    def figures(self) -> Figures:
        """The figures of the summary."""
        return Figures(self.summary)

    @cached_property
    def variant(self) -> VariantRecord:
        """Today's way to serve."""
        return self.run.variant(TODAY)

    @property
    def slots(self) -> int:
        """How many requests all workers together serve at the same time; 0: they have no threads."""
        return self.variant.workers * (self.variant.threads or 0)

    @property
    def loop(self) -> str:
        """What lets the requests of a worker go on; a hub, if greenlets serve them."""
        has_greenlets = str(self.variant.settings.get("server", "")).endswith(("gevent", "eventlet"))
        return "hub" if has_greenlets else "event loop"

    @property
    def classes(self) -> list[str]:
        """The classes of requests."""
        return self.figures.classes(TODAY)

    def value(self, request_class: str | None, metric: str, stat: str) -> float | None:
        """Return a figure of today's way; None: it was not measured."""
        return self.figures.value(TODAY, request_class, metric, stat)

    # Processors

    def per_second(self, metric: str) -> float | None:
        """Return how much of what is measured per request is used or written in a second; None: it is not known."""
        each, rate = self.value(None, metric, "per_request"), self.value(None, "throughput", "per_second")
        return None if each is None or rate is None else each * rate

    @cached_property
    def workers_use(self) -> float | None:
        """How many processors the workers used; None: the machine does not report it."""
        used_ms = self.per_second("processor")
        return None if used_ms is None else used_ms / 1000

    @property
    def is_busy_elsewhere(self) -> bool:
        """Whether the machine was busy, mostly with something other than the workers."""
        if self.busy is None or self.workers_use is None or not self.run.host.cores:
            return False
        return self.busy >= BUSY and self.workers_use < WORKERS_PART * self.busy * self.run.host.cores

    @property
    def writes_much(self) -> bool:
        """Whether the workers write so much to their output that handling it costs time."""
        each, rate = self.value(None, "output", "per_request") or 0.0, self.per_second("output") or 0.0
        return each > MUCH_BYTES or rate > MUCH_BYTES_PER_S

    @cached_property
    def cores(self) -> float:
        """How many processors the containers may use: the machine's, or their limit; 0: not known."""
        settings, cores = self.variant.settings, float(self.run.host.cores or 0)
        limit = float(str(settings.get("cpus") or 0)) * int(str(settings.get("replicas") or 1))
        return min(limit, cores or limit) if limit else cores

    @cached_property
    def computing(self) -> float | None:
        """Which share of the processors that the workers can use was busy; None: the machine does not report it."""
        workers = self.variant.workers
        return None if self.workers_use is None else self.workers_use / min(workers, self.cores or workers)

    @property
    def throttled(self) -> float:
        """For which part of the time the limit of processors kept the containers from computing."""
        return self.value(None, "throttled", "share") or 0.0

    @property
    def computes(self) -> bool:
        """Whether computing explains that requests wait."""
        return self.computing is not None and (self.computing >= COMPUTES or self.throttled >= THROTTLES)

    @property
    def processes_help(self) -> bool:
        """Whether more processes can use more of the machine's processors, or the workers do not use theirs."""
        return self.variant.workers < self.cores or not self.computes

    # What requests lose

    @cached_property
    def _trials(self) -> list[tuple[int, Answered, Waits | None]]:
        """The answered requests of each trial, and how they waited for threads; None: workers have no threads."""
        trials, load = range(1, self.run.trials + 1), self.run.loads[0].name
        read = [(trial, waiting.read_answered(self.rows, TODAY, load, trial)) for trial in trials]
        return [(trial, answered, waiting.waits_of_variant(self.variant, answered))
                for trial, answered in read if answered.classes]  # fmt: skip

    @cached_property
    def lost(self) -> LostTime:
        """How much time each request of the trials lost."""
        parts = [LostTime(np.empty(0, object), *np.empty((7, 0)))]
        for trial, answered, known in self._trials:
            takes_s, all_s, at_work_s = lost_times(answered, self.alone_ms)
            beside_s = np.minimum(known.beside_s, all_s) if known else np.zeros_like(all_s)
            before_s = np.where(waited_for_places(self.deaths, trial, answered), 0.0, all_s - beside_s)
            deaths_s = all_s - beside_s - before_s
            idle_s = np.minimum(before_s, np.maximum(0.0, all_s - (known.own_s if known else all_s)))
            in_line_s = waiting.waits_in_line_s(answered, self.slots) if self.slots else np.zeros_like(all_s)
            parts.append(LostTime(
                request_class=np.array(answered.classes, object)[answered.request_class], takes_s=takes_s,
                beside_s=beside_s, deaths_s=deaths_s, before_s=before_s, idle_s=idle_s, at_work_s=at_work_s,
                in_line_s=in_line_s,
            ))  # fmt: skip
        return LostTime._make(map(np.concatenate, zip(*parts, strict=True)))

    @cached_property
    def avoidable(self) -> dict[str, Estimate]:
        """The share of requests with an avoidable wait, for each class in which it is an alarm, the largest first."""
        found = {name: self.figures.row(TODAY, name, "avoidable_wait", "share") for name in self.classes}
        alarms = {name: row for name, row in found.items() if row and (row.measured or 0.0) >= AVOIDABLE}
        return dict(sorted(alarms.items(), key=lambda item: -(item[1].measured or 0.0)))

    @cached_property
    def blockers(self) -> dict[str, float]:
        """Which classes held the threads of workers while others waited avoidably, for which share of the time."""
        blocking_s: defaultdict[str, float] = defaultdict(float)
        for answered, beside_s in ((answered, known.beside_s) for _, answered, known in self._trials if known):
            worst = np.argsort(beside_s)[::-1][:MOST_LOOKED_AT]
            for place in worst[beside_s[worst] > waiting.FROM_S]:
                sent_s, began_s = answered.sent_s[place], answered.began_s[place]
                meanwhile = (answered.began_s < began_s) & (answered.ended_s > sent_s)
                mine = meanwhile & (answered.worker == answered.worker[place])
                until_s = np.minimum(answered.ended_s[mine], began_s)
                both_s = np.maximum(0.0, until_s - np.maximum(answered.began_s[mine], sent_s))
                sums_s = np.bincount(answered.request_class[mine], both_s).tolist()
                for name, seconds in zip(answered.classes, sums_s, strict=False):
                    blocking_s[name] += seconds
        all_s, worst_last = sum(blocking_s.values()), sorted((each, name) for name, each in blocking_s.items())
        return {name: seconds / all_s for seconds, name in worst_last[::-1] if seconds >= AVOIDABLE * all_s > 0}

    @cached_property
    def slow(self) -> Loses:
        """What the other classes lose before their work begins, if noticeable and not due to workers that ended."""
        found: Loses = {}
        for name in (name for name in self.classes if name not in self.avoidable):
            stat = self.figures.percentile(name, [TODAY])
            loss = self.figures.loss(TODAY, name, stat) if stat else None
            if stat and loss and loss.ms > self._noticeable_ms(name):
                found[name] = stat, loss.ms
        if self.deaths:
            noticed = self._noticeable(self.lost.before_s, found)
            found = {name: lost for name, lost in found.items()
                     if name in noticed or name not in self.lost.request_class}  # fmt: skip
        return found

    @cached_property
    def slow_beside_own(self) -> Loses:
        """Those of the slow classes that lose most of this while their own worker has a free thread, and what."""
        if not self.slots or self.variant.is_replaced or self.computes or self.is_busy_elsewhere:
            return {}
        idle = self._noticeable(self.lost.idle_s, self.slow)
        return {name: (stat, idle_ms) for name, (stat, idle_ms) in idle.items() if idle_ms > self.slow[name][1] / 2}

    @cached_property
    def slow_in_one_queue(self) -> Loses:
        """What classes would lose even if one queue led to all threads, if noticeable.

        These are classes with avoidable waits or, on a machine that was busy with something else, all that are slow,
        unless requests compute for much of the time that they take alone: then they had their threads for longer
        because of the machine. Unknown, and so empty, if the workers have no threads.
        """
        each_ms, names = self.value(None, "processor", "per_request") or 0.0, [*self.avoidable]
        least_ms = COMPUTES_MS_PER_S * self.lost.takes_s.sum()
        if self.is_busy_elsewhere and each_ms * len(self.lost.takes_s) < least_ms:
            names += self.slow
        return self._noticeable(self.lost.in_line_s, names)

    @cached_property
    def slow_by_machine(self) -> Loses:
        """Those of the slow classes for which a machine that was busy with something else is the only known reason."""
        if not self.is_busy_elsewhere or self.computes or self.loop_stall or self.lock_stall:
            return {}
        return {name: lost for name, lost in self.slow.items() if name not in self.slow_in_one_queue}

    @property
    def slow_by_loop(self) -> Loses:
        """The slow classes if only their event loop or hub can be the reason."""
        return {} if self.slots or self.computes or self.slow_by_machine else self.slow

    def _noticeable(self, lost_s: Times, classes: Iterable[str]) -> Loses:
        """Return what classes lose in the percentile that is measured of them, if it is noticeable.

        ``lost_s`` has a time for each request in ``lost``.
        """
        found: Loses = {}
        for name in classes:
            stat, mine_s = self.figures.percentile(name, [TODAY]), lost_s[self.lost.request_class == name]
            ms = 1000 * float(np.percentile(mine_s, int(stat[1:]))) if stat and mine_s.size else 0.0
            if stat and ms > self._noticeable_ms(name):
                found[name] = stat, ms
        return found

    def _noticeable_ms(self, request_class: str) -> float:
        """Return from which loss on one request in a hundred of a class loses noticeably much."""
        takes = self.value(request_class, "response_time", "p50") or 0.0
        work = max(0.0, takes - (self.value(request_class, "overhead", "p50") or 0.0))
        return max(WAITS_MS, SLOWER * work)

    @cached_property
    def slower_together(self) -> Slower:
        """The classes that take longer at work together than alone, more than computing explains; the slowest first.

        On a machine that was busy with something else, also more than this explains. If the median request does not,
        those count that wait for what others hold.
        """
        if self.computing is None or self.computes or self.writes_much:
            return {}
        found: Slower = {}
        each_ms = self.value(None, "processor", "per_request")
        for name, alone_ms in self.alone_ms.items():
            work_ms = 1000 * self.lost.of([name]).works_s
            # work that computes takes about 1 / (1 - computing) times as long
            least_ms = max(SLOWER_TOGETHER * alone_ms / (1 - self.computing), alone_ms + SLOWER_BY_MS)
            if self.is_busy_elsewhere:
                before_ms = self.value(name, "overhead", "p50")
                by_machine_ms = math.inf if each_ms is None or before_ms is None else BY_MACHINE * (each_ms + before_ms)
                least_ms = max(least_ms, alone_ms + by_machine_ms)
            waits_s = sum(stack.seconds for stack in self.stacks("", name)
                          if stack.kind in HOLDS and not stack.called.endswith("sleep"))  # fmt: skip
            waits_for_others = waits_s > HELD_PART * work_ms.sum() / 1000
            stats = ("p50", "p90", "p99")[: 1 if not waits_for_others else 2 if len(work_ms) < 100 else 3]
            measured = ((stat, float(np.percentile(work_ms, int(stat[1:])))) for stat in stats if work_ms.size)
            if long := next(((stat, ms) for stat, ms in measured if ms >= least_ms), None):
                found[name] = (*long, alone_ms)
        return dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0])))

    def part_of_lost(self, seconds: float) -> float:
        """Return a time that requests lost as a share of all the time that they lost; 0: they lost none."""
        return float(min(1.0, seconds / self.lost.all_s)) if self.lost.all_s else 0.0

    # What the probe saw

    def share_of_workers(self, seconds: float) -> float:
        """Return a time of workers as a share of the time of all workers."""
        all_s = self.variant.workers * self.loops.span_s
        return seconds / all_s if all_s else 0.0

    def stall(self, *what: str) -> Stall | None:
        """Return for how long loops or a pool were held up for one of some reasons, in all trials; None: too little."""
        mine = [stall for stall in self.loops.stalls if stall.what in what]
        total_s = sum(stall.total_s for stall in mine)
        if self.share_of_workers(total_s) < STALLED:
            return None
        return Stall(what[0], total_s, max(stall.longest_s for stall in mine), sum(stall.lost_s for stall in mine),
                     max(stall.threads for stall in mine),
                     sum(stall.at_work * stall.total_s for stall in mine) / total_s)  # fmt: skip

    @cached_property
    def loop_stall(self) -> Stall | None:
        """How long functions held up loops."""
        return self.stall("held", "computed")

    @cached_property
    def lock_stall(self) -> Stall | None:
        """How long the interpreter lock held up loops."""
        return self.stall("locked", "collected")

    @cached_property
    def full_pools(self) -> list[Stall]:
        """The pools that were full for a noticeable share of the workers' time, the longest time first."""
        return sorted(filter(None, map(self.stall, ("pool", "executor"))), key=lambda pool: -pool.total_s)

    @property
    def collected(self) -> float:
        """For which share of the workers' time long runs of the garbage collector held all threads."""
        return self.share_of_workers(seconds_of(self.stacks("gc")))

    @property
    def loop_may_be_held(self) -> bool:
        """Whether loops were seen in code that holds them up, more than in the collector, or nobody watched them."""
        held = self.share_of_workers(seconds_of(self.stacks("loop")))
        return not self.loops.span_s or held - self.collected >= max(STALLED, self.collected)

    def stacks(self, of: str, request_class: str | None = None) -> list[Stack]:
        """Return where loops, threads of pools or requests spend their time, the longest first; None: of any class."""
        mine = (each for each in self.loops.stacks if each.of == of and request_class in (None, each.request_class))
        return sorted(mine, key=lambda stack: -stack.seconds)

    def computing_stacks(self, *, beside: bool = False) -> list[Stack]:
        """Return where requests and threads compute; ``beside``: only beside other requests of their worker."""
        found = [stack for of in ("", "pool thread", "thread") for stack in self.stacks(of) if stack.kind == "computes"]
        return [stack for stack in found if not beside or stack.of == "thread" or self.variant.threads != 1]

    @property
    def computes_beside(self) -> bool:
        """Whether threads compute beside requests for a noticeable share of the workers' time."""
        return self.share_of_workers(seconds_of(self.computing_stacks(beside=True))) >= SOME_TIME


def seconds_of(stacks: Iterable[Stack]) -> float:
    """Return how much time was spent in all of these lines."""
    return sum(stack.seconds for stack in stacks)

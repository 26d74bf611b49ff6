"""What a measured run shows of a service as it is served today: figures by which rules find what limits it."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.diagnosis.deaths import DeathsByLimit, waited_for_places
from stampede.diagnosis.held import FullPool, Loops, Stack, lost_times
from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.waiting import Answered, Times
from stampede.evaluate.statistics.losses import Figures
from stampede.records.run import TODAY, Run, VariantRecord
from stampede.records.summary import Estimate

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
BUSY, WORKERS_PART = 0.7, 0.5
"""From this part of all processors on, the machine is busy. If the workers use less than this part of what is used,
others keep it busy."""
MUCH_BYTES, MUCH_BYTES_PER_S = 10_000, 1_000_000
"""The workers write much if they write more than this for each request, or in each second."""
Loses = dict[str, tuple[str, float]]
"""What classes of requests lose: for each class the percentile, and its value in ms."""
# What requests took at work as the service is served today, by class.
_AT_WORK = """
SELECT request_class, unnest(['p50', 'p90', 'p99'][:if(count(*) < 100, 2, 3)]),
    unnest(quantile_cont(1000 * (ended - began), [0.5, 0.9, 0.99])[:if(count(*) < 100, 2, 3)])
FROM requests WHERE variant = $today AND error IS NULL AND ended IS NOT NULL GROUP BY request_class ORDER BY ALL
"""
HOLDS, HELD_PART = ("pool", "lock", "waits"), 0.2
"""Kinds of waits for what other requests may hold. From this part of the time of a class at work on, they count even if
its median request does not wait."""


class Stall(NamedTuple):
    """For which share of the time loops were held up, and for how long at most.

    ``lost_s`` is how much of the requests' lost time this covers.
    """

    share: float
    longest_s: float
    lost_s: float


class Slower(NamedTuple):
    """How long requests of a class are at work under the load in a percentile, and alone, in ms."""

    stat: str
    ms: float
    alone_ms: float


class LostTime(NamedTuple):
    """How much time requests lost in all trials together, in seconds.

    ``before_s`` is by class before the work begins, without the avoidable waits, and without ``deaths_s``, the waits
    while a worker's place was empty; ``waits_ms`` has the same of each request, and ``idle_ms`` the part of it in which
    their own worker had a free thread. ``at_work_s`` is by class at work, and ``alone_s`` is what the requests of a
    class take together without it.
    """

    avoidable_s: float
    deaths_s: float
    waits_ms: Mapping[str, Times]
    idle_ms: Mapping[str, Times]
    before_s: Mapping[str, float]
    at_work_s: Mapping[str, float]
    alone_s: Mapping[str, float]

    @property
    def all_s(self) -> float:
        """What all requests lost."""
        return self.avoidable_s + self.deaths_s + sum(self.before_s.values()) + sum(self.at_work_s.values())

    def before_of(self, classes: Collection[str]) -> float:
        """Return what requests of these classes lost before their work began, without the avoidable waits."""
        return sum(seconds for name, seconds in self.before_s.items() if name in classes)


@dataclass(frozen=True)
class ProcessorUse:
    """How busy the machine was with today's way to serve, and what the workers used and wrote; None: not known.

    ``busy`` is a share of all ``cores``; ``workers`` is in processors. ``output`` is in bytes a request, and
    ``output_rate`` in bytes a second.
    """

    cores: float
    busy: float | None
    workers: float | None
    output: float | None
    output_rate: float | None

    @property
    def is_busy_elsewhere(self) -> bool:
        """Whether the machine was busy, mostly with something other than the workers."""
        if self.busy is None or self.workers is None or not self.cores:
            return False
        return self.busy >= BUSY and self.workers < WORKERS_PART * self.busy * self.cores

    @property
    def writes_much(self) -> bool:
        """Whether the workers write so much to their output that handling it costs time."""
        return (self.output or 0) > MUCH_BYTES or (self.output_rate or 0) > MUCH_BYTES_PER_S


@dataclass(frozen=True)
class Symptoms:
    """What is known of a service as it is served today.

    ``rows`` has the view ``requests``, of trusted trials; ``loops`` says when event loops were held up and pools were
    full; ``alone_ms`` is how long a request of each class takes alone; ``busy`` is which share of all processors of the
    machine was busy; ``deaths`` are the workers that ended.
    """

    figures: Figures
    run: Run
    rows: duckdb.DuckDBPyConnection
    loops: Loops
    alone_ms: Mapping[str, float]
    busy: float | None
    deaths: DeathsByLimit

    @cached_property
    def variant(self) -> VariantRecord:
        """Today's way to serve."""
        return self.run.variant(TODAY)

    @cached_property
    def trials(self) -> list[Answered]:
        """The answered requests of each trial."""
        load = self.run.loads[0].name
        return [waiting.read_answered(self.rows, TODAY, load, trial) for trial in range(1, self.run.trials + 1)]

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

    @cached_property
    def processors(self) -> ProcessorUse:
        """Who used the machine's processors."""
        rate = self.value(None, "throughput", "per_second")
        each_ms, output = self.value(None, "processor", "per_request"), self.value(None, "output", "per_request")
        workers = None if each_ms is None or rate is None else each_ms * rate / 1000
        output_rate = None if output is None or rate is None else output * rate
        return ProcessorUse(self.run.host.cores, self.busy, workers, output, output_rate)

    @cached_property
    def cores(self) -> float:
        """How many processors the containers may use: the machine's, or their limit; 0: not known."""
        settings, cores = self.variant.settings, float(self.run.host.cores or 0)
        limit = float(str(settings.get("cpus") or 0)) * int(str(settings.get("replicas") or 1))
        return min(limit, cores or limit) if limit else cores

    @cached_property
    def computing(self) -> float | None:
        """Which share of the processors that the workers can use was busy; None: the machine does not report it."""
        used, workers = self.processors.workers, self.variant.workers
        return None if used is None else used / min(workers, self.cores or workers)

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

    # What requests lose before their work begins

    @cached_property
    def avoidable(self) -> dict[str, Estimate]:
        """The share of requests with an avoidable wait, for each class in which it is an alarm."""
        found = {name: self.figures.row(TODAY, name, "avoidable_wait", "share") for name in self.classes}
        return {name: row for name, row in found.items() if row and (row.measured or 0.0) >= AVOIDABLE}

    @cached_property
    def slow(self) -> Loses:
        """What the other classes lose before their work begins, if noticeable and not due to workers that ended."""
        found: Loses = {}
        for name in (name for name in self.classes if name not in self.avoidable):
            stat = self.figures.percentile(name, [TODAY])
            loss = self.figures.loss(TODAY, name, stat) if stat else None
            waits_ms = self.lost.waits_ms.get(name) if self.deaths else None
            if stat and loss and loss.ms > self._noticeable_ms(name):
                found |= {name: (stat, loss.ms)} if waits_ms is None or self._noticeable({name: waits_ms}) else {}
        return found

    @cached_property
    def slow_beside_own(self) -> Loses:
        """Those of the slow classes that lose most of this while their own worker has a free thread, and what."""
        if not self.slots or self.variant.is_replaced or self.computes or self.processors.is_busy_elsewhere:
            return {}
        idle = self._noticeable({name: self.lost.idle_ms[name] for name in self.slow if name in self.lost.idle_ms})
        return {name: (stat, idle_ms) for name, (stat, idle_ms) in idle.items() if idle_ms > self.slow[name][1] / 2}

    @cached_property
    def slow_in_one_queue(self) -> Loses:
        """What classes would lose even if one queue led to all threads, if noticeable.

        These are classes with avoidable waits or, on a machine that was busy with something else, all that are slow,
        unless requests compute for much of the time that they take alone: then they had their threads for longer
        because of the machine. Unknown, and so empty, if the workers have no threads.
        """
        each_ms, names = self.value(None, "processor", "per_request") or 0.0, [*self.avoidable]
        least_ms = COMPUTES_MS_PER_S * sum(self.lost.alone_s.values())
        if self.processors.is_busy_elsewhere and each_ms * sum(map(len, self.lost.waits_ms.values())) < least_ms:
            names += self.slow
        waits_ms: defaultdict[str, list[float]] = defaultdict(list)
        for answered in self.trials if self.slots and names else ():
            waits_s = waiting.waits_in_line_s(answered, self.slots)
            for place, name in enumerate(answered.classes):
                waits_ms[name] += (1000 * waits_s[answered.request_class == place]).tolist()
        return self._noticeable({name: np.array(waits_ms[name]) for name in names if waits_ms[name]})

    @cached_property
    def slow_by_machine(self) -> Loses:
        """Those of the slow classes for which a machine that was busy with something else is the only known reason."""
        if not self.processors.is_busy_elsewhere or self.computes or self.stall("held") or self.stall("locked"):
            return {}
        return {name: lost for name, lost in self.slow.items() if name not in self.slow_in_one_queue}

    def _noticeable(self, waits_ms: Mapping[str, Times]) -> Loses:
        """Return what classes lose in the percentile that is measured of them, if it is noticeable."""
        stats = {name: self.figures.percentile(name, [TODAY]) for name in waits_ms}
        lost = {name: (stat, float(np.percentile(waits_ms[name], int(stat[1:]))))
                for name, stat in stats.items() if stat}  # fmt: skip
        return {name: (stat, ms) for name, (stat, ms) in lost.items() if ms > self._noticeable_ms(name)}

    def _noticeable_ms(self, request_class: str) -> float:
        """Return from which loss on one request in a hundred of a class loses noticeably much."""
        takes = self.value(request_class, "response_time", "p50") or 0.0
        work = max(0.0, takes - (self.value(request_class, "overhead", "p50") or 0.0))
        return max(WAITS_MS, SLOWER * work)

    # What requests lose at work

    @cached_property
    def slower_together(self) -> dict[str, Slower]:
        """The classes that take longer at work together than alone, more than computing explains.

        On a machine that was busy with something else, also more than this explains. If the median request does not,
        those count that wait for what others hold.
        """
        if self.computing is None or self.computes or self.processors.writes_much:
            return {}
        found: dict[str, Slower] = {}
        each_ms = self.value(None, "processor", "per_request")
        for name, stat, work_ms in self.rows.execute(_AT_WORK, {"today": TODAY}).fetchall():
            alone_ms, before_ms = self.alone_ms.get(name), self.value(name, "overhead", "p50")
            if name in found or alone_ms is None:
                continue
            # work that computes takes about 1 / (1 - computing) times as long
            least_ms = max(SLOWER_TOGETHER * alone_ms / (1 - self.computing), alone_ms + SLOWER_BY_MS)
            if self.processors.is_busy_elsewhere:
                by_machine_ms = math.inf if each_ms is None or before_ms is None else BY_MACHINE * (each_ms + before_ms)
                least_ms = max(least_ms, alone_ms + by_machine_ms)
            waits_s = sum(stack.seconds for stack in self.stacks("", name)
                          if stack.kind in HOLDS and not stack.called.endswith("sleep"))  # fmt: skip
            if work_ms >= least_ms and (stat == "p50" or waits_s > HELD_PART * self.at_work_s(name)):
                found[name] = Slower(stat, work_ms, alone_ms)
        return found

    def at_work_s(self, request_class: str) -> float:
        """Return for how long requests of a class were at work."""
        return self.lost.alone_s.get(request_class, 0.0) + self.lost.at_work_s.get(request_class, 0.0)

    # What the probe saw

    def share_of_workers(self, seconds: float) -> float:
        """Return a time of workers as a share of the time of all workers."""
        all_s = self.variant.workers * self.loops.span_s
        return seconds / all_s if all_s else 0.0

    def stall(self, what: str) -> Stall | None:
        """Return how long loops were held up, on the loop itself (held) or by the lock (locked); None: too little."""
        held = [stall for stall in self.loops.held if (stall.what in ("locked", "collected")) == (what == "locked")]
        share = self.share_of_workers(sum(stall.total_s for stall in held))
        if share < STALLED:
            return None
        return Stall(share, max(stall.longest_s for stall in held), sum(stall.lost_s for stall in held))

    @property
    def collected(self) -> float:
        """For which share of the workers' time long runs of the garbage collector held all threads."""
        return self.share_of_workers(sum(stack.seconds for stack in self.loops.stacks if stack.of == "gc"))

    @property
    def loop_may_be_held(self) -> bool:
        """Whether loops were seen in code that holds them up, more than in the collector, or nobody watched them."""
        held = self.share_of_workers(sum(stack.seconds for stack in self.loops.stacks if stack.of == "loop"))
        return not self.loops.span_s or held - self.collected >= max(STALLED, self.collected)

    def stacks(self, of: str, request_class: str | None = None) -> list[Stack]:
        """Return where loops, threads of pools or requests spend their time, each line once, the longest time first.

        None: of all classes, each with lines of its own.
        """
        spent_s: defaultdict[Stack, float] = defaultdict(float)
        for stack in self.loops.stacks:
            if stack.of == of and request_class in (None, stack.request_class):
                spent_s[stack._replace(seconds=0.0)] += stack.seconds
        found = [stack._replace(seconds=seconds) for stack, seconds in spent_s.items()]
        return sorted(found, key=lambda stack: -stack.seconds)

    @cached_property
    def computing_stacks(self) -> list[Stack]:
        """Where requests, threads of pools and other threads compute."""
        of = ("", "pool thread", "thread")
        return [stack for each in of for stack in self.stacks(each) if stack.kind == "computes"]

    @property
    def computing_beside(self) -> list[Stack]:
        """Where threads compute beside the requests of their worker."""
        return [stack for stack in self.computing_stacks if stack.of == "thread" or self.variant.threads != 1]

    @property
    def computes_beside(self) -> float:
        """For which share of the workers' time they do."""
        return self.share_of_workers(sum(stack.seconds for stack in self.computing_beside))

    @cached_property
    def full_pools(self) -> dict[str, FullPool]:
        """The pools that were full for a noticeable share of the workers' time, in all trials together."""
        found = {}
        for what in ("pool", "executor"):
            pools = [pool for pool in self.loops.pools if pool.what == what]
            total_s = sum(pool.total_s for pool in pools)
            if self.share_of_workers(total_s) >= STALLED:
                known = [pool.at_work * pool.total_s for pool in pools if pool.at_work is not None]
                found[what] = FullPool(
                    what, max(pool.threads for pool in pools), total_s, sum(pool.lost_s for pool in pools),
                    sum(known) / total_s if len(known) == len(pools) else None,
                )  # fmt: skip
        return found

    # What requests lose in all

    @cached_property
    def lost(self) -> LostTime:
        """How much time requests lost."""
        avoidable_s = deaths_s = 0.0
        waits_ms, idle_ms = (defaultdict[str, list[Times]](list) for _ in range(2))
        before_s, at_work_s, alone_s = (defaultdict[str, float](float) for _ in range(3))
        for answered in (trial for trial in self.trials if trial.classes):
            lost, known = lost_times(answered, self.alone_ms), waiting.waits_of_variant(self.variant, answered)
            beside_s = np.minimum(known.beside_s, lost.before_s) if known else np.zeros_like(lost.before_s)
            left_s = lost.before_s - beside_s
            due_to_deaths = waited_for_places(self.deaths, answered)
            avoidable_s += float(beside_s.sum())
            deaths_s += float(left_s[due_to_deaths].sum())
            left_s[due_to_deaths] = 0.0
            idle_s = np.minimum(left_s, np.maximum(0.0, lost.before_s - known.own_s)) if known else 0 * left_s
            for place, name in enumerate(answered.classes):
                mine = answered.request_class == place
                before_s[name] += float(left_s[mine].sum())
                waits_ms[name].append(1000 * left_s[mine])
                idle_ms[name].append(1000 * idle_s[mine])
                at_work_s[name] += float(lost.at_work_s[mine].sum())
                alone_s[name] += float(lost.takes_s[place] * mine.sum())
        waits, idle = ({name: np.concatenate(found) for name, found in of.items()} for of in (waits_ms, idle_ms))
        return LostTime(avoidable_s, deaths_s, waits, idle, before_s, at_work_s, alone_s)

    def part_of_lost(self, seconds: float) -> float:
        """Return a time that requests lost as a share of all the time that they lost; 0: they lost none."""
        return min(1.0, seconds / self.lost.all_s) if self.lost.all_s else 0.0

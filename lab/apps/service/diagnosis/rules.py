"""What is wrong with a service, if anything, from a measured run."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import duckdb
import numpy as np

from analysis.metrics import waiting
from analysis.records.run import TODAY, Run, VariantRecord
from analysis.records.summary import Row, Summary
from analysis.report.spread import value_and_spread
from analysis.report.words import percent
from analysis.statistics.losses import PERCENTILES, Figures
from lab.apps.service.diagnosis import wording as words
from lab.apps.service.diagnosis.held import Loops
from lab.apps.service.diagnosis.model import Bottleneck, Diagnosis, Limit
from lab.apps.service.diagnosis.omissions import Omissions
from lab.apps.service.diagnosis.processor_use import ProcessorUse, processor_sentences, processor_use

SLOWER_TOGETHER, SLOWER_BY_MS = 1.5, 10
"""A request is held up inside the application if its median time at work under the load is more than so many times, and
more than so many ms above, the time that it takes alone."""
WAITS_MS = 50
"""A class of requests waits if one request in a hundred loses more than this, outside the application."""
SLOWER = 0.1
"""And if that is more than this part of what its median request takes at work."""
BESIDE = 0.01
"""The share of requests that wait beside a free thread from which on this is an alarm."""
COMPUTES = 0.7
"""From this part of the processors that the workers could use, the service is held up by computing."""
HELD = 0.01
"""The share of the workers' time that their event loops are held up from which on this is an alarm."""
MOST_LOOKED_AT = 300
_NO_OMISSIONS = Omissions()


class Stall(NamedTuple):
    """For which share of the time loops were held up, for how long at most, and which class had begun last mostly."""

    share: float
    longest_s: float
    request: str
    of_it: float


@dataclass(frozen=True)
class Symptoms:
    """What is known of a service as it is served today, by which rules find what limits it.

    ``rows`` has the view ``requests``; ``loops`` says when event loops were held up and pools were full; ``alone_ms``
    is how long a request of each class takes alone; ``use`` says who kept the machine's processors busy.
    """

    figures: Figures
    run: Run
    rows: duckdb.DuckDBPyConnection
    loops: Loops
    alone_ms: Mapping[str, float]
    use: ProcessorUse

    @cached_property
    def variant(self) -> VariantRecord:
        """Today's way to serve."""
        return self.run.variant(TODAY)

    @property
    def processes_help(self) -> bool:
        """Whether the machine has more processors than the workers can use."""
        return self.variant.workers < (self.run.host.cores or 0)

    @cached_property
    def busy(self) -> float | None:
        """Which share of the processors that the workers can use was busy; None: the machine does not report it."""
        used = _processors(self.figures)
        workers = self.variant.workers
        return None if used is None else used / min(workers, self.run.host.cores or workers)

    @property
    def computes(self) -> bool:
        """Whether computing explains that requests wait."""
        return self.busy is not None and self.busy >= COMPUTES

    @property
    def greenlets(self) -> bool:
        """Whether requests are served by greenlets."""
        return str(self.variant.settings.get("server", "")).endswith(("gevent", "eventlet"))

    @cached_property
    def beside(self) -> dict[str, Row]:
        """The share of requests that waited beside a free thread, for each class in which it is an alarm."""
        found = {one: self.figures.row(TODAY, one, "avoidable_wait", "share") for one in self._classes}
        return {one: row for one, row in found.items() if row and (row.measured or 0.0) >= BESIDE}

    @cached_property
    def slow(self) -> dict[str, tuple[str, float]]:
        """What the other classes lose before their work begins, if noticeable: the statistic and its value in ms."""
        slow = [one for one in self._classes if one not in self.beside and _waits(self.figures, one)]
        lost = {one: [(stat, self.figures.loss(TODAY, one, stat)) for stat in PERCENTILES] for one in slow}
        return {one: next((stat, of.ms) for stat, of in found if of) for one, found in lost.items()}

    @cached_property
    def in_line(self) -> dict[str, tuple[str, float]]:
        """What classes would lose even if one queue led to all threads, if noticeable.

        These are classes that wait beside a free thread or, on a machine that was busy with something else, all that
        are slow. Unknown, and so empty, if the workers have no threads.
        """
        threads = self.variant.settings.get("threads")
        names = [*self.beside, *(self.slow if self.use.is_busy_elsewhere else ())]
        if not threads or not names:
            return {}
        waits: dict[str, list[float]] = {one: [] for one in names}
        for number_ in range(1, self.run.trials + 1):
            answered = waiting.read_answered(self.rows, TODAY, self.run.loads[0].name, number_)
            waits_s = waiting.waits_in_line_s(answered, self.variant.workers * int(threads))
            for place, name in enumerate(answered.classes):
                if name in waits:
                    waits[name] += (1000 * waits_s[answered.request == place]).tolist()
        stats = {one: self.figures.percentile(one, [TODAY]) for one in waits}
        lost = {one: (stat, float(np.percentile(waits[one], int(stat[1:])))) for one, stat in stats.items()
                if stat and waits[one]}  # fmt: skip
        return {one: of for one, of in lost.items() if of[1] > _noticeable_ms(self.figures, one)}

    @cached_property
    def slow_by_machine(self) -> dict[str, tuple[str, float]]:
        """Those of the slow classes for which a machine that was busy with something else is the only known reason."""
        if not self.use.is_busy_elsewhere or self.computes or self.held("held"):
            return {}
        return {one: of for one, of in self.slow.items() if one not in self.in_line}

    @cached_property
    def slower(self) -> dict[str, tuple[float, float]]:
        """The classes that take longer at work together than alone, more than computing explains: both times in ms."""
        if self.busy is None or self.computes or self.use.may_delay_work:
            return {}
        return {
            name: (work_ms, alone)
            for name, work_ms in self.rows.execute(_AT_WORK, {"today": TODAY}).fetchall()
            if (alone := self.alone_ms.get(name)) is not None
            and work_ms is not None
            # work that computes takes about 1 / (1 - busy) times as long
            and work_ms >= max(SLOWER_TOGETHER * alone / (1 - self.busy), alone + SLOWER_BY_MS)
        }

    def held(self, what: str) -> Stall | None:
        """Return how long event loops were held up, on the loop itself (held) or by the lock (locked), if noticeable.

        The times are shares of the time of all workers.
        """
        held = [one for one in self.loops.held if (one.what == "locked") == (what == "locked")]
        all_s = self.variant.workers * self.loops.span_s
        total_s = sum(one.total_s for one in held)
        if not all_s or total_s < HELD * all_s:
            return None
        by: Counter[str] = Counter()
        for one in held:
            by[one.request] += round(1e6 * one.total_s)
        [(most, most_us)] = by.most_common(1)
        return Stall(total_s / all_s, max(one.longest_s for one in held), most, most_us / 1e6 / total_s)

    @property
    def loops_compute(self) -> bool:
        """Whether functions that compute held up event loops for longer than functions that block."""
        of = {what: sum(one.total_s for one in self.loops.held if one.what == what) for what in ("held", "computed")}
        return of["computed"] > of["held"]

    def full(self, what: str) -> tuple[float, int]:
        """Return for which share of the workers' time a pool was full, and how many threads it has in a worker."""
        found = [one for one in self.loops.pools if one.what == what]
        all_s = self.variant.workers * self.loops.span_s
        return (
            sum(one.total_s for one in found) / all_s if all_s else 0.0,
            max((one.threads for one in found), default=0),
        )

    @property
    def _classes(self) -> list[str]:
        return self.figures.classes(TODAY)


def diagnose(
    summary: Summary,
    run: Run,
    rows: duckdb.DuckDBPyConnection,
    loops: Loops,
    alone_ms: Mapping[str, float],
    omissions: Omissions = _NO_OMISSIONS,
    busy: float | None = None,
) -> Diagnosis:
    """Say whether requests wait as the service is served today, for what, and behind what.

    ``rows`` has the view ``requests``; ``loops`` says when event loops were held up; ``alone_ms`` is how long a request
    of each class takes alone; ``omissions`` is what the lab leaves out; ``busy`` is the share of all processors of the
    machine that was busy meanwhile. Nothing is said of trials that are invalid.
    """
    figures = Figures(summary)
    if not figures.classes(TODAY):
        return Diagnosis(alarm=False, sentences=[words.NOTHING_MEASURED])
    symptoms = Symptoms(figures, run, rows, loops, alone_ms, processor_use(figures, run, busy))
    bottlenecks = [found for rule in RULES if (found := rule(symptoms))]
    refused = list(_refused(summary, figures))
    per_second = figures.value(TODAY, None, "throughput", "per_second") or 0.0
    left_out = list(words.omissions(omissions, per_second, symptoms.variant.workers))
    sentences = [*refused, *(sentence for one in bottlenecks for sentence in one.sentences), *left_out]
    if not any(figures.percentile(one, [TODAY]) for one in figures.classes(TODAY)):
        sentences.append(words.NOTHING_ELSE)
    elif not bottlenecks:
        without_times = any(figures.value(TODAY, one, "failures", "share") == 1 for one in figures.classes(TODAY))
        sentences.append(words.healthy(others=without_times, left_out=bool(left_out)))
    return Diagnosis(alarm=bool(bottlenecks), sentences=sentences, bottlenecks=bottlenecks)


def _avoidable_wait(found: Symptoms) -> Bottleneck | None:
    """Requests wait for a busy worker although another worker has a free thread."""
    if not found.beside:
        return None
    sentences = []
    for name, row in found.beside.items():
        longest = found.figures.value(TODAY, name, "avoidable_wait", "max") or 0.0
        share = value_and_spread(row.measured or 0.0, [*row.values.values()], row.low, row.high, percent)
        sentences.append(words.beside(name, share, longest))
    sentences += _behind(found.run, found.rows)
    sentences.append(words.CAUSES["socket" if int(found.variant.settings.get("workers") or 0) > 1 else "balancer"])
    worst = max(row.measured or 0.0 for row in found.beside.values())
    return Bottleneck(limit="avoidable-wait", requests=[*found.beside], numbers={"share": worst}, sentences=sentences)


def _busy_processors(found: Symptoms) -> Bottleneck | None:
    """The workers compute all the time. Then this explains all other waits before the work begins."""
    if not found.computes:
        return None
    share, workers, cores = min(1.0, found.busy or 0.0), found.variant.workers, found.run.host.cores or 1
    lost = [words.lost(name, *of, words.MEANWHILE_COMPUTED) for name, of in found.slow.items()]
    return Bottleneck(
        limit="processors", requests=[*found.slow], numbers={"share": share, "workers": workers, "cores": cores},
        sentences=[words.processors(share, workers, cores), *lost],
    )  # fmt: skip


def _interpreter_lock(found: Symptoms) -> Bottleneck | None:
    """Event loops do not go on because other threads of the process compute."""
    return _stalled(found, "locked", "interpreter-lock")


def _busy_threads(found: Symptoms) -> Bottleneck | None:
    """All threads are busy with requests that wait for something else than a processor."""
    threads = found.variant.settings.get("threads")
    slow = {} if found.use.is_busy_elsewhere else found.slow
    lost = slow | found.in_line
    if not threads or not lost or found.computes:
        return None
    slots = found.variant.workers * int(threads)
    sentences = [words.lost(name, *of, words.too_few(slots)) for name, of in slow.items()]
    sentences += [words.in_line(name, *of, slots) for name, of in found.in_line.items()]
    numbers = {"threads": float(slots), "lost_ms": max(ms for _, ms in lost.values())}
    return Bottleneck(limit="threads", requests=[*lost], numbers=numbers, sentences=sentences)


def _event_loop(found: Symptoms) -> Bottleneck | None:
    """A function on an event loop or a hub computes or blocks."""
    stalled = _stalled(found, "held", "event-loop")
    if found.variant.settings.get("threads") or found.computes or not found.slow or found.slow_by_machine:
        return stalled
    lost = [words.lost(name, *of, words.loop_of(found.greenlets)) for name, of in found.slow.items()]
    if stalled is None:
        return Bottleneck(limit="event-loop", requests=[*found.slow], sentences=lost)
    return stalled.model_copy(update={"requests": [*found.slow], "sentences": [*lost, *stalled.sentences]})


def _stalled(found: Symptoms, what: str, limit: Limit) -> Bottleneck | None:
    """Return that loops were held up for this reason, if noticeable."""
    stall = found.held(what)
    if stall is None:
        return None
    told = words.stalled(what, *stall, greenlets=found.greenlets)
    helps = words.advice(
        what, greenlets=found.greenlets, single=found.variant.workers == 1,
        computes=found.computes or found.loops_compute, processes_help=found.processes_help or not found.computes,
    )  # fmt: skip
    numbers = {"share": stall.share, "longest_s": stall.longest_s}
    return Bottleneck(limit=limit, numbers=numbers, sentences=[f"{told} {helps}"])


def _thread_pool(found: Symptoms) -> Bottleneck | None:
    """All threads of a pool behind the event loop are busy, and requests wait for a thread of it."""
    full = {what: found.full(what) for what in ("pool", "executor")}
    full = {what: of for what, of in full.items() if of[0] >= HELD}
    if not full:
        return None
    computes = found.computes or found.held("locked") is not None
    sentences = [words.pool(what, *of, found.variant.workers, computes=computes) for what, of in full.items()]
    sentences += [words.slower(name, *of) for name, of in found.slower.items()]
    share, threads = max(full.values())
    numbers = {"share": share, "threads": float(threads)}
    return Bottleneck(limit="thread-pool", requests=[*found.slower], numbers=numbers, sentences=sentences)


def _inside(found: Symptoms) -> Bottleneck | None:
    """Requests take longer at work together than alone, and neither loops, pools nor computing explain it."""
    explained = found.held("held") or found.held("locked") or _thread_pool(found)
    if explained or not found.slower:
        return None
    sentences = [f"{words.slower(name, *of)} {words.INSIDE}" for name, of in found.slower.items()]
    longest = max(work_ms for work_ms, _ in found.slower.values())
    return Bottleneck(
        limit="inside", requests=[*found.slower], numbers={"at_work_ms": longest}, sentences=sentences
    )  # fmt: skip


def _machine(found: Symptoms) -> Bottleneck | None:
    """Something other than the workers keeps the machine busy, such as the engine that handles their output."""
    if not found.use.may_delay_work:
        return None
    known = {"busy": found.use.busy, "output": found.use.output}
    lost = [words.lost(name, *of, words.MEANWHILE_BUSY) for name, of in found.slow_by_machine.items()]
    return Bottleneck(
        limit="output" if found.use.writes_much else "machine", requests=[*found.slow_by_machine],
        numbers={name: value for name, value in known.items() if value is not None},
        sentences=[*processor_sentences(found.use), *lost],
    )  # fmt: skip


RULES: Sequence[Callable[[Symptoms], Bottleneck | None]] = (
    _machine, _avoidable_wait, _busy_processors, _busy_threads, _event_loop, _interpreter_lock, _thread_pool, _inside,
)  # fmt: skip
"""In the order of their sentences."""


# What requests took at work as the service is served today, by class.
_AT_WORK = """
SELECT request, median(1000 * (ended - began)) FROM requests WHERE variant = $today AND error IS NULL
GROUP BY request ORDER BY request
"""


def _refused(summary: Summary, figures: Figures) -> Iterator[str]:
    """Say which requests the application answered with an error."""
    for name in figures.classes(TODAY):
        share = figures.value(TODAY, name, "failures", "share") or 0.0
        if not share:
            continue
        why: Counter[str] = Counter()
        for one in summary.errors:
            if (one.variant, one.request) == (TODAY, name):
                why[one.error] += one.requests
        yield words.refused(name, share, [error for error, _ in why.most_common(2)])


def _waits(figures: Figures, request: str) -> bool:
    """Whether one request in a hundred of a class loses noticeably more than the median request is at work."""
    stat = figures.percentile(request, [TODAY])
    lost = figures.loss(TODAY, request, stat) if stat else None
    if lost is None:
        return False
    return lost.ms > _noticeable_ms(figures, request)


def _noticeable_ms(figures: Figures, request: str) -> float:
    """Return from which loss on one request in a hundred of a class loses noticeably much."""
    takes = figures.value(TODAY, request, "response_time", "p50") or 0.0
    work = max(0.0, takes - (figures.value(TODAY, request, "overhead", "p50") or 0.0))
    return max(WAITS_MS, SLOWER * work)


def _processors(figures: Figures) -> float | None:
    """Return how many processors the workers kept busy; None: the machine does not report it."""
    per_request = figures.value(TODAY, None, "processor", "per_request")
    rate = figures.value(TODAY, None, "throughput", "per_second")
    return None if per_request is None or rate is None else per_request * rate / 1000


def _behind(run: Run, rows: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Say which requests were at work on a worker while others waited for it beside a free thread."""
    variant, load = run.variant(TODAY), run.loads[0]
    shares: dict[str, float] = {}
    for number_ in range(1, run.trials + 1):
        for name, seconds in _held_up_by(rows, variant.name, load.name, number_, run):
            shares[name] = shares.get(name, 0.0) + seconds
    if total := sum(shares.values()):
        most = sorted(((seconds / total, name) for name, seconds in shares.items()), reverse=True)
        yield words.behind([(name, share) for share, name in most if share >= BESIDE])


def _held_up_by(
    database: duckdb.DuckDBPyConnection, variant: str, load: str, trial: int, run: Run
) -> Iterator[tuple[str, float]]:
    """Yield each class of requests that were at work while others waited, and for how long in all, in seconds."""
    answered = waiting.read_answered(database, variant, load, trial)
    found = waiting.of_variant(run.variant(variant), answered)
    if found is None:
        return
    worst = np.argsort(found.beside_s)[::-1][:MOST_LOOKED_AT]
    for place in worst[found.beside_s[worst] > waiting.FROM_S]:
        sent_s, began_s = answered.sent_s[place], answered.began_s[place]
        mine = answered.worker == answered.worker[place]
        overlap = np.minimum(answered.ended_s[mine], began_s) - np.maximum(answered.began_s[mine], sent_s)
        for of in np.unique(answered.request[mine]):
            both = overlap[answered.request[mine] == of]
            yield answered.classes[of], float(both[both > 0].sum())

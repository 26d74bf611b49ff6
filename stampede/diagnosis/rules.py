"""What limits a service as it is served today, and what helps: a rule for each limit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stampede.diagnosis.deaths import death_bottlenecks, is_always_said, replacement_sentence
from stampede.diagnosis.evidence import SLOWER, SOME_TIME, Evidence, Loses, seconds_of
from stampede.diagnosis.held import Stack, Stall
from stampede.diagnosis.model import Bottleneck, Diagnosis, Limit
from stampede.evaluate.metrics.servers import megabytes
from stampede.predict.symptoms import SYMPTOMS
from stampede.records.run import TODAY
from stampede.records.words import plural
from stampede.report.spread import value_and_spread
from stampede.report.wording import number, percent

MINOR = 1 / 20
"""A limit is minor if it explains less than this part of what the first limit explains."""
COLLECTS = 0.05
"""From this share of the time on, long runs of the garbage collector are an alarm, also if no event loop is held up."""
MOSTLY = 0.5
"""The limits explain what requests lose if they explain at least this share of the lost time."""
_NAMED = 3
"""How many classes of requests a sentence names."""
_LIBRARIES = {"asgiref.": "asgiref", "concurrent.futures.": "result"}
"""Libraries whose waits have a cure of their own, by how the names of their functions begin."""
HELD_BY_OTHERS = ("pool", "lock", "result", "asgiref")
"""Waits for what other requests hold."""
_ONE_IN = {"p99": "one in a hundred", "p90": "one in ten", "p50": "one in two"}
_NOTHING = "Nothing was measured of today's way to serve, so nothing {}is said."
_FAILED = "failed: "
"""How a reason begins that a trial itself gives, such as a server that ended."""


def diagnose(found: Evidence) -> Diagnosis:
    """Say whether requests wait as the service is served today, for what, and behind what.

    Nothing is said of trials that are invalid.
    """
    if not found.classes:
        ended = [reason.removeprefix(_FAILED) for trial in found.summary.trials if trial.variant == TODAY
                 for reason in trial.reasons if reason.startswith(_FAILED)]  # fmt: skip
        said = f"No trial of today's way to serve was measured: {ended[0]}" if ended else _NOTHING.format("")
        return Diagnosis(alarm=bool(ended), sentences=[said])
    limits = [*death_bottlenecks(found.deaths, found.variant, found.part_of_lost)]
    for limit, rule in RULES.items():
        if (told := rule(found)) is not None:
            explains = None if told.lost_s is None else found.part_of_lost(told.lost_s)
            sentences = [*filter(None, told.sentences)]
            limits.append(Bottleneck(limit=limit, requests=[*told.requests], explains=explains, sentences=sentences))
    limits.sort(key=lambda each: -(each.explains or 0.0))
    most = max((each.explains or 0.0 for each in limits), default=0.0)
    main = [each for each in limits
            if each.explains is None or each.explains >= MINOR * most or is_always_said(each)]  # fmt: skip
    lost = {toll.request_class for each in found.deaths.values() for toll in each.tolls if toll.lost}
    failures = [*_failures(found, lost)]
    sentences = [
        *(failure for name, failure in failures if name not in lost),
        *(" ".join(each.sentences) for each in main),
        *(failure for name, failure in failures if name in lost),  # the deaths are why
    ]
    explained = sum(each.explains or 0.0 for each in main)
    if main and explained < MOSTLY and found.lost.all_s > SLOWER * found.lost.takes_s.sum():
        sentences.append(
            f"This explains {percent(explained)} of the time that requests lose; the rest is not explained."
        )
    per_second = found.value(None, "throughput", "per_second") or 0.0
    if replaced := replacement_sentence(found.variant.settings, per_second, found.variant.workers):
        sentences.append(replaced)
    if doubt := _busy_elsewhere(found):
        slow = _loses(found.slow_by_machine, "perhaps because the machine was busy.")
        seen = "" if limits else _lines(found.stacks(""), " of the time of long requests is spent")
        again = "Measure again on a machine that is not busy."
        sentences.append(" ".join(filter(None, ["In doubt:", doubt, slow, seen and f"{seen}.", again])))
    if not any(found.figures.percentile(name, [TODAY]) for name in found.classes):
        sentences.append(_NOTHING.format("else "))
    elif not limits and not doubt:
        failed = any(found.value(name, "failures", "share") == 1 for name in found.classes)
        sentences.append(f"No request{' of the other classes' if failed else ''} waits for a worker noticeably. "
                         "How long an answer takes is up to the application.")  # fmt: skip
    return Diagnosis(alarm=bool(limits or doubt), sentences=sentences, bottlenecks=limits,
                     minor=[" ".join(each.sentences) for each in limits if each not in main])  # fmt: skip


# The classes of which most failed requests with a status 5xx had reached no worker.
_REFUSED = """
SELECT request_class FROM requests WHERE variant = $today AND error IS NOT NULL AND status >= 500
GROUP BY request_class HAVING count(began) < count(*) / 2
"""
_WHY_FAILED = {
    "401": "Is a token or a login missing?", "403": "Is a token or a login missing?", "404": "Is the path right?",
    "405": "Is the method right?", "5": "The application failed; its log in the folder of the trial says why.",
    "refused": "No worker began these requests: the server refused them, as a limit such as uvicorn's "
               "--limit-concurrency makes it do, or the balancer reached no worker.",
}  # fmt: skip


def _failures(found: Evidence, lost: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each class of requests that failed, and its most frequent errors. ``lost``: workers took some along."""
    refused = {name for (name,) in found.rows.execute(_REFUSED, {"today": TODAY}).fetchall()}
    for name in found.classes:
        share = found.value(name, "failures", "share") or 0.0
        if not share:
            continue
        counts: Counter[str] = Counter()
        for row in found.summary.errors:
            counts[row.error] += row.requests if (row.variant, row.request_class) == (TODAY, name) else 0
        errors = [error for error, requests in counts.most_common(2) if requests]
        status = errors[0].removeprefix("status ") if errors and errors[0].startswith("status ") else ""
        question = _WHY_FAILED.get(status, "")
        if status.startswith("5") and name not in lost:
            question = _WHY_FAILED["refused" if name in refused else "5"]
            if name not in refused and found.thrown:
                question = f"The application failed; its log says: {found.thrown.removesuffix('.')}."
        said = f"{'All' if share == 1 else f'{percent(share)} of the'} {name} requests failed "
        said += f"({', '.join(errors) or 'no reason given'})."
        said += " No time is measured of them." if share == 1 else ""
        said += f" {question}" if question else ""
        yield name, " ".join([said, *(_waits_in(found, [name]) if share == 1 else [])])


def _busy_elsewhere(found: Evidence) -> str:
    """Say who kept the processors busy if it was not the workers; empty: the machine was not busy with others."""
    if not found.is_busy_elsewhere:
        return ""
    busy, used, cores = found.busy or 0.0, found.workers_use or 0.0, found.run.host.cores
    seen = found.slower_together or found.writes_much
    blurs = "" if seen else ", so this run cannot tell whether requests wait inside the application"
    return (f"the machine was {busy:.0%} busy during the load, but the workers used only {number(used)} of its "
            f"{cores:g} processors. The other {number(busy * cores - used)} went to the load generator, the engine "
            f"(which also handles what the workers write) or other programs{blurs}.")  # fmt: skip


# The rules


class _Told(NamedTuple):
    """What a rule says of its limit: which classes wait for it, and how much time all requests lose by it.

    ``lost_s`` is None if this is unknown. Empty ``sentences`` are left out.
    """

    requests: Collection[str]
    lost_s: float | None
    sentences: Sequence[str]


def _output(found: Evidence) -> _Told | None:
    """The workers write so much that the engine, which handles their output, may hold them up."""
    each, rate = found.value(None, "output", "per_request"), found.per_second("output")
    if not found.writes_much or each is None:
        return None
    each_s = f", {megabytes(rate)} a second" if rate else ""
    said = (f"The workers write {megabytes(each)} a request to their output{each_s}. The engine reads and stores all "
            "of it, which takes processor time, and a worker that writes faster than the engine reads waits meanwhile. "
            "Log less, and measure again.")  # fmt: skip
    return _Told([], float(found.lost.at_work_s.sum()), [said])


def _avoidable_wait(found: Evidence) -> _Told | None:
    """Requests wait for a busy worker while another worker has a free thread."""
    if not found.avoidable:
        return None
    sentences = []
    for name, row in [*found.avoidable.items()][:_NAMED]:
        share = value_and_spread(row.measured or 0.0, [*row.values.values()], row.low, row.high, percent)
        longest_ms = found.value(name, "avoidable_wait", "max")
        at_most = "" if longest_ms is None else f", for up to {number(longest_ms / 1000)} s"
        sentences.append(f"{share} of the {name} requests waited for a busy worker while another worker had a free "
                         f"thread{at_most}.")  # fmt: skip
    if blockers := found.blockers:
        held = ", ".join(f"{name} for {percent(share)} of the time" for name, share in blockers.items())
        sentences += [f"While they waited, these requests held the threads of their worker: {held}.",
                      *_waits_in(found, blockers)]  # fmt: skip
    several = int(found.variant.settings.get("workers") or 0) > 1
    cause = SYMPTOMS["avoidable-wait"].cures[(found.variant.accept or "shared") if several else ""]
    lost_s = float(found.lost.beside_s.sum())
    return _Told(found.avoidable, lost_s, [*sentences, f"The cause is {cause}"])


def _processors(found: Evidence) -> _Told | None:
    """The workers compute all the time. Then this explains all other waits before the work begins."""
    if not found.computes:
        return None
    workers, cores, computing = found.variant.workers, found.cores or 1, found.computing or 0.0
    if found.cores < found.run.host.cores and found.cores <= workers:
        which, of = "a limit", f"their limit (cpus), which is {cores:g}"
    elif workers < cores:
        whose = "this machine" if found.cores >= found.run.host.cores else "their limit (cpus)"
        which = "few workers"
        of = f"{plural(workers, 'processor')} of the {cores:g} of {whose}; a process can use only one"
    else:
        which, of = "", f"this machine's {plural(round(cores), 'processor')}"
    kept = f" The limit kept them from computing for {percent(found.throttled)} of the time." if found.throttled else ""
    said = f"The workers used {percent(min(1.0, computing))} of {of}.{kept}"
    # all time before the work begins, and as much at work as computing makes work take longer
    lost, slower = found.lost, min(computing, 0.99) / (1 - min(computing, 0.99))
    of_classes = [lost.of([name]) for name in sorted({*lost.request_class})]
    lost_s = float(lost.before_s.sum())
    lost_s += sum(min(each.at_work_s.sum(), slower * each.takes_s.sum()) for each in of_classes)
    return _Told(found.slow, lost_s, [
        _loses(found.slow, "the workers were computing meanwhile."),
        _computed_in(found, computing, found.computing_stacks()), said, SYMPTOMS["processors"].cures[which],
    ])  # fmt: skip


def _threads(found: Evidence) -> _Told | None:
    """All threads are busy with requests that wait for something else than a processor."""
    slow = {} if found.is_busy_elsewhere else found.slow
    slow = {name: loses for name, loses in slow.items() if name not in found.slow_beside_own}
    lost = slow | found.slow_in_one_queue
    if not found.slots or not lost or found.computes:
        return None
    few = f"{plural(found.slots, 'request')} at a time {'is' if found.slots == 1 else 'are'} too few for this load."
    replaced = " because workers were replaced, or" if found.variant.is_replaced else " so"
    longest = sorted(found.classes, key=lambda name: -found.lost.of([name]).works_s.sum())
    return _Told(lost, found.lost.of(lost).before_s.sum(), [
        _loses(slow, f"no worker had a free thread meanwhile,{replaced} {few}"),
        *(f"Even if all threads took requests from one queue, {_ONE_IN[stat]} of the {name} requests would wait for "
          f"{_time(ms)} or more, so {few}" for name, (stat, ms) in found.slow_in_one_queue.items()),
        *_waits_in(found, longest),
        "More threads would wait there, too." if _waits_for(found, longest) in HELD_BY_OTHERS else "",
    ])  # fmt: skip


def _event_loop(found: Evidence) -> _Told | None:
    """A function on an event loop or a hub computes or blocks."""
    stall, slow = found.loop_stall, found.slow_by_loop
    stacks, sentences = found.stacks("loop"), []
    if stall:
        sentences = [f"The {found.loop}s of the workers were held up for {_for(found, stall)}. Meanwhile, no other "
                     "request of the worker went on."]  # fmt: skip
    elif slow and not found.lock_stall and found.loop_may_be_held:
        instead = "yielding" if found.loop == "hub" else "awaiting"
        sentences = [_loses(slow, f"probably, the {found.loop} of their worker was held up. A function that computes, "
                                  f"or that blocks instead of {instead}, holds up all requests of its "
                                  "worker.")]  # fmt: skip
    else:
        return None
    for name in dict.fromkeys(stack.request_class for stack in stacks):
        mine = [stack for stack in stacks if stack.request_class == name]
        if lines := _lines(mine, " of this time is spent", seconds_of(stacks)):
            sentences.append(f"{lines}, called by {f'requests of {name}' if name else 'no request'}.")
    if not stall:
        return _Told(slow, found.lost.of(slow).before_s.sum(), sentences)
    signs = {"computed": 1, "held": -1}  # whether functions that compute held loops for longer than those that block
    computes = found.computes or sum(signs.get(each.what, 0) * each.total_s for each in found.loops.stalls) > 0
    cure, further = SYMPTOMS["event-loop"].cures[f"{found.loop} {'computes' if computes else 'blocks'}"], ""
    if computes and not found.processes_help:
        further = "But the processors would be as busy."
    elif found.loop == "event loop" and found.variant.workers == 1 and found.processes_help:
        further = "More workers share the requests among more event loops, but the cure is in the application."
    return _Told(slow, stall.lost_s, [*sentences, _loses(slow), cure, further])


def _interpreter_lock(found: Evidence) -> _Told | None:
    """Event loops do not go on because other threads of the process compute, or the garbage collector stops all."""
    stall, slow = found.lock_stall, {} if found.loop_stall else found.slow_by_loop
    share, lock = found.share_of_workers(stall.total_s) if stall else 0.0, SYMPTOMS["interpreter-lock"]
    keeps = _computed_in(found, share, found.computing_stacks(beside=True))
    cure = f"{lock.says}; {lock.cures['a processor is free' if found.processes_help else '']}"
    if stall:
        said = (f"For {_for(found, stall)}, the {found.loop}s of the workers did not go on because other threads of "
                "the process kept Python's interpreter lock.")  # fmt: skip
        return _Told(slow, stall.lost_s, [said, keeps, _loses(slow), cure])
    if found.slow_beside_own and found.computes_beside:
        why = "their worker had a free thread but other threads of the process kept Python's interpreter lock."
        slow = found.slow_beside_own
        return _Told(slow, found.lost.of(slow).before_s.sum(), [_loses(slow, why), keeps, cure])
    if found.collected >= COLLECTS:
        slow = {} if found.loop_may_be_held else slow
        return _Told(slow, found.lost.of(slow).before_s.sum() if slow else None, [keeps, _loses(slow), cure])
    return None


def _unknown(found: Evidence) -> _Told | None:
    """Requests wait although their own worker has a free thread, or its loop goes on, and nothing shows why."""
    slow, what = found.slow_beside_own, "their worker had a free thread meanwhile"
    seen = found.loop_may_be_held or found.loop_stall or found.lock_stall or found.collected >= COLLECTS
    if not slow and not seen:
        slow, what = found.slow_by_loop, f"the {found.loop} of their worker went on meanwhile"
    elif found.computes_beside:
        return None
    why = f"{what}, and what held them up is not known. {SYMPTOMS['unknown'].cures['']}"
    return _Told(slow, found.lost.of(slow).before_s.sum(), [_loses(slow, why)]) if slow else None


def _thread_pool(found: Evidence) -> _Told | None:
    """All threads of a pool behind the event loop are busy, and requests wait for a thread of it."""
    if not found.full_pools:
        return None
    computes = found.computes or found.lock_stall is not None
    sentences = []
    for pool in found.full_pools:
        symptom, share = SYMPTOMS[pool.what], percent(found.share_of_workers(pool.total_s))
        name = "AnyIO's pool" if pool.what == "pool" else "asyncio's default executor"
        sentences.append(f"For {share} of the time, all {pool.threads} threads of {name} in a worker were busy, and "
                         f"{symptom.says}")  # fmt: skip
        lines = _lines(found.stacks("pool thread"), " of the time of its threads is spent")
        sentences.append(f"{lines}." if lines and len(found.full_pools) == 1 else "")
        sentences.append(_slower(found) if pool == found.full_pools[0] else "")
        if pool.what == "pool" and pool.at_work < pool.threads / 2:
            sentences.append(
                f"Meanwhile, only {pool.at_work:.0f} requests were at work in a worker on average, so most threads "
                "worked on something else, such as background tasks, which run after the answer. Take this work out of "
                "the pool: into a queue with workers of its own, or into async functions."
            )
        sentences.append("While threads compute, a larger pool does not help." if computes else "")
        sentences.append(symptom.cures["computes" if computes else ""])
    return _Told(found.slower_together, sum(pool.lost_s for pool in found.full_pools), sentences)


def _inside(found: Evidence) -> _Told | None:
    """Requests take longer at work together than alone, and neither loops, pools nor computing explain most of it."""
    lost_s = float(found.lost.of(found.slower_together).at_work_s.sum())
    known = [*filter(None, (found.loop_stall, found.lock_stall)), *found.full_pools]
    known_s = sum(stall.lost_s for stall in known)
    if not found.slower_together or (known and known_s >= lost_s / 2):
        return None
    busy, slowest = found.is_busy_elsewhere, found.slower_together
    why = "They lack a processor for far less than this" if busy else "The processors are not busy"
    symptom = SYMPTOMS["inside"]
    cure = symptom.cures.get(_waits_for(found, slowest), symptom.cures[""])
    return _Told(slowest, max(0.0, lost_s - known_s),
                 [_slower(found), f"{why}, so {symptom.says}{cure}", *_waits_in(found, slowest)])  # fmt: skip


RULES: Mapping[Limit, Callable[[Evidence], _Told | None]] = {
    "avoidable-wait": _avoidable_wait, "processors": _processors, "threads": _threads, "event-loop": _event_loop,
    "interpreter-lock": _interpreter_lock, "thread-pool": _thread_pool, "inside": _inside, "output": _output,
    "unknown": _unknown,
}  # fmt: skip
"""A rule for each limit. If limits explain the same share of the lost time, their sentences are in this order."""


# What the rules say


def _computed_in(found: Evidence, share: float, stacks: Sequence[Stack]) -> str:
    """Say what keeps the interpreter lock: the garbage collector, for most of a share of the time, or lines of code."""
    if found.collected >= max(COLLECTS, min(1.0, share) / 2):
        line = next((f", called in {stack.line}" for stack in found.stacks("gc") if stack.line), "")
        return (f"The garbage collector held all threads for {percent(found.collected)} of the time{line}. After "
                "gc.freeze() at the end of the start, it looks at new objects only.")  # fmt: skip
    computed = _lines(stacks, " of what long requests and other threads compute is")
    return f"{computed}." if computed else ""


def _waits(found: Evidence, name: str) -> list[Stack]:
    return [stack for stack in found.stacks("", name) if stack.kind != "computes"]


def _waits_for(found: Evidence, classes: Iterable[str]) -> str:
    """Return for what most waits inside the first of these classes are, of which it is known; empty: unknown."""
    spent_s: defaultdict[str, float] = defaultdict(float)
    for stack in next(filter(None, (_waits(found, name) for name in classes)), ()):
        library = next((name for start, name in _LIBRARIES.items() if stack.called.startswith(start)), stack.kind)
        spent_s[library] += stack.seconds
    return next((kind for kind, seconds in spent_s.items() if seconds > sum(spent_s.values()) / 2), "")


def _waits_in(found: Evidence, classes: Iterable[str]) -> list[str]:
    """Return in which lines of code requests wait, for the first of the classes of which this is known."""
    said = (_lines(_waits(found, name), f" of the waits inside {name} are") for name in classes)
    return [f"{lines}." for lines in filter(None, said)][:1]


def _lines(stacks: Sequence[Stack], of: str, whole_s: float | None = None) -> str:
    """Return in which lines of code how much of a time was spent: ``92% of it is in …, 8% in …``; empty: unknown."""
    whole_s = seconds_of(stacks) if whole_s is None else whole_s
    spent_s: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for stack in stacks:
        called = stack.called if " " in stack.called else ".".join(stack.called.split(".")[-2:])
        spent_s[stack.line or called][called] += stack.seconds
    worst = sorted(((sum(each.values()), line) for line, each in spent_s.items() if line), reverse=True)[:_NAMED]
    told: list[str] = []
    for seconds, line in (each for each in worst if each[0] >= SOME_TIME * whole_s):
        called = max(spent_s[line], key=lambda name: spent_s[line][name])
        place = f"{line}, mostly {called}" if len(spent_s[line]) > 1 else f"{called} ({line})"
        told.append(f"{seconds / whole_s:.0%}{'' if told else of} in {line if called in ('', line) else place}")
    return ", ".join(told)


def _for(found: Evidence, stall: Stall) -> str:
    share = percent(found.share_of_workers(stall.total_s))
    return f"{share} of the time, and for up to {number(stall.longest_s)} s at once"


def _loses(lost: Loses, why: str = "") -> str:
    """Return what classes of requests lose before their work begins, the class that loses most first; empty: none."""
    worst = sorted(lost.items(), key=lambda item: -item[1][1])
    told = [f"{_ONE_IN[stat]} of the {name} requests loses {_time(ms)} or more" for name, (stat, ms) in worst]
    return f"Before their work begins, {_first(told)}{f': {why}' if why else '.'}" if told else ""


def _slower(found: Evidence) -> str:
    """Return how long classes of requests are at work under the load, and alone, the slowest first; empty: none."""
    told = [f"{_ONE_IN[stat]} of the {name} requests is at work for {_time(work_ms)} or more (alone: {_time(alone_ms)})"
            for name, (stat, work_ms, alone_ms) in found.slower_together.items()]  # fmt: skip
    return f"Under this load, {_first(told)}." if told else ""


def _first(told: Sequence[str]) -> str:
    """Return what is told of the first classes, and how many more there are."""
    more = len(told) - _NAMED
    further = f", and {plural(more, 'further class', 'further classes')}, too" if more > 0 else ""
    return ", ".join(told[:_NAMED]) + further


def _time(ms: float) -> str:
    return f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"

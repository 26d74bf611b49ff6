"""What limits a service as it is served today, and what helps: a rule for each limit."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Sized

import duckdb

from stampede.diagnosis.deaths import (
    DeathsByLimit,
    death_bottlenecks,
    is_always_said,
    replacement_sentences,
)
from stampede.diagnosis.held import Loops, Stack
from stampede.diagnosis.model import Bottleneck, Diagnosis, Limit
from stampede.diagnosis.symptoms import SLOWER, Loses, ProcessorUse, Stall, Symptoms
from stampede.evaluate.metrics.servers import megabytes
from stampede.evaluate.statistics.losses import Figures
from stampede.predict.symptoms import SYMPTOMS
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.spread import value_and_spread
from stampede.report.wording import number, percent

_NO_DEATHS: DeathsByLimit = {}
_NOTHING = "Nothing was measured of today's way to serve, so nothing {}is said."
_FAILED = "failed: "
"""How a reason begins that a trial itself gives, such as a server that ended."""
MINOR = 1 / 20
"""A limit is minor if it explains less than this part of what the first limit explains."""
SOME_TIME = 0.1
"""A line of code is named from this share of the time on."""
COLLECTS = 0.05
"""From this share of the time on, long runs of the garbage collector are an alarm, also if no event loop is held up."""
MOSTLY = 0.5
"""The limits explain what requests lose if they explain at least this share of the lost time."""
_NAMED = 3
"""How many classes of requests a sentence names."""
_ONE_IN = {"p99": "One in a hundred", "p90": "One in ten", "p50": "One in two"}


def diagnose(
    summary: Summary,
    run: Run,
    rows: duckdb.DuckDBPyConnection,
    loops: Loops,
    alone_ms: Mapping[str, float],
    busy: float | None = None,
    deaths: DeathsByLimit = _NO_DEATHS,
    thrown: str = "",
) -> Diagnosis:
    """Say whether requests wait as the service is served today, for what, and behind what.

    ``rows`` has the view ``requests``; ``loops`` says when event loops were held up; ``alone_ms`` is how long a request
    of each class takes alone; ``busy`` is the share of all processors of the machine that was busy meanwhile;
    ``deaths`` are workers that ended; ``thrown`` is an exception from the log of the application. Nothing is said of
    trials that are invalid.
    """
    found = Symptoms(Figures(summary), run, rows, loops, alone_ms, busy, deaths)
    if not found.classes:
        ended = [reason.removeprefix(_FAILED) for trial in summary.trials if trial.variant == TODAY
                  for reason in trial.reasons if reason.startswith(_FAILED)]  # fmt: skip
        said = f"No trial of today's way to serve was measured: {ended[0]}" if ended else _NOTHING.format("")
        return Diagnosis(alarm=bool(ended), sentences=[said])
    limits = [bottleneck for rule in RULES if (bottleneck := rule(found))]
    of_deaths = death_bottlenecks(deaths, found.variant, found.part_of_lost)
    bottlenecks = sorted([*of_deaths, *limits], key=lambda each: -(each.explains or 0.0))
    most = max((bottleneck.explains or 0.0 for bottleneck in bottlenecks), default=0.0)
    main = [each for each in bottlenecks
            if each.explains is None or each.explains >= MINOR * most or is_always_said(each)]  # fmt: skip
    said, slow = busy_sentence(found.processors, blurs=not found.slower_together), found.slow_by_machine
    perhaps = f" {_loses(slow).removesuffix('.')}, perhaps because the machine was busy." if slow else ""
    doubt = said and f"In doubt: {said}{perhaps} Measure again on a machine that is not busy."
    explained = sum(each.explains or 0.0 for each in main)
    lost = {toll.request_class for each in deaths.values() for toll in each.tolls if toll.lost}
    failures = [*_failures(summary, found, lost, thrown)]
    sentences = [
        *(said for name, said in failures if name not in lost),
        *(" ".join(bottleneck.sentences) for bottleneck in main),
        *(said for name, said in failures if name in lost),  # the deaths are why
        *(
            [f"This explains {percent(explained)} of the time that requests lose; the rest is not explained."]
            if main and explained < MOSTLY and found.lost.all_s > SLOWER * sum(found.lost.alone_s.values())
            else []
        ),
        *replacement_sentences(found.variant.settings, found.requests_per_s, found.variant.workers),
        *filter(None, [doubt]),
    ]
    if not any(found.figures.percentile(name, [TODAY]) for name in found.classes):
        sentences.append(_NOTHING.format("else "))
    elif not bottlenecks and not doubt:
        failed = any(found.value(name, "failures", "share") == 1 for name in found.classes)
        sentences.append(f"No request{' of the other classes' if failed else ''} waits for a worker noticeably. "
                         "How long an answer takes is up to the application.")  # fmt: skip
    return Diagnosis(
        alarm=bool(bottlenecks or doubt), sentences=sentences, bottlenecks=bottlenecks,
        minor=[" ".join(bottleneck.sentences) for bottleneck in bottlenecks if bottleneck not in main],
    )  # fmt: skip


def _failures(summary: Summary, found: Symptoms, lost: Container[str], thrown: str) -> Iterator[tuple[str, str]]:
    """Yield each class of requests that failed, and its most frequent errors. ``lost``: workers took some along.

    ``thrown`` is an exception from the log of the application.
    """
    refused = {name for (name,) in found.rows.execute(_REFUSED, {"today": TODAY}).fetchall()}
    for name in found.classes:
        share = found.value(name, "failures", "share") or 0.0
        if not share:
            continue
        counts: Counter[str] = Counter()
        for row in summary.errors:
            counts[row.error] += row.requests if (row.variant, row.request_class) == (TODAY, name) else 0
        errors = [error for error, requests in counts.most_common(2) if requests]
        status = errors[0].removeprefix("status ") if errors and errors[0].startswith("status ") else ""
        question = _WHY_FAILED.get(status, "")
        if status.startswith("5") and name not in lost:
            question = "the application failed; its log in the folder of the trial says why."
            if name in refused:
                question = ("no worker began these requests: the server refused them, as a limit such as uvicorn's "
                            "--limit-concurrency makes it do, or the balancer reached no worker.")  # fmt: skip
            elif thrown:
                question = f"the application failed; its log says: {thrown}{'' if thrown.endswith('.') else '.'}"
        said = f"{'All' if share == 1 else f'{percent(share)} of the'} {name} requests failed "
        said += f"({', '.join(errors) or 'no reason given'})."
        if share == 1:
            waits = "".join(f" {line}" for line in _waits_in(found, [name]))
            yield name, f"{said} No time is measured of them{f'; {question}' if question else '.'}{waits}"
        else:
            yield name, f"{said} {question[:1].upper()}{question[1:]}" if question else said


# The classes of which most failed requests with a status 5xx had reached no worker.
_REFUSED = """
SELECT request_class FROM requests WHERE variant = $today AND error IS NOT NULL AND status >= 500
GROUP BY request_class HAVING count(began) < count(*) / 2
"""
_WHY_FAILED = {
    "401": "is a token or a login: missing?", "403": "is a token or a login: missing?", "404": "is the path right?",
    "405": "is the method right?",
}  # fmt: skip


def busy_sentence(use: ProcessorUse, *, blurs: bool = True) -> str:
    """Say who kept the processors busy if it was not the workers; empty: the machine was not busy with others.

    ``blurs``: the run cannot tell whether requests wait inside the application.
    """
    if not use.is_busy_elsewhere or use.busy is None or use.workers is None:
        return ""
    return (
        f"the machine was {use.busy:.0%} busy during the load, but the workers used only {number(use.workers)} of its "
        f"{use.cores:g} processors. The other {number(use.busy * use.cores - use.workers)} went to "
    ) + (
        "the engine, which handles the output, and to other programs."
        if use.writes_much else
        "the load generator, the engine or other programs, so this run cannot tell whether requests wait inside the "
        "application."
        if blurs else
        "the load generator, the engine or other programs."
    )  # fmt: skip


def output_sentence(use: ProcessorUse) -> str:
    """Say what the workers' output costs; empty: they write little."""
    if not use.writes_much or use.output is None:
        return ""
    each_s = f", {megabytes(use.output_rate)} a second" if use.output_rate else ""
    return (
        f"The workers write {megabytes(use.output)} a request to their output{each_s}. The engine reads and stores all "
        "of it, which takes processor time, and a worker that writes faster than the engine reads waits meanwhile. Log "
        "less, and measure again."
    )


def _output(found: Symptoms) -> Bottleneck | None:
    """The workers write so much that the engine, which handles their output, may hold them up."""
    said, explains = output_sentence(found.processors), found.part_of_lost(sum(found.lost.at_work_s.values()))
    numbers = {"output": found.processors.output or 0.0}
    return Bottleneck(limit="output", explains=explains, numbers=numbers, sentences=[said]) if said else None


def _avoidable_wait(found: Symptoms) -> Bottleneck | None:
    """Requests wait for a busy worker while another worker has a free thread."""
    if not found.avoidable:
        return None
    sentences = []
    worst_first = sorted(found.avoidable.items(), key=lambda item: -(item[1].measured or 0.0))
    for name, row in worst_first[:_NAMED]:
        share = value_and_spread(row.measured or 0.0, [*row.values.values()], row.low, row.high, percent)
        longest_ms = found.value(name, "avoidable_wait", "max")
        at_most = "" if longest_ms is None else f", for up to {number(longest_ms / 1000)} s"
        sentences.append(f"{share} of the {name} requests waited for a busy worker while another worker had a free "
                         f"thread{at_most}.")  # fmt: skip
    held_by = [*found.blockers()]
    if blockers := [f"{name} for {percent(share)} of the time" for name, share in held_by]:
        held = "While they waited, these requests held the threads of their worker"
        sentences.append(f"{held}: {', '.join(blockers)}.")
        sentences += _waits_in(found, [name for name, _ in held_by])
    several = int(found.variant.settings.get("workers") or 0) > 1
    cause = SYMPTOMS["avoidable-wait"].cures[(found.variant.accept or "shared") if several else ""]
    return Bottleneck(
        limit="avoidable-wait", requests=[*found.avoidable], numbers={"share": worst_first[0][1].measured or 0.0},
        explains=found.part_of_lost(found.lost.avoidable_s), sentences=[*sentences, f"The cause is {cause}"],
    )  # fmt: skip


def _busy_processors(found: Symptoms) -> Bottleneck | None:
    """The workers compute all the time. Then this explains all other waits before the work begins."""
    if not found.computes:
        return None
    share, workers, cores = min(1.0, found.computing or 0.0), found.variant.workers, found.cores or 1
    if found.cores < found.run.host.cores and found.cores <= workers:
        kept = (
            f", and it kept them from computing for {percent(found.throttled)} of the time" if found.throttled else ""
        )
        said = (f"The workers used {percent(share)} of their limit (cpus), which is {cores:g}{kept}. "
                f"{SYMPTOMS['processors'].cures['a limit']}")  # fmt: skip
    elif workers < cores:
        computed = f"The {workers} worker processes were" if workers > 1 else "The one worker process was"
        they = f"They can use only {workers} processors" if workers > 1 else "A process can use only one processor"
        has = "this machine has" if found.cores >= found.run.host.cores else "their limit (cpus) is"
        said = (f"{computed} computing for {percent(share)} of the time. {they}, and {has} {cores:g}. "
                f"{SYMPTOMS['processors'].cures['few workers']}")  # fmt: skip
    else:
        what = f"{cores:g} processors" if cores > 1 else "only processor"
        said = (f"The workers kept this machine's {what} busy for {percent(share)} of the time. "
                f"{SYMPTOMS['processors'].cures['']}")  # fmt: skip
    return Bottleneck(
        limit="processors", requests=[*found.slow], numbers={"share": share, "workers": workers, "cores": cores},
        explains=found.part_of_lost(found.lost_to_computing_s),
        sentences=[*([_loses(found.slow, "the workers were computing meanwhile.")] if found.slow else []),
                   *_computed_in(found, share), said],
    )  # fmt: skip


def _busy_threads(found: Symptoms) -> Bottleneck | None:
    """All threads are busy with requests that wait for something else than a processor."""
    slow = {} if found.processors.is_busy_elsewhere else found.slow
    slow = {name: loses for name, loses in slow.items() if name not in found.slow_beside_own}
    lost = slow | found.slow_in_one_queue
    if not found.slots or not lost or found.computes:
        return None
    few = f"{found.slots} requests at a time are" if found.slots > 1 else "one request at a time is"
    why = f"no worker had a free thread meanwhile, so {few} too few for this load."
    if found.variant.is_replaced:
        why = f"no worker had a free thread meanwhile, because workers were replaced, or {few} too few for this load."
    sentences = ([_loses(slow, why)] if slow else []) + [
        f"Even if all threads took requests from one queue, {_ONE_IN[stat].lower()} of the {name} requests would wait "
        f"for {_time(ms)} or more, so {found.slots} requests at a time are too few for this load."
        for name, (stat, ms) in found.slow_in_one_queue.items()
    ]
    sentences += _waits_in(found, sorted(found.classes, key=found.at_work_s, reverse=True))
    numbers = {"threads": float(found.slots), "lost_ms": max(ms for _, ms in lost.values())}
    explains = found.part_of_lost(found.lost.before_of(lost))
    return Bottleneck(limit="threads", requests=[*lost], explains=explains, numbers=numbers, sentences=sentences)


def _event_loop(found: Symptoms) -> Bottleneck | None:
    """A function on an event loop or a hub computes or blocks."""
    stall, slow = found.stall("held"), _slow_by_loop(found)
    loop, instead = found.loop, "yielding" if found.has_greenlets else "awaiting"
    if stall is not None:
        said = (f"The {loop}s of the workers were held up for {percent(stall.share)} of the time, for up to "
                f"{number(stall.longest_s)} s at once. Meanwhile, no other request of the worker went on.")  # fmt: skip
        return _stalled(found, "event-loop", stall, slow, [said, *_held_in(found)], _cure_of_loop(found))
    if not slow or found.stall("locked") or not found.loop_may_be_held:
        return None
    why = (f"probably, the {loop} of their worker was held up. A function that computes, or that blocks instead of "
           f"{instead}, holds up all requests of its worker.")  # fmt: skip
    explains = found.part_of_lost(found.lost.before_of(slow))
    held = [_loses(slow, why), *_held_in(found)]
    return Bottleneck(limit="event-loop", requests=[*slow], explains=explains, sentences=held)


def _interpreter_lock(found: Symptoms) -> Bottleneck | None:
    """Event loops do not go on because other threads of the process compute, or the garbage collector stops all."""
    stall, slow = found.stall("locked"), {} if found.stall("held") else _slow_by_loop(found)
    if stall is None and found.slow_beside_own and found.computes_beside >= SOME_TIME:
        slow = found.slow_beside_own
        why = "their worker had a free thread but other threads of the process kept Python's interpreter lock."
        return Bottleneck(
            limit="interpreter-lock", requests=[*slow], explains=found.part_of_lost(found.lost.before_of(slow)),
            numbers={"share": found.computes_beside},
            sentences=[_loses(slow, why), *_computed_in(found, 0.0), _cure_of_lock(found)],
        )  # fmt: skip
    if stall is None and found.collected >= COLLECTS:
        slow = {} if found.loop_may_be_held else _slow_by_loop(found)
        return Bottleneck(
            limit="interpreter-lock", requests=[*slow], numbers={"share": found.collected},
            explains=found.part_of_lost(found.lost.before_of(slow)) if slow else None,
            sentences=[_collects(found), *([_loses(slow)] if slow else []), _cure_of_lock(found)],
        )  # fmt: skip
    if stall is None:
        return None
    said = (f"For {percent(stall.share)} of the time, and for up to {number(stall.longest_s)} s at once, the "
            f"{found.loop}s of the workers did not go on because other threads of "
            "the process kept Python's interpreter lock.")  # fmt: skip
    return _stalled(
        found, "interpreter-lock", stall, slow, [said, *_computed_in(found, stall.share)], _cure_of_lock(found)
    )


def _unknown(found: Symptoms) -> Bottleneck | None:
    """Requests wait although their own worker has a free thread, or its loop goes on, and nothing shows why."""
    beside, what = found.slow_beside_own, "their worker had a free thread meanwhile"
    slow = {} if found.computes_beside >= SOME_TIME else beside
    seen = found.loop_may_be_held or found.stall("held") or found.stall("locked") or found.collected >= COLLECTS
    if not slow and not beside and not seen:
        slow, what = _slow_by_loop(found), f"the {found.loop} of their worker went on meanwhile"
    if not slow:
        return None
    why = f"{what}, and what held them up is not known. {SYMPTOMS['unknown'].cures['']}"
    return Bottleneck(
        limit="unknown", requests=[*slow], explains=found.part_of_lost(found.lost.before_of(slow)),
        sentences=[_loses(slow, why)],
    )  # fmt: skip


def _slow_by_loop(found: Symptoms) -> Loses:
    """Return what requests lose before their work begins if only their event loop or hub can be the reason."""
    return {} if found.slots or found.computes or found.slow_by_machine else found.slow


def _stalled(found: Symptoms, limit: Limit, stall: Stall, slow: Loses, said: Sequence[str], cure: str) -> Bottleneck:
    """Return that loops were held up, as ``said``, what requests lose by it, and the cure."""
    lost = [_loses(slow)] if slow else []
    return Bottleneck(
        limit=limit, requests=[*slow], explains=found.part_of_lost(stall.lost_s),
        numbers={"share": stall.share, "longest_s": stall.longest_s},
        sentences=[*said, *lost, cure],
    )  # fmt: skip


def _held_in(found: Symptoms) -> Iterator[str]:
    """Say in which lines of code loops were held up, and for which requests."""
    stacks = found.stacks("loop")
    for name in dict.fromkeys(stack.request_class for stack in stacks):
        mine = [stack for stack in stacks if stack.request_class == name]
        if lines := _lines(mine, " of this time is spent", _seconds(stacks)):
            yield f"{lines}, called by {f'requests of {name}' if name else 'no request'}."


def _computed_in(found: Symptoms, share: float) -> Iterator[str]:
    """Say what keeps the interpreter lock: the garbage collector, for most of a share of the time, or lines of code."""
    if found.collected >= max(COLLECTS, share / 2):
        yield _collects(found)
    elif computed := _lines(found.computing_stacks, " of what long requests and other threads compute is"):
        yield f"{computed}."


def _collects(found: Symptoms) -> str:
    lines = [stack.line for stack in found.stacks("gc") if stack.line]
    return (
        f"The garbage collector held all threads for {percent(found.collected)} of the time"
        f"{f', called in {lines[0]}' if lines else ''}. After gc.freeze() at the end of the start, it looks at new "
        "objects only."
    )


def _waits_in(found: Symptoms, classes: Iterable[str]) -> Iterator[str]:
    """Say in which lines of code requests wait, for the first of the classes of which this is known."""
    for name in classes:
        if lines := _lines([stack for stack in found.stacks("", name) if stack.kind != "computes"],
                           f" of the waits inside {name} are"):  # fmt: skip
            yield f"{lines}."
            return


def _lines(stacks: Sequence[Stack], of: str, whole_s: float | None = None) -> str:
    """Return in which lines of code how much of a time was spent: ``92% of it is in …, 8% in …``; empty: unknown."""
    whole_s = _seconds(stacks) if whole_s is None else whole_s
    spent_s: dict[str, float] = {}
    for stack in stacks:
        spent_s[_line(stack)] = spent_s.get(_line(stack), 0.0) + stack.seconds
    named = [(line, seconds / whole_s) for line, seconds in spent_s.items() if line and seconds >= SOME_TIME * whole_s]
    worst = sorted(named, key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{share:.0%}{'' if place else of} in {line}" for place, (line, share) in enumerate(worst))


def _line(stack: Stack) -> str:
    """Return what a line of code called, and the line: ``QueuePool._do_get (shop.py:12 report)``."""
    called = stack.called if " " in stack.called else ".".join(stack.called.split(".")[-2:])
    return f"{called} ({stack.line})" if called and stack.line else called or stack.line


def _seconds(stacks: Iterable[Stack]) -> float:
    return sum(stack.seconds for stack in stacks)


def _cure_of_lock(found: Symptoms) -> str:
    lock = SYMPTOMS["interpreter-lock"]
    return f"{lock.says}; {lock.cures['a processor is free' if found.processes_help else '']}"


def _cure_of_loop(found: Symptoms) -> str:
    computes, cures = found.computes or found.loops_compute, SYMPTOMS["event-loop"].cures
    if found.has_greenlets and computes:
        return cures["greenlets compute"] + ("." if found.processes_help else ", but the processors would be as busy.")
    if found.has_greenlets:
        return cures["greenlets"]
    if computes and not found.processes_help:
        return cures["computes, and no processor is free"]
    said = cures["computes" if computes else ""]
    if found.variant.workers > 1 or not found.processes_help:
        return said
    return f"{said} More workers share the requests among more event loops, but the cure is in the application."


def _thread_pool(found: Symptoms) -> Bottleneck | None:
    """All threads of a pool behind the event loop are busy, and requests wait for a thread of it."""
    if not found.full_pools:
        return None
    where = " in a worker" if found.variant.workers > 1 else ""
    computes = found.computes or found.stall("locked") is not None
    sentences, slower = [], [_slower_sentence(found)] if found.slower_together else []
    for what, pool in sorted(found.full_pools.items(), key=lambda item: -item[1].total_s):
        name, waited, cures = _POOLS[what], SYMPTOMS[what].says, SYMPTOMS[what].cures
        cure = f"While threads compute, a larger pool does not help. {cures['computes']}" if computes else cures[""]
        beside = what == "pool" and pool.at_work is not None and pool.at_work < pool.threads / 2
        if beside:
            cure = (f"Meanwhile, only {pool.at_work:.0f} requests were at work{where} on average, so most threads "
                    "worked on something else, such as background tasks, which run after the answer. Take this work "
                    "out of the pool: into a queue with workers of its own, or into async functions. "
                    f"{cure}")  # fmt: skip
        share = percent(found.share_of_workers(pool.total_s))
        lines = _lines(found.stacks("pool thread"), " of the time of its threads is spent")
        sentences += [f"For {share} of the time, all {pool.threads} threads of {name}{where} were busy, and {waited}",
                      *([f"{lines}."] if lines and len(found.full_pools) == 1 else []), *slower, cure]  # fmt: skip
        slower = []
    largest = max(found.full_pools.values(), key=lambda pool: pool.total_s)
    return Bottleneck(
        limit="thread-pool", requests=[*found.slower_together],
        explains=found.part_of_lost(sum(pool.lost_s for pool in found.full_pools.values())),
        numbers={"share": found.share_of_workers(largest.total_s), "threads": float(largest.threads)},
        sentences=sentences,
    )  # fmt: skip


_POOLS = {"pool": "AnyIO's pool", "executor": "asyncio's default executor"}


def _inside(found: Symptoms) -> Bottleneck | None:
    """Requests take longer at work together than alone, and neither loops, pools nor computing explain most of it."""
    if not found.slower_together:
        return None
    lost_s = found.lost.at_work_of(found.slower_together)
    stalls = [stall for what in ("held", "locked") if (stall := found.stall(what))]
    known_s = sum(stall.lost_s for stall in stalls) + sum(pool.lost_s for pool in found.full_pools.values())
    if (stalls or found.full_pools) and known_s >= lost_s / 2:
        return None
    slowest = sorted(found.slower_together, key=lambda name: -found.slower_together[name].ms)
    busy = found.processors.is_busy_elsewhere
    why = "They lack a processor for far less than this" if busy else "The processors are not busy"
    cures = SYMPTOMS["inside"].cures
    return Bottleneck(
        limit="inside", requests=[*found.slower_together],
        numbers={"at_work_ms": found.slower_together[slowest[0]].ms},
        explains=found.part_of_lost(max(0.0, lost_s - known_s)),
        sentences=[f"{_slower_sentence(found)} {why}, so {SYMPTOMS['inside'].says}"
                   f"{cures.get(found.waits_for(slowest), cures[''])}", *_waits_in(found, slowest)],
    )  # fmt: skip


RULES: Sequence[Callable[[Symptoms], Bottleneck | None]] = (
    _avoidable_wait, _busy_processors, _busy_threads, _event_loop, _interpreter_lock, _thread_pool, _inside, _output,
    _unknown,
)  # fmt: skip
"""A rule for each limit. If limits explain the same share of the lost time, their sentences are in this order."""


def _loses(lost: Loses, why: str = "") -> str:
    """Return what classes of requests lose before their work begins, the class that loses most first."""
    worst = sorted(lost.items(), key=lambda item: -item[1][1])
    (name, (stat, ms)), *others = worst[:_NAMED]
    said = f"{_ONE_IN[stat]} of the {name} requests loses {_time(ms)} or more before its work begins"
    for name, (stat, ms) in others:
        said += f", {_ONE_IN[stat].lower()} of the {name} requests {_time(ms)} or more"
    return f"{said}{_further(lost)}{f': {why}' if why else '.'}"


def _slower_sentence(found: Symptoms) -> str:
    """Return how long classes of requests are at work under the load, and alone, the slowest class first."""
    slowest = sorted(found.slower_together.items(), key=lambda item: -item[1].ms)[:_NAMED]
    told = ", ".join(f"{f'{_ONE_IN[which].lower()} of ' if which != 'p50' else ''}the {name} requests "
                     f"{'are' if which == 'p50' else 'is'} at work for {_time(work_ms)}"
                     f"{'' if which == 'p50' else ' or more'} (alone: {_time(alone_ms)})"
                     for name, (which, work_ms, alone_ms) in slowest)  # fmt: skip
    return f"Under this load, {told}{_further(found.slower_together)}."


def _further(classes: Sized) -> str:
    more = len(classes) - _NAMED
    return f", and {more} further class{'es are' if more > 1 else ' is'} slow, too" if more > 0 else ""


def _time(ms: float) -> str:
    return f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"

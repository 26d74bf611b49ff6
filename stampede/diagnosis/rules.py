"""What limits a service as it is served today, and what helps: a rule for each limit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

import duckdb
import numpy as np

from stampede.diagnosis.deaths import DeathsByLimit, death_bottlenecks, is_always_said, replacement_sentences
from stampede.diagnosis.held import Loops, Stack
from stampede.diagnosis.model import Bottleneck, Diagnosis, Limit
from stampede.diagnosis.symptoms import AVOIDABLE, SLOWER, Loses, ProcessorUse, Stall, Symptoms
from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.servers import megabytes
from stampede.evaluate.statistics.losses import Figures
from stampede.predict.symptoms import SYMPTOMS
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.spread import value_and_spread
from stampede.report.wording import capitalised, number, percent

MINOR = 1 / 20
"""A limit is minor if it explains less than this part of what the first limit explains."""
SOME_TIME = 0.1
"""A line of code is named from this share of the time on."""
COLLECTS = 0.05
"""From this share of the time on, long runs of the garbage collector are an alarm, also if no event loop is held up."""
MOSTLY = 0.5
"""The limits explain what requests lose if they explain at least this share of the lost time."""
MOST_LOOKED_AT = 300
"""At most so many avoidable waits of a trial are asked for who held the threads meanwhile."""
_NAMED = 3
"""How many classes of requests a sentence names."""
_LIBRARIES = {"asgiref.": "asgiref", "concurrent.futures.": "result"}
"""Libraries whose waits have a cure of their own, by how the names of their functions begin."""
_ONE_IN = {"p99": "One in a hundred", "p90": "One in ten", "p50": "One in two"}
_NO_DEATHS: DeathsByLimit = {}
_NOTHING = "Nothing was measured of today's way to serve, so nothing {}is said."
_FAILED = "failed: "
"""How a reason begins that a trial itself gives, such as a server that ended."""


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
    of_deaths = death_bottlenecks(deaths, found.variant, found.part_of_lost)
    limits = [*of_deaths, *filter(None, (rule(found) for rule in RULES))]
    bottlenecks = sorted(limits, key=lambda each: -(each.explains or 0.0))
    most = max((bottleneck.explains or 0.0 for bottleneck in bottlenecks), default=0.0)
    main = [each for each in bottlenecks
            if each.explains is None or each.explains >= MINOR * most or is_always_said(each)]  # fmt: skip
    said = busy_sentence(found.processors, blurs=not found.slower_together)
    slow = _loses(found.slow_by_machine).removesuffix(".")
    perhaps = f" {slow}, perhaps because the machine was busy." if slow else ""
    doubt = said and f"In doubt: {said}{perhaps} Measure again on a machine that is not busy."
    explained = sum(each.explains or 0.0 for each in main)
    lost = {toll.request_class for each in deaths.values() for toll in each.tolls if toll.lost}
    failures = [*_failures(summary, found, lost, thrown)]
    sentences = [
        *(failure for name, failure in failures if name not in lost),
        *(" ".join(bottleneck.sentences) for bottleneck in main),
        *(failure for name, failure in failures if name in lost),  # the deaths are why
    ]
    if main and explained < MOSTLY and found.lost.all_s > SLOWER * sum(found.lost.alone_s.values()):
        sentences.append(
            f"This explains {percent(explained)} of the time that requests lose; the rest is not explained."
        )
    per_second = found.value(None, "throughput", "per_second") or 0.0
    sentences += [*replacement_sentences(found.variant.settings, per_second, found.variant.workers)]
    sentences += [doubt] if doubt else []
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
            question = _WHY_FAILED["refused" if name in refused else "5"]
            if name not in refused and thrown:
                question = f"the application failed; its log says: {thrown.removesuffix('.')}."
        said = f"{'All' if share == 1 else f'{percent(share)} of the'} {name} requests failed "
        said += f"({', '.join(errors) or 'no reason given'})."
        if share == 1:
            waits = "".join(f" {line}" for line in _waits_in(found, [name]))
            said += f" No time is measured of them{f'; {question}' if question else '.'}{waits}"
        else:
            said += f" {capitalised(question)}" if question else ""
        yield name, said


# The classes of which most failed requests with a status 5xx had reached no worker.
_REFUSED = """
SELECT request_class FROM requests WHERE variant = $today AND error IS NOT NULL AND status >= 500
GROUP BY request_class HAVING count(began) < count(*) / 2
"""
_WHY_FAILED = {
    "401": "is a token or a login: missing?", "403": "is a token or a login: missing?", "404": "is the path right?",
    "405": "is the method right?", "5": "the application failed; its log in the folder of the trial says why.",
    "refused": "no worker began these requests: the server refused them, as a limit such as uvicorn's "
               "--limit-concurrency makes it do, or the balancer reached no worker.",
}  # fmt: skip


def busy_sentence(use: ProcessorUse, *, blurs: bool = True) -> str:
    """Say who kept the processors busy if it was not the workers; empty: the machine was not busy with others.

    ``blurs``: the run cannot tell whether requests wait inside the application.
    """
    if not use.is_busy_elsewhere or use.busy is None or use.workers is None:
        return ""
    others = "the load generator, the engine or other programs"
    if use.writes_much:
        others = "the engine, which handles the output, and to other programs"
    elif blurs:
        others += ", so this run cannot tell whether requests wait inside the application"
    return (f"the machine was {use.busy:.0%} busy during the load, but the workers used only {number(use.workers)} of "
            f"its {use.cores:g} processors. The other {number(use.busy * use.cores - use.workers)} went to "
            f"{others}.")  # fmt: skip


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


# The rules


def _limit(
    found: Symptoms, limit: Limit, requests: Iterable[str], lost_s: float, sentences: Iterable[str], **numbers: float
) -> Bottleneck:
    """Return a limit with the requests that wait for it, the time that they lose by it, and what is said of it."""
    return Bottleneck(
        limit=limit, requests=[*requests], explains=found.part_of_lost(lost_s), numbers=numbers,
        sentences=[*filter(None, sentences)],
    )  # fmt: skip


def _output(found: Symptoms) -> Bottleneck | None:
    """The workers write so much that the engine, which handles their output, may hold them up."""
    said, use = output_sentence(found.processors), found.processors
    lost_s = sum(found.lost.at_work_s.values())
    return _limit(found, "output", [], lost_s, [said], output=use.output or 0.0) if said else None


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
    held_s: defaultdict[str, float] = defaultdict(float)  # which classes held the threads of workers meanwhile
    for answered in found.trials:
        waits = waiting.waits_of_variant(found.variant, answered)
        beside_s = waits.beside_s if waits else np.zeros_like(answered.sent_s)
        worst = np.argsort(beside_s)[::-1][:MOST_LOOKED_AT]
        for place in worst[beside_s[worst] > waiting.FROM_S]:
            mine = answered.worker == answered.worker[place]
            until_s = np.minimum(answered.ended_s[mine], answered.began_s[place])
            both_s = np.maximum(0.0, until_s - np.maximum(answered.began_s[mine], answered.sent_s[place]))
            for of_class in np.unique(answered.request_class[mine]):
                held_s[answered.classes[of_class]] += float(both_s[answered.request_class[mine] == of_class].sum())
    total_s = sum(held_s.values()) or 1.0
    blockers = [(name, seconds / total_s) for name, seconds in sorted(held_s.items(), key=lambda item: item[::-1])
                if seconds >= AVOIDABLE * total_s][::-1]  # fmt: skip
    if blockers:
        held = ", ".join(f"{name} for {percent(share)} of the time" for name, share in blockers)
        sentences.append(f"While they waited, these requests held the threads of their worker: {held}.")
        sentences += _waits_in(found, [name for name, _ in blockers])
    several = int(found.variant.settings.get("workers") or 0) > 1
    cause = SYMPTOMS["avoidable-wait"].cures[(found.variant.accept or "shared") if several else ""]
    sentences.append(f"The cause is {cause}")
    most = worst_first[0][1].measured or 0.0
    return _limit(found, "avoidable-wait", found.avoidable, found.lost.avoidable_s, sentences, share=most)


def _busy_processors(found: Symptoms) -> Bottleneck | None:
    """The workers compute all the time. Then this explains all other waits before the work begins."""
    if not found.computes:
        return None
    share, workers, cores = min(1.0, found.computing or 0.0), found.variant.workers, found.cores or 1
    cures, busy = SYMPTOMS["processors"].cures, f"for {percent(share)} of the time"
    if found.cores < found.run.host.cores and found.cores <= workers:
        kept = f", and it kept them from computing for {percent(found.throttled)} of the time"
        said = (f"The workers used {percent(share)} of their limit (cpus), which is {cores:g}"
                f"{kept if found.throttled else ''}. {cures['a limit']}")  # fmt: skip
    elif workers < cores:
        computed = f"The {workers} worker processes were" if workers > 1 else "The one worker process was"
        they = f"They can use only {workers} processors" if workers > 1 else "A process can use only one processor"
        has = "this machine has" if found.cores >= found.run.host.cores else "their limit (cpus) is"
        said = f"{computed} computing {busy}. {they}, and {has} {cores:g}. {cures['few workers']}"
    else:
        what = f"{cores:g} processors" if cores > 1 else "only processor"
        said = f"The workers kept this machine's {what} busy {busy}. {cures['']}"
    # all time before the work begins, and as much at work as computing makes work take longer
    slower = min(found.computing or 0.0, 0.99)
    longer_s = {name: alone_s * slower / (1 - slower) for name, alone_s in found.lost.alone_s.items()}
    lost_s = found.lost.before_of(found.lost.before_s)
    lost_s += sum(min(at_work_s, longer_s[name]) for name, at_work_s in found.lost.at_work_s.items())
    waits = _loses(found.slow, "the workers were computing meanwhile.") if found.slow else ""
    sentences = [waits, _computed_in(found, share, found.computing_stacks), said]
    return _limit(found, "processors", found.slow, lost_s, sentences, share=share, workers=workers, cores=cores)


def _busy_threads(found: Symptoms) -> Bottleneck | None:
    """All threads are busy with requests that wait for something else than a processor."""
    slow = {} if found.processors.is_busy_elsewhere else found.slow
    slow = {name: loses for name, loses in slow.items() if name not in found.slow_beside_own}
    lost = slow | found.slow_in_one_queue
    if not found.slots or not lost or found.computes:
        return None
    replaced = " because workers were replaced, or" if found.variant.is_replaced else " so"
    few = f"{found.slots} requests at a time are" if found.slots > 1 else "one request at a time is"
    why = f"no worker had a free thread meanwhile,{replaced} {few} too few for this load."
    sentences = [_loses(slow, why) if slow else ""] + [
        f"Even if all threads took requests from one queue, {_ONE_IN[stat].lower()} of the {name} requests would wait "
        f"for {_time(ms)} or more, so {found.slots} requests at a time are too few for this load."
        for name, (stat, ms) in found.slow_in_one_queue.items()
    ]
    sentences += _waits_in(found, sorted(found.classes, key=found.at_work_s, reverse=True))
    lost_ms, lost_s = max(ms for _, ms in lost.values()), found.lost.before_of(lost)
    return _limit(found, "threads", lost, lost_s, sentences, threads=float(found.slots), lost_ms=lost_ms)


def _event_loop(found: Symptoms) -> Bottleneck | None:
    """A function on an event loop or a hub computes or blocks."""
    stall, slow, sentences = found.stall("held"), _slow_by_loop(found), []
    if stall is not None:
        sentences = [f"The {found.loop}s of the workers were held up for {percent(stall.share)} of the time, for up to "
                     f"{number(stall.longest_s)} s at once. Meanwhile, no other request of the worker went "
                     "on."]  # fmt: skip
    elif slow and not found.stall("locked") and found.loop_may_be_held:
        instead = "yielding" if found.loop == "hub" else "awaiting"
        sentences = [_loses(slow, f"probably, the {found.loop} of their worker was held up. A function that computes, "
                                  f"or that blocks instead of {instead}, holds up all requests of its "
                                  "worker.")]  # fmt: skip
    else:
        return None
    stacks = found.stacks("loop")
    for name in dict.fromkeys(stack.request_class for stack in stacks):
        mine = [stack for stack in stacks if stack.request_class == name]
        if lines := _lines(mine, " of this time is spent", _seconds(stacks)):
            sentences.append(f"{lines}, called by {f'requests of {name}' if name else 'no request'}.")
    if stall is None:
        return _limit(found, "event-loop", slow, found.lost.before_of(slow), sentences)
    return _stalled(found, "event-loop", stall, slow, [*sentences, _loses(slow), _cure_of_loop(found)])


def _interpreter_lock(found: Symptoms) -> Bottleneck | None:
    """Event loops do not go on because other threads of the process compute, or the garbage collector stops all."""
    stall, slow = found.stall("locked"), {} if found.stall("held") else _slow_by_loop(found)
    lock = SYMPTOMS["interpreter-lock"]
    cure = f"{lock.says}; {lock.cures['a processor is free' if found.processes_help else '']}"
    if stall is not None:
        said = (f"For {percent(stall.share)} of the time, and for up to {number(stall.longest_s)} s at once, the "
                f"{found.loop}s of the workers did not go on because other threads of "
                "the process kept Python's interpreter lock.")  # fmt: skip
        sentences = [said, _computed_in(found, stall.share, found.computing_beside), _loses(slow), cure]
        return _stalled(found, "interpreter-lock", stall, slow, sentences)
    if found.slow_beside_own and found.computes_beside >= SOME_TIME:
        slow, share = found.slow_beside_own, found.computes_beside
        why = "their worker had a free thread but other threads of the process kept Python's interpreter lock."
        sentences = [_loses(slow, why), _computed_in(found, 0.0, found.computing_beside), cure]
    elif found.collected >= COLLECTS:
        slow, share = {} if found.loop_may_be_held else slow, found.collected
        sentences = [_computed_in(found, 0.0, found.computing_beside), _loses(slow), cure]
    else:
        return None
    known = _limit(found, "interpreter-lock", slow, found.lost.before_of(slow), sentences, share=share)
    return known if slow else known.model_copy(update={"explains": None})


def _unknown(found: Symptoms) -> Bottleneck | None:
    """Requests wait although their own worker has a free thread, or its loop goes on, and nothing shows why."""
    beside, what = found.slow_beside_own, "their worker had a free thread meanwhile"
    slow = {} if found.computes_beside >= SOME_TIME else beside
    seen = found.loop_may_be_held or found.stall("held") or found.stall("locked") or found.collected >= COLLECTS
    if not slow and not beside and not seen:
        slow, what = _slow_by_loop(found), f"the {found.loop} of their worker went on meanwhile"
    why = f"{what}, and what held them up is not known. {SYMPTOMS['unknown'].cures['']}"
    return _limit(found, "unknown", slow, found.lost.before_of(slow), [_loses(slow, why)]) if slow else None


def _slow_by_loop(found: Symptoms) -> Loses:
    """Return what requests lose before their work begins if only their event loop or hub can be the reason."""
    return {} if found.slots or found.computes or found.slow_by_machine else found.slow


def _stalled(found: Symptoms, limit: Limit, stall: Stall, slow: Loses, sentences: Iterable[str]) -> Bottleneck:
    return _limit(found, limit, slow, stall.lost_s, sentences, share=stall.share, longest_s=stall.longest_s)


def _cure_of_loop(found: Symptoms) -> str:
    """Return what helps if loops are held: no cure needs a processor where none is free."""
    signs = {"computed": 1, "held": -1}  # whether functions that compute held loops for longer than those that block
    computes = found.computes or sum(signs.get(each.what, 0) * each.total_s for each in found.loops.held) > 0
    cures = SYMPTOMS["event-loop"].cures
    if found.loop == "hub" and computes:
        return cures["greenlets compute"] + ("." if found.processes_help else ", but the processors would be as busy.")
    if found.loop == "hub":
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
    sentences, slower = [], _slower_sentence(found)
    largest_first = sorted(found.full_pools.items(), key=lambda item: -item[1].total_s)
    for what, pool in largest_first:
        waited, cures = SYMPTOMS[what].says, SYMPTOMS[what].cures
        name = "AnyIO's pool" if what == "pool" else "asyncio's default executor"
        cure = f"While threads compute, a larger pool does not help. {cures['computes']}" if computes else cures[""]
        if what == "pool" and pool.at_work is not None and pool.at_work < pool.threads / 2:
            cure = (f"Meanwhile, only {pool.at_work:.0f} requests were at work{where} on average, so most threads "
                    "worked on something else, such as background tasks, which run after the answer. Take this work "
                    "out of the pool: into a queue with workers of its own, or into async functions. "
                    f"{cure}")  # fmt: skip
        share = percent(found.share_of_workers(pool.total_s))
        lines = _lines(found.stacks("pool thread"), " of the time of its threads is spent")
        sentences += [f"For {share} of the time, all {pool.threads} threads of {name}{where} were busy, and {waited}",
                      f"{lines}." if lines and len(largest_first) == 1 else "", slower, cure]  # fmt: skip
        slower = ""
    pool, lost_s = largest_first[0][1], sum(pool.lost_s for pool in found.full_pools.values())
    share_s = found.share_of_workers(pool.total_s)
    return _limit(
        found, "thread-pool", found.slower_together, lost_s, sentences, share=share_s, threads=float(pool.threads)
    )


def _inside(found: Symptoms) -> Bottleneck | None:
    """Requests take longer at work together than alone, and neither loops, pools nor computing explain most of it."""
    if not found.slower_together:
        return None
    lost_s = sum(seconds for name, seconds in found.lost.at_work_s.items() if name in found.slower_together)
    stalls = [stall for what in ("held", "locked") if (stall := found.stall(what))]
    known_s = sum(stall.lost_s for stall in stalls) + sum(pool.lost_s for pool in found.full_pools.values())
    if (stalls or found.full_pools) and known_s >= lost_s / 2:
        return None
    slowest = sorted(found.slower_together, key=lambda name: -found.slower_together[name].ms)
    busy = found.processors.is_busy_elsewhere
    why = "They lack a processor for far less than this" if busy else "The processors are not busy"
    spent_s: defaultdict[str, float] = defaultdict(float)  # by kind, of the first class of which it is known
    for stack in next(filter(None, (_waits(found, name) for name in slowest)), ()):
        library = next((name for start, name in _LIBRARIES.items() if stack.called.startswith(start)), stack.kind)
        spent_s[library] += stack.seconds
    kind = max(spent_s, key=lambda each: spent_s[each], default="")
    cures = SYMPTOMS["inside"].cures
    cure = cures.get(kind if spent_s and spent_s[kind] > sum(spent_s.values()) / 2 else "", cures[""])
    sentences = [f"{_slower_sentence(found)} {why}, so {SYMPTOMS['inside'].says}{cure}", *_waits_in(found, slowest)]
    at_work_ms = found.slower_together[slowest[0]].ms
    return _limit(found, "inside", found.slower_together, max(0.0, lost_s - known_s), sentences, at_work_ms=at_work_ms)


RULES: Sequence[Callable[[Symptoms], Bottleneck | None]] = (
    _avoidable_wait, _busy_processors, _busy_threads, _event_loop, _interpreter_lock, _thread_pool, _inside, _output,
    _unknown,
)  # fmt: skip
"""A rule for each limit. If limits explain the same share of the lost time, their sentences are in this order."""


# What the rules say


def _computed_in(found: Symptoms, share: float, stacks: Sequence[Stack]) -> str:
    """Say what keeps the interpreter lock: the garbage collector, for most of a share of the time, or lines of code."""
    if found.collected >= max(COLLECTS, share / 2):
        line = next((f", called in {stack.line}" for stack in found.stacks("gc") if stack.line), "")
        return (f"The garbage collector held all threads for {percent(found.collected)} of the time{line}. After "
                "gc.freeze() at the end of the start, it looks at new objects only.")  # fmt: skip
    computed = _lines(stacks, " of what long requests and other threads compute is")
    return f"{computed}." if computed else ""


def _waits(found: Symptoms, name: str) -> list[Stack]:
    return [stack for stack in found.stacks("", name) if stack.kind != "computes"]


def _waits_in(found: Symptoms, classes: Iterable[str]) -> list[str]:
    """Return in which lines of code requests wait, for the first of the classes of which this is known."""
    said = (_lines(_waits(found, name), f" of the waits inside {name} are") for name in classes)
    return [f"{lines}." for lines in filter(None, said)][:1]


def _lines(stacks: Sequence[Stack], of: str, whole_s: float | None = None) -> str:
    """Return in which lines of code how much of a time was spent: ``92% of it is in …, 8% in …``; empty: unknown."""
    whole_s = _seconds(stacks) if whole_s is None else whole_s
    spent_s: defaultdict[str, float] = defaultdict(float)
    for stack in stacks:
        called = stack.called if " " in stack.called else ".".join(stack.called.split(".")[-2:])
        spent_s[f"{called} ({stack.line})" if called and stack.line else called or stack.line] += stack.seconds
    named = [(line, seconds / whole_s) for line, seconds in spent_s.items() if line and seconds >= SOME_TIME * whole_s]
    worst = sorted(named, key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{share:.0%}{'' if place else of} in {line}" for place, (line, share) in enumerate(worst))


def _seconds(stacks: Iterable[Stack]) -> float:
    return sum(stack.seconds for stack in stacks)


def _loses(lost: Loses, why: str = "") -> str:
    """Return what classes of requests lose before their work begins, the class that loses most first; empty: none."""
    worst = sorted(lost.items(), key=lambda item: -item[1][1])[:_NAMED]
    told = [f"{_ONE_IN[stat].lower()} of the {name} requests {_time(ms)} or more" for name, (stat, ms) in worst[1:]]
    for name, (stat, ms) in worst[:1]:
        told.insert(0, f"{_ONE_IN[stat]} of the {name} requests loses {_time(ms)} or more before its work begins")
    return f"{', '.join(told)}{_further(lost)}{f': {why}' if why else '.'}" if told else ""


def _slower_sentence(found: Symptoms) -> str:
    """Return how long classes of requests are at work under the load, and alone, the slowest first; empty: none."""
    told = []
    for name, (stat, work_ms, alone_ms) in sorted(found.slower_together.items(), key=lambda item: -item[1].ms)[:_NAMED]:
        lasts = f"the {name} requests are at work for {_time(work_ms)}"
        if stat != "p50":
            lasts = f"{_ONE_IN[stat].lower()} of the {name} requests is at work for {_time(work_ms)} or more"
        told.append(f"{lasts} (alone: {_time(alone_ms)})")
    return f"Under this load, {', '.join(told)}{_further(found.slower_together)}." if told else ""


def _further(classes: Collection[str]) -> str:
    more = len(classes) - _NAMED
    return f", and {more} further class{'es are' if more > 1 else ' is'} slow, too" if more > 0 else ""


def _time(ms: float) -> str:
    return f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"

"""What limits a service as it is served today, and what helps: a rule for each limit."""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import duckdb

from analysis.metrics.servers import megabytes
from analysis.records.run import TODAY, Run
from analysis.records.summary import Summary
from analysis.report.spread import value_and_spread
from analysis.report.wording import number, percent
from analysis.statistics.losses import Figures
from lab.apps.service.diagnosis.deaths import DeathsByLimit, death_bottlenecks
from lab.apps.service.diagnosis.held import Loops
from lab.apps.service.diagnosis.model import Bottleneck, Diagnosis, Limit
from lab.apps.service.diagnosis.omissions import Omissions, omission_sentences, replacement_sentences
from lab.apps.service.diagnosis.symptoms import ProcessorUse, Symptoms

_NO_OMISSIONS = Omissions()
_NO_DEATHS: DeathsByLimit = {}
_NOTHING = "Nothing was measured of today's way to serve, so nothing {}is said."
_ONE_IN = {"p99": "One in a hundred", "p90": "One in ten", "p50": "One in two"}


def diagnose(
    summary: Summary,
    run: Run,
    rows: duckdb.DuckDBPyConnection,
    loops: Loops,
    alone_ms: Mapping[str, float],
    omissions: Omissions = _NO_OMISSIONS,
    busy: float | None = None,
    deaths: DeathsByLimit = _NO_DEATHS,
) -> Diagnosis:
    """Say whether requests wait as the service is served today, for what, and behind what.

    ``rows`` has the view ``requests``; ``loops`` says when event loops were held up; ``alone_ms`` is how long a request
    of each class takes alone; ``omissions`` is what the lab leaves out; ``busy`` is the share of all processors of the
    machine that was busy meanwhile; ``deaths`` are workers that ended. Nothing is said of trials that are invalid.
    """
    found = Symptoms(Figures(summary), run, rows, loops, alone_ms, busy)
    if not found.classes:
        return Diagnosis(alarm=False, sentences=[_NOTHING.format("")])
    bottlenecks = [bottleneck for rule in RULES if (bottleneck := rule(found))]
    bottlenecks = [*death_bottlenecks(deaths, found.variant), *bottlenecks]
    left_out = list(omission_sentences(omissions, found.requests_per_s, found.variant.workers))
    sentences = [
        *_failures(
            summary, found, {toll.request_class for each in deaths.values() for toll in each.tolls if toll.lost}
        ),
        *(text for bottleneck in bottlenecks for text in bottleneck.sentences),
        *replacement_sentences(found.variant.settings, found.requests_per_s, found.variant.workers),
        *left_out,
    ]
    if not any(found.figures.percentile(name, [TODAY]) for name in found.classes):
        sentences.append(_NOTHING.format("else "))
    elif not bottlenecks:
        apart = "Apart from what the lab leaves out, no" if left_out else "No"
        failed = any(found.value(name, "failures", "share") == 1 for name in found.classes)
        sentences.append(f"{apart} request{' of the other classes' if failed else ''} waits for a worker noticeably. "
                         "How long an answer takes is up to the application.")  # fmt: skip
    return Diagnosis(alarm=bool(bottlenecks), sentences=sentences, bottlenecks=bottlenecks)


def _failures(summary: Summary, found: Symptoms, lost: Container[str]) -> Iterator[str]:
    """Say which requests failed, with the most frequent errors. ``lost`` are the classes that workers took along."""
    for name in found.classes:
        share = found.value(name, "failures", "share") or 0.0
        if not share:
            continue
        counts: Counter[str] = Counter()
        for row in summary.errors:
            if (row.variant, row.request_class) == (TODAY, name):
                counts[row.error] += row.requests
        errors = [error for error, _ in counts.most_common(2)]
        status = errors[0].removeprefix("status ") if errors and errors[0].startswith("status ") else ""
        question = _WHY_FAILED.get(status, "")
        if status.startswith("5") and name not in lost:
            question = "the application failed; its log in the folder of the trial says why."
        said = f"{'All' if share == 1 else f'{percent(share)} of the'} {name} requests failed "
        said += f"({', '.join(errors) or 'no reason given'})."
        if share == 1:
            yield f"{said} No time is measured of them{f'; {question}' if question else '.'}"
        else:
            yield f"{said} {question[:1].upper()}{question[1:]}" if question else said


_WHY_FAILED = {
    "401": "is a token or a login: missing?", "403": "is a token or a login: missing?", "404": "is the path right?",
    "405": "is the method right?",
}  # fmt: skip


def _machine(found: Symptoms) -> Bottleneck | None:
    """Something other than the workers keeps the machine busy, such as the engine that handles their output."""
    use, slow = found.processors, found.slow_by_machine
    if not use.may_delay_work:
        return None
    known = {"busy": use.busy, "output": use.output}
    return Bottleneck(
        limit="output" if use.writes_much else "machine", requests=[*slow],
        numbers={name: value for name, value in known.items() if value is not None},
        sentences=[*processor_sentences(use), *_loses(slow, "the machine was busy meanwhile.")],
    )  # fmt: skip


def processor_sentences(use: ProcessorUse) -> Iterator[str]:
    """Say who kept the processors busy if it was not the workers, and what the workers' output costs."""
    if use.is_busy_elsewhere and use.busy is not None and use.workers is not None:
        yield (
            f"The machine was {use.busy:.0%} busy during the load, but the workers used only {number(use.workers)} of "
            f"its {use.cores:g} processors. The other {number(use.busy * use.cores - use.workers)} went to "
        ) + (
            "the engine, which handles the output, and to other programs."
            if use.writes_much else
            "the load generator, the engine or other programs, so this run cannot tell whether requests wait inside "
            "the application. Measure again on a machine that is not busy."
        )  # fmt: skip
    if use.writes_much and use.output is not None:
        each_s = f", {megabytes(use.output_rate)} a second" if use.output_rate else ""
        yield (
            f"The workers write {megabytes(use.output)} a request to their output{each_s}. The engine reads and stores "
            "all of it, which takes processor time, and a worker that writes faster than the engine reads waits "
            "meanwhile. Log less, and measure again."
        )


def _avoidable_wait(found: Symptoms) -> Bottleneck | None:
    """Requests wait for a busy worker while another worker has a free thread."""
    if not found.avoidable:
        return None
    sentences = []
    for name, row in found.avoidable.items():
        share = value_and_spread(row.measured or 0.0, [*row.values.values()], row.low, row.high, percent)
        longest_s = (found.value(name, "avoidable_wait", "max") or 0.0) / 1000
        sentences.append(
            f"{share} of the {name} requests waited for a busy worker while another worker had a free thread, for up "
            f"to {number(longest_s)} s."
        )
    if blockers := [f"{name} for {percent(share)} of the time" for name, share in found.blockers()]:
        held = "While they waited, these requests held the threads of their worker"
        sentences.append(f"{held}: {', '.join(blockers)}.")
    several = int(found.variant.settings.get("workers") or 0) > 1
    if several and found.variant.accept == "per-worker":
        cause = "how workers accept connections: each worker has its own listening socket, and the kernel chooses a "
        cause += "socket without knowing which worker has a free thread."
    elif several:
        cause = "how workers accept connections: a busy worker takes a connection from the shared socket, and no other "
        cause += "worker can take it back."
    else:
        cause = "the balancer: it passes requests to a worker without knowing which worker has a free thread."
    worst = max(row.measured or 0.0 for row in found.avoidable.values())
    return Bottleneck(
        limit="avoidable-wait", requests=[*found.avoidable], numbers={"share": worst},
        sentences=[*sentences, f"The cause is {cause}"],
    )  # fmt: skip


def _busy_processors(found: Symptoms) -> Bottleneck | None:
    """The workers compute all the time. Then this explains all other waits before the work begins."""
    if not found.computes:
        return None
    share, workers, cores = min(1.0, found.computing or 0.0), found.variant.workers, found.run.host.cores or 1
    if workers < cores:
        computed = f"The {workers} worker processes were" if workers > 1 else "The one worker process was"
        they = f"They can use only {workers} processors" if workers > 1 else "A process can use only one processor"
        said = (f"{computed} computing for {percent(share)} of the time. {they}, and this machine has {cores}. More "
                "threads do not help; more processes do.")  # fmt: skip
    else:
        what = f"{cores} processors" if cores > 1 else "only processor"
        said = (f"The workers kept this machine's {what} busy for {percent(share)} of the time. More threads or "
                "processes do not help; more processors do, and requests that compute less.")  # fmt: skip
    return Bottleneck(
        limit="processors", requests=[*found.slow], numbers={"share": share, "workers": workers, "cores": cores},
        sentences=[said, *_loses(found.slow, "the workers were computing meanwhile.")],
    )  # fmt: skip


def _busy_threads(found: Symptoms) -> Bottleneck | None:
    """All threads are busy with requests that wait for something else than a processor."""
    slow = {} if found.processors.is_busy_elsewhere else found.slow
    lost = slow | found.slow_in_one_queue
    if not found.slots or not lost or found.computes:
        return None
    few = f"{found.slots} requests at a time are" if found.slots > 1 else "one request at a time is"
    why = f"no worker had a free thread meanwhile, so {few} too few for this load."
    if found.variant.is_replaced:
        why = f"no worker had a free thread meanwhile, because workers were replaced, or {few} too few for this load."
    sentences = _loses(slow, why) + [
        f"Even if all threads took requests from one queue, {_ONE_IN[stat].lower()} of the {name} requests would wait "
        f"for {_time(ms)} or more, so {found.slots} requests at a time are too few for this load."
        for name, (stat, ms) in found.slow_in_one_queue.items()
    ]
    numbers = {"threads": float(found.slots), "lost_ms": max(ms for _, ms in lost.values())}
    return Bottleneck(limit="threads", requests=[*lost], numbers=numbers, sentences=sentences)


def _event_loop(found: Symptoms) -> Bottleneck | None:
    """A function on an event loop or a hub computes or blocks."""
    stalled = _stalled(found, "held", "event-loop")
    if found.slots or found.computes or not found.slow or found.slow_by_machine:
        return stalled
    loop, instead = ("hub", "yielding") if found.has_greenlets else ("event loop", "awaiting")
    lost = _loses(
        found.slow,
        f"the {loop} of their worker was held up. A function that computes, or that blocks instead of {instead}, holds "
        "up all requests of its worker.",
    )
    if stalled is None:
        return Bottleneck(limit="event-loop", requests=[*found.slow], sentences=lost)
    return stalled.model_copy(update={"requests": [*found.slow], "sentences": [*lost, *stalled.sentences]})


def _interpreter_lock(found: Symptoms) -> Bottleneck | None:
    """Event loops do not go on because other threads of the process compute."""
    return _stalled(found, "locked", "interpreter-lock")


def _stalled(found: Symptoms, what: str, limit: Limit) -> Bottleneck | None:
    """Return that loops were held up for this reason (held or locked), if noticeable, and what helps."""
    stall = found.stall(what)
    if stall is None:
        return None
    loops, share, longest = "hubs" if found.has_greenlets else "event loops", percent(stall.share), stall.longest_s
    if what == "held":
        said = (f"The {loops} of the workers were held up for {share} of the time, for up to {number(longest)} s at "
                "once. Meanwhile, no other request of the worker went on; this time counts as their work.")  # fmt: skip
    else:
        said = (f"For {share} of the time, and for up to {number(longest)} s at once, the {loops} of the workers did "
                "not go on because other threads of the process computed and had Python's interpreter "
                "lock.")  # fmt: skip
    last = f"The request that had begun last was {stall.request_class} for {percent(stall.request_share)} of this time."
    numbers = {"share": stall.share, "longest_s": longest}
    cure = _cure_of_lock(found) if what == "locked" else _cure_of_loop(found)
    return Bottleneck(limit=limit, numbers=numbers, sentences=[f"{said} {last} {cure}"])


def _cure_of_lock(found: Symptoms) -> str:
    if found.processes_help:
        return "More processes with fewer threads share the lock among fewer requests."
    return "Requests that compute less share the lock better."


def _cure_of_loop(found: Symptoms) -> str:
    computes = found.computes or found.loops_compute
    if found.has_greenlets and computes:
        said = ("A function that computes holds up all greenlets of its worker. In other processes, or in the threads "
                "of worker_class gthread, it would let the other requests go on")  # fmt: skip
        return said + ("." if found.processes_help else ", but the processors would be as busy.")
    if found.has_greenlets:
        return ("A driver that waits in C holds up all greenlets of its worker. The cure is a driver that the "
                "greenlets know, or worker_class gthread with threads.")  # fmt: skip
    if computes and not found.processes_help:
        return ("In other processes, such as those of a ProcessPoolExecutor, functions that compute would not hold up "
                "the other requests, but the processors would be as busy.")  # fmt: skip
    if computes:
        said = ("Functions that compute belong into other processes, such as those of a ProcessPoolExecutor; in "
                "threads, they keep the interpreter lock.")  # fmt: skip
    else:
        said = ("Calls that block belong into threads (in FastAPI, def instead of async def), and functions that "
                "compute belong into other processes.")  # fmt: skip
    if found.variant.workers > 1 or not found.processes_help:
        return said
    return f"{said} More workers share the requests among more event loops, but the cure is in the application."


def _thread_pool(found: Symptoms) -> Bottleneck | None:
    """All threads of a pool behind the event loop are busy, and requests wait for a thread of it."""
    if not found.full_pools:
        return None
    where = " in a worker" if found.variant.workers > 1 else ""
    computes = found.computes or found.stall("locked") is not None
    sentences = []
    for what, (share, threads) in found.full_pools.items():
        name, waited, larger, smaller = _POOLS[what]
        cure = f"While threads compute, a larger pool does not help. {smaller}" if computes else larger
        sentences.append(f"For {percent(share)} of the time, all {threads} threads of {name}{where} were busy, and "
                         f"{waited} {cure}")  # fmt: skip
    share, threads = max(found.full_pools.values())
    return Bottleneck(
        limit="thread-pool", requests=[*found.slower_together], numbers={"share": share, "threads": float(threads)},
        sentences=[*sentences, *_slower_sentences(found)],
    )  # fmt: skip


_POOLS = {
    "pool": (
        "AnyIO's pool", "requests waited for a thread of the pool. FastAPI and Starlette run def end points there.",
        "Make quick end points async def, raise total_tokens of anyio.to_thread.current_default_thread_limiter(), or "
        "start more workers.",
        "Make quick end points async def, so that they need no thread.",
    ),
    "executor": (
        "asyncio's default executor", "calls of asyncio.to_thread or run_in_executor waited for a thread.",
        "Give the loop an executor with more threads, wait without threads, or start more workers.",
        "What only waits needs no thread.",
    ),
}  # fmt: skip
"""The name of each pool, who waited for it, and what helps: if its threads wait, and if they compute."""


def _inside(found: Symptoms) -> Bottleneck | None:
    """Requests take longer at work together than alone, and neither loops, pools nor computing explain it."""
    if found.stall("held") or found.stall("locked") or found.full_pools or not found.slower_together:
        return None
    why = ("The processors are not busy, so these requests wait inside the application: for a pool of connections, a "
           "database, a lock or another service.")  # fmt: skip
    longest_ms = max(work_ms for work_ms, _ in found.slower_together.values())
    return Bottleneck(
        limit="inside", requests=[*found.slower_together], numbers={"at_work_ms": longest_ms},
        sentences=[f"{sentence} {why}" for sentence in _slower_sentences(found)],
    )  # fmt: skip


RULES: Sequence[Callable[[Symptoms], Bottleneck | None]] = (
    _machine, _avoidable_wait, _busy_processors, _busy_threads, _event_loop, _interpreter_lock, _thread_pool, _inside,
)  # fmt: skip
"""In the order of their sentences."""


def _loses(lost: Mapping[str, tuple[str, float]], why: str) -> list[str]:
    return [
        f"{_ONE_IN[stat]} of the {name} requests loses {_time(ms)} or more before its work begins: {why}"
        for name, (stat, ms) in lost.items()
    ]


def _slower_sentences(found: Symptoms) -> list[str]:
    return [
        f"Under this load, the {name} requests are at work for {_time(work_ms)}; one of them alone takes "
        f"{_time(alone_ms)}."
        for name, (work_ms, alone_ms) in found.slower_together.items()
    ]


def _time(ms: float) -> str:
    return f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"

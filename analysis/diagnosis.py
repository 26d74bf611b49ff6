"""What is wrong with a service, if anything, from a measured run."""

from collections import Counter
from collections.abc import Iterator, Mapping

import duckdb
import numpy as np

from analysis import waiting
from analysis.lookup import STATISTICS, Figures
from analysis.processor_use import processor_sentences, processor_use
from analysis.read.held import Loops
from analysis.record import TODAY, Run
from analysis.result import Diagnosis, Summary
from analysis.show.spread import value_and_spread
from analysis.show.words import number, percent

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


def is_own(run: Run) -> bool:
    """Whether a run measured somebody's own service as it is served today."""
    return any(load.is_own for load in run.loads) and any(one.name == TODAY for one in run.variants)


def diagnose(
    summary: Summary,
    run: Run,
    rows: duckdb.DuckDBPyConnection,
    loops: Loops,
    alone_ms: Mapping[str, float],
    busy: float | None = None,
) -> Diagnosis:
    """Say whether requests wait as the service is served today, for what, and behind what.

    ``rows`` has the view ``requests``; ``loops`` says when event loops were held up; ``alone_ms`` is how long a request
    of each class takes alone; ``busy`` is which share of the processors was busy meanwhile. Nothing is said of trials
    that are invalid.
    """
    figures = Figures(summary)
    if not figures.classes(TODAY):
        return Diagnosis(alarm=False, sentences=["Nothing was measured of today's way to serve, so nothing is said."])
    sentences = list(_refused(summary, figures))
    alarm = False
    slow = [one for one in figures.classes(TODAY) if _waits(figures, one)]
    beside = {one: figures.row(TODAY, one, "beside_free_thread", "share") for one in figures.classes(TODAY)}
    hit = {one: row for one, row in beside.items() if row and (row.measured or 0.0) >= BESIDE}
    for name, row in hit.items():
        longest = figures.value(TODAY, name, "beside_free_thread", "max") or 0.0
        assert row
        share = value_and_spread(row.measured or 0.0, [*row.values.values()], row.low, row.high, percent)
        sentences.append(
            f"{share} of the requests {name} waited for a worker whose threads were "
            f"all busy although another worker had a free thread, for up to {number(longest / 1000)} s."
        )
        alarm = True
    if hit:
        sentences += _behind(run, rows)
        sentences.append(_CAUSES["socket" if int(run.variant(TODAY).settings.get("workers") or 0) > 1 else "balancer"])
    used = _processors(figures)
    workers = run.variant(TODAY).workers
    may_use = min(workers, run.host.cores or workers)
    if used is not None and used >= COMPUTES * may_use:
        sentences.append(
            f"The workers used {used:.1f} of the {may_use} processors that they can use, so requests also wait for "
            "the processor and for Python's interpreter lock. More threads do not help; more processors may."
        )
        alarm = True
    for name in slow:
        if name in hit:
            continue
        stat, lost = next((stat, found) for stat in STATISTICS if (found := figures.lost(TODAY, name, stat)))
        sentences.append(
            f"{_ONE_IN[stat]} of the requests {name} loses {number(lost.ms)} ms or more before its work begins: "
            f"{_why(run)}"
        )
        alarm = True
    use = processor_use(figures, run, busy)
    said = list(_held_up(loops, workers))
    if not said and not use.may_delay_work and used is not None and used < COMPUTES * may_use:
        said = list(_waits_inside(rows, alone_ms, used / may_use))
    said += processor_sentences(use)
    sentences += said
    alarm = alarm or bool(said)
    if not any(figures.statistic(one, [TODAY]) for one in figures.classes(TODAY)):
        sentences.append("Nothing was measured of today's way to serve, so nothing else is said.")
    elif not alarm:
        others = " of the other classes" if len(sentences) else ""
        sentences.append(
            f"No request{others} waits for a worker noticeably. How long an answer takes is up to the application."
        )
    return Diagnosis(alarm=alarm, sentences=sentences)


_CAUSES = {
    "socket": "The cause is how workers accept connections: a busy worker takes a connection from the shared socket, "
    "and no other worker can take it back.",
    "balancer": "The cause is the balancer: it passes requests to a worker without knowing which worker has a free "
    "thread.",
}
"""Why requests wait beside a free thread: in a container of several workers, or in containers of one worker each."""

# What requests took at work as the service is served today, by class.
_AT_WORK = """
SELECT request, median(1000 * (ended - began)) FROM requests WHERE variant = $today AND error IS NULL
GROUP BY request ORDER BY request
"""


def _waits_inside(rows: duckdb.DuckDBPyConnection, alone_ms: Mapping[str, float], busy: float) -> Iterator[str]:
    """Say which requests take longer at work together than alone, although the processors are not busy.

    ``busy`` is the share of the processors that is used. Work that computes takes about 1 / (1 - busy) times as long.
    """
    for name, work_ms in rows.execute(_AT_WORK, {"today": TODAY}).fetchall():
        alone = alone_ms.get(name)
        if (
            alone is None
            or work_ms is None
            or work_ms < max(SLOWER_TOGETHER * alone / (1 - busy), alone + SLOWER_BY_MS)
        ):
            continue
        yield (
            f"Under this load, the requests {name} are at work for {number(work_ms)} ms; one of them alone takes "
            f"{number(alone)} ms. The processors are not busy, so these requests wait inside the application: for a "
            f"pool of connections, a database, a lock or another service."
        )


def _held_up(loops: Loops, workers: int) -> Iterator[str]:
    """Say for which part of the time event loops were held up, and by which requests; nothing if hardly ever."""
    for what, tells in _LOOPS.items():
        held = [one for one in loops.held if one.what == what]
        total_s = sum(one.total_s for one in held)
        if not loops.span_s or total_s < HELD * workers * loops.span_s:
            continue
        by: Counter[str] = Counter()
        for one in held:
            by[one.request] += round(1e6 * one.total_s)
        [(most, most_us)] = by.most_common(1)
        longest_s = max(one.longest_s for one in held)
        yield tells.format(
            share=percent(total_s / (workers * loops.span_s)), longest=number(longest_s), most=most,
            of_it=percent(most_us / 1e6 / total_s),
        )  # fmt: skip


_LOOPS = {
    "held": (
        "The event loops of the workers were held up for {share} of the time, for up to {longest} s at once. "
        "Meanwhile, no other request of the worker went on; this time counts as their work. The request that had begun "
        "last was {most} for {of_it} of this time. Calls that block and functions that compute belong into threads or "
        "processes: in FastAPI, def instead of async def."
    ),
    "locked": (
        "For {share} of the time, and for up to {longest} s at once, the event loops of the workers did not go on "
        "because other threads of the process computed and had Python's interpreter lock. The request that had begun "
        "last was {most} for {of_it} of this time. More processes with fewer threads share the lock among fewer "
        "requests."
    ),
}


_ONE_IN = {"p99": "One in a hundred", "p90": "One in ten", "p50": "One in two"}


def _why(run: Run) -> str:
    """Return why requests wait although none waits beside a free thread."""
    variant = run.variant(TODAY)
    if threads := variant.settings.get("threads"):
        slots = variant.workers * int(threads)
        return f"no worker had a free thread meanwhile, so {slots} requests at a time are too few for this load."
    return (
        "the event loop of their worker was held up. A function that computes, or that blocks instead of awaiting, "
        "holds up all requests of its worker."
    )


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
        kind = ", ".join(error for error, _ in why.most_common(2)) or "no reason given"
        of_them = "All" if share == 1 else percent(share) + " of the"
        nothing = " No time is measured of them; is the path right?" if share == 1 else ""
        yield f"{of_them} requests {name} failed ({kind}).{nothing}"


def _waits(figures: Figures, request: str) -> bool:
    """Whether one request in a hundred of a class loses noticeably more than the median request is at work."""
    stat = figures.statistic(request, [TODAY])
    lost = figures.lost(TODAY, request, stat) if stat else None
    if lost is None:
        return False
    takes = figures.value(TODAY, request, "response_time", "p50") or 0.0
    work = max(0.0, takes - (figures.value(TODAY, request, "overhead", "p50") or 0.0))
    return lost.ms > max(WAITS_MS, SLOWER * work)


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
        parts = [f"{name} for {percent(share)} of the time" for share, name in most if share >= BESIDE]
        yield f"While they waited, these requests held the threads of their worker: {', '.join(parts)}."


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

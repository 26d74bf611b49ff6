"""The sentences of a diagnosis: what limits somebody's own service, and what helps."""

from collections.abc import Iterator, Sequence

from analysis.report.words import number, percent
from lab.apps.service.diagnosis.omissions import Omissions

ONE_IN = {"p99": "One in a hundred", "p90": "One in ten", "p50": "One in two"}
NOTHING_MEASURED = "Nothing was measured of today's way to serve, so nothing is said."
NOTHING_ELSE = "Nothing was measured of today's way to serve, so nothing else is said."
CAUSES = {
    "socket": "The cause is how workers accept connections: a busy worker takes a connection from the shared socket, "
    "and no other worker can take it back.",
    "balancer": "The cause is the balancer: it passes requests to a worker without knowing which worker has a free "
    "thread.",
}
"""Why requests wait beside a free thread: in a container of several workers, or in containers of one worker each."""
_STALLS = {
    "held": (
        "The {loops} of the workers were held up for {share} of the time, for up to {longest} s at once. Meanwhile, no "
        "other request of the worker went on; this time counts as their work. "
    ),
    "locked": (
        "For {share} of the time, and for up to {longest} s at once, the {loops} of the workers did not go on because "
        "other threads of the process computed and had Python's interpreter lock. "
    ),
}
_LAST = "The request that had begun last was {request} for {of_it} of this time."
_BLOCK = (
    "Calls that block belong into threads (in FastAPI, def instead of async def), and functions that compute belong "
    "into other processes."
)
_COMPUTE = (
    "Functions that compute belong into other processes, such as those of a ProcessPoolExecutor; in threads, they keep "
    "the interpreter lock."
)
_COMPUTE_ALL = (
    "In other processes, such as those of a ProcessPoolExecutor, functions that compute would not hold up the other "
    "requests, but the processors would be as busy."
)
_GREENLETS_BLOCK = (
    "A driver that waits in C holds up all greenlets of its worker. The cure is a driver that the greenlets know, or "
    "worker_class gthread with threads."
)
_GREENLETS_COMPUTE = (
    "A function that computes holds up all greenlets of its worker. In other processes, or in the threads of "
    "worker_class gthread, it would let the other requests go on"
)
_OTHER_LOOPS = "More workers share the requests among more event loops, but the cure is in the application."
_LOCK = "More processes with fewer threads share the lock among fewer requests."
_POOLS = {
    "pool": "For {share} of the time, all {threads} threads of AnyIO's pool{where} were busy, and requests "
    "waited for a thread of the pool. FastAPI and Starlette run def end points there.",
    "executor": "For {share} of the time, all {threads} threads of asyncio's default executor{where} were "
    "busy, and calls of asyncio.to_thread or run_in_executor waited for a thread.",
}  # fmt: skip
_LARGER_POOLS = {
    "pool": "Make quick end points async def, raise total_tokens of anyio.to_thread.current_default_thread_limiter(), "
    "or start more workers.",
    "executor": "Give the loop an executor with more threads, wait without threads, or start more workers.",
}
_NO_LARGER_POOLS = {
    "pool": "While threads compute, a larger pool does not help. Make quick end points async def, so that they need no "
    "thread.",
    "executor": "While threads compute, a larger pool does not help. What only waits needs no thread.",
}
_FAILED = {
    "401": "is a login or a token missing?", "403": "is a login or a token missing?", "404": "is the path right?",
    "405": "is the method right?",
}  # fmt: skip


def duration(ms: float) -> str:
    """Return a time in ms, or in s from one second on."""
    return f"{number(ms / 1000)} s" if ms >= 1000 else f"{number(ms)} ms"


def beside(request: str, share: str, longest_ms: float) -> str:
    """Say which share of a class waited beside a free thread. ``share``: with its interval."""
    return (
        f"{share} of the requests {request} waited for a worker whose threads were all busy although another worker "
        f"had a free thread, for up to {number(longest_ms / 1000)} s."
    )


def behind(parts: Sequence[tuple[str, float]]) -> str:
    """Say which classes held the threads of busy workers, and for which share of the time."""
    named = ", ".join(f"{name} for {percent(share)} of the time" for name, share in parts)
    return f"While they waited, these requests held the threads of their worker: {named}."


def processors(share: float, workers: int, cores: int) -> str:
    """Say that the workers compute all the time, and whether more processes help."""
    if workers < cores:
        computed = f"The {workers} worker processes were" if workers > 1 else "The one worker process was"
        they = f"They can use only {workers} processors" if workers > 1 else "A process can use only one processor"
        return (
            f"{computed} computing for {percent(share)} of the time. {they}, and this machine has {cores}. "
            "More threads do not help; more processes do."
        )
    what = f"{cores} processors" if cores > 1 else "only processor"
    return (
        f"The workers kept this machine's {what} busy for {percent(share)} of the time. More threads or processes do "
        "not help; more processors do, and requests that compute less."
    )


def lost(request: str, stat: str, ms: float, why: str) -> str:
    """Say what requests of a class lose, and why."""
    return f"{ONE_IN[stat]} of the requests {request} loses {duration(ms)} or more before its work begins: {why}"


MEANWHILE_COMPUTED = "the workers were computing meanwhile."
MEANWHILE_BUSY = "the machine was busy meanwhile."


def too_few(slots: int) -> str:
    """Say that there are too few threads."""
    at_a_time = f"{slots} requests at a time are" if slots > 1 else "one request at a time is"
    return f"no worker had a free thread meanwhile, so {at_a_time} too few for this load."


def in_line(request: str, stat: str, ms: float, slots: int) -> str:
    """Say that there are too few threads even if they are shared as well as possible."""
    return (
        f"Even if all threads took requests from one queue, {ONE_IN[stat].lower()} of the requests {request} would "
        f"wait for {duration(ms)} or more, so {slots} requests at a time are too few for this load."
    )


def loop_of(greenlets: bool) -> str:
    """Say why requests wait for a worker without threads."""
    loop = "hub" if greenlets else "event loop"
    blocks = "blocks instead of yielding" if greenlets else "blocks instead of awaiting"
    return (
        f"the {loop} of their worker was held up. A function that computes, or that {blocks}, holds up all "
        "requests of its worker."
    )


def stalled(what: str, share: float, longest_s: float, request: str, of_it: float, *, greenlets: bool) -> str:
    """Say for how long event loops or hubs did not go on (``what``: held or locked), and which request began last."""
    loops = "hubs" if greenlets else "event loops"
    said = _STALLS[what].format(loops=loops, share=percent(share), longest=number(longest_s))
    return said + _LAST.format(request=request, of_it=percent(of_it))


def advice(what: str, *, greenlets: bool, single: bool, computes: bool, processes_help: bool) -> str:
    """Return what helps against event loops or hubs that are held up (``what``: held or locked).

    ``single``: there is one worker. ``computes``: functions that compute hold them up, so threads help little.
    ``processes_help``: the processors are not all busy.
    """
    if what == "locked":
        return _LOCK if processes_help else "Requests that compute less share the lock better."
    if greenlets:
        busy = "." if processes_help else ", but the processors would be as busy."
        return f"{_GREENLETS_COMPUTE}{busy}" if computes else _GREENLETS_BLOCK
    if computes and not processes_help:
        return _COMPUTE_ALL
    said = [_COMPUTE if computes else _BLOCK]
    return " ".join([*said, *([_OTHER_LOOPS] if single and processes_help else [])])


def pool(what: str, share: float, threads: int, workers: int, *, computes: bool) -> str:
    """Say that a pool of threads was full, and what helps. ``computes``: threads compute, so more of them do not."""
    where = " in a worker" if workers > 1 else ""
    said = _POOLS[what].format(share=percent(share), threads=threads, where=where)
    return f"{said} {(_NO_LARGER_POOLS if computes else _LARGER_POOLS)[what]}"


def slower(request: str, work_ms: float, alone_ms: float) -> str:
    """Say how much longer requests are at work together than alone."""
    return (
        f"Under this load, the requests {request} are at work for {duration(work_ms)}; one of them alone takes "
        f"{duration(alone_ms)}."
    )


INSIDE = (
    "The processors are not busy, so these requests wait inside the application: for a pool of connections, a "
    "database, a lock or another service."
)


def refused(request: str, share: float, errors: Sequence[str]) -> str:
    """Say which share of a class failed, with the errors, the most frequent first."""
    of_them = "All" if share == 1 else f"{percent(share)} of the"
    said = f"{of_them} requests {request} failed ({', '.join(errors) or 'no reason given'})."
    status = errors[0].removeprefix("status ") if errors and errors[0].startswith("status ") else ""
    why = "the application failed; its log in the folder of the trial says why." if status.startswith("5") else ""
    question = why or _FAILED.get(status, "")
    if share == 1:
        return f"{said} No time is measured of them{f'; {question}' if question else '.'}"
    return f"{said} {question[:1].upper()}{question[1:]}" if question else said


def healthy(others: bool, left_out: bool) -> str:
    """Say that nothing was found. ``others``: apart from classes of which every request failed."""
    apart = "Apart from what the lab leaves out, no" if left_out else "No"
    of = " of the other classes" if others else ""
    return f"{apart} request{of} waits for a worker noticeably. How long an answer takes is up to the application."


def omissions(found: Omissions, per_second: float, workers: int) -> Iterator[str]:
    """Say what the lab leaves out of the service, and what is therefore not in its numbers."""
    most, jitter = found.number("max_requests", "max-requests"), found.number(
        "max_requests_jitter", "max-requests-delta"
    )  # fmt: skip
    restarts = {name: value for name, value in found.settings.items() if name.startswith(("max_requests", "max-requ"))}
    others = {name: value for name, value in found.settings.items() if name not in restarts}
    if most:
        yield " ".join([_restarts(found.file, most, jitter, per_second, workers), _NOT_IN])
    elif restarts:
        others |= restarts
    if others:
        named = ", ".join(f"{name} = {value}" for name, value in others.items())
        yield f"The lab leaves out or replaces these settings of {found.file}: {named}."
    if found.further:
        yield f"The lab leaves out: {'; '.join(found.further)}."


_NOT_IN = "The lab leaves this out, so waits while workers are replaced are not in these numbers."
_TOGETHER = 0.25
"""Workers are replaced at nearly the same moment if they differ by less than this part of the time between."""


def _restarts(file: str, most: float, jitter: float, per_second: float, workers: int) -> str:
    requests = f"{most:.0f}" if not jitter else f"{most:.0f} to {most + jitter:.0f}"
    said = f"{file} replaces each worker after {requests} requests"
    if not per_second:
        return f"{said}."
    each = per_second / workers
    if workers == 1:
        return f"{said}, at the measured rate about every {number((most + jitter / 2) / each)} s."
    said += f": at the measured rate, all {workers} workers about every {number((most + jitter / 2) / each)} s"
    if jitter >= _TOGETHER * most:
        return f"{said}."
    return f"{said}, and at nearly the same moment, because the jitter is only {jitter:.0f}."

"""What servers and the balancer count, and whether their counts agree with the counts of the load generators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from analysis.metrics.metric import Counted, Doubt, Family, Finding, Metric, Stats
from analysis.metrics.sizes import cut_logs
from analysis.read.observation import Container, Observation, balanced, counted_by_worker
from analysis.records.summary import CounterRow

if TYPE_CHECKING:
    import duckdb

    from analysis.read.observed import Observed
    from analysis.records.run import VariantRecord

THROTTLED_ALLOWED = 0.01

ACCEPT_ATTEMPTS = Metric(
    "accept_attempts",
    (
        Counted(
            {"per_connection": "attempts"},
            "the workers' attempts to accept, divided by the connections that they accepted; the workers count both",
        ),
    ),
    of_all=True,
)
ACCEPT_FAILURES = Metric(
    "accept_failures",
    (
        Counted(
            {"per_connection": "failures"},
            "attempts that found no connection (EAGAIN), divided by the connections that the workers accepted",
        ),
    ),
    of_all=True,
)
PROCESSOR = Metric(
    "processor",
    (
        Counted(
            {"per_request": "ms"},
            "the processor time of the servers' containers during the load, divided by the requests that "
            "they served; observing the containers before and after the load adds about 30 ms to the "
            "processor time",
        ),
    ),
    of_all=True,
)
MEMORY = Metric(
    "memory",
    (
        Counted(
            {"total": "MiB"},
            "the anonymous memory that the servers' processes hold after the load, in all containers together",
        ),
    ),
    of_all=True,
)
QUEUED = Metric(
    "queued",
    (
        Counted(
            {"count": "requests"},
            "requests that waited in the balancer's queue for a server, as the balancer counts them; only "
            "HAProxy has such a queue here",
        ),
    ),
    of_all=True,
)
OUTPUT = Metric(
    "output",
    (
        Counted(
            {"per_request": "bytes"},
            "what the servers' containers write to their standard output and standard error during the load, divided "
            "by the requests that they served; if the engine has dropped the beginning of a log, what their processes "
            "write() beyond what the containers send, files included",
        ),
    ),
    of_all=True,
)


def measure(_: duckdb.DuckDBPyConnection, trial: Observed) -> Iterator[Finding]:
    """Yield what a trial's servers and balancer report: attempts to accept, processor time, memory, queued requests."""
    containers = trial.containers
    servers = [
        (one.before, one.after)
        for one in containers
        if one.before and one.after and (one.before.workers or one.after.workers)
    ]
    accepted, served = _counted(containers, "accepted"), _counted(containers, "served")
    stats: Stats = {}
    if accepted:
        stats[ACCEPT_ATTEMPTS.name, "per_connection"] = _counted(containers, "accept_attempts") / accepted
        stats[ACCEPT_FAILURES.name, "per_connection"] = _counted(containers, "accept_failures") / accepted
    used_s = [after.processor_s - before.processor_s for before, after in servers
              if before.processor_s is not None and after.processor_s is not None]  # fmt: skip
    if used_s and served:
        stats[PROCESSOR.name, "per_request"] = 1000 * sum(used_s) / served
    memory_mib = [after.memory_mib for _, after in servers if after.memory_mib is not None]
    if memory_mib:
        stats[MEMORY.name, "total"] = sum(memory_mib)
    output = [written for one in containers if (written := _output(trial, one)) is not None]
    if output and served:
        stats[OUTPUT.name, "per_request"] = sum(output) / served
    for one in containers:
        if one.before and one.after and one.before.queued is not None and one.after.queued is not None:
            stats[QUEUED.name, "count"] = one.after.queued - one.before.queued
    yield Finding(None, stats)


def _output(trial: Observed, one: Container) -> float | None:
    """Return how many bytes a server's container wrote to its output during the load; None: nobody knows.

    Some servers write() their answers, too, so what the container sent is left out of what its processes wrote.
    """
    log, before, after = trial.record.logs.get(one.name), one.before, one.after
    if log is None or not (before and after) or not (before.workers or after.workers):
        return None
    if not log.cut:
        return max(log.kept - log.before, 0)
    if None in (before.written, after.written, before.sent, after.sent):
        return log.kept
    written = (after.written or 0) - (before.written or 0)
    return max(log.kept, written - (after.sent or 0) + (before.sent or 0))


def _counted(containers: tuple[Container, ...], name: str) -> int:
    return sum(counted_by_worker(containers, name).values())


def counter_rows(trials: Iterable[Observed]) -> Iterator[CounterRow]:
    """Yield the counters of each worker in each trial; the workers of a trial are sorted by name."""
    for trial in trials:
        observed = [one.after for one in trial.containers if one.after]
        names = sorted({name for after in observed for counts in after.counts.values() for name in counts})
        by_name = {name: counted_by_worker(trial.containers, name) for name in names}
        variant, load, number = trial.key
        for worker in sorted({worker for by_worker in by_name.values() for worker in by_worker}):
            counts = {name: by_worker[worker] for name, by_worker in by_name.items() if worker in by_worker}
            yield CounterRow(variant=variant, load=load, trial=number, worker=worker, counts=counts)


def doubts(trial: Observed) -> Iterator[Doubt]:
    """Yield where counts disagree, and where the servers were not what the variant asks for."""
    yield from _counts(trial)
    yield from _servers(trial)
    yield from _logs(trial)


def _counts(trial: Observed) -> Iterator[Doubt]:
    """Check that the load generators, the balancer and the workers counted the same requests.

    If no request failed, the counts must be equal. The load generators cannot know how far a failed request got; so if
    some requests failed, the other counts must lie between the number of requests sent and the number answered. If the
    variant has no balancer, only the counts of the load generators and of the workers are compared. If the load kills
    workers, a difference is suspect and not invalid, because a worker may die before it counts its last answer.
    """
    requests = trial.requests
    asked_directly = trial.variant.settings.get("balancer") == "none"
    passed = requests.sent - requests.direct_sent if asked_directly else balanced(trial.containers)
    by_worker = counted_by_worker(trial.containers, "served")
    wrong: Literal["invalid", "suspect"] = "suspect" if trial.load.crashes else "invalid"
    if passed is None or not by_worker:
        yield "suspect", "the servers were not observed before and after the load: nothing confirms the counts"
        return
    workers = sum(by_worker.values())
    sent, with_status = requests.sent - requests.direct_sent, requests.with_status - requests.direct_with_status
    if not with_status <= passed <= sent:
        said = f"{sent} requests were sent and {with_status} answered"
        yield wrong, f"the counts disagree: {said}, the balancer served {passed}"
    if not requests.answered <= workers <= max(passed + requests.direct_sent, requests.answered):
        said = f"{requests.answered} requests were answered by a worker"
        said += ", the workers served" if asked_directly else f", the balancer served {passed}, the workers"
        yield wrong, f"the counts disagree: {said} {workers}"
    for worker in sorted(by_worker.keys() | requests.by_worker.keys()):
        named, counted = requests.by_worker.get(worker, 0), by_worker.get(worker, 0)
        if named > counted or (named < counted and requests.sent == requests.answered):
            yield wrong, f"the counts disagree: {named} answers name worker {worker}, which counted {counted}"


def _servers(trial: Observed) -> Iterator[Doubt]:
    """Check that the servers were what the variant asks for during the whole load, and that no limit slowed them.

    Workers may come and go if a request kills its worker or if the server is elastic. If the load asks for more than
    the servers can answer, a full queue and a throttled container are findings.
    """
    variant, load = trial.variant, trial.load
    living, living_after = 0, 0
    changed: Literal["invalid", "note"] = "note" if load.crashes else "invalid"
    full_kind: Literal["suspect", "note"] = "note" if load.overloads else "suspect"
    for one in trial.containers:
        if one.before is None or one.after is None:
            yield "suspect", f"{one.name} was not observed {'before' if one.before is None else 'after'} the load"
            continue
        memory = " (out of memory)" if (one.after.out_of_memory or 0) > (one.before.out_of_memory or 0) else ""
        if variant.elastic:
            yield from _came_and_went(one.name, one.before, one.after, memory)
        else:
            if lost := one.before.workers - one.after.workers:
                yield changed, f"{one.name} lost {_workers(lost)} during the load{memory}"
            if new := one.after.workers - one.before.workers:
                yield changed, f"{one.name} started {_workers(new)} during the load"
        if full := one.after.listen_overflows - one.before.listen_overflows:
            yield full_kind, f"the listen queue of {one.name} was full for {full} connections"
        throttled_s = (one.after.throttled_s or 0) - (one.before.throttled_s or 0)
        lasted_s = trial.record.seconds.load
        if lasted_s and throttled_s > THROTTLED_ALLOWED * lasted_s:
            reason = f"{one.name} was kept from computing by its limit for {throttled_s:.1f} s"
            yield full_kind if trial.run.sleeping else "note", reason
        living += len(one.before.workers)
        living_after += len(one.after.workers)
        if one.before.workers:
            yield from _accept_model(one.name, one.before, variant)
    if variant.elastic and (most := max(living, living_after)) > variant.workers:
        yield "invalid", f"{most} workers served where at most {variant.workers} were asked for"
    if not variant.elastic and living and living != variant.workers:
        yield "invalid", f"{living} workers served where {variant.workers} were asked for"


def _logs(trial: Observed) -> Iterator[Doubt]:
    """Say which logs lack their beginning, and how much of them is there."""
    written = {one.name: one.after.written for one in trial.containers if one.after}
    for name, there in cut_logs(trial.record.logs, written).items():
        yield "note", f"the beginning of the log of {name} is missing: {there} are kept"


def _came_and_went(name: str, before: Observation, after: Observation, memory: str) -> Iterator[Doubt]:
    """Yield how many workers an elastic server started and ended, including dead workers that the server remembers."""
    known = before.workers | before.counts.keys()
    started = (after.workers | after.counts.keys()) - known
    ended = (before.workers | started) - after.workers
    if started or ended:
        yield "note", f"{name} started {len(started)} and ended {len(ended)} workers during the load{memory}"


def _accept_model(name: str, observed: Observation, variant: VariantRecord) -> Iterator[Doubt]:
    """Check that the workers hold the listening sockets that the variant asks for."""
    held = [observed.holds[worker] for worker in sorted(observed.workers)]
    sockets = frozenset[int]().union(*held)
    if variant.accept not in ("shared", "per-worker"):
        return
    if variant.accept == "shared":
        right = len(sockets) == 1 and all(one == sockets for one in held)
        wanted = "one socket that all share"
    else:
        right = all(len(one) == 1 for one in held) and len(sockets) == len(held)
        wanted = "a socket of their own each"
    if not right:
        count = f"{len(sockets)} listening socket{'' if len(sockets) == 1 else 's'}"
        yield "invalid", f"the workers of {name} hold {count}, not {wanted}"


def _workers(some: set[int]) -> str:
    return f"worker{'s' if len(some) > 1 else ''} {', '.join(map(str, sorted(some)))}"


FAMILY = Family((ACCEPT_ATTEMPTS, ACCEPT_FAILURES, PROCESSOR, MEMORY, QUEUED, OUTPUT), measure, doubts)

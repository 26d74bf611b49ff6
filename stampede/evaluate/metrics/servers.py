"""What servers and the balancer count, and whether their counts agree with the counts of the load generators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stampede.evaluate.metrics import ACCEPT_ATTEMPTS, ACCEPT_FAILURES, MEMORY, OUTPUT, PROCESSOR, SIGNALS, THROTTLED
from stampede.evaluate.metrics.metric import Family, MetricValues, Severity, ValidityIssue
from stampede.evaluate.read import of_trial
from stampede.evaluate.read.observation import Observation, balanced, counted_by_worker, observed
from stampede.records.summary import CounterRow
from stampede.records.words import noun_for, plural

if TYPE_CHECKING:
    from stampede.evaluate.read.trial_data import TrialData
    from stampede.records.run import ContainerLog

THROTTLED_ALLOWED = 0.01


def _observe(trial: TrialData, *_: object) -> Iterator[MetricValues]:
    servers = [(name, before, after) for name, before, after in observed(trial.containers)
               if before.workers or after.workers]  # fmt: skip
    accepted, served = _total(trial, "accepted"), _total(trial, "served")
    if accepted:
        for metric in (ACCEPT_ATTEMPTS, ACCEPT_FAILURES):
            yield MetricValues(metric, None, {"per_connection": _total(trial, metric.name) / accepted})
    computed_s = [after.processor_s - before.processor_s for _, before, after in servers
                  if before.processor_s is not None and after.processor_s is not None]  # fmt: skip
    if computed_s and served:
        yield MetricValues(PROCESSOR, None, {"per_request": sum(computed_s) / (served / 1000)})
    stopped_s = [after.throttled_s - before.throttled_s for _, before, after in servers
                 if before.throttled_s is not None and after.throttled_s is not None]  # fmt: skip
    if stopped_s and trial.record.seconds.load:
        yield MetricValues(THROTTLED, None, {"share": sum(stopped_s) / trial.record.seconds.load})
    if memory_mib := [after.memory_mib for *_, after in servers if after.memory_mib is not None]:
        yield MetricValues(MEMORY, None, {"total": sum(memory_mib)})
    logs = trial.record.logs
    output = [_printed_bytes(logs[name], before, after) for name, before, after in servers if name in logs]
    if output and served:
        yield MetricValues(OUTPUT, None, {"per_request": sum(output) / served})
    sums = Counter[str]()  # what monitoring saw of servers with the probe
    for _name, before, after in servers:
        sums.update(after.signals)
        sums.subtract(before.signals)
    parts = {"backlog": ("backlog", "samples"), "busy": ("busy", "threads"), "waits": ("avoidable", "known")}
    yield MetricValues(SIGNALS, None, {stat: sums[part] / sums[of] for stat, (part, of) in parts.items() if sums[of]})


def _printed_bytes(log: ContainerLog, before: Observation, after: Observation) -> int:
    """Return how many bytes a container printed; or, if its log is cut, about how many."""
    if not log.cut:
        return max(log.kept - log.before, 0)
    if before.written is None or after.written is None or before.sent is None or after.sent is None:
        return log.kept
    # some servers write() their answers, too, so what the container sent is left out
    return max(log.kept, after.written - before.written - (after.sent - before.sent))


def _total(trial: TrialData, counter: str) -> int:
    return sum(counted_by_worker(trial.containers, counter).values())


def counter_rows(trials: Iterable[TrialData]) -> Iterator[CounterRow]:
    """Yield the counters of each worker in each trial; the workers of a trial are sorted by name."""
    for trial in trials:
        names = {name for each in trial.containers if each.after for of in each.after.counts.values() for name in of}
        by_name = {name: counted_by_worker(trial.containers, name) for name in sorted(names)}
        for worker in sorted({worker for by_worker in by_name.values() for worker in by_worker}):
            counts = {name: by_worker[worker] for name, by_worker in by_name.items() if worker in by_worker}
            yield CounterRow(**of_trial(trial.key), worker=worker, counts=counts)


def _issues(trial: TrialData) -> Iterator[ValidityIssue]:
    """Yield where counts disagree, and where the servers were not what the variant asks for.

    That a listen queue overflowed or a limit slowed a container is a finding if the load asks for too much, or while
    workers are replaced; a limit also if requests compute.
    """
    yield from _counts(trial)
    for container in trial.containers:
        if container.before is None or container.after is None:
            when = "before" if container.before is None else "after"
            yield "suspect", f"{container.name} was not observed {when} the load"
    yield from _changed_workers(trial)
    yield from _overflows(trial)
    yield from _limits(trial)
    yield from _wrong_sockets(trial)
    yield from _wrong_workers(trial)
    yield from _cut_logs(trial)


def _is_expected(trial: TrialData) -> bool:
    return trial.load.overloads or trial.variant.is_replaced


def _overflows(trial: TrialData) -> Iterator[ValidityIssue]:
    for name, before, after in observed(trial.containers):
        if full := after.listen_overflows - before.listen_overflows:
            severity: Severity = "note" if _is_expected(trial) or own_workers_ended(trial) else "suspect"
            yield severity, f"the listen queue of {name} was full for {full} connections"


def _limits(trial: TrialData) -> Iterator[ValidityIssue]:
    lasted_s = trial.record.seconds.load
    for name, before, after in observed(trial.containers):
        throttled_s = (after.throttled_s or 0) - (before.throttled_s or 0)
        if lasted_s and throttled_s > THROTTLED_ALLOWED * lasted_s:
            severity: Severity = "suspect" if trial.run.sleeping and not _is_expected(trial) else "note"
            yield severity, f"{name} was kept from computing by its limit for {throttled_s:.1f} s"


def _wrong_sockets(trial: TrialData) -> Iterator[ValidityIssue]:
    for name, before, _ in observed(trial.containers) if trial.variant.accept in ("shared", "per-worker") else ():
        held = [before.holds[worker] for worker in before.workers]
        sockets = frozenset[int]().union(*held)
        right = len(sockets) == 1 and all(mine == sockets for mine in held)
        wanted = "one socket that all share"
        if trial.variant.accept == "per-worker":
            right = all(len(mine) == 1 for mine in held) and len(sockets) == len(held)
            wanted = "a socket of their own each"
        if held and not right:
            count = plural(len(sockets), "listening socket")
            yield "invalid", f"the workers of {name} hold {count}, not {wanted}"


def _wrong_workers(trial: TrialData) -> Iterator[ValidityIssue]:
    seen, asked = [*observed(trial.containers)], trial.variant.workers
    served = sum(len(before.workers) for _, before, _ in seen)
    most = max(served, sum(len(after.workers) for *_, after in seen))
    if trial.variant.elastic and most > asked:
        yield "invalid", f"{most} workers served where at most {asked} were asked for"
    if not trial.variant.elastic and served and served != asked:  # those of an own service may have ended before
        had_all = trial.load.is_of_user_service and sum(len(before.counts) for _, before, _ in seen) >= asked
        yield "note" if had_all else "invalid", f"{served} workers served where {asked} were asked for"


def _cut_logs(trial: TrialData) -> Iterator[ValidityIssue]:
    written = {container.name: container.after.written or 0 for container in trial.containers if container.after}
    for name, log in trial.record.logs.items():
        if log.cut:
            total = written.get(name, 0)
            there = f"the last {megabytes(log.kept)}" + (f" of about {megabytes(total)}" * (total > log.kept))
            yield "note", f"the beginning of the log of {name} is missing: {there} are kept"


def _counts(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that the load generators, the balancer and the workers counted the same requests.

    If no request failed, the counts must be equal. The load generators cannot know how far a failed request got; so if
    some requests failed, the other counts must lie between the number of requests sent and the number answered. If the
    variant has no balancer, only the counts of the load generators and of the workers are compared. If the load kills
    workers, or workers of somebody's own service ended, a difference is suspect and not invalid, because a worker may
    die before it counts its last answer.
    """
    requests = trial.requests
    asked_directly = trial.variant.settings.get("balancer") == "none"
    passed = requests.sent - requests.direct_sent if asked_directly else balanced(trial.containers)
    by_worker = counted_by_worker(trial.containers, "served")
    wrong: Severity = "suspect" if trial.load.crashes or own_workers_ended(trial) else "invalid"
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


def own_workers_ended(trial: TrialData) -> bool:
    """Whether workers of somebody's own service came or went during the load, which is a finding about the service."""
    return trial.load.is_of_user_service and any(
        before.workers != after.workers or (after.counts.keys() - before.counts.keys() - after.workers)
        for _, before, after in observed(trial.containers)
    )


def _changed_workers(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that no worker came or went, unless a request kills its worker or the server is elastic.

    An elastic server remembers workers that died, so their counts are there. Workers of somebody's own service may end
    as they do at home, so that is a note.
    """
    is_own = trial.load.is_of_user_service
    severity: Severity = "note" if trial.load.crashes or is_own else "invalid"
    for name, before, after in observed(trial.containers):
        memory = " (out of memory)" if (after.out_of_memory or 0) > (before.out_of_memory or 0) else ""
        if trial.variant.elastic or is_own:
            started = (after.workers | after.counts.keys()) - before.workers - before.counts.keys()
            ended = (before.workers | started) - after.workers
            for problem in [] if is_own else _unintended(trial, before, after, ended):
                yield "invalid", f"{name}: {problem}"
            if started or ended:
                counts = f"started {len(started)} and ended {len(ended)}"
                yield "note", f"{name} {counts} workers during the load{memory}"
            continue
        if lost := before.workers - after.workers:
            yield severity, f"{name} lost {_named(lost)} during the load{memory}"
        if new := after.workers - before.workers:
            yield severity, f"{name} started {_named(new)} during the load"


def _unintended(trial: TrialData, before: Observation, after: Observation, ended: set[int]) -> Iterator[str]:
    """Yield which workers ended otherwise than the variant replaces them, and which its signal did not replace."""
    if not trial.variant.is_replaced:
        return
    limit, signal = trial.variant.settings.get("max_requests") or 0, trial.variant.signal
    if (after.out_of_memory or 0) > (before.out_of_memory or 0):
        yield "a worker ran out of memory"
    early = {worker for worker in ended if after.counts.get(worker, {}).get("served", 0) < limit}
    if early and not signal:
        yield f"{_named(early)} ended before its limit of {limit} requests"
    if signal and (kept := before.workers & after.workers):
        yield f"{signal} did not replace {_named(kept)}"
    if signal and not limit and (others := ended - before.workers):
        yield f"{_named(others)} ended, and not by {signal}"


def megabytes(size: float) -> str:
    """Return a number of bytes as megabytes; below 0.1 MB, as kilobytes."""
    value, unit = (size / 1e6, "MB") if size >= 1e5 else (size / 1e3, "kB")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def _named(workers: set[int]) -> str:
    return f"{noun_for(len(workers), 'worker')} {', '.join(map(str, sorted(workers)))}"


FAMILY = Family(observe=_observe, issues=_issues)

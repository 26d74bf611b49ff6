"""Which requests waited for a worker whose threads were all busy, while another worker had a free thread.

Not only the metrics follow from it, but also the pictures of the waits, and diagnoses.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from statistics import fmean

import duckdb
import numpy as np
import numpy.typing as npt

from stampede.evaluate.metrics import AVOIDABLE_WAIT, RECOVERY
from stampede.evaluate.metrics.likely import blocks, likely_share
from stampede.evaluate.metrics.metric import Family, MetricValues, ValidityIssue
from stampede.evaluate.read.observation import stalls_within
from stampede.evaluate.read.requests import Bools, Requests, read_requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord

FROM_S = 0.050
"""A request counts if it waited beside a free thread for longer than this in all. Even if no request has to queue, the
short gaps between one request and the next add up to some hundredths of a second."""
NOTICED_S = 0.010
"""After a stall, a request counts as waiting for a thread if its work begins more than this long after it was sent."""

Times = npt.NDArray[np.float64]
Segments = npt.NDArray[np.float64]
"""Pairs of start and end, in order and without overlap."""
NEVER: Segments = np.empty((0, 2))


@dataclass(frozen=True)
class Answered:
    """The answered requests of one trial, in the order of sending; times are seconds since the first request was sent.

    ``workers`` are the workers that served a request. ``worker`` and ``request_class`` are indexes into ``workers`` and
    ``classes``. ``first`` and ``last_sent`` are when the first and the last request were sent, and ``last`` is when the
    last answer came, in epoch seconds.
    """

    workers: list[str]
    classes: list[str]
    first: float
    last: float
    last_sent: float
    worker: npt.NDArray[np.int64]
    request_class: npt.NDArray[np.int64]
    sent_s: Times
    began_s: Times
    ended_s: Times


@dataclass(frozen=True)
class Waits:
    """How long each answered request waited beside a free thread, and when workers were blocked.

    ``own_s`` is how long they waited while all threads of their own worker were busy. ``blocked`` says for each worker
    when all its threads were busy while another worker had a free thread.
    """

    beside_s: Times
    blocked: list[Segments]
    own_s: Times


def read_answered(database: duckdb.DuckDBPyConnection, variant: str, load: str, trial: int) -> Answered:
    """Read the answered requests of a trial from the view ``requests``."""
    return answered_of(read_requests(database, (variant, load, trial)))[1]


def answered_of(requests: Requests) -> tuple[Bools, Answered]:
    """Return which requests of a trial were answered by a worker that is known, and these requests."""
    known = requests.answered & (requests.worker >= 0) & np.isfinite(requests.began_s + requests.ended_s)
    workers, worker = np.unique(requests.worker[known], return_inverse=True)
    classes, request_class = np.unique(requests.of_class[known], return_inverse=True)
    sent_us, first = requests.sent_us, float(requests.sent_us.min()) / 1e6 if len(known) else 0.0
    return known, Answered(
        workers=[requests.workers[place] for place in workers],
        classes=[requests.classes[place] for place in classes],
        first=first,
        last=float(np.fmax(sent_us, requests.answered_us).max(initial=0.0)) / 1e6,
        last_sent=float(sent_us.max(initial=0.0)) / 1e6,
        worker=worker,
        request_class=request_class,
        sent_s=sent_us[known] / 1e6 - first,
        began_s=requests.began_s[known] - first,
        ended_s=requests.ended_s[known] - first,
    )


def waits_of_variant(variant: VariantRecord, answered: Answered) -> Waits | None:
    """Return which requests waited in a trial of a variant; None: this is unknown.

    The number of threads is unknown if the server is elastic, unless workers are only replaced, or if several workers
    do not say it. With a single worker, no request waits beside a free thread.
    """
    if variant.elastic and not variant.is_replaced:
        return None
    if variant.threads:
        return avoidable_waits(answered, variant.workers, variant.threads, replaced=variant.is_replaced)
    if variant.workers > 1:
        return None
    return Waits(np.zeros_like(answered.sent_s), [NEVER for _ in answered.workers], np.zeros_like(answered.sent_s))


def avoidable_waits(answered: Answered, workers: int, threads: int, *, replaced: bool = False) -> Waits:
    """Return which requests waited beside a free thread, if there are ``workers`` workers of ``threads`` threads each.

    A worker is busy while it works on as many requests as it has threads; one that served nothing is never busy. So a
    request waited for as long as its worker was busy between its sending and the beginning of its work, minus how long
    all workers were busy in that time. If workers are ``replaced``, a worker surely has a free thread only between its
    first request and its last one.
    """
    each = np.cumsum(np.bincount(answered.worker, minlength=len(answered.workers)))
    mine = np.split(np.argsort(answered.worker, kind="stable"), each[:-1])
    busy = [at_least(threads, answered.began_s[own], answered.ended_s[own]) for own in mine]
    away = []
    if replaced:  # the time before a worker's first request and after its last one
        workers, first_s = len(busy), min(answered.sent_s.min(initial=np.inf), answered.began_s.min(initial=np.inf))
        last_s = answered.ended_s.max(initial=0.0)
        away = [[[first_s, answered.began_s[own].min()], [answered.ended_s[own].max(), last_s]] for own in mine]
    every = np.concatenate([NEVER, *busy, *away])
    all_busy = at_least(max(workers, len(busy)), every[:, 0], every[:, 1])
    beside_s, own_s = np.zeros_like(answered.sent_s), np.zeros_like(answered.sent_s)
    for own, segments in zip(mine, busy, strict=True):
        sent_s, began_s = answered.sent_s[own], answered.began_s[own]
        others = at_least(2, *np.concatenate([segments, all_busy]).T) if replaced else all_busy  # it may be away, too
        own_s[own] = time_in(segments, sent_s, began_s)
        waited_s = own_s[own] - time_in(others, sent_s, began_s)
        beside_s[own] = np.maximum(waited_s.round(6), 0)  # microseconds, as precise as the times are
    besides = np.concatenate([[-np.inf], all_busy.ravel(), [np.inf]]).reshape(-1, 2)  # the time outside
    both = [np.concatenate([segments, besides]) for segments in busy]
    return Waits(beside_s, [at_least(2, every[:, 0], every[:, 1]) for every in both], own_s)


def waits_in_line_s(answered: Answered, threads: int) -> Times:
    """Return how long each request would wait if ``threads`` threads took all requests from one queue.

    The requests come at the same times and work for as long. In a closed loop, they would come sooner, so this is the
    least that they would wait.
    """
    free_s = [-math.inf] * threads
    began_s = np.empty_like(answered.sent_s)
    for place, (sent_s, work_s) in enumerate(zip(answered.sent_s, answered.ended_s - answered.began_s, strict=True)):
        began_s[place] = max(sent_s, free_s[0])
        heapreplace(free_s, began_s[place] + max(0.0, work_s))
    return began_s - answered.sent_s


def wait_statistics(beside_s: Times) -> dict[str, float]:
    """Return the statistics of how long requests waited beside a free thread; empty if there is no request."""
    if not beside_s.size:
        return {}
    count = int((beside_s > FROM_S).sum())
    return {
        "count": count,
        "share": count / beside_s.size,
        "total": 1000 * math.fsum(beside_s.tolist()),
        "max": 1000 * float(beside_s.max()),
    }


def recoveries_s(answered: Answered, stalls: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Yield for each stall (epoch seconds) how long after its end at least one request still waited for a thread.

    A request waits from when it was sent to when its work begins. A wait of up to NOTICED_S does not count.
    """
    noticed = answered.began_s - answered.sent_s > NOTICED_S
    sent_s, began_s = answered.sent_s[noticed], answered.began_s[noticed]
    for _, ended in stalls:
        ended_s = until_s = ended - answered.first
        while (waiting := (sent_s <= until_s) & (began_s > until_s)).any():
            until_s = float(began_s[waiting].max())
        yield round(until_s - ended_s, 6)


def at_least(count: int, starts: Times, ends: Times) -> Segments:
    """Return when at least ``count`` of the intervals are open; an interval includes its start, but not its end."""
    times = np.concatenate([starts, np.maximum(starts, ends)])
    changes = np.repeat([1, -1], len(starts))
    order = np.argsort(times, kind="stable")  # starts come before ends at the same time, so there is no gap
    enough = np.cumsum(changes[order]) >= count
    turns = np.flatnonzero(np.diff(enough, prepend=False))
    segments = times[order][turns].reshape(-1, 2)
    return segments[segments[:, 1] > segments[:, 0]]


def time_in(segments: Segments, starts: Times, ends: Times) -> Times:
    """Return how much of each interval lies within the segments; 0 if the interval ends before it starts."""
    if not len(segments):
        return np.zeros_like(starts)
    lengths = segments[:, 1] - segments[:, 0]
    passed = np.stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)], axis=1)
    until = [np.interp(times, segments.ravel(), passed.ravel()) for times in (starts, np.maximum(starts, ends))]
    return np.asarray(until[1] - until[0])


def _measure(requests: Requests, variant: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield how long requests of each class waited; nothing if requests kill workers: nobody knows who is there."""
    if load.crashes:
        return
    known, answered = answered_of(requests)
    if waits := waits_of_variant(variant, answered):
        in_blocks = not (requests.simulated or load.burst)
        for request_class, mine in requests.each_class():
            beside_s, likely = waits.beside_s[mine[known]], {}
            if in_blocks:
                likely["share"] = likely_share(beside_s > FROM_S, blocks(answered.sent_s[mine[known]]))
            yield MetricValues(AVOIDABLE_WAIT, request_class, wait_statistics(beside_s), likely)


def _observe(trial: TrialData, requests: Requests, _: duckdb.DuckDBPyConnection) -> Iterator[MetricValues]:
    """Yield how long the servers took to recover from the stalls of a service that they call."""
    if _has_stalls(trial) and not trial.load.crashes:
        answered = answered_of(requests)[1]
        stalls = stalls_within(trial.containers, answered.first, answered.last_sent)
        if found_s := list(recoveries_s(answered, stalls)):
            yield MetricValues(RECOVERY, None, {"avg": 1000 * fmean(found_s), "max": 1000 * max(found_s)})


CLEAR = 0.1
"""Clocks of several machines must be known to within this part of the shortest wait that counts."""


def _has_stalls(trial: TrialData) -> bool:
    return any(container.after and container.after.stalls for container in trial.containers)


def _issues(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that the clocks of several machines are known well enough to tell which requests waited."""
    clocks = trial.raw.clocks
    if clocks is None or clocks.worst is None:
        return
    asking, serving, within_s = clocks.worst
    for from_s, what in ((FROM_S, "a wait counts"), (NOTICED_S, "a wait after a stall counts")):
        if within_s > CLEAR * from_s and (from_s == FROM_S or _has_stalls(trial)):
            known = f"the clocks of {asking} and {serving} are known to within {1000 * within_s:.1f} ms of each other"
            yield "suspect", f"{known}, but {what} from {1000 * from_s:.0f} ms on"


FAMILY = Family(_measure, _observe, _issues)

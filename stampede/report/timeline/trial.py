"""What the timeline shows of one trial: when each request was sent, and which thread was at work on it."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.workers import labels
from stampede.evaluate.read import Key
from stampede.records.plural import plural
from stampede.records.run import VariantRecord
from stampede.report.timeline.rows import (
    TimelineRequest,
    in_tenths,
    lasted_s,
    read_timeline,
    request_columns,
    thread_rows,
)
from stampede.report.wording import number, percent

NEVER: waiting.Segments = np.empty((0, 2))


class TimelineTrial(NamedTuple):
    """A trial whose requests were read, in the order of sending, and how long they had to wait."""

    variant: VariantRecord
    key: Key
    rows: list[TimelineRequest]
    answered: waiting.Answered
    waits: waiting.Waits | None

    @property
    def longest_wait_at_s(self) -> float:
        """When the request was sent that waited longest, in seconds."""
        return max(self.rows, key=lambda row: row.waited_s).sent_s if self.rows else 0.0


def read_timeline_trial(
    database: duckdb.DuckDBPyConnection, variant: VariantRecord, load: str, number: int
) -> TimelineTrial:
    """Read the requests of a trial from the view ``requests``."""
    key = (variant.name, load, number)
    answered = waiting.read_answered(database, *key)
    return TimelineTrial(
        variant, key, read_timeline(database, key), answered, waiting.waits_of_variant(variant, answered)
    )


@dataclass(frozen=True)
class WorkerLane:
    """A worker, with what it did during the whole trial; ``rows`` is how many rows its lane has."""

    name: str
    rows: int
    served: int
    longest_wait: int | None
    blocked: int | None


@dataclass(frozen=True)
class TrialTimeline:
    """One trial, as ``trial.js`` reads it. Times are whole tenths of a millisecond: short as text, finer than a screen.

    A lane has a row for each thread, or, if a thread works on several requests at once, for each request under way.
    ``blocked`` says for each worker when all its threads were busy while another worker had a free thread; None: that
    is unknown. ``stalls`` says when the service that the servers call answered nobody. Both are differences between
    begins and ends. ``window`` is from and to when requests are shown; None: all requests are shown. ``avoidable`` is
    how many requests waited while another worker had a free thread; if they are all of one class, among several
    classes, this is ``avoidable_class``.
    """

    variant: str
    trial: int
    computed: bool
    says: str
    layout: str
    threads: int | None
    of_threads: bool
    lasted: int
    window: list[int] | None
    workers: list[WorkerLane]
    blocked: list[list[int]] | None
    stalls: list[int]
    classes: list[str]
    requests: dict[str, list[Any]]
    answered: int
    avoidable: int | None
    avoidable_class: str | None

    def to_json(self) -> dict[str, Any]:
        """Return what the script reads."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"workers": [asdict(worker) for worker in self.workers]}


def trial_timeline(
    trial: TimelineTrial, shown: Sequence[int] | None, stalls_s: waiting.Segments, *, computed: bool = False
) -> TrialTimeline:
    """Return what is shown of a trial that was measured or ``computed``.

    ``shown`` are the indices of the requests that are shown; None: all.
    """
    rows, waits, variant = trial.rows, trial.waits, trial.variant
    names = labels(row.worker for row in rows if row.worker is not None)
    places, of_threads = thread_rows(rows, trial.variant.threads)
    classes = list(dict.fromkeys(row.request_class for row in rows))
    indices = range(len(rows)) if shown is None else shown
    sent_s = [rows[i].sent_s for i in indices]
    by_worker = dict(zip(trial.answered.workers, trial.waits.blocked, strict=True)) if trial.waits else {}
    idle = 0 if trial.variant.elastic else max(0, trial.variant.workers - len(names))
    served = {name: by_worker.get(worker, NEVER) for worker, name in names.items()}
    blocked = served | {f"idle worker {place}": NEVER for place in range(1, idle + 1)}
    return TrialTimeline(
        variant=variant.name,
        trial=trial.key[2],
        computed=computed,
        says=_says(trial),
        layout=_layout(trial),
        threads=trial.variant.threads if waits else None,
        of_threads=of_threads,
        lasted=in_tenths(lasted_s(rows)),
        window=None if shown is None else [in_tenths(min(sent_s)), in_tenths(max(sent_s))],
        workers=list(_worker_lanes(trial, places, blocked, least=(trial.variant.threads or 1) if of_threads else 1)),
        blocked=[_turns(segments) for segments in blocked.values()] if waits else None,
        stalls=_turns(stalls_s - trial.answered.first),
        classes=classes,
        requests=request_columns(rows, places, list(names), classes, indices),
        answered=sum(row.error is None for row in rows),
        avoidable=int(waiting.wait_statistics(waits.beside_s).get("count", 0)) if waits else None,
        avoidable_class=_avoidable_class(trial),
    )


def window(rows: Sequence[TimelineRequest], most: int, around_s: float) -> list[int] | None:
    """Return the indices of at most so many requests: those sent around a time, and those then under way.

    None: there are no more requests than that.
    """
    if len(rows) <= most:
        return None
    middle = bisect_left([row.sent_s for row in rows], around_s)
    first = min(max(0, middle - most // 2), len(rows) - most)
    under_way = [i for i in range(first) if (rows[i].answered_s or 0.0) > rows[first].sent_s]
    return [*under_way, *range(first, first + most)]


def _worker_lanes(
    trial: TimelineTrial, places: Sequence[int], blocked: dict[str, waiting.Segments], least: int
) -> Iterator[WorkerLane]:
    """Yield each worker with at least so many rows, in the order of ``blocked``."""
    names = labels(row.worker for row in trial.rows if row.worker is not None)
    mine: dict[str, list[tuple[TimelineRequest, int]]] = {name: [] for name in blocked}
    for row, place in zip(trial.rows, places, strict=True):
        if row.worker is not None:
            mine[names[row.worker]].append((row, place))
    for name, served in mine.items():
        longest_s = max((row.waited_s for row, _ in served), default=None)
        blocked_s = float((blocked[name][:, 1] - blocked[name][:, 0]).sum())
        yield WorkerLane(
            name=name,
            rows=max([least, *(place + 1 for _, place in served)]),
            served=len(served),
            longest_wait=None if longest_s is None else in_tenths(longest_s),
            blocked=in_tenths(blocked_s) if trial.waits else None,
        )


def _avoidable_class(trial: TimelineTrial) -> str | None:
    waits, answered = trial.waits, trial.answered
    if waits is None or len(answered.classes) < 2:
        return None
    found = {answered.classes[place] for place in answered.request_class[waits.beside_s > waiting.FROM_S]}
    return found.pop() if len(found) == 1 else None


def _layout(trial: TimelineTrial) -> str:
    """Return in words how many workers a variant has, and how many threads; empty if they come and go."""
    if trial.variant.elastic or trial.variant.threads is None:
        return ""
    return f"{plural(trial.variant.workers, 'worker')} of {plural(trial.variant.threads, 'thread')}"


def _says(trial: TimelineTrial) -> str:
    """Return in words how many requests had an avoidable wait, and how many failed."""
    failed = sum(row.error is not None for row in trial.rows)
    parts = [f"{failed} of {len(trial.rows)} requests failed"] if failed else []
    if trial.waits is not None:
        stats = waiting.wait_statistics(trial.waits.beside_s)
        some, longest = "no request", ""
        if stats.get("count"):
            some = f"{stats['count']} of {len(trial.waits.beside_s)} requests"
            longest = f", the longest for {number(stats['max'] / 1000)} s"
        parts.insert(0, f"{some} waited while another worker had a free thread{longest}")
        waited = sum(row.waited_s > waiting.FROM_S for row in trial.rows if row.answered_s is not None)
        if waited != stats.get("count", 0):
            of = len(trial.waits.beside_s)
            parts.insert(1, f"in all, {waited} of {of} ({percent(waited / of)}) waited for more than 50 ms")
    return "; ".join(parts) or f"{len(trial.rows)} requests"


def _turns(segments: waiting.Segments) -> list[int]:
    """Return the differences between begins and ends, in tenths of a millisecond."""
    times = np.round(segments.ravel() * 10_000).astype(int)
    steps: list[int] = np.diff(times, prepend=0).tolist()
    return steps

"""What the timeline shows of one trial: when each request was sent, and which thread was at work on it."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.workers import labels
from stampede.predict.lanes import LaneRequest, LaneTrial
from stampede.records.words import plural
from stampede.report.wording import number, percent


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
    ``blocked`` (when all threads of each worker were busy while another worker had a free one; None: unknown) and
    ``stalls`` (when a called service answered nobody) are differences between begins and ends. ``window``: not all
    requests are shown. ``avoidable`` requests waited avoidably; if all are of one class of several, it is named.
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
        return {**vars(self), "workers": [asdict(worker) for worker in self.workers]}


def trial_timeline(trial: LaneTrial, most: int, around_s: float) -> TrialTimeline:
    """Return what is shown of a trial: at most so many requests, around a time, and those that were then under way."""
    variant, rows, answered, waits = trial.variant, trial.rows, trial.answered, trial.waits
    indices, window = [*range(len(rows))], None
    if len(rows) > most:
        middle = bisect_left([row.sent_s for row in rows], around_s)
        first = min(max(0, middle - most // 2), len(rows) - most)
        under_way = [i for i in range(first) if (rows[i].answered_s or 0.0) > rows[first].sent_s]
        indices = [*under_way, *range(first, first + most)]
        sent_s = [rows[i].sent_s for i in indices]
        window = [_in_tenths(min(sent_s)), _in_tenths(max(sent_s))]
    names = labels(row.worker for row in rows if row.worker is not None)
    idle = 0 if variant.elastic else max(0, variant.workers - len(names))
    by_worker = dict(zip(answered.workers, waits.blocked, strict=True)) if waits else {}
    blocked = {name: by_worker.get(worker, waiting.NEVER) for worker, name in names.items()}
    blocked |= {f"idle worker {place}": waiting.NEVER for place in range(1, idle + 1)}
    places, of_threads = thread_rows(rows, variant.threads)
    served: dict[str, list[tuple[LaneRequest, int]]] = {name: [] for name in blocked}
    for row, place in zip(rows, places, strict=True):
        if row.worker is not None:
            served[names[row.worker]].append((row, place))
    least = (variant.threads or 1) if of_threads else 1
    workers = [
        WorkerLane(
            name=name,
            rows=max([least, *(place + 1 for _, place in mine)]),
            served=len(mine),
            longest_wait=max((_in_tenths(row.waited_s) for row, _ in mine), default=None),
            blocked=_in_tenths(float((blocked[name][:, 1] - blocked[name][:, 0]).sum())) if waits else None,
        )
        for name, mine in served.items()
    ]
    classes = list(dict.fromkeys(row.request_class for row in rows))
    stats = waiting.wait_statistics(waits.beside_s) if waits else {}
    avoidable = {*answered.request_class[waits.beside_s > waiting.FROM_S].tolist()} if waits else set()
    only = answered.classes[avoidable.pop()] if len(avoidable) == 1 and len(answered.classes) > 1 else None
    lasted_s = max((row.sent_s if row.answered_s is None else row.answered_s for row in rows), default=0.0)
    known = not variant.elastic and variant.threads is not None
    return TrialTimeline(
        variant=variant.name,
        trial=trial.key[2],
        computed=trial.computed,
        says=_says(trial, stats),
        layout=f"{plural(variant.workers, 'worker')} of {plural(variant.threads or 0, 'thread')}" if known else "",
        threads=variant.threads if waits else None,
        of_threads=of_threads,
        lasted=_in_tenths(lasted_s),
        window=window,
        workers=workers,
        blocked=[_turns(segments) for segments in blocked.values()] if waits else None,
        stalls=_turns(trial.stalls_s - answered.first),
        classes=classes,
        requests=_request_columns(rows, places, [*names], classes, indices, _in_tenths(lasted_s)),
        answered=sum(row.error is None for row in rows),
        avoidable=int(stats.get("count", 0)) if waits else None,
        avoidable_class=only,
    )


def thread_rows(rows: Sequence[LaneRequest], threads: int | None) -> tuple[list[int], bool]:
    """Return the row of each request at its worker, and whether a row is a thread.

    A row is a thread unless any thread works on several requests at once, as an event loop does; a request then has the
    first free row. If a pool has replaced threads, a new thread gets the row that has been free for the longest time.
    """
    order = sorted((i for i, row in enumerate(rows) if row.worker is not None), key=lambda i: rows[i].began_s or 0.0)
    until: dict[tuple[str | None, int], float] = {}
    of_threads = True
    for i in order:
        key = rows[i].worker, rows[i].thread
        of_threads &= (rows[i].began_s or 0.0) >= until.get(key, 0.0) - _AT_ONCE_S
        until[key] = max(until.get(key, 0.0), rows[i].ended_s or 0.0)
    found = [0] * len(rows)
    places: dict[tuple[str | None, int], int] = {}
    ends: dict[str | None, list[float]] = {}
    for i in order:
        row, mine = rows[i], ends.setdefault(rows[i].worker, [])
        began_s, key = row.began_s or 0.0, (rows[i].worker, rows[i].thread)
        if of_threads and key not in places:
            full = threads is not None and len(mine) >= threads
            places[key] = mine.index(min(mine)) if full else len(mine)
        free = next((place for place, end in enumerate(mine) if end <= began_s), len(mine))
        found[i] = places[key] if of_threads else free
        mine[found[i] : found[i] + 1] = [row.ended_s or 0.0]
    return found, of_threads


_AT_ONCE_S = 0.001
"""Two requests that a thread works on overlap by more than this; less may be the clock's."""
_NAMES = ("number", "sent", "wait", "work", "back", "class", "worker", "row", "connect", "asked", "error")


def _request_columns(
    rows: Sequence[LaneRequest], places: Sequence[int], workers: Sequence[str], classes: Sequence[str],
    shown: Iterable[int], last: int,
) -> dict[str, list[Any]]:  # fmt: skip
    """Return the requests at the indices ``shown`` as columns for the script: differences, which are short as text.

    ``number`` and ``sent`` are differences to the request before; ``wait``, ``work`` and ``back`` follow each other. A
    request that failed has worker -1, and its ``wait`` ends when it failed. ``last`` is when the trial ended.
    """
    columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
    errors: dict[str, int] = {}
    before, number_before = 0, 0
    for i in shown:
        row = rows[i]
        sent = _in_tenths(row.sent_s)
        answered = last if row.answered_s is None else _in_tenths(row.answered_s)
        began, ended = (
            answered if row.worker is None or time is None else _in_tenths(time) for time in (row.began_s, row.ended_s)
        )
        values = (
            i + 1 - number_before, sent - before, began - sent, ended - began, answered - ended,
            classes.index(row.request_class), -1 if row.worker is None else workers.index(row.worker), places[i],
            round(10 * row.connect_ms), round(10 * row.service_time_ms),
            -1 if row.error is None else errors.setdefault(row.error, len(errors)),
        )  # fmt: skip
        before, number_before = sent, i + 1
        for name, value in zip(_NAMES, values, strict=True):
            columns[name].append(value)
    return columns | {"errors": list(errors)}


def _says(trial: LaneTrial, stats: dict[str, float]) -> str:
    parts = []
    if trial.waits is not None:
        some, longest, of = "no request", "", len(trial.waits.beside_s)
        if stats.get("count"):
            some = f"{stats['count']} of {of} requests"
            longest = f", the longest for {number(stats['max'] / 1000)} s"
        parts.append(f"{some} waited while another worker had a free thread{longest}")
        waited = sum(row.waited_s > waiting.FROM_S for row in trial.rows if row.answered_s is not None)
        if waited != stats.get("count", 0):
            parts.append(f"in all, {waited} of {of} ({percent(waited / of)}) waited for more than 50 ms")
    if failed := sum(row.error is not None for row in trial.rows):
        parts.append(f"{failed} of {len(trial.rows)} requests failed")
    return "; ".join(parts) or f"{len(trial.rows)} requests"


def _turns(segments: waiting.Segments) -> list[int]:
    """Return the differences between begins and ends, in tenths of a millisecond."""
    times = np.round(segments.ravel() * 10_000).astype(int)
    steps: list[int] = np.diff(times, prepend=0).tolist()
    return steps


def _in_tenths(seconds: float) -> int:
    return round(10_000 * seconds)

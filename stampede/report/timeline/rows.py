"""The requests of a trial as the timeline has them: read from the rows, given rows of a lane, and put into columns."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import duckdb

from stampede.evaluate.read import OF_TRIAL, Key, of_trial


class TimelineRequest(NamedTuple):
    """One request of a trial; its times count from when the first request was sent."""

    request_class: str
    sent_s: float
    began_s: float | None
    ended_s: float | None
    answered_s: float | None
    connect_ms: float
    service_time_ms: float
    worker: str | None
    thread: int
    error: str | None

    @property
    def waited_s(self) -> float:
        """How long the request waited for a thread."""
        return (self.began_s or self.sent_s) - self.sent_s


def read_timeline(database: duckdb.DuckDBPyConnection, key: Key) -> list[TimelineRequest]:
    """Return the requests of a trial in the order of sending."""
    return [TimelineRequest(*row) for row in database.execute(_ROWS, of_trial(key)).fetchall()]


_ROWS = f"""
WITH trial AS (FROM requests WHERE {OF_TRIAL}), start AS (SELECT epoch(min(sent)) AS first FROM trial)
SELECT request_class, epoch(sent) - first, began - first, ended - first, epoch(answered) - first,
    greatest(coalesce(blocked_ms, 0), coalesce(connecting_ms, 0)), service_time_ms,
    CASE WHEN error IS NULL AND began IS NOT NULL AND ended IS NOT NULL THEN worker END,
    coalesce(thread, 0), error
FROM trial, start ORDER BY sent, id, generator
"""  # noqa: S608  # made of this module's own constants


def thread_rows(rows: Sequence[TimelineRequest], threads: int | None) -> tuple[list[int], bool]:
    """Return the row of each request at its worker, and whether a row is a thread.

    A row is a thread unless a thread of any worker works on several requests at once, as an event loop does. A request
    then gets the first row that is free. If a worker has had more than ``threads`` threads, because its pool ended some
    and started others, a new thread gets the row that has been free for the longest time.
    """
    order = sorted((i for i, row in enumerate(rows) if row.worker is not None), key=lambda i: rows[i].began_s or 0.0)
    found = [0] * len(rows)
    of_threads = not _overlap(rows, order)
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


def _overlap(rows: Sequence[TimelineRequest], order: Iterable[int]) -> bool:
    """Return whether any thread works on two requests at once; ``order`` is that of their begin."""
    until: dict[tuple[str | None, int], float] = {}
    for i in order:
        key = rows[i].worker, rows[i].thread
        if (rows[i].began_s or 0.0) < until.get(key, 0.0) - _AT_ONCE_S:
            return True
        until[key] = max(until.get(key, 0.0), rows[i].ended_s or 0.0)
    return False


_AT_ONCE_S = 0.001
"""Two requests that a thread works on overlap by more than this; less may be the clock's."""


def request_columns(
    rows: Sequence[TimelineRequest],
    places: Sequence[int],
    workers: Sequence[str],
    classes: Sequence[str],
    shown: Iterable[int],
) -> dict[str, list[Any]]:
    """Return the requests at the indices ``shown`` as columns for the script: differences, which are short as text.

    ``number`` and ``sent`` are differences to the request before; ``wait``, ``work`` and ``back`` are from sent to
    began, from began to ended, and from ended to answered. A request that failed has worker -1, and its ``wait`` ends
    when it failed. ``places`` has the row of each request at its worker.
    """
    columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
    errors: dict[str, int] = {}
    last = in_tenths(lasted_s(rows))
    before, number_before = 0, 0
    for i in shown:
        row = rows[i]
        sent = in_tenths(row.sent_s)
        answered = last if row.answered_s is None else in_tenths(row.answered_s)
        began, ended = (
            answered if row.worker is None or time is None else in_tenths(time) for time in (row.began_s, row.ended_s)
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


_NAMES = ("number", "sent", "wait", "work", "back", "class", "worker", "row", "connect", "asked", "error")


def lasted_s(rows: Iterable[TimelineRequest]) -> float:
    """Return how long the trial lasted, in seconds."""
    return max((row.sent_s if row.answered_s is None else row.answered_s for row in rows), default=0.0)


def in_tenths(seconds: float) -> int:
    """Return seconds as whole tenths of a millisecond."""
    return round(10_000 * seconds)

"""The rows of a worker's lane, and the columns in which the page gets the requests of a trial."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Request(NamedTuple):
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


def rows_of_threads(rows: list[Request], threads: int | None) -> tuple[list[int], bool]:
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


def _overlap(rows: list[Request], order: list[int]) -> bool:
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


def lasted_s(rows: list[Request]) -> float:
    """Return how long the trial lasted, in seconds."""
    return max((row.sent_s if row.answered_s is None else row.answered_s for row in rows), default=0.0)


def columns_of(
    rows: list[Request], thread_rows: list[int], workers: list[str], classes: list[str], shown: Iterable[int]
) -> dict[str, list[Any]]:
    """Return the requests at the places ``shown`` as the columns that ``lanes._of_trial`` describes."""
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
            classes.index(row.request_class), -1 if row.worker is None else workers.index(row.worker), thread_rows[i],
            round(10 * row.connect_ms), round(10 * row.service_time_ms),
            -1 if row.error is None else errors.setdefault(row.error, len(errors)),
        )  # fmt: skip
        before, number_before = sent, i + 1
        for name, value in zip(_NAMES, values, strict=True):
            columns[name].append(value)
    return columns | {"errors": list(errors)}


_NAMES = ("number", "sent", "wait", "work", "back", "class", "worker", "row", "connect", "asked", "error")


def in_tenths(seconds: float) -> int:
    """Return seconds as whole tenths of a millisecond."""
    return round(10_000 * seconds)

"""Many lines of a log at once: a single pattern finds the parts of each line that has the format of the log."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, NamedTuple

from lab.logs.durations import DurationSource
from lab.logs.formats import UNITS, Format, epoch_seconds, id_in, moment_in, seconds_of, worker_of

CHUNK = 1 << 20
"""So many characters of a log are in memory at once, and the rest of their last line."""
SHORTEST_S = 0.0005
"""nginx writes 0.000 for what takes less than half a millisecond."""


class LoggedRequest(NamedTuple):
    """What is taken from a line of a log. ``took_s`` is None if the line has no duration.

    ``worker`` is the worker or the upstream server that answered, if the line names it; ``id`` is the request's id, if
    ids are asked for and the line has one.
    """

    at: float
    method: str
    target: str
    status: int
    took_s: float | None
    worker: str | None = None
    id: str | None = None


def requests_in(texts: IO[str], source: DurationSource, *, identified: bool = False) -> Iterator[LoggedRequest | str]:
    """Yield what is taken from each line, in order; a line that has another format than the log, as it is.

    ``identified``: with the ids of requests, and their times as precisely as the lines have them.
    """
    if not isinstance(source.format, Format):
        yield from texts
        return
    line = source.format.line.pattern.replace("(?P<rest>.*)", source.rest)
    before = r"[^\[\n]*+" if line.startswith(r"\[") else ".*?"
    pattern = re.compile(rf"^(?:{before}(?:{line}).*|(?P<other>.+))$", re.MULTILINE)
    while chunk := texts.read(CHUNK):
        lines = _in_chunk(whole := chunk + texts.readline(), pattern, source, source.format)
        yield from _with_ids(lines, whole) if identified else lines


def _with_ids(lines: Iterator[LoggedRequest | str], chunk: str) -> Iterator[LoggedRequest | str]:
    for line, text in zip(lines, filter(None, chunk.split("\n")), strict=True):
        yield line if isinstance(line, str) else identified_by(line, text)


def identified_by(line: LoggedRequest, text: str) -> LoggedRequest:
    """Return a request with its id and its time as precisely as its line has them."""
    return line._replace(id=id_in(text), at=moment_in(text, line.at))


def _in_chunk(
    chunk: str, pattern: "re.Pattern[str]", source: DurationSource, known: Format
) -> Iterator[LoggedRequest | str]:
    place = {name: index - 1 for name, index in pattern.groupindex.items()}
    other, time, method, target = (place[name] for name in ("other", "time", "method", "target"))
    status, worker, at_start = place.get("status"), place.get("worker"), known.at_start
    durations = [*_durations(place, source)]
    for row in pattern.findall(chunk):
        if row[other] or not row[time]:
            yield row[other]
            continue
        if not row[method] or not row[target] or (at := epoch_seconds(row[time])) is None:
            yield row[time]  # somebody sent what is no request
            continue
        took_s = None
        for index, seconds in durations:
            if row[index]:
                took_s = seconds(row[index])
        yield LoggedRequest(
            at + took_s if at_start and took_s else at, row[method], row[target],
            int(row[status]) if status is not None and row[status] else 0,
            took_s if took_s is None or took_s > SHORTEST_S else SHORTEST_S,
            worker_of(row[worker]) if worker is not None else None,
        )  # fmt: skip


def _durations(place: dict[str, int], source: DurationSource) -> Iterator[tuple[int, Callable[[str], float | None]]]:
    """Yield in which groups of a row its duration may be, and what returns it in seconds."""
    if "value" in place:
        yield place["value"], source.seconds
    for unit in UNITS:
        if unit in place:
            yield place[unit], partial(_seconds, unit)


def _seconds(unit: str, text: str) -> float | None:
    return seconds_of(text, unit)

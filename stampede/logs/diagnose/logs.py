"""Access logs as columns: what the diagnosis needs of each line, and nothing of a person.

Of a request's target, only its route stays readable; the whole path and the request's id are kept as hashes, which join
the lines of two logs and are never shown.
"""

import gc
import io
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stampede.errors import WrongUse
from stampede.foreign import Lines
from stampede.logs.access_log import PART, OpenedLog, Part, opened_log, parts_of, route_of
from stampede.logs.bulk import LoggedRequest
from stampede.logs.diagnose.alike import Alike, Shape, hash_of, read_alike, shape_of
from stampede.logs.diagnose.error_log import WorkerEnd, is_error_log, worker_ends
from stampede.logs.formats import Clock, Formats, worker_of

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
COARSE_S = 0.1
"""From this resolution on, times do not say what was at work at a moment, or which of two requests ended first."""

SETUP = "stampede diagnose --setup prints the lines that make servers log what is needed."
FEW_BYTES = 4 * PART
"""If logs are smaller in all, one process reads them."""
_CHUNK = 1 << 24
"""So many characters of a log are read at once, and the rest of their last line."""
_DATE = r"[.-](?:\d{8}(?:\d\d)?|\d{4}-\d\d-\d\d)(?:[.-]\d{1,10})?"
_ROTATED = re.compile(rf"(?:(?<=log)\.\d{{1,4}}|{_DATE}|{_DATE}(?P<end>\.log))?(?:\.gz)?$")
"""What the names of a log's files differ in: a number only after ``log``, since ``web-1`` and ``web-2`` are hosts."""
NEAR_S = 45 * 24 * 3600
"""Requests that are farther from half of all are left out: a diagnosis looks at each second of its time."""
_OVERLAP = 0.1
"""If files share more than this part of the shorter one's time, they are no parts of one log."""
_UNKNOWN = -1


class Names:
    """Numbers for names, in the order in which the names come."""

    def __init__(self) -> None:
        self.numbers: dict[str | None, int] = {None: _UNKNOWN}

    def number(self, name: str | None) -> int:
        """Return the number of a name; -1: there is no name."""
        return self.numbers.setdefault(name, len(self.numbers) - 1)

    @property
    def names(self) -> list[str]:
        """The names, each at the place that is its number."""
        return [name for name in self.numbers if name is not None]


@dataclass(frozen=True)
class Log:
    """The requests of one server or balancer, in the order in which they ended.

    ``ends_s`` are epoch seconds, each at most ``tick_s`` too early. ``took_s`` are seconds, NaN where a line has no
    duration. ``path`` and ``id`` are hashes; an id of 0 is unknown. ``route`` and ``worker`` are numbers of names; a
    worker of -1 is unknown. ``arrived_s`` says when a balancer got each request, by its clock; NaN where a line does
    not say it.
    """

    file: str
    clock: Clock
    tick_s: float
    ends_s: Floats
    took_s: Floats
    path: Integers
    id: Integers
    route: Integers
    worker: Integers
    status: Integers
    arrived_s: Floats
    unreadable: int = 0
    astray_s: Floats = field(default_factory=lambda: np.empty(0))
    """The times of the lines that are left out because they are more than NEAR_S from half of all."""

    def __len__(self) -> int:
        return len(self.ends_s)


@dataclass(frozen=True)
class Logs:
    """All logs of a service, the names that they share, and the ends of workers that error logs tell."""

    balancers: Sequence[Log]
    servers: Sequence[Log]
    routes: Names
    workers: Names
    ends: Sequence[WorkerEnd] = ()


def read_logs(paths: Sequence[Path], formats: Formats, clocks: Mapping[Path, Clock], unit: str = "") -> Logs:
    """Read logs; files that a log was rotated to count as the same log. ``clocks``: whose logs the user says they are.

    A log of which nothing says whose it is counts as a server's if all others are balancers'. Raise WrongUse if a log
    cannot be read, has no durations, or if nothing says whether it is a balancer's.
    """
    routes, workers = Names(), Names()
    errors = [path for path in paths if is_error_log(path)]
    paths = [path for path in paths if path not in errors]
    if errors and not paths:
        raise WrongUse(f"{errors[0].name} is an error log, which has no requests.",
                       hint=f"stampede diagnose nginx.log gunicorn.log {errors[0]}")  # fmt: skip
    streams: dict[str, list[Path]] = {}
    for path in paths:
        streams.setdefault(_ROTATED.sub(lambda found: found["end"] or "", str(path)), []).append(path)
    of_hosts = len({Path(stream).parent for stream in streams}) > 1
    logs = []
    found = _read_parts([path for files in streams.values() for path in files], formats, unit)
    for stream in [stream for stream, files in streams.items() if _overlap([found[file] for file in files])]:
        streams |= {str(file): [file] for file in streams.pop(stream)}
    known = [_clock_of(files, clocks, found) for files in streams.values()]
    other: Clock | None = "server" if {*known} == {"balancer", None} else None
    every = [part.columns[0] for parts in found.values() for part in parts]
    middle_s = float(np.median(np.concatenate(every))) if sum(map(len, every)) else 0.0
    for (stream, files), clock in zip(streams.items(), known, strict=True):
        name = "/".join(Path(stream).parts[-2:]) if of_hosts else Path(stream).name
        parts = [part for file in files for part in found[file]]
        logs.append(_near(_log(name, files, clock or other, parts, (routes, workers)), middle_s))
    balancers, servers = ([log for log in logs if log.clock == clock] for clock in ("balancer", "server"))
    mixed = [path for path, parts in found.items() if path.is_file() and any(part.unreadable for part in parts)]
    ends = sorted(end for path in (*errors, *mixed) for end in worker_ends(path))
    return Logs(balancers, servers, routes, workers, ends)


def _overlap(files: Sequence[Sequence["LogPart"]]) -> bool:
    """Whether files were written at the same time, which the parts of one log never are."""
    times = [np.concatenate([part.columns[0] for part in parts]) for parts in files]
    spans = sorted((float(each.min()), float(each.max())) for each in times if len(each))
    return any(
        min(before[1], after[1]) - after[0] > _OVERLAP * min(before[1] - before[0], after[1] - after[0])
        for before, after in pairwise(spans)
    )


def _near(log: Log, middle_s: float) -> Log:
    """Return a log without the lines that are far from a moment. Raise WrongUse if none is near."""
    near = np.abs(log.ends_s - middle_s) <= NEAR_S
    if near.all():
        return log
    if not near.any():
        raise WrongUse(f"All lines of {log.file} are more than 45 days from those of the other logs.",
                       hint="Name logs of the same time.")  # fmt: skip
    columns = {
        name: getattr(log, name)[near]
        for name in ("ends_s", "took_s", "path", "id", "route", "worker", "status", "arrived_s")
    }
    return replace(log, astray_s=log.ends_s[~near], **columns)


Columns = tuple[Floats, Floats, Integers, Integers, Integers, Integers, Integers, Floats]
"""When requests ended, how long they took, the hashes of their paths and ids, the numbers of their routes and workers,
their statuses, and when a balancer got them."""


class LogPart(NamedTuple):
    """What a part of a log says, with its own numbers for names."""

    columns: Columns
    routes: Sequence[str]
    workers: Sequence[str]
    unreadable: int
    clock: Clock | None


def _read_parts(paths: Sequence[Path], formats: Formats, unit: str) -> Mapping[Path, Sequence[LogPart]]:
    """Read files part by part, large files in a process for each processor."""
    parts = [(path, part) for path in paths for part in parts_of(path)]
    read = partial(read_part, formats=formats, unit=unit)
    if sum(path.stat().st_size for path in paths if path.is_file()) <= FEW_BYTES:
        found = [read(path, part) for path, part in parts]
    else:
        with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=gc.disable) as pool:
            found = [*pool.map(read, *zip(*parts, strict=True))]
    of_path: dict[Path, list[LogPart]] = {}
    for (path, _), each in zip(parts, found, strict=True):
        of_path.setdefault(path, []).append(each)
    return of_path


def read_part(file: Path, part: Part | None, formats: Formats, unit: str) -> LogPart:
    """Read a part of a log; None: all of it. Raise WrongUse if it cannot be read, or has no durations."""
    batches: list[Columns] = []
    names, unreadable = (Names(), Names()), 0
    with opened_log(file, unit, formats, part) as log:
        if not log.source.says:
            missing = "no field is known to be a duration" if log.source.format else "there is no request in it"
            raise WrongUse(f"{file.name}: {missing}.", hint=SETUP)
        shape = shape_of(log.first, log.source, log.identity)
        while chunk := log.texts.read(_CHUNK):
            columns, lost = _read_lines(chunk.removesuffix("\n"), log, shape, names)
            batches.append(columns)
            unreadable += lost
    return LogPart(_concatenated(batches), names[0].names, names[1].names, unreadable, log.source.clock)


def _read_lines(text: str, log: OpenedLog, shape: Shape | None, names: tuple[Names, Names]) -> tuple[Columns, int]:
    """Return lines as the columns of a log, and how many lines cannot be read."""
    lines = text.split("\n")
    alike = read_alike(f"{text}\n".encode(), shape) if shape else None
    places = np.flatnonzero(~alike.fits).tolist() if alike else range(len(lines))
    others = [place for place in places if lines[place]]
    found = [*log.requests(Lines(io.StringIO("\n".join(lines[place] for place in others))))]
    read = [isinstance(request, LoggedRequest) for request in found]
    columns = _columns([request for request in found if isinstance(request, LoggedRequest)], *names)
    lost = sum(isinstance(request, str) and bool(request.strip()) for request in found)
    if not alike:
        return columns, lost
    order = np.argsort(np.append(np.array(others, dtype=np.int64)[read], np.flatnonzero(alike.fits)))
    ends_s, took_s, path, id_, route, worker, status, arrived_s = _concatenated(
        [columns, _alike_columns(alike, *names)]
    )
    return (ends_s[order], took_s[order], path[order], id_[order], route[order], worker[order], status[order],
            arrived_s[order]), lost  # fmt: skip


def _alike_columns(alike: Alike, routes: Names, workers: Names) -> Columns:
    """Return lines that have the same fields as the columns of a log."""
    route = [routes.number(_path(*request.split(" ", 1))[1]) for request in alike.requests]
    worker = [workers.number(worker_of(each)) for each in alike.workers]
    return (alike.ends_s, alike.took_s, alike.path, alike.id, np.array(route, dtype=np.int64)[alike.request],
            np.array([*worker, _UNKNOWN], dtype=np.int64)[alike.worker], alike.status,
            np.full(len(alike.ends_s), np.nan))  # fmt: skip


def _concatenated(parts: Sequence[Columns]) -> Columns:
    ends_s, took_s, path, id_, route, worker, status, arrived_s = map(np.concatenate, zip(*parts, strict=True))
    return ends_s, took_s, path, id_, route, worker, status, arrived_s


def _clock_of(
    files: Sequence[Path], clocks: Mapping[Path, Clock], found: Mapping[Path, Sequence[LogPart]]
) -> Clock | None:
    """Return whose log a log is, as the user or its format says; None: neither says it."""
    told = (clocks.get(file) or next((part.clock for part in found[file] if part.clock), None) for file in files)
    return next(filter(None, told), None)


def _log(
    name: str, files: Sequence[Path], clock: Clock | None, parts: Sequence[LogPart], names: tuple[Names, Names]
) -> Log:
    """Return the log that has these parts, with the numbers for names that all logs share."""
    if clock is None:
        raise WrongUse(f"{name}: nothing says whether this is the log of a balancer or of a server.",
                       hint=f"--balancer {files[0]}, or --server {files[0]}")  # fmt: skip
    columns = []
    for part in parts:
        ends_s, took_s, path, id_, route, worker, status, arrived_s = part.columns
        routes = np.array([*map(names[0].number, part.routes), _UNKNOWN])
        workers = np.array([*(names[1].number(f"{name} {each}") for each in part.workers), _UNKNOWN])
        columns.append((ends_s, took_s, path, id_, routes[route], workers[worker], status, arrived_s))
    ends_s, took_s, path, id_, route, worker, status, arrived_s = _concatenated(columns)
    order = np.argsort(ends_s, kind="stable")
    path, id_, route, worker, status = (column[order] for column in (path, id_, route, worker, status))
    tick_s = max(tick_of(ends_s), tick_of(ends_s - np.nan_to_num(took_s)))
    return Log(name, clock, tick_s, ends_s[order], took_s[order], path, id_, route, worker, status, arrived_s[order],
               sum(part.unreadable for part in parts))  # fmt: skip


def _columns(requests: Sequence[LoggedRequest], routes: Names, workers: Names) -> Columns:
    """Return lines as the columns of a log."""
    paths = [_path(line.method, line.target.partition("?")[0]) for line in requests]
    return (
        np.array([line.at for line in requests], dtype=np.float64),
        np.array([np.nan if line.took_s is None else line.took_s for line in requests], dtype=np.float64),
        np.array([hashed for hashed, _ in paths], dtype=np.int64),
        np.array([hash_of(line.id) if line.id else 0 for line in requests], dtype=np.int64),
        np.array([routes.number(route) for _, route in paths], dtype=np.int64),
        np.array([workers.number(line.worker) for line in requests], dtype=np.int64),
        np.array([line.status for line in requests], dtype=np.int64),
        np.array([np.nan if line.arrived is None else line.arrived for line in requests], dtype=np.float64),
    )


@lru_cache(maxsize=1 << 16)
def _path(method: str, path: str) -> tuple[int, str]:
    """Return the hash and the route of a path."""
    return hash_of(f"{method} {path}"), f"{method} {route_of(path)}"


def tick_of(times_s: Floats) -> float:
    """Return the resolution of times in seconds: whole seconds, milliseconds or microseconds."""
    for tick_s in (1.0, 0.001):
        if np.abs(times_s / tick_s - np.round(times_s / tick_s)).max(initial=0.0) < 0.01:
            return tick_s
    return 1e-6

"""Access logs as columns: what the diagnosis needs of each line, and nothing of a person.

Of a request's target, only its route stays readable; the whole path and the request's id are kept as hashes, which join
the lines of two logs and are never shown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lab.errors import WrongUse
from lab.logs.access_log import opened_log, route_of
from lab.logs.bulk import LoggedRequest
from lab.logs.formats import Clock, Formats

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
COARSE_S = 0.1
"""From this resolution on, times do not say what was at work at a moment, or which of two requests ended first."""

SETUP = "lab diagnose --setup prints the lines that make servers log what is needed."
_BATCH = 50_000
_ROTATED = re.compile(r"([.-](\d{1,3}|\d{8}|\d{4}-\d\d-\d\d))?(\.gz)?$")
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
    duration. ``path`` and ``id`` are hashes; an id of 0 is unknown. ``route`` and ``worker`` are numbers of
    names; a worker of -1 is unknown.
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
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.ends_s)


@dataclass(frozen=True)
class Logs:
    """All logs of a service, and the names that they share."""

    balancers: Sequence[Log]
    servers: Sequence[Log]
    routes: Names
    workers: Names


def read_logs(paths: Sequence[Path], formats: Formats, clocks: Mapping[Path, Clock], unit: str = "") -> Logs:
    """Read logs; files that a log was rotated to count as the same log. ``clocks``: whose logs the user says they are.

    Raise WrongUse if a log cannot be read, has no durations, or if nothing says whether it is a balancer's.
    """
    routes, workers = Names(), Names()
    streams: dict[str, list[Path]] = {}
    for path in paths:
        streams.setdefault(_ROTATED.sub("", str(path)), []).append(path)
    of_hosts = len({Path(stream).parent for stream in streams}) > 1
    logs = []
    for stream, files in streams.items():
        name = "/".join(Path(stream).parts[-2:]) if of_hosts else Path(stream).name
        logs.append(_read(name, files, next((clocks[file] for file in files if file in clocks), None),
                          Reader(formats, unit, routes, workers)))  # fmt: skip
    balancers, servers = ([log for log in logs if log.clock == clock] for clock in ("balancer", "server"))
    return Logs(balancers, servers, routes, workers)


class Reader(NamedTuple):
    """How lines are read: their formats, the unit of whole numbers, and the names that all logs share."""

    formats: Formats
    unit: str
    routes: Names
    workers: Names


def _read(name: str, files: Sequence[Path], clock: Clock | None, reader: Reader) -> Log:
    batches: list[Columns] = []
    unreadable = 0
    for file in files:
        with opened_log(file, reader.unit, reader.formats) as (source, lines):
            clock = clock or source.clock
            if not source.says:
                missing = "no field is known to be a duration" if source.format else "there is no request in it"
                raise WrongUse(f"{file.name}: {missing}.", hint=SETUP)
            while batch := list(islice(lines, _BATCH)):
                requests = [line for line in batch if isinstance(line, LoggedRequest)]
                unreadable += sum(isinstance(line, str) and bool(line.strip()) for line in batch)
                batches.append(_columns(requests, name, reader))
    if clock is None:
        raise WrongUse(f"{name}: nothing says whether this is the log of a balancer or of a server.",
                       hint=f"--balancer {files[0]}, or --server {files[0]}")  # fmt: skip
    ends_s, took_s, *others = (np.concatenate(column) for column in zip(*batches, strict=True))
    order = np.argsort(ends_s, kind="stable")
    path, id_, route, worker, status = (column.astype(np.int64)[order] for column in others)
    tick_s = max(tick_of(ends_s), tick_of(ends_s - np.nan_to_num(took_s)))
    return Log(name, clock, tick_s, ends_s[order], took_s[order], path, id_, route, worker, status, unreadable)


Columns = tuple[Floats, Floats, Integers, Integers, Integers, Integers, Integers]


def _columns(requests: Sequence[LoggedRequest], host: str, reader: Reader) -> Columns:
    """Return lines as the columns of a log: when they ended, how long they took, and five numbers."""
    number, worker_number = reader.routes.number, reader.workers.number
    return (
        np.array([line.at for line in requests], dtype=np.float64),
        np.array([np.nan if line.took_s is None else line.took_s for line in requests], dtype=np.float64),
        np.array([hash((line.method, line.target.partition("?")[0])) for line in requests], dtype=np.int64),
        np.array([hash(line.id) if line.id else 0 for line in requests], dtype=np.int64),
        np.array([number(f"{line.method} {route_of(line.target)}") for line in requests], dtype=np.int64),
        np.array([worker_number(line.worker and f"{host} {line.worker}") for line in requests], dtype=np.int64),
        np.array([line.status for line in requests], dtype=np.int64),
    )


def tick_of(times_s: Floats) -> float:
    """Return the resolution of times in seconds: whole seconds, milliseconds or microseconds."""
    for tick_s in (1.0, 0.001):
        if np.abs(times_s / tick_s - np.round(times_s / tick_s)).max(initial=0.0) < 0.01:
            return tick_s
    return 1e-6

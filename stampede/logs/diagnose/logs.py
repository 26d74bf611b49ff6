"""Access logs as columns: what the diagnosis needs of each line, and nothing of a person.

Of a request's target, only its route stays readable; the whole path and the request's id are kept as hashes, which join
the lines of two logs and are never shown.
"""

import gc
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from stampede.errors import WrongUse
from stampede.foreign import open_text
from stampede.logs.access_log import route_of
from stampede.logs.diagnose.error_log import Event, events_in, in_order, is_error_log
from stampede.logs.formats import Clock, Formats
from stampede.logs.reading import PART, SHORTEST_S, Batch, Part, mapped, opened_log, parts_of

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
COARSE_S = 0.1
"""From this resolution on, times do not say what was at work at a moment, or which of two requests ended first."""
SETUP = "stampede diagnose --setup prints the lines that make servers log what is needed."
FEW_BYTES = 4 * PART
"""If logs are smaller in all, one process reads them."""
_DATE = r"[.-](?:\d{8}(?:\d\d)?|\d{4}-\d\d-\d\d)(?:[.-]\d{1,10})?"
_ROTATED = re.compile(rf"(?:(?<=log)\.\d{{1,4}}|{_DATE}|{_DATE}(?P<end>\.log))?(?:\.gz)?$")
"""What the names of a log's files differ in: a number only after ``log``, since ``web-1`` and ``web-2`` are hosts."""
NEAR_S = 45 * 24 * 3600
"""Requests that are farther from half of all are left out: a diagnosis looks at each second of its time."""
_ZONE = re.compile(r":\d\d(?:[.,]\d+)? ?(?:Z|[+-]\d\d:?\d\d)\b|(?<![\d.])1\d{9}(?!\d*\.\d+\.)")
"""A time that names its zone, or counts seconds since 1970."""
_LONGEST = 256  # a longer text is hashed in another way, so that one long line does not make all of them take memory
_PRIME = np.uint64(0x9E3779B97F4A7C15)


class Names:
    """Numbers for names, in the order in which the names come."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: -1}

    def number(self, name: str | None) -> int:
        """Return the number of a name; -1: there is no name."""
        return self._numbers.setdefault(name, len(self._numbers) - 1)

    @property
    def names(self) -> list[str]:
        """The names, each at the place that is its number."""
        return [name for name in self._numbers if name is not None]


@dataclass(frozen=True)
class Log:
    """The requests of one server or balancer, in the order in which they ended.

    ``ends_s`` are epoch seconds, each at most ``tick_s`` too early. ``took_s`` are seconds, NaN where a line has no
    duration. ``path`` and ``id`` are hashes; an id of 0 is unknown. ``route`` and ``worker`` are numbers of names; a
    worker of -1 is unknown. ``arrived_s`` says when a balancer got each request, by its clock; NaN where a line does
    not say it. ``upstream_s`` is how long the server took as a balancer saw it, or NaN. ``of_starts``: the lines have
    the times at which requests came, and no format told that.
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
    upstream_s: Floats
    took_tick_s: float = 0.0
    """By how much durations may be too short, if they are whole seconds."""
    unreadable: int = 0
    of_starts: bool = False
    astray_s: Floats = field(default_factory=lambda: np.empty(0))
    """The times of the lines that are left out because they are more than NEAR_S from half of all."""
    set_back: bool = False
    """Whether the clock was set back by an hour, so that its later times count as an hour later."""
    is_unsteady: bool = False
    """Whether the clock jumped or drifted, and the times count by the balancer's clock."""
    again: int = 0
    """How many lines are left out because they stand in the log already."""
    assumed: str = ""
    """The field whose durations count as seconds although nothing says their unit."""

    def __len__(self) -> int:
        return len(self.ends_s)


@dataclass(frozen=True)
class Logs:
    """All logs of a service, the names that they share, and the trouble that error logs tell."""

    balancers: Sequence[Log]
    servers: Sequence[Log]
    routes: Names
    workers: Names
    events: Sequence[Event] = ()


def read_logs(paths: Sequence[Path], formats: Formats, clocks: Mapping[Path, Clock], unit: str = "") -> Logs:
    """Read logs; files that a log was rotated to count as the same log. ``clocks``: whose logs the user says they are.

    A log of which nothing says whose it is counts as a server's if all others are balancers'. Raise WrongUse if a log
    cannot be read, has no durations, or if nothing says whether it is a balancer's.
    """
    routes, workers = Names(), Names()
    errors = [path for path in paths if path not in clocks and is_error_log(path)]
    paths = [path for path in paths if path not in errors]
    if errors and not paths:
        raise WrongUse(f"{errors[0].name} is an error log, which has no requests.",
                       hint=f"stampede diagnose nginx.log gunicorn.log {errors[0]}")  # fmt: skip
    streams: dict[str, list[Path]] = {}
    for path in paths:
        streams.setdefault(_ROTATED.sub(lambda found: found["end"] or "", str(path)), []).append(path)
    of_hosts = len({Path(stream).parent for stream in streams}) > 1
    found = _read_parts([path for files in streams.values() for path in files], formats, unit)
    for stream in [stream for stream, files in streams.items() if _overlap([found[file] for file in files])]:
        streams |= {str(file): [file] for file in streams.pop(stream)}
    told: list[Clock | None] = []
    for files in streams.values():
        said = [*map(clocks.get, files), *(part.clock for file in files for part in found[file])]
        told.append(next(filter(None, said), None))
    other: Clock | None = "server" if {*told} == {"balancer", None} else None
    every_s = np.concatenate([part.columns["ends_s"] for parts in found.values() for part in parts])
    middle_s = float(np.median(every_s)) if len(every_s) else 0.0
    logs = []
    for (stream, files), says in zip(streams.items(), told, strict=True):
        name = "/".join(Path(stream).parts[-2:]) if of_hosts else Path(stream).name
        clock = says or other
        files.sort(key=lambda file: min(part.columns["ends_s"].min(initial=np.inf) for part in found[file]))
        if not clock:
            raise WrongUse(f"{name}: nothing says whether this is the log of a balancer or of a server.",
                           hint=f"--balancer {files[0]}, or --server {files[0]}")  # fmt: skip
        log = _log(name, clock, [part for file in files for part in found[file]], routes, workers)
        near = np.abs(log.ends_s - middle_s) <= NEAR_S
        if not near.any():
            raise WrongUse(f"All lines of {log.file} are more than 45 days from those of the other logs.",
                           hint="Name logs of the same time.")  # fmt: skip
        if not near.all():
            log = replace(log, astray_s=log.ends_s[~near], **{each: getattr(log, each)[near] for each in COLUMNS})
        logs.append(log)
    balancers, servers = ([log for log in logs if log.clock == clock] for clock in ("balancer", "server"))
    events = [event for parts in found.values() for part in parts for event in part.events]
    for path in errors:
        with open_text(path) as lines:
            events += events_in(lines)
    return Logs(balancers, servers, routes, workers, in_order(events))


def _overlap(files: Sequence[Sequence["LogPart"]]) -> bool:
    """Whether files share more than a tenth of the shorter one's time, which the parts of one log never do."""
    times = [np.concatenate([part.columns["ends_s"] for part in parts]) for parts in files]
    spans = sorted((float(each.min()), float(each.max())) for each in times if len(each))
    return any(
        min(before[1], after[1]) - after[0] > 0.1 * min(before[1] - before[0], after[1] - after[0])
        for before, after in pairwise(spans)
    )


COLUMNS = ("ends_s", "took_s", "path", "id", "route", "worker", "status", "arrived_s", "upstream_s")
"""What a Log has of each line."""
Columns = Mapping[str, npt.NDArray[Any]]


class LogPart(NamedTuple):
    """What a part of a log says, in COLUMNS, with its own numbers for names."""

    columns: Columns
    routes: Sequence[str]
    workers: Sequence[str]
    unreadable: int
    clock: Clock | None
    events: Sequence[Event]
    assumed: str
    has_zone: bool


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
    routes, workers, unreadable, events = Names(), Names(), 0, list[Event]()
    batches = [_columns(Batch.empty(), routes, workers)]
    with opened_log(file, unit, formats, part, identify=True) as log:
        source = log.reader.source
        if not source.says:
            missing = "no field is known to be a duration" if source.format else "there is no request in it"
            raise WrongUse(f"{file.name}: {missing}.", hint=SETUP)
        log.texts.unread("".join(first := log.texts.take(100)))
        for batch in log.batches():
            batches.append(_columns(batch, routes, workers))
            unreadable += len(batch.unreadable)
            events += events_in(batch.unreadable)
    return LogPart(_concatenated(batches), routes.names, workers.names, unreadable, source.clock, events,
                   source.assumed, bool(_ZONE.search("".join(first))))  # fmt: skip


def _columns(batch: Batch, routes: Names, workers: Names) -> Columns:
    paths = [f"{method} {target.partition('?')[0]}" for method, target in zip(batch.method, batch.target, strict=True)]
    paths = [unquote(path) if "%" in path else path for path in paths]  # some servers log what they have decoded
    ids = [each.replace("-", "").lower() if each else "" for each in batch.id]  # a UUID is spelled in two ways
    return {
        "ends_s": np.array(batch.at, dtype=np.float64),
        "took_s": np.array(batch.took_s, dtype=np.float64),  # None becomes NaN
        "path": hashes(paths),
        "id": hashes(ids),
        "route": np.array(mapped(lambda path: routes.number(_route(path)), paths), dtype=np.int64),
        "worker": np.array(mapped(workers.number, batch.worker), dtype=np.int64),
        "status": np.array(batch.status, dtype=np.int64),
        "arrived_s": np.array(batch.arrived, dtype=np.float64),
        "upstream_s": np.array(batch.upstream_s, dtype=np.float64),
    }


@lru_cache(maxsize=1 << 16)
def _route(path: str) -> str:
    method, _, target = path.partition(" ")
    return f"{method} {route_of(target)}"


def hashes(texts: Sequence[str]) -> Integers:
    """Return a number for each text, the same in every process; 0: the text is empty."""
    short = [text.encode(errors="replace") for text in texts]
    if max(map(len, short), default=0) > _LONGEST:
        short = [each if len(each) <= _LONGEST else blake2b(each).hexdigest().encode() for each in short]
    words = max(map(len, short), default=0) // 8 + 1
    found = np.zeros(len(short), np.uint64)
    for word in np.array(short, dtype=f"S{8 * words}").view(np.uint64).reshape(len(short), words).T:
        mixed = (found ^ word) * _PRIME
        found = np.where(word, mixed ^ (mixed >> np.uint64(29)), found)  # words beyond the end of a text are 0
    return found.view(np.int64)


def _concatenated(parts: Iterable[Columns]) -> dict[str, npt.NDArray[Any]]:
    parts = [*parts]
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def _log(name: str, clock: Clock, parts: Sequence[LogPart], routes: Names, workers: Names) -> Log:
    """Return the log that has these parts, with the numbers for names that all logs share."""
    columns = _concatenated(part.columns for part in parts)
    of_parts: dict[str, list[npt.NDArray[Any]]] = {"route": [], "worker": []}
    for part in parts:
        own = [each if clock == "server" or not each.isdecimal() else None for each in part.workers]  # else its process
        numbers = {"route": [routes.number(each) for each in part.routes],
                   "worker": [workers.number(each and f"{name} {each}") for each in own]}  # fmt: skip
        for kind, known in numbers.items():
            of_parts[kind].append(np.array([*known, -1])[part.columns[kind]])
    columns |= {kind: np.concatenate(each) for kind, each in of_parts.items()}
    if clock == "balancer":  # what has no duration has two times
        left = (-1, 0, 460) if columns["status"].any() else ()  # as HAProxy, Envoy and AWS say it; else no line has any
        columns["status"] = np.where(np.isin(columns["status"], left), 499, columns["status"])
        lasted_s = columns["ends_s"] - columns["arrived_s"]
        columns["took_s"] = np.where(np.isnan(columns["took_s"]), lasted_s, columns["took_s"])
    ends_s, lasted_s = columns["ends_s"], np.nan_to_num(columns["took_s"])
    later_s = np.zeros_like(ends_s) if any(part.has_zone for part in parts) else _set_back(ends_s)
    ends_s = ends_s + later_s
    if has_starts := _has_starts(ends_s, lasted_s):
        ends_s = ends_s + lasted_s
    tick_s, of_starts_s = tick_of(ends_s), tick_of(ends_s - lasted_s)
    if tick_s < COARSE_S <= of_starts_s:  # the starts are whole seconds, but most logs are in order
        latest_s = np.maximum.accumulate(ends_s)
        if (latest_s <= ends_s + of_starts_s).mean() > 0.95:
            ends_s = np.minimum(latest_s, ends_s + of_starts_s)
    columns["ends_s"] = ends_s
    are_whole = bool((lasted_s >= 1).any() and ((lasted_s == np.floor(lasted_s)) | (lasted_s == SHORTEST_S)).all())
    again, order = _stand_again(columns), np.argsort(ends_s, kind="stable")
    order = order[~again[order]]
    ordered: dict[str, Any] = {each: columns[each][order] for each in COLUMNS}
    return Log(name, clock, max(tick_s, of_starts_s), **ordered,
               again=int(again.sum()),
               took_tick_s=float(are_whole),
               unreadable=sum(part.unreadable for part in parts), of_starts=has_starts, set_back=bool(later_s.any()),
               assumed=next((part.assumed for part in parts if part.assumed), ""))  # fmt: skip


def _stand_again(columns: Columns) -> Flags:
    """Return which lines stand in a log already: some whose id no other line has, or nearly all lines twice."""
    row = np.zeros(len(columns["ends_s"]), np.uint64)
    for name in ("ends_s", "took_s", "path", "id", "worker", "status"):
        row = (row ^ columns[name].view(np.uint64)) * _PRIME
        row ^= row >> np.uint64(29)
    _, first, count = np.unique(row, return_index=True, return_counts=True)
    again = np.ones(len(row), np.bool_)
    again[first] = False
    are_twice = len(count) > 0 and float((count == 2).mean()) > 0.95  # quick requests of a second are alike, too
    if again.any() and not are_twice:
        ids, lines = np.unique(columns["id"][first], return_counts=True)
        again[again] = np.isin(columns["id"][again], ids[(lines == 1) & (ids != 0)])
    return again


def _set_back(times_s: Floats) -> Floats:
    """Return how much later lines are than they say: summer time ended in a log that names no time zone."""
    hours = np.rint(np.diff(times_s, prepend=times_s[:1]) / 3600)
    near = np.abs(np.diff(times_s, prepend=times_s[:1]) - hours * 3600) < 120
    back = np.cumsum(np.where(near & (np.abs(hours) == 1), -hours, 0))  # a line that is late steps forth and back
    return back * 3600.0 if len(back) and back[-1] == 1 == back.max() and back.min() == 0 else np.zeros_like(times_s)


def _has_starts(times_s: Floats, took_s: Floats) -> bool:
    """Whether times are those at which requests came: lines are written when requests end, and only ends are in order.

    A log that several programs have written is in neither order. A fifth of the lines that tell is chance.
    """
    slack_s = max(tick_of(times_s), 0.001)
    late, late_ends = (int((each < np.maximum.accumulate(each) - slack_s).sum())
                       for each in (times_s, times_s + took_s))  # fmt: skip
    return late >= max(5, 0.002 * len(times_s)) and late_ends < late / 5


def of_starts(log: Log) -> Log:
    """Return a log as if its lines had the times at which requests came."""
    ends_s = log.ends_s + np.nan_to_num(log.took_s)
    order = np.argsort(ends_s, kind="stable")
    columns: dict[str, Any] = {name: getattr(log, name)[order] for name in COLUMNS} | {"ends_s": ends_s[order]}
    return replace(log, of_starts=True, **columns)


def tick_of(times_s: Floats) -> float:
    """Return the resolution of times in seconds: whole seconds, milliseconds or microseconds."""
    for tick_s in (1.0, 0.001):
        if np.abs(times_s / tick_s - np.round(times_s / tick_s)).max(initial=0.0) < 0.01:
            return tick_s
    return 1e-6

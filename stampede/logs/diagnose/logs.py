"""The logs of balancers and of servers: which files are one log, whose it is, and what its times mean."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stampede.errors import WrongUse
from stampede.foreign import open_text
from stampede.logs.columns import (
    COLUMNS,
    PRIME,
    Columns,
    Flags,
    Floats,
    Integers,
    LogFile,
    Names,
    joined_columns,
    read_files,
)
from stampede.logs.durations import DurationSource
from stampede.logs.error_log import Event, events_in, in_order, is_error_log
from stampede.logs.formats import Clock, Formats
from stampede.logs.reading import SHORTEST_S
from stampede.records.words import plural

COARSE_S = 0.1
"""From this resolution on, times do not say what was at work at a moment, or which of two requests ended first."""
SETUP = "stampede diagnose --setup prints the lines that make servers log what is needed."
_DATE = r"[.-](?:\d{8}(?:\d\d)?|\d{4}-\d\d-\d\d)(?:[.-]\d{1,10})?"
_ROTATED = re.compile(rf"(?:(?<=log)\.\d{{1,4}}|{_DATE}|{_DATE}(?P<end>\.log))?(?:\.gz)?$")
"""What the names of a log's files differ in: a number only after ``log``, since ``web-1`` and ``web-2`` are hosts."""
OF_STARTS = "The times of {} are those at which requests came; they ended later by their durations."
NEAR_S = 45 * 24 * 3600
"""Requests that are farther from half of all are left out: a diagnosis looks at each second of its time."""


@dataclass(frozen=True)
class Log:
    """The requests of one server or balancer, in the order in which they ended; the arrays are COLUMNS.

    Each time is at most ``tick_s`` too early, and each duration at most ``took_tick_s`` too short.
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
    unreadable: int = 0
    of_starts: bool = False
    """Whether the lines have the times at which requests came, and no format told that."""
    assumed: str = ""
    """The field whose durations count as seconds although nothing says their unit."""
    notes: tuple[str, ...] = ()
    """Sentences on what its times mean, and on lines that are left out."""

    def __len__(self) -> int:
        return len(self.ends_s)

    def take(self, places: Integers | Flags, **changes: Any) -> "Log":  # noqa: ANN401  # of any field
        """Return the log with these of its lines only, in this order, and with changes."""
        return replace(self, **{name: getattr(self, name)[places] for name in COLUMNS} | changes)

    def by_ends(self, ends_s: Floats, **changes: Any) -> "Log":  # noqa: ANN401  # of any field
        """Return the log as if its lines ended at these times, and with changes."""
        order = np.argsort(ends_s, kind="stable")
        return self.take(order, ends_s=ends_s[order], **changes)

    def as_of_starts(self) -> "Log":
        """Return the log as if its lines had the times at which requests came."""
        ends_s, notes = self.ends_s + np.nan_to_num(self.took_s), (*self.notes, OF_STARTS.format(self.file))
        return self.by_ends(ends_s, of_starts=True, notes=notes)


@dataclass(frozen=True)
class Logs:
    """All logs of a service, the names that they share, and the trouble that error logs tell."""

    balancers: Sequence[Log]
    servers: Sequence[Log]
    routes: Names
    workers: Names
    events: Sequence[Event] = ()


def logs_of(paths: Sequence[Path], formats: Formats, clocks: Mapping[Path, Clock], unit: str = "") -> Logs:
    """Read logs; files that a log was rotated to count as the same log. ``clocks``: whose logs the user says they are.

    A log of which nothing says whose it is counts as a server's if all others are balancers'. Raise WrongUse if a log
    cannot be read, has no durations, or if nothing says whether it is a balancer's.
    """
    errors = [path for path in paths if path not in clocks and is_error_log(path)]
    paths = [path for path in paths if path not in errors]
    if errors and not paths:
        problem = f"{errors[0].name} is an error log, which has no requests."
        raise WrongUse(problem, hint=f"stampede diagnose nginx.log gunicorn.log {errors[0]}")
    streams: dict[str, list[Path]] = {}
    for path in paths:
        streams.setdefault(_ROTATED.sub(lambda found: found["end"] or "", str(path)), []).append(path)
    found = read_files([path for files in streams.values() for path in files], formats, unit, _refused, identify=True)
    empty = [path for path, part in found.items() if not part.source.format]
    gone = [files[0] for files in streams.values() if {*files} <= {*empty}]
    streams = {name: kept for name, files in streams.items() if (kept := [path for path in files if path not in empty])}
    for stream in [stream for stream, files in streams.items() if _overlap([found[file] for file in files])]:
        streams |= {str(file): [file] for file in streams.pop(stream)}
    told: list[Clock | None] = []
    for files in streams.values():
        said = [*map(clocks.get, files), *(found[file].source.clock for file in files)]
        told.append(next(filter(None, said), None))
    other: Clock | None = "server" if {*told} == {"balancer", None} else None
    if gone and len({each or other for each in told}) < 2:  # else others of both kinds are there
        raise WrongUse(f"{gone[0].name}: there is no request in it.", hint=SETUP)
    every_s = np.concatenate([part.columns["ends_s"] for part in found.values()])
    middle_s = float(np.median(every_s)) if len(every_s) else 0.0
    routes, workers, logs = Names(), Names(), list[Log]()
    for name, files, says in zip(_names([*streams]), streams.values(), told, strict=True):
        files.sort(key=lambda file: found[file].columns["ends_s"].min(initial=np.inf))
        if not (clock := says or other):
            problem = f"{name}: nothing says whether this is the log of a balancer or of a server."
            raise WrongUse(problem, hint=f"--balancer {files[0]}, or --server {files[0]}")
        log = _log(name, clock, [found[file] for file in files], routes, workers)
        if not logs:
            log = replace(log, notes=(*(f"The file {path.name} is empty." for path in empty), *log.notes))
        near = np.abs(log.ends_s - middle_s) <= NEAR_S
        if not near.any():
            problem = f"All lines of {log.file} are more than 45 days from those of the other logs."
            raise WrongUse(problem, hint="Name logs of the same time.")
        if not near.all():
            count, at = int((~near).sum()), datetime.fromtimestamp(float(log.ends_s[~near][-1]), UTC)
            left_out = (f"{plural(count, 'line')} of {log.file} {'is' if count == 1 else 'are'} left out: more than 45 "
                    f"days from most others, such as that of {at:%d %B %Y}.")  # fmt: skip
            log = log.take(near, notes=(*log.notes, left_out))
        logs.append(log)
    events = [event for part in found.values() for event in part.events]
    for path in errors:
        with open_text(path) as lines:
            events += events_in(lines)
    balancers, servers = ([log for log in logs if log.clock == clock] for clock in ("balancer", "server"))
    return Logs(balancers, servers, routes, workers, in_order(events))


def _names(streams: Sequence[str]) -> list[str]:
    """Return the ends of paths that tell logs apart, with the folder if there are several."""
    parts = [Path(stream).parts for stream in streams]
    ends = [[str(Path(*each[-count:])) for each in parts] for count in range(1, max(map(len, parts)) + 1)]
    of_one_folder = len({each[:-1] for each in parts}) == 1
    return next(names for names in ends[not of_one_folder :] if len({*names}) == len(names))


def _refused(file: str, source: DurationSource) -> WrongUse | None:
    return WrongUse(f"{file}: no field is known to be a duration.", hint=SETUP) if source.format else None


def _overlap(files: Sequence[LogFile]) -> bool:
    """Whether files share more than a tenth of the shorter one's time, which the parts of one log never do."""
    times = [part.columns["ends_s"] for part in files]
    spans = sorted((float(each.min()), float(each.max())) for each in times if len(each))
    return any(
        min(before[1], after[1]) - after[0] > 0.1 * min(before[1] - before[0], after[1] - after[0])
        for before, after in pairwise(spans)
    )


def _log(name: str, clock: Clock, parts: Sequence[LogFile], routes: Names, workers: Names) -> Log:
    """Return the log that has these parts, with the numbers for names that all logs share."""
    columns: dict[str, Any] = joined_columns([part.columns for part in parts])
    of_route, of_worker = [], []
    for part in parts:
        own = [each if clock == "server" or not each.isdecimal() else None for each in part.workers]  # else its process
        of_route.append(np.array([*map(routes.number, part.routes), -1])[part.columns["route"]])
        numbers = [workers.number(each and f"{name} {each}") for each in own]
        of_worker.append(np.array([*numbers, -1])[part.columns["worker"]])
    columns |= {"route": np.concatenate(of_route), "worker": np.concatenate(of_worker)}
    if clock == "balancer":  # what has no duration has two times
        left = (-1, 0, 460) if columns["status"].any() else ()  # as HAProxy, Envoy and AWS say it; else no line has any
        columns["status"] = np.where(np.isin(columns["status"], left), 499, columns["status"])
        lasted_s = columns["ends_s"] - columns["arrived_s"]
        columns["took_s"] = np.where(np.isnan(columns["took_s"]), lasted_s, columns["took_s"])
    lasted_s = np.nan_to_num(columns["took_s"])
    later_s = 0.0 if any(part.has_zone for part in parts) else _set_back(columns["ends_s"])
    notes, ends_s = [], columns["ends_s"] + later_s
    if np.any(later_s):
        notes.append(f"The times of {name} go back by an hour in the middle, so the later ones count as an hour later.")
    if has_starts := _has_starts(ends_s, lasted_s):
        ends_s = ends_s + lasted_s
        notes.append(OF_STARTS.format(name))
    tick_s, of_starts_s = tick_of(ends_s), tick_of(ends_s - lasted_s)
    if tick_s < COARSE_S <= of_starts_s:  # the starts are whole seconds, but most logs are in order
        latest_s = np.maximum.accumulate(ends_s)
        if (latest_s <= ends_s + of_starts_s).mean() > 0.95:
            ends_s = np.minimum(latest_s, ends_s + of_starts_s)
    columns["ends_s"] = ends_s
    are_whole = (lasted_s >= 1).any() and ((lasted_s == np.floor(lasted_s)) | (lasted_s == SHORTEST_S)).all()
    if count := int((again := _stand_again(columns)).sum()):
        notes.append(f"{name} has {plural(count, 'repeated line')}, which did not count again.")
    unreadable, assumed = sum(part.unreadable for part in parts), [part.source.assumed for part in parts]
    log = Log(name, clock, max(tick_s, of_starts_s), **columns, took_tick_s=float(are_whole), unreadable=unreadable,
              of_starts=has_starts, assumed=next(filter(None, assumed), ""), notes=tuple(notes))  # fmt: skip
    order = np.argsort(ends_s, kind="stable")
    return log.take(order[~again[order]])


def _stand_again(columns: Columns) -> Flags:
    """Return which lines stand in a log already: some whose id no other line has, or nearly all lines twice."""
    row = np.zeros(len(columns["ends_s"]), np.uint64)
    for name in ("ends_s", "took_s", "path", "id", "worker", "status"):
        row = (row ^ columns[name].view(np.uint64)) * PRIME
        row ^= row >> np.uint64(29)
    _, first, count = np.unique(row, return_index=True, return_counts=True)
    again = np.ones(len(row), np.bool_)
    again[first] = False
    are_twice = len(count) > 0 and float((count == 2).mean()) > 0.95  # quick requests of a second are alike, too
    if again.any() and not are_twice:
        ids, lines = np.unique(columns["id"][first], return_counts=True)
        again[again] = np.isin(columns["id"][again], ids[(lines == 1) & (ids != 0)])
    return again


def _set_back(times_s: Floats) -> Floats | float:
    """Return how much later lines are than they say: summer time ended in a log that names no time zone."""
    steps_s = np.diff(times_s, prepend=times_s[:1])
    hours = np.rint(steps_s / 3600)
    near = np.abs(steps_s - hours * 3600) < 120
    back = np.cumsum(np.where(near & (np.abs(hours) == 1), -hours, 0))  # a line that is late steps forth and back
    return back * 3600.0 if len(back) and back[-1] == 1 == back.max() and back.min() == 0 else 0.0


def _has_starts(times_s: Floats, took_s: Floats) -> bool:
    """Whether times are those at which requests came: lines are written when requests end, and only ends are in order.

    A log that several programs have written is in neither order. A fifth of the lines that tell is chance.
    """
    slack_s = max(tick_of(times_s), 0.001)
    late, late_ends = (
        int((each < np.maximum.accumulate(each) - slack_s).sum()) for each in (times_s, times_s + took_s)
    )
    return late >= max(5, 0.002 * len(times_s)) and late_ends < late / 5


def tick_of(times_s: Floats) -> float:
    """Return the resolution of times in seconds: whole seconds, milliseconds or microseconds."""
    for tick_s in (1.0, 0.001):
        if np.abs(times_s / tick_s - np.round(times_s / tick_s)).max(initial=0.0) < 0.01:
            return tick_s
    return 1e-6

"""Requests of access logs, by route.

A log holds what must not leave it: query strings, tokens in paths, addresses and agents of users. Only methods, the
fixed parts of paths, counts and durations are taken from it; whole targets only to be sent again.
"""

import gzip
import re
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from analysis.records.model import name_from
from lab.errors import WrongUse
from lab.logs.durations import NO_UNIT, DurationSource, find_durations
from lab.logs.formats import FORMATS, TIMELESS, UNITS, Entry, parse_entry

MOST_CLASSES = 20
MOST_ALIKE = 10
"""If more routes than this differ in one part of their paths only, this part is the name of a thing, not of a route."""
DURATIONS = 50
"""How many durations describe a class. Each of them is the mean of as many requests, so that their mean is right."""
SHORTEST_S = 0.0005
"""nginx writes 0.000 for what takes less than half a millisecond."""
SAMPLE = 10_000
"""From so many lines of a log, the lab finds out where the durations are."""

_FILES = re.compile(r".*\.(?:css|gif|ico|jpe?g|js|map|png|svg|ttf|txt|webp|woff2?|xml)", re.IGNORECASE)
_NAME_OF_A_THING = re.compile(r"\d+|[0-9a-fA-F]{8,}|[0-9a-fA-F-]{32,}|.*[@%].*|(?=.*\d).{16,}|.{40,}")


class LoggedRequest(NamedTuple):
    """What is taken from a line of a log. ``took_s`` is None if the line has no duration."""

    at: float
    method: str
    target: str
    status: int
    took_s: float | None


@dataclass
class Route:
    """The requests of one method for one route."""

    failed: int = 0
    ends: "array[float]" = field(default_factory=lambda: array("d"))
    """When each request ended, in seconds since 1970."""
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    """How long those requests took of which the log has a duration."""
    timed_ends: "array[float]" = field(default_factory=lambda: array("d"))
    """When each of those requests ended."""

    @property
    def requests(self) -> int:
        """How many requests were counted."""
        return len(self.ends)

    def add(self, other: "Route") -> None:
        """Count the requests of another route, too."""
        self.failed += other.failed
        self.ends.extend(other.ends)
        self.seconds.extend(other.seconds)
        self.timed_ends.extend(other.timed_ends)


@dataclass
class AccessLog:
    """What was found in logs. ``first`` and ``last`` are seconds since 1970.

    ``sources`` say where the durations of each file are.
    """

    routes: dict[tuple[str, str], Route] = field(default_factory=dict)
    first: float = float("inf")
    last: float = float("-inf")
    left_out: "Counter[str]" = field(default_factory=Counter)
    unreadable: int = 0
    without: int = 0
    """How many of the counted requests have no duration."""
    sources: dict[str, DurationSource] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many requests were counted."""
        return sum(route.requests for route in self.routes.values())

    @property
    def warning(self) -> str | None:
        """What is said at once if requests have no duration; the file says why."""
        if not self.without:
            return None
        return f"{self.without:,} of {self.requests:,} requests have no duration; the first lines of the file say why."

    @property
    def clock(self) -> str | None:
        """Whose clock measured the durations; None: unknown, or there are several."""
        clocks = {source.clock for source in self.sources.values()}
        return clocks.pop() if len(clocks) == 1 else None


def read_logs(paths: Sequence[Path], methods: Collection[str], unit: str = "") -> AccessLog:
    """Read logs, one after the other. ``-`` is standard input. ``unit`` is that of durations that are whole numbers.

    Raise WrongUse if a file cannot be read, has no line in a known format, or has durations without a unit.
    """
    if unit and unit not in (*UNITS, NO_UNIT):
        raise WrongUse(
            f"--unit {unit} is unknown.",
            hint="--unit s, --unit ms or --unit us; --unit none if no number is a duration",
        )
    log = AccessLog()
    for path in paths:
        _read(path, log, methods, unit)
    if log.requests < 2:
        others = ", ".join(f"{count} {name}" for name, count in log.left_out.most_common(3))
        raise WrongUse(f"The log has {log.requests} requests with {', '.join(methods)}, and {others or 'no others'}.",
                       hint="--methods GET,HEAD,POST counts further methods.")  # fmt: skip
    log.routes = _without_names_of_things(log.routes)
    return log


def _read(path: Path, log: AccessLog, methods: Collection[str], unit: str) -> None:
    unreadable_at, found, timeless = None, 0, False
    with _opened(path) as texts:
        numbered, source = _entries(texts, unit, path.name)
        log.sources[path.name] = source
        for place, entry in numbered:
            if not isinstance(entry, Entry):
                log.unreadable += 1
                unreadable_at = unreadable_at or place
                timeless = timeless or bool(TIMELESS.search(entry))
                continue
            found += 1
            line = _line(entry, source)
            if line.method not in methods:
                log.left_out[line.method] += 1
                continue
            _count(log, line)
    if unreadable_at and not found:
        raise _unknown(path.name, unreadable_at, timeless)


def _entries(texts: Iterator[str], unit: str, file: str) -> tuple[Iterator[tuple[int, Entry | str]], DurationSource]:
    """Return the entries of a log, each with the number of its line, and where its durations are.

    A line without a known format stays as it is.
    """
    numbered = ((place, parse_entry(text) or text) for place, text in enumerate(texts, start=1) if text.strip())
    sample = list(islice(numbered, SAMPLE))
    known = [(place, entry) for place, entry in sample if isinstance(entry, Entry)]
    source = find_durations(known, unit, file) if known else DurationSource("")
    return chain(sample, numbered), source


def _line(entry: Entry, source: DurationSource) -> LoggedRequest:
    took_s = source.take(entry)
    return LoggedRequest(
        entry.at, entry.method, entry.target, entry.status, None if took_s is None else max(took_s, SHORTEST_S)
    )


def _count(log: AccessLog, line: LoggedRequest) -> None:
    log.first, log.last = min(log.first, line.at), max(log.last, line.at)
    route = log.routes.setdefault((line.method, route_of(line.target)), Route())
    route.ends.append(line.at)
    route.failed += line.status >= 500
    if line.took_s is None:
        log.without += 1
    else:
        route.seconds.append(line.took_s)
        route.timed_ends.append(line.at)


def _unknown(file: str, place: int, timeless: bool) -> WrongUse:
    if timeless:
        problem = f"{file}: the requests in this log have no time, so nobody can know at which rate they came."
        return WrongUse(problem, hint="docker logs --timestamps adds the times. For durations, take the log of the "
                        "balancer, or run gunicorn --access-logformat with %(t)s and rt=%(L)s.")  # fmt: skip
    problem = f"{file}:{place}: this line has no format that the lab knows."
    names = ", ".join(known.name for known in FORMATS)
    return WrongUse(problem, hint="The lab reads the common and the combined format of nginx, Apache and gunicorn, "
                    f"with or without durations, JSON, and: {names}.")  # fmt: skip


def read_requests(path: Path) -> Iterator[LoggedRequest]:
    """Yield what is taken from each line of a log that has a known format. Raise WrongUse if it cannot be read.

    Whole numbers whose unit nothing says are no durations.
    """
    with _opened(path) as texts:
        numbered, source = _entries(texts, NO_UNIT, path.name)
        yield from (_line(entry, source) for _, entry in numbered if isinstance(entry, Entry))


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    try:
        if str(path) == "-":
            yield sys.stdin
        elif path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
                yield lines
        else:
            with path.open(encoding="utf-8", errors="replace") as lines:
                yield lines
    except (OSError, EOFError, zlib.error) as error:
        raise WrongUse(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.",
                       hint="lab requests /var/log/nginx/access.log") from None  # fmt: skip


def route_of(target: str) -> str:
    """Return the route of a request's target: its path, in which ids stand as {id} and files as {file}."""
    parts = [part for part in urlsplit(target).path.split("/") if part]
    if parts and _FILES.fullmatch(parts[-1]):
        return "/{file}"
    return "/" + "/".join("{id}" if _NAME_OF_A_THING.fullmatch(part) else part for part in parts)


def _without_names_of_things(routes: dict[tuple[str, str], Route]) -> dict[tuple[str, str], Route]:
    """Return routes in which a part of a path that has many values stands as {name}."""
    deepest = max(path.count("/") for _, path in routes)
    for place in range(1, deepest + 1):
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for method, path in routes:
            parts = path.split("/")
            if len(parts) > place and parts[place]:
                like = "/".join([*parts[:place], "{name}", *parts[place + 1 :]])
                alike.setdefault((method, like), []).append((method, path))
        for like_these, these in alike.items():
            if len(these) > MOST_ALIKE:
                merged = Route()
                for route in these:
                    merged.add(routes.pop(route))
                routes.setdefault(like_these, Route()).add(merged)
    return routes


def representative_durations(seconds: Sequence[float]) -> list[float]:
    """Return at most DURATIONS durations in order, which stand for all those of a class, and have the same mean."""
    ordered = np.sort(np.asarray(seconds, dtype=float))
    groups = min(DURATIONS, len(ordered))
    up_to = np.interp(np.linspace(0, len(ordered), groups + 1), np.arange(len(ordered) + 1), [0, *ordered.cumsum()])
    return [float(mean_s) for mean_s in np.diff(up_to) * groups / len(ordered)]


def class_name(method: str, path: str, names: "Counter[str]") -> str:
    """Return a name that a class can have, which no other class has."""
    name = name_from(f"{method} {path}", "request")[:40].strip("-")
    names[name] += 1
    return name if names[name] == 1 else f"{name}-{names[name]}"

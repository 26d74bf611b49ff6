"""Requests of access logs, by route.

A log holds what must not leave it: query strings, tokens in paths, addresses and agents of users. Only methods, the
fixed parts of paths, counts and durations are taken from it; whole targets only to be sent again.
"""

import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from stampede.errors import WrongUse
from stampede.logs.durations import NO_UNIT, DurationSource
from stampede.logs.formats import KNOWN, UNITS, Formats
from stampede.logs.reading import LoggedRequest, opened_log, without_durations
from stampede.records.model import name_from
from stampede.records.unprintable import UNPRINTABLE

MOST_CLASSES = 20
MOST_ALIKE = 10
"""If more routes than this differ in one part of their paths only, this part is the name of a thing, not of a route."""
DURATIONS = 50
"""How many durations describe a class. Each of them is the mean of as many requests, so that their mean is right."""
FARTHEST_S = 366 * 24 * 3600
"""A request that is farther from half of the others has a wrong time, or is of another time."""
_FILES = re.compile(r".*\.(?:css|gif|ico|jpe?g|js|map|png|svg|ttf|txt|webp|woff2?|xml)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<=/)\d+(?=/|$)")
_NAME_OF_A_THING = re.compile(
    rf"\d+|[0-9a-fA-F]{{8,}}|[0-9a-fA-F-]{{32,}}|.*[@%].*|(?=.*\d).{{16,}}|.{{40,}}|.*{UNPRINTABLE}.*", re.DOTALL
)


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
    astray: int = 0
    """How many requests are left out because they are more than FARTHEST_S from half of the others."""
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
    def recognised(self) -> list[str]:
        """What is said at once of each file: its format, and where its durations are."""
        return [f"{file}: {source.recognised}." for file, source in self.sources.items()]

    @property
    def clock(self) -> str | None:
        """Whose clock measured the durations; None: unknown, or there are several."""
        clocks = {source.clock for source in self.sources.values()}
        return clocks.pop() if len(clocks) == 1 else None


def read_logs(
    paths: Sequence[Path],
    methods: Collection[str],
    unit: str = "",
    formats: Formats = KNOWN,
    *,
    need_durations: bool = False,
) -> AccessLog:
    """Read logs, one after the other. ``-`` is standard input. ``unit`` is that of durations that are whole numbers.

    Raise WrongUse if a file cannot be read, has no line in one of the formats, has durations without a unit, or has
    no durations although they are needed.
    """
    if unit and unit not in (*UNITS, NO_UNIT):
        raise WrongUse(
            f"--unit {unit} is unknown.",
            hint="--unit s, --unit ms or --unit us; --unit none if no number is a duration",
        )
    log = AccessLog()
    for path in paths:
        file = "standard input" if str(path) == "-" else path.name
        with opened_log(path, unit, formats) as opened:
            source = log.sources[file] = opened.reader.source
            if need_durations and source.format and not source.says:
                raise without_durations(file, source)
            for batch in opened.batches():
                log.unreadable += len(batch.unreadable)
                for request in batch.requests():
                    if request.method in methods:
                        _count(log, request)
                    else:
                        log.left_out[request.method] += 1
    if log.requests < 2:
        others = ", ".join(f"{count} {name}" for name, count in log.left_out.most_common(3))
        raise WrongUse(f"The log has {log.requests} requests with {', '.join(methods)}, and {others or 'no others'}.",
                       hint="--methods GET,HEAD,POST counts further methods.")  # fmt: skip
    _leave_out_astray(log)
    log.first = min(min(route.ends) for route in log.routes.values())
    log.last = max(max(route.ends) for route in log.routes.values())
    log.routes = _without_names_of_things(log.routes)
    return log


def _leave_out_astray(log: AccessLog) -> None:
    """Leave out the requests whose times are so far from the others that a clock or a line must be wrong."""
    middle = float(np.median(np.concatenate([np.asarray(route.ends) for route in log.routes.values()])))
    for key, route in [*log.routes.items()]:
        near, timed = (np.abs(np.asarray(of) - middle) <= FARTHEST_S for of in (route.ends, route.timed_ends))
        if near.all():
            continue
        log.astray += int(np.sum(~near))
        log.without -= int(np.sum(~near)) - int(np.sum(~timed))
        route.ends, route.timed_ends, route.seconds = (
            array("d", np.asarray(of)[which])
            for of, which in ((route.ends, near), (route.timed_ends, timed), (route.seconds, timed))
        )
        if not near.any():
            del log.routes[key]


def _count(log: AccessLog, line: LoggedRequest) -> None:
    key = line.method, route_of(line.target)
    if not (route := log.routes.get(key)):
        route = log.routes[key] = Route()
    route.ends.append(line.at)
    if line.status >= 500:
        route.failed += 1
    if line.took_s is None:
        log.without += 1
    else:
        route.seconds.append(line.took_s)
        route.timed_ends.append(line.at)


def read_requests(path: Path, formats: Formats = KNOWN) -> Iterator[LoggedRequest]:
    """Yield what is taken from each line of a log that has a known format. Raise WrongUse if it cannot be read.

    Whole numbers whose unit nothing says are no durations.
    """
    with opened_log(path, NO_UNIT, formats) as opened:
        for batch in opened.batches():
            yield from batch.requests()


def route_of(target: str) -> str:
    """Return the route of a request's target: its path, in which ids stand as {id} and files as {file}."""
    return _route(_NUMBER.sub("0", target.partition("?")[0]))  # paths that differ in numbers are of one route


@lru_cache(maxsize=1 << 16)
def _route(target: str) -> str:
    path = target
    with suppress(ValueError):  # no address at all, such as http://[/
        path = urlsplit(target).path
    parts = [part for part in path.split("/") if part]
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

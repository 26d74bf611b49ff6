"""Requests from the access log of nginx or gunicorn: a class for each route, as a file for ``lab advise``.

A log holds what must not leave it: query strings, tokens in paths, addresses and agents of users. Only methods, the
fixed parts of paths, counts and durations are taken from it; whole targets only to be sent again (lab/own/replay.py).
"""

import gzip
import json
import re
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from lab.errors import WrongUse

MOST_CLASSES = 20
MOST_ALIKE = 10
"""If more routes than this differ in one part of their paths only, this part is the name of a thing, not of a route."""
DURATIONS = 50
"""How many durations describe a class. Each of them is the mean of as many requests, so that their mean is right."""
SHORTEST_S = 0.0005
"""nginx writes 0.000 for what takes less than half a millisecond."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
FORMATS = "The lab reads the combined format of nginx and gunicorn, with or without a request time, and JSON."

_COMBINED = re.compile(
    r'\[(?P<time>[^\]]+)\] "(?P<method>[A-Z]+) (?P<target>\S+)[^"]*" (?P<status>\d{3}) \S+(?P<rest>.*)'
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_DURATION = re.compile(r"(?:^|\s)(?:(?:rt|request_time|duration)=)?(\d+(?:\.\d+)?)(us|ms|s)?(?=[\s,;]|$)")
_TIMES = "time_iso8601", "time_local", "timestamp", "@timestamp", "msec", "time", "ts"
_METHODS = "request_method", "method"
_TARGETS = "request_uri", "uri", "path", "url"
_STATUSES = "status", "status_code"
_TAKES = ("request_time", "duration", "response_time", "request_time_ms", "duration_ms", "response_time_ms",
          "request_time_us", "duration_us", "response_time_us")  # fmt: skip
_FILES = re.compile(r".*\.(?:css|gif|ico|jpe?g|js|map|png|svg|ttf|txt|webp|woff2?|xml)", re.IGNORECASE)
_NAME_OF_A_THING = re.compile(r"\d+|[0-9a-fA-F]{8,}|[0-9a-fA-F-]{32,}|.*[@%].*|(?=.*\d).{16,}|.{40,}")


class Line(NamedTuple):
    """What is taken from a line of a log. ``took`` is a number as it is written, with its unit if it has one."""

    at: float
    method: str
    target: str
    status: int
    took: tuple[str, str | None] | None


@dataclass
class Route:
    """The requests of one method for one route."""

    requests: int = 0
    failed: int = 0
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, other: "Route") -> None:
        """Count the requests of another route, too."""
        self.requests += other.requests
        self.failed += other.failed
        self.seconds.extend(other.seconds)


@dataclass
class Log:
    """What was found in logs. ``first`` and ``last`` are seconds since 1970."""

    routes: dict[tuple[str, str], Route] = field(default_factory=dict)
    first: float = float("inf")
    last: float = float("-inf")
    left_out: "Counter[str]" = field(default_factory=Counter)
    unreadable: int = 0

    @property
    def requests(self) -> int:
        """How many requests were counted."""
        return sum(one.requests for one in self.routes.values())


def read_logs(paths: Sequence[Path], methods: Collection[str], unit: str = "") -> Log:
    """Read logs, one after the other. ``-`` is standard input. ``unit`` is that of all durations without a unit.

    Raise WrongUse if a file cannot be read, has no line in a known format, or has durations without a unit.
    """
    if unit and unit not in UNITS:
        raise WrongUse(f"UNIT={unit} is unknown.", hint="UNIT=s, UNIT=ms or UNIT=us")
    log = Log()
    for path in paths:
        _read(path, log, methods, unit)
    if log.requests < 2:
        others = ", ".join(f"{count} {name}" for name, count in log.left_out.most_common(3))
        raise WrongUse(f"The log has {log.requests} requests with {', '.join(methods)}, and {others or 'no others'}.",
                       hint="METHODS=GET,HEAD,POST counts further methods.")  # fmt: skip
    log.routes = _without_names_of_things(log.routes)
    return log


def _read(path: Path, log: Log, methods: Collection[str], unit: str) -> None:
    found, unreadable_at = 0, None
    with _opened(path) as lines:
        for place, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            line = _parsed(text)
            if line is None:
                log.unreadable += 1
                unreadable_at = unreadable_at or place
                continue
            found += 1
            if line.method not in methods:
                log.left_out[line.method] += 1
                continue
            log.first, log.last = min(log.first, line.at), max(log.last, line.at)
            route = log.routes.setdefault((line.method, route_of(line.target)), Route())
            route.requests += 1
            route.failed += line.status >= 500
            if line.took:
                route.seconds.append(seconds_of(line.took, unit, f"{path.name}:{place}"))
    if unreadable_at and not found:
        raise WrongUse(f"{path.name}:{unreadable_at}: this line has no format that the lab knows.", hint=FORMATS)


def lines_of(path: Path) -> Iterator[Line]:
    """Yield what is taken from each line of a log that has a known format. Raise WrongUse if it cannot be read."""
    with _opened(path) as lines:
        yield from filter(None, map(_parsed, lines))


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
                       hint="make requests LOG=/var/log/nginx/access.log") from None  # fmt: skip


def _parsed(text: str) -> Line | None:
    if text.lstrip().startswith("{"):
        return _from_json(text)
    found = _COMBINED.search(text)
    at = found and _since_1970(found["time"])
    if not found or at is None:
        return None
    took = _DURATION.search(_QUOTED.sub("-", found["rest"]))
    return Line(at, found["method"], found["target"], int(found["status"]), (took[1], took[2]) if took else None)


def _from_json(line: str) -> Line | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    if not isinstance(values, dict):
        return None
    method, target = _first(values, _METHODS), _first(values, _TARGETS)
    if isinstance(request := values.get("request"), str) and len(request.split()) > 1:
        method, target = request.split()[:2]
    at, status, took = _first(values, _TIMES), _first(values, _STATUSES), None
    for key in _TAKES:
        value = values.get(key)
        text = f"{value:f}" if isinstance(value, float) else str(value)
        if re.fullmatch(r"\d+(\.\d+)?", text):
            took = text, key.rpartition("_")[2] if key.endswith(("_ms", "_us")) else None
            break
    since = _since_1970(str(at))
    if since is None or not method or not target or not str(status).isdecimal():
        return None
    return Line(since, str(method), str(target), int(str(status)), took)


def _first(values: dict[str, Any], keys: Sequence[str]) -> object:
    return next((values[key] for key in keys if values.get(key) is not None), None)


@lru_cache(maxsize=1024)
def _since_1970(text: str) -> float | None:
    """Return a time as seconds since 1970; None: the text is no time. A time without a zone is taken as UTC."""
    if re.fullmatch(r"\d{9,10}(\.\d+)?|\d{13}", text):
        return float(text) / (1000 if len(text) == 13 and text.isdecimal() else 1)
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    with suppress(ValueError):
        return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    return None


def seconds_of(took: tuple[str, str | None], unit: str, place: str) -> float:
    """Return a duration of a log in seconds. Raise WrongUse if neither the log nor ``unit`` says its unit."""
    number, own = took
    if not own and not unit and "." not in number:
        raise WrongUse(f"{place}: the duration {number} has no unit.",
                       hint="UNIT=us for gunicorn's %(D)s, UNIT=ms for %(M)s, UNIT=s for %(T)s")  # fmt: skip
    return max(float(number) * UNITS[own or unit or "s"], SHORTEST_S)


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
                for one in these:
                    merged.add(routes.pop(one))
                routes.setdefault(like_these, Route()).add(merged)
    return routes


def described(log: Log, of: str, cores: int) -> str:
    """Return the file for ``lab advise``: the most frequent routes as classes, and all others as one class."""
    lasts_s = max(log.last - log.first, 1.0)
    ordered = sorted(log.routes.items(), key=lambda item: (-item[1].requests, item[0]))
    chosen = ordered if len(ordered) <= MOST_CLASSES else ordered[: MOST_CLASSES - 1]
    lines = [
        f"# From {of}: {log.requests:,} requests in {lasts_s:,.0f} s.",
        *([f"# Left out: {_counted(log.left_out)}. METHODS=GET,HEAD,POST counts further methods."]
          if log.left_out else []),
        *([f"# Lines without a format that the lab knows: {log.unreadable:,}."] if log.unreadable else []),
        "# Durations in a log include the time that a request waited. Prefer a log of a time when nobody waited.",
        f"cores: {cores}  # a guess: as many as this machine has",
        "memory_mib: 1024  # a guess: the memory for all workers together",
        "classes:",
    ]  # fmt: skip
    names: Counter[str] = Counter()
    for (method, path), route in chosen:
        lines += _class(name_of(method, path, names), f"{method} {path}", route, log.requests, lasts_s)
    if len(chosen) < len(ordered):
        others = Route()
        for _, route in ordered[len(chosen) :]:
            others.add(route)
        what = f"{len(ordered) - len(chosen)} further routes"
        lines += _class(name_of("", "others", names), what, others, log.requests, lasts_s)
    return "\n".join(lines) + "\n"


def standing_for(seconds: Sequence[float]) -> list[float]:
    """Return at most DURATIONS durations in order, which stand for all the durations of a class."""
    groups = np.array_split(np.sort(np.array(seconds)), min(DURATIONS, len(seconds)))
    return [float(one.mean()) for one in groups]


def _class(name: str, what: str, route: Route, of: int, lasts_s: float) -> list[str]:
    failed = f"; {route.failed:,} ended with a status from 500 on" if route.failed else ""
    shown = "".join(one if one.isprintable() else "?" for one in what[:80])
    lines = [f"  {name}:  # {shown}: {route.requests / of:.1%} of the requests{failed}"]
    lines.append(f"    per_second: {route.requests / lasts_s:.4g}")
    if not route.seconds:
        return [
            *lines,
            "    takes_s: 0.1  # a guess: the log has no durations; nginx has $request_time, gunicorn %(L)s",
        ]
    means = [f"{one:.4g}" for one in standing_for(route.seconds)]
    if len(means) == 1:
        return [*lines, f"    takes_s: {means[0]}"]
    rows = [", ".join(means[start : start + 10]) for start in range(0, len(means), 10)]
    return [*lines, "    takes_s: [" + ",\n              ".join(rows) + "]"]


def name_of(method: str, path: str, names: "Counter[str]") -> str:
    """Return a name that a class can have, which no other class has."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{method} {path}".lower()).strip("-")[:40].strip("-")
    names[name] += 1
    return name if names[name] == 1 else f"{name}-{names[name]}"


def _counted(counts: "Counter[str]") -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common())

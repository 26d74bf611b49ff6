"""Requests of access logs, by route.

A log holds what must not leave it: query strings, tokens in paths, addresses and agents of users. Only methods, the
fixed parts of paths, counts and durations are taken from it; whole targets only to be sent again.
"""

import io
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from stampede.errors import WrongUse
from stampede.foreign import LONGEST_LINE, MOST_JSON_BYTES, Lines, open_text, parse_json, unreadable
from stampede.logs.bulk import SHORTEST_S, LoggedRequest, requests_in
from stampede.logs.durations import NO_UNIT, DurationSource, find_durations
from stampede.logs.formats import (
    ADD,
    FORMATS,
    FREE,
    HAS_TIME,
    KNOWN,
    ORIGIN,
    TIMELESS,
    UNITS,
    Entry,
    Formats,
    parse_entry,
)
from stampede.logs.identity import Identity, find_identity
from stampede.logs.w3c import w3c_format
from stampede.records.model import name_from
from stampede.records.unprintable import UNPRINTABLE

MOST_CLASSES = 20
MOST_ALIKE = 10
"""If more routes than this differ in one part of their paths only, this part is the name of a thing, not of a route."""
DURATIONS = 50
"""How many durations describe a class. Each of them is the mean of as many requests, so that their mean is right."""
SAMPLE = 10_000
"""From so many lines of a log, the lab finds out where the durations are."""
FARTHEST_S = 366 * 24 * 3600
"""A request that is farther from half of the others has a wrong time, or is of another time."""
SOUGHT = 1 << 26
"""If the first so many characters of a log have no line with a known format, there is none."""
PART = 1 << 25
"""A larger file is read in parts of so many bytes."""

_ANOTHER = 0.2
"""If more than this share of the lines have a format, they are no exceptions."""

_HEAD = 64
_LIST_OF_OBJECTS = re.compile(r"\s*\[\s*(?:\{|$)")
_FILES = re.compile(r".*\.(?:css|gif|ico|jpe?g|js|map|png|svg|ttf|txt|webp|woff2?|xml)", re.IGNORECASE)
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
        _read(path, log, methods, unit, formats, need_durations)
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


def _read(
    path: Path, log: AccessLog, methods: Collection[str], unit: str, formats: Formats, need_durations: bool
) -> None:
    file = "standard input" if str(path) == "-" else path.name
    with _opened(path) as texts:
        sample = _sample(texts, unit, file, formats)
        log.sources[file] = sample.source
        if need_durations and sample.source.format and not sample.source.says:
            raise _without_durations(file, sample.source)
        for line in chain(sample.lines(), requests_in(texts, sample.source, sample.read)):
            if isinstance(line, str):
                log.unreadable += bool(line.strip())
            elif line.method in methods:
                _count(log, line)
            else:
                log.left_out[line.method] += 1


class _Sample(NamedTuple):
    """The first lines of a log. ``source`` says where the durations are, in these and all further lines."""

    entries: list[Entry | str]
    source: DurationSource
    formats: Formats
    texts: list[str]

    def lines(self) -> Iterator[LoggedRequest | str]:
        """Yield what is taken from each line; a line without a known format as it is."""
        return (self.line(entry) for entry in self.entries)

    def read(self, text: str) -> LoggedRequest | str:
        """Return what is taken from a further line; a line without a known format as it is."""
        return self.line(parse_entry(text, self.formats) or text)

    def line(self, entry: Entry | str) -> LoggedRequest | str:
        """Return what is taken from a line."""
        if isinstance(entry, str):
            return entry
        took_s = self.source.take(entry)
        took_s = None if took_s is None else max(took_s, SHORTEST_S)
        return LoggedRequest(entry.at, entry.method, entry.target, entry.status, took_s, entry.worker)


def _sample(texts: Lines, unit: str, file: str, formats: Formats) -> _Sample:
    """Read lines until some have a format. Raise WrongUse if no line of a log that is not empty has one."""
    before: list[Entry | str] = []
    lines: list[str] = []
    while sum(map(len, lines)) < SOUGHT and (batch := texts.take(SAMPLE)):
        lines += batch
        if formats.is_own:
            formats = formats.fitting(batch)
        elif declared := w3c_format(batch):
            formats = Formats((declared,), (), None)
        entries = [parse_entry(text, formats) or text for text in batch]
        start = len(before) + 1
        if known := [(at, entry) for at, entry in enumerate(entries, start) if isinstance(entry, Entry)]:
            _refuse_several_services([batch[at - start] for at, _ in known], file)
            sample = _with_durations(_Sample(before + entries, DurationSource(""), formats, lines), known, unit, file)
            return sample if sample.source.says or formats.is_own else _free_sample(lines, unit, file) or sample
        if not formats.is_own and (free := _free_sample(lines, unit, file, may_lack=True)):
            return free
        before += entries
    if written := [(at, text) for at, text in enumerate(before, 1) if isinstance(text, str) and text.strip()]:
        raise _unknown(file, written, formats)
    return _Sample([], DurationSource(""), formats, [])


def _refuse_several_services(texts: Sequence[str], file: str) -> None:
    """Raise WrongUse if several services of Compose log requests: a balancer logs what the server behind it logs."""
    services = Counter(found["service"] for text in texts if (found := ORIGIN.match(text)))
    often = [name for name, count in services.items() if count > _ANOTHER * len(texts)]
    if len(often) > 1:
        problem = f"{file}: {' and '.join(often)} log requests, perhaps the same ones, so each would count twice."
        raise WrongUse(problem, hint=f"Take the log of one of them: docker compose logs {often[0]} > {often[0]}.log")


def _with_durations(sample: _Sample, known: Sequence[tuple[int, Entry]], unit: str, file: str) -> _Sample:
    """Return a sample with the place of its durations, and without lines in which others log the same requests."""
    source = find_durations(known, unit, file)
    often = Counter(entry.format for _, entry in known)
    others = {each for each, count in often.items() if each != source.format and count > _ANOTHER * len(known)}
    if not source.format or not source.format.duration or not others or sample.formats.is_own:
        return sample._replace(source=source)
    formats = sample.formats.without(others)
    names = " and ".join(each.name for each in others)
    note = f"Lines in {names} are left out, because they are of another program."
    entries = [parse_entry(text, formats) or text for text in sample.texts]
    return _Sample(entries, replace(source, notes=(*source.notes, note)), formats, sample.texts)


def _free_sample(texts: list[str], unit: str, file: str, *, may_lack: bool = False) -> _Sample | None:
    """Return lines in a format of their own; None: too few of them have one, or no durations, if they may not lack."""
    formats = Formats((FREE,), (), None)
    entries = [parse_entry(text, formats) or text for text in texts]
    known = [(at, entry) for at, entry in enumerate(entries, 1) if isinstance(entry, Entry)]
    if len(known) < _ANOTHER * sum(bool(text.strip()) for text in texts) or not known:
        return None
    try:
        source = find_durations(known, unit, file)
    except WrongUse:
        if may_lack:
            raise
        return None
    return _Sample(entries, source, formats, texts) if source.says or may_lack else None


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


def _without_durations(file: str, source: DurationSource) -> WrongUse:
    name = source.format.name if source.format else "no requests"
    notes = "".join(f"\n  {note}" for note in source.notes)
    problem = f"{file}: {name}, but no field is known to be the duration of a request.{notes}"
    add = source.format.add if source.format else ADD
    return WrongUse(problem, hint=f"Add it to the server's configuration.\n{add}\n--unit none takes only the rates.")


def _unknown(file: str, written: Sequence[tuple[int, str]], formats: Formats) -> WrongUse:
    place, text = written[0]
    if formats.is_own:
        names = " and ".join([known.name for known in formats.lines] + [known.name for known in formats.keys])
        return WrongUse(f"{file}:{place}: this line, and every other, differs from {names}.",
                        hint="\n".join([*_differences(formats, text), "Without --format, --format-from and "
                                        "--json-keys, the lab looks for the format itself."]))  # fmt: skip
    if any(TIMELESS.search(text) and not HAS_TIME.search(text) for _, text in written):
        problem = f"{file}: the requests in this log have no time, so nobody can know at which rate they came."
        return WrongUse(problem, hint="docker logs --timestamps adds the times, as does %(asctime)s in uvicorn's "
                        "--log-config. For durations, take the log of the balancer, or run gunicorn "
                        f"--access-logformat with %(t)s and rt=%(L)s.\n{ADD}")  # fmt: skip
    problem = f"{file}:{place}: this line has no format that the lab knows."
    names = ", ".join(known.name for known in FORMATS)
    return WrongUse(problem, hint="--format '…' takes the log_format of nginx.conf, the LogFormat of Apache or the "
                    "access_log_format of gunicorn, and --json-keys other names in JSON. The lab knows JSON, logfmt, "
                    f"and: {names}.")  # fmt: skip


def _differences(formats: Formats, text: str) -> Iterator[str]:
    """Yield where a line differs from each format that the user named, in the words of the format."""
    for known in formats.lines:
        fits, rest = known.fits_up_to(text)
        yield f"{known.name}: the line differs at <{rest}>" + (f", after <{fits}>" if fits else "")


def read_requests(path: Path, formats: Formats = KNOWN) -> Iterator[LoggedRequest]:
    """Yield what is taken from each line of a log that has a known format. Raise WrongUse if it cannot be read.

    Whole numbers whose unit nothing says are no durations.
    """
    with _opened(path) as texts:
        sample = _sample(texts, NO_UNIT, path.name, formats)
        lines = chain(sample.lines(), map(sample.read, texts))
        yield from (line for line in lines if isinstance(line, LoggedRequest))


class Part(NamedTuple):
    """The lines of a file that begin in its bytes from ``first`` on, before ``last``."""

    first: int
    last: int


def parts_of(path: Path) -> list[Part | None]:
    """Return parts of a file that can be read one without the other. None: the file must be read as a whole."""
    if not path.is_file() or (size := path.stat().st_size) <= PART:
        return [None]
    with path.open("rb") as file:
        if file.read(2).startswith((b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"[")):
            return [None]
    return [Part(first, min(first + PART, size)) for first in range(0, size, PART)]


class OpenedLog(NamedTuple):
    """A log, or a part of it. ``source`` says where its durations are, and ``identity`` where its ids are.

    ``first`` are the first lines of the log, and ``texts`` are all lines of the part.
    """

    source: DurationSource
    identity: Identity
    first: Sequence[str]
    texts: Lines
    read_alone: Callable[[str], LoggedRequest | str]

    def requests(self, texts: Lines) -> Iterator[LoggedRequest | str]:
        """Yield what is taken from each line that is not empty; a line without a known format as it is."""
        return requests_in(texts, self.source, self.read_alone, self.identity)


@contextmanager
def opened_log(path: Path, unit: str = "", formats: Formats = KNOWN, part: Part | None = None) -> Iterator[OpenedLog]:
    """Yield a log, or a part of it. Raise WrongUse if it cannot be read, or if no line has a known format."""
    if part:
        sample, identity = _sample_of(path, unit, formats)
        yield OpenedLog(sample.source, identity, sample.texts, _lines_of(path, part), sample.read)
        return
    with _opened(path) as texts:
        sample = _sample(texts, unit, "standard input" if str(path) == "-" else path.name, formats)
        texts.unread("".join(sample.texts))
        yield OpenedLog(sample.source, find_identity(sample.texts), sample.texts, texts, sample.read)


@lru_cache(maxsize=8)
def _sample_of(path: Path, unit: str, formats: Formats) -> tuple[_Sample, Identity]:
    with _opened(path) as texts:
        sample = _sample(texts, unit, path.name, formats)
        return sample, find_identity(sample.texts)


def _lines_of(path: Path, part: Part) -> Lines:
    """Return the lines that begin in a part. The end of a line that began before is no line."""
    try:
        with path.open("rb") as file:
            if part.first:
                file.seek(part.first - 1)
                while (left := part.last - file.tell()) > 0 and not file.readline(min(left, PART)).endswith(b"\n"):
                    pass
            content = file.read(max(0, part.last - file.tell()))
            if content and not content.endswith(b"\n"):
                content += file.readline(4 * LONGEST_LINE + 1)  # a character has four bytes at most
    except OSError as error:
        raise unreadable(path, error) from None
    return Lines(io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", "replace"))


@contextmanager
def _opened(path: Path) -> Iterator[Lines]:
    """Yield the lines of a log; if it is a list of objects, as gcloud logging read writes it, a line for each."""
    with open_text(path) as texts:
        yield _objects(texts, path)


def _objects(texts: Lines, path: Path) -> Lines:
    head = texts.read_whole(_HEAD)
    texts.unread(head)
    if not _LIST_OF_OBJECTS.match(head):
        return texts
    if len(whole := texts.read_whole(MOST_JSON_BYTES + 1)) > MOST_JSON_BYTES:
        problem = f"{path} is one list of more than {MOST_JSON_BYTES >> 20} MiB, which must be read as a whole."
        raise WrongUse(problem, hint="Write an object in each line: jq -c '.[]' < list.json > lines.json")
    try:
        return Lines(io.StringIO("\n".join(json.dumps(each) for each in parse_json(whole))))
    except ValueError:
        texts.unread(whole)
        return texts


def route_of(target: str) -> str:
    """Return the route of a request's target: its path, in which ids stand as {id} and files as {file}."""
    return _route(target.partition("?")[0])


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

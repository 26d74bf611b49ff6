"""Logs, from their bytes to what is taken from each line.

The first lines of a log say which format it has, and where in it the durations, ids and workers are. One pattern then
finds the parts of many lines at once; a line that differs from the first ones is read alone, as objects of JSON are.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stampede.errors import WrongUse
from stampede.foreign import MOST_JSON_BYTES, Lines, open_text, parse_json
from stampede.logs.durations import DurationSource, find_durations
from stampede.logs.formats import (
    ADD,
    COLOUR,
    FORMATS,
    FREE,
    HAS_TIME,
    KNOWN,
    LONGEST_S,
    ORIGIN,
    TIMELESS,
    UNITS,
    Entry,
    Format,
    Formats,
    epoch_seconds,
    formats_of_columns,
    json_keys,
    parse_entry,
    printed_in,
    seconds_of,
    worker_of,
)
from stampede.logs.identity import ROUNDED_S, Identity, find_identity

CHUNK = 1 << 21
"""So many characters of a log are in memory at once, and the rest of their last line."""
SHORTEST_S = 0.0005
"""nginx writes 0.000 for what takes less than half a millisecond."""
SAMPLE = 2_000
"""From so many lines of a log, the lab finds out where the durations are."""
SOUGHT = 1 << 26
"""If the first so many characters of a log have no line with a known format, there is none."""

T = TypeVar("T")
_ASKED = re.compile(r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)\b")
"""Behind the first lines, lines without any of these are not looked at: they are no requests."""
_ANOTHER = 0.2  # if more than this share of the lines have a format, they are no exceptions
_ORIGIN = re.compile(r"[A-Za-z][\w+.-]*://[^/?#]*")
"""What stands before the path if a log has whole addresses, as those of cloud balancers do; a server logs the path."""


class LoggedRequest(NamedTuple):
    """What a line says of a request. ``took_s`` is None if it has no duration, ``worker`` is what answered."""

    at: float
    method: str
    target: str
    status: int
    took_s: float | None
    worker: str | None


class Batch(NamedTuple):
    """What many lines say of requests, in their order, each as a list; and the lines that say nothing of one.

    ``arrived`` is when the balancer got a request, in seconds since 1970, and ``upstream_s`` how long the server took
    as the balancer saw it, if the line says so.
    """

    at: list[float]
    method: list[str]
    target: list[str]
    status: list[int]
    took_s: list[float | None]
    worker: list[str | None]
    id: list[str | None]
    arrived: list[float | None]
    upstream_s: list[float | None]
    unreadable: list[str]

    @classmethod
    def empty(cls) -> "Batch":
        """Return a batch without lines."""
        return cls(*([] for _ in cls._fields))

    def requests(self) -> Iterator[LoggedRequest]:
        """Yield each request."""
        return map(LoggedRequest._make, zip(*self[: len(LoggedRequest._fields)], strict=True))


@dataclass
class Reader:
    """Reads the lines of a log.

    ``source`` says where the durations are, ``identity`` where the ids are, if wanted. ``is_printed``: the lines are
    objects into which another program has put the lines of a format.
    """

    texts: Lines
    source: DurationSource
    formats: Formats
    identity: Identity = field(default_factory=Identity)
    is_printed: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """The pattern that finds the parts of each line; None: each line is read alone."""
        known = self.source.format
        if not isinstance(known, Format) or known.is_free:
            return None
        line = known.line.pattern.replace("(?P<rest>.*)", self.source.rest)
        before = r"[^\[\n]*+(?:\[[^\[\n]*+)*?" if line.startswith(r"\[") else ".*?"
        return re.compile(rf"^(?:{before}(?:{line}).*|.*)$", re.MULTILINE)

    def batches(self) -> Iterator[Batch]:
        """Yield what all lines say."""
        while text := self.texts.read(CHUNK):
            yield self.read(text)

    def read(self, text: str) -> Batch:
        """Return what is taken from lines."""
        text = COLOUR.sub("", text) if "\x1b" in text else text
        lines = [*filter(str.strip, text.split("\n"))]
        if not lines:
            return Batch.empty()
        columns: list[list[Any]] = [*self._columns(lines)]
        at, methods, targets, statuses, took, workers = columns
        kept = [True] * len(lines)
        others = None in at or "" in methods
        for line in [place for place, found in enumerate(at) if found is None or not methods[place]] if others else ():
            entry = parse_entry(lines[line], self.formats)
            if not entry:
                kept[line] = False
                continue
            took_s = self.source.take(entry)
            at[line], methods[line], targets[line], statuses[line] = entry.at, entry.method, entry.target, entry.status
            took[line], workers[line] = None if took_s is None else max(took_s, SHORTEST_S), entry.worker
        unreadable = [line for known, line in zip(kept, lines, strict=True) if not known]
        if not all(kept):
            lines, *columns = ([*compress(column, kept)] for column in (lines, *columns))
            at, methods, targets, statuses, took, workers = columns
        ids, workers, moments, arrived, upstream = self.identity.of(lines, workers)
        if self.identity.moment:
            at = [moment if moment is not None and 0 <= moment - whole <= ROUNDED_S else whole
                  for whole, moment in zip(at, moments, strict=True)]  # fmt: skip
        targets = [target if target[0] == "/" else _ORIGIN.sub("", target, count=1) or "/" for target in targets]
        return Batch(at, methods, targets, statuses, took, workers, ids, arrived, upstream, unreadable)

    def _columns(self, lines: list[str]) -> tuple[Any, ...]:
        """Return time, method, target, status, duration and worker of each line; time: None: it has another shape."""
        texts = lines
        if self.is_printed:
            printed = (printed_in(json_keys(line)) for line in lines)
            texts = [text if text and "\n" not in text else line for text, line in zip(printed, lines, strict=True)]
        found = self._pattern.findall("\n".join(texts)) if self._pattern else []
        if not self._pattern or len(found) != len(lines):  # a format with a line end goes on in the next line
            return tuple([None] * len(lines) for _ in range(6))
        columns = [*zip(*found, strict=True)]
        part = {name: columns[place - 1] for name, place in self._pattern.groupindex.items()}
        at = mapped(epoch_seconds, part["time"])
        took: list[float | None] = [None] * len(lines)
        for unit in ("value", *UNITS):
            if unit in part:
                seconds = self.source.seconds if unit == "value" else partial(seconds_of, unit=unit)
                found = _durations(part[unit], seconds)
                took = found if unit == "value" else [a if b is None else b for a, b in zip(took, found, strict=True)]
        if self.source.format and self.source.format.at_start:
            at = [each if each is None else each + (took_s or 0.0) for each, took_s in zip(at, took, strict=True)]
        believed = bool(self.source.says)
        took = [max(each, SHORTEST_S) if believed and each is not None else None for each in took]
        statuses = mapped(lambda text: int(text or 0), part.get("status", [""] * len(lines)))
        workers = mapped(worker_of, part.get("worker", [""] * len(lines)))
        return at, [*part["method"]], [*part["target"]], statuses, took, workers


def mapped(function: Callable[[T], Any], values: Sequence[T]) -> list[Any]:
    """Return what a function says of values, of which many are the same, in the order in which they first come."""
    found = {value: function(value) for value in dict.fromkeys(values)}
    return [found[value] for value in values]


def _durations(texts: Sequence[str], seconds: Callable[[str], float | None]) -> list[float | None]:
    """Return durations in seconds; None: the text is no duration. Most logs have numbers only."""
    dots = sum("." in text for text in texts)
    one = seconds("1.0") if dots == len(texts) else None if dots else seconds("1")
    if one:
        with suppress(ValueError):
            numbers = [*map(float, texts)]
            if max(numbers) * one <= LONGEST_S:
                return [number * one for number in numbers]
    return mapped(lambda text: seconds(text) if text else None, texts)


@contextmanager
def opened_log(path: Path, unit: str = "", formats: Formats = KNOWN, *, identify: bool = False) -> Iterator[Reader]:
    """Yield what reads a log. Raise WrongUse if it cannot be read, or if no line has a known format.

    ``identify``: say of each request its id, its precise time and its worker, too.
    """
    with open_text(path) as opened:
        yield find_reader(_objects(opened, path), unit, name_of(path), formats, identify=identify)


def name_of(path: Path) -> str:
    """Return how a log is called in messages."""
    return "standard input" if str(path) == "-" else path.name


def _objects(texts: Lines, path: Path) -> Lines:
    """Return lines; if they are a list of objects, as gcloud and aws logs write it, a line for each."""
    texts.unread(head := texts.read_whole(64))
    if not re.match(r"\s*(?:\{\s*\"events\"\s*:\s*)?\[\s*(?:\{|$)", head):
        return texts
    if len(whole := texts.read_whole(MOST_JSON_BYTES + 1)) > MOST_JSON_BYTES:
        problem = f"{path} is one list of more than {MOST_JSON_BYTES >> 20} MiB, which must be read as a whole."
        raise WrongUse(problem, hint="Write an object in each line: jq -c '.[]' < list.json > lines.json")
    with suppress(ValueError):
        found = parse_json(whole)
        events = found.get("events") if isinstance(found, dict) else found
        if isinstance(events, list):
            return Lines(io.StringIO("\n".join(map(json.dumps, events))))
    texts.unread(whole)
    return texts


def find_reader(texts: Lines, unit: str, file: str, formats: Formats, *, identify: bool = False) -> Reader:
    """Read lines until some have a format, put them back, and return what reads them.

    Raise WrongUse if no line of a log that is not empty has a format, or if it may have durations of unknown unit.
    """
    first: list[str] = []
    reader = None
    while not reader and sum(map(len, first)) < SOUGHT and (lines := texts.take(SAMPLE)):
        first += lines
        if len(first) == len(lines) or _ASKED.search("".join(lines)):
            reader = _reader_for(texts, lines, len(first) - len(lines) + 1, unit, file, formats)
    texts.unread("".join(first))
    if not reader and (written := [(at, text) for at, text in enumerate(first, 1) if text.strip()]):
        raise _unknown(file, written, formats)
    reader = reader or Reader(texts, DurationSource(""), formats)
    if identify:
        entries = [(COLOUR.sub("", line), entry) for line in first if (entry := parse_entry(line, reader.formats))]
        ends_s = [entry.at - (entry.own_s or 0.0) * entry.format.at_start for _, entry in entries]
        reader.identity = find_identity([line for line, _ in entries], ends_s)
    return reader


def _reader_for(
    texts: Lines, lines: Sequence[str], first: int, unit: str, file: str, formats: Formats
) -> Reader | None:
    """Return what reads lines such as these, of which the first has this number; None: none has a format."""

    def entries(formats: Formats) -> list[tuple[int, Entry]]:
        return [(at, entry) for at, line in enumerate(lines, first) if (entry := parse_entry(line, formats))]

    def free(*, may_lack: bool) -> Reader | None:
        """Return what reads lines in a format of their own; None: too few have one, or it has no durations."""
        own = Formats((FREE,), (), None)
        known = entries(own)
        if not known or len(known) < _ANOTHER * sum(bool(text.strip()) for text in lines):
            return None
        try:
            source = find_durations(known, unit, file)
        except WrongUse:
            if may_lack:
                raise
            return None
        return Reader(texts, source, own) if source.says or may_lack else None

    if formats.is_own and formats.lines:  # one of the formats
        best = max(formats.lines, key=lambda known: sum(bool(known.line.search(text)) for text in lines))
        formats = formats._replace(lines=(best,)) if any(map(best.line.search, lines)) else formats
    if not formats.is_own and first == 1:
        formats = formats_of_columns(lines, formats)
    known = entries(formats)
    if not known:
        return None if formats.is_own else free(may_lack=True)
    written = [lines[at - first] for at, _ in known]
    services = Counter(found["service"] for text in written if (found := ORIGIN.match(text)))
    often = [name for name, count in services.items() if count > _ANOTHER * len(known)]
    if len(often) > 1:  # a balancer logs what the server behind it logs
        problem = f"{file}: {' and '.join(often)} log requests, perhaps the same ones, so each would count twice."
        raise WrongUse(problem, hint=f"Take the log of one of them: docker compose logs {often[0]} > {often[0]}.log")
    source = find_durations(known, unit, file)
    of_format = Counter(entry.format for _, entry in known)
    others = {each for each, count in of_format.items() if each != source.format and count > _ANOTHER * len(known)}
    if source.format and source.format.duration and others and not formats.is_own:
        formats = formats._replace(
            lines=tuple(each for each in formats.lines if each not in others),
            keys=tuple(each for each in formats.keys if each not in others),
        )
        names = " and ".join(each.name for each in others)
        note = f"Lines in {names} are left out, because they are of another program."
        source = replace(source, notes=(*source.notes, note))
    if not source.says and not formats.is_own and (reader := free(may_lack=False)):
        return reader
    is_printed = isinstance(source.format, Format) and bool(printed_in(json_keys(written[0])))
    return Reader(texts, source, formats, is_printed=is_printed)


def without_durations(file: str, source: DurationSource) -> WrongUse | None:
    """Return the message that a log has no durations, with what is not believed and what to add; None: it is empty."""
    if not source.format:
        return None
    notes = "".join(f"\n  {note}" for note in source.notes)
    problem = f"{file}: {source.format.name}, but no field is known to be the duration of a request.{notes}"
    add = f"Add it to the server's configuration.\n{source.format.add}"
    return WrongUse(problem, hint=f"{add}\n--unit none takes only the rates.")


def _unknown(file: str, written: Sequence[tuple[int, str]], formats: Formats) -> WrongUse:
    place, text = written[0]
    if formats.is_own:
        differences = [f"{each.name}: the line differs at <{rest}>" + (f", after <{fits}>" if fits else "")
                       for each in formats.lines for fits, rest in [each.fits_up_to(text)]]  # fmt: skip
        names = " and ".join([*(each.name for each in formats.lines), *(each.name for each in formats.keys)])
        return WrongUse(f"{file}:{place}: this line, and every other, differs from {names}.",
                        hint="\n".join([*differences, "Without --format and --json-keys, the lab looks for the "
                                        "format itself."]))  # fmt: skip
    if any(TIMELESS.search(text) and not HAS_TIME.search(text) for _, text in written):
        problem = f"{file}: the requests in this log have no time, so nobody can know at which rate they came."
        return WrongUse(problem, hint="docker logs --timestamps adds the times, as does %(asctime)s in uvicorn's "
                        "--log-config. For durations, take the log of the balancer, or run gunicorn "
                        f"--access-logformat with %(t)s and rt=%(L)s.\n{ADD}")  # fmt: skip
    problem = f"{file}:{place}: this line has no format that the lab knows."
    names = ", ".join(known.name for known in FORMATS)
    return WrongUse(problem, hint="--format '…' takes the log_format of nginx.conf, the LogFormat of Apache or the "
                    "access_log_format of gunicorn, and --json-keys other names in JSON. The lab knows JSON, CSV, "
                    f"logfmt, and: {names}.")  # fmt: skip

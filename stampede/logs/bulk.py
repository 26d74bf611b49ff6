"""Many lines of a log at once: the lines of a log are alike, so a single program finds the parts of all of them.

A line that differs from the first lines is read alone.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.foreign import Lines
from stampede.logs.durations import DurationSource
from stampede.logs.formats import (
    ISO_TIME,
    OBJECT,
    OF_DOCKER,
    TEXT,
    UNITS,
    JsonFormat,
    epoch_seconds,
    json_keys,
    logfmt_entry,
    logfmt_keys,
    seconds_of,
    worker_of,
)
from stampede.logs.identity import Identity

CHUNK = 1 << 22
"""So many characters of a log are in memory at once, and the rest of their last line."""
SHORTEST_S = 0.0005
"""nginx writes 0.000 for what takes less than half a millisecond."""
_FIRST = 1000
"""So many lines show which keys the lines of a log have."""
_OBJECTS = re.compile(rf"^(?:{OBJECT}|.*)$", re.MULTILINE)
_VALUES = "SELECT try(json_extract_string(json, $1)) AS v FROM objects"
_PRINTED = f"SELECT if(v[2] IS NULL, '', regexp_extract(v[1], '^([^\\n]*)\\n*$', 1)) FROM ({_VALUES})"  # noqa: S608
"""What a container printed, if it is a single line."""
_PARTS = ("time", "method", "target", "status", "worker")
_NOTHING = "(?P<time>(?P<method>(?P<target>)))(?!)"
_KEY = r"[A-Za-z_@][\w.@-]*="
_GAP = r"(?:[^\S\n]++|$)"


class LoggedRequest(NamedTuple):
    """What is taken from a line of a log. ``took_s`` is None if the line has no duration.

    ``worker`` is the worker or the upstream server that answered, and ``arrived`` is when the balancer got the request,
    in seconds since 1970, if the line says so.
    """

    at: float
    method: str
    target: str
    status: int
    took_s: float | None
    worker: str | None = None
    id: str | None = None
    arrived: float | None = None


_UNIDENTIFIED = Identity()


def _identified(request: LoggedRequest | str, text: str, identity: Identity) -> LoggedRequest | str:
    """Return a request with its id, its time as precisely as its line has it, and its worker."""
    if isinstance(request, str) or identity is _UNIDENTIFIED:
        return request
    at, method, target, status, took_s, worker, *_ = request
    return LoggedRequest(identity.moment_in(text, at), method, target, status, took_s,
                         worker or worker_of(identity.worker_in(text) or ""), identity.id_in(text),
                         identity.arrived_in(text))  # fmt: skip


class _Reader(NamedTuple):
    """Finds the parts of lines as text: a row for each line, which has no time if the line has another shape.

    ``place`` says where in a row each part is. A part has the name of a group of a Format, or is ``value``.
    """

    place: Mapping[str, int]
    rows: Callable[[Sequence[str]], Sequence[Sequence[str]]]


def requests_in(
    texts: Lines,
    source: DurationSource,
    read_alone: Callable[[str], LoggedRequest | str],
    identity: Identity = _UNIDENTIFIED,
) -> Iterator[LoggedRequest | str]:
    """Yield what is taken from each line, in order; a line without a known format as it is.

    ``read_alone`` reads a line that has another shape than the first lines. ``identity`` says where lines have
    the ids of requests, precise times and workers, if they are wanted.
    """
    reader = None
    while chunk := texts.read(CHUNK):
        lines = chunk.split("\n")
        reader = reader or _reader_of(lines, source)
        for line, found in zip(lines, _requests(reader, lines, source), strict=True):
            if found or line:
                request = found or read_alone(line)
                yield request if identity is _UNIDENTIFIED else _identified(request, line, identity)


def _requests(reader: _Reader, lines: Sequence[str], source: DurationSource) -> Iterator[LoggedRequest | None]:
    """Yield what is taken from each line; None: the line has another shape."""
    time, method, target, status, worker = (reader.place.get(part, -1) for part in _PARTS)
    at_start, believed = source.format is not None and source.format.at_start, bool(source.says)
    durations = [*_durations(reader.place, source)]
    for row in reader.rows(lines):
        if not row[method] or not row[target] or (at := epoch_seconds(row[time])) is None:
            yield None
            continue
        took_s = None
        for index, seconds in durations:
            if row[index]:
                took_s = seconds(row[index])
        yield LoggedRequest(
            at + took_s if at_start and took_s else at, row[method], row[target],
            int(row[status]) if status >= 0 and row[status] else 0,
            (took_s if took_s > SHORTEST_S else SHORTEST_S) if believed and took_s is not None else None,
            worker_of(row[worker]) if worker >= 0 else None,
        )  # fmt: skip


def _durations(place: Mapping[str, int], source: DurationSource) -> Iterator[tuple[int, Callable[[str], float | None]]]:
    """Yield in which places of a row its duration may be, and what returns it in seconds."""
    if "value" in place:
        yield place["value"], source.seconds
    for unit in UNITS:
        if unit in place:
            yield place[unit], partial(seconds_of, unit=unit)


def _reader_of(lines: Sequence[str], source: DurationSource) -> _Reader:
    """Return what finds the parts of all lines of a log that has lines such as these."""
    objects, known = [*filter(None, map(json_keys, lines[:_FIRST]))], source.format
    if objects and all(keys.keys() >= OF_DOCKER for keys in objects):
        printed = _query(_PRINTED, ["$.log", "$.stream"])
        inner = _reader_of([text for (text,) in printed(lines)], source)
        return _Reader(inner.place, lambda lines: inner.rows([text for (text,) in printed(lines)]))
    if isinstance(known, JsonFormat) and objects:
        return _of_json({name for keys in objects for name in keys}, known, source.key)
    if isinstance(known, JsonFormat):
        alike = next((line for line in lines if logfmt_entry(line, known)), None)
        return _of_pattern(_logfmt_pattern(alike, known, source.key) if alike else _NOTHING, "")
    line = known.line.pattern.replace("(?P<rest>.*)", source.rest) if known and not known.is_free else _NOTHING
    return _of_pattern(line, r"[^\[\n]*+(?:\[[^\[\n]*+)*?" if line.startswith(r"\[") else ".*?")


def _of_pattern(line: str, before: str) -> _Reader:
    pattern = re.compile(rf"^(?:{before}(?:{line}).*|.*)$", re.MULTILINE)
    place = {name: index - 1 for name, index in pattern.groupindex.items()}
    return _Reader(place, lambda lines: pattern.findall("\n".join(lines)))


def _names(known: JsonFormat, duration: str) -> tuple[str, dict[str, Sequence[str]]]:
    """Return what the part of the duration is called, and the keys that each part may have."""
    name, unit = known.duration or (duration, "value")
    return unit, {"time": known.time, "request": [known.request], "method": known.method, "target": known.target,
                  "status": known.status, "worker": known.worker, unit: [name]}  # fmt: skip


def _logfmt_pattern(line: str, known: JsonFormat, duration: str) -> str:
    """Return the pattern of lines that have the parts of a request in the order in which this line has them."""
    keys, head = logfmt_keys(line), ISO_TIME.replace("?P<time>", "")
    names = _names(known, duration)[1]
    parts = {part: next((name for name in of_part if name in keys), "") for part, of_part in names.items()}
    has_head = re.match(head, line) and known.time[0] not in keys
    has_request = " " in keys.get(parts["request"], "")
    for part in ("method", "target") if has_request else ("request",):
        del parts[part]
    quote = r'(?:"(?=[^\s"\\]*")|(?!"))'
    text = {part: rf'{quote}(?P<{part}>[^\s"\\]*+)"?' for part in parts} | {
        "status": rf'{quote}(?P<status>\d{{1,3}}+)"?',
        "time": r'"(?P<time>[^"\\\n]++)"' if f'{parts["time"]}="' in line else r'(?P<time>[^\s"\\]++)',
        "request": r'"(?P<method>[^\s"\\]++) (?P<target>[^\s"\\]++)(?: [^"\\\n]*+)?"',
    }
    ordered = [(name, text[part]) for name in keys for part, of_part in parts.items()
               if name == of_part and not (has_head and part == "time")]  # fmt: skip
    others = "|".join(re.escape(name) for name, _ in ordered)
    other = rf'(?:(?!(?:{others})=)(?:{_KEY}{TEXT}(?!\S)|(?!{_KEY}")\S++){_GAP})*+'
    begins = rf"{ISO_TIME}{_GAP}" if has_head else f"(?!{head})"
    return begins + other + "".join(f"{re.escape(name)}={pattern}{_GAP}{other}" for name, pattern in ordered) + "$"


def _of_json(there: set[str], known: JsonFormat, duration: str) -> _Reader:
    """Return what finds the values of the keys that are there."""
    unit, parts = _names(known, duration)
    paths: list[str] = []
    columns = []
    for part, names in parts.items():
        of_part = [path for name in names if name in there for path in _paths(name)]
        values = [f"v[{len(paths) + place}], " for place in range(1, len(of_part) + 1)]
        columns.append(f"coalesce({''.join(values)}'') AS its_{part}")
        paths += of_part
    asked = "regexp_full_match(its_request, '[^ {[]+ [^ ]+( .*)?')" if known.request in there else "false"
    needed = f"AND its_{unit} != ''" if known.duration and not known.is_own else ""
    query = f"""
        SELECT if({asked}, split_part(its_request, ' ', 1), its_method) AS method,
            if({asked}, split_part(its_request, ' ', 2), its_target) AS target,
            if(regexp_full_match(method, '[A-Z]{{1,32}}') AND target[1] IN ('/', 'h', '*')
               AND regexp_full_match(its_status, '[0-9]{{1,3}}') {needed}, its_time, ''),
            its_status, its_worker, its_{unit}
        FROM (SELECT {", ".join(columns)} FROM ({_VALUES}))"""  # noqa: S608  # no text of a log is in it
    place = {part: place for place, part in enumerate(("method", "target", "time", "status", "worker", unit))}
    return _Reader(place, _query(query, paths))


def _paths(name: str) -> list[str]:
    """Return where in an object a key may be: a dot in it may be that of a nested object."""
    return [*dict.fromkeys((f'$."{name}"', "$." + ".".join(f'"{part}"' for part in name.split("."))))]


def _query(sql: str, paths: Sequence[str]) -> Callable[[Sequence[str]], list[tuple[str, ...]]]:
    """Return what queries lines: the values that their objects of JSON have at these paths."""
    connection = duckdb.connect()

    def rows(lines: Sequence[str]) -> list[tuple[str, ...]]:
        objects = lines if lines[0].startswith("{") else _OBJECTS.findall("\n".join(lines))
        connection.register("objects", {"json": np.array(objects, dtype=object)})
        found: list[tuple[str, ...]] = connection.execute(sql, [paths]).fetchall()
        return found

    return rows

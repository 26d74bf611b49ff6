"""Lines that have the same fields in the same order as the first lines of their log, read by compiled code.

A field ends at a space; a field that begins with a quote or a bracket ends with it. Lines of another shape, and formats
that do not begin a request as the common format does, are left to stampede.logs.bulk.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stampede.logs.bulk import SHORTEST_S
from stampede.logs.durations import DurationSource
from stampede.logs.formats import HEAD, UNITS, Format, epoch_seconds
from stampede.logs.identity import Identity
from stampede.theory import COMPILED
from stampede.theory.compiled import njit

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_PROBED = 100
"""So many of the first lines show which fields the lines of a log have."""
_MOST_FIELDS, _MOST_DIGITS = 64, 17
_LINE_END, _SPACE, _QUOTE, _DOT, _SLASH, _ZERO, _NINE = b'\n "./09'
_QUESTION, _A, _Z, _OPENING, _BACKSLASH, _CLOSING = b"?AZ[\\]"
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def _allowed(pattern: str) -> Flags:
    return np.array([bool(re.match(pattern, chr(byte), re.ASCII)) for byte in range(256)])


_ALLOWED = {"id": _allowed(r"[\w.:+=-]"), "worker": _allowed(r'[^\s",>]')}


class _Part(NamedTuple):
    """Which field a part of a request is in, and what stands before and behind it in this field."""

    field: int
    before: bytes
    behind: bytes


class Shape(NamedTuple):
    """Which fields the lines of a log have: how many there are, and those that say something, in order.

    ``second`` is what a duration of 1 is in seconds; with ``decimals``, durations have some. ``at_start``: the time is
    that at which the request came.
    """

    fields: int
    parts: Mapping[str, _Part]
    second: float
    decimals: bool
    at_start: bool


class Alike(NamedTuple):
    """What the lines say that have a shape; ``fits`` says which of all lines they are.

    Times are seconds. ``path`` and ``id`` are hashes; an id of 0 is unknown. ``request`` and ``worker`` are places in
    ``requests``, of which each stands for all of its route, and in ``workers``; empty: nothing says the worker.
    """

    fits: Flags
    ends_s: Floats
    took_s: Floats
    path: Integers
    id: Integers
    request: Integers
    worker: Integers
    status: Integers
    requests: Sequence[str]
    workers: Sequence[str]


def shape_of(lines: Sequence[str], source: DurationSource, identity: Identity) -> Shape | None:
    """Return which fields the lines of a log have, from its first lines; None: its format has no such fields.

    It is also None if stampede.logs.bulk reads them: without Numba, and lines that say when the balancer got a request.
    """
    known = source.format
    if not COMPILED or identity.arrived or not isinstance(known, Format) or not source.says:
        return None
    if not known.line.pattern.startswith(HEAD):
        return None
    pattern = re.compile(known.line.pattern.replace("(?P<rest>.*)", source.rest))
    probed = [(line, _fields_of(line)) for line in lines[:_PROBED] if line.isascii()]
    [(usual, _)] = Counter(len(fields) for _, fields in probed).most_common(1) or [(0, 0)]
    for line, fields in probed:
        if len(fields) == usual and (found := pattern.search(line)):
            return _shape(line, fields, found, source, identity)
    return None


def _shape(
    line: str, fields: Integers, found: re.Match[str], source: DurationSource, identity: Identity
) -> Shape | None:
    unit = next((unit for unit in ("value", *UNITS) if unit in found.re.groupindex and found[unit]), "")
    if not unit:
        return None
    spans = {name: found.span(name) for name in ("time", "status", "worker") if name in found.re.groupindex}
    spans |= {"request": (found.start("method"), found.end("target")), "took": found.span(unit)}
    others = {"id": identity.id, "moment": identity.moment, "worker": identity.worker}
    for name, pattern in others.items():
        if name not in spans and pattern and (match := pattern.search(line)):
            spans[name] = match.span(1)
    parts = {name: part for name, span in spans.items() if (part := _part(line, span, fields))}
    decimals = "." in found[unit]
    second = source.seconds("1.0" if decimals else "1") if unit == "value" else UNITS[unit]
    if not second or len({part.field for part in parts.values()}) < len(spans):
        return None
    parts["request"] = parts["request"]._replace(behind=b'"')
    ordered = dict(sorted(parts.items(), key=lambda part: part[1].field))
    return Shape(len(fields), ordered, second, decimals, bool(source.format and source.format.at_start))


def _part(line: str, span: tuple[int, int], fields: Integers) -> _Part | None:
    """Return the field that a part of a line is in; None: it is in several."""
    for place, (first, last) in enumerate(fields.tolist()):
        if first <= span[0] and span[1] <= last:
            return _Part(place, line[first : span[0]].encode(), line[span[1] : last].encode())
    return None


def _fields_of(line: str) -> Integers:
    """Return where each field of a line begins and ends; nothing if it has no such fields."""
    text = np.frombuffer(f"{line.rstrip()}\n".encode(), np.uint8)
    counts, spans = _fields(text, np.array([0, len(text)]), np.arange(_MOST_FIELDS))
    return np.asarray(spans[0, : min(max(0, counts[0]), _MOST_FIELDS)])


def read_alike(text: bytes, shape: Shape) -> Alike:
    """Return what the lines say that have a shape. Each line must end with a line feed."""
    data = np.frombuffer(text, np.uint8)
    lines = np.append(0, np.flatnonzero(data == _LINE_END) + 1)
    counts, spans = _fields(data, lines, np.array([part.field for part in shape.parts.values()]))
    fits, of = counts == shape.fields, {name: spans[:, place] for place, name in enumerate(shape.parts)}
    for name, part in shape.parts.items():
        fits &= _trim(data, of[name], np.frombuffer(part.before, np.uint8), np.frombuffer(part.behind, np.uint8))
        fits &= _consists(data, of[name], _ALLOWED[name]) if name in _ALLOWED else True
    fits &= _cut_request(data, of["request"])
    number, times = _texts(text, of["time"], _hashes(data, of["time"]))
    ends_s = np.array([np.nan if (at := epoch_seconds(time)) is None else at for time in times])[number]
    took_s = _numbers(data, of["took"], shape.decimals) * shape.second
    status = _numbers(data, of["status"], False)
    fits &= ~np.isnan(ends_s) & ~np.isnan(took_s) & (status >= 100) & (status < 1000)
    if "moment" in of:
        moment_s = _numbers(data, of["moment"], True)
        ends_s = np.where((moment_s >= ends_s) & (moment_s <= ends_s + 1), moment_s, ends_s)
    ends_s, took_s = ends_s[fits] + (took_s[fits] if shape.at_start else 0), np.maximum(took_s[fits], SHORTEST_S)
    path = _hashes(data, of["request"][fits])
    request, requests = _texts(text, of["request"][fits], _hashes_of_routes(data, of["request"][fits]))
    worker, workers = np.full(len(path), -1), list[str]()
    if "worker" in of:
        worker, workers = _texts(text, of["worker"][fits], _hashes(data, of["worker"][fits]))
    id_ = _hashes(data, of["id"][fits]) if "id" in of else np.zeros(len(path), dtype=np.int64)
    return Alike(fits, ends_s, took_s, path, id_, request, worker, status[fits].astype(np.int64), requests, workers)


def _texts(text: bytes, spans: Integers, hashes: Integers) -> tuple[Integers, list[str]]:
    """Return a number for each text, and the texts in the order of their numbers."""
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    return number, [text[slice(*spans[at].tolist())].decode() for at in first.tolist()]


def hash_of(text: str) -> int:
    """Return a number for a text, the same in every process; 0: the text is empty."""
    data = text.encode(errors="replace")
    if COMPILED:
        return int(_hash(np.frombuffer(data, np.uint8), 0, len(data)))
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True) if data else 0


@njit(cache=True)
def _fields(text: Bytes, lines: Integers, wanted: Integers) -> tuple[Integers, Integers]:
    """Return how many fields each line has, -1 if a quote does not end, and where the wanted fields begin and end."""
    counts, spans = np.zeros(len(lines) - 1, np.int64), np.zeros((len(lines) - 1, len(wanted), 2), np.int64)
    for line in range(len(lines) - 1):
        at, end, place = lines[line], lines[line + 1] - 1, 0
        while at < end:
            first, at = at, _end_of_field(text, at, end)
            if at < 0:
                counts[line] = -1
                break
            if place < len(wanted) and wanted[place] == counts[line]:
                spans[line, place, 0], spans[line, place, 1] = first, at
                place += 1
            counts[line] += 1
            at += 1
    return counts, spans


@njit(cache=True)
def _end_of_field(text: Bytes, first: int, end: int) -> int:
    """Return where a field ends in a line; -1: its quote or its bracket does not end, or no space follows."""
    opening = text[first]
    closing = _QUOTE if opening == _QUOTE else _CLOSING if opening == _OPENING else _SPACE
    at = first if closing == _SPACE else first + 1
    while at < end and text[at] != closing:
        at += 2 if text[at] == _BACKSLASH and closing == _QUOTE else 1
    if closing == _SPACE:
        return at
    return at + 1 if at + 1 == end or (at + 1 < end and text[at + 1] == _SPACE) else -1


@njit(cache=True)
def _trim(text: Bytes, spans: Integers, before: Bytes, behind: Bytes) -> Flags:
    """Leave out what stands before and behind a part in its field. Return which fields have it."""
    fits = np.zeros(len(spans), np.bool_)
    for line in range(len(spans)):
        first, last = spans[line, 0] + len(before), spans[line, 1] - len(behind)
        if first > last:
            continue
        fits[line] = True
        for place in range(len(before)):
            fits[line] &= text[spans[line, 0] + place] == before[place]
        for place in range(len(behind)):
            fits[line] &= text[last + place] == behind[place]
        spans[line, 0], spans[line, 1] = first, last
    return fits


@njit(cache=True)
def _consists(text: Bytes, spans: Integers, allowed: Flags) -> Flags:
    """Return which texts consist of bytes that are allowed."""
    fits = np.ones(len(spans), np.bool_)
    for line in range(len(spans)):
        for at in range(spans[line, 0], spans[line, 1]):
            fits[line] &= allowed[text[at]]
    return fits


@njit(cache=True)
def _cut_request(text: Bytes, spans: Integers) -> Flags:
    """Leave of a request's first line its method and its path. Return which lines have both, and no escaped quote."""
    fits = np.zeros(len(spans), np.bool_)
    for line in range(len(spans)):
        at, last = spans[line, 0], spans[line, 1]
        while at < last and _A <= text[at] <= _Z:
            at += 1
        fits[line] = spans[line, 0] < at < last - 1 and text[at] == _SPACE and text[at + 1] != _SPACE
        at += 1
        while at < last and text[at] != _SPACE and text[at] != _QUESTION:
            at += 1
        for behind in range(spans[line, 0], last):
            fits[line] &= text[behind] != _BACKSLASH
        spans[line, 1] = max(at, spans[line, 0])
    return fits


@njit(cache=True)
def _numbers(text: Bytes, spans: Integers, decimals: bool) -> Floats:
    """Return texts as numbers; NaN: the text is no number, or it has no decimals, and must have some."""
    numbers = np.full(len(spans), np.nan)
    for line in range(len(spans)):
        first, last = spans[line, 0], spans[line, 1]
        whole, dot = 0, -1
        for at in range(first, last):
            if _ZERO <= text[at] <= _NINE:
                whole = 10 * whole + (text[at] - _ZERO)
            elif text[at] == _DOT and dot < 0 and at > first:
                dot = at
            else:
                dot = last
        if first < last <= first + _MOST_DIGITS and (0 <= dot < last - 1 if decimals else dot < 0):
            numbers[line] = whole / 10.0 ** (last - 1 - dot) if decimals else whole
    return numbers


@njit(cache=True)
def _hashes(text: Bytes, spans: Integers) -> Integers:
    """Return a hash for each text."""
    hashes = np.zeros(len(spans), np.int64)
    for line in range(len(spans)):
        hashes[line] = _hash(text, spans[line, 0], spans[line, 1])
    return hashes


@njit(cache=True)
def _hashes_of_routes(text: Bytes, spans: Integers) -> Integers:
    """Return a hash for each path in which parts that are whole numbers count as the same: they name a thing."""
    hashes = np.zeros(len(spans), np.int64)
    for line in range(len(spans)):
        at, last, found = spans[line, 0], spans[line, 1], _BASIS
        while at < last:
            behind, digits = at, True
            while behind < last and text[behind] != _SLASH:
                digits &= _ZERO <= text[behind] <= _NINE
                behind += 1
            part = np.int64(0) if digits and behind > at else _hash(text, at, behind + 1)
            found, at = (found ^ np.uint64(part)) * _PRIME, behind + 1
        hashes[line] = np.int64(found)
    return hashes


@njit(cache=True)
def _hash(text: Bytes, first: int, last: int) -> np.int64:
    """Return the hash of some bytes: FNV-1a of Fowler, Noll and Vo (RFC 9923); 0: there is none."""
    if first >= last:
        return np.int64(0)
    found = _BASIS
    for at in range(first, last):
        found = (found ^ np.uint64(text[at])) * _PRIME
    return np.int64(found)

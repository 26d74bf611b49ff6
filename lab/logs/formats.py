"""The formats of access logs, as data. A further format is a further entry of FORMATS or JSON_FORMATS.

An entry of a log is what a line says of one request: the head that every format has, and what may be its duration.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

Clock = Literal["balancer", "server"]
"""Whose durations a log has. Those of a balancer begin when the balancer gets the request, so they include the time
that the request waits for a worker; those of a server begin when a worker takes the request."""

_TEXT = r'"(?:[^"\\]|\\.)*+"'
_REQUEST = r'"(?P<method>[A-Z]+) (?P<target>[^\s"]++)[^"]*+"'
_HEAD = rf"\[(?P<time>[^\]]+)\] {_REQUEST} (?P<status>\d{{3}}) (?P<size>\S++)"


@dataclass(frozen=True)
class Format:
    """A format whose lines are told apart by their shape.

    ``line`` has the groups time, method, target, status, size, and the duration in a group that its unit names.
    ``duration`` is what the documentation calls the duration. ``at_start``: the time is that at which the request came.
    """

    name: str
    documented: str
    line: re.Pattern[str]
    duration: str
    clock: Clock
    at_start: bool = False


FORMATS = (
    Format(
        "ingress-nginx", "kubernetes.github.io/ingress-nginx, log format",
        re.compile(rf"{_HEAD} {_TEXT} {_TEXT} \d+ (?P<s>\d+\.\d+) \[[^\]]*\] \[[^\]]*\] \S"),
        "$request_time", "balancer",
    ),
    Format(
        "Traefik's common format", "doc.traefik.io, access logs",
        re.compile(rf"{_HEAD} {_TEXT} {_TEXT} \d+ {_TEXT} {_TEXT} (?P<ms>\d+)ms\s*$"),
        "the request duration", "balancer", at_start=True,
    ),
    Format(
        "uWSGI's own format", "uwsgi-docs.readthedocs.io, LogFormat",
        re.compile(r"\[(?P<time>[^\]|]+)\] (?P<method>[A-Z]+) (?P<target>\S+) => generated (?P<size>\d+) bytes in "
                   r"(?:(?P<ms>\d+) msecs|(?P<us>\d+) micros) \(\S+ (?P<status>\d{3})\)"),
        "generated … in …", "server", at_start=True,
    ),
    Format(
        "Envoy's format", "envoyproxy.io, access logging, and istio.io, Envoy access logs",
        re.compile(rf"{_HEAD} (?:\S+ \S+ {_TEXT} )?\d+ \d+ (?P<ms>\d+) (?:\d+|-) {_TEXT}"),
        "%DURATION%", "balancer", at_start=True,
    ),
    Format(
        "granian's format", "github.com/emmett-framework/granian, access log format",
        re.compile(rf"\[(?P<time>[^\]]+)\] \S+ - {_REQUEST} (?P<status>\d{{3}})(?P<size>) (?P<ms>\d+\.\d{{3}})"),
        "%(dt_ms)s", "server", at_start=True,
    ),
    Format(
        "the format of AWS load balancers", "docs.aws.amazon.com, access logs of Application Load Balancers",
        re.compile(r"^(?:\S+ )?(?P<time>\d{4}-\S+Z) \S+ \S+ \S+ -?[\d.]+ (?:(?P<s>\d[\d.]*)|-1) -?[\d.]+ "
                   rf"(?P<status>\d{{3}}) \S+ \d+ (?P<size>\d+) {_REQUEST}"),
        "target_processing_time", "balancer",
    ),
    Format(
        "HAProxy's HTTP format", "docs.haproxy.org, HTTP log format",
        re.compile(r"\[(?P<time>\d+/\w+/\d{4}:[\d:.]+)\] \S+ \S+/\S+ -?\d+/-?\d+/-?\d+/-?\d+/\+?(?:(?P<ms>\d+)|-1) "
                   rf"(?P<status>\d{{3}}) \+?(?P<size>\d+) .*{_REQUEST}"),
        "Ta", "balancer", at_start=True,
    ),
)  # fmt: skip
COMBINED = re.compile(rf"{_HEAD}(?P<rest>.*)")
"""The head of the common and the combined format. Fields that somebody added follow in any order."""
DATED = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\b[^\"\[]* - "
    rf"{_REQUEST} (?P<status>\d{{3}})\b ?(?P<size>\S*)(?P<rest>.*)"
)
"""What uvicorn writes, after a time: of ``%(asctime)s`` in its configuration, or of ``docker logs --timestamps``."""
TIMELESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+"? (?:- )?\d{3}\b')
"""A request without a time, such as uvicorn writes by default."""


@dataclass(frozen=True)
class JsonFormat:
    """Keys of a JSON format, of which each may have several names. A key of a nested object is written with a dot."""

    name: str
    time: tuple[str, ...]
    method: tuple[str, ...]
    target: tuple[str, ...]
    status: tuple[str, ...]
    duration: tuple[str, str] | None = None
    """The key and the unit; None: a name or a unit in it tells the duration (see DURATIONS)."""
    clock: Clock | None = None
    at_start: bool = False


JSON_FORMATS = (
    JsonFormat("Traefik's JSON", ("StartUTC", "time"), ("RequestMethod",), ("RequestPath",), ("DownstreamStatus",),
               ("Duration", "ns"), "balancer", at_start=True),
    JsonFormat("Caddy's JSON", ("ts",), ("request.method",), ("request.uri",), ("status",),
               ("duration", "s"), "balancer"),
    JsonFormat("JSON of an AWS load balancer", ("time",), ("request_verb",), ("request_url",), ("elb_status_code",),
               ("target_processing_time", "s"), "balancer"),
    JsonFormat("JSON of the Elastic Common Schema", ("@timestamp",), ("http.request.method",),
               ("url.path", "url.original"), ("http.response.status_code",), ("event.duration", "ns")),
    JsonFormat("JSON of a Google Cloud load balancer", ("timestamp",), ("httpRequest.requestMethod",),
               ("httpRequest.requestUrl",), ("httpRequest.status",), ("httpRequest.latency", "s"), "balancer"),
    JsonFormat("JSON", ("time_iso8601", "time_local", "timestamp", "@timestamp", "msec", "time", "ts", "asctime"),
               ("request_method", "method", "request.method", "http.method"),
               ("request_uri", "uri", "path", "url", "request.uri", "request.path", "request.url", "http.url"),
               ("status", "status_code", "code", "response.status", "response.status_code", "http.status_code")),
)  # fmt: skip

DURATIONS = {
    "rt": "s", "request_time": "s", "duration": "", "request_duration": "", "elapsed": "", "elapsed_time": "",
    "response_time": "", "time_taken": "", "total_time": "", "took": "", "latency_human": "", "latency": "",
    "process_time": "", "processing_time": "", "req_time": "", "resp_time": "",
    "urt": "s", "upstream_response_time": "s",
}  # fmt: skip
"""Names of durations, those of whole requests first. nginx's own names say the unit of a decimal number: s."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPELLINGS = {
    "s": "s", "sec": "s", "secs": "s", "seconds": "s", "ms": "ms", "msec": "ms", "msecs": "ms", "millis": "ms",
    "milliseconds": "ms", "us": "us", "µs": "us", "μs": "us", "usec": "us", "usecs": "us", "micros": "us",
    "microseconds": "us", "ns": "ns", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
_UNIT = "|".join(sorted(_SPELLINGS, key=len, reverse=True))
_NUMBER = re.compile(rf"(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>{_UNIT})?", re.IGNORECASE)
_FIELD = re.compile(rf"(?P<name>[A-Za-z_][\w.-]*)[=:](?P<value>{_TEXT}|[^\s\"]+)|(?P<text>{_TEXT}|\[[^\]]*\]|\S+)")
_LIST = re.compile(r"(?<=[\d-])(?:, ?| : )(?=[\d-])")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_APART = re.compile(rf"(?<=\d) (?=(?:{_UNIT})(?:\s|$))")


class Value(NamedTuple):
    """A number as it is written. ``unit`` is the unit beside it, if there is one."""

    number: float
    unit: str
    decimals: int


class Entry(NamedTuple):
    """What a line says of one request. ``own`` is the duration where a known format has it, in seconds."""

    at: float
    method: str
    target: str
    status: int
    size: str
    format: Format | JsonFormat | None
    own_s: float | None
    named: dict[str, str]
    fields: list[str]


def parse_entry(text: str) -> Entry | None:
    """Return what a line says of a request; None: the lab does not know its format."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if text.lstrip().startswith("{"):
        return _from_json(text)
    for known in FORMATS:
        if found := known.line.search(text):
            took_s = next((float(value) * UNITS[unit] for unit, value in found.groupdict().items()
                           if unit in UNITS and value), None)  # fmt: skip
            return _entry(found, known, took_s, {}, [])
    found = COMBINED.search(text) or DATED.search(text)
    return _entry(found, None, None, *_fields(found["rest"])) if found else None


def parse_value(text: str) -> Value | None:
    """Return a number as it is written; of a list, as nginx writes it for several upstreams, the sum.

    None: the text is no number.
    """
    parts = [part.strip() for part in re.split(r",| : ", text)]
    if len(parts) > 1:
        values = [parse_value(part) for part in parts if part != "-"]
        if not values or None in values:
            return None
        known = [value for value in values if value]
        return Value(sum(value.number for value in known), known[0].unit, known[0].decimals)
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    decimals = len(found["number"].partition(".")[2])
    return Value(float(found["number"]), _SPELLINGS[found["unit"].lower()] if found["unit"] else "", decimals)


def duration_name(name: str) -> tuple[str, str] | None:
    """Return which of DURATIONS a name is, and the unit that the name says, if any; None: it names no duration."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower().replace("-", "_").strip("_")
    if words in DURATIONS:
        return words, ""
    base, _, unit = words.rpartition("_")
    return (base, _SPELLINGS[unit]) if base in DURATIONS and unit in _SPELLINGS else None


@lru_cache(maxsize=1024)
def epoch_seconds(text: str) -> float | None:
    """Return a time as seconds since 1970; None: the text is no time. A time without a zone is taken as UTC."""
    text = text.strip("[]")
    if re.fullmatch(r"\d{9,10}(\.\d+)?|\d{13}", text):
        return float(text) / (1000 if len(text) == 13 and text.isdecimal() else 1)
    with suppress(ValueError):
        return _utc(datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)))
    for written in ("%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S.%f", "%d/%b/%Y:%H:%M:%S", "%d/%b/%Y %H:%M:%S",
                    "%a %b %d %H:%M:%S %Y"):  # fmt: skip
        with suppress(ValueError):
            return _utc(datetime.strptime(text, written))
    return None


def _utc(found: datetime) -> float:
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _entry(
    found: re.Match[str], known: Format | None, took_s: float | None, named: dict[str, str], fields: list[str]
) -> Entry | None:
    at = epoch_seconds(found["time"])
    if at is None:
        return None
    ends = at + (took_s or 0.0) if known and known.at_start else at
    status = int(found["status"])
    return Entry(ends, found["method"], found["target"], status, found["size"], known, took_s, named, fields)


def _fields(rest: str) -> tuple[dict[str, str], list[str]]:
    """Return the fields after the head: those with a name, and all others in their order, without their quotes."""
    named: dict[str, str] = {}
    others: list[str] = []
    for found in _FIELD.finditer(_APART.sub("", _LIST.sub(",", rest))):
        if found["name"]:
            named.setdefault(found["name"], found["value"].strip('"').rstrip(",;"))
        else:
            text = found["text"]
            others.append(text[1:-1] if text[0] in '"[' and len(text) > 1 else text.rstrip(",;"))
    return named, others


def _from_json(line: str) -> Entry | None:
    try:
        values = json.loads(line)
    except ValueError:
        return None
    keys = dict(_flat(values)) if isinstance(values, dict) else {}
    if "log" in keys and "stream" in keys:  # as Docker writes what a container printed
        return parse_entry(keys["log"]) or parse_entry(f"{keys.get('time')} {keys['log']}")
    return next(filter(None, (_of_json(keys, known) for known in JSON_FORMATS)), None)


def _flat(values: dict[str, Any], of: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{of}{key}.")
        elif value is not None and not isinstance(value, list | bool):
            yield f"{of}{key}", str(value)


def _of_json(keys: dict[str, str], known: JsonFormat) -> Entry | None:
    def first(names: tuple[str, ...]) -> str:
        return next((keys[name] for name in names if name in keys), "")

    method, target = first(known.method), first(known.target)
    if not known.duration and len(request := keys.get("request", "").split()) > 1:
        method, target = request[:2]
    at, status, took_s = epoch_seconds(first(known.time)), first(known.status), None
    if at is None or not method or not target or not status.isdecimal():
        return None
    if known.duration and known.duration[0] not in keys:
        return None
    if known.duration:
        key, unit = known.duration
        value = parse_value(keys.get(key, ""))
        took_s = value.number * UNITS[value.unit or unit] if value else None
    ends = at + (took_s or 0.0) if known.at_start else at
    return Entry(ends, method, target, int(status), "", known, took_s, {} if known.duration else keys, [])

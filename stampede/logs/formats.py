"""The formats of access logs, as data. A further format is a further entry of FORMATS or JSON_FORMATS.

An entry of a log is what a line says of one request: the head that every format has, and what may be its duration.
No pattern goes on in the next line, so that a pattern can be applied to many lines at once.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, NamedTuple

from stampede.foreign import parse_json

Clock = Literal["balancer", "server"]
"""Whose durations a log has. Those of a balancer begin when the balancer gets the request, so they include the time
that the request waits for a worker; those of a server begin when a worker takes the request."""

TEXT = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_REQUEST = r'"(?P<method>[A-Z]+) (?P<target>[^\s"]++)[^"\n]*+"'
HEAD = rf"\[(?P<time>[^\[\]\n]++)\] {_REQUEST} (?P<status>\d{{3}}) (?P<size>(?:\d++|-)(?![\w.]))"

_NGINX = (
    """nginx.conf: log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent """
    """"$http_referer" "$http_user_agent" rt=$request_time';  access_log /var/log/nginx/access.log timed;"""
)
ADD = (
    f"{_NGINX}\n"
    """gunicorn.conf.py: access_log_format = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" """
    "rt=%(L)s %(p)s'\n"
    r"""Apache: LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\" duration_us=%D" timed"""
)
"""The lines of configurations that make servers write durations."""


@dataclass(frozen=True)
class Format:
    """A format whose lines are told apart by their shape.

    ``line`` has the groups time, method, target, and, if the format has them, status, size, worker, the duration in a
    group that its unit names, and the rest of the line, in which fields follow in any order. ``duration`` is what the
    documentation calls the duration; empty: the format has none. ``at_start``: the time is that at which the request
    came. ``add`` is what to write into a server's configuration, so that the log has durations. ``is_free``: fields
    may stand everywhere, also before the time and before the request. ``parts`` are those of a format that a
    configuration declares, each with its pattern.
    """

    name: str
    line: re.Pattern[str]
    duration: str
    clock: Clock | None
    at_start: bool = False
    add: str = ADD
    is_free: bool = False
    parts: tuple[tuple[str, str], ...] = ()

    def fits_up_to(self, text: str) -> tuple[str, str]:
        """Return the parts that a line begins with, and the part from which on it has another format."""
        fits = 0
        while fits < len(self.parts) and re.search("".join(pattern for _, pattern in self.parts[: fits + 1]), text):
            fits += 1
        rest = next((part for part, _ in self.parts[fits:] if part), "the end of the line")
        return "".join(part for part, _ in self.parts[:fits]), rest


FORMATS = (
    Format("ingress-nginx",
           re.compile(rf"{HEAD} {TEXT} {TEXT} \d+ (?P<s>\d+\.\d+) \[[^\]\n]*\] \[[^\]\n]*\] "
                      r"(?P<worker>\S+(?:, \S+)*)"),
           "$request_time", "balancer"),
    Format("Traefik's common format",
           re.compile(rf'{HEAD} {TEXT} {TEXT} \d+ {TEXT} "(?P<worker>[^"\n]*)" (?P<ms>\d+)ms'),
           "the request duration", "balancer", at_start=True),
    Format("uWSGI's own format",
           re.compile(r"(?:\[pid: (?P<worker>\d++)\|[^\[\n]*+)?+\[(?P<time>[^\[\]|\n]++)\] (?P<method>[A-Z]++) "
                      r"(?P<target>\S++) => generated (?P<size>\d+) bytes in (?:(?P<ms>\d+) msecs|(?P<us>\d+) micros) "
                      r"\(\S+ (?P<status>\d{3})\)"),
           "generated … in …", "server", at_start=True),
    Format("Envoy's format",
           re.compile(rf"{HEAD} (?:\S+ \S+ {TEXT} )?\d+ \d+ (?P<ms>\d+) (?:\d+|-) {TEXT}"),
           "%DURATION%", "balancer", at_start=True),
    Format("granian's format",
           re.compile(rf"\[(?P<time>[^\[\]\n]++)\] \S++ - {_REQUEST} (?P<status>\d{{3}})(?P<size>) "
                      r"(?P<ms>\d+\.\d{3})"),
           "%(dt_ms)s", "server", at_start=True),
    Format("the format of AWS load balancers",
           re.compile(r"^(?:\S+ )?(?P<time>\d{4}-\S+Z) \S+ \S+ (?P<worker>\S+) -?[\d.]+ (?:(?P<s>\d[\d.]*)|-1) "
                      rf"-?[\d.]+ (?P<status>\d{{3}}) \S+ \d+ (?P<size>\d+) {_REQUEST}"),
           "target_processing_time", "balancer"),
    Format("HAProxy's HTTP format",
           re.compile(r"\[(?P<time>\d{1,2}/\w{3}/\d{4}:[\d:.]++)\] \S++ [^\s/]++/(?P<worker>\S++) "
                      r"-?\d+/-?\d+/-?\d+/-?\d+/\+?(?:(?P<ms>\d+)|-1) (?P<status>\d{3}|-1) \+?(?P<size>\d+) "
                      rf"(?:[^\"\[\n]++|\[(?!\d\d?/))*+{_REQUEST}"),
           "Ta", "balancer", at_start=True),
    Format("Heroku's router",
           re.compile(r"^(?>.*?(?P<time>\d{4}-\d\d-\d\dT[\d:.+-]{5,30}+Z?) )(?>.*?\bat=\w++ )"
                      r'(?>.*?method=(?P<method>[A-Z]++) path="?(?P<target>[^\s"]++)"? )(?>.*?dyno=(?P<worker>\S*+) )'
                      r"(?>.*?service=(?:(?P<ms>\d++)ms)? status=(?P<status>\d{3}) bytes=(?P<size>\S*+))"),
           "service=…", "balancer"),
    Format("the common or the combined format", re.compile(rf"{HEAD}(?P<rest>.*)"), "", None),
    Format("uvicorn's format, with times",
           re.compile(r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\b"
                      rf"[^\"\[\n]{{0,500}}+(?<= - ){_REQUEST} (?P<status>\d{{3}})\b ?(?P<size>\S*)(?P<rest>.*)"),
           "", None, add=f"uvicorn writes no durations, but the balancer before it does. {_NGINX}"),
)  # fmt: skip
_TIME = (
    r"(?P<time>\d{1,2}/\w{3}/\d{4}:\d\d:\d\d:\d\d(?: [+-]\d{4})?|"
    r"\d{4}[-/]\d\d[-/]\d\d(?:[ T]| - )\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?|"
    r"(?<=\[[DIWE] )\d{6} \d\d:\d\d:\d\d|"  # Tornado
    r"(?<![\d.])1\d{9}\.?\d{3}(?![\d.]))"
)
ORIGIN = re.compile(r"(?:\x1b\[[\d;]*m)?(?P<service>[A-Za-z][\w.-]*?)(?:[-_]\d+)? +\| ")
"""The service that docker compose logs names before a line."""
HAS_TIME = re.compile(_TIME)
FREE = Format(
    "a format of its own around the request",
    re.compile(rf"^(?P<before>[^{{\n]{{0,500}}?)[\[(\"]?{_TIME}[\])\"]?(?P<between>(?:(?!://)[^{{\n]){{0,500}}?(?<![\w/.-]))"
               r"(?P<method>GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)(?:[\s|;,~\x01\"]| - )+(?P<target>/[^\s\"|;,\x01]*)"
               r"(?: HTTP/[\d.]+)?\"?(?P<rest>.*)"),
    "", None, is_free=True,
)  # fmt: skip
"""What is tried if a log has no format that is known, or one in which no duration is found."""
_STATUS, _METHOD = re.compile(r"\d{1,3}"), re.compile(r"[A-Z][A-Z_-]{0,31}")
_CODE = re.compile(r"10[0-3]|20[0-8]|226|30[0-8]|4[0-2]\d|431|444|451|49[4-9]|50\d|51[01]|52\d|530")
TIMELESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+"? (?:- )?\d{3}\b|^(?>.*?\bmethod=[A-Z]++ ).*\bstatus=\d{3}\b')
"""A request without a time, such as uvicorn writes by default, or Heroku's router behind a head that was cut off."""


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
    worker: tuple[str, ...] = ()
    request: str = ""
    """The key of the whole first line of the request, which goes before the keys of method and target."""
    is_own: bool = False
    """Whether the user said the keys; then a line may lack the duration."""
    add: str = (
        """nginx.conf, in the log_format with escape=json: "request_time": $request_time\n"""
        "If the log has durations, --json-keys duration=elapsed:ms says which key they have, and their unit."
    )


JSON_FORMATS = (
    JsonFormat("Traefik's JSON", ("StartUTC", "time"), ("RequestMethod",), ("RequestPath",), ("DownstreamStatus",),
               ("Duration", "ns"), "balancer", at_start=True, worker=("ServiceAddr", "ServiceURL")),
    JsonFormat("Caddy's JSON", ("ts",), ("request.method",), ("request.uri",), ("status",),
               ("duration", "s"), "balancer"),
    JsonFormat("JSON of an AWS load balancer", ("time",), ("request_verb",), ("request_url",), ("elb_status_code",),
               ("target_processing_time", "s"), "balancer", worker=("target_ip",)),
    JsonFormat("JSON of the Elastic Common Schema", ("@timestamp",), ("http.request.method",),
               ("url.path", "url.original"), ("http.response.status_code",), ("event.duration", "ns")),
    JsonFormat("JSON of a Google Cloud load balancer", ("timestamp",), ("httpRequest.requestMethod",),
               ("httpRequest.requestUrl",), ("httpRequest.status",), ("httpRequest.latency", "s"), "balancer",
               at_start=True),
    JsonFormat("Envoy's JSON", ("start_time",), ("method",), ("path", "x-envoy-original-path"), ("response_code",),
               ("duration", "ms"), "balancer", at_start=True, worker=("upstream_host",)),
    JsonFormat("Kong's JSON", ("started_at",), ("request.method",), ("request.uri", "request.url"),
               ("response.status",), ("latencies.request", "ms"), "balancer", at_start=True),
    JsonFormat("APISIX's JSON", ("start_time",), ("request.method",), ("request.uri",), ("response.status",),
               ("latency", "ms"), "balancer", at_start=True, worker=("upstream",)),
    JsonFormat("JSON of Azure's gateways", ("timeStamp", "time"), ("properties.httpMethod",),
               ("properties.requestUri",), ("properties.httpStatus", "properties.httpStatusCode"),
               ("properties.timeTaken", "s"), "balancer"),
    JsonFormat("Cloudflare's JSON", ("EdgeEndTimestamp",), ("ClientRequestMethod",), ("ClientRequestURI",),
               ("EdgeResponseStatus",), ("OriginResponseDurationMs", "ms"), "balancer"),
    JsonFormat("JSON", ("time_iso8601", "time_local", "timestamp", "@timestamp", "msec", "time", "ts", "asctime",
                        "start_time", "datetime", "date", "requestTime"),
               ("request_method", "method", "request.method", "http.method", "req.method", "http_method", "verb",
                "httpMethod", "http.request.method"),
               ("request_uri", "uri", "path", "url", "request.uri", "request.path", "request.url", "http.url",
                "http.target", "req.url", "request_path", "http_path", "url.path", "http.path"),
               ("status", "status_code", "code", "response.status", "response.status_code", "http.status_code",
                "res.statusCode", "response_code", "statusCode", "http_status", "response_status", "http.status",
                "http.response.status_code"),
               worker=("upstream_addr", "worker", "pid", "process"), request="request"),
)  # fmt: skip
LTSV = replace(JSON_FORMATS[-1], name="LTSV", request="req", add="The label of the durations, such as reqtime")
CSV = replace(JSON_FORMATS[-1], name="CSV", add="The column of the durations and its unit, such as duration_ms")
_W3C_COLUMNS = {
    "date": r"(?P<time>\d{4}-\d\d-\d\d[ \t]\d\d:\d\d:\d\d)", "time": "", "cs-method": r"(?P<method>[A-Z]+)",
    "cs-uri-stem": r"(?P<target>/\S*)", "sc-status": r"(?P<status>\d{3})",
    "time-taken": r"(?:(?P<s>\d+\.\d+)|(?P<ms>\d+)|-)",  # CloudFront writes decimal seconds, and IIS milliseconds
}  # fmt: skip
LOGFMT = replace(JSON_FORMATS[-1], name="logfmt", add="The key of the durations and its unit, such as duration=13ms")


class Columns(NamedTuple):
    """The columns of CSV, as the first line of a log names them."""

    separator: str
    names: tuple[str, ...]

    def keys(self, text: str) -> dict[str, str]:
        """Return the value of each column; none: the line has another number of columns."""
        with suppress(csv.Error):
            values = next(csv.reader([text.rstrip("\r\n")], delimiter=self.separator), [])
            if len(values) == len(self.names):
                return dict(zip(self.names, values, strict=True))
        return {}


class Formats(NamedTuple):
    """The formats that the lines of a log may have."""

    lines: tuple[Format, ...] = FORMATS
    keys: tuple[JsonFormat, ...] = JSON_FORMATS
    logfmt: JsonFormat | None = LOGFMT
    is_own: bool = False
    """Whether the user said which formats they may be: then the log has a single one of them."""
    columns: Columns | None = None


KNOWN = Formats()


def formats_of_columns(lines: Sequence[str], formats: Formats) -> Formats:
    """Return formats with the columns that a line of W3C names, or the first of CSV; else those that are given."""
    fields = next((line.split()[1:] for line in lines if line.lstrip("\ufeff").startswith("#Fields:")), [])
    if {*_W3C_COLUMNS} - {"time-taken"} <= {*fields}:
        columns = r"[ \t]".join(filter(None, (_W3C_COLUMNS.get(name, r"\S+") for name in fields)))
        line, duration = re.compile(rf"^{columns}[ \t\r]*$"), "time-taken" if "time-taken" in fields else ""
        w3c = Format("the W3C extended format", line, duration, "balancer", add="time-taken")
        return Formats((w3c,), (), None)
    for separator in ",;\t|":
        names = tuple(name.strip(' "') for name in lines[0].lstrip("\ufeff").strip().split(separator))
        known, usual = {*names}, JSON_FORMATS[-1]
        has_request = (known & {*usual.method} and known & {*usual.target}) or known & {usual.request, *_TEXTS}
        if len(names) <= MOST_FIELDS and known & {*usual.time} and has_request:
            return formats._replace(keys=(CSV,), logfmt=None, columns=Columns(separator, names))
    return formats


DURATIONS = {
    "rt": "s", "request_time": "s", "duration": "", "request_duration": "", "dur": "", "elapsed": "",
    "elapsed_time": "", "response_time": "", "time_taken": "", "total_time": "", "took": "", "latency_human": "",
    "latency": "",
    "process_time": "", "processing_time": "", "req_time": "", "resp_time": "",
    "reqtime": "s", "responsetime": "", "response_latency": "", "urt": "s", "upstream_response_time": "s",
    "apptime": "s",
}  # fmt: skip
"""Names of durations, those of whole requests first. nginx's own names say the unit of a decimal number: s."""
LONGEST_S = 366 * 24 * 3600.0
"""What seems to take longer is no duration."""
_MOST_DIGITS, MOST_FIELDS = 300, 100
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPELLINGS = {
    "s": "s", "sec": "s", "secs": "s", "seconds": "s", "ms": "ms", "msec": "ms", "msecs": "ms", "millis": "ms",
    "milliseconds": "ms", "us": "us", "µs": "us", "μs": "us", "usec": "us", "usecs": "us", "micros": "us",
    "microseconds": "us", "ns": "ns", "nanos": "ns", "nanoseconds": "ns",
}  # fmt: skip
_UNIT = "|".join(sorted(_SPELLINGS, key=len, reverse=True))
_NUMBER = re.compile(rf"(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>{_UNIT})?", re.IGNORECASE)
_SHORT_TEXT = TEXT.replace(")*+", "){0,500}+")
"""A quoted text that is given up soon if it has no end, because each quote may begin one."""
_FIELD = re.compile(
    rf"(?P<name>[A-Za-z_][\w.-]*)[=:](?P<value>{_SHORT_TEXT}|[^\s\"]+)|(?P<text>{_SHORT_TEXT}|\[[^\[\]]*+\]|\S++)"
)
_NAMED = rf'(?: [A-Za-z_][\w.-]*[=:](?:{TEXT}|[^\s"]++))'
_OTHER = rf'(?: (?:{TEXT}|\[[^\]\n]*\]|[^\sA-Za-z_"\[:,][^\s",]*+|(?!(?:{_UNIT})(?:\s|$))[A-Za-z_][^\s"=:,]*+(?=\s|$)))'
_VALUE = rf'(?P<quote>"?)(?P<value>\d+(?:\.\d+)?(?:{_UNIT})?|-)(?P=quote)(?= (?!: |(?:{_UNIT})(?:\s|$))|$)'
_LIST = re.compile(r"(?<=[\d-])(?:, | : )(?=[\d-])")
_PAIR = re.compile(rf"(?<!\S)(?P<key>[A-Za-z_@][\w.@-]*)=(?P<value>{TEXT}|'[^'\n]*'|\S*)")
_EPOCH = re.compile(r"\d{9,10}(\.\d{1,20})?|(?P<ms>\d{13})|(?P<us>\d{16})|(?P<ns>\d{19})")
_FRACTION = re.compile(r"(\d+/\w+/\d{4}:\d\d:\d\d:\d\d)\.(\d{1,6})")
_DECIMAL = re.compile(r"\d+(?:\.\d+)?")
_HEAD_TIME = re.compile(rf"[^=\n]{{0,60}}?{_TIME}")  # the time of a line before its first key
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_OBJECT = re.compile(r"(?:[^{\"\n]*[^\S\n])?(\{[^\S\n]*\".*\})[^\S\n]*$")
"""An object of JSON, also behind what docker compose or a cluster writes before each line."""
_HALF = re.compile("[\ud800-\udfff]")  # half a character: JSON can escape one, and nothing can write it
_BYTE = re.compile(r"(?<!\\)\\x([0-9A-Fa-f]{2})")  # a byte as nginx writes it without escape=json, which is no JSON
COLOUR = re.compile(r"\x1b\[[\d;]*m")
_TEXTS = ("message", "MESSAGE", "@message", "msg", "log", "textPayload", "event", "line")
"""Keys of what a program printed, in the objects of programs that collect logs."""
_WRAPPERS = ("jsonPayload.", "attributes.", "log_processed.", "fields.", "context.", "extra.", "data.", "record.")
"""Objects into which programs that collect logs put what another program logged."""
_LTSV = re.compile(r"(?:^|\t)(?P<key>[A-Za-z][\w.-]*):(?P<value>[^\t\n]*)")
_COMMA = re.compile(r"(?<![\d.,:])(\d+),(\d+)(?![\d.]|,\d)")
"""A decimal number as some places write it. nginx writes a space into a list."""
_BOTH = re.compile(r"(?<!\S)\**(\d{1,15})/(\d{1,15})\**(?!\S)")
_APART = re.compile(rf"(?<=\d) (?=(?:{_UNIT})(?:\s|$))")


class Value(NamedTuple):
    """A number as it is written. ``unit`` is the unit beside it, if there is one."""

    number: float
    unit: str
    decimals: int


class Entry(NamedTuple):
    """What a line says of one request. ``own_s`` is the duration where the format has it, in seconds.

    Without such a duration, it may be in the fields after the head: those with a name, and all others in their order.
    ``own_unit`` is the unit in which this line has it, if the format leaves that to each line.
    """

    at: float
    method: str
    target: str
    status: int
    size: str
    format: Format | JsonFormat
    own_s: float | None
    worker: str | None
    named: dict[str, str]
    fields: list[str]
    own_unit: str = ""


def parse_entry(text: str, formats: Formats = KNOWN) -> Entry | None:
    """Return what a line says of a request; None: it has none of the formats."""
    if "\x1b" in text:
        text = COLOUR.sub("", text)
    keys = formats.columns.keys(text) if formats.columns else json_keys(text)
    if keys and (entry := _of_object(text, keys, formats)):
        return entry
    for known in formats.lines:
        if match := known.line.search(text):
            return _entry(match, known)
    return _of_pairs(text, formats.logfmt) if formats.logfmt else None


def _of_object(text: str, keys: dict[str, str], formats: Formats) -> Entry | None:
    """Return what an object says: with its own keys, with the time before it, or with the line that is in it."""
    at_head = {"ts": head["time"]} if (head := HAS_TIME.match(text)) else {}
    wrappers = [name for name in _WRAPPERS if any(key.startswith(name) for key in keys)]
    inner = [keys | {key.removeprefix(name): value for key, value in keys.items()} for name in wrappers[:1]]
    for each in (keys, *([at_head | keys] if at_head else []), *inner):
        for known in formats.keys:
            is_possible = known.is_own or not known.duration or known.duration[0] in each
            if is_possible and (entry := _of_keys(each, known)):
                return entry
    if not (printed := printed_in(keys)):
        return None
    time = next((keys[name] for name in JSON_FORMATS[-1].time if name in keys), "")
    formats = formats._replace(columns=None)
    return parse_entry(printed, formats) or parse_entry(f"{time} {printed}", formats)


def _of_pairs(text: str, known: JsonFormat) -> Entry | None:
    """Return what a line of ``key=value`` says, or of labels and values (ltsv.org)."""
    if "\t" in text and (entry := _of_keys({found["key"]: found["value"] for found in _LTSV.finditer(text)}, LTSV)):
        return entry
    keys = {found["key"]: found["value"].strip("\"'") for found in _PAIR.finditer(text)}
    if len(keys) < len(("method", "path")):
        return None
    if head := _HEAD_TIME.match(text):  # a logger and syslog write a time without a key before the keys
        keys.setdefault(known.time[0], head["time"])
    return _of_keys(keys, known)


def printed_in(keys: Mapping[str, str]) -> str:
    """Return the line of a program that another program has put into an object; empty: there is none."""
    texts = (keys.get(name, "").rstrip() for name in _TEXTS)
    return next((text for text in texts if " " in text or text.startswith("{")), "")


def seconds_of(text: str, unit: str) -> float | None:
    """Return a duration in seconds, whose unit is ``unit`` if none stands beside it; None: the text is no number."""
    if _DECIMAL.fullmatch(text):
        took_s = float(text) * UNITS[unit]
    elif value := parse_value(text):
        took_s = value.number * UNITS[value.unit or unit]
    else:
        return None
    return took_s if took_s <= LONGEST_S else None


def parse_value(text: str) -> Value | None:  # each way to write a number returns
    """Return a number as it is written; of a list, as nginx writes it for several upstreams, the sum.

    None: the text is no number, or it has more digits than any number of a log.
    """
    if len(text) > _MOST_DIGITS:
        return None
    head, _, tail = text.partition(".")
    if head.isdecimal() and (tail.isdecimal() or head == text):
        return Value(float(text), "", len(tail))
    text = _COMMA.sub(r"\1.\2", text)
    parts = [part.strip() for part in re.split(r"[,;]| : ", text)]
    if len(parts) > 1:
        values = [parse_value(part) for part in parts if part != "-"]
        if not values or None in values:
            return None
        known = [value for value in values if value]
        return Value(sum(value.number for value in known), known[0].unit, known[0].decimals)
    found = _NUMBER.fullmatch(text)
    if not found or not isfinite(number := float(found["number"])):
        return None
    unit = _SPELLINGS[found["unit"].lower()] if found["unit"] else ""
    return Value(number, unit, len(found["number"].partition(".")[2]))


@lru_cache(maxsize=1 << 12)
def duration_name(name: str) -> tuple[str, str] | None:
    """Return which of DURATIONS a name is, and the unit that the name says, if any; None: it names no duration.

    A name that is a unit, such as uWSGI's msecs, is that of a duration; nginx's msec is the time of day.
    """
    if name.endswith("server.request.duration"):  # OpenTelemetry's
        return "duration", "s"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower().replace("-", "_").strip("_")
    if words in DURATIONS:
        return words, ""
    base, _, unit = words.rpartition("_")
    base = base or ("time" if len(unit) > 1 and unit != "msec" else "")
    return (base, _SPELLINGS[unit]) if base in (*DURATIONS, "time") and unit in _SPELLINGS else None


@lru_cache(maxsize=1024)
def epoch_seconds(text: str) -> float | None:
    """Return a time as seconds since 1970; None: the text is no time. A time without a zone is taken as UTC."""
    if found := _EPOCH.fullmatch(text):
        return float(text) / (1e3 if found["ms"] else 1e6 if found["us"] else 1e9 if found["ns"] else 1)
    text, fraction = text.strip("[]"), _FRACTION.fullmatch(text)
    if text[4:5] in ("-", "/") and not _DAY.fullmatch(text):
        with suppress(ValueError):
            return _utc(datetime.fromisoformat(text.replace(" - ", " ").replace("/", "-")))
    whole_s = _whole_seconds(fraction[1] if fraction else text)
    if whole_s is None or not fraction:
        return whole_s
    return (1_000_000 * whole_s + int(fraction[2].ljust(6, "0"))) / 1_000_000


@lru_cache(maxsize=1024)
def _whole_seconds(text: str) -> float | None:
    for written in ("%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%H:%M:%S", "%d/%b/%Y %H:%M:%S", "%a %b %d %H:%M:%S %Y",
                    "%y%m%d %H:%M:%S"):  # fmt: skip
        with suppress(ValueError):
            return _utc(datetime.strptime(text, written))
    return None


def _utc(found: datetime) -> float:
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _entry(found: re.Match[str], known: Format) -> Entry | None:
    groups = found.groupdict("")
    if not groups["method"] or not groups["target"] or (at := epoch_seconds(groups["time"])) is None:
        return None
    if known.is_free:
        return _free_entry(groups, at, known)
    own_unit = next((unit for unit in UNITS if groups.get(unit)), "")
    took_s = seconds_of(groups[own_unit], own_unit) if own_unit else None
    named, fields = _fields(groups.get("rest", ""))
    return Entry(
        at + (took_s or 0.0) if known.at_start else at, groups["method"], groups["target"],
        int(groups.get("status") or 0), groups.get("size", ""), known, took_s,
        worker_of(groups.get("worker", "")) or _worker_in(named, fields), named, fields, own_unit,
    )  # fmt: skip


def _free_entry(groups: Mapping[str, str], at: float, known: Format) -> Entry | None:
    """Return an entry with the fields on all sides of its time and its request; None: none of them is a status.

    What follows the request separates the fields, if it is no space.
    """
    between = found[0] if (found := re.match(r"[\t|;,~\x01]", groups["rest"].lstrip(' "'))) else ""
    named: dict[str, str] = {}
    sides: list[list[str]] = []
    for side in ("rest", "between", "before"):
        parts = groups[side].split(between) if between else [groups[side]]
        found_fields = [_fields(part) for part in parts if part.strip(' "[]')]
        whole = [[part.strip(' "[]')] for part in parts if part.strip(' "[]')]
        sides.append([text for of, plain in zip(found_fields, whole, strict=True)
                      for text in (of[1] if not between or of[0] else plain)])  # fmt: skip
        for of in reversed(found_fields):
            named |= of[0]
    status = next((named[name] for name in JSON_FORMATS[-1].status if _CODE.fullmatch(named.get(name, ""))), "")
    for fields in () if status else sides:
        place = next((place for place, text in enumerate(fields) if _CODE.fullmatch(text)), None)
        if place is not None:
            status = fields.pop(place)
            break
    if not status:
        return None
    fields = [*sides[2], *sides[1], *sides[0]]
    return Entry(at, groups["method"], groups["target"], int(status), "", known, None, _worker_in(named, fields),
                 named, fields)  # fmt: skip


@lru_cache(maxsize=1 << 12)
def worker_of(text: str) -> str | None:
    """Return the worker that answered, of those that a line names in their order; None: it names none."""
    last = re.split(r", | : ", text)[-1].strip("<>")
    return None if last in ("", "-") else last


def _worker_in(named: dict[str, str], fields: list[str]) -> str | None:
    """Return the worker that the fields after the head name: by a name, or as gunicorn writes %(p)s."""
    of_name = next((named[name] for name in JSON_FORMATS[-1].worker if name in named), "")
    return worker_of(of_name or next((text for text in fields if re.fullmatch(r"<\d+>", text)), ""))


def _fields(rest: str) -> tuple[dict[str, str], list[str]]:
    """Return the fields after the head: those with a name, and all others in their order, without their quotes.

    They do not have Apache's %T in its usual %T/%D, and have semicolons in lists.
    """
    named: dict[str, str] = {}
    others: list[str] = []
    rest = _BOTH.sub(lambda both: f"{both[2]}us" if int(both[2]) // 1_000_000 == int(both[1]) else both[0], rest)
    for found in _FIELD.finditer(_APART.sub("", _LIST.sub(";", rest))):
        if found["name"]:
            named.setdefault(found["name"], found["value"].strip('"').rstrip(",;"))
        else:
            text = found["text"]
            others.append(text[1:-1] if text[0] in '"[' and len(text) > 1 else text.strip("(),;"))
    return named, others


def rest_at(place: int, width: int) -> str:
    """Return a pattern of what follows the head, whose group ``value`` is one of ``width`` fields without a name.

    It is stricter than what parse_entry reads: a line without lists and without a space before a unit.
    """
    before, after = f"(?:{_OTHER}{_NAMED}*){{{place}}}", f"(?:{_OTHER}{_NAMED}*){{{width - place - 1}}}"
    return rf"{_NAMED}*{before} {_VALUE}{_NAMED}*{after} ?$"


def rest_with(name: str) -> str:
    """Return a pattern of what follows the head, whose group ``value`` is the first field with this name."""
    other = rf'(?: (?!{re.escape(name)}[=:])[A-Za-z_][\w.-]*[=:](?:{TEXT}|[^\s"]++))'
    return rf"(?:{_OTHER}|{other}){{0,{MOST_FIELDS}}}? {re.escape(name)}[=:]{_VALUE}.*"


def json_keys(text: str) -> dict[str, str]:
    """Return the values of the object of JSON that a line is; those of a nested object have keys with a dot."""
    keys: dict[str, str] = {}
    if "{" not in text or not (found := _OBJECT.match(text)):
        return keys
    try:
        values = parse_json(_BYTE.sub(r"\\u00\1", found[1]) if "\\x" in text else found[1])
    except ValueError:
        return keys
    if isinstance(values, dict):
        _flatten(values, "", keys)
    return {} if "\\u" in text and any(map(_HALF.search, (*keys, *keys.values()))) else keys


def _flatten(values: dict[str, Any], of: str, into: dict[str, str]) -> None:
    for key, value in values.items():
        if isinstance(value, str):
            into[of + key] = value
        elif isinstance(value, dict):
            _flatten(value, f"{of}{key}.", into)
        elif value is not None and not isinstance(value, list | bool):
            into[of + key] = str(value)


def _of_keys(keys: dict[str, str], known: JsonFormat) -> Entry | None:
    def first(names: tuple[str, ...]) -> str:
        for name in names:
            if name in keys:
                return keys[name]
        return ""

    method, target = first(known.method), first(known.target)
    if len(request := keys.get(known.request, "").split()) > 1:
        method, target = request[:2]
    if _DAY.fullmatch(day := keys.get("date", "")) and "time" in keys:
        keys = {**keys, "time": f"{day} {keys['time']}"}
    times = (epoch_seconds(keys[name]) for name in known.time if name in keys)
    at, status, took_s = next((at for at in times if at is not None), None), first(known.status), None
    method = method.upper()
    if at is None or not target or not _STATUS.fullmatch(status) or not _METHOD.fullmatch(method):
        return None
    if known.duration:
        key, unit = known.duration
        took_s = seconds_of(keys.get(key, ""), unit)
    ends = at + (took_s or 0.0) if known.at_start else at
    named = {} if known.duration else keys
    return Entry(ends, method, target, int(status), "", known, took_s, worker_of(first(known.worker)), named, [])

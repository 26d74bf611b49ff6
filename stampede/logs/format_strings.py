"""Formats that somebody named: a string, a configuration that declares formats, or keys of JSON.

A further dialect is a further entry of DIALECTS, and a further variable a line of its table.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stampede.errors import WrongUse
from stampede.foreign import parse_python
from stampede.logs.formats import JSON_FORMATS, KNOWN, UNITS, Clock, Format, Formats, JsonFormat

_DAY = r"\d+/\w+/\d{4}:\d\d:\d\d:\d\d"
_LOCAL = rf"{_DAY} [+-]\d{{4}}"
_ISO = r"\d{4}-\d\d-\d\d[ T][\d:.,]+(?:Z| ?[+-]\d\d:?\d\d)?"
_CTIME = r"\w{3} \w{3} +\d+ [\d:]{8} \d{4}"
_REQUEST = r'(?:(?P<method>[A-Z]++) (?P<target>[^\s"]++)[^"\n]*?|[^"\n]*?)'
_SEVERAL = r"(?:[\d.]+|-)?(?:(?:, | : )(?:[\d.]+|-))*"
_TARGET, _METHOD = r'(?:(?P<target>(?:/|\*|https?:)[^\s"]*)|-?)', r"(?:(?P<method>[A-Z]+)|-?)"
_STATUS, _SIZE = r"(?P<status>\d{3})", r"(?P<size>\d+|-)"
_WORD = r"[^\s\"]*?"
_MOST = 500
"""A text that may go on behind the character that ends it has at most so many characters."""
_SEPARATORS = "\t|;^~"


@dataclass(frozen=True)
class Dialect:
    """How one kind of server writes formats.

    ``variable`` finds the variables of a format; its group ``name``, or ``name`` and ``argument``, is looked up in
    ``variables``: what the server writes there, with the groups of a Format; empty or absent: any text. The group
    ``start`` is a time at which requests came. Of variables that mean the same, such as two durations, the first in
    the table is taken.
    ``time``, ``request`` and ``duration`` are what to add to a format without them.
    """

    name: str
    variable: str
    variables: Mapping[str, str]
    clock: Clock
    time: str
    request: str
    duration: str

    @property
    def durations(self) -> list[str]:
        """The variables that are durations, the best first."""
        return [name for name, written in self.variables.items() if any(f"(?P<{unit}>" in written for unit in UNITS)]


def _variables(table: Mapping[str, str]) -> dict[str, str]:
    """Return what a server writes for each variable, from a table of the variables for which it writes the same."""
    return {name: written for written, names in table.items() for name in names.split()}


NGINX = Dialect(
    "nginx's log_format",
    r"\$\{?(?P<name>\w+)\}?",
    _variables({
        r"(?P<time>\d+\.\d+)": "msec",
        rf"(?P<time>{_ISO})": "time_iso8601",
        rf"(?P<time>{_LOCAL})": "time_local",
        _REQUEST: "request",
        _METHOD: "request_method",
        _TARGET: "request_uri uri document_uri",
        _STATUS: "status",
        _SIZE: "body_bytes_sent bytes_sent",
        r"(?P<s>\d+\.\d+|-)": "request_time",
        rf"(?P<s>{_SEVERAL})": "upstream_response_time",
        _SEVERAL: "upstream_connect_time upstream_header_time upstream_status upstream_response_length",
        r"(?P<worker>[^\s,\"]*(?:(?:, | : )[^\s,\"]+)*)": "upstream_addr",
        _WORD: "remote_addr host server_name scheme request_length request_id pid connection connection_requests pipe "
               "server_protocol server_port",
    }),
    "balancer", "$time_iso8601", '"$request"', "rt=$request_time",
)  # fmt: skip
APACHE = Dialect(
    "Apache's LogFormat",
    r"%[<>]?(?:!?\d{3}(?:,\d{3})*)?[<>]?(?:\{(?P<argument>[^}]*)\})?(?P<name>\^..|[a-zA-Z])",
    _variables({
        r"(?P<start>\d+)": "{usec}t {msec}t {sec}t",
        r"(?P<time>\d+)": "{end:usec}t {end:msec}t",
        rf"(?P<start>\[{_LOCAL}\])": "t",
        rf"(?P<start>{_DAY}(?: [+-]\d{{4}})?|{_ISO})": "{%}t",  # with a format of strftime
        _REQUEST: "r",
        _METHOD: "m",
        _TARGET: "U",
        _STATUS: "s",
        _SIZE: "B b O",
        r"(?P<us>\d+)": "D {us}T",
        r"(?P<ms>\d+)": "{ms}T",
        r"(?P<s>\d+)": "{s}T T",
        r"(?P<worker>\d+)": "P",
        _WORD: "a h A H L l k p q v V I",
    }),
    "balancer", "%t", r"\"%r\"", "duration_us=%D",
)  # fmt: skip
PYTHON = Dialect(
    "gunicorn's access_log_format",  # with the further variables of uvicorn and granian
    r"%\((?P<name>\{[^}]*\}[ioe]|\w+)\)[-\d.]*[sdf]",
    _variables({
        rf"(?P<time>\[{_LOCAL}\])": "t",
        rf"(?P<time>{_ISO})": "asctime time",
        _REQUEST: "r request_line",
        _METHOD: "m method",
        _TARGET: "U full_path path",
        _STATUS: "s status",
        _STATUS + r"(?: \w[\w '-]*)?": "status_code",
        _SIZE: "B b",
        r"(?P<s>\d+\.\d+)": "L",
        r"(?P<us>\d+)": "D",
        r"(?P<ms>\d+)": "M",
        r"(?P<s>\d+)": "T",
        r"(?P<ms>\d+\.?\d*)": "dt_ms",
        r"(?P<worker><?\d+>?)": "p process",
        _WORD: "h l H q addr client_addr protocol scheme levelname",
        "": "u f a query_string levelprefix name",
    }),
    "server", "%(t)s", '"%(r)s"', "rt=%(L)s",
)  # fmt: skip
UWSGI = Dialect(
    "uWSGI's logformat",
    r"%\((?P<name>[\w.-]+)\)",
    _variables({
        r"(?P<start>\d+)": "tmicros tmsecs time",
        r"(?P<time>\d+)": "epoch",
        rf"(?P<start>{_LOCAL})": "ltime",
        rf"(?P<start>{_CTIME})": "ctime",
        rf"(?P<start>{_DAY}(?: [+-]\d{{4}})?|{_ISO}|{_CTIME})": "ftime",
        _METHOD: "method",
        _TARGET: "uri",
        _STATUS: "status",
        _SIZE: "rsize size",
        r"(?P<us>\d+)": "micros",
        r"(?P<ms>\d+)": "msecs",
        r"(?P<s>\d+)": "secs",
        r"(?P<worker>\d+)": "pid wid",
        _WORD: "addr host proto vars headers core switches cl pktsize",
    }),
    "server", "[%(ltime)]", "%(method) %(uri)", "duration_ms=%(msecs)",
)  # fmt: skip
HAPROXY = Dialect(
    "HAProxy's log-format",
    r"%(?:\{(?P<argument>[^}]*)\})?(?P<name>\[[^\]]*\]|ci|cp|fi|fp|bi|bp|si|sp|[a-zA-Z]{1,4})",
    _variables({
        r"(?P<start>\d+/\w+/\d{4}:[\d:.]+)": "tr t",
        rf"(?P<start>{_LOCAL})": "trg trl T Tl",
        _REQUEST: "r",
        _METHOD: "HM",
        _TARGET: "HU HP HPO",
        r"(?P<status>\d{3}|-1)": "ST",
        r"\+?(?P<size>\d+)": "B",
        r"\+?(?P<ms>-?\d+)": "Ta Tt",
        r"(?P<ms>-?\d+)": "Tr",
        r"(?P<worker>[^\s\"]*)": "s",
        r"[-+]?\d*": "cp fp bp sp Th Ti TR Tw Tc Td Tq ac fc bc sc rc sq bq lc pid rt ts U",
        _WORD: "ci fi bi si f ft b H ID HV CC CS tsc",
    }),
    "balancer", "[%tr]", "%{+Q}r", "duration_ms=%Ta",
)  # fmt: skip
_WITH_SPACES = re.compile(r"agent|forwarded|cookie|%\(a\)|capture|%h[rs]\b|\[", re.IGNORECASE)
"""Variables whose text often has spaces. Between spaces, the text of any other variable has none."""
DIALECTS = (NGINX, UWSGI, PYTHON, HAPROXY, APACHE)
_PARTS_OF_JSON = ("time", "method", "path", "request", "status", "duration", "worker")
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_NGINX = re.compile(rf"\blog_format\s+(?P<name>\S+)\s+(?:escape=\w+\s+)?(?P<parts>(?:{_QUOTED}\s*|[^\s;'\"]+\s*)+);?")
_PARTS = re.compile(rf"{_QUOTED}|[^\s;'\"]+")
_ONE_LINE: tuple[tuple[Dialect, str], ...] = (
    (APACHE, r'^\s*LogFormat\s+(?P<text>"(?:[^"\\]|\\.)*")[ \t]*(?P<name>\S*)'),
    (APACHE, r'^\s*CustomLog\s+\S+\s+(?P<text>"(?:[^"\\]|\\.)*")(?P<name>)'),
    (PYTHON, rf"--access-logformat[= ]\s*(?P<text>{_QUOTED})(?P<name>)"),
    (UWSGI, r"^\s*log-?format\s*[=:]\s*(?P<text>.+?)(?P<name>)\s*$"),
    (HAPROXY, rf"^\s*log-format\s+(?P<text>{_QUOTED}|(?:\\.|\S)+)(?P<name>)"),
    (NGINX, r"^\s*log-format-upstream:\s*(?P<text>.+?)(?P<name>)\s*$"),
)
"""How configurations declare a format in one line; the last is the ConfigMap of ingress-nginx."""


def compile_format(text: str, dialect: Dialect | None = None, name: str = "") -> Format:
    """Return the format that a string declares, as it stands in the configuration of a server.

    Raise WrongUse if the string has no variable of a dialect, or has neither a time nor a request.
    """
    dialect = dialect or dialect_of(text)
    tokens = list(_tokens(text, dialect))
    taken: dict[str, int] = {}  # the token of each part of an entry: the first in the table of the dialect
    for place in sorted(range(len(tokens)), key=lambda place: (tokens[place].rank, place)):
        for meaning in tokens[place].means:
            taken.setdefault(meaning, place)
    said = f"{dialect.name} {name}".strip()
    for needed, way in (("time", dialect.time), ("method", dialect.request), ("target", dialect.request)):
        if needed not in taken:
            raise WrongUse(f"{said} has no {needed} of the requests: {text}", hint=f"Add {way} to it.")
    line = "".join(_pattern(tokens, place, taken, dialect) for place in range(len(tokens)))
    if first := re.match(r"\[\^(?:\\.|[^\]\\])*\]|\\S(?=[*{])", line):
        line = f"(?<!{first[0]}){line}"  # what matches within such a text matches from its beginning, too
    add, (label, _, variable) = f"{text.rstrip()} {dialect.duration}", dialect.duration.partition("=")
    if text.rstrip().endswith("}"):  # JSON
        add = f'{text.rstrip()[:-1].rstrip()}, "{label}": "{variable}"}}'
    return Format(
        said, re.compile(line.replace("(?P<start>", "(?P<time>") + r"[ \r]*$"),
        tokens[taken["duration"]].variable if "duration" in taken else "", dialect.clock,
        at_start="(?P<start>" in line, add=f"{said}: {add}",
    )  # fmt: skip


def dialect_of(text: str) -> Dialect:
    """Return the dialect of a format, as its variables tell it. Raise WrongUse if there are none."""
    if re.search(r"\$\{?[a-z]\w+", text):
        return NGINX
    if re.search(r"%\(\S+?\)", text):
        names = [found["name"] for found in re.finditer(PYTHON.variable, text)]
        alike = len(names) == len(re.findall(r"%\(", text))
        return PYTHON if alike and all(name in PYTHON.variables or name[0] == "{" for name in names) else UWSGI
    if re.search(r"%(?:\{[+-][QXE+,-]+\}|ci\b|ST\b|T[aRtrcw]\b|tr\b|HM\b|HU\b|\[)", text):
        return HAPROXY
    if re.search(APACHE.variable, text):
        return APACHE
    known = ", ".join(dialect.name for dialect in DIALECTS)
    raise WrongUse(f"--format has no variables: {text}", hint=f"It takes {known}. In a shell, it needs single quotes.")


@dataclass(frozen=True)
class _Token:
    """A variable of a format, what a log has there, and its place in the table; or a text, with no variable."""

    variable: str
    written: str
    rank: int = 0

    @property
    def means(self) -> list[str]:
        """The parts of an entry that the variable has. All durations are one part, and both kinds of times."""
        return [_meaning(str(group)) for group in re.findall(r"\(\?P<(\w+)>", self.written)] if self.variable else []


def _meaning(group: str) -> str:
    return "duration" if group in UNITS else "time" if group == "start" else group


def _tokens(text: str, dialect: Dialect) -> Iterator[_Token]:
    end, keys = 0, [*dialect.variables]
    for found in re.finditer(dialect.variable, text):
        yield _Token("", _unescaped(text[end : found.start()]))
        end, name = found.end(), found["name"]
        argument = found.groupdict().get("argument") or ""
        key = f"{{{argument}}}{name}" if argument and argument[0] not in "+-" else name
        if key not in keys and "%" in argument:
            key = f"{{%}}{name}"
        quote = '"' if re.match(r"\+.*Q", argument) else ""
        variable = _Token(found[0], dialect.variables.get(key, ""), keys.index(key) if key in keys else 0)
        yield from (_Token("", quote), variable, _Token("", quote))
    yield _Token("", _unescaped(text[end:]))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"t": "\t"}.get(found[1], found[1]), text).replace("%%", "%")


def _pattern(tokens: list[_Token], place: int, taken: dict[str, int], dialect: Dialect) -> str:
    """Return the pattern of a token. A part that another token has is no group.

    The text of a variable that nobody needs ends at the character behind it, because several texts that may go on would
    take for ever to tell apart.
    """
    token = tokens[place]
    if not token.variable:
        text = re.escape(token.written)
        return text.replace(r"\ ", " *") if dialect is HAPROXY else text  # it writes no space beside what is empty
    before = "".join(each.written for each in tokens[max(place - 2, 0) : place] if not each.variable)[-1:]
    after = "".join(each.written for each in tokens[place + 1 : place + 3] if not each.variable)[:1]
    pattern = ".*?" if _WITH_SPACES.search(token.variable) else r"\S*?"
    if token.written:
        pattern = re.sub(r"\(\?P<(\w+)>", lambda group: group[0] if taken[_meaning(group[1])] == place else "(?:",
                         token.written)  # fmt: skip
    elif before == after == '"':
        pattern = r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+'
    elif after and after in "\t|;^~])}>'\"":
        pattern = rf"[^{re.escape(after)}\n]*+"
    if after and after in _SEPARATORS:
        pattern = pattern.replace(r'[^\s"]++', rf'[^\s"{re.escape(after)}]++').replace(
            r'[^"\n]*?', rf'[^"\n{re.escape(after)}]*+')  # fmt: skip
    pattern = pattern.replace(r'[^"\n]*?', r'[^"\n]*+') if after == '"' else pattern
    for text in (_WORD, r"\S*?"):
        pattern = pattern.replace(text, f"{text[:-1]}+") if after == " " else pattern
    return pattern.replace("*?", f"{{0,{_MOST}}}?")


def choose_formats(written: str = "", json_keys: str = "") -> Formats:
    """Return the formats that the options of a command say, else all that the lab knows.

    ``written`` is a format, or the text of a configuration that declares some. Raise WrongUse if all of them lack times
    or requests.
    """
    if written and json_keys:
        raise WrongUse("--format and --json-keys exclude each other.", hint="Keep one of them.")
    if json_keys:
        keys = _json_format(json_keys)
        return Formats((), (keys,), replace(keys, name=f"logfmt with the keys {json_keys}"), is_own=True)
    if not written:
        return KNOWN
    lines: list[Format] = []
    mistakes: list[WrongUse] = []
    for dialect, name, text in declared_formats(written):
        try:
            lines.append(compile_format(text, dialect, name))
        except WrongUse as mistake:
            mistakes.append(mistake)
    if mistakes and not lines:
        raise mistakes[0]
    if not lines:  # a string alone, which may have the quotes of nginx.conf, and stand in several parts
        text = re.sub(r"^\s*escape=\w+\s+", "", written.strip())
        has_parts = text.startswith("'") or (text.startswith('"') and '\\"' in text)  # else the log has these quotes
        if has_parts and re.fullmatch(rf"(?:{_QUOTED}\s*)+;?", text):
            text = "".join(_unquoted(part[0]) for part in _PARTS.finditer(text))
        lines = [compile_format(text)]
    return Formats(tuple(lines), (), None, is_own=True)


def declared_formats(text: str) -> Iterator[tuple[Dialect, str, str]]:
    """Yield the formats of a configuration, each with its dialect and its name; first those that an access_log uses."""
    text = re.sub(r"^\s*#.*$", "", text.replace("\\\n", ""), flags=re.MULTILINE)
    uses = {use[1] for use in re.finditer(r"\baccess_log\s+\S+\s+([\w.-]+)", text)}
    nginx = {found: "".join(_unquoted(part[0]) for part in _PARTS.finditer(found["parts"]))
             for found in _NGINX.finditer(text)}  # fmt: skip
    for found in sorted(nginx, key=lambda found: found["name"] not in uses):
        yield NGINX, found["name"], nginx[found]
    for dialect, pattern in _ONE_LINE:
        for found in re.finditer(pattern, text, re.MULTILINE):
            yield dialect, found["name"], _unquoted(found["text"])
    if "access_log_format" in text:
        with suppress(SyntaxError, ValueError, RecursionError):  # no Python
            for statement in ast.walk(parse_python(text.strip())):
                match statement:
                    case (
                        ast.Assign(targets=[ast.Name(id="access_log_format")], value=ast.expr() as value)
                        | ast.AnnAssign(target=ast.Name(id="access_log_format"), value=ast.expr() as value)
                    ):
                        yield PYTHON, "", "".join(_strings(value))


def _unquoted(part: str) -> str:
    return part[1:-1].replace(f"\\{part[0]}", part[0]) if part[0] in "'\"" else part


def _strings(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*_strings(left), *_strings(right))


def _json_format(json_keys: str) -> JsonFormat:
    """Return the format of JSON whose keys have the names of a text such as ``time=ts,duration=elapsed:ms``."""
    keys: dict[str, str] = {}
    for pair in json_keys.split(","):
        part, _, key = (text.strip() for text in pair.partition("="))
        if part not in _PARTS_OF_JSON or not key:
            hint = f"The parts are {', '.join(_PARTS_OF_JSON)}, such as time=ts,path=route,duration=elapsed:ms."
            raise WrongUse(f"--json-keys {pair.strip()} is no part of a request with its key.", hint=hint)
        keys[part] = key
    duration = None
    if written := keys.get("duration"):  # with the unit beside it, or in its name
        key, _, unit = written.rpartition(":") if ":" in written else (written, "", written.rpartition("_")[2])
        if unit not in UNITS:
            raise WrongUse(f"--json-keys duration={written} has no unit.",
                           hint=f"--json-keys duration={key}:ms, or :s, :us or :ns")  # fmt: skip
        duration = key, unit
    usual = JSON_FORMATS[-1]
    fields = {"time": "time", "method": "method", "path": "target", "status": "status", "worker": "worker"}
    own: dict[str, Any] = {name: (keys[part],) for part, name in fields.items() if part in keys}
    request = keys.get("request", "" if {"method", "path"} & keys.keys() else usual.request)
    return replace(usual, name=f"JSON with the keys {json_keys}", duration=duration, request=request, is_own=True,
                   **own)  # fmt: skip

"""Formats that somebody named: the string of a configuration, a configuration that declares some, or keys of JSON.

A further variable is a further word in the table of its dialect.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from textwrap import shorten
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
_SEPARATORS = "\t|;^~"
_WITH_SPACES = re.compile(r"agent|forwarded|cookie|%\(a\)|capture|%h[rs]\b|\[", re.IGNORECASE)
"""Variables whose text often has spaces. Between spaces, the text of any other variable has none."""
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_PART = rf"""(?:{_QUOTED}|#.*|[^\s;'"#]++)"""


@dataclass(frozen=True)
class Dialect:
    """How one kind of server writes formats.

    ``directive`` finds formats in a configuration: in ``parts`` that stand after each other, or as one ``text``.
    ``variable`` finds the variables of a format, whose groups ``argument`` and ``name`` are looked up in ``variables``:
    what the server writes there, with the groups of a Format, or ``start``, the time at which requests came; absent:
    any text. Of variables that mean the same, such as two durations, the first in the table is taken.
    ``time``, ``request`` and ``duration`` are what to add to a format without them.
    """

    name: str
    directive: str
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

    def key(self, found: "re.Match[str]") -> str:
        """Return the key of a variable in ``variables``; ``{%}t`` is a time with a format of strftime."""
        argument = found.groupdict().get("argument") or ""
        key = f"{{{argument}}}{found['name']}" if argument and argument[0] not in "+-" else found["name"]
        return f"{{%}}{found['name']}" if key not in self.variables and "%" in argument else key


def _variables(table: Mapping[str, str]) -> dict[str, str]:
    """Return what a server writes for each variable, from a table of the variables for which it writes the same."""
    return {name: written for written, names in table.items() for name in names.split()}


NGINX = Dialect(
    "nginx's log_format",  # and the ConfigMap of ingress-nginx
    rf"\blog_format\s+(?P<name>\S+)\s+(?:escape=\w+\s+)?(?P<parts>(?:{_PART}\s*+)++)|"
    r"^[ \t]*log-format-upstream:[ \t]*(?P<text>\S.*)",
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
PYTHON = Dialect(
    "gunicorn's access_log_format",  # with the further variables of uvicorn and granian
    rf"--access-logformat[= ]\s*(?P<text>{_QUOTED})",
    r"%\((?P<name>\{[^{}]*\}[ioe]|\w+)\)[-\d.]*[sdf]",
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
    }),
    "server", "%(t)s", '"%(r)s"', "rt=%(L)s",
)  # fmt: skip
UWSGI = Dialect(
    "uWSGI's logformat",
    r"^[ \t]*log-?format[ \t]*[=:][ \t]*(?P<text>\S.*)",
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
APACHE = Dialect(
    "Apache's LogFormat",
    r'^[ \t]*(?:LogFormat|CustomLog[ \t]+\S+)[ \t]+(?P<text>"(?:[^"\\]|\\.)*+")(?:[ \t]+(?P<name>[\w.-]+)(?=\s|$))?',
    r"%[<>]?(?:!?\d{3}(?:,\d{3})*)?[<>]?(?:\{(?P<argument>[^{}]*)\})?(?P<name>\^..|[a-zA-Z])",
    _variables({
        r"(?P<start>\d+)": "{usec}t {msec}t {sec}t",
        r"(?P<time>\d+)": "{end:usec}t {end:msec}t",
        rf"(?P<start>\[{_LOCAL}\])": "t",
        rf"(?P<start>{_DAY}(?: [+-]\d{{4}})?|{_ISO})": "{%}t",
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
HAPROXY = Dialect(
    "HAProxy's log-format",
    rf"^[ \t]*log-format[ \t]+(?![=:])(?P<text>{_QUOTED}|(?:\\.|\S)+)",
    r"%(?:\{(?P<argument>[^{}]*)\})?(?P<name>\[[^\]]{0,500}\]|ci|cp|fi|fp|bi|bp|si|sp|[a-zA-Z]{1,4})",
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
DIALECTS = (NGINX, PYTHON, UWSGI, APACHE, HAPROXY)
_PARTS_OF_JSON = {"time": "time", "method": "method", "path": "target", "request": "request", "status": "status",
                  "duration": "duration", "worker": "worker"}  # fmt: skip


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
    in_python, unread = _in_python(written)
    for dialect, name, text in (*_declared(written), *((PYTHON, "", text) for text in in_python)):
        try:
            lines.append(compile_format(text, name, dialect))
        except WrongUse as mistake:
            mistakes.append(mistake)
    if (mistakes := [*mistakes, *unread]) and not lines:
        raise mistakes[0]
    if not lines:  # a string alone, which may have the quotes of nginx.conf, and stand in several parts
        text = re.sub(r"^\s*escape=\w+\s+", "", written.strip())
        has_parts = text.startswith("'") or (text.startswith('"') and '\\"' in text)  # else the log has these quotes
        text = _joined(text) if has_parts and re.fullmatch(rf"(?:{_QUOTED}\s*)+;?", text) else text
        if "\n" in text:
            raise WrongUse("--format declares no format of an access log.",
                           hint=f"{_TAKES} Without it, the lab looks for the format itself.")  # fmt: skip
        lines = [compile_format(text)]
    return Formats(tuple(lines), (), None, is_own=True)


def _declared(written: str) -> Iterator[tuple[Dialect, str, str]]:
    """Yield the dialect, the name and the text of each format of a configuration; first those that a log uses."""
    text = re.sub(r"^[ \t]*#.*$", "", written.replace("\\\n", ""), flags=re.MULTILINE)
    used = {use[1] for use in re.finditer(r"\b(?:access_log|CustomLog)\s+\S+\s+([\w.-]+)", text)}
    found = [(dialect, each.groupdict()) for dialect in DIALECTS
             for each in re.finditer(dialect.directive, text, re.MULTILINE)]  # fmt: skip
    for dialect, of in sorted(found, key=lambda each: each[1].get("name") not in used):
        one = (of["text"] or "").rstrip()
        is_quoted = re.fullmatch(_QUOTED, one)
        yield dialect, of.get("name") or "", _joined(of.get("parts") or one) if is_quoted or not one else one


def _in_python(written: str) -> tuple[list[str], list[WrongUse]]:
    """Return the strings that a module assigns to access_log_format, and a mistake for each other value of it."""
    texts: list[str] = []
    unread: list[WrongUse] = []
    with suppress(SyntaxError):
        for node in ast.walk(parse_python(written.strip())) if "access_log_format" in written else ():
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if "access_log_format" not in [getattr(target, "id", "") for target in targets]:
                continue
            value = getattr(node, "value", None) or ast.Constant(None)
            parts = [part for part in ast.walk(value) if not isinstance(part, ast.BinOp | ast.Add)]
            strings = [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if strings == parts and not isinstance(node, ast.AugAssign):
                strings.sort(key=lambda part: (part.lineno, part.col_offset))
                texts.append("".join(str(part.value) for part in strings).strip())
            else:
                shown = shorten(ast.get_source_segment(written.strip(), node) or "", 500, placeholder="…")
                unread.append(WrongUse(f"--format: this is more than a string: {shown}", hint="Write the string that "
                                       "gunicorn gets from it: --format '…'"))  # fmt: skip
    return texts, unread


def _joined(parts: str) -> str:
    """Return the text of strings that stand after each other, as nginx joins them, without comments between them."""
    return "".join(part[1:-1].replace(f"\\{part[0]}", part[0]) if part[0] in "'\"" else part
                   for part in re.findall(_PART, parts) if part[0] != "#")  # fmt: skip


_TAKES = f"--format takes {', '.join(each.name for each in DIALECTS)}."


def compile_format(text: str, name: str = "", dialect: Dialect | None = None) -> Format:
    """Return the format that a string declares, as it stands in the configuration of a server.

    Raise WrongUse if the string has no variable of a dialect, or has neither a time nor a request.
    """
    shown = shorten(text, 500, placeholder="…")
    if not (dialect := dialect or _dialect_of(text)):
        raise WrongUse(f"--format has no variables: {shown}", hint=f"{_TAKES} In a shell, it needs single quotes.")
    order = {variable: rank for rank, variable in enumerate(dialect.variables)}
    quoted = (
        re.sub(r"%\{\+[^{}]{0,50}Q[^{}]{0,50}\}(?:\[[^\]]{0,500}\]|\w+)", r'"\g<0>"', text)
        if dialect is HAPROXY
        else text
    )
    found = [*re.finditer(dialect.variable, quoted)]
    names = [dialect.key(each) for each in found]
    taken: dict[str, int] = {}  # the variable of each part of an entry: the first in the table of the dialect
    for place in sorted(range(len(names)), key=lambda place: (order.get(names[place], 0), place)):
        for group in re.findall(r"\(\?P<(\w+)>", dialect.variables.get(names[place], "")):
            taken.setdefault(_part_of(group), place)
    said = f"{dialect.name} {name}".strip()
    for needed, way in (("time", dialect.time), ("method", dialect.request), ("target", dialect.request)):
        if needed not in taken:
            raise WrongUse(f"{said} has no {needed} of the requests: {shown}", hint=f"Add {way} to it.")
    ends = [0, *(each.end() for each in found)]
    starts = [*(each.start() for each in found), len(quoted)]
    texts = [re.sub(r"\\(.)", lambda each: {"t": "\t"}.get(each[1], each[1]), quoted[end:start]).replace("%%", "%")
             for end, start in zip(ends, starts, strict=True)]  # fmt: skip
    # HAProxy writes no space beside what is empty
    plain = [re.escape(each).replace(r"\ ", " *" if dialect is HAPROXY else r"\ ") for each in texts]
    parts = [(texts[0], plain[0])]
    for place, variable in enumerate(names):
        written = dialect.variables.get(variable, "")
        for group in {*re.findall(r"\(\?P<(\w+)>", written)}:
            if taken[_part_of(group)] != place:
                written = written.replace(f"(?P<{group}>", "(?:")
        after = texts[place + 1]
        parts += [(found[place][0], _pattern(written, found[place][0], texts[place][-1:], after[:1])),
                  (after, plain[place + 1])]  # fmt: skip
    line = "".join(pattern for _, pattern in parts)
    if first := re.match(r"\[\^(?:\\.|[^\]\\])*\]|\\S(?=[*{])", line):
        line = f"(?<!{first[0]}){line}"  # what matches within such a text matches from its beginning, too
    add, (label, _, variable) = f"{text.rstrip()} {dialect.duration}", dialect.duration.partition("=")
    if text.rstrip().endswith("}"):  # JSON
        add = f'{text.rstrip()[:-1].rstrip()}, "{label}": "{variable}"}}'
    return Format(
        said, re.compile(line.replace("(?P<start>", "(?P<time>") + r"[ \r]*$"),
        found[taken["duration"]][0] if "duration" in taken else "", dialect.clock, at_start="(?P<start>" in line,
        add=f"{said}: {add}", parts=tuple(parts),
    )  # fmt: skip


def _dialect_of(text: str) -> Dialect | None:
    """Return the dialect that has variables in a text, and that knows most of them; None: no dialect has."""
    likely = [dialect for dialect in DIALECTS if re.search(dialect.variable, text)]
    return max(likely, default=None, key=lambda dialect: sum(
        len(found["name"]) for found in re.finditer(dialect.variable, text) if dialect.key(found) in dialect.variables
    ))  # fmt: skip


def _part_of(group: str) -> str:
    """Return the part of an entry that a group has. All durations are one part, and both kinds of times."""
    return "duration" if group in UNITS else "time" if group == "start" else group


def _pattern(written: str, variable: str, before: str, after: str) -> str:
    """Return the pattern of what a server writes for a variable, between two characters; empty: any text.

    It ends at the character behind it, because several texts that may go on would take for ever to tell apart.
    """
    pattern = written or (".*?" if _WITH_SPACES.search(variable) else r"\S*?")
    if not written and before == after == '"':
        pattern = r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+'
    elif not written and after and after in "\t|;^~])}>'\"":
        pattern = rf"[^{re.escape(after)}\n]*+"
    if after and after in _SEPARATORS:
        pattern = pattern.replace(r'[^\s"]++', rf'[^\s"{re.escape(after)}]++').replace(
            r'[^"\n]*?', rf'[^"\n{re.escape(after)}]*+')  # fmt: skip
    pattern = pattern.replace(r'[^"\n]*?', r'[^"\n]*+') if after == '"' else pattern
    for text in (_WORD, r"\S*?"):
        pattern = pattern.replace(text, f"{text[:-1]}+") if after == " " else pattern
    return pattern.replace("*?", "{0,500}?")


def _json_format(json_keys: str) -> JsonFormat:
    keys: dict[str, str] = {}
    for pair in json_keys.split(","):
        part, _, key = (text.strip() for text in pair.partition("="))
        if part not in _PARTS_OF_JSON or not key:
            hint = f"The parts are {', '.join(_PARTS_OF_JSON)}, such as time=ts,path=route,duration=elapsed:ms."
            raise WrongUse(f"--json-keys {pair.strip()} is no part of a request with its key.", hint=hint)
        keys[part] = key
    fields: dict[str, Any] = {_PARTS_OF_JSON[part]: (key,) for part, key in keys.items()}
    if written := keys.get("duration"):  # with the unit beside it, or in its name
        key, _, unit = written.rpartition(":") if ":" in written else (written, "", written.rpartition("_")[2])
        if unit not in UNITS:
            raise WrongUse(f"--json-keys duration={written} has no unit.",
                           hint=f"--json-keys duration={key}:ms, or :s, :us or :ns")  # fmt: skip
        fields["duration"] = key, unit
    usual = JSON_FORMATS[-1]
    fields["request"] = keys.get("request", "" if {"method", "path"} & keys.keys() else usual.request)
    return replace(usual, name=f"JSON with the keys {json_keys}", is_own=True, **fields)

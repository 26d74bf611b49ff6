"""Formats that somebody named: the string of a configuration, a configuration that declares some, or keys of JSON.

A further variable is a further word in the table of its dialect.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stampede.errors import WrongUse
from stampede.logs.formats import JSON_FORMATS, KNOWN, UNITS, Clock, Format, Formats, JsonFormat

_LOCAL = r"\d+/\w+/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"
_ISO = r"\d{4}-\d\d-\d\d[ T][\d:.,]+(?:Z| ?[+-]\d\d:?\d\d)?"
_REQUEST = r'(?:(?P<method>[A-Z]++) (?P<target>[^\s"]++)[^"\n]*?|[^"\n]*?)'
_SEVERAL = r"(?:[\d.]+|-)?(?:(?:, | : )(?:[\d.]+|-))*"
_TARGET, _METHOD = r'(?:(?P<target>(?:/|\*|https?:)[^\s"]*)|-?)', r"(?:(?P<method>[A-Z]+)|-?)"
_STATUS, _SIZE = r"(?P<status>\d{3})", r"(?P<size>\d+|-)"
_WORD = r"[^\s\"]*?"
_SEPARATORS = "\t|;^~"
_WITH_SPACES = re.compile(r"agent|forwarded|cookie|%\(a\)", re.IGNORECASE)
"""Variables whose text often has spaces. Between spaces, the text of any other variable has none."""


@dataclass(frozen=True)
class Dialect:
    """How one kind of server writes formats.

    ``variable`` finds the variables of a format, whose group ``name`` is looked up in ``variables``: what the server
    writes there, with the groups of a Format; absent: any text. Of variables that mean the same, such as two durations,
    the first in the table is taken. ``time``, ``request`` and ``duration`` are what to add to a format without them.
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
    }),
    "server", "%(t)s", '"%(r)s"', "rt=%(L)s",
)  # fmt: skip
DIALECTS = (NGINX, PYTHON)
_PARTS_OF_JSON = {"time": "time", "method": "method", "path": "target", "request": "request", "status": "status",
                  "duration": "duration", "worker": "worker"}  # fmt: skip
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_DECLARED = re.compile(
    r"(?:\blog_format\s+(?P<name>\S+)\s+(?:escape=\w+\s+)?|access_log_format\s*=\s*\(?\s*|--access-logformat[= ]\s*|"
    rf"\blog-format-upstream:\s*)(?P<parts>(?:{_QUOTED}[\s()+]*)+)"
)
"""How nginx, gunicorn and the ConfigMap of ingress-nginx declare a format."""


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
    text = re.sub(r"^\s*#.*$", "", written, flags=re.MULTILINE)
    used = {use[1] for use in re.finditer(r"\baccess_log\s+\S+\s+([\w.-]+)", text)}
    lines: list[Format] = []
    mistakes: list[WrongUse] = []
    for found in sorted(_DECLARED.finditer(text), key=lambda found: found["name"] not in used):
        try:
            lines.append(compile_format(_joined(found["parts"]), found["name"] or ""))
        except WrongUse as mistake:
            mistakes.append(mistake)
    if mistakes and not lines:
        raise mistakes[0]
    if not lines:  # a string alone, which may have the quotes of nginx.conf, and stand in several parts
        text = re.sub(r"^\s*escape=\w+\s+", "", written.strip())
        has_parts = text.startswith("'") or (text.startswith('"') and '\\"' in text)  # else the log has these quotes
        lines = [compile_format(_joined(text) if has_parts and re.fullmatch(rf"(?:{_QUOTED}\s*)+;?", text) else text)]
    return Formats(tuple(lines), (), None, is_own=True)


def _joined(parts: str) -> str:
    """Return the text of strings that stand after each other, as nginx and Python join them."""
    return "".join(part[0][1:-1].replace(f"\\{part[0][0]}", part[0][0]) for part in re.finditer(_QUOTED, parts))


def compile_format(text: str, name: str = "") -> Format:
    """Return the format that a string declares, as it stands in the configuration of a server.

    Raise WrongUse if the string has no variable of a dialect, or has neither a time nor a request.
    """
    dialect = next((each for each in DIALECTS if re.search(each.variable, text)), None)
    if not dialect:
        known = " or ".join(each.name for each in DIALECTS)
        raise WrongUse(f"--format has no variables: {text}",
                       hint=f"It takes {known}. In a shell, it needs single quotes.")  # fmt: skip
    order = {variable: rank for rank, variable in enumerate(dialect.variables)}
    found = [*re.finditer(dialect.variable, text)]
    names = [each["name"] for each in found]
    taken: dict[str, int] = {}  # the variable of each part of an entry: the first in the table of the dialect
    for place in sorted(range(len(names)), key=lambda place: (order.get(names[place], 0), place)):
        for group in re.findall(r"\(\?P<(\w+)>", dialect.variables.get(names[place], "")):
            taken.setdefault("duration" if group in UNITS else group, place)
    said = f"{dialect.name} {name}".strip()
    for needed, way in (("time", dialect.time), ("method", dialect.request), ("target", dialect.request)):
        if needed not in taken:
            raise WrongUse(f"{said} has no {needed} of the requests: {text}", hint=f"Add {way} to it.")
    ends = [0, *(each.end() for each in found)]
    starts = [*(each.start() for each in found), len(text)]
    texts = [re.sub(r"\\(.)", lambda each: {"t": "\t"}.get(each[1], each[1]), text[end:start]).replace("%%", "%")
             for end, start in zip(ends, starts, strict=True)]  # fmt: skip
    line = re.escape(texts[0])
    for place, variable in enumerate(names):
        written = dialect.variables.get(variable, "")
        for group in {*re.findall(r"\(\?P<(\w+)>", written)}:
            if taken["duration" if group in UNITS else group] != place:
                written = written.replace(f"(?P<{group}>", "(?:")
        after = texts[place + 1]
        line += _pattern(written, found[place][0], texts[place][-1:], after[:1]) + re.escape(after)
    if first := re.match(r"\[\^(?:\\.|[^\]\\])*\]|\\S(?=[*{])", line):
        line = f"(?<!{first[0]}){line}"  # what matches within such a text matches from its beginning, too
    add, (label, _, variable) = f"{text.rstrip()} {dialect.duration}", dialect.duration.partition("=")
    if text.rstrip().endswith("}"):  # JSON
        add = f'{text.rstrip()[:-1].rstrip()}, "{label}": "{variable}"}}'
    return Format(said, re.compile(line + r"[ \r]*$"), found[taken["duration"]][0] if "duration" in taken else "",
                  dialect.clock, add=f"{said}: {add}")  # fmt: skip


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

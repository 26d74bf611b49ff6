"""The formats that somebody named: as a string, in the configuration of a server, or as keys of JSON."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from stampede.errors import WrongUse
from stampede.foreign import parse_python, read_text
from stampede.logs.format_strings import APACHE, HAPROXY, NGINX, PYTHON, UWSGI, Dialect, compile_format
from stampede.logs.formats import JSON_FORMATS, KNOWN, UNITS, Format, Formats, JsonFormat

MOST_FILES = 200
"""So many files of a configuration are read."""
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_NGINX = re.compile(rf"\blog_format\s+(?P<name>\S+)\s+(?:escape=\w+\s+)?(?P<parts>(?:{_QUOTED}\s*|[^\s;'\"]+\s*)+);?")
_PARTS = re.compile(rf"{_QUOTED}|[^\s;'\"]+")
_USES = re.compile(r"\baccess_log\s+\S+\s+(?P<name>[\w.-]+)")
_INCLUDE = re.compile(r"^\s*include\s+(?P<path>[^;]+);", re.MULTILINE)
_ONE_LINE: tuple[tuple[Dialect, str], ...] = (
    (APACHE, r'^\s*LogFormat\s+(?P<text>"(?:[^"\\]|\\.)*")[ \t]*(?P<name>\S*)'),
    (APACHE, r'^\s*CustomLog\s+\S+\s+(?P<text>"(?:[^"\\]|\\.)*")(?P<name>)'),
    (PYTHON, rf"--access-logformat[= ]\s*(?P<text>{_QUOTED})(?P<name>)"),
    (UWSGI, r"^\s*log-?format\s*[=:]\s*(?P<text>.+?)(?P<name>)\s*$"),
    (HAPROXY, rf"^\s*log-format\s+(?P<text>{_QUOTED}|(?:\\.|\S)+)(?P<name>)"),
    (NGINX, r"^\s*log-format-upstream:\s*(?P<text>.+?)(?P<name>)\s*$"),
)
"""How configurations declare a format in one line; the last is the ConfigMap of ingress-nginx."""


_PARTS_OF_JSON = ("time", "method", "path", "request", "status", "duration", "worker")


class Declared(NamedTuple):
    """A format as a configuration declares it; the name is empty if it has none."""

    dialect: Dialect
    name: str
    text: str


def choose_formats(written: str = "", written_in: Path | None = None, json_keys: str = "") -> Formats:
    """Return the formats that the options of a command name, else all that the lab knows.

    Raise WrongUse if a file cannot be read or declares no format, or if a format lacks times or requests.
    """
    if sum(map(bool, (written, written_in, json_keys))) > 1:
        raise WrongUse("--format, --format-from and --json-keys exclude each other.", hint="Keep one of them.")
    if json_keys:
        keys = _json_format(json_keys)
        return Formats((), (keys,), replace(keys, name=f"logfmt with the keys {json_keys}"), is_own=True)
    if written_in:
        return Formats(tuple(_compiled(written_in)), (), None, is_own=True)
    if written:
        declared = list(declared_formats(written))
        lines = [compile_format(each.text, each.dialect, each.name) for each in declared] or [_of_text(written)]
        return Formats(tuple(lines), (), None, is_own=True)
    return KNOWN


def _of_text(written: str) -> Format:
    """Return the format of a string, which may have the quotes of nginx.conf, and stand in several parts."""
    text = re.sub(r"^\s*escape=\w+\s+", "", written.strip())
    has_parts = text.startswith("'") or (text.startswith('"') and '\\"' in text)  # else the log has these quotes
    if has_parts and re.fullmatch(rf"(?:{_QUOTED}\s*)+;?", text):
        text = "".join(_unquoted(part[0]) for part in _PARTS.finditer(text))
    return compile_format(text)


def _compiled(path: Path) -> Iterator[Format]:
    mistakes: list[WrongUse] = []
    found = 0
    for declared in declared_formats(_text_of(path, set())):
        try:
            yield compile_format(declared.text, declared.dialect, declared.name)
            found += 1
        except WrongUse as mistake:
            mistakes.append(mistake)
    if not found:
        raise mistakes[0] if mistakes else WrongUse(
            f"{path} declares no format of an access log.",
            hint="--format-from reads log_format of nginx.conf, LogFormat of Apache, access_log_format of "
            "gunicorn.conf.py, log-format of HAProxy and logformat of uWSGI.",
        )  # fmt: skip


def _text_of(path: Path, seen: set[Path]) -> str:
    """Return the text of a configuration, and of those that it includes and that are there, at most MOST_FILES."""
    seen.add(path)
    text = read_text(path)
    for include in _INCLUDE.finditer(text):
        pattern = Path(re.sub(r"\*\*+", "*", include["path"].strip().strip("'\"")))  # nginx's * is of a single folder
        at = Path("/") if pattern.is_absolute() else path.parent
        further = at.glob(str(pattern.relative_to("/") if pattern.is_absolute() else pattern))
        for each in sorted(islice(further, MOST_FILES)):
            if each.is_file() and each not in seen and len(seen) < MOST_FILES:
                text += "\n" + _text_of(each, seen)
    return text


def declared_formats(text: str) -> Iterator[Declared]:
    """Yield the formats of a configuration; first those of nginx that an access_log uses."""
    text = re.sub(r"^\s*#.*$", "", text.replace("\\\n", ""), flags=re.MULTILINE)
    uses = {use["name"] for use in _USES.finditer(text)}
    nginx = [
        Declared(NGINX, found["name"], "".join(_unquoted(part[0]) for part in _PARTS.finditer(found["parts"])))
        for found in _NGINX.finditer(text)
    ]
    yield from sorted(nginx, key=lambda declared: declared.name not in uses)
    for dialect, pattern in _ONE_LINE:
        for found in re.finditer(pattern, text, re.MULTILINE):
            yield Declared(dialect, found["name"], _unquoted(found["text"]))
    yield from (Declared(PYTHON, "", each) for each in _of_python(text))


def _unquoted(part: str) -> str:
    if part[0] not in "'\"":
        return part
    return part[1:-1].replace(f"\\{part[0]}", part[0])


def _of_python(text: str) -> Iterator[str]:
    """Yield what gunicorn.conf.py assigns to access_log_format; nothing if Python cannot parse the text."""
    if "access_log_format" not in text:
        return
    with suppress(SyntaxError, ValueError, RecursionError):
        for statement in ast.walk(parse_python(text.strip())):
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id="access_log_format")], value=ast.expr() as value)
                    | ast.AnnAssign(target=ast.Name(id="access_log_format"), value=ast.expr() as value)
                ):
                    yield "".join(_strings(value))


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
    usual = JSON_FORMATS[-1]

    def names(part: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        return (keys[part],) if part in keys else otherwise

    return JsonFormat(
        f"JSON with the keys {json_keys}", names("time", usual.time), names("method", usual.method),
        names("path", usual.target), names("status", usual.status),
        _duration(keys["duration"]) if "duration" in keys else None, worker=names("worker", usual.worker),
        request=keys.get("request", "" if {"method", "path"} & keys.keys() else usual.request), is_own=True,
    )  # fmt: skip


def _duration(written: str) -> tuple[str, str]:
    """Return the key of the durations, and the unit that stands beside it or in its name."""
    key, _, unit = written.rpartition(":") if ":" in written else (written, "", "")
    unit = unit or key.rpartition("_")[2]
    if unit not in UNITS:
        hint = f"--json-keys duration={key or written}:ms, or :s, :us or :ns"
        raise WrongUse(f"--json-keys duration={written} has no unit.", hint=hint)
    return key, unit

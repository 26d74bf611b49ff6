"""Formats that somebody declared in the configuration of a server, as formats that the lab reads.

A further dialect is a further entry of DIALECTS, and a further variable a line of its table.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stampede.errors import WrongUse
from stampede.logs.formats import UNITS, Clock, Format

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


def compile_format(text: str, dialect: Dialect | None = None, name: str = "") -> Format:
    """Return the format that a string declares, as it stands in the configuration of a server.

    Raise WrongUse if the string has no variable of a dialect, or has neither a time nor a request.
    """
    dialect = dialect or dialect_of(text)
    tokens = list(_tokens(text, dialect))
    taken = _taken(tokens)
    said = f"{dialect.name} {name}".strip()
    for needed, way in (("time", dialect.time), ("method", dialect.request), ("target", dialect.request)):
        if needed not in taken:
            raise WrongUse(f"{said} has no {needed} of the requests: {text}", hint=f"Add {way} to it.")
    patterns = [_pattern(tokens, place, taken, dialect) for place in range(len(tokens))]
    line = "".join(patterns)
    if first := re.match(r"\[\^(?:\\.|[^\]\\])*\]|\\S(?=[*{])", line):
        line = f"(?<!{first[0]}){line}"  # what matches within such a text matches from its beginning, too
    duration = tokens[taken["duration"]].variable if "duration" in taken else ""
    return Format(
        said, text, re.compile(line.replace("(?P<start>", "(?P<time>") + r"[ \r]*$"), duration, dialect.clock,
        at_start="(?P<start>" in line, add=f"{said}: {_with_duration(text.rstrip(), dialect)}",
        parts=tuple((token.variable or token.written, part) for token, part in zip(tokens, patterns, strict=True)),
    )  # fmt: skip


def _with_duration(text: str, dialect: Dialect) -> str:
    if not text.endswith("}"):
        return f"{text} {dialect.duration}"
    name, _, variable = dialect.duration.partition("=")
    return f'{text[:-1].rstrip()}, "{name}": "{variable}"}}'


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
    end = 0
    for found in re.finditer(dialect.variable, text):
        yield _Token("", _unescaped(text[end : found.start()]))
        end = found.end()
        argument = found.groupdict().get("argument") or ""
        quote = '"' if re.match(r"\+.*Q", argument) else ""
        yield from (_Token("", quote), _variable(found, argument, dialect), _Token("", quote))
    yield _Token("", _unescaped(text[end:]))


def _variable(found: "re.Match[str]", argument: str, dialect: Dialect) -> _Token:
    name = found["name"]
    key = f"{{{argument}}}{name}" if argument and argument[0] not in "+-" else name
    if key not in dialect.variables and "%" in argument:
        key = f"{{%}}{name}"
    rank = [*dialect.variables].index(key) if key in dialect.variables else 0
    return _Token(found[0], dialect.variables.get(key, ""), rank)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"t": "\t"}.get(found[1], found[1]), text).replace("%%", "%")


def _taken(tokens: list[_Token]) -> dict[str, int]:
    """Return which token is taken for each part of an entry: the first in the table of the dialect."""
    taken: dict[str, int] = {}
    for place in sorted(range(len(tokens)), key=lambda place: (tokens[place].rank, place)):
        for meaning in tokens[place].means:
            taken.setdefault(meaning, place)
    return taken


def _pattern(tokens: list[_Token], place: int, taken: dict[str, int], dialect: Dialect) -> str:
    """Return the pattern of a token. A part that another token has is no group."""
    token = tokens[place]
    if not token.variable:
        text = re.escape(token.written)
        return text.replace(r"\ ", " *") if dialect is HAPROXY else text  # it writes no space beside what is empty
    if token.written:
        groups = re.compile(r"\(\?P<(\w+)>")
        written = groups.sub(lambda group: group[0] if taken[_meaning(group[1])] == place else "(?:", token.written)
        return _bounded(written, _neighbours(tokens, place)[1])
    return _bounded(_any_text(token.variable, *_neighbours(tokens, place)), _neighbours(tokens, place)[1])


def _neighbours(tokens: list[_Token], place: int) -> tuple[str, str]:
    """Return the characters before and behind a variable; empty: another variable, or nothing."""
    before = "".join(each.written for each in tokens[max(place - 2, 0) : place] if not each.variable)
    after = "".join(each.written for each in tokens[place + 1 : place + 3] if not each.variable)
    return before[-1:], after[:1]


def _bounded(pattern: str, after: str) -> str:
    """Return a pattern whose texts end at the character behind them, if they cannot have it; else they have an end.

    A text that may be longer or shorter would be tried at all lengths, and so would those behind it.
    """
    if after and after in _SEPARATORS:
        pattern = pattern.replace(r'[^\s"]++', rf'[^\s"{re.escape(after)}]++').replace(
            r'[^"\n]*?', rf'[^"\n{re.escape(after)}]*+')  # fmt: skip
    pattern = pattern.replace(r'[^"\n]*?', r'[^"\n]*+') if after == '"' else pattern
    for text in (_WORD, r"\S*?"):
        pattern = pattern.replace(text, f"{text[:-1]}+") if after == " " else pattern
    return pattern.replace("*?", f"{{0,{_MOST}}}?")


def _any_text(variable: str, before: str, after: str) -> str:
    """Return the pattern of any text between two characters.

    It ends at the second of them, because several texts that may go on would take for ever to tell apart.
    """
    if before == after == '"':
        return r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+'
    if after and after in "\t|;^~])}>'\"":
        return rf"[^{re.escape(after)}\n]*+"
    return ".*?" if _WITH_SPACES.search(variable) else r"\S*?"

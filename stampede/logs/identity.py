"""What tells a request of a log from all others: its id, its time as precisely as its line has it, and its worker."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from stampede.logs.formats import epoch_seconds, parse_value, worker_of

_FEW = 0.5  # a log has ids, or precise times, if at least this share of its first lines has them
_NAME = re.compile(
    r"""(?<![\w.-])(?:(?:x[-_])?(?:request|req|correlation|trace)[-_]?id|rid|id)["']?[=:]\s?\[?"?(?=[\w.:+=-]{6})""",
    re.IGNORECASE,
)
_BARE = r"(?<![\w/-])([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w/-])"
"""An id without a name, as nginx writes $request_id."""
_MOMENT = r"(1(?<![\d.]1)\d{9}\.\d{3,6})(?![\d.])"  # seconds since 1970 with decimals, as nginx writes $msec
_BEFORE_MOMENT = re.compile(rf"(?:(?<![\w.-])[A-Za-z_][\w.-]*[\"']?[=:]\s?\"?)?(?={_MOMENT})")
_PRECISE = (
    r"\"__REALTIME_TIMESTAMP\"\s?:\s?\"(1\d{15})\"",  # journalctl -o json
    r"(?<![\w.-])(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}(?:Z|[+-]\d\d:?\d\d))",  # docker, kubectl, a collector
)
"""The precise time at which a program wrote a line down, whose own time is a whole second."""
_BARE_START = r"(?<=[\s\"])(1\d{9}(?:\d{3}|\d{6}|\.\d{3,6}))(?=[\s\"]|$)"
"""A time without a name, as X-Request-Start has it without ``t=``."""
ROUNDED_S = 1.05
"""A whole second is at most so long before the precise time, which is noted later and may be rounded up."""
_ARRIVED = re.compile(
    r"""(?<![\w.-])(?:(?:(?:x[-_])?(?:request|queue)[-_]start|queued_at)["']?[=:]\s?"?(?:t=)?|t=)(?=1\d{9})""",
    re.IGNORECASE,
)
"""What stands before the time at which the balancer got a request: X-Request-Start, or X-Queue-Start."""
_CREATED = re.compile(r"(?<=[\d-] )(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)(?= \")")
"""When an AWS load balancer got a request; its durations lack requests that it gave up on."""
_UPSTREAM = (
    r"""(?<![\w.-])(?:urt|upstream_response_time)["']?[=:]\s?"?(?:(?:\d++(?:[.,]\d++)?+|-)(?:, | : ))*"""
    r"""(\d++(?:[.,]\d++)?+)(?!(?:, | : )[\d-])""",
    r"\] \[[^\]\n]*\] [\w.:, -]+ [\d, -]+ (?:\d+\.\d+, )*(\d+\.\d+) \d{3}\b",  # ingress-nginx
)
"""How long the server took as nginx saw it, in seconds: of several servers the last, which answered.

$request_time has the time of a slow client, too."""
_ORIGINS = (
    r"^(\S+?) +\| ",  # docker compose
    r"^\[(pod/[^\]\s]+)\] ",  # kubectl logs --prefix
    r"^([a-z][a-z0-9.-]*-[a-z0-9]{5,10}-[a-z0-9]{5}) \S+ ",  # stern
    r"^(?:<\d+>\d* ?)?(?:\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) (\S+) [^\s\[:]+(?:\[\d+\])?: ",  # syslog
    r"\"(?:hostname|pod_name|pod|container_name|container_id)\"\s?:\s?\"([^\"]+)\"",
)
"""Which of several containers or hosts has written a line: the processes of different ones may have the same number."""
_WORKER = re.compile(r"""(?<=\s)<(?=\d+>)|(?<![\w.-])(?:worker|pid|process|upstream_addr)(?:=|: )["<]?(?=[\w./])""")
"""What stands before a worker: gunicorn writes %(p)s as <7>."""
_OF_LOGGER = re.compile(r"\d\] \[(\d+)\] \[[A-Z]+\] ")  # the process that hypercorn's logger names


class Identity(NamedTuple):
    """Where the lines of a log have what tells requests apart: a pattern with one group; None: they do not have it.

    ``moment`` is a precise time, ``arrived`` the time at which the balancer got the request, and ``origin`` the
    container or the host that has written the line, if there are several.
    """

    id: re.Pattern[str] | None = None
    moment: re.Pattern[str] | None = None
    worker: re.Pattern[str] | None = None
    arrived: re.Pattern[str] | None = None
    origin: re.Pattern[str] | None = None
    upstream: re.Pattern[str] | None = None

    def of(self, lines: Sequence[str], workers: Sequence[str | None]) -> tuple[list[Any], ...]:
        """Return of each line its id, worker, precise time, when the balancer got it, and how long the server took.

        ``workers`` are those that the format has. Processes of different containers may have the same number.
        """
        own = [self.arrived.sub("", line) for line in lines] if self.moment and self.arrived else lines
        moments, arrivals = (
            [None if text is None else _seconds(text) for text in _texts(pattern, of)]
            for pattern, of in ((self.moment, own), (self.arrived, lines))
        )
        named = [worker or (worker_of(text) if text else None)
                 for worker, text in zip(workers, _texts(self.worker, lines), strict=True)]  # fmt: skip
        if self.origin and any(named):
            named = [f"{origin} {worker}" if origin and worker and worker.isdecimal() else worker
                     for origin, worker in zip(_texts(self.origin, lines), named, strict=True)]  # fmt: skip
        values = [text and parse_value(text) for text in _texts(self.upstream, lines)]
        return _texts(self.id, lines), named, moments, arrivals, [value.number if value else None for value in values]


def _texts(pattern: re.Pattern[str] | None, lines: Sequence[str]) -> list[str | None]:
    return [found[1] if (found := pattern.search(line)) else None for line in lines] if pattern else [None] * len(lines)


def _seconds(text: str) -> float | None:
    """Return a time of ISO 8601, or one since 1970 that has its unit, from seconds to nanoseconds, in its digits."""
    if text[4] == "-":
        return epoch_seconds(text)
    return float(text) / 10.0 ** (len(text.partition(".")[0]) - 10)


def find_identity(texts: Sequence[str], ends_s: Sequence[float]) -> Identity:
    """Return where lines such as these, of requests that ended then, have ids, precise times and workers."""
    name, worker = _usual(_NAME, texts), _usual(_WORKER, texts)
    bare = re.compile(_BARE) if not name and _usual(re.compile(f"(?={_BARE})"), texts) is not None else None
    start = _usual(_ARRIVED, texts)
    arrived = _after(start, r"1\d{9}(?:\d{3}){0,3}(?:\.\d{1,9})?(?![\d.])") if start else None
    if not arrived:  # bare times at which requests came: none after its end, and some in an earlier second
        took_s = [at - (_seconds(match[1]) or 0.0) for text, at in zip(texts, ends_s, strict=True)
                  if (match := re.search(_BARE_START, text))]  # fmt: skip
        if len(took_s) >= _FEW * len(texts) and sum(each > 0 for each in took_s) >= 3 and all(
            -1 < each < 3600 for each in took_s
        ):  # fmt: skip
            arrived = re.compile(_BARE_START)
    if not arrived and _are_usual(_CREATED, texts):
        arrived = _CREATED
    before = _usual(_BEFORE_MOMENT, [arrived.sub("", text) for text in texts] if arrived else texts)
    moment = None if before is None else re.compile(re.escape(before) + _MOMENT)
    if before is None and not any(end_s % 1 for end_s in ends_s):
        moment = next((found for found in map(re.compile, _PRECISE) if _are_at_once(found, texts, ends_s)), None)
    workers = _after(worker, r'(?:[^\s",]+, )*[^\s",>]+') if worker else None
    if not worker and _are_usual(_OF_LOGGER, texts):
        workers = _OF_LOGGER
    other = r'[^",]*+, ?+' if (name or "").endswith('"') else r"[\w.:+=-]++, ?(?=[\w-]{16,}+(?![\w.:+=-]))"
    return Identity(
        _after(name, r"[\w.:+=-]+", other) if name else bare, moment, workers, arrived,
        next((pattern for pattern in map(re.compile, _ORIGINS) if _are_several(pattern, texts)), None),
        next((pattern for pattern in map(re.compile, _UPSTREAM) if _are_usual(pattern, texts)), None),
    )  # fmt: skip


def _are_several(origin: re.Pattern[str], texts: Sequence[str]) -> bool:
    found = [match[1] for text in texts if (match := origin.search(text))]
    return len(found) >= _FEW * len(texts) and 1 < len({*found}) <= 200


def _are_usual(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    return sum(bool(pattern.search(text)) for text in texts) >= _FEW * max(len(texts), 1)


def _are_at_once(precise: re.Pattern[str], texts: Sequence[str], ends_s: Sequence[float]) -> bool:
    """Whether precise times are those of the second in which requests ended; a collector may be late."""
    late_s = [(_seconds(found[1]) or 0.0) - end_s for text, end_s in zip(texts, ends_s, strict=True)
              if (found := precise.search(text))]  # fmt: skip
    return sum(0 <= each <= ROUNDED_S for each in late_s) >= 0.98 * max(len(texts), 1)


def _usual(pattern: re.Pattern[str], texts: Sequence[str]) -> str | None:
    """Return the text that a pattern finds most often; None: it finds any one too rarely."""
    found = Counter(match[0] for text in texts if (match := pattern.search(text)))
    [(text, count)] = found.most_common(1) or [("", 0)]
    return text if count and count >= _FEW * len(texts) else None


def _after(name: str, value: str, other: str = r"(?!)") -> re.Pattern[str]:
    """Return a pattern of a value after its name, and after others in a list: a balancer adds its own as the last.

    It begins with the name, because a text is found faster.
    """
    return re.compile(rf"{re.escape(name)}(?<![\w.-]{re.escape(name)})(?:{other})*({value})")

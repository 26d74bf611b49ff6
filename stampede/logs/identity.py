"""What tells a request of a log from all others: its id, its time as precisely as its line has it, and its worker."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_FEW = 0.5
"""A log has ids, or precise times, if at least this share of its first lines has them."""
_NAME = re.compile(
    r"""(?<![\w.-])(?:(?:x[-_])?(?:request|req|correlation|trace)[-_]?id|rid|id)["']?[=:]\s?"?(?=[\w.:+=-]{6})""",
    re.IGNORECASE,
)
_BARE = r"(?<![\w/-])([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w/-])"
"""An id without a name, as nginx writes $request_id."""
_MOMENT = re.compile(r"(1(?<![\d.]1)\d{9}\.\d{3,6})(?![\d.])")
"""Seconds since 1970 with decimals, as nginx writes $msec."""
_ARRIVED = re.compile(
    r"""(?<![\w.-])(?:(?:(?:x[-_])?(?:request|queue)[-_]start|queued_at)["']?[=:]\s?"?(?:t=)?|t=)(?=1\d{9})""",
    re.IGNORECASE,
)
"""What stands before the time at which the balancer got a request: X-Request-Start, or X-Queue-Start."""
_DIGITS_OF_SECONDS = 10
_WORKER = re.compile(r"""(?<=\s)<(?=\d+>)|(?<![\w.-])(?:worker|pid|process|upstream_addr)(?:=|: )"?(?=[\w./])""")
"""What stands before a worker: gunicorn writes %(p)s as <7>."""


class Identity(NamedTuple):
    """Where the lines of a log have what tells requests apart: a pattern with one group; None: they do not have it.

    ``moment`` is a precise time, and ``arrived`` the time at which the balancer got the request.
    """

    id: re.Pattern[str] | None = None
    moment: re.Pattern[str] | None = None
    worker: re.Pattern[str] | None = None
    arrived: re.Pattern[str] | None = None

    def worker_in(self, text: str) -> str | None:
        """Return the worker that a line names, if nothing else in its format does; None: it names none."""
        found = self.worker.search(text) if self.worker else None
        return found[1] if found else None

    def id_in(self, text: str) -> str | None:
        """Return the id that a line gives its request; None: it has none."""
        found = self.id.search(text) if self.id else None
        return found[1] if found else None

    def arrived_in(self, text: str) -> float | None:
        """Return when the balancer got a request, in seconds since 1970; None: the line does not say it.

        The number has its unit in its digits: seconds, milliseconds, microseconds or nanoseconds.
        """
        if not (self.arrived and (found := self.arrived.search(text))):
            return None
        return float(found[1]) / 10.0 ** (len(found[1].partition(".")[0]) - _DIGITS_OF_SECONDS)

    def moment_in(self, text: str, at: float) -> float:
        """Return the time of a line, of which ``at`` are whole seconds, as precisely as the line has it.

        The precise time may be rounded up to the next second.
        """
        if self.moment and self.arrived:
            text = self.arrived.sub("", text)
        found = self.moment.search(text) if self.moment else None
        return moment if found and 0 <= (moment := float(found[1])) - at <= 1 else at


def find_identity(texts: Sequence[str]) -> Identity:
    """Return where lines such as these have ids, precise times and workers."""
    name, worker = _usual(_NAME, texts), _usual(_WORKER, texts)
    bare = re.compile(_BARE) if not name and _usual(re.compile(f"(?={_BARE})"), texts) is not None else None
    start = _usual(_ARRIVED, texts)
    arrived = _after(start, r"1\d{9}(?:\d{3}){0,3}(?:\.\d{1,9})?(?![\d.])") if start else None
    others = [arrived.sub("", text) for text in texts] if arrived else texts
    return Identity(
        _after(name, r"[\w.:+=-]+") if name else bare,
        _MOMENT if _usual(re.compile(f"(?={_MOMENT.pattern})"), others) is not None else None,
        _after(worker, r'(?:[^\s",]+, )*[^\s",>]+') if worker else None,
        arrived,
    )


def _usual(pattern: re.Pattern[str], texts: Sequence[str]) -> str | None:
    """Return the text that a pattern finds most often; None: it finds any one too rarely."""
    found = Counter(match[0] for text in texts if (match := pattern.search(text)))
    [(text, count)] = found.most_common(1) or [("", 0)]
    return text if count and count >= _FEW * len(texts) else None


def _after(name: str, value: str) -> re.Pattern[str]:
    """Return a pattern of a value after its name. It begins with the name, because a text is found faster."""
    return re.compile(rf"{re.escape(name)}(?<![\w.-]{re.escape(name)})({value})")

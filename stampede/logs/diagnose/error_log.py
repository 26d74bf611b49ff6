"""gunicorn's error log: which workers it killed or replaced, and when; its lines may stand in an access log, too."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from stampede.foreign import open_text
from stampede.logs.formats import parse_entry

Kind = Literal["timeout", "killed", "replaced"]
_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4})\] \[(\d+)\] \[[A-Z]+\] (.*)")
_EVENTS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("timeout", re.compile(r"WORKER TIMEOUT \(pid:(\d+)\)")),
    ("killed", re.compile(r"Worker \(pid:(\d+)\) was sent SIGKILL")),
    ("replaced", re.compile(r"Autorestarting worker after current request")),
)
_SAMPLE = 20


class WorkerEnd(NamedTuple):
    """Why a worker ended, at which time (epoch seconds).

    ``timeout``: gunicorn killed it at its time limit; ``killed``: it got SIGKILL from somebody else; ``replaced``: it
    had served max_requests.
    """

    at: float
    pid: int
    kind: Kind


def is_error_log(path: Path) -> bool:
    """Return whether a file begins as gunicorn's error log does. A pipe is taken for an access log."""
    if not path.is_file():
        return False
    with open_text(path) as lines:
        first = [line for line in lines.take(_SAMPLE) if line.strip()]
    return bool(first) and bool(_LINE.match(first[0])) and not any(map(parse_entry, first))


def worker_ends(path: Path) -> Sequence[WorkerEnd]:
    """Return which workers ended, as the lines of an error log say, in their order."""
    ends: list[WorkerEnd] = []
    late: set[int] = set()
    with open_text(path) as lines:
        for found in filter(None, map(_LINE.match, lines)):
            events = ((kind, pattern.search(found[3])) for kind, pattern in _EVENTS)
            kind, event = next(((kind, event) for kind, event in events if event), (None, None))
            if not kind or not event:
                continue
            pid = int(event[1] if event.groups() else found[2])
            if kind == "killed" and pid in late:  # the end of a worker that was too late
                late.discard(pid)
                continue
            if kind == "timeout":
                late.add(pid)
            ends.append(WorkerEnd(datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S %z").timestamp(), pid, kind))
    return ends

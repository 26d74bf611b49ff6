"""What error logs of servers, of nginx and of a kernel say of trouble; their lines may stand in an access log, too."""

import re
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from stampede.foreign import Lines, open_text
from stampede.logs.formats import HAS_TIME, epoch_seconds, parse_entry

_KINDS = {
    "timeout": ("worker", "the server killed {} at its time limit",
                r"WORKER TIMEOUT \(pid:(\d+)\)|\*\*\* HARAKIRI ON WORKER \d+ \(pid: (\d+)"),
    "killed": ("worker", "{} got SIGKILL, perhaps because memory ran out",
               r"Worker \(pid:(\d+)\) was sent SIGKILL|Worker with pid (\d+) was terminated due to signal 9"
               r"|DAMN ! worker \d+ \(pid: (\d+)\) died, killed by signal 9"),
    "crashed": ("worker", "{} crashed",
                r"Worker \(pid:(\d+)\) was sent SIG(?!KILL|TERM|QUIT|INT)|Worker \(pid:(\d+)\) exited with code [1-9]"
                r"|DAMN ! worker \d+ \(pid: (\d+)\) died|Unexpected exit from worker-(\d+)"),
    "died": ("worker", "{} died, and uvicorn does not say why", r"hild process \[(\d+)\] died"),
    "replaced": ("worker", "{} ended after max_requests or a time to live",
                 r"\[(\d+)\] \[INFO\] Autorestarting worker|The work of process (\d+) is done \(max"
                 r"|Maximum request limit of \d+ exceeded. Terminating|worker-(\d+) lifetime expired"),
    "memory": ("worker", "the kernel killed {} because memory ran out",
               r"[Oo]ut of memory: Killed process (\d+) \((?:gunicorn|uvicorn|uwsgi|granian|hypercorn|python)"),
    "queue_full": ("request", "for {}, the server's listen queue was full",
                   r"connect\(\) to \S+ failed \(11: Resource temporarily unavailable\) while connecting to upstream"),
    "refused": ("request", "for {}, the server refused the connection, so it was down",
                r"connect\(\) (?:to \S+ )?failed \((?:111|2): .* while connecting to upstream"),
    "closed": ("request", "for {}, the server closed the connection without an answer, as a worker that ends does",
               r"upstream prematurely closed connection|recv\(\) failed \(104: .* from upstream"),
    "late": ("request", "for {}, the answer took longer than nginx waits",
             r"upstream timed out \(110: .* while reading (?:response header|upstream)"),
    "unreachable": ("request", "for {}, the server took no connection in time, or all servers counted as down",
                    r"upstream timed out \(110: .* while connecting to upstream|no live upstreams"),
    "connections": ("request", "for {}, nginx had no worker_connections left",
                    r"\d+ worker_connections are not enough"),
}  # fmt: skip
"""Whom each kind of trouble befell, what it means, and what is written like it, with the process if the line has it."""
SAYS = {kind: (noun, says) for kind, (noun, says, _) in _KINDS.items()}
"""Whom each kind of trouble befell, workers or requests, and a sentence on so many of them."""
_EVENT = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, (*_, pattern) in _KINDS.items()))
_WORDS = ("orker", "WORKER ", "DAMN", "hild process", "The work of", "Maximum request", "ut of memory", "upstream")
_SERVER = re.compile(r"\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] |\[(?:notice|warn|error|crit|alert)\] \d+#\d+: ")
"""How gunicorn and granian, and nginx, write lines of an error log."""
_CTIME = re.compile(r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}")
_SAMPLE, _BEGINNING = 20, 2000
_SOON_S = 60.0  # a server kills a worker that is too late within this time


class Event(NamedTuple):
    """Trouble that an error log tells: its kind, when (epoch seconds, if the line says it), and of which process."""

    at: float | None
    pid: int
    kind: str


def is_error_log(path: Path) -> bool:
    """Return whether a file is an error log: it begins as one, and no request follows. A pipe is an access log."""
    if not path.is_file():
        return False
    with open_text(path) as lines:
        first = lines.take(_SAMPLE)
        begins = any(_SERVER.search(line) or _EVENT.search(line) for line in first)
        return begins and not any(map(parse_entry, [*first, *lines.take(_BEGINNING)]))


def events_in(lines: Iterable[str] | Lines) -> Iterator[Event]:
    """Yield what lines of an error log say, in their order."""
    for line in lines:
        found = _EVENT.search(line) if any(word in line for word in _WORDS) else None
        if not found or not found.lastgroup:
            continue
        written = HAS_TIME.search(line)
        time = written["time"] if written else each[0] if (each := _CTIME.search(line)) else ""
        pid = next((number for number in found.groups() if number and number.isdecimal()), "0")
        yield Event(epoch_seconds(time) if time else None, int(pid), found.lastgroup)


def in_order(events: Iterable[Event]) -> Sequence[Event]:
    """Return events in order, without the signals and the exit that end a worker which was too late."""
    late_s: dict[int, float] = {}
    kept = []
    for event in sorted(events, key=lambda event: event.at or 0.0):
        at_s = event.at or 0.0
        if event.kind == "timeout":
            late_s[event.pid] = at_s
        if event.kind not in ("killed", "crashed") or at_s - late_s.get(event.pid, -inf) > _SOON_S:
            kept.append(event)
    return kept

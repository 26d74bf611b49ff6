"""Looks ten times a second at what monitoring would see of the server, and writes sums into /tmp/signals.

Only ``samples`` with a request at work count. ``backlog`` counts those in which a connection waited to be accepted, as
``Recv-Q`` of ``ss`` and gunicorn's backlog metric say it. ``busy`` and ``threads`` are sums over the samples. Of the
requests so far, the probe knows of ``known`` how long they waited, and ``avoidable`` waited although another worker had
a free thread.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from stampede_probe.serve import snapshot
from stampede_probe.shared import Shared, find

SIGNALS = Path("/tmp/signals")
EVERY_S = 0.1
TABLES = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
_LISTENS, _PORT = "0A", f":{8000:04X}"


def waiting(tables: Iterable[Path]) -> int:
    """Return how many connections wait to be accepted, from the kernel's tables of sockets (proc(5))."""
    sockets = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return sum(int(each[4].partition(":")[2], 16) for each in sockets
               if each[3] == _LISTENS and each[1].endswith(_PORT))  # fmt: skip


def sampled(shared: Shared | None, tables: Iterable[Path]) -> Iterator[dict[str, int]]:
    """Yield the sums after each further sample."""
    sums = {"samples": 0, "backlog": 0, "busy": 0, "threads": 0}
    while True:
        found, has_backlog = snapshot(shared), waiting(tables) > 0
        if found["busy_threads"] or has_backlog:  # not before and after the load
            sums["samples"] += 1
            sums["backlog"] += has_backlog
            sums["busy"] += found["busy_threads"]
            sums["threads"] += found["threads"]
        routes = found["routes"].values()
        yield sums | {name: sum(route[name] for route in routes) for name in ("known", "avoidable")}


def main() -> None:
    """Wait for the server, and sample it for as long as it runs."""
    while not (files := find()):
        time.sleep(EVERY_S)
    for sums in sampled(Shared.open(files[0]), TABLES):
        part = SIGNALS.with_suffix(".part")
        part.write_text("".join(f"{name} {count}\n" for name, count in sums.items()))
        part.rename(SIGNALS)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()

"""Ask uWSGI's stats server about the workers. Usage: python stats.py ready | observe."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

ANSWERS_WITHIN_S = 5
WORKERS = Path("/tmp/workers")
"""Where the lab's application counts (see counters.py), and the wrapper of somebody's own application."""


def read() -> dict[str, Any]:
    """Return what the stats server says. Raise OSError while the stats server is not running."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWERS_WITHIN_S)
        connection.connect("/tmp/stats.sock")
        with connection.makefile("rb") as answer:
            values: dict[str, Any] = json.load(answer)
    return values


def ready(stats: dict[str, Any]) -> bool:
    """Whether every worker has loaded the application and accepts requests."""
    return all(worker["apps"] and worker["accepting"] for worker in stats["workers"])


def observe(stats: dict[str, Any]) -> None:
    """Print how many requests each worker has served, in the form of servers/observe.

    The application's files also have the counts of workers that have ended. A worker that has no file has served
    nothing yet. If there are no files at all, uWSGI counts: the sum over a worker's threads, because its own count of a
    worker with several threads is inexact. When uWSGI replaces a worker, these counts go on, and do not begin anew.
    """
    served = {path.name: path.read_text(encoding="utf-8") for path in sorted(WORKERS.glob("*"))}
    uwsgi_counts = not served
    for worker in stats["workers"]:
        requests = sum(core["requests"] for core in worker["cores"]) if uwsgi_counts else 0
        served.setdefault(str(worker["pid"]), f"served {requests}\n")
    for worker, counts in served.items():
        print(f"==> worker {worker} <==")
        print(counts, end="")
    print("==> settings <==")
    print(Path("/tmp/uwsgi.ini").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    if sys.argv[1] == "ready":
        sys.exit(not ready(read()))
    observe(read())

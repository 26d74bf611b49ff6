"""The requests of logs, served again by the simulator in each way: today's, as far as it is recognised, and others."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from analysis.metrics.waiting import FROM_S, Answered, waits_in_line_s
from analysis.predict.options import OPTION_KINDS, OptionKind
from analysis.predict.what_if import serve_otherwise
from lab.apps.diagnose.capacity import Capacity
from lab.apps.diagnose.findings import Findings
from lab.apps.diagnose.logs import Floats
from lab.apps.diagnose.requests import Requests

MOST = 200_000
"""So many requests are replayed at most: those around the longest wait."""
MOST_WORKERS = 32
SEEDS = 5
AGREES, AGREES_TIMES = 0.05, 2.0
"""Replays agree with the logs if the share of requests that waited lies at most so far beyond theirs, and if the 99th
percentiles of the waits differ at most so many times."""
USUAL = ("shared", "limit", "one-process", "uwsgi", "reuse-port", "least-conn", "idle-thread", "queue")
"""The ways to serve, the most usual first. Of the ways that agree with the logs, the most usual is taken."""
HALVES = 0.5
"""A way is better if at most this part of the requests that wait today waits with it."""
HELPED = 0.01
"""With enough threads, at most this share of the requests waits for more than 50 ms."""


class Served(NamedTuple):
    """A way to serve the requests: the share that waits for more than 50 ms, and the p99 of the waits in seconds.

    What depends on chance is a median over SEEDS replays; ``least`` and ``most`` are the extremes of the share.
    ``settings`` are what gunicorn is set to, if that is all that the way is. ``computing_p99_s`` is the
    p99 of what requests lose in one replay in which they compute all the time; None: this was not replayed.
    """

    label: str
    waited: float
    p99_s: float
    least: float
    most: float
    settings: str = ""
    computing_p99_s: float | None = None


class Replay(NamedTuple):
    """What the simulator says of each way.

    ``today`` is the most usual way that agrees with the logs; None: none agrees. ``threads`` is how many threads,
    taking all requests from one queue, let hardly any request wait; 0: more than four times as many as there are.
    ``measured`` is what the logs say of the same requests.
    """

    measured: Served
    today: Served | None
    ways: list[Served]
    threads: int

    def as_values(self) -> dict[str, object]:
        """Return what the simulator says, for JSON."""
        return {"measured": self.measured._asdict(), "today": self.today and self.today._asdict(),
                "ways": [way._asdict() for way in self.ways], "threads": self.threads}  # fmt: skip


def replay(requests: Requests, capacity: Capacity, findings: Findings) -> Replay | None:
    """Return what the simulator says of the requests; None: there are too many workers to simulate.

    If no log names the workers, each thread is taken to be a worker of its own.
    """
    workers, threads = capacity.workers, capacity.threads
    if (capacity.place < 0).any() and "workers" in capacity.found:
        workers, threads = capacity.total, 1
    if workers > MOST_WORKERS:
        return None
    shown = around_longest(requests.waited_s, MOST)
    answered = requests.answered(findings.names, findings.of_class, workers, capacity.place, shown)
    joined = requests.joined[shown]
    measured = _served("measured", [requests.waited_s[shown][joined]])
    waits_s: dict[str, list[Floats]] = {}
    for seed in range(SEEDS):
        for way in serve_otherwise(answered, workers, threads, seed):
            if way.kind:
                waits_s.setdefault(way.kind.name, []).append(way.waits_s[joined])
    found = {kind.name: _served(kind.label, waits_s[kind.name])._replace(settings=settings_of(kind, workers, threads))
             for kind in OPTION_KINDS if kind.name in waits_s}  # fmt: skip
    usual = next((name for name in USUAL if name in found and _agrees(found[name], measured)), None)
    if usual:
        named = {usual, *(name for name, way in found.items() if way.waited < HALVES * found[usual].waited)}
        kinds = [kind for kind in OPTION_KINDS if kind.name in named]
        for way in serve_otherwise(answered, workers, threads, kinds=kinds, computing=True):
            if way.kind:
                lost_s = float(np.quantile(way.waits_s[joined], 0.99))
                found[way.kind.name] = found[way.kind.name]._replace(computing_p99_s=lost_s)
    return Replay(measured, found[usual] if usual else None, [*found.values()], _enough(answered, capacity.total))


def settings_of(kind: OptionKind, workers: int, threads: int) -> str:
    """Return the settings of gunicorn that a way consists of; empty if it is another server, or needs a balancer."""
    settings = kind.settings(*((1, workers * threads) if kind.for_single_worker else (workers, threads)))
    if settings["server"] != "gunicorn-gthread" or "replicas" in settings:
        return ""
    return "gunicorn with " + ", ".join(f"{name} = {value}" for name, value in settings.items() if name != "server")


def around_longest(waited_s: Floats, most: int) -> slice:
    """Return the requests around the longest wait, at most so many."""
    first = max(0, min(int(waited_s.argmax()) - most // 2, len(waited_s) - most))
    return slice(first, first + most)


def _served(label: str, waits_s: Sequence[Floats]) -> Served:
    waited = [float((each > FROM_S).mean()) for each in waits_s]
    return Served(label, median(waited), median(float(np.quantile(each, 0.99)) for each in waits_s), min(waited),
                  max(waited))  # fmt: skip


def _agrees(served: Served, measured: Served) -> bool:
    """Whether replays agree with what was measured, as far as they are precise."""
    p99 = sorted(max(each.p99_s, FROM_S) for each in (served, measured))
    return served.least - AGREES <= measured.waited <= served.most + AGREES and p99[1] <= AGREES_TIMES * p99[0]


def _enough(answered: Answered, total: int) -> int:
    """Return how many threads, from ``total`` on, let hardly any request wait if all take requests from one queue."""
    for threads in range(total, 4 * total + 4):
        if (waits_in_line_s(answered, threads) > FROM_S).mean() <= HELPED:
            return threads
    return 0

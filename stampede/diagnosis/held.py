"""What holds up requests of somebody's own application: its event loops, its pools of threads, and lines of its code.

stampede-probe notes when event loops were held up, when all threads of a pool were busy while calls waited for a
thread, and where long requests, held loops and the threads of full pools spend their time.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics.waiting import Answered, Times, at_least, read_answered, time_in
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.lab_time import HOST, clocks_of_hosts, corrected, put_clocks
from stampede.records.folder import ALONE, SERVED, trial_folder
from stampede.records.summary import Summary

# probe/stampede_probe/worker.py writes the lines; the column of the connection has the seconds, which end at the time,
# for pools, the column of the thread has how many threads the pool has, and for stacks, the id says what was seen.
_COLUMNS = """read_csv($files, header = false, delim = ',', columns = {
    'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'DOUBLE', 'connection': 'VARCHAR',
    'time': 'DOUBLE'})"""
_NOTES = f"""
WITH noted AS (SELECT what, worker, coalesce(thread, 0)::INTEGER AS threads, {{time}} - $first AS ended_s,
    connection::DOUBLE AS seconds, coalesce(id, '') AS seen
    FROM {_COLUMNS.replace("{", "{{").replace("}", "}}")} {{clocks}}
    WHERE what IN ('held', 'computed', 'locked', 'collected', 'pool', 'executor', 'stack'))
SELECT what, worker, threads, greatest(ended_s - seconds, 0), least(ended_s, $last), seconds, seen
FROM noted WHERE ended_s - seconds < $last AND ended_s > 0 ORDER BY ALL
"""  # noqa: S608  # made of constants
# The line of the end of a request has its route in the column of the worker.
_ROUTES = f"""
SELECT notes.worker, requests.request_class FROM {_COLUMNS} AS notes JOIN requests USING (id)
WHERE notes.what = 'ended' AND {OF_TRIAL} GROUP BY ALL ORDER BY count(*), requests.request_class
"""  # noqa: S608  # made of constants
# Requests that failed, or that the end of the load cut off, were at work, too.
_BEGUN = f"""
SELECT worker, began - $first, coalesce(ended - $first, $last)
FROM requests WHERE {OF_TRIAL} AND worker IS NOT NULL AND began IS NOT NULL ORDER BY ALL
"""  # noqa: S608  # made of a constant
_QUICK = 10
"""The percentile of a class's times at work that stands for a request alone, if alone took longer or is unknown."""


class Stall(NamedTuple):
    """For how long event loops or pools were held up in one trial, over all workers and at most at once, in seconds.

    ``what`` is why: a function on the loop blocked (``held``) or ``computed``; other threads had the interpreter lock
    (``locked``), or the garbage collector had it (``collected``); or all ``threads`` of AnyIO's ``pool`` or of
    asyncio's ``executor`` were busy while calls waited. ``lost_s`` is how much of the requests' lost time it covers,
    and ``at_work`` how many requests were at work in a worker meanwhile, on average; inf: unknown.
    """

    what: str
    total_s: float
    longest_s: float
    lost_s: float = 0.0
    threads: int = 0
    at_work: float = inf


class Stack(NamedTuple):
    """For how long something that was looked at was in one line of the code, in all trials, in seconds.

    ``of`` is what was looked at: a held ``loop``, a ``pool thread`` of a full pool, a ``thread`` that serves no
    request, the garbage collector (``gc``), or nothing: a request that is at work for longer than 0.1 s. ``kind`` is
    what it did: ``computes``, ``waits``, ``pool``, ``lock`` and so on (probe/README.md). ``request_class`` is whose it
    was; empty: of no request. ``line`` is the innermost line of the application; empty: there is none. ``called`` is
    the function of a library that the line called, or empty.
    """

    of: str
    kind: str
    request_class: str
    line: str
    called: str
    seconds: float


class Loops(NamedTuple):
    """When loops and pools were held up, how long requests were under way in all trials, and where time was spent."""

    stalls: Sequence[Stall]
    span_s: float
    stacks: Sequence[Stack] = ()


class _Note(NamedTuple):
    """A line of the probe; times are in seconds since the first request was sent."""

    what: str
    worker: str
    threads: int
    began_s: float
    ended_s: float
    seconds: float
    seen: str


def read_alone(run_folder: Path, summary: Summary, variant: str) -> dict[str, float]:
    """Return the median time that a request of each class took alone, in ms; empty if it was not measured."""
    for trial in summary.trials:
        path = trial_folder(run_folder, *trial.key) / ALONE
        if trial.variant == variant and trial.is_trusted and path.exists():
            times: dict[str, list[float]] = json.loads(path.read_text(encoding="utf-8"))
            return {name: median(found) for name, found in times.items() if found}
    return {}


def lost_times(answered: Answered, alone_ms: Mapping[str, float]) -> tuple[Times, Times, Times]:
    """Return what each request takes, and what it lost before its work began, and at work, in seconds.

    ``alone_ms`` is how long a request of each class takes alone, as far as is known. A request takes as long as one
    alone, or as the quickest tenth of its class under the load, whichever is less: single requests may meet a job in
    the background, too.
    """
    work_s = np.maximum(answered.ended_s - answered.began_s, 0.0)
    takes_s = np.zeros_like(work_s)
    for place, name in enumerate(answered.classes):
        mine = answered.request_class == place
        takes_s[mine] = min(alone_ms.get(name, inf) / 1000, float(np.percentile(work_s[mine], _QUICK)))
    return takes_s, np.maximum(answered.began_s - answered.sent_s, 0.0), np.maximum(work_s - takes_s, 0.0)


def read_stalls(
    rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: str, alone_ms: Mapping[str, float]
) -> Loops:
    """Return when event loops were held up and pools were full in the trusted trials of a variant.

    ``rows`` has the requests; ``alone_ms`` is how long a request of each class takes alone.
    """
    stalls: list[Stall] = []
    spent_s: defaultdict[Stack, float] = defaultdict(float)
    span_s = 0.0
    for trial in (trial for trial in summary.trials if trial.variant == variant and trial.is_trusted):
        answered = read_answered(rows, *trial.key)
        last_s = answered.last - answered.first
        span_s += last_s
        files = [*map(str, sorted(trial_folder(run_folder, *trial.key).glob(SERVED)))]
        if not files:
            continue
        query = _NOTES.format(time="time", clocks="")
        if clocks := clocks_of_hosts(summary.clocks, trial.key):
            put_clocks(rows, clocks)
            query = _NOTES.format(time=corrected("time"), clocks=f"LEFT JOIN clocks ON clocks.name = {HOST}")
        times, key = {"first": answered.first, "last": last_s}, of_trial(trial.key)
        at_work: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for worker, began_s, ended_s in rows.execute(_BEGUN, times | key).fetchall():
            at_work[worker].append((began_s, ended_s))
        notes: defaultdict[str, list[_Note]] = defaultdict(list)
        for note in map(_Note._make, rows.execute(query, times | {"files": files}).fetchall()):
            if note.worker in at_work:
                notes[note.what].append(note)
        classes = dict(rows.execute(_ROUTES, key | {"files": files}).fetchall())  # of a route, the largest class
        for note in notes.pop("stack", ()):
            kind, route, at = "".join(filter(str.isprintable, note.seen)).split("|", 2)
            line, _, called = at.partition(" → ")
            of = next((each for each in ("loop", "pool thread", "thread", "gc") if kind.startswith(each)), "")
            known = "" if line.startswith(("(", "garbage")) else line  # not of a library
            stack = Stack(of, kind.removeprefix(of).strip(), classes.get(route, ""), known, called, 0.0)
            spent_s[stack] += note.seconds  # of several threads at once
        stalls += _stalls(notes, answered, at_work, alone_ms)
    return Loops(stalls, span_s, [stack._replace(seconds=seconds) for stack, seconds in spent_s.items()])


def _stalls(
    notes: Mapping[str, Sequence[_Note]], answered: Answered, at_work: Mapping[str, Sequence[tuple[float, float]]],
    alone_ms: Mapping[str, float],
) -> Iterator[Stall]:  # fmt: skip
    """Yield the stalls of one trial from its notes by ``what``. ``at_work`` says when each worker's requests were."""
    _, before_s, lost_at_work_s = lost_times(answered, alone_ms)
    places = {worker: place for place, worker in enumerate(answered.workers)}
    for what, mine in notes.items():
        in_pool = what in ("pool", "executor")  # a request waits for it while it counts as at work
        from_s = answered.began_s if in_pool else answered.sent_s
        covered_s, at_work_s = np.zeros_like(from_s), 0.0
        for worker in dict.fromkeys(note.worker for note in mine):
            began_s, ended_s = np.array([note[3:5] for note in mine if note.worker == worker]).T
            spans, own = at_least(1, began_s, ended_s), answered.worker == places.get(worker, -1)  # it may answer none
            covered_s[own] = time_in(spans, from_s[own], answered.ended_s[own])
            at_work_s += float(time_in(spans, *np.array(at_work[worker]).T).sum())
        lost_s = np.minimum(covered_s, lost_at_work_s if in_pool else before_s + lost_at_work_s)
        lasted_s = [note.ended_s - note.began_s for note in mine]
        threads = max(note.threads for note in mine)
        yield Stall(what, sum(lasted_s), max(lasted_s), float(lost_s.sum()), threads,
                   at_work_s / (sum(lasted_s) or 1.0))  # fmt: skip

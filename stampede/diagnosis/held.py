"""What holds up requests of somebody's own application: its event loops, its pools of threads, and lines of its code.

stampede-probe notes when event loops were held up, when all threads of a pool were busy while calls waited for a
thread, and where long requests, held loops and the threads of full pools spend their time.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics.waiting import Answered, Segments, Times, at_least, read_answered, time_in
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


class LostTimes(NamedTuple):
    """What each answered request of a trial lost before its work began, and at work, in seconds.

    ``takes_s`` is what a request of each class takes without such a loss.
    """

    before_s: Times
    at_work_s: Times
    takes_s: Times


class Held(NamedTuple):
    """How often and how long event loops were held up in one trial, in all and at most, in seconds.

    ``what`` is why: a function on the loop blocked (``held``) or ``computed``, other threads had the interpreter lock
    (``locked``), or the garbage collector had it (``collected``). ``lost_s`` is how much of the requests' lost time it
    covers.
    """

    what: str
    times: int
    total_s: float
    longest_s: float
    lost_s: float = 0.0


class Stack(NamedTuple):
    """For how long something that was looked at was in one line of the code, in one trial, in seconds.

    ``of`` is what was looked at: a held ``loop``, a ``pool thread`` of a full pool, a ``thread`` that serves no
    request, the garbage collector (``gc``), or nothing: a request that is at work for longer than 0.1 s. ``kind`` is
    what it did: ``computes``, ``waits``, ``pool``, ``lock`` and so on (probe/README.md). ``request_class`` is whose it
    was; empty: of no request.
    ``line`` is the innermost line of the application; empty: there is none. ``called`` is the function of a library
    that the line called, or empty.
    """

    of: str
    kind: str
    request_class: str
    line: str
    called: str
    seconds: float


class FullPool(NamedTuple):
    """How long all threads of a pool were busy in one trial while calls waited, summed over the workers, in seconds.

    ``what`` is the pool: ``pool`` is AnyIO's, ``executor`` is asyncio's. ``threads`` is its size in each worker.
    ``lost_s`` is how much of the requests' lost time it covers. ``at_work`` is how many requests were at work in the
    worker meanwhile, on average; None: unknown.
    """

    what: str
    threads: int
    total_s: float
    lost_s: float = 0.0
    at_work: float | None = None


class Loops(NamedTuple):
    """When event loops were held up, where time was spent, and how long requests were under way in all trials.

    ``span_s`` is in seconds.
    """

    held: Sequence[Held]
    span_s: float
    pools: Sequence[FullPool] = ()
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


def lost_times(answered: Answered, alone_ms: Mapping[str, float]) -> LostTimes:
    """Return what requests lost. ``alone_ms`` is how long a request of each class takes alone, as far as is known.

    A request takes as long as one alone, or as the quickest tenth of its class under the load, whichever is less:
    single requests may meet a job in the background, too.
    """
    work_s = np.maximum(answered.ended_s - answered.began_s, 0.0)
    takes_s = np.array([
        min(alone_ms.get(name, np.inf) / 1000, float(np.percentile(work_s[answered.request_class == place], _QUICK)))
        for place, name in enumerate(answered.classes)
    ])  # fmt: skip
    at_work_s = np.maximum(work_s - takes_s[answered.request_class], 0.0) if answered.classes else work_s
    return LostTimes(np.maximum(answered.began_s - answered.sent_s, 0.0), at_work_s, takes_s)


def read_held(  # noqa: PLR0912  # one trial after the other, from top to bottom
    rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: str, alone_ms: Mapping[str, float]
) -> Loops:
    """Return when event loops were held up and pools were full in the trusted trials of a variant.

    ``rows`` has the requests; ``alone_ms`` is how long a request of each class takes alone.
    """
    held: list[Held] = []
    pools: list[FullPool] = []
    stacks: list[Stack] = []
    span_s = 0.0
    for trial in summary.trials:
        if trial.variant != variant or not trial.is_trusted:
            continue
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

        lost = lost_times(answered, alone_ms)
        for what in ("held", "computed", "locked", "collected"):
            lasted_s = [note.ended_s - note.began_s for note in notes[what]]
            if lasted_s:
                covered_s = _covered_s(notes[what], answered, answered.sent_s)
                lost_s = float(np.minimum(covered_s, lost.before_s + lost.at_work_s).sum())
                held.append(Held(what, len(lasted_s), sum(lasted_s), max(lasted_s), lost_s))
        for what in ("executor", "pool"):
            if mine := notes[what]:
                total_s, at_work_s = sum(note.ended_s - note.began_s for note in mine), 0.0
                for worker, spans in at_work.items():
                    full = _merged([note for note in mine if note.worker == worker])
                    at_work_s += float(time_in(full, *np.array(spans).T).sum())
                lost_s = float(np.minimum(_covered_s(mine, answered, answered.began_s), lost.at_work_s).sum())
                threads = max(note.threads for note in mine)
                pools.append(FullPool(what, threads, total_s, lost_s, at_work_s / total_s))
        spent_s: defaultdict[str, float] = defaultdict(float)
        for note in notes["stack"]:
            spent_s[note.seen] += note.seconds  # of several threads at once
        classes = dict(rows.execute(_ROUTES, key | {"files": files}).fetchall())  # of a route, the largest class
        for seen, seconds in spent_s.items():
            kind, route, at = "".join(filter(str.isprintable, seen)).split("|", 2)
            line, _, called = at.partition(" → ")
            of = next((each for each in ("loop", "pool thread", "thread", "gc") if kind.startswith(each)), "")
            known = "" if line.startswith(("(", "garbage")) else line  # not of a library
            stacks.append(Stack(of, kind.removeprefix(of).strip(), classes.get(route, ""), known, called, seconds))
    return Loops(held, span_s, pools, stacks)


def _covered_s(notes: Sequence[_Note], answered: Answered, from_s: Times) -> Times:
    """Return how much of the time of each request, until its work ends, lies within the notes of its worker."""
    covered_s = np.zeros_like(answered.sent_s)
    for place, worker in enumerate(answered.workers):
        own = answered.worker == place
        spans = _merged([note for note in notes if note.worker == worker])
        covered_s[own] = time_in(spans, from_s[own], answered.ended_s[own])
    return covered_s


def _merged(notes: Sequence[_Note]) -> Segments:
    return at_least(1, np.array([note.began_s for note in notes]), np.array([note.ended_s for note in notes]))

"""What holds up requests of somebody's own application: its event loops, its pools of threads, and other requests.

It is known when event loops were held up, which requests were at work when that began, when all threads of a pool were
busy while calls waited for a thread, and how long requests take alone.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics.waiting import Answered, Segments, Times, at_least, read_answered, time_in
from stampede.evaluate.read import OF_TRIAL, Key, of_trial
from stampede.evaluate.read.lab_time import HOST, clocks_of_hosts, corrected, put_clocks
from stampede.records.files import ALONE, SERVED
from stampede.records.folder import trial_folder
from stampede.records.summary import Summary
from stampede.service.diagnosis.lost import LostTimes, lost_times

TICK_S = 0.02
"""How exactly it is known when an event loop began to be held up (servers/user-service/own.py)."""
# servers/user-service/own.py writes the lines; the column of the connection has the seconds, which end at the time, and
# for pools, the column of the thread has how many threads the pool has.
_NOTES = """
SELECT what, worker, thread, {time} - connection::DOUBLE - $first AS began_s, {time} - $first AS ended_s
FROM read_csv($files, header = false, delim = ',', columns = {{
    'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'BIGINT', 'connection': 'VARCHAR',
    'time': 'DOUBLE'}}) {clocks}
WHERE what IN ('held', 'computed', 'locked', 'pool', 'executor') ORDER BY ALL
"""
# Requests that failed, or that the end of the load cut off, were at work, too.
_BEGUN = f"""
SELECT request_class, worker, began - $first AS began_s, coalesce(ended - $first, $last) AS ended_s
FROM requests WHERE {OF_TRIAL} AND worker IS NOT NULL AND began IS NOT NULL ORDER BY ALL
"""  # noqa: S608  # made of a constant


def read_alone(run_folder: Path, summary: Summary, variant: str) -> dict[str, float]:
    """Return the median time that a request of each class took alone, in ms; empty if it was not measured."""
    for trial in summary.trials:
        path = trial_folder(run_folder, *trial.key) / ALONE
        if trial.variant == variant and trial.is_trusted and path.exists():
            times: dict[str, list[float]] = json.loads(path.read_text(encoding="utf-8"))
            return {name: median(found) for name, found in times.items() if found}
    return {}


class Held(NamedTuple):
    """How often and how long event loops were held up in one trial, in all and at most, in seconds.

    ``what`` is why: a function on the loop blocked (``held``; in older runs, also if it computed) or ``computed``, or
    other threads had the interpreter lock (``locked``; servers/user-service/own.py). ``lost_s`` is how much of the
    requests' lost time it covers. ``at_work`` says for each class of requests how often one was at work, or was
    answered just before, when a loop began to be held up; ``elsewhere`` is for which share of all other time.
    ``idle`` is how often no request was at work.
    """

    what: str
    times: int
    total_s: float
    longest_s: float
    lost_s: float = 0.0
    at_work: Mapping[str, int] = {}
    elsewhere: Mapping[str, float] = {}
    idle: int = 0


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
    """When event loops were held up, and how long requests were under way in all trials together, in seconds."""

    held: Sequence[Held]
    span_s: float
    pools: Sequence[FullPool] = ()


class _Note(NamedTuple):
    what: str
    worker: str
    threads: int
    began_s: float
    ended_s: float


class _Trial(NamedTuple):
    """What is known of a trial: its answered requests, when requests of each worker and class were at work, and notes.

    Times are in seconds since the first request was sent.
    """

    answered: Answered
    begun: Mapping[str, Mapping[str, tuple[Times, Times]]]
    notes: Sequence[_Note]
    lost: LostTimes

    @property
    def span_s(self) -> float:
        return self.answered.last - self.answered.first


def read_held(
    rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: str, alone_ms: Mapping[str, float]
) -> Loops:
    """Return when event loops were held up and pools were full in the trusted trials of a variant.

    ``rows`` has the requests; ``alone_ms`` is how long a request of each class takes alone.
    """
    held: list[Held] = []
    pools: list[FullPool] = []
    span_s = 0.0
    for trial in summary.trials:
        if trial.variant != variant or trial.verdict == "invalid":
            continue
        answered = read_answered(rows, *trial.key)
        span_s += answered.last - answered.first
        if files := sorted(trial_folder(run_folder, *trial.key).glob(SERVED)):
            query = _NOTES.format(time="time", clocks="")
            if clocks := clocks_of_hosts(summary.clocks, trial.key):
                put_clocks(rows, clocks)
                query = _NOTES.format(time=corrected("time"), clocks=f"LEFT JOIN clocks ON clocks.name = {HOST}")
            noted = rows.execute(query, {"files": [*map(str, files)], "first": answered.first}).fetchall()
            read = _trial(rows, trial.key, answered, noted, alone_ms)
            held += _held(read)
            pools += _pools(read)
    return Loops(held, span_s, pools)


def _trial(
    rows: duckdb.DuckDBPyConnection,
    key: Key,
    answered: Answered,
    noted: Sequence[tuple[str, str, int, float, float]],
    alone_ms: Mapping[str, float],
) -> _Trial:
    last_s = answered.last - answered.first
    of_worker: dict[str, dict[str, list[tuple[float, float]]]] = {}
    asked = of_trial(key) | {"first": answered.first, "last": last_s}
    for request_class, worker, began_s, ended_s in rows.execute(_BEGUN, asked).fetchall():
        of_worker.setdefault(worker, {}).setdefault(request_class, []).append((began_s, ended_s))
    begun = {
        worker: {name: (times[:, 0], times[:, 1]) for name, found in classes.items() for times in [np.array(found)]}
        for worker, classes in of_worker.items()
    }
    notes = [
        _Note(what, worker, threads, max(began_s, 0.0), min(ended_s, last_s))
        for what, worker, threads, began_s, ended_s in noted
        if worker in begun and began_s < last_s and ended_s > 0
    ]
    return _Trial(answered, begun, notes, lost_times(answered, alone_ms))


def _held(trial: _Trial) -> Iterator[Held]:
    for what in ("held", "computed", "locked"):
        mine = [note for note in trial.notes if note.what == what]
        if not mine:
            continue
        lasted_s = [note.ended_s - note.began_s for note in mine]
        covered_s = np.minimum(_covered_s(mine, trial.answered, trial.answered.sent_s), trial.lost.all_s)
        yield Held(what, len(mine), sum(lasted_s), max(lasted_s), float(covered_s.sum()), *_at_work(mine, trial))


def _at_work(mine: Sequence[_Note], trial: _Trial) -> tuple[dict[str, int], dict[str, float], int]:
    """Return how often a request of each class was at work when a loop began to be held up, and how much elsewhere.

    The third value is how often no request was. A request that was answered just before counts as at work, because its
    function may go on after the answer.
    """
    times, elsewhere_s, idle, free_s = Counter[str](), defaultdict[str, float](float), len(mine), 0.0
    for worker, classes in trial.begun.items():
        stalls = _merged([note for note in trial.notes if note.worker == worker and note.what not in _POOLS], TICK_S)
        free_s += trial.span_s - float((stalls[:, 1] - stalls[:, 0]).sum())
        starts_s = [note.began_s for note in mine if note.worker == worker]
        busy_starts = np.zeros(len(starts_s), bool)
        for name, (began_s, ended_s) in classes.items():
            busy = at_least(1, began_s, ended_s + TICK_S)
            lasted_s = float((busy[:, 1] - busy[:, 0]).sum())
            elsewhere_s[name] += lasted_s - float(time_in(stalls, busy[:, 0], busy[:, 1]).sum())
            at_work = np.array([((busy[:, 0] <= at_s + 0.001) & (busy[:, 1] >= at_s)).any() for at_s in starts_s], bool)
            times[name] += int(at_work.sum())
            busy_starts |= at_work
        idle -= int(busy_starts.sum())
    elsewhere = {name: min(1.0, seconds / free_s) if free_s > 0 else 1.0 for name, seconds in elsewhere_s.items()}
    return times, elsewhere, idle


def _pools(trial: _Trial) -> Iterator[FullPool]:
    for what in _POOLS:
        mine = [note for note in trial.notes if note.what == what]
        if not mine:
            continue
        total_s, at_work_s = sum(note.ended_s - note.began_s for note in mine), 0.0
        for worker, classes in trial.begun.items():
            full = _merged([note for note in mine if note.worker == worker])
            at_work_s += sum(float(time_in(full, *times).sum()) for times in classes.values())
        covered_s = np.minimum(_covered_s(mine, trial.answered, trial.answered.began_s), trial.lost.at_work_s)
        threads = max(note.threads for note in mine)
        yield FullPool(what, threads, total_s, float(covered_s.sum()), at_work_s / total_s)


_POOLS = ("executor", "pool")


def _covered_s(notes: Sequence[_Note], answered: Answered, from_s: Times) -> Times:
    """Return how much of the time of each request, until its work ends, lies within the notes of its worker."""
    covered_s = np.zeros_like(answered.sent_s)
    for place, worker in enumerate(answered.workers):
        own = answered.worker == place
        spans = _merged([note for note in notes if note.worker == worker])
        covered_s[own] = time_in(spans, from_s[own], answered.ended_s[own])
    return covered_s


def _merged(notes: Sequence[_Note], before_s: float = 0.0) -> Segments:
    began_s = np.array([note.began_s for note in notes]) - before_s
    return at_least(1, np.maximum(began_s, 0.0), np.array([note.ended_s for note in notes]))

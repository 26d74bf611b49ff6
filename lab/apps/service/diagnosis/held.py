"""What holds up requests of somebody's own application: its event loops, its pools of threads, and other requests.

It is known when event loops were held up, which request began last before, when all threads of a pool were busy while
calls waited for a thread, and how long requests take alone.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb

from analysis.read import OF_TRIAL, of_trial
from analysis.read.lab_time import HOST, clocks_of_hosts, corrected, put_clocks
from analysis.records.files import ALONE, SERVED
from analysis.records.folder import trial_folder
from analysis.records.summary import Summary

# servers/user-service/own.py writes the lines; the column of the connection has the seconds, which end at the time.
_NOTES = """
(SELECT what, worker, thread, connection::DOUBLE AS seconds, {time} AS time
    FROM read_csv($files, header = false, delim = ',', columns = {{
        'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'BIGINT', 'connection': 'VARCHAR',
        'time': 'DOUBLE'}}) {clocks}
    WHERE what IN ('held', 'computed', 'locked', 'pool', 'executor'))
"""
# Nothing begins on a loop that is held up, and what begins right at the end is not its cause.
_HELD = f"""
SELECT held.what, last.request_class, sum(held.seconds), max(held.seconds)
FROM {{notes}} AS held
ASOF JOIN (FROM requests WHERE {OF_TRIAL} AND began IS NOT NULL) AS last
    ON held.worker = last.worker AND held.time - held.seconds + 0.001 >= last.began
WHERE held.what IN ('held', 'computed', 'locked')
GROUP BY ALL ORDER BY ALL
"""  # noqa: S608  # made of a constant

# The column of the thread has how many threads the pool has.
_POOLS = f"""
SELECT what, max(thread), sum(seconds) FROM {{notes}}
WHERE what IN ('pool', 'executor') AND time - seconds BETWEEN
    (SELECT epoch(min(sent)) FROM requests WHERE {OF_TRIAL})
    AND (SELECT epoch(max(answered)) FROM requests WHERE {OF_TRIAL})
GROUP BY what ORDER BY what
"""  # noqa: S608  # made of a constant

_SPAN = f"""
SELECT epoch(max(answered)) - epoch(min(sent)) FROM requests WHERE {OF_TRIAL}
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
    """How long requests of one class held up event loops in one trial, in all and at most, in seconds.

    ``what`` is why: a function on the loop blocked (``held``; in older runs, also if it computed) or ``computed``, or
    other threads had the interpreter lock (``locked``; servers/user-service/own.py).
    """

    what: str
    request_class: str
    total_s: float
    longest_s: float


class FullPool(NamedTuple):
    """How long all threads of a pool were busy in one trial while calls waited, summed over the workers, in seconds.

    ``what`` is the pool: ``pool`` is AnyIO's, ``executor`` is asyncio's. ``threads`` is its size in each worker.
    """

    what: str
    threads: int
    total_s: float


class Loops(NamedTuple):
    """When event loops were held up, and how long requests were under way in all trials together, in seconds."""

    held: list[Held]
    span_s: float
    pools: Sequence[FullPool] = ()


def read_held(rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: str) -> Loops:
    """Return when event loops were held up and pools were full in the trusted trials of a variant.

    ``rows`` has the requests.
    """
    held: list[Held] = []
    pools: list[FullPool] = []
    spans_s = []
    for trial in summary.trials:
        if trial.variant != variant or trial.verdict == "invalid":
            continue
        key = of_trial(trial.key)
        [(span_s,)] = rows.execute(_SPAN, key).fetchall()
        spans_s.append(span_s or 0.0)
        if files := sorted(trial_folder(run_folder, *trial.key).glob(SERVED)):
            notes = _NOTES.format(time="time", clocks="")
            if clocks := clocks_of_hosts(summary.clocks, trial.key):
                put_clocks(rows, clocks)
                notes = _NOTES.format(time=corrected("time"), clocks=f"LEFT JOIN clocks ON clocks.name = {HOST}")
            values = key | {"files": [*map(str, files)]}
            held += [Held(*row) for row in rows.execute(_HELD.format(notes=notes), values).fetchall()]
            pools += [FullPool(*row) for row in rows.execute(_POOLS.format(notes=notes), values).fetchall()]
    return Loops(held, sum(spans_s), pools)

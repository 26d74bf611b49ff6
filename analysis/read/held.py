"""What holds up requests of somebody's own application: its event loops, and other requests.

It is known when event loops were held up, which request began last before, and how long requests take alone.
"""

import json
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb

from analysis.folder import trial_folder
from analysis.read import ALONE, SERVED
from analysis.read.lab_time import HOST, clocks_of_hosts, corrected, put_clocks
from analysis.result import Summary

# servers/own/own.py writes the lines; the column of the connection has the seconds.
_HELD = """
SELECT held.what, last.request, sum(held.seconds), max(held.seconds)
FROM (SELECT what, worker, connection::DOUBLE AS seconds, {time} AS time
    FROM read_csv($files, header = false, delim = ',', columns = {{
        'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'BIGINT', 'connection': 'VARCHAR',
        'time': 'DOUBLE'}}) {clocks}
    WHERE what IN ('held', 'locked')) AS held
ASOF JOIN (FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial) AND began IS NOT NULL) AS last
    ON held.worker = last.worker AND held.time >= last.began
GROUP BY ALL ORDER BY ALL
"""

_SPAN = """
SELECT epoch(max(answered)) - epoch(min(sent)) FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial)
"""


def read_alone(run_folder: Path, summary: Summary, variant: str) -> dict[str, float]:
    """Return the median time that a request of each class took alone, in ms; empty if it was not measured."""
    for one in summary.trials:
        path = trial_folder(run_folder, one.variant, one.load, one.trial) / ALONE
        if one.variant == variant and one.verdict != "invalid" and path.exists():
            times: dict[str, list[float]] = json.loads(path.read_text(encoding="utf-8"))
            return {name: median(found) for name, found in times.items() if found}
    return {}


class Held(NamedTuple):
    """How long requests of one class held up event loops in one trial, in all and at most, in seconds.

    ``what`` is why: ``held`` on the loop itself, or ``locked`` by the interpreter lock (servers/own/own.py).
    """

    what: str
    request: str
    total_s: float
    longest_s: float


class Loops(NamedTuple):
    """When event loops were held up, and how long requests were under way in all trials together, in seconds."""

    held: list[Held]
    span_s: float


def read_held(rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: str) -> Loops:
    """Return when the event loops of a variant were held up in its trusted trials; ``rows`` has the requests."""
    held: list[Held] = []
    spans_s = []
    for one in summary.trials:
        if one.variant != variant or one.verdict == "invalid":
            continue
        key = {"variant": one.variant, "load": one.load, "trial": one.trial}
        [(span_s,)] = rows.execute(_SPAN, key).fetchall()
        spans_s.append(span_s or 0.0)
        if files := sorted(trial_folder(run_folder, one.variant, one.load, one.trial).glob(SERVED)):
            query = _HELD.format(time="time", clocks="")
            if clocks := clocks_of_hosts(summary, one.variant, one.load, one.trial):
                put_clocks(rows, clocks)
                query = _HELD.format(time=corrected("time"), clocks=f"LEFT JOIN clocks ON clocks.name = {HOST}")
            found = rows.execute(query, key | {"files": [*map(str, files)]}).fetchall()
            held += [Held(*row) for row in found]
    return Loops(held, sum(spans_s))

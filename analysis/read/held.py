"""When the event loops of somebody's own application were held up, and which request began last before."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb

from analysis.folder import trial_folder
from analysis.read import SERVED
from analysis.result import Summary

# servers/own/own.py writes the lines; the column of the connection has the seconds.
_HELD = """
SELECT last.request, sum(held.seconds), max(held.seconds)
FROM (SELECT worker, connection::DOUBLE AS seconds, time
    FROM read_csv($files, header = false, delim = ',', columns = {
        'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'BIGINT', 'connection': 'VARCHAR',
        'time': 'DOUBLE'})
    WHERE what = 'held') AS held
ASOF JOIN (FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial) AND began IS NOT NULL) AS last
    ON held.worker = last.worker AND held.time >= last.began
GROUP BY ALL ORDER BY ALL
"""

_SPAN = """
SELECT epoch(max(answered)) - epoch(min(sent)) FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial)
"""


class Held(NamedTuple):
    """How long requests of one class held up event loops in one trial, in all and at most, in seconds.

    ``span_s`` is how long requests were under way in this trial.
    """

    request: str
    total_s: float
    longest_s: float
    span_s: float


def read_held(rows: duckdb.DuckDBPyConnection, run_folder: Path, summary: Summary, variant: str) -> Iterator[Held]:
    """Yield when the event loops of a variant were held up in its trusted trials; ``rows`` has the requests."""
    for one in summary.trials:
        if one.variant != variant or one.verdict == "invalid":
            continue
        key = {"variant": one.variant, "load": one.load, "trial": one.trial}
        files = sorted(trial_folder(run_folder, one.variant, one.load, one.trial).glob(SERVED))
        [(span_s,)] = rows.execute(_SPAN, key).fetchall()
        if not files or not span_s:
            continue
        for request, total_s, longest_s in rows.execute(_HELD, key | {"files": [*map(str, files)]}).fetchall():
            yield Held(request, total_s, longest_s, span_s)

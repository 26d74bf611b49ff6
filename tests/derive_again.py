"""Derive runs in a process of its own, under other circumstances: ``python -m tests.derive_again THREADS RUN…``.

PYTHONHASHSEED is the caller's to choose. THREADS is how many DuckDB uses where the lab leaves that to the machine, and
how many read the points. The report finds the rows of each trial in another order, as it may when several threads read
them. Each picture is replaced by what it is drawn from: drawing takes longer than all the rest.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import altair as alt
import duckdb

from stampede.pipeline import derive_summary
from stampede.predict.prediction import predictions_of
from stampede.report.html import write_report


def derive_again(run: Path, threads: int) -> None:
    """Derive everything that follows from a run's raw points."""
    connect = duckdb.connect

    def connect_with_threads(config: dict[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
        return connect(config={"threads": threads} | (config or {}))

    with (
        patch("duckdb.connect", connect_with_threads),
        patch("stampede.evaluate.read.rows.THREADS", threads),
        patch("stampede.report.figures.svg", _drawn_from),
    ):
        summary = derive_summary(run, predictions_of(run))
        with _rows_in_another_order(run, order=threads):
            write_report(run, summary)


def _drawn_from(chart: alt.TopLevelMixin) -> str:
    return json.dumps(chart.to_dict(validate=False))


@contextmanager
def _rows_in_another_order(run: Path, order: int) -> Iterator[None]:
    """Shuffle the tables of a run, each ``order`` in another way, and put them back afterwards."""
    tables = {path: path.read_bytes() for path in run.glob("*/*/*/requests.parquet")}
    for path in tables:
        shuffled = f"FROM '{path}' ORDER BY hash(id || ' ' || generator || ' {order}')"
        duckdb.execute(f"COPY ({shuffled}) TO '{path}.shuffled' (FORMAT parquet)")
        Path(f"{path}.shuffled").replace(path)
    try:
        yield
    finally:
        for path, table in tables.items():
            path.write_bytes(table)


if __name__ == "__main__":
    for folder in sys.argv[2:]:
        derive_again(Path(folder), int(sys.argv[1]))

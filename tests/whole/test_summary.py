"""stampede.pipeline: large runs."""

from pathlib import Path

import duckdb
import pytest

from stampede.evaluate.read import trial_data
from stampede.evaluate.read.trial_data import RawTrial
from stampede.pipeline import derive_summary
from tests.quick.test_summary import HUNDRED
from tests.synthetic import make_run


def test_a_large_run_is_summarised_in_the_same_way_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads would add up the rows in another order each time, and the last digits of an average differ."""
    run = make_run(tmp_path, {"one": HUNDRED})
    derive_summary(run)
    folder = run / "one" / "mix" / "1"
    table, larger = folder / "requests.parquet", folder / "larger.parquet"
    duckdb.sql(f"""
        COPY (SELECT * REPLACE ((hash(i) % 1000003) / 7.0 AS overhead_ms, (hash(i) % 1000003) / 3.0 AS duration_ms)
              FROM '{table}', range(3000) AS numbers(i)) TO '{larger}' (FORMAT parquet)
    """)
    larger.rename(table)

    # else it would write the table again
    monkeypatch.setattr(trial_data, "derive_raw_trial", lambda *_, **__: RawTrial())

    summaries = [derive_summary(run).model_dump_json() for _ in range(3)]

    assert summaries[0].count('"n":300000') > 10
    assert len(set(summaries)) == 1

"""analysis.pipeline: large runs, and a look that the interval contradicts."""

from pathlib import Path

import duckdb
import pytest

from analysis.pipeline import derive_summary
from analysis.read import trial_data
from analysis.read.trial_data import RawTrial
from analysis.records.claims import Claim
from tests.quick.test_summary import HUNDRED, p99, repeated
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
    monkeypatch.setattr(trial_data, "read_raw_trial", lambda *_, **__: RawTrial())

    summaries = [derive_summary(run).model_dump_json() for _ in range(3)]

    assert summaries[0].count('"n":300000') > 10
    assert len(set(summaries)) == 1


def test_a_look_that_the_interval_contradicts_decides_nothing(tmp_path: Path) -> None:
    """The first five trials decide that it waits; then it never waits again, so the interval says that it does not."""
    claim = Claim(says="It waits", value=p99(), at_least=50)
    turned = [60.0] * 5 + [40.0] * 20

    [found] = repeated(tmp_path / "looked", {"one": turned}, claim, until_decided=True).claims
    [planned] = repeated(tmp_path / "planned", {"one": turned}, claim).claims

    assert found.verdict == "undecided"
    assert (found.reason or "").startswith("looking after every round needs more certainty")
    assert planned.verdict == "not reproduced"

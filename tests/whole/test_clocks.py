"""analysis.read.clocks: a real run on two machines whose clocks differ."""

import shutil
from pathlib import Path

import duckdb

from analysis.pipeline import derive_summary
from analysis.records.checksums import seal
from analysis.records.folder import trial_folders
from tests.apart import set_apart
from tests.quick.test_clocks import K6, WEB
from tests.real_runs import unpack


def test_a_real_run_on_two_machines_says_what_it_said_on_one(tmp_path: Path) -> None:
    """Its points are those of a run on one machine, as two machines with other clocks would have written them."""
    here = unpack("keep-alive", tmp_path)
    on_one = derive_summary(here)
    apart = tmp_path / "apart"
    shutil.copytree(here, apart)
    for folder in trial_folders(apart):
        rows = f"{here / folder.relative_to(apart)}/requests.parquet"
        hosts = duckdb.execute(f"SELECT DISTINCT regexp_extract(worker, '^(.*):', 1) FROM '{rows}' WHERE worker <> ''")
        set_apart(folder, {"k6-1": K6, "web-1": WEB._replace(hosts=[host for (host,) in hosts.fetchall()])})
    (apart / "manifest.sha256").unlink()
    seal(apart)

    on_two = derive_summary(apart)

    assert on_two.trials == on_one.trials
    assert max(one.apart_ms for one in on_two.clocks) < 1
    for old, new in zip(on_one.rows, on_two.rows, strict=True):
        assert (old.variant, old.metric, old.stat) == (new.variant, new.metric, new.stat)
        for trial, value in old.values.items():
            low, high = (new.by_clocks or {}).get(trial, (new.values[trial], new.values[trial]))
            assert low * (1 - 1e-4) <= value <= high * (1 + 1e-4)

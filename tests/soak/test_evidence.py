"""Every doubt is provoked for real, once: on real containers, and the lab says which number cannot be believed."""

import json

import pytest

from stampede.records.folder import read_run
from tests.conftest import Lab
from tests.spoilt import write_experiment


@pytest.mark.usefixtures("nothing_left")
def test_a_variant_against_itself_shows_what_chance_alone_does(copied_lab: Lab) -> None:
    write_experiment(copied_lab, duration="2s")

    done = copied_lab.run("run", "spoilt", "--against-itself", "--trials", "2")

    run = (copied_lab.results / "spoilt-aa" / "latest").resolve()
    differences = json.loads((run / "summary.json").read_text())["differences"]
    assert done.returncode == 0, done.stderr
    assert [path.parent.parent.parent.name for path in sorted(run.glob("*/*/*/trial.json"))] == ["a", "a", "b", "b"]
    assert "The smallest difference that this machine can tell" in done.stdout
    assert {("user", "overhead", "p50"), ("user", "throughput", "per_second")} <= {
        (row["request_class"], row["metric"], row["stat"]) for row in differences
    }
    assert all(row["smallest"] >= max(0, row["low"], -row["high"]) for row in differences)
    assert read_run(run).command == "make experiment NAME=spoilt AGAINST_ITSELF=1 TRIALS=2"

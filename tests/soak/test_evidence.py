"""Every doubt is provoked for real, once: on real containers, and the lab says which number cannot be believed."""

import pytest

from stampede.records.folder import read_run
from tests.conftest import Lab
from tests.spoilt import write_experiment


@pytest.mark.usefixtures("nothing_left")
def test_a_variant_against_itself_shows_what_chance_alone_does(copied_lab: Lab) -> None:
    write_experiment(copied_lab, duration="2s")

    done = copied_lab.run("run", "spoilt", "--against-itself", "--trials", "2")

    run = (copied_lab.results / "spoilt-aa" / "latest").resolve()
    assert done.returncode == 0, done.stderr
    assert [path.parent.parent.parent.name for path in sorted(run.glob("*/*/*/trial.json"))] == ["a", "a", "b", "b"]
    assert f"stampede compare {run.parent}/latest:a" in done.stderr
    compared = copied_lab.run("compare", f"{run}:a", f"{run}:b")
    assert "user overhead p50, ms" in compared.stdout.replace("\n", " ")
    assert read_run(run).command == "make experiment NAME=spoilt AGAINST_ITSELF=1 TRIALS=2"

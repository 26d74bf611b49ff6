"""Parts of the lab, the machine and the lab itself fail in the middle: docs/explain/reliability.md in tests.

In every case: no wrong number, what was measured is kept, nothing is left running, and the next run works.
"""

import json

import pytest

from stampede.records.checksums import seal
from tests.conftest import Lab
from tests.synthetic import Request, make_run, older_run


@pytest.mark.parametrize("command", ["report", "verify", "export"])
def test_a_run_of_an_older_schema_is_refused_by_name(lab: Lab, command: str) -> None:
    old_run = older_run(lab.results)

    done = lab.call(command, str(old_run))

    assert done.returncode == 2
    problem = f"{old_run}/run.json has schema 0; this version reads schema 2"
    if command == "verify":
        problem = f"{old_run} has no manifest.sha256"
    assert done.stderr == f"error: {problem}.\n\nhint: stampede {command} results/<experiment>/<time>, or …/latest\n"


CUT_SHORT = "one/mix/1/points.json.gz cannot be read: IO Error: Unexpected end of GZIP stream"
CHANGED = "one/mix/1/points.json.gz: changed, its hash differs from manifest.sha256"


@pytest.mark.parametrize(("when", "why"), [("before", CUT_SHORT), ("after", CHANGED)])
def test_a_report_says_which_points_are_damaged(lab: Lab, when: str, why: str) -> None:
    """Before they are sealed, as when k6 is killed; after it, as by a bad disk."""
    run = make_run(lab.results / "spoilt" / "20200102T030405Z", {"one": [Request()] * 2, "two": [Request()]})
    points = run / "one" / "mix" / "1" / "points.json.gz"
    if when == "after":
        seal(run)
    points.write_bytes(points.read_bytes()[:-20])

    done = lab.call("report", str(run), "--tables")

    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    assert "The measurement is invalid: of 2 trials, 1 is invalid and left out." in said
    assert f"one: invalid: {why}" in said
    assert {row["variant"] for row in json.loads((run / "summary.json").read_text())["rows"]} == {"two"}

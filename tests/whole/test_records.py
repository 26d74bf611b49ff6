"""Records of three generations: every command reads each of them, and writes into none."""

import json
from pathlib import Path
from typing import Any

import pytest

from stampede.records.checksums import seal
from stampede.records.claims import Claim
from stampede.records.folder import read_summary
from stampede.records.run import LoadRecord
from tests.conftest import Lab
from tests.quick.test_records import FEW, KNOWN, P50, changed, future, today
from tests.synthetic import make_run
from tools.real_runs import unpack


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("generation", ["older", "today", "future"])
def test_a_run_of_any_generation_can_be_used_by_every_command(lab: Lab, tmp_path: Path, generation: str) -> None:
    made = {"older": lambda folder: unpack("worker-types", folder), "today": today, "future": future}
    run = made[generation](lab.results / "made-up" / "20260101T000000Z")
    if generation == "today":
        seal(run)

    report = lab.call("report", str(run), "--tables")
    verify = lab.call("verify", str(run))
    others = {
        "markdown": lab.call("report", str(run), "--markdown"),
        "power": lab.call("power", str(run)),
        "compare": lab.call("compare", str(run), str(run), "--force"),
        "export": lab.call("export", str(run), "--to", str(tmp_path / "run.tar.gz")),
    }

    assert (report.returncode, verify.returncode) == (0, 0), report.stderr + verify.stderr
    assert "Traceback" not in "".join(one.stderr for one in others.values())
    single = "fewer than two trusted trials"  # the older run has one trial of each variant
    assert {name for name, one in others.items() if one.returncode and single not in one.stderr} == set()
    page = (run / "report.html").read_text()
    if generation == "future":
        words = " ".join(report.stdout.split())
        for said in ("the records have schema 3", "asks for the metric queue_time"):
            assert said in words
            assert said in page
            assert said in verify.stdout
            assert said in others["power"].stderr
            assert said in others["markdown"].stdout
    else:
        assert "by this version" not in report.stdout + page + verify.stdout


def test_results_of_a_newer_version_are_verified_figure_by_figure(lab: Lab) -> None:
    """This version knows neither the further metric nor the further word for a verdict; both stay in the file."""
    run = future(lab.results / "made-up" / "20260101T000000Z")
    assert lab.call("report", str(run)).returncode == 0

    def newer(values: Any) -> None:  # JSON
        values["schema"] = 3
        values["claims"][1] |= {"verdict": "plausible", "measured": 3.0}
        values["rows"].append(values["rows"][0] | {"metric": "queue_time", "stat": "p99", "skew": 1.5})
        values["rows"][0]["skew"] = 0.5

    changed(run / "summary.json", newer)
    before = (run / "summary.json").read_bytes()

    done = lab.call("verify", str(run))

    assert (done.returncode, done.stderr) == (0, "")
    rows = len(json.loads(before)["rows"])
    assert f"another version computed the results: {rows - 1} of {rows - 1} figures" in done.stdout
    assert "not verified by this version: the figures of queue_time in summary.json" in done.stdout
    assert (run / "summary.json").read_bytes() == before
    read = read_summary(run)
    assert (read.claims[1].verdict, read.rows[0].model_extra) == ("plausible", {"skew": 0.5})

    changed(run / "summary.json", lambda values: values["rows"][0].update({"measured": 1e6, "n": 100}))
    done = lab.call("verify", str(run))

    assert done.returncode == 1
    assert "summary.json: does not follow from the raw points: one mix light" in done.stdout

    changed(run / "summary.json", lambda values: values.pop("rows"))
    done = lab.call("verify", str(run))

    assert done.returncode == 1
    assert "summary.json: cannot be read: rows: missing key; it must be a list" in done.stdout


def files_with_times(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return all of a folder: when everything in it was written, and the content of each file."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("derived", [True, False], ids=["with results", "without results"])
def test_no_command_that_reads_a_run_writes_into_it(lab: Lab, tmp_path: Path, derived: bool) -> None:
    """The results of the run are gone or, as after an update of the lab, not what this version would write."""
    run = make_run(
        lab.results / "made-up" / "20260101T000000Z",
        {"one": FEW, "two": FEW},
        claims=[Claim(says=KNOWN, value=P50, at_most=1000)],
        times=2,
        loads=[LoadRecord(name="mix", script="users.js", duration="60s", settings={"USERS": "1"})],
    )

    def with_threads(values: Any) -> None:
        for variant in values["variants"]:
            variant["settings"]["threads"] = 2

    changed(run / "run.json", with_threads)
    seal(run)
    if derived:
        assert lab.call("report", str(run)).returncode == 0
        (run / "report.html").write_text("as an older version wrote it")
    before = files_with_times(run)

    commands = {
        "power": lab.call("power", str(run)),
        "compare": lab.call("compare", f"{run}:one", f"{run}:two"),
        "what-if": lab.call("what-if", f"{run}:one", "--workers", "1"),
        "validate": lab.call("validate", str(run)),
        "advise": lab.call("advise", f"{run}:one"),
        "verify": lab.call("verify", str(run)),
        "export": lab.call("export", str(run), "--to", str(tmp_path / "run.tar.gz")),
        "class": lab.call("class", str(run), "--to", str(tmp_path / "class.html")),
    }

    assert files_with_times(run) == before
    for name in ("power", "compare", "what-if"):
        assert (name, commands[name].returncode) == (name, 0), commands[name].stderr
    assert (lab.results / "what-if.html").exists()
    assert not any("Traceback" in one.stderr for one in commands.values())

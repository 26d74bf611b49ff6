"""Every command reads a run, and writes into none."""

from pathlib import Path
from typing import Any

import pytest

from stampede.records.checksums import seal
from stampede.records.claims import Claim
from stampede.records.run import LoadRecord
from tests.conftest import Lab
from tests.quick.test_records import FEW, KNOWN, P50, changed, today
from tests.synthetic import make_run
from tools.real_runs import unpack


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("made", ["real", "made up", "without a manifest"])
def test_a_run_can_be_used_by_every_command(lab: Lab, tmp_path: Path, made: str) -> None:
    folder = lab.results / "made-up" / "20260101T000000Z"
    run = unpack("worker-types", folder) if made == "real" else today(folder)
    if made != "without a manifest":
        seal(run)

    done = {
        name: lab.call(name, str(run), *options)
        for name, options in {
            "report": ["--tables"],
            "verify": [],
            "compare": [str(run), "--force"],
            "export": ["--to", str(tmp_path / "run.tar.gz")],
        }.items()
    } | {"markdown": lab.call("report", str(run), "--markdown")}

    assert "Traceback" not in "".join(each.stderr for each in done.values())
    refused = {name: done[name].stderr for name in done if done[name].returncode}
    assert refused.keys() == ({"verify", "export"} if made == "without a manifest" else set())
    assert all("has no manifest" in said for said in refused.values())


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
        "compare": lab.call("compare", f"{run}:one", f"{run}:two"),
        "verify": lab.call("verify", str(run)),
        "export": lab.call("export", str(run), "--to", str(tmp_path / "run.tar.gz")),
        "class": lab.call("class", str(run), "--to", str(tmp_path / "class.html")),
    }

    assert files_with_times(run) == before
    assert commands["compare"].returncode == 0, commands["compare"].stderr
    assert not any("Traceback" in one.stderr for one in commands.values())

"""What goes wrong on real containers: a clear message, the right exit code, nothing lost and nothing left running."""

import signal
from pathlib import Path

import pytest

from stampede.records.folder import read_run, trial_folder
from tests.conftest import Lab, finish, wait_for_line, wait_for_step
from tests.engine import test_bad_days
from tests.engine.test_bad_days import ONE, reason, verdicts, wait_for_points
from tests.spoilt import fill, needs_root, small_disk

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_an_interrupt_while_another_run_is_waited_for(fast_lab: Lab) -> None:
    first = fast_lab.start(*ONE)
    wait_for_step(first, "starting the servers")
    second = fast_lab.start(*ONE)
    wait_for_line(second, "Another run is measuring")

    assert finish(second, signal.SIGINT)[0] == 130
    assert finish(first)[0] == 0


def test_two_runs_at_once_are_measured_one_after_the_other(fast_lab: Lab) -> None:
    first = fast_lab.start(*ONE)
    wait_for_step(first, "starting the servers")
    second = fast_lab.start(*ONE)
    wait_for_line(second, f"Another run is measuring (process {first.pid}, since ")

    assert finish(first)[0] == 0
    assert finish(second)[0] == 0
    runs = [one for one in (fast_lab.results / "heavy-mix").iterdir() if not one.is_symlink()]
    began, ended = zip(*sorted((read_run(one).began, read_run(one).ended or "") for one in runs), strict=True)
    assert len(runs) == 2
    assert ended[0] <= began[1]


@needs_root
def test_a_disk_that_fills_up_during_the_load_gives_no_wrong_number(fast_lab: Lab, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 300) as disk:
        fast_lab.results = disk / "results"
        process = fast_lab.start("run", "heavy-mix", "--variants", "one-process", "--duration", "5s")
        wait_for_step(process, "load")
        fill(disk / "filler")
        code, out, said = finish(process)
        (disk / "filler").unlink()
        assert fast_lab.run("down").returncode == 0
        again = fast_lab.run("report")
        left = fast_lab.leftovers()

    assert code == 1
    assert "Traceback" not in said
    assert "There is no room left for results" in said or "invalid" in out
    assert again.returncode == 0, again.stderr
    assert "reproduced  " not in again.stdout.replace("not reproduced", "")
    assert left == []


@pytest.mark.parametrize(
    ("which", "stage"),
    [
        pytest.param(signal.SIGTERM, "starting the servers", id="SIGTERM"),
        pytest.param(signal.SIGINT, "load", id="SIGINT"),
    ],
)  # all signals at all stages: test_faults.py
def test_an_interrupt_at_any_time(fast_lab: Lab, stage: str, which: signal.Signals) -> None:
    process = fast_lab.start("run", "heavy-mix", "--variants", "one-process,least-conn", "--duration", "20s")
    wait_for_step(process, stage)
    if stage == "load":
        wait_for_points(fast_lab)

    code, _, said = finish(process, which)

    assert code == 130
    assert said.endswith("Interrupted. Nothing is left running; what was measured is kept.\n")
    assert fast_lab.leftovers() == []
    assert read_run(fast_lab.latest()).outcome == "interrupted"
    if stage == "load":
        assert reason(fast_lab).startswith("interrupted at ")
        assert (trial_folder(fast_lab.latest(), "one-process", "heavy-mix", 1) / "requests.parquet").exists()
        assert verdicts(fast_lab) == {"one-process": "invalid", "least-conn": "invalid"}


@pytest.mark.parametrize("stage", ["starting the servers"])
def test_a_killed_run_is_cleaned_up_by_the_next_command(fast_lab: Lab, stage: str) -> None:
    test_bad_days.test_a_killed_run_is_cleaned_up_by_the_next_command(fast_lab, stage)

"""A load ends early if the machine runs short of memory, or if nobody is left to interrupt the load."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from stampede.records.folder import read_run
from tests.conftest import Lab, finish, is_at_step, lab_objects, wait_for_step, wait_until
from tests.spoilt import ENDS_WITHIN_S, answering, judged, write_experiment

NOT_UNDER_NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
"""As the tests themselves may be."""


def ended_early(lab: Lab) -> str:
    with answering():
        process = lab.start("run", "spoilt")
        wait_for_step(process, "starting the servers")
        began = time.monotonic()
        code, _, said = finish(process)
        assert time.monotonic() - began < ENDS_WITHIN_S
    assert code == 1, said
    verdict, [first, *_] = judged(lab)
    assert verdict == "invalid"
    return first


@pytest.mark.usefixtures("nothing_left")
def test_a_machine_that_runs_short_of_memory_ends_the_load(fast_lab: Lab) -> None:
    write_experiment(fast_lab, duration="2m")
    fast_lab.edit(
        "stampede/docker/machine_usage.py", "HARDLY_ANY_MEMORY = 0.05, 1 * 2**30", "HARDLY_ANY_MEMORY = 1, 2**60"
    )

    reason = ended_early(fast_lab)

    assert reason.startswith("failed: the machine ran short of memory: ")
    assert reason.endswith(" of the time")
    [run] = (fast_lab.results / "spoilt").glob("2*")
    assert (run / "spoilt" / "users" / "1" / "requests.parquet").exists()


@pytest.mark.usefixtures("nothing_left")
def test_a_lab_whose_parent_is_killed_ends_its_load(fast_lab: Lab) -> None:
    """As make is, or a terminal that is closed; nobody is left to interrupt it."""
    write_experiment(fast_lab, duration="2m")
    run = f"subprocess.run([sys.executable, '-m', 'stampede', 'run', 'spoilt', '--results', {str(fast_lab.results)!r}])"
    command = f"{NOT_UNDER_NOHUP}; import subprocess, sys; {run}"
    environment = os.environ | {"PYTHONPATH": str(fast_lab.root), "NO_COLOR": "1"}
    said = fast_lab.root / "said.txt"
    with said.open("w") as file:
        parent = subprocess.Popen(
            [sys.executable, "-c", command], cwd=fast_lab.root, env=environment, stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        children = psutil.Process(parent.pid).children
        wait_until(lambda: any(is_at_step(child.pid, "load") for child in children()), every_s=0.1)
        [lab] = psutil.Process(parent.pid).children()
    finally:
        parent.kill()
        parent.wait()

    # its new parent may take long to notice that it ended
    wait_until(lambda: not lab.is_running() or lab.status() == psutil.STATUS_ZOMBIE, ENDS_WITHIN_S, every_s=0.1)

    assert said.read_text().endswith(
        "The terminal was closed, or the parent process ended. Start the lab under nohup to keep it running.\n"
        "Interrupted. Nothing is left running; what was measured is kept.\n"
    )
    assert lab_objects() == []
    [folder] = (fast_lab.results / "spoilt").glob("2*")
    record = read_run(folder)
    assert (record.outcome, record.reason) == (
        "interrupted", "its terminal was closed, or its parent process ended",
    )  # fmt: skip

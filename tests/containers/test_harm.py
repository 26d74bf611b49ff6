"""No experiment harms the machine: what outgrows its limit ends by name, and the machine answers meanwhile."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from analysis.records.folder import read_run
from tests.conftest import PATIENCE_S, Lab, finish, is_at_step, lab_objects, wait_for_step
from tests.containers.conftest import Spoilt
from tests.spoilt import ANSWERS_WITHIN_S, answering, judged, write_experiment

ENDS_WITHIN_S = 60
NOT_UNDER_NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
"""As the tests themselves may be."""


def why_ended(spoilt: Spoilt, variant: str, load: str = "users") -> str:
    """Return why a trial failed. Its load, of two minutes, ended early, perhaps before all others had begun."""
    lasted_s = spoilt.record(variant, load).seconds.load or 0.0
    assert lasted_s < ENDS_WITHIN_S
    return spoilt.why_failed(variant, load)


def test_a_load_generator_that_outgrows_its_limit(spoilt: Spoilt) -> None:
    assert why_ended(spoilt, "k6-outgrows") == (
        "k6 needed more memory than its limit of 64 MiB, which lab/limits.py computes from users, the rate and "
        "the duration"
    )


def test_a_server_that_outgrows_its_limit(spoilt: Spoilt) -> None:
    assert why_ended(spoilt, "server-outgrows") == (
        "gunicorn needed more memory than its limit of 300 MiB, which the variant's memory_mib sets"
    )


def test_a_server_that_outgrows_its_limit_before_it_is_ready(spoilt: Spoilt) -> None:
    """Its workers are killed and started anew for ever; nobody waits until the health check gives up."""
    took = spoilt.record("start-outgrows").seconds

    assert took.load is None
    assert took.up is not None
    assert took.up < ENDS_WITHIN_S
    assert spoilt.why_failed("start-outgrows") == (
        "gunicorn needed more memory than its limit of 64 MiB, which the variant's memory_mib sets"
    )


def test_a_client_that_outgrows_its_limit(spoilt: Spoilt) -> None:
    assert why_ended(spoilt, "client-outgrows", "beside-a-client") == (
        "client needed more memory than its limit of 256 MiB, which mem_limit of client in docker-compose.yml sets"
    )


def test_the_machine_answers_while_containers_outgrow_their_limits(spoilt: Spoilt) -> None:
    assert 0 < spoilt.unanswered_s < ANSWERS_WITHIN_S


def ended_early(lab: Lab) -> str:
    """Measure the experiment, which must end early, and return why it failed."""
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
def test_a_machine_that_runs_short_of_memory_ends_the_load(copied_lab: Lab) -> None:
    write_experiment(copied_lab, duration="2m")
    copied_lab.edit(
        "lab/engine/machine_usage.py", "HARDLY_ANY_MEMORY = 0.05, 1 * 2**30", "HARDLY_ANY_MEMORY = 1, 2**60"
    )

    reason = ended_early(copied_lab)

    assert reason.startswith("failed: the machine ran short of memory: ")
    assert reason.endswith(" of the time")
    [run] = (copied_lab.results / "spoilt").glob("2*")
    assert (run / "spoilt" / "users" / "1" / "requests.parquet").exists()


@pytest.mark.usefixtures("nothing_left")
def test_a_lab_whose_parent_is_killed_ends_its_load(copied_lab: Lab) -> None:
    """As make is, or a terminal that is closed; nobody is left to interrupt it."""
    write_experiment(copied_lab, duration="2m")
    run = f"subprocess.run([sys.executable, '-m', 'lab', 'run', 'spoilt', '--results', {str(copied_lab.results)!r}])"
    command = f"{NOT_UNDER_NOHUP}; import subprocess, sys; {run}"
    environment = os.environ | {"PYTHONPATH": str(copied_lab.root), "NO_COLOR": "1"}
    said = copied_lab.root / "said.txt"
    with said.open("w") as file:
        parent = subprocess.Popen(
            [sys.executable, "-c", command], cwd=copied_lab.root, env=environment, stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not any(is_at_step(child.pid, "load") for child in psutil.Process(parent.pid).children()):
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.1)
        [lab] = psutil.Process(parent.pid).children()
    finally:
        parent.kill()
        parent.wait()

    deadline = time.monotonic() + ENDS_WITHIN_S
    while lab.is_running() and lab.status() != psutil.STATUS_ZOMBIE:  # its new parent may take long to notice
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)

    assert said.read_text().endswith(
        "The terminal was closed, or the parent process ended. Start the lab under nohup to keep it running.\n"
        "Interrupted. Nothing is left running; what was measured is kept.\n"
    )
    assert lab_objects() == []
    [folder] = (copied_lab.results / "spoilt").glob("2*")
    record = read_run(folder)
    assert (record.outcome, record.reason) == (
        "interrupted", "its terminal was closed, or its parent process ended",
    )  # fmt: skip

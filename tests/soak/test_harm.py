"""No experiment harms the machine: what outgrows its limit ends by name, and the machine answers meanwhile."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from python_on_whales import DockerClient

from tests.conftest import Lab, finish, lab_objects, wait_for_step
from tests.spoilt import answering, wait_for_requests, write_experiment

BALLAST = """
import sys, time, psutil
kept = []
while psutil.virtual_memory().available > 0.04 * psutil.virtual_memory().total:
    kept.append(bytearray(b"x" * 2**25))
print("full", flush=True)
time.sleep(120)
"""


@contextmanager
def little_memory() -> Iterator[None]:
    """Leave 4 % of the machine's memory to all others; whoever holds the rest is the first to go."""
    with subprocess.Popen([sys.executable, "-c", BALLAST], stdout=subprocess.PIPE, text=True) as ballast:
        try:
            Path(f"/proc/{ballast.pid}/oom_score_adj").write_text("1000")
            assert ballast.stdout
            assert ballast.stdout.readline() == "full\n"
            yield
        finally:
            ballast.kill()


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_and_a_clean_up_work_while_memory_is_short(copied_lab: Lab) -> None:
    write_experiment(copied_lab, duration="2m")
    copied_lab.edit(
        "stampede/docker/machine_usage.py", "HARDLY_ANY_MEMORY = 0.05, 1 * 2**30", "HARDLY_ANY_MEMORY = 0, 0"
    )
    copied_lab.edit("stampede/docker/machine_usage.py", "LITTLE_MEMORY = 0.1, 2 * 2**30", "LITTLE_MEMORY = 0, 0")
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        process = copied_lab.start("run", "spoilt")
        wait_for_step(process, "load")
        wait_for_requests(DockerClient())
        with little_memory(), answering():
            assert finish(process, how)[0] == code
            down = copied_lab.run("down")
            assert down.returncode == 0, down.stderr
        assert ("Removed what a killed run left behind" in down.stderr) == (how == signal.SIGKILL)
        assert lab_objects() == []

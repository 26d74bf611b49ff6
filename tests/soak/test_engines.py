"""tools/engines.sh: several engines on this machine, as if each had a machine of its own, and what becomes of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.paths import TOOLS
from tests.conftest import wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="making namespaces needs Linux and root"
)

NETWORK = "198.18.0."
FAULTS = ("kill", "crash", "pause", "cut")


def call(*command: str | Path) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def docker(n: int, *arguments: str) -> str:
    """Run a command of Docker on an engine of the cluster."""
    return call("docker", "--context", f"test-{n}", *arguments)


def up(folder: Path, count: int) -> None:
    """Make the cluster, or start what is missing of it."""
    call(TOOLS / "engines.sh", "up", str(count), folder)


def run_on(folder: Path, n: int, *command: str) -> str:
    """Run a command on an engine's machine."""
    return call("env", f"FOLDER={folder}", TOOLS / "engines.sh", "run", str(n), *command)


def traces(folder: Path) -> list[str]:
    """Return the contexts, processes and control groups of a cluster."""
    contexts = [one for one in call("docker", "context", "ls", "--quiet").split() if one.startswith("test-")]
    processes = [one for one in call("ps", "-e", "-w", "-w", "-o", "args").splitlines() if f"{folder}/" in one]
    return contexts + processes + [str(one) for one in Path("/sys/fs/cgroup").rglob("test-engine-*")]


def touched(folder: Path) -> list[str]:
    """Return what the cluster changed of this machine's own mounts, network and firewall."""
    mounts = [one for one in Path("/proc/mounts").read_text().splitlines() if str(folder) in one]
    links = [one for one in call("ip", "-oneline", "address").splitlines() if "port-" in one or NETWORK in one]
    return mounts + links + [one for one in call("iptables-save").splitlines() if NETWORK in one]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A place for a cluster, of which nothing is left after the test."""
    place = tmp_path / "test-engines"
    assert traces(place) == []
    yield place
    call(TOOLS / "engines.sh", "down", place)
    assert touched(place) == traces(place) == []
    assert not place.exists()


def test_up_repairs_every_fault_and_down_removes_engines_with_any_fault(folder: Path) -> None:
    """Whatever was done to an engine, `up` starts it. The fixture sees that nothing is left of it in the end."""
    up(folder, 2)
    for fault in FAULTS:
        call(TOOLS / "engines.sh", fault, "2", folder)
        up(folder, 2)
        assert docker(2, "info", "--format", "{{.Name}}") == "engine-2"
        wait_until(lambda: "LOWER_UP" in run_on(folder, 2, "ip", "link", "show", "eth0"))
    up(folder, len(FAULTS))

    for n, fault in enumerate(FAULTS, start=1):
        call(TOOLS / "engines.sh", fault, str(n), folder)

    assert len(traces(folder)) > 2 * len(FAULTS)
    assert touched(folder) == []

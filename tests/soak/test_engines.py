"""tools/engines.sh: several engines on this machine, as if each had a machine of its own, and what becomes of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stampede.paths import TOOLS
from tests.conftest import wait_until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="making namespaces needs Linux and root"
)

IMAGE = "stampede/client:trixie"
CLOSED = ("--init", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "1000:1000",
          "--cpuset-cpus", "0", "--memory", "256m", "--sysctl", "net.core.somaxconn=4096")  # fmt: skip
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
NETWORK = "198.18.0."
FAULTS = ("kill", "crash", "pause", "cut")


def call(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def docker(n: int, *arguments: str) -> str:
    return call("docker", "--context", f"test-{n}", *arguments)


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


def test_containers_on_two_engines_reach_each_other_and_neither_machine(folder: Path, tmp_path: Path) -> None:
    """The cluster carries what the lab needs of one: a closed network, aliases on every engine, and the whole box."""
    call(TOOLS / "engines.sh", "up", "2", folder)
    machines = yaml.safe_load((folder / "machines.yaml").read_text())["machines"]
    addresses = [f"198.18.0.{n}" for n in (1, 2)]
    docker(1, "network", "create", "--driver", "overlay", "--attachable", "--internal", "closed")
    call("docker", "save", "--output", tmp_path / "image.tar", IMAGE)
    for n in (1, 2):
        docker(n, "load", "--quiet", "--input", str(tmp_path / "image.tar"))
        docker(n, "run", "--detach", "--name", "app", *CLOSED, "--network", "closed", "--network-alias", "app",
               "--entrypoint", "python", IMAGE, "-m", "http.server", "8000")  # fmt: skip

    answers = docker(2, "exec", "app", "getent", "ahostsv4", "app").splitlines()
    found = {line.split()[0] for line in answers}

    assert list(machines) == ["engine-1", "engine-2"]
    assert len(found) == 2
    for address in found:
        docker(2, "exec", "app", "python", "-c", CONNECT, address, "8000")
    for address in addresses:
        with pytest.raises(AssertionError, match="Network is unreachable"):
            docker(2, "exec", "app", "python", "-c", CONNECT, address, "2377")


def test_up_repairs_every_fault_and_down_removes_engines_with_any_fault(folder: Path) -> None:
    """Whatever was done to an engine, `up` starts it. The fixture sees that nothing is left of it in the end."""
    linked = ("env", f"FOLDER={folder}", TOOLS / "engines.sh", "run", "2", "ip", "link", "show", "eth0")
    call(TOOLS / "engines.sh", "up", "2", folder)
    for fault in FAULTS:
        call(TOOLS / "engines.sh", fault, "2", folder)
        call(TOOLS / "engines.sh", "up", "2", folder)
        assert docker(2, "info", "--format", "{{.Name}}") == "engine-2"
        wait_until(lambda: "LOWER_UP" in call(*linked))
    call(TOOLS / "engines.sh", "up", str(len(FAULTS)), folder)

    for n, fault in enumerate(FAULTS, start=1):
        call(TOOLS / "engines.sh", fault, str(n), folder)

    assert len(traces(folder)) > 2 * len(FAULTS)
    assert touched(folder) == []

"""stampede bundle and its install.sh: one file from which a room without a network gets to its first verdict."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stampede import bundle
from stampede.paths import ROOT

ROOM = """
    hostname room
    ip link set lo up
    mount -t tmpfs none /run
    export HOME="$2/home"
    mkdir "$HOME"
    dockerd --data-root "$2/engine" > "$2/engine.log" 2>&1 &
    engine=$!
    trap 'kill $engine; wait $engine' EXIT
    until docker version > /dev/null 2>&1; do kill -0 $engine; sleep 0.2; done
    ! docker pull debian:trixie-slim > /dev/null 2>&1
    ! python3 -m pip download --quiet --dest "$2" typer > /dev/null 2>&1
    docker images --quiet
    tar -xf "$1" -C "$2"
    "$2/stampede-bundle/install.sh" "$2/lab"
    cd "$2/lab"
    make setup
    make experiment NAME=ten-at-once TRIALS=2
"""
"""From a bundle to a verdict, with an engine of its own that has no image, where no packet finds a way out."""


def test_a_room_without_a_network_gets_to_its_first_verdict(tmp_path: Path) -> None:
    """Nothing is pulled or built: the engine and the lab are in a network namespace that has only a loopback."""
    unshare = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc"]
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("needs root and dockerd")
    subprocess.run([sys.executable, "-m", "stampede", "bundle", "ten-at-once", "--pythons", bundle.this_python(),
                    "--to",
                    str(tmp_path / "bundle.tar")], cwd=ROOT, check=True)  # fmt: skip

    done = subprocess.run(
        [*unshare, "sh", "-ec", ROOM, "sh", str(tmp_path / "bundle.tar"), str(tmp_path)],
        env=os.environ | {"PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "reproduced" in done.stdout
    assert "Building" not in done.stderr
    assert "Pulling" not in done.stderr
    assert list((tmp_path / "lab" / "results" / "ten-at-once").glob("*/report.html"))

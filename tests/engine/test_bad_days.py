"""What goes wrong on real containers: a clear message, the right exit code, nothing lost and nothing left running."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stampede.records.folder import read_run, read_trial, trial_folder
from tests.conftest import Lab, finish, lab_objects, wait_for_line, wait_for_step, wait_until
from tests.spoilt import needs_root, small_disk

pytestmark = pytest.mark.usefixtures("nothing_left")
ONE = ("run", "heavy-mix", "--variants", "one-process", "--duration", "1s")


def reason(lab: Lab) -> str:
    record = read_trial(trial_folder(lab.latest(), "one-process", "heavy-mix", 1))
    assert record.outcome in ("failed", "interrupted")
    return record.reason or ""


def wait_for_points(lab: Lab) -> None:
    written = "heavy-mix/*/one-process/*/.1.part/points*"
    wait_until(lambda: any(points.stat().st_size for points in lab.results.glob(written)), every_s=0.1)


def verdicts(lab: Lab) -> dict[str, str]:
    summary = json.loads((lab.latest() / "summary.json").read_text())
    return {trial["variant"]: trial["verdict"] for trial in summary["trials"]}


def test_an_engine_that_stops_answering_in_the_middle(fast_lab: Lab, tmp_path: Path) -> None:
    """Through a door to the real engine that is shut while the load runs; when it opens again all is cleaned up."""
    with door_to_the_engine(tmp_path / "engine.sock") as shut:
        fast_lab.environment["DOCKER_HOST"] = f"unix://{tmp_path / 'engine.sock'}"
        process = fast_lab.start("run", "heavy-mix", "--variants", "one-process", "--duration", "8s")
        wait_for_step(process, "load")
        shut()
        code, out, _ = finish(process)

    assert code == 1
    assert reason(fast_lab).startswith("the container engine stopped answering: ")
    assert "Invalid: " in out
    assert lab_objects() != []
    del fast_lab.environment["DOCKER_HOST"]
    cleaned = fast_lab.run("down")
    assert cleaned.returncode == 0
    assert cleaned.stderr.startswith("Removed what a killed run left behind: stampede-heavy-mix-")


def test_an_interrupt_while_an_image_is_built(fast_lab: Lab) -> None:
    fast_lab.edit("servers/app/wsgi.py", "no framework", f"no framework ({time.time()})")
    process = fast_lab.start(*ONE)
    wait_for_line(process, "Building stampede/gunicorn:27.0.1 …")

    assert finish(process, signal.SIGINT)[0] == 130
    assert list(fast_lab.results.iterdir()) == []


def test_impatience_does_not_leave_anything_running(fast_lab: Lab) -> None:
    """Ctrl-C on a terminal reaches every process of the group, and comes more than once."""
    process = fast_lab.start("run", "heavy-mix", "--variants", "one-process", "--duration", "20s")
    wait_for_step(process, "load")
    wait_for_points(fast_lab)
    for _ in range(5):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)

    assert finish(process)[0] == 130
    assert lab_objects() == []
    assert fast_lab.leftovers() == []
    assert read_run(fast_lab.latest()).outcome == "interrupted"
    assert reason(fast_lab).startswith("interrupted at ")
    assert (trial_folder(fast_lab.latest(), "one-process", "heavy-mix", 1) / "requests.parquet").exists()
    assert verdicts(fast_lab) == {"one-process": "invalid"}


def test_a_killed_run_is_cleaned_up_by_the_next_command(fast_lab: Lab) -> None:
    """The next run waits until then, because two runs would disturb each other."""
    process = fast_lab.start("run", "heavy-mix", "--variants", "one-process", "--duration", "20s")
    wait_for_step(process, "load")
    following = fast_lab.start(*ONE)
    wait_for_line(following, f"Another run is measuring (process {process.pid}, since ")
    finish(process, signal.SIGKILL)
    assert lab_objects() != []

    code, _, said = finish(following)

    assert code == 0
    assert "Removed what a killed run left behind: stampede-heavy-mix-" in said
    assert "Closed the record of a killed run: " in said
    killed = [one for one in (fast_lab.results / "heavy-mix").iterdir() if one.resolve() != fast_lab.latest()]
    assert [(read_run(one).outcome, read_run(one).reason) for one in killed] == [("failed", "the lab was killed")]
    assert fast_lab.leftovers() == []
    assert (killed[0] / "one-process" / "heavy-mix" / "killed-1" / "points.json.gz").exists()


def test_what_somebody_started_by_hand_is_left_alone(fast_lab: Lab) -> None:
    by_hand = ["docker", "compose", "--project-name", "by-hand", "--profile", "gunicorn"]
    subprocess.run([*by_hand, "up", "--detach", "--wait"], cwd=fast_lab.root, check=True, capture_output=True)
    try:
        before = lab_objects()
        assert fast_lab.run("down").returncode == 0
        assert lab_objects() == before
    finally:
        subprocess.run([*by_hand, "down", "--timeout", "1"], cwd=fast_lab.root, check=True, capture_output=True)


@needs_root
def test_no_room_for_results_is_said_before_anything_starts(lab: Lab, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 20) as disk:
        lab.results = disk / "results"
        done = lab.run(*ONE)

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: There is no room for results: 20 MiB are free in {tmp_path}/disk/results, but a run needs 256 MiB.",
        "",
        "hint: Free some space, or choose another place: --results /path",
    ]


@contextmanager
def door_to_the_engine(path: Path) -> Iterator[Callable[[], None]]:
    """Listen on a socket that passes everything on to the engine, and yield how to shut it for good."""
    target = "/var/run/docker.sock"
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    door.listen(64)
    open_ones: list[socket.socket] = [door]

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(target)
            open_ones.extend((client, engine))
            for pair in ((client, engine), (engine, client)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    def shut() -> None:
        for one in open_ones:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        path.unlink(missing_ok=True)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield shut
    finally:
        shut()

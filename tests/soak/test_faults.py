"""Parts of the lab, the machine and the lab itself fail in the middle: docs/explain/reliability.md in tests.

In every case: no wrong number, what was measured is kept, nothing is left running, and the next run works.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from python_on_whales import DockerClient

from stampede.records.folder import read_run
from tests.conftest import Lab, finish, lab_objects, wait_for_line, wait_for_step
from tests.spoilt import fill, judged, needs_root, small_disk, wait_for_requests, write_experiment

OTHER_PLACE = "hint: Free some space, or choose another place: --results /path"


def runs(lab: Lab) -> list[Path]:
    return sorted(path.parent for path in lab.results.glob("spoilt/2*/run.json"))


def next_run_works(lab: Lab) -> None:
    """Measure once more: it is valid or suspect, nothing half-written is left and every run has its summary."""
    done = lab.run("run", "spoilt", "--duration", "1s")

    assert done.returncode == 0, done.stderr
    assert lab.leftovers() == []
    assert all((run / "summary.json").exists() and read_run(run).outcome != "running" for run in runs(lab))


@pytest.fixture
def spoilt(copied_lab: Lab) -> Lab:
    """A copy of the lab with an experiment of a few seconds."""
    write_experiment(copied_lab)
    return copied_lab


STAGES = ["starting the servers", "observing the servers", "starting the load", "load", "stopping the servers",
          "writing the report"]  # fmt: skip


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_to_the_lab_at_any_stage(spoilt: Lab, name: str, stage: str) -> None:
    process = spoilt.start("run", "spoilt")
    wait_for_step(process, stage)

    code, out, said = finish(process, signal.Signals[name])

    assert "Traceback" not in said
    assert "reproduced" not in out
    if name != "SIGKILL":
        assert code == 130
        assert said.endswith("Interrupted. Nothing is left running; what was measured is kept.\n")
        assert lab_objects() == []
    next_run_works(spoilt)
    first = runs(spoilt)[0]
    if stage in ("load", "stopping the servers", "writing the report"):
        assert [path.name for path in first.rglob("points.json.gz")] == ["points.json.gz"]
    if stage == "writing the report":
        [trial] = json.loads((first / "summary.json").read_text())["trials"]
        assert trial["verdict"] != "invalid"
        assert spoilt.run("verify", str(first)).returncode == 0
    else:
        assert read_run(first).outcome == ("failed" if name == "SIGKILL" else "interrupted")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_signal_to_the_lab_while_it_builds(spoilt: Lab, name: str) -> None:
    spoilt.edit("servers/app/wsgi.py", "no framework", f"no framework ({os.getpid()} {name})")
    process = spoilt.start("run", "spoilt")
    wait_for_line(process, "Building stampede/gunicorn")

    finish(process, signal.Signals[name])

    assert list(spoilt.results.glob("spoilt/*")) == []
    next_run_works(spoilt)


@needs_root
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("how", ["full", "read-only"])
@pytest.mark.parametrize("stage", ["starting the servers", "load", "stopping the servers", "writing the report"])
def test_a_disk_that_fails_at_any_stage(spoilt: Lab, tmp_path: Path, stage: str, how: str) -> None:
    with small_disk(tmp_path / "disk", 300) as disk:
        spoilt.results = disk / "results"
        process = spoilt.start("run", "spoilt")
        wait_for_step(process, stage)
        if how == "full":
            fill(disk / "filler")
        else:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)  # for the lab: k6 has files open
        code, out, said = finish(process)
        if how == "full":
            (disk / "filler").unlink()
        else:
            subprocess.run(["mount", "-o", "remount,bind,rw", str(disk)], check=True)
        there = list(disk.rglob("points.json.gz"))
        next_run_works(spoilt)
        kept = list(runs(spoilt)[0].rglob("points.json.gz"))

    assert "Traceback" not in said
    if code == 0:  # all was written before the disk failed
        assert stage == "writing the report"
        return
    assert code == 1
    problem = f"error: There is no room left for results in {disk}/results." if how == "full" else (
        f"error: Results cannot be written to {disk}/results: Read-only file system."
    )  # fmt: skip
    assert problem in said.splitlines() or "Invalid: " in out
    assert len(kept) == len(there)
    if stage in ("stopping the servers", "writing the report"):
        assert len(kept) == 1


@pytest.mark.usefixtures("nothing_left")
def test_four_runs_at_once_are_measured_one_after_the_other(spoilt: Lab) -> None:
    processes = [spoilt.start("run", "spoilt", "--duration", "1s") for _ in range(4)]

    assert [finish(process)[0] for process in processes] == [0, 0, 0, 0]

    times = sorted((read_run(run).began, read_run(run).ended or "") for run in runs(spoilt))
    assert len(times) == 4
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(times))


@pytest.mark.usefixtures("nothing_left")
def test_an_interrupt_while_another_run_is_waited_for(spoilt: Lab) -> None:
    first = spoilt.start("run", "spoilt", "--duration", "1s")
    wait_for_step(first, "starting the servers")
    second = spoilt.start("run", "spoilt", "--duration", "1s")
    wait_for_line(second, "Another run is measuring")

    assert finish(second, signal.SIGINT)[0] == 130
    assert finish(first)[0] == 0


class Engine:
    """A container engine of the test's own, out of sight of the machine's: other folders, another network namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix://{folder / 'engine.sock'}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = [
            f"--host={self.address}", f"--data-root={self.folder / 'data'}", f"--exec-root={self.folder / 'exec'}",
            f"--pidfile={self.folder / 'engine.pid'}", "--bridge=none",
        ]  # fmt: skip
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec dockerd "$@"', "dockerd", *options]
        deadline = time.monotonic() + 90
        while self.docker("version", check=False).returncode != 0:
            assert time.monotonic() < deadline, (self.folder / "engine.log").read_text()[-2000:]
            if self.process is None or self.process.poll() is not None:  # one that was killed may need a second start
                with (self.folder / "engine.log").open("ab") as log:
                    self.process = subprocess.Popen(command, stdout=log, stderr=log)
            time.sleep(0.2)

    def end(self, how: signal.Signals) -> None:
        """Signal the engine and wait until it is gone."""
        assert self.process
        self.process.send_signal(how)
        self.process.wait(timeout=60)

    def docker(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
        """Run the client with this engine."""
        command = ["docker", "--host", self.address, *arguments]
        return subprocess.run(command, check=check, capture_output=True)

    def take(self, *images: str) -> None:
        """Take images over from the machine's engine."""
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as saved:
            command = ["docker", "--host", self.address, "load"]
            subprocess.run(command, stdin=saved.stdout, check=True, capture_output=True)


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine that may be stopped. Its data lie where the machine's own do: not every file system carries them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="engine-") as folder:
        one = Engine(Path(folder))
        one.start()
        yield one
        one.end(signal.SIGTERM)
        running = list(psutil.process_iter(["cmdline"]))
        for shim in [process for process in running if folder in " ".join(process.info["cmdline"] or [])]:
            for process in [*shim.children(recursive=True), shim]:
                process.kill()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(folder)]):  # of the one that was killed
            subprocess.run(["umount", "--lazy", mount], check=True)


@needs_root
@pytest.mark.skipif(not shutil.which("dockerd"), reason="only the engine's program can be started")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_that_is_stopped_and_started(spoilt: Lab, engine: Engine, how: signal.Signals) -> None:
    write_experiment(spoilt, duration="10s")
    assert spoilt.run("setup").returncode == 0
    engine.take("debian:trixie-slim", "grafana/k6:2.1.0", "stampede/nginx:trixie", "stampede/gunicorn:27.0.1")
    spoilt.environment["DOCKER_HOST"] = engine.address
    process = spoilt.start("run", "spoilt")
    wait_for_step(process, "load")
    wait_for_requests(DockerClient(host=engine.address))

    engine.end(how)
    code, out, said = finish(process)

    assert code == 1
    assert "Traceback" not in said
    assert "Invalid: " in out
    verdict, reasons = judged(spoilt)
    assert verdict == "invalid"
    gone = "the container engine stopped answering: "  # one that is asked to stop ends the containers first
    assert reasons[0].startswith(f"failed: {gone}" if how is signal.SIGKILL else "failed: ")
    engine.start()
    next_run_works(spoilt)
    assert engine.docker("ps", "--all", "--quiet").stdout == b""


@needs_root
@pytest.mark.skipif(not shutil.which("dockerd"), reason="only the engine's program can be started")
@pytest.mark.parametrize("stage", ["starting the servers", "load"])
def test_an_engine_that_is_frozen_does_not_keep_the_lab_waiting(spoilt: Lab, engine: Engine, stage: str) -> None:
    """The run fails with this reason, and the lock is free again."""
    write_experiment(spoilt, duration="10s")
    assert spoilt.run("setup").returncode == 0
    engine.take("debian:trixie-slim", "grafana/k6:2.1.0", "stampede/nginx:trixie", "stampede/gunicorn:27.0.1")
    spoilt.environment["DOCKER_HOST"] = engine.address
    spoilt.edit("stampede/docker/client.py", "TOLD_WITHIN_S = 60", "TOLD_WITHIN_S = 6")
    spoilt.edit("stampede/run/trial/batch.py", "ASK_EVERY_S = 20", "ASK_EVERY_S = 1")
    process = spoilt.start("run", "spoilt")
    wait_for_step(process, stage)

    assert engine.process
    engine.process.send_signal(signal.SIGSTOP)
    try:
        code, out, said = finish(process)
    finally:
        engine.process.send_signal(signal.SIGCONT)

    assert code == 1
    assert "Traceback" not in said
    assert "Invalid: " in out
    verdict, reasons = judged(spoilt)
    assert verdict == "invalid"
    gone = "failed: the container engine stopped answering: it has not answered for 6 s: is it paused"
    assert reasons[0].startswith(gone)
    next_run_works(spoilt)
    assert engine.docker("ps", "--all", "--quiet").stdout == b""


@pytest.mark.usefixtures("nothing_left")
def test_results_that_vanish_during_the_load(spoilt: Lab) -> None:
    process = spoilt.start("run", "spoilt")
    wait_for_step(process, "load")
    shutil.rmtree(spoilt.results)

    code, out, said = finish(process)

    assert (code, out) == (1, "")
    assert said.splitlines()[-3:] == [
        f"error: Results cannot be written to {spoilt.results}: No such file or directory.",
        "",
        OTHER_PLACE,
    ]
    assert lab_objects() == []
    next_run_works(spoilt)

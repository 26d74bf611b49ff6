"""No experiment harms the machine: what outgrows its limit ends by name, and the machine answers meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread

import psutil
import pytest

from analysis.records.folder import read_run, read_trial, trial_folder
from tests.conftest import PATIENCE_S, Lab, copy_lab, finish, is_at_step, lab_objects, wait_for_step
from tests.spoilt import judged, tell_which, trials, write_experiment

ANSWERS_WITHIN_S = 5
"""Without limits a machine did not answer for 25 minutes; with them it answers within a tenth of a second, and later
where other machines share the processor."""
ENDS_WITHIN_S = 60
NOT_UNDER_NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
"""As the tests themselves may be."""


class Gaps:
    """How long the machine took at most to run a small program, again and again."""

    longest_s = 0.0

    def watch(self, over: Event) -> None:
        """Run ``date`` until it is over."""
        while not over.wait(0.02):
            began = time.monotonic()
            subprocess.run(["date"], stdout=subprocess.DEVNULL, check=True)
            self.longest_s = max(self.longest_s, time.monotonic() - began)


@contextmanager
def answering() -> Iterator[Gaps]:
    """Fail when the machine did not answer all the while."""
    gaps, over = Gaps(), Event()
    watching = Thread(target=gaps.watch, args=(over,))
    watching.start()
    try:
        yield gaps
    finally:
        over.set()
        watching.join()
    print(f"the machine answered within {gaps.longest_s:.2f} s")  # pytest -s shows it
    assert 0 < gaps.longest_s < ANSWERS_WITHIN_S


EXPERIMENT = """\
title: Variants that outgrow their limits
question: Is the one that does named?
loads:
  users:
    script: users.js
    duration: {short: 2m, full: 2m}
    settings: {users: 40, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0.5}
    variants: [k6, server, start]
  beside-a-client:
    script: users.js
    duration: {short: 2m, full: 2m}
    settings: {users: 8, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0.5}
    client: {script: silent.py, settings: {connections: 2, silent_s: 1}}
    variants: [plain]
  visits:
    script: visits.js
    database: {}
    duration: {short: 2m, full: 2m}
    settings: {first_per_s: 4, last_per_s: 4, step_s: 4, timeout_steps: 1, users_max: 20}
    variants: [database]
parallel: true
variants:
  plain:    {server: gunicorn-gthread, workers: 2, threads: 8}
  k6:       {server: gunicorn-gthread, workers: 2, threads: 8}
  server:   {server: gunicorn-gthread, workers: 2, threads: 9, memory_mib: 300}
  start:    {server: gunicorn-gthread, workers: 8, threads: 8, memory_mib: 64}
  database: {server: gunicorn-sync, app: django, workers: 2}
"""

GREED = "if (__ENV.WHICH === 'k6') kept.push(new Array(100000).fill(__ITER));"


@pytest.fixture(scope="module")
def greedy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A run of which every trial has a container that outgrows its limit, while the machine answers."""
    assert lab_objects() == []
    lab = copy_lab(tmp_path_factory.mktemp("greedy"))
    (lab.root / "experiments" / "spoilt.yaml").write_text(EXPERIMENT)
    tell_which(lab, LAB_K6_MEMORY="'64m' if name == 'k6' else factors['LAB_K6_MEMORY']")
    lab.edit("lab/limits.py", '"wsgi": 8', '"wsgi": 1')
    lab.edit("k6/users.js", "export function user() {", f"const kept = [];\n\nexport function user() {{\n  {GREED}")
    lab.edit("docker-compose.yml", "768m", "96m")
    lab.edit("clients/silent.py", "await connection.get()", "bytearray(2**30)")
    greed = 'if delay_s > 0.14 and os.environ.get("LAB_THREADS") == "9":\n        globals()["_kept"] = bytearray(2**30)'
    lab.edit("servers/app/workload.py", "return lambda: iter", f"{greed}\n    return lambda: iter")
    assert lab.run("setup").returncode == 0  # a build may take what it likes
    with answering():
        code, _, said = finish(lab.start("run", "spoilt"), patience_s=3 * ENDS_WITHIN_S)
    assert code == 1, said
    assert {one["verdict"] for one in trials(lab).values()} == {"invalid"}
    yield lab
    assert lab_objects() == []


def why_ended(lab: Lab, variant: str, load: str = "users") -> str:
    """Return why a trial failed; it did so early."""
    record = read_trial(trial_folder(lab.latest("spoilt"), variant, load, 1))
    began, ended = (datetime.fromisoformat(one) for one in (record.began, record.ended))
    assert (ended - began).total_seconds() < ENDS_WITHIN_S
    assert record.outcome == "failed"
    return record.reason or ""


def test_a_load_generator_that_outgrows_its_limit(greedy: Lab) -> None:
    assert why_ended(greedy, "k6") == (
        "k6 needed more memory than its limit of 64 MiB, which lab/limits.py computes from users, the rate and "
        "the duration"
    )


def test_a_server_that_outgrows_its_limit(greedy: Lab) -> None:
    assert why_ended(greedy, "server") == (
        "gunicorn needed more memory than its limit of 300 MiB, which the variant's memory_mib sets"
    )


def test_a_server_that_outgrows_its_limit_before_it_is_ready(greedy: Lab) -> None:
    """Its workers are killed and started anew for ever; nobody waits until the health check gives up."""
    assert why_ended(greedy, "start") == (
        "gunicorn needed more memory than its limit of 64 MiB, which the variant's memory_mib sets"
    )


def test_a_client_that_outgrows_its_limit(greedy: Lab) -> None:
    assert why_ended(greedy, "plain", "beside-a-client") == (
        "client needed more memory than its limit of 256 MiB, which mem_limit of client in docker-compose.yml sets"
    )


def test_a_database_that_outgrows_its_limit(greedy: Lab) -> None:
    assert why_ended(greedy, "database", "visits") == (
        "mariadb needed more memory than its limit of 96 MiB, which mem_limit of mariadb in docker-compose.yml sets"
    )


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

"""Every doubt is provoked for real, once: on real containers, and the lab says which number cannot be believed."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from python_on_whales import Container
from python_on_whales.exceptions import DockerException

from analysis.folder import read_run
from tests.conftest import PATIENCE_S, Lab, copy_lab, finish, lab_objects, wait_for_line
from tests.spoilt import container_of, judged, measure, tell_which, trials, write_experiment

pytestmark = pytest.mark.containers

EXPERIMENT = """\
title: Variants that are all spoilt but one
question: Does the lab notice?
loads:
  users:
    script: users.js
    duration: {short: 5s, full: 1m}
    settings: {users: 8, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0}
    variants: [fine, uncounted, lying, starved, dawdling, throttled, killed, overflowing, one-socket, two-sockets]
  too-many:
    script: arrivals.js
    duration: {short: 3s, full: 1m}
    settings: {rate_rps: 40, users_max: 4, delay_s: 0.5}
    variants: [plain]
  beside-a-client:
    script: users.js
    duration: {short: 2s, full: 1m}
    settings: {users: 8, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0}
    client: {script: silent.py, settings: {connections: 1, silent_s: 1}}
    variants: [plain]
parallel: true
variants:
  plain:       {server: gunicorn-gthread, workers: 2, threads: 8}
  fine:        {server: gunicorn-gthread, workers: 2, threads: 8}
  uncounted:   {server: gunicorn-gthread, workers: 2, threads: 8}
  lying:       {server: gunicorn-gthread, workers: 2, threads: 9}
  starved:     {server: gunicorn-gthread, workers: 2, threads: 8}
  dawdling:    {server: gunicorn-gthread, workers: 2, threads: 8}
  throttled:   {server: gunicorn-gthread, workers: 2, threads: 8, cpus: 0.1}
  killed:      {server: gunicorn-gthread, workers: 2, threads: 8, worker_class: acceptors.CountedThreads}
  overflowing: {server: gunicorn-gthread, workers: 1, threads: 1, worker_connections: 1, somaxconn: 1}
  one-socket:  {server: gunicorn-gthread, workers: 2, threads: 10, reuse_port: true}
  two-sockets: {server: gunicorn-gthread, workers: 2, threads: 11}
"""
UNCOUNTED = "if (__ENV.WHICH === 'uncounted') http.get(LAB_URL + path);"
BUSY = "const until = Date.now() + {ms}; while (Date.now() < until) {{}}"
DAWDLING = f"if (__ENV.WHICH === 'dawdling' && sequence % 4 === 0) {{ {BUSY.format(ms=150)} }}"
STARVED = f"if (__ENV.WHICH === 'starved') {{ {BUSY.format(ms=10)} }}"


@dataclass
class Spoilt:
    """A run whose trials were spoilt, each in its own way."""

    lab: Lab
    exit_code: int
    killed_worker: str

    def judged(self, which: str) -> tuple[str, list[str]]:
        """Return the verdict on a variant, or on plain under a load, and the reasons."""
        trial = trials(self.lab)[which]
        return trial["verdict"], trial["reasons"]

    def row(self, variant: str) -> dict[str, Any]:
        """Return what the worker that was killed counted."""
        counters = json.loads((self.lab.latest("spoilt") / "summary.json").read_text())["counters"]
        [row] = [
            one for one in counters if one["variant"] == variant and one["worker"].endswith(f":{self.killed_worker}")
        ]
        return dict(row["counts"])


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoilt]:
    """All variants under their load, side by side; in one of them a worker is killed meanwhile."""
    assert lab_objects() == []
    lab = copy_lab(tmp_path_factory.mktemp("spoilt"))
    (lab.root / "experiments" / "spoilt.yaml").write_text(EXPERIMENT)
    tell_which(lab, LAB_K6_CPUS="'0.1' if name == 'starved' else '0'")
    lab.edit("docker-compose.yml", "    profiles: [load]\n", "    profiles: [load]\n    cpus: ${LAB_K6_CPUS:-0}\n")
    lab.edit("k6/lib/request.js", "  const response =", f"  {UNCOUNTED}\n  {DAWDLING}\n  const response =")
    lab.edit("k6/users.js", "  const delayS =", f"  {STARVED}\n  const delayS =")
    told = 'os.environ.get("LAB_THREADS")'
    lab.edit("servers/app/workload.py", '"worker": os.getpid()', f'"worker": 77 if {told} == "9" else os.getpid()')
    reuse = 'os.environ["LAB_REUSE_PORT"] == "true"'
    lab.edit("servers/gunicorn/gunicorn.conf.py", reuse, f'({reuse}) != ({told} in ("10", "11"))')
    lab.edit("clients/silent.py", 'number("SILENT_S", 0.1)', 'number("SILENT_S", 5)')
    process = lab.start("run", "spoilt", "--jobs", "10")
    server = under_load("killed")
    [worker, *_] = str(server.execute(["sh", "-c", "ls /tmp/workers"])).split()
    server.execute(["sh", "-c", f"kill -9 {worker}"])
    yield Spoilt(lab, finish(process)[0], worker)
    lab.end()
    assert lab_objects() == []


def under_load(variant: str) -> Container:
    """Wait until the workers of a variant have counted some requests, and return its server's container."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server := container_of(variant, "gunicorn"):
            with suppress(DockerException):  # it is being started
                said = str(server.execute(["sh", "-c", "cat /tmp/workers/* 2>/dev/null || true"])).splitlines()
                if sum(int(count) for name, count in map(str.split, said) if name == "served") > 20:
                    return server
        time.sleep(0.1)
    pytest.fail(f"{variant} served nothing within {PATIENCE_S} s")


def of_the_lab(reasons: list[str]) -> list[str]:
    """Return the reasons that are not about what else this machine does while it is tested."""
    others = ("the machine was ", "something waited ", "other machines ", "the load generator waited ")
    return [reason for reason in reasons if not reason.startswith(others)]


def only(reasons: list[str], start: str) -> str:
    """Return the reason that begins so."""
    [found] = [reason for reason in reasons if reason.startswith(start)]
    return found


def test_nothing_is_doubted_when_nothing_is_wrong(spoilt: Spoilt) -> None:
    """The control: the same load without any trouble, while all others have it."""
    verdict, reasons = spoilt.judged("fine")

    assert verdict in ("valid", "suspect")
    assert of_the_lab(reasons) == []
    assert spoilt.exit_code == 1


def test_a_request_that_has_no_row_is_missed_by_nginx_and_the_workers(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("uncounted")

    assert verdict == "invalid"
    sent = int(reasons[0].split()[3])
    assert reasons[0] == (
        f"the counts disagree: {sent} requests were sent and {sent} answered, the balancer served {2 * sent}"
    )
    assert any(" answers name worker " in reason for reason in reasons)


def test_an_answer_that_names_the_wrong_worker_is_seen_by_that_workers_own_count(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("lying")

    assert verdict == "invalid"
    assert any(" answers name worker " in reason and ":77, which counted 0" in reason for reason in reasons)


def test_iterations_that_the_load_generator_dropped(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("too-many")

    assert verdict == "invalid"
    assert only(reasons, "the load generator dropped ").endswith("% of what it should have sent")


def test_a_load_generator_short_of_processor_time(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("starved")

    assert verdict == "suspect"
    assert only(reasons, "the load generator waited for a processor ")


def test_a_load_generator_that_dawdles_between_asking_and_timing(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("dawdling")

    assert verdict == "suspect"
    assert only(reasons, "Little's law does not hold: ")


def test_a_server_that_its_limit_keeps_from_computing(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("throttled")

    assert verdict == "suspect"
    assert only(reasons, "gunicorn-1 was kept from computing by its limit for ")


def test_a_worker_that_is_killed_and_replaced(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("killed")

    assert verdict == "invalid"
    assert f"gunicorn-1 lost worker {spoilt.killed_worker} during the load" in reasons
    assert only(reasons, "gunicorn-1 started worker ")


def test_what_a_killed_worker_counted_is_kept(spoilt: Spoilt) -> None:
    """Its attempts to accept are in the trial's files and in the summary, though the trial is invalid."""
    counted = spoilt.row("killed")

    assert counted["accept_attempts"] >= counted["accepted"] + counted["accept_failures"] > 0
    said = spoilt.lab.latest("spoilt") / "killed" / "users" / "1" / "gunicorn-1.after.txt"
    assert f"==> worker {spoilt.killed_worker} <==" in said.read_text()


def test_a_listen_queue_that_overflows(spoilt: Spoilt) -> None:
    """One thread that takes no connection while it is busy, and a queue of one."""
    verdict, reasons = spoilt.judged("overflowing")

    assert verdict == "suspect"
    assert only(reasons, "the listen queue of gunicorn-1 was full for ").endswith(" connections")


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("one-socket", "hold 1 listening socket, not a socket of their own each"),
        ("two-sockets", "hold 2 listening sockets, not one socket that all share"),
    ],
)
def test_another_accept_model_than_the_variants(spoilt: Spoilt, variant: str, reason: str) -> None:
    verdict, reasons = spoilt.judged(variant)

    assert verdict == "invalid"
    assert of_the_lab(reasons) == [f"the workers of gunicorn-1 {reason}"]


def test_a_client_that_refuses_its_settings(spoilt: Spoilt) -> None:
    """The trial measured k6's requests beside nobody, which is not what was asked for."""
    verdict, reasons = spoilt.judged("beside-a-client")

    assert verdict == "invalid"
    assert reasons[0] == "failed: the client ended with exit code 2: SILENT_S=1 is not a number >= 5"


@pytest.mark.usefixtures("nothing_left")
def test_a_machine_short_of_processor_time(copied_lab: Lab) -> None:
    write_experiment(copied_lab)
    process = copied_lab.start("run", "spoilt")
    wait_for_line(process, "load ")
    program = "import time\nend = time.monotonic() + 8\nwhile time.monotonic() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(8)]
    finish(process)
    for other in others:
        other.terminate()
        other.wait()

    verdict, reasons = judged(copied_lab)

    assert verdict == "suspect"
    assert only(reasons, "something waited for a processor during ").endswith("% of the load")
    assert any(
        reason.startswith("the machine was ") and reason.endswith("% busy during the load") for reason in reasons
    )


@pytest.mark.usefixtures("nothing_left")
def test_a_clock_that_is_set(copied_lab: Lab) -> None:
    """No test may set the clock of somebody's machine: the lab's own reading of it jumps instead."""
    write_experiment(copied_lab, duration="2s")
    copied_lab.edit("lab/machine/watch.py", "round(time.time() -", "round(3.5 + time.time() -")

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    assert of_the_lab(reasons) == ["the clock was set by +3.50 s during the load"]


@pytest.mark.usefixtures("nothing_left")
def test_a_variant_against_itself_shows_what_chance_alone_does(copied_lab: Lab) -> None:
    write_experiment(copied_lab, duration="2s")

    done = copied_lab.run("aa", "spoilt", "--trials", "2")

    run = (copied_lab.results / "spoilt-aa" / "latest").resolve()
    differences = json.loads((run / "summary.json").read_text())["differences"]
    assert done.returncode == 0, done.stderr
    assert [path.parent.parent.parent.name for path in sorted(run.glob("*/*/*/trial.json"))] == ["a", "a", "b", "b"]
    assert "The smallest difference that this machine can tell" in done.stdout
    assert {("user", "overhead", "p50"), ("user", "throughput", "per_second")} <= {
        (row["request"], row["metric"], row["stat"]) for row in differences
    }
    assert all(row["smallest"] >= max(0, row["low"], -row["high"]) for row in differences)
    assert read_run(run).command == "make aa NAME=spoilt TRIALS=2"

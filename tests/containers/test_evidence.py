"""Every doubt is provoked for real, once: on real containers, and the lab says which number cannot be believed."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from python_on_whales import Container
from python_on_whales.exceptions import DockerException

from tests.conftest import PATIENCE_S, Lab, copy_lab, finish, lab_objects, wait_for_step
from tests.spoilt import container_of, judged, tell_which, trials, write_experiment
from tests.synthetic import Request, make_run

EXPERIMENT = """\
title: Variants that are all spoilt but one
question: Does the lab notice?
loads:
  users:
    script: users.js
    duration: {short: 6s, full: 1m}
    settings: {users: 8, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0.2}
    variants: [fine, uncounted, lying, starved, dawdling, throttled, overflowing, one-socket, two-sockets,
               worker-killed, server-killed, balancer-killed, process-of-k6-killed, k6-killed]
  too-many:
    script: arrivals.js
    duration: {short: 3s, full: 1m}
    settings: {rate_rps: 40, users_max: 4, delay_s: 0.5}
    variants: [plain]
  beside-a-client:
    script: users.js
    duration: {short: 2s, full: 1m}
    settings: {users: 8, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0.2}
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
  throttled:   {server: gunicorn-gthread, workers: 2, threads: 12, cpus: 0.1}
  overflowing: {server: gunicorn-gthread, workers: 1, threads: 1, worker_connections: 1, somaxconn: 1}
  one-socket:  {server: gunicorn-gthread, workers: 2, threads: 10, reuse_port: true}
  two-sockets: {server: gunicorn-gthread, workers: 2, threads: 11}
  worker-killed:   {server: gunicorn-gthread, workers: 2, threads: 8, worker_class: acceptors.CountedThreads}
  server-killed:   {server: gunicorn-gthread, workers: 2, threads: 8}
  balancer-killed: {server: gunicorn-gthread, workers: 2, threads: 8}
  k6-killed:       {server: gunicorn-gthread, workers: 2, threads: 8}
  process-of-k6-killed: {server: gunicorn-gthread, workers: 2, threads: 8}
"""
KILL_K6 = 'for one in /proc/[0-9]*; do read -r name < $one/comm; [ "$name" != k6 ] || kill -9 ${one#/proc/}; done'
UNCOUNTED = "if (__ENV.WHICH === 'uncounted') http.get(LAB_URL + path);"
BUSY = "const until = Date.now() + {ms}; while (Date.now() < until) {{}}"
DAWDLING = f"if (__ENV.WHICH === 'dawdling' && sequence % 4 === 0) {{ {BUSY.format(ms=150)} }}"
STARVED = f"if (__ENV.WHICH === 'starved') {{ {BUSY.format(ms=20)} }}"


@dataclass
class Spoilt:
    """A run whose trials were spoilt, each in its own way."""

    lab: Lab
    exit_code: int
    said: str
    killed_worker: str
    older: dict[Path, bytes]

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
    """All variants under their loads, side by side; of five of them something is killed meanwhile.

    Beside the run lies another one, which another version of the lab wrote.
    """
    assert lab_objects() == []
    lab = copy_lab(tmp_path_factory.mktemp("spoilt"))
    (lab.root / "experiments" / "spoilt.yaml").write_text(EXPERIMENT)
    tell_which(lab, LAB_K6_CPUS="'0.2' if name == 'starved' else '0'")
    lab.edit("docker-compose.yml", "    profiles: [load]\n", "    profiles: [load]\n    cpus: ${LAB_K6_CPUS:-0}\n")
    lab.edit("k6/lib/request.js", "  const response =", f"  {UNCOUNTED}\n  {DAWDLING}\n  const response =")
    lab.edit("k6/users.js", "  const delayS =", f"  {STARVED}\n  const delayS =")
    told = 'os.environ.get("LAB_THREADS")'
    lab.edit("servers/app/workload.py", '"worker": os.getpid()', f'"worker": 77 if {told} == "9" else os.getpid()')
    reuse = 'os.environ["LAB_REUSE_PORT"] == "true"'
    lab.edit("servers/gunicorn/gunicorn.conf.py", reuse, f'({reuse}) != ({told} in ("10", "11"))')
    slow = f'if {told} == "12":\n        sum(range(500_000))\n    return lambda: iter'
    lab.edit("servers/app/workload.py", "return lambda: iter", slow)
    lab.edit("clients/silent.py", 'number("SILENT_S")', 'number("SILENT_FOR_S")')
    older = content(older_run(lab.results))
    left = lab.leftovers()
    process = lab.start("run", "spoilt", "--jobs", "14")
    try:
        wait_for_step(process, "load")
        worker = kill()
    finally:
        code, _, said = finish(process)
    yield Spoilt(lab, code, said, worker, older)
    assert lab_objects() == []
    assert lab.leftovers() == left


def kill() -> str:
    """Kill what is to be killed, each under its own load, and return the process id of the worker that was."""
    with ThreadPoolExecutor(5) as pool:
        worker = pool.submit(kill_a_worker)
        killed: list[Future[Any]] = [
            pool.submit(lambda: under_load("server-killed").kill()),
            pool.submit(lambda: under_load_there("balancer-killed", "nginx").kill()),
            pool.submit(lambda: under_load_there("k6-killed", "k6").kill()),
            pool.submit(lambda: kill_k6(under_load_there("process-of-k6-killed", "k6"))),
        ]
    for one in killed:
        one.result()
    return worker.result()


def kill_a_worker() -> str:
    """Kill a worker once there is load, and return its process id."""
    server = under_load("worker-killed")
    [worker, *_] = str(server.execute(["sh", "-c", "ls /tmp/workers"])).split()
    server.execute(["sh", "-c", f"kill -9 {worker}"])
    return worker


def under_load_there(variant: str, service: str) -> Container:
    """Wait until the workers of a variant have counted some requests, and return the container of another service."""
    under_load(variant)
    found = container_of(variant, service)
    assert found
    return found


def kill_k6(container: Container) -> None:
    """Kill k6 itself, which is not the first process of its container."""
    with suppress(DockerException):  # the shell ends with the container
        container.execute(["sh", "-c", KILL_K6])


def older_run(results: Path) -> Path:
    """Write a run that another version wrote, and that was killed while a second trial was measured."""
    run = make_run(results / "spoilt" / "20200102T030405Z", {"one": [Request()]})
    (run / "one" / "mix" / ".2.part").mkdir()
    (run / "one" / "mix" / ".2.part" / "points.json.gz").write_bytes(b"what k6 wrote")
    for name in ("run.json", "summary.json"):
        (run / name).write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"schema": 0}))
    return run


def content(folder: Path) -> dict[Path, bytes]:
    """Return all files of a folder."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def under_load(variant: str) -> Container:
    """Wait until the workers of a variant have counted some requests, and return its server's container."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server := container_of(variant, "gunicorn"):
            with suppress(DockerException):  # it is being started
                said = str(server.execute(["sh", "-c", "cat /tmp/workers/* 2>/dev/null || true"])).splitlines()
                if sum(int(count) for name, count in map(str.split, said) if name == "served") > 20:
                    return server
        time.sleep(0.3)
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
    verdict, reasons = spoilt.judged("worker-killed")

    assert verdict == "invalid"
    assert f"gunicorn-1 lost worker {spoilt.killed_worker} during the load" in reasons
    assert only(reasons, "gunicorn-1 started worker ")


def test_what_a_killed_worker_counted_is_kept(spoilt: Spoilt) -> None:
    """Its attempts to accept are in the trial's files and in the summary, though the trial is invalid."""
    counted = spoilt.row("worker-killed")

    assert counted["accept_attempts"] >= counted["accepted"] + counted["accept_failures"] > 0
    said = spoilt.lab.latest("spoilt") / "worker-killed" / "users" / "1" / "gunicorn-1.after.txt"
    assert f"==> worker {spoilt.killed_worker} <==" in said.read_text()


@pytest.mark.parametrize("variant", ["process-of-k6-killed", "k6-killed"])
def test_a_load_generator_that_is_killed(spoilt: Spoilt, variant: str) -> None:
    verdict, [reason, *_] = spoilt.judged(variant)

    assert verdict == "invalid"
    assert reason.startswith("failed: k6 ended with exit code 137: ")
    assert (spoilt.lab.latest("spoilt") / variant / "users" / "1" / "points.json.gz").exists()


@pytest.mark.parametrize(("variant", "service"), [("server-killed", "gunicorn"), ("balancer-killed", "nginx")])
def test_a_container_that_is_killed(spoilt: Spoilt, variant: str, service: str) -> None:
    verdict, [reason, *_] = spoilt.judged(variant)

    assert verdict == "invalid"
    assert reason == f"failed: {service} ended during the load with exit code 137"
    assert (spoilt.lab.latest("spoilt") / variant / "users" / "1" / "requests.parquet").exists()


def test_a_run_of_an_older_schema_is_left_as_it_is(spoilt: Spoilt) -> None:
    """Also by a new run beside it."""
    assert "Closed the record" not in spoilt.said
    assert content(spoilt.lab.results / "spoilt" / "20200102T030405Z") == spoilt.older


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
    assert reasons[0] == (
        "failed: the client ended with exit code 2: SILENT_FOR_S is not set; the .env file beside the script has an "
        "example"
    )


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The verdict on a trial beside which others compute, and whose clock jumps.

    No test may set the clock of somebody's machine: the lab's own reading of it jumps instead.
    """
    assert lab_objects() == []
    lab = copy_lab(tmp_path_factory.mktemp("short"))
    write_experiment(lab)
    lab.edit("lab/engine/cluster/engines.py", "clock_step_s = time.time() -", "clock_step_s = 3.5 + time.time() -")
    process = lab.start("run", "spoilt")
    wait_for_step(process, "load")
    program = "import time\nend = time.monotonic() + 8\nwhile time.monotonic() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(8)]
    try:
        assert finish(process)[0] == 1
    finally:
        for other in others:
            other.terminate()
            other.wait()
    yield judged(lab)
    assert lab_objects() == []


def test_a_machine_short_of_processor_time(short: tuple[str, list[str]]) -> None:
    _, reasons = short

    assert only(reasons, "something waited for a processor during ").endswith("% of the load")
    assert any(
        reason.startswith("the machine was ") and reason.endswith("% busy during the load") for reason in reasons
    )


def test_a_clock_that_is_set(short: tuple[str, list[str]]) -> None:
    verdict, reasons = short

    assert verdict == "invalid"
    assert reasons[0] == "the clock was set by +3.50 s during the load"

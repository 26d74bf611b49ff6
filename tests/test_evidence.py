"""Every doubt is provoked for real, once: on real containers, and the lab says which number cannot be believed."""

import json
import subprocess
import sys

import pytest

from analysis.folder import read_run
from tests.conftest import Lab, finish, wait_for_line
from tests.spoilt import GTHREAD, judged, measure, under_load, write_experiment

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("nothing_left")]


def of_the_lab(reasons: list[str]) -> list[str]:
    """Return the reasons that are not about what else this machine does while it is tested."""
    others = ("the machine was ", "something waited ", "other machines ", "the load generator waited ")
    return [reason for reason in reasons if not reason.startswith(others)]


def only(reasons: list[str], start: str) -> str:
    """Return the reason that begins so."""
    [found] = [reason for reason in reasons if reason.startswith(start)]
    return found


def test_nothing_is_doubted_when_nothing_is_wrong(copied_lab: Lab) -> None:
    """The control: the same experiment without any trouble."""
    write_experiment(copied_lab)

    assert of_the_lab(measure(copied_lab)[1]) == []


def test_a_request_that_has_no_row_is_missed_by_nginx_and_the_workers(copied_lab: Lab) -> None:
    write_experiment(copied_lab)
    copied_lab.edit("k6/lib/request.js", "  const response =", "  http.get(LAB_URL + path);\n  const response =")

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    sent = int(reasons[0].split()[3])
    assert reasons[0] == (
        f"the counts disagree: {sent} requests were sent and {sent} answered, the balancer served {2 * sent}"
    )
    assert any(" answers name worker " in reason for reason in reasons)


def test_an_answer_that_names_the_wrong_worker_is_seen_by_that_workers_own_count(copied_lab: Lab) -> None:
    write_experiment(copied_lab)
    copied_lab.edit("servers/app/workload.py", '"worker": os.getpid()', '"worker": 77')

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    assert any(" answers name worker " in reason and ":77, which counted 0" in reason for reason in reasons)


def test_iterations_that_the_load_generator_dropped(copied_lab: Lab) -> None:
    settings = "{rate_rps: 40, users_max: 4, delay_s: 0.5}"
    write_experiment(copied_lab, script="arrivals.js", settings=settings)

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    assert only(reasons, "the load generator dropped ").endswith("% of what it should have sent")


def test_a_load_generator_short_of_processor_time(copied_lab: Lab) -> None:
    write_experiment(copied_lab, settings="{users: 8, delay_min_s: 0, delay_max_s: 0.01, pause_s: 0}")
    copied_lab.edit("docker-compose.yml", "    profiles: [load]\n", "    profiles: [load]\n    cpus: 0.1\n")

    verdict, reasons = measure(copied_lab)

    assert verdict == "suspect"
    assert only(reasons, "the load generator waited for a processor ")


def test_a_load_generator_that_dawdles_between_asking_and_timing(copied_lab: Lab) -> None:
    write_experiment(copied_lab)
    dawdle = "if (sequence % 4 === 0) { const until = Date.now() + 150; while (Date.now() < until) {} }"
    copied_lab.edit("k6/lib/request.js", "  const response =", f"  {dawdle}\n  const response =")

    verdict, reasons = measure(copied_lab)

    assert verdict == "suspect"
    assert only(reasons, "Little's law does not hold: ")


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


def test_a_server_that_its_limit_keeps_from_computing(copied_lab: Lab) -> None:
    write_experiment(copied_lab, "{server: gunicorn-gthread, workers: 2, threads: 8, cpus: 0.05}")

    verdict, reasons = measure(copied_lab)

    assert verdict == "suspect"
    assert only(reasons, "gunicorn-1 was kept from computing by its limit for ")


def kill_a_worker(lab: Lab) -> str:
    """Measure the experiment, kill a worker under load and return its process id."""
    with under_load(lab, "gunicorn") as server:
        [worker, *_] = str(server.execute(["sh", "-c", "ls /tmp/workers"])).split()
        server.execute(["sh", "-c", f"kill -9 {worker}"])
    return worker


def test_a_worker_that_is_killed_and_replaced(copied_lab: Lab) -> None:
    write_experiment(copied_lab, duration="6s")
    worker = kill_a_worker(copied_lab)

    verdict, reasons = judged(copied_lab)

    assert verdict == "invalid"
    assert f"gunicorn-1 lost worker {worker} during the load" in reasons
    assert only(reasons, "gunicorn-1 started worker ")


@pytest.mark.soak
def test_what_a_killed_worker_counted_is_kept(copied_lab: Lab) -> None:
    """Its attempts to accept are in the trial's files and in the summary, though the trial is invalid."""
    write_experiment(copied_lab, GTHREAD.replace("}", ", worker_class: acceptors.CountedThreads}"), duration="6s")
    worker = kill_a_worker(copied_lab)

    latest = (copied_lab.results / "spoilt" / "latest").resolve()
    [killed] = [
        row["counts"]
        for row in json.loads((latest / "summary.json").read_text())["counters"]
        if row["worker"].endswith(f":{worker}")
    ]
    assert killed["accept_attempts"] >= killed["accepted"] + killed["accept_failures"] > 0
    assert f"==> worker {worker} <==" in (latest / "spoilt/users/1/gunicorn-1.after.txt").read_text()


def test_a_listen_queue_that_overflows(copied_lab: Lab) -> None:
    """One thread that takes no connection while it is busy, and a queue of one."""
    write_experiment(
        copied_lab,
        "{server: gunicorn-gthread, workers: 1, threads: 1, worker_connections: 1, somaxconn: 1}",
        settings="{users: 6, delay_min_s: 0.01, delay_max_s: 0.02, pause_s: 0}",
    )

    verdict, reasons = measure(copied_lab)

    assert verdict == "suspect"
    assert only(reasons, "the listen queue of gunicorn-1 was full for ").endswith(" connections")


@pytest.mark.parametrize(
    ("asked", "instead", "reason"),
    [
        ("reuse_port: true", "False", "hold 1 listening socket, not a socket of their own each"),
        pytest.param(
            "reuse_port: false",
            "True",
            "hold 2 listening sockets, not one socket that all share",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_another_accept_model_than_the_variants(copied_lab: Lab, asked: str, instead: str, reason: str) -> None:
    write_experiment(copied_lab, GTHREAD.replace("}", f", {asked}}}"), duration="2s")
    copied_lab.edit("servers/gunicorn/gunicorn.conf.py", 'os.environ["LAB_REUSE_PORT"] == "true"', instead)

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    assert of_the_lab(reasons) == [f"the workers of gunicorn-1 {reason}"]


def test_a_clock_that_is_set(copied_lab: Lab) -> None:
    """No test may set the clock of somebody's machine: the lab's own reading of it jumps instead."""
    write_experiment(copied_lab, duration="2s")
    copied_lab.edit("lab/machine/watch.py", "round(time.time() -", "round(3.5 + time.time() -")

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    assert of_the_lab(reasons) == ["the clock was set by +3.50 s during the load"]


def test_a_client_that_refuses_its_settings(copied_lab: Lab) -> None:
    """The trial measured k6's requests beside nobody, which is not what was asked for."""
    write_experiment(copied_lab, duration="2s")
    client = "parallel: true", "  client: {script: silent.py, settings: {connections: 1, silent_s: 1}}\nparallel: true"
    copied_lab.edit("experiments/spoilt.yaml", *client)
    copied_lab.edit("clients/silent.py", 'number("SILENT_S", 0.1)', 'number("SILENT_S", 5)')

    verdict, reasons = measure(copied_lab)

    assert verdict == "invalid"
    assert reasons[0] == "failed: the client ended with exit code 2: SILENT_S=1 is not a number >= 5"


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


def test_one_trial_against_itself_is_refused(copied_lab: Lab) -> None:
    write_experiment(copied_lab)

    done = copied_lab.run("aa", "spoilt", "--trials", "1")

    assert (done.returncode, done.stderr) == (
        2, "error: One trial of each has no spread to compare with.\n\nhint: TRIALS=5\n",
    )  # fmt: skip

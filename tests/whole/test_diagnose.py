"""Who waited in production, from logs: the truth of simulated requests, of stored runs, and of a public report."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html import unescape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from rich.console import Console

from stampede.diagnosis.model import Limit
from stampede.errors import WrongUse
from stampede.evaluate.metrics.waiting import Answered, avoidable_waits
from stampede.logs import columns, reading
from stampede.logs.diagnose.capacity import Capacity, capacity_of
from stampede.logs.diagnose.diagnosis import Asked, Diagnosis, diagnose_logs
from stampede.logs.diagnose.findings import Cause, Findings, findings_of
from stampede.logs.diagnose.logs import logs_of
from stampede.logs.diagnose.page import diagnosis_page
from stampede.logs.diagnose.replayed import Replay, around_longest, replay
from stampede.logs.diagnose.replayed import Served as Way
from stampede.logs.diagnose.requests import Requests, requests_of
from stampede.logs.diagnose.screen import as_values, cures_in_words, findings_in_words, print_diagnosis
from stampede.logs.formats import KNOWN
from stampede.logs.identity import find_identity
from stampede.logs.reading import Reader
from stampede.paths import ROOT
from stampede.predict.options import OPTION_KINDS
from stampede.predict.symptoms import PAGE, SYMPTOMS
from stampede.predict.system import servers_of
from stampede.records.run import Queueing, VariantRecord
from stampede.theory.model import Class, Closed, Constant, QueueingSystem, Uniform, WorkStep
from stampede.theory.simulate import simulate
from tests.conftest import Lab
from tools.production_logs import Served, Writing, write_logs

BEGAN = 1_795_000_000.0
WORKERS, THREADS, SECONDS = 4, 2, 120
QUEUES_INSIDE = ("shared socket", "reuse_port")


def simulated(classes: Sequence[Class], threads: int, max_connections: int) -> tuple[Served, ...]:
    """Return the requests of classes to gunicorn's workers."""
    settings = {"server": "gunicorn-gthread", "workers": WORKERS, "threads": threads}
    queueing = Queueing(threads=threads, max_connections=max_connections)
    variant = VariantRecord(name="v", workers=WORKERS, accept="shared", queueing=queueing, settings=settings)
    rows = simulate(QueueingSystem(servers_of(variant), classes), SECONDS, 1)
    columns = zip(rows.of_class, rows.sent, rows.began, rows.ended, rows.worker, strict=True)
    return tuple(served(classes[of].name, sent, began, ended, worker) for of, sent, began, ended, worker in columns)


@cache
def serve(*, accepts_busy: bool = True) -> tuple[Served, ...]:
    """Return the requests of a simulated service: five users of quick requests, and two users of slow requests."""
    quick = Class("quick", Closed(5, Constant(0.0)), [WorkStep(Uniform(0.05, 0.9))])
    slow = Class("slow", Closed(2, Constant(0.0)), [WorkStep(Uniform(4.0, 6.0))])
    return simulated([quick, slow], THREADS, 1000 if accepts_busy else THREADS)


@cache
def quick_service(users: int) -> tuple[Served, ...]:
    """Return the requests of users who ask four workers for at most 0.1 s of work, and wait only if all are busy."""
    return simulated([Class("quick", Closed(users, Constant(0.05)), [WorkStep(Uniform(0.0, 0.1))])], 1, 1)


def served(request_class: str, sent: float, began: float, ended: float, worker: int) -> Served:
    """Return a request; the balancer notes its end 0.4 ms after the server."""
    sent, began, ended = (BEGAN + time for time in (sent, began, ended))
    return Served(request_class, sent, ended + 0.0004, began, ended, f"app:{worker + 50}", "r")


@cache
def truth(*, accepts_busy: bool = True) -> tuple[np.ndarray, float]:
    """Return how long simulated requests waited, and the share that waited avoidably for more than 50 ms."""
    requests = serve(accepts_busy=accepts_busy)
    sent, began, ended = (np.array([getattr(request, name) for request in requests]) - BEGAN
                          for name in ("sent", "began", "ended"))  # fmt: skip
    names = sorted({request.worker for request in requests})
    worker = np.array([names.index(request.worker) for request in requests])
    answered = Answered(names, [], 0.0, float(ended.max()), float(sent[-1]), worker, worker, sent, began, ended)
    return began - sent, float((avoidable_waits(answered, WORKERS, THREADS).beside_s > 0.05).mean())


@pytest.fixture(scope="module", autouse=True)
def small_sample() -> Iterator[None]:
    """Recognise the format of a log by its first lines, because each line of the sample is read by every format."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "SAMPLE", 100)
        yield


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """The logs of the simulated service, of nginx and of gunicorn."""
    return write_logs(serve(), tmp_path, Writing())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """What the lab says of the logs of the simulated service."""
    return diagnose_logs(Asked(write_logs(serve(), tmp_path_factory.mktemp("logs"), Writing()), {}))


@pytest.fixture(scope="module")
def replayed(found: Diagnosis) -> Replay:
    """The same requests, served again in each way."""
    replayed = replay(found.requests, found.capacity, found.findings)
    assert replayed
    return replayed


def diagnosed(paths: Sequence[Path], workers: int = 0, threads: int = 0) -> tuple[Requests, Capacity, Findings]:
    """Return what the lab says of logs."""
    read = logs_of(paths, KNOWN, dict.fromkeys(paths, "server") if len(paths) == 1 else {})
    requests = requests_of(read)
    capacity = capacity_of(requests, workers, threads)
    return requests, capacity, findings_of(requests, capacity, read.routes.names)


def page_of(paths: Sequence[Path]) -> str:
    """Return the page of a diagnosis of logs, without cures."""
    return diagnosis_page(diagnose_logs(Asked(paths, {})), None)


def said_of(found: Diagnosis, replayed: Replay | None = None) -> str:
    """Return what the screen says of a diagnosis, on one line."""
    print_diagnosis(Console(file=(told := StringIO()), width=200), found, replayed)
    return " ".join(told.getvalue().split())


WRITINGS = {
    "ids": (True, Writing()),
    "no ids": (True, Writing(ids=False)),
    "a clock ahead": (True, Writing(ids=False, ahead_s=0.25)),
    "header": (True, Writing(ids=False, header=True)),
    "header, a clock ahead": (True, Writing(ids=False, header=True, ahead_s=0.25)),
    "whole seconds": (True, Writing(fine=False, ids=False)),
    "limit, ids": (False, Writing()),
    "limit, whole seconds": (False, Writing(fine=False, ids=False)),
}


@pytest.mark.parametrize(("accepts_busy", "writing"), WRITINGS.values(), ids=WRITINGS)
def test_logs_tell_who_waited_and_whether_a_thread_was_free(
    accepts_busy: bool, writing: Writing, tmp_path: Path
) -> None:
    waited_s, avoidably = truth(accepts_busy=accepts_busy)
    paths = write_logs(serve(accepts_busy=accepts_busy), tmp_path, writing)
    requests, capacity, findings = diagnosed(paths, threads=THREADS)
    assert capacity.workers == WORKERS
    assert requests.in_both > 0.98
    assert findings.avoidably.likely == pytest.approx(avoidably, abs=0.02 if writing.fine else 0.1)
    for share in (0.5, 0.9, 0.99):
        assert np.quantile(requests.waited_s, share) == pytest.approx(np.quantile(waited_s, share), rel=0.05, abs=0.002)


def test_a_log_with_the_header_says_what_it_is_and_beside_whole_seconds_it_tells_no_waits(tmp_path: Path) -> None:
    [log] = write_logs(serve(), tmp_path, Writing(ids=False, header=True, ahead_s=0.25))
    said = said_of(diagnose_logs(Asked([log], {log: "server"})))
    assert "gunicorn.log: 100.0% of its lines say when the balancer got the request; its clock is 250 ms ahead." in said
    assert "Head-of-line blocking" in said

    log.write_text(re.sub(r" at=\S+", "", log.read_text()))
    said = said_of(diagnose_logs(Asked([log], {log: "server"})))
    assert "its own times are whole seconds" in said
    assert "--setup" in said


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("request_start=t=1795000000.123", 1795000000.123),
        ('x-request-start="t=1795000000123"', 1795000000.123),
        ("X-Queue-Start: 1795000000123456", 1795000000.123456),
        ('"x_request_start": "1795000000"', 1795000000.0),
        ("start=1795000000.123", None),
        ('"1795000000.123"', None),
        ("request_start=t=-", None),
    ],
)
def test_the_header_is_read_in_its_usual_units_and_never_guessed(written: str, seconds: float | None) -> None:
    line = f'198.51.100.5 - - [18/Nov/2026:11:06:40 +0000] "GET / HTTP/1.1" 200 104 rt=0.2 {written}'

    assert find_identity([line], [1795000000.0]).of([line], [None])[3] == [seconds]


def test_without_workers_in_the_log_what_the_user_says_of_them_tells_the_same(tmp_path: Path) -> None:
    """Without that, the page says nothing of free threads."""
    paths = write_logs(serve(), tmp_path, Writing(workers=False))
    _, _, findings = diagnosed(paths, WORKERS, THREADS)
    assert findings.avoidably.likely == pytest.approx(truth()[1], abs=0.02)
    text = page_of(paths)
    assert re.search(r">All [\d,]+ requests, sent from [\d:]+ to [\d:]+ UTC: which worker served each, and", text)
    assert "what-if" not in text


def test_lost_lines_are_said_and_never_joined_against_the_times(tmp_path: Path) -> None:
    requests, _, _ = diagnosed(write_logs(serve(), tmp_path, Writing(ids=False, lost=0.1)))
    assert 0.8 < requests.in_both < 0.99
    assert (requests.waited_s >= 0).all()
    [(balancer, server, joined)] = requests.joins
    assert (server.took_s[joined.server] <= balancer.took_s[joined.balancer] + 0.002).all()
    assert len(set(joined.balancer.tolist())) == len(joined.balancer)


@pytest.mark.parametrize(("accepts_busy", "ids"), [(True, False), (False, True)], ids=["shared", "limit, ids"])
def test_with_a_tenth_of_the_lines_lost_the_truth_is_within_the_printed_range(
    lab: Lab, tmp_path: Path, *, accepts_busy: bool, ids: bool
) -> None:
    waited_s, avoidably = truth(accepts_busy=accepts_busy)
    paths = write_logs(serve(accepts_busy=accepts_busy), tmp_path, Writing(ids=ids, lost=0.1))
    found = json.loads(lab.call("diagnose", *map(str, paths), "--workers", "4", "--threads", "2", "--json").stdout)
    ranges = found["ranges"]
    assert 0.1 < ranges["missing"] < 0.3
    assert ranges["avoidably"][0] <= avoidably <= ranges["avoidably"][1]
    assert ranges["waited"][0] <= (waited_s > 0.05).mean() <= ranges["waited"][1]
    for (low, high), true in zip(ranges["waits_s"], np.quantile(waited_s, (0.5, 0.9, 0.99)), strict=True):
        assert low - 0.002 <= true <= high + 0.002
    assert found["cause"] in ("missing", "avoidable" if accepts_busy else "")


def test_lines_without_ids_that_are_missing_make_the_cause_uncertain(lab: Lab, tmp_path: Path) -> None:
    paths = write_logs(serve(), tmp_path, Writing(ids=False, lost=0.1))
    result = lab.call("diagnose", *map(str, paths), "--to", str(tmp_path / "page.html"))
    said = [line for line in result.stdout.splitlines() if line]
    assert all(len(line) <= 80 for line in said)
    assert "a line is missing" in (tmp_path / "page.html").read_text()
    text = "\n".join(said)
    assert text[text.index("Nobody") : text.index("class ")] == snapshot("""\
Nobody can tell the cause, because lines are missing: 40.3% of the requests
waited for a worker for more than 50 ms, at most 4.74 s (from 11:06:55 to
11:07:00). 30.9% of all latency is queueing delay. A thread was free elsewhere
for 0.3% to 100.0% of the delay, all threads were at work for 0.0% to 94.8%, and
no request was at work for 0.0% to 89.1%. Of 14.8% of the requests, a line is
missing. Probably, 13.4% to 68.3% of the requests waited for more than 50 ms,
0.6% to 68.3% avoidably, and the queueing delay was 113 ms to 7.16 s (p90) and
343 ms to 7.16 s (p99). In the busiest minute, the requests kept 4.24 threads at
work.
""")


def test_the_screen_of_head_of_line_blocking_ranks_the_cures_with_their_settings_and_costs(
    lab: Lab, logs: list[Path]
) -> None:
    """With each comes what it costs; the smallest change is first, and what may be worse is last."""
    said = lab.call("diagnose", *map(str, logs)).stdout
    assert len(said.splitlines()) <= 30
    assert all(len(line) <= 80 for line in said.splitlines())
    assert said == snapshot("""\
851 requests in 2.09 min, from 18 November 2026, 11:06:40 UTC on.
gunicorn.log: 100.0% of its lines are in nginx.log, joined by id.
4 workers x 2 threads (workers and threads as the logs show them).

Head-of-line blocking: 38.8% of the requests waited for a worker for more than
50 ms, at most 4.74 s (from 11:06:55 to 11:07:00). 29.4% of all latency is
queueing delay. For 99.9% of the delay, another worker had a free thread. Their
own worker was busy with GET /slow (55.4% of the time) and GET /quick (44.6% of
the time). In the busiest minute, the requests kept 4.79 threads at work.

class   requests  latency p99  queueing p90     p99  > 50 ms  avoidably
/quick       803       4.44 s        872 ms  3.93 s    39.0%      39.0%
/slow         48       7.05 s        488 ms  1.43 s    35.4%      35.4%
11:06:40 ▆▆▇▅▅████▁▆▇▇▅▆▅██▇▆▇▇▆▇▆▆▅▇▇▅▆▅▆▆▆▆▆▆▆▇▅▅▆▇▇▇▆▆▅▅▅▅▆▆███▆▆▆ 11:08:39
longest wait of each period: up to 50 ms ▁, up to 4.74 s █ (logarithmic)

Replayed as today (shared socket: a busy worker accepts requests, and no other
worker can take them from it), 49.0% of requests wait, p99 5.44 s (measured:
38.8%, 3.75 s; 5 replays: 42.4% to 52.4%). Cures (threads of a worker):
- worker_connections = 2 (gunicorn 24 or later): 0.0% wait. Cost: no keep-alive;
  silent clients keep others out.
- worker_class = gunicorn_idle_thread.IdleThreadWorker (pip install
  gunicorn-idle-thread): 0.0% wait. Cost: busy workers close idle connections.
- nginx least_conn (a master or a container for each worker), HAProxy maxconn 2
  (another balancer), uWSGI -p 4 --threads 2 (another server): 0.0% wait.
- threads = 4: 1.3% wait. Cost: memory, and more connections to a database.
- workers = 1, threads = 8: 0.0% wait. Cost: one interpreter lock; if the
  process dies, all its requests fail. No log says how much the requests
  compute. If they compute for more than 83.5% of their time, threads = 4 and
  for more than 20.9% of their time, workers = 1, threads = 8 cannot keep up.
""")


def test_of_better_ways_the_sure_ones_with_the_smallest_change_come_first() -> None:
    """What may be worse if requests compute is last, more threads must then help too, and chance is no cure."""

    def way(change: str, waited: float, computing_p99_s: float, most: float = 0.0, threads: int = 0) -> Way:
        return Way("", waited, 0.0, waited, max(waited, most), 0, threads, "", change, "", computing_p99_s)

    ways = [way("doubtful", 0.0, 9.0), way("helps less", 0.04, 2.0), way("a setting", 0.01, 2.0),
            way("a balancer", 0.0, 2.0), way("no cure", 0.11, 2.0), way("chance", 0.05, 2.0, most=0.2),
            way("4 threads", 0.0, 2.9, threads=4)]  # fmt: skip
    today = way("", 0.2, 3.0, threads=2)
    assert [each.change for each in Replay(today, today, ways, 0).better] == [
        "a setting", "a balancer", "helps less", "doubtful", "4 threads"]  # fmt: skip


def test_without_workers_in_the_logs_settings_have_numbers_only_if_the_user_says_them(lab: Lab, tmp_path: Path) -> None:
    paths = [*map(str, write_logs(serve(), tmp_path, Writing(workers=False)))]
    said = lab.call("diagnose", *paths, "--workers", "4", "--threads", "2").stdout
    assert "- worker_connections = 2 (" in said
    assert "- threads = 4: " in said
    requests, capacity, findings = diagnosed(write_logs(serve(accepts_busy=False), tmp_path, Writing(workers=False)))
    replayed = replay(requests, capacity, findings)
    assert replayed
    assert {way.change for way in replayed.ways} >= {"worker_connections = threads (gunicorn 24 or later)"}


def test_each_symptom_has_a_section_of_the_page_and_each_cure_its_cost() -> None:
    costs = [kind.cost for kind in OPTION_KINDS if kind.cost]
    page = (ROOT / PAGE).read_text()
    assert len(costs) == 6
    assert [cost for cost in costs if f"| {cost} |" not in page] == []
    headings = re.findall(r"^##+ (.*)$", page, re.MULTILINE)
    sections = {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert {symptom.section for symptom in SYMPTOMS.values() if symptom.verdict} <= sections
    found = {"avoidable-wait", "threads", "overtaken", *get_args(Cause)} - {"avoidable", "full", ""}
    assert [name for name in found if not (SYMPTOMS[name].verdict and SYMPTOMS[name].section)] == []
    others = {"thread-pool", "output", "max-requests", "worker-timeout", "worker-deaths"}
    assert {*get_args(Limit)} - {*SYMPTOMS} == others


def test_what_the_user_says_is_doubted_if_the_logs_contradict_it_and_no_cure_is_named(
    lab: Lab, logs: list[Path]
) -> None:
    said = {options: lab.call("diagnose", *map(str, logs), *options).stdout.replace("\n", " ")
            for options in (("--threads", "1"), ("--workers", "5"), ("--workers", "4", "--threads", "2"))}  # fmt: skip
    few_threads, many_workers, right = said.values()
    assert "Check --threads 1: 2 requests were at work at once in one worker." in few_threads
    assert "Check --workers 5: only 4 workers served requests." in many_workers
    for told in (few_threads, many_workers):
        assert "no cure is named" in told
    assert "Check" not in right
    assert "Cures (threads of a worker):" in right
    with pytest.raises(WrongUse, match="--workers 2") as raised:
        diagnosed(logs, workers=2)
    assert "--workers 4" in raised.value.hint


def capacity_line(logs: Sequence[Path]) -> str:
    """Return what the screen says of workers and threads."""
    print_diagnosis(Console(file=(told := StringIO()), width=200), diagnose_logs(Asked(logs, {})), None)
    text = told.getvalue().partition("\n\n")[0].replace("\n", " ")
    return "".join(re.findall(r"(?:At most|\d+ workers? x).*", text))


def test_short_waits_tell_how_many_threads_there_are_and_without_waits_there_may_be_more(tmp_path: Path) -> None:
    """Few requests wait for more than 50 ms; that all of them wait only while all threads are at work tells enough."""
    assert "4 workers x 1 thread (" in capacity_line(write_logs(quick_service(6), tmp_path, Writing()))
    assert "4 workers x at least 1 thread (" in capacity_line(write_logs(quick_service(3), tmp_path, Writing()))
    assert "4 workers x at least 1 thread (" in capacity_line(write_logs(quick_service(6)[:40], tmp_path, Writing()))
    for workers, threads in ((True, "workers x at least 1 thread ("), (False, "at least 3 threads.")):
        idle = [each._replace(sent=each.sent - 10 * (at % 5 == 0)) for at, each in enumerate(quick_service(3))]
        assert threads in capacity_line(write_logs(idle, tmp_path, Writing(workers=workers)))


def test_a_precise_time_that_is_rounded_up_to_the_next_second_counts(tmp_path: Path) -> None:
    write_logs(quick_service(6), tmp_path, Writing())
    text = (tmp_path / "nginx.log").read_text()
    rounded = [line for line in text.splitlines() if line.endswith(".000")]
    [log] = logs_of([tmp_path / "nginx.log"], KNOWN, {tmp_path / "nginx.log": "balancer"}).balancers
    at = [float(line.rpartition("=")[2]) for line in text.splitlines()]
    assert rounded
    assert np.array_equal(log.ends_s, np.sort(at))


def test_the_logs_of_several_hosts_are_named_with_their_workers(tmp_path: Path, lab: Lab) -> None:
    """The names of hosts may end in a number, with or without workers in the logs."""
    for workers, expected in (
        (True, "4 workers x 1 thread on 2 hosts: 2 in 10.0.0.1 and 2 in 10.0.0.2 (workers and threads as the logs "),
        (False, "At most 4 requests are at work at once on 2 hosts: 10.0.0.1 and 10.0.0.2, and requests wait "
                "meanwhile, so there are 4 threads."),
    ):  # fmt: skip
        balancer, server = write_logs(quick_service(6), tmp_path, Writing())
        lines, logs = server.read_text().splitlines(keepends=True), [balancer]
        for name, pids in (("10.0.0.1", ("<50>\n", "<51>\n")), ("10.0.0.2", ("<52>\n", "<53>\n"))):
            mine = "".join(line for line in lines if line.endswith(pids))
            (tmp_path / name).write_text(mine if workers else re.sub(r" <\d+>", "", mine))
            logs.append(tmp_path / name)
        assert expected in capacity_line(logs)
    found = json.loads(lab.call("diagnose", "--json", *map(str, logs)).stdout)
    assert (found["threads_at_least"], found["hosts"]) == (False, ["10.0.0.1", "10.0.0.2"])
    assert found["replay"]["measured"]["workers"] == 4


def test_causes_share_the_whole_delay(found: Diagnosis, replayed: Replay) -> None:
    told = as_values(found, replayed)
    shares = [float(str(told[name])) for name in ("avoidable", "full", "idle", "unexplained")]
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    assert min(shares) >= 0


def test_logs_of_half_a_minute_have_no_busiest_minute(lab: Lab, tmp_path: Path) -> None:
    short = [request for request in serve() if request.answered < BEGAN + 30]
    said = lab.call("diagnose", *map(str, write_logs(short, tmp_path, Writing()))).stdout.replace("\n", " ")
    assert "On average, the " in said
    assert "minute" not in said


def test_the_page_compares_with_a_way_of_several_workers_and_says_why_a_worker_has_more_rows_than_threads(
    found: Diagnosis, tmp_path: Path
) -> None:
    """With a single worker, it is trivial that no request waits while another worker has a free thread."""
    exact = diagnosis_page(found, None)
    assert "what-if-limit: no request waited while another worker had a free thread" in exact
    assert "more rows than threads" not in exact
    late = [request._replace(answered=request.answered + 0.03 * (number % 5 == 0))
            for number, request in enumerate(serve())]  # fmt: skip
    page = page_of(write_logs(late, tmp_path, Writing()))
    assert re.search(r"up to 3[01] ms before a thread is free", page)
    assert "more rows than threads" in page


def test_the_page_says_what_the_terminal_says_and_which_requests_it_shows(
    found: Diagnosis, replayed: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sentence is the verdict; the axis begins with the first request that is shown."""
    monkeypatch.setattr("stampede.logs.diagnose.page.MOST", 100)
    terminal = StringIO()
    print_diagnosis(Console(width=80, file=terminal), found, replayed)
    printed = " ".join(terminal.getvalue().split())

    page = unescape(diagnosis_page(found, replayed))

    said = [*findings_in_words(found), *cures_in_words(found, replayed)]
    assert [sentence for sentence in said if f">{sentence}</p>" not in page] == []
    assert [sentence for sentence in said if sentence not in printed] == []
    requests = found.requests
    shown_s = requests.first + requests.sent_s[around_longest(requests.waited_s, 100)]
    first, last = (datetime.fromtimestamp(float(at), UTC) for at in (shown_s.min(), shown_s.max()))
    assert f">The 100 of {len(requests):,} requests around the longest wait, sent from {first:%H:%M:%S}" in page
    assert f" to {last:%H:%M:%S} UTC: which worker served each" in page
    [began_ms] = re.findall(r'"began_ms": ?([\d.]+)', page)
    assert float(began_ms) == pytest.approx(1000 * shown_s.min(), abs=1)


def test_a_log_that_was_rotated_and_packed_counts_as_the_same_log(found: Diagnosis, tmp_path: Path) -> None:
    packed = write_logs(serve(accepts_busy=True), tmp_path, Writing(rotated=True))
    assert [path.name for path in packed[:3]] == ["nginx.log.2.gz", "nginx.log.1", "nginx.log"]
    parts, _, _ = diagnosed(packed)
    assert np.array_equal(np.sort(found.requests.waited_s), np.sort(parts.waited_s))


USUAL = {"user": "-", "request": "GET /orders/7?page=1 HTTP/1.1", "status": "200", "agent": "curl/8.5", "took": "0.003",
         "moment": "1793714400.250", "id": "a4c2f0", "pid": "7"}  # fmt: skip
ODD = {
    "user": ["ann", "ann lee", '"', "[", "rt=5.000"],
    "request": ["GET /orders HTTP/1.0", "get / HTTP/1.1", "GET  / HTTP/1.1", 'GET /a"b HTTP/1.1', "-", "", "GET / x y",
                "GET /\u00e9 HTTP/1.1", "GET http://a/b HTTP/1.1", "POST /x", 'GET /\\"x HTTP/1.1', "OPTIONS * HTTP/1",
                "GET /a?b?c", "GET ?a", "GET /orders/12/ HTTP/1.1", "GET /orders/12/7.png HTTP/1.1", "GET //7/x"],
    "status": ["499", "99", "2000", "-", "2.0"],
    "agent": ['a "quoted', 'a \\"quoted\\" [x]', "a [b", "-", "", "rt=7.000", "\\", 'a" rt=8.000 "b'],
    "took": ["12.5", "0", "-", "1e-3", "0.000", '"0.003"', "0.003, 0.004", "5ms", "1.123456789", ".5", "5."],
    "moment": ["1793714401.250", "1793714400", "-", "1793714400.2500"],
    "id": ["-", "a4/c2", "", "\u00e9", "a b", "0"],
    "pid": ["8", "", "7, 8", "-", "\u00e9"],
}  # fmt: skip
COMMON = ('10.0.0.1 - {user} [03/Nov/2026:14:00:00 +0000] "{request}" {status} 12 "-" "{agent}" rt={took} at={moment} '
          "id={id} <{pid}>")  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from([*ODD]), st.integers(0, 99), max_size=2), min_size=1, max_size=30))
def test_many_lines_at_once_say_what_each_says_alone(odd: Sequence[Mapping[str, int]]) -> None:
    written = [USUAL | {name: ODD[name][number % len(ODD[name])] for name, number in line.items()} for line in odd]
    lines = [COMMON.format(**line) for line in [USUAL] * 9 + written]
    with TemporaryDirectory() as folder:
        log = Path(folder) / "nginx.log"
        log.write_text("\n".join(lines))
        at_once = columns.read_file(log, KNOWN, "", identify=True)
        with patch.object(Reader, "_pattern", None):
            alone = columns.read_file(log, KNOWN, "", identify=True)
    for name, column in at_once.columns.items():
        assert np.array_equal(column, alone.columns[name], equal_nan=True), name
    assert at_once[1:] == alone[1:]


@given(st.lists(st.text(max_size=40), max_size=9), st.text(min_size=300, max_size=400))
def test_the_hash_of_a_text_is_the_same_among_other_texts(texts: Sequence[str], long: str) -> None:
    """Only the empty text has the hash 0."""
    together = columns.hashes([*texts, long]).tolist()
    assert together == [columns.hashes([text])[0] for text in (*texts, long)]
    assert [at for at, text in enumerate(texts) if not text.strip("\0")] == [
        at for at, number in enumerate(together[:-1]) if not number
    ]


def test_the_end_of_summer_time_in_a_log_without_a_zone_is_told(found: Diagnosis, logs: list[Path]) -> None:
    """The server's clock goes back by an hour in the middle of the log. With a zone, it is a log of two hosts."""
    lines = logs[1].read_text().replace(" +0000]", "]").splitlines()
    turned = [*lines[: len(lines) // 2], *(line.replace("18/Nov/2026:11", "18/Nov/2026:10") for line in
                                           lines[len(lines) // 2 :])]  # fmt: skip
    assert turned != lines
    logs[1].write_text("\n".join(turned))
    told = diagnose_logs(Asked(logs, {logs[0]: "balancer", logs[1]: "server"}))
    assert [*map(len, (log.notes for log in told.logs.servers))] == [1]
    assert "go back by an hour" in said_of(told)
    logs[1].write_text(logs[1].read_text().replace('] "GET', ' +0000] "GET'))
    [of_hosts] = logs_of(logs, KNOWN, {logs[0]: "balancer", logs[1]: "server"}).servers
    assert not of_hosts.notes
    assert told.findings.waited.likely == pytest.approx(found.findings.waited.likely, abs=0.001)


QUEUE = [(0.0, 0.5), (0.1, 0.5), (0.2, 0.5), (5.0, 0.5)]
"""When requests come to a single thread, and how long they work."""


def test_the_screen_of_a_queue_before_one_thread(lab: Lab, tmp_path: Path) -> None:
    requests, free = [], 0.0
    for sent, works in [(10 * number + sent, works) for number in range(30) for sent, works in QUEUE]:
        free = max(sent, free) + works
        requests.append(served("orders", sent, free - works, free, 7))
    paths = write_logs(requests, tmp_path, Writing())
    result = lab.call("diagnose", *map(str, paths), "--threads", "1", "--workers", "1")
    assert result.returncode == 0
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert result.stdout == snapshot("""\
120 requests in 4.92 min, from 18 November 2026, 11:06:40 UTC on.
gunicorn.log: 100.0% of its lines are in nginx.log, joined by id.
1 worker x 1 thread.

Too few threads: 50.0% of the requests waited for a worker for more than 50 ms,
at most 800 ms (from 11:06:40 to 11:06:41). 37.5% of all latency is queueing
delay. For 100.0% of the delay, the only thread was at work. The server's own
durations do not show these waits: they begin when a thread takes the request.
In the busiest minute, the requests kept 0.2 threads at work.

class    requests  latency p99  queueing p90     p99  > 50 ms  avoidably
/orders       120        1.3 s        800 ms  800 ms    50.0%       0.0%
11:06:40 █▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁█▁▁█ 11:11:35
longest wait of each period: up to 50 ms ▁, up to 800 ms █ (logarithmic)

Replayed as today (shared socket: a busy worker accepts requests, and no other
worker can take them from it), 50.0% of requests wait, p99 800 ms (measured:
50.0%, 800 ms). No other way halves the waits.
With 3 threads that take all requests from one queue, hardly any request waits.
More: docs/how-to/symptoms.md#nginx-says-9-s-gunicorn-says-002-s
""")


def test_two_logs_of_whole_seconds_tell_how_much_work_came_and_who_queued(tmp_path: Path) -> None:
    """What Django's nginx and gunicorn log of the same requests: 3 to 22 s, and less than a second (aivarsk.com)."""
    chance, free, answered, sent = np.random.default_rng(3), [0.0] * 3, [], 0.0
    while sent < 900:
        sent += chance.exponential(1 / (11.9 if 300 < sent < 480 else 5.0))
        began = max(sent, min(free))
        ended = began + chance.uniform(0.1, 0.43)
        free[free.index(min(free))] = ended
        answered.append(served("orders", sent, began, ended, 0))
    paths = write_logs(answered, tmp_path, Writing(fine=False, ids=False, workers=False))
    requests, capacity, findings = diagnosed(paths)
    waited_s = np.array([request.began - request.sent for request in answered])
    work = sum(request.ended - request.began for request in answered if 300 < request.sent - BEGAN < 480) / 180
    assert requests.in_both == 1
    assert capacity.total == 3
    assert findings.waited.likely == pytest.approx((waited_s > 0.05).mean(), abs=0.02)
    assert max(each.longest_s for each in findings.classes) == pytest.approx(waited_s.max(), abs=0.05)
    assert findings.busy_load == pytest.approx(work, rel=0.05)
    assert findings.avoidable.likely < 0.1


def test_one_kind_of_log_says_what_is_missing(lab: Lab, logs: list[Path]) -> None:
    said = lab.call("diagnose", str(logs[1])).stdout
    assert "stampede diagnose --setup" in said.replace("\n", " ")
    assert "queueing" not in said


def test_a_log_that_says_nothing_of_its_clock_is_asked_for_or_a_servers_beside_a_balancers(
    logs: list[Path], tmp_path: Path
) -> None:
    log = tmp_path / "app.json"
    log.write_text(
        '{"time": "2026-11-18T11:06:42Z", "method": "GET", "path": "/", "status": 200, "duration": 0.5, "pid": 7}\n' * 3
    )
    with pytest.raises(WrongUse, match=r"app\.json") as raised:
        logs_of([log], KNOWN, {})
    assert "--server" in raised.value.hint
    [server] = logs_of([logs[0], log], KNOWN, {}).servers
    assert server.file == "app.json"


HAPROXY = [
    ("35008", "07.717", 1020, "5/5/4/4/0", "/slow", "1.000399", "ff59ca94-6344-4e59-a943-7c9891bbb33c"),
    ("35024", "07.717", 1039, "4/4/3/3/0", "/slow", "1.003210", "bd6359c0-d4e1-4b9c-a65b-36aac8225ace"),
    ("60614", "07.940", 816, "4/4/2/2/0", "/quick/2?token=secret", "0.021057", "0bbb9cc1-03e0-4df5-8b53-cc6f035151ce"),
    ("60620", "07.978", 818, "2/2/1/1/0", "/quick/2?token=secret", "0.020393", "3667dd93-8fba-4511-a011-0fc4eee0855e"),
    ("60636", "08.240", 556, "2/2/0/0/0", "/quick/3?token=secret", "0.020303", "2be200ed-2ebf-4256-8583-4bd299c9429c"),
]
"""What differs in lines that HAProxy 3.0.11 and gunicorn with two workers wrote, with the lines of ``--setup``."""


def test_what_a_real_haproxy_and_a_real_gunicorn_wrote_is_joined(tmp_path: Path) -> None:
    haproxy, gunicorn = tmp_path / "haproxy.log", tmp_path / "gunicorn.log"
    haproxy.write_text("".join(
        f"127.0.0.1:{port} [26/Nov/2026:15:09:{at}] balancer app/app-1 0/0/0/{ms}/{ms} 200 121 - - ---- {now} 0/0 "
        f'"GET {target} HTTP/1.1" id={id_}\n' for port, at, ms, now, target, _, id_ in HAPROXY))  # fmt: skip
    gunicorn.write_text("".join(
        f'127.0.0.1 - - [26/Nov/2026:15:09:08 +0000] "GET {target} HTTP/1.1" 200 3 "-" "-" rt={took} <16369> id={id_}\n'
        for *_, target, took, id_ in HAPROXY))  # fmt: skip
    requests, capacity, _ = diagnosed([haproxy, gunicorn])
    [(_, _, joined)] = requests.joins
    assert (joined.by_id, requests.in_both, capacity.workers) == (len(HAPROXY), 1.0, 1)
    assert requests.waited_s.tolist() == pytest.approx(
        [ms / 1000 - float(took) for _, _, ms, *_, took, _ in HAPROXY], abs=1e-5
    )


def test_setup_prints_the_lines_of_each_server(lab: Lab) -> None:
    said = lab.call("diagnose", "--setup").stdout
    assert "t=%[date(0,ms)]" in said  # not %Ts: on a kept connection, that is when the request before it was answered
    for server in ("nginx", "HAProxy", "Traefik", "gunicorn", "uWSGI", "uvicorn", "granian"):
        assert server in said


def test_the_page_has_the_lanes_of_the_workers_and_nothing_of_a_person(
    lab: Lab, logs: list[Path], tmp_path: Path
) -> None:
    page = tmp_path / "who-waited.html"
    result = lab.call("diagnose", *map(str, logs), "--to", str(page))
    assert str(page) in result.stdout + result.stderr
    text = page.read_text()
    assert "GET /quick" in text
    assert f"{WORKERS} workers of {THREADS} threads" in text
    for of_a_person in ("198.51.100", "curl/8.5", "page=", "-0000001"):
        assert of_a_person in logs[0].read_text()
        assert of_a_person not in text + result.stdout


def test_logs_of_other_requests_and_kinds_that_are_exchanged_are_refused(logs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    nginx, gunicorn = logs
    later = [request._replace(**{name: getattr(request, name) + 1e5 for name in ("sent", "answered", "began", "ended")})
             for request in serve()[:100]]  # fmt: skip
    _, other = write_logs(later, tmp_path / "other", Writing(ids=False))
    with pytest.raises(WrongUse, match=r"19 November 2026.* 18 November 2026"):
        diagnosed([nginx, other])
    with pytest.raises(WrongUse) as raised:
        requests_of(logs_of([nginx, gunicorn], KNOWN, {nginx: "server", gunicorn: "balancer"}))
    assert "--balancer nginx.log --server gunicorn.log" in raised.value.hint


def test_logs_in_which_no_request_has_both_durations_are_refused(logs: list[Path]) -> None:
    read = logs_of(logs, KNOWN, {})
    [server] = read.servers
    without = replace(server, took_s=np.full(len(server), np.nan))
    with pytest.raises(WrongUse, match="duration") as raised:
        requests_of(replace(read, servers=[without]))
    assert "--setup" in raised.value.hint

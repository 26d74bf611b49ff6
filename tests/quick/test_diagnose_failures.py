"""What logs of a balancer and of a server say together of requests that failed, and of waits beside idle workers."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import numpy as np
import pytest
from inline_snapshot import snapshot

from stampede.logs.diagnose.diagnosis import Asked, Diagnosis, diagnose_logs
from stampede.logs.diagnose.screen import as_values, findings_in_words
from tests.conftest import Lab
from tests.whole.test_logs_in_trouble import Request, write

TIMEOUT = 30.0


def logged(
    request: str, sent: float, began: float, ended: float, worker: str = "", status: int = 200,
    says: float | None = None,
) -> Request:  # fmt: skip
    """Return a request. Without a worker, no server has a line of it, which may say another time."""
    method, path = request.split()
    sent, began, ended = (time + 0.137 for time in (sent, began, ended))  # no whole seconds
    return Request(path, sent, began, ended, ended, int(worker or 0), status, status * bool(worker), None, says, method)


def written(folder: Path, requests: Iterable[Request], *, workers: bool = True) -> Sequence[Path]:
    return write(folder, [*requests], precise=(True, False), named=workers)


def diagnose(folder: Path, requests: Iterable[Request], *, workers: bool = True) -> tuple[Diagnosis, str]:
    """Return the diagnosis of requests, and the answer in words."""
    found = diagnose_logs(Asked(written(folder, requests, workers=workers), {}))
    return found, " ".join(findings_in_words(found))


def quick(seconds: Iterable[float], worker: str = "7") -> list[Request]:
    return [logged("GET /page", at, at, at + 0.1, worker) for at in seconds]


def test_what_the_balancer_answered_itself_comes_first_if_nobody_waited(tmp_path: Path, lab: Lab) -> None:
    """By status and route, also of a route that no server has a line of; other missing lines are no such answers."""
    refused = [logged("POST /pay", at + 0.5, at, at + 0.5, status=502) for at in range(10, 40, 10)]
    requests = [*quick(range(200)), *refused, logged("GET /page", 50.5, 0, 80.5, status=504),
                logged("GET /page", 60.5, 0, 60.6)]  # fmt: skip
    found, said = diagnose(tmp_path, requests)
    assert said.startswith("The balancer answered 4 requests itself, from 11:06:50 to 11:08:00, without a line in any "
                           "server's log: "
                           "status 502 for POST /pay (3, at once), "
                           "status 504 for GET /page (1, after 30 s).")  # fmt: skip
    assert "closed the connection" in said
    assert found.findings.cause == ""
    told = json.loads(lab.call("diagnose", *map(str, written(tmp_path, requests)), "--json").stdout)
    assert [(each["route"], each["status"], each["requests"]) for each in told["refused"]] == [
        ("POST /pay", 502, 3), ("GET /page", 504, 1)]  # fmt: skip


def test_failures_that_a_server_has_a_line_of_are_not_the_balancers(tmp_path: Path) -> None:
    """Nothing is said of them: they are the application's own."""
    _, said = diagnose(tmp_path, [*quick(range(100)), logged("POST /pay", 50.5, 50.5, 50.6, "7", 502)])
    assert "itself" not in said


def killed_uploads() -> list[Request]:
    """Two workers of one thread serve pages until two uploads hold them and are killed. New workers come 2 s later."""
    served = quick(range(0, 59, 2), "1") + quick(range(1, 60, 2), "2")
    kills = [60 + TIMEOUT + 0.4, 61 + TIMEOUT + 0.7]
    served += [logged("POST /upload", 60 + number, 60 + number, ends, str(number + 1), 500, 0.009)
               for number, ends in enumerate(kills)]  # fmt: skip
    free = {"3": kills[0] + 2, "4": kills[1] + 2}
    for sent in range(62, 180):
        worker = min(free, key=lambda worker: (max(free[worker], sent), worker))
        began = max(free[worker], float(sent))
        free[worker] = began + 0.1
        served.append(logged("GET /page", sent, began, began + 0.1, worker))
    return served


def test_a_request_that_was_killed_with_its_worker_held_it_until_then(tmp_path: Path) -> None:
    """Its line says 9 ms. The pages behind it waited, and no wait was avoidable: both workers were held."""
    requests = killed_uploads()
    found, said = diagnose(tmp_path, requests)
    pages_wait = sum(each.began - each.sent > 0.05 for each in requests) / len(requests)
    assert found.findings.waited.likely == pytest.approx(pages_wait, abs=0.001)
    assert found.findings.avoidably.likely == 0
    assert found.findings.cause == "full"
    assert "2 requests ended together with their worker: status 500 for POST /upload (2, after 30.5 s)" in said
    assert "timeout" in said


def test_without_workers_in_the_log_failures_of_one_length_met_a_time_limit(tmp_path: Path) -> None:
    found, said = diagnose(tmp_path, killed_uploads(), workers=False)
    assert found.requests.waited_s[found.requests.status == 500].max() < 1
    assert "2 requests failed at the same time limit: status 500 for POST /upload" in said


def test_each_value_of_json_has_its_own_name(tmp_path: Path) -> None:
    """Of logs in which nearly all values differ; numbers are rounded."""
    requests = killed_uploads()
    for at in range(200, 320, 30):
        waits = [logged("GET /page", at + n + 0.3, at + 9, at + 9.1 + n / 10, "3") for n in (1, 3, 5)]
        requests += [logged("GET /slow", at, at, at + 9, "3"), *waits, *quick((at + n + 0.6 for n in range(19)), "4")]
    requests += [logged("GET /page", at, at, at + 0.5, status=502) for at in (330, 331, 332)]
    requests += [replace(logged("GET /slow", 340, 340, 352, "3", 499), answered=345.137, of_server=200)]
    requests += [logged("GET /page", at, at, at + 0.01, "4", 503) for at in (360, 361)]
    requests += [replace(each, answered=each.answered + 3) for each in quick(range(370, 390, 5), "4")]
    found, _ = diagnose(tmp_path, [*requests, *quick(range(400, 409), "4")])
    told = json.loads(json.dumps(as_values(found, None)), parse_float=lambda text: round(float(text), 3))
    lines = (wrap(f"{key}: {json.dumps(value)}", 110, subsequent_indent="  ") for key, value in told.items())
    assert "\n".join(line for each in lines for line in each) == snapshot("""\
requests: 288
in_both: 1.0
workers: 2
threads: 1
threads_at_least: false
hosts: ["gunicorn.log"]
found: ["workers", "threads"]
restarts: 2
cause: "full"
waited: 0.156
waited_within: [0.153, 0.174]
waited_avoidably: 0.042
avoidably_within: [0.042, 0.174]
queueing: 0.807
avoidable: 0.104
full: 0.896
away: 0.156
idle: 0.0
overtaken: 0.0
unexplained: 0.0
doubts: []
ranges: null
refused: [{"route": "GET /page", "status": 502, "requests": 3, "median_s": 0.5, "first": 1795000330.637,
  "last": 1795000332.637}]
killed: [{"route": "POST /upload", "status": 500, "requests": 2, "median_s": 30.55, "first": 1795000090.537,
  "last": 1795000091.837}]
left: [{"route": "GET /slow", "status": 499, "requests": 1, "median_s": 5.0, "first": 1795000345.137, "last":
  1795000345.137}]
turned_away: [{"route": "GET /page", "status": 503, "requests": 2, "median_s": 0.01, "first": 1795000360.147,
  "last": 1795000361.147}]
left_work: 0.085
slow_clients: 4
events: []
in_front: {"GET /page": 0.0, "GET /slow": 1.0, "POST /upload": 0.0}
busy_load: 0.608
classes: [{"name": "GET /page", "requests": 281, "latency_p99_s": 27.98, "wait_p50_s": 0.0, "wait_p90_s": 7.7,
  "wait_p99_s": 27.88, "longest_s": 30.4, "waited": 0.16, "avoidably": 0.043, "waited_within": [0.157, 0.174],
  "avoidably_within": [0.043, 0.174], "p90_within": [7.2, 7.7], "p99_within": [26.8, 27.88]}, {"name": "GET
  /slow", "requests": 5, "latency_p99_s": 11.88, "wait_p50_s": 0.0, "wait_p90_s": 0.0, "wait_p99_s": 0.0,
  "longest_s": 0.0, "waited": 0.0, "avoidably": 0.0, "waited_within": [0.0, 0.2], "avoidably_within": [0.0,
  0.2], "p90_within": [0.0, 0.601], "p99_within": [0.0, 0.961]}, {"name": "POST /upload", "requests": 2,
  "latency_p99_s": 30.697, "wait_p50_s": 0.0, "wait_p90_s": 0.0, "wait_p99_s": 0.0, "longest_s": 0.0,
  "waited": 0.0, "avoidably": 0.0, "waited_within": [0.0, 0.0], "avoidably_within": [0.0, 0.0], "p90_within":
  [0.0, 0.0], "p99_within": [0.0, 0.0]}]
replay: null\
""")


def test_a_failure_after_a_wait_is_no_killed_worker_if_the_worker_goes_on(tmp_path: Path) -> None:
    """Nor if it worked until then: such a request waited for its worker."""
    slow = [logged("GET /slow", at, at, at + 20, "7") for at in range(0, 400, 40)]
    failed = [logged("GET /page", at + 5, at + 20, at + 20.1, "7", 500) for at in range(0, 400, 40)]
    found, said = diagnose(tmp_path, [*slow, *failed, *quick(range(401, 440))])
    assert not found.requests.killed
    assert found.findings.waited.likely == pytest.approx(10 / 59, abs=0.001)
    assert "worker:" not in said


@pytest.mark.parametrize("named", [True, False])
def test_a_worker_that_serves_later_requests_at_once_was_idle_and_did_not_stand_still(
    tmp_path: Path, *, named: bool
) -> None:
    """Connections that it does not accept wait. Without its name, one of several workers may also have been stopped."""
    waits = [logged("GET /page", at + 0.5, at + 15.5, at + 15.6, "7") for at in range(0, 400, 10)]
    found, said = diagnose(tmp_path, [*quick(range(420)), *waits], workers=named)
    assert found.findings.cause == "idle"
    assert said.startswith("The workers were idle:")
    assert "limit of connections" in said
    assert ("was stopped" in said) is not named


def test_workers_that_serve_nobody_meanwhile_stood_still(tmp_path: Path) -> None:
    """Whoever comes then waits until all go on together."""
    stops = [logged("GET /page", at + each, at + 15, at + 15.1, "7") for at in range(0, 400, 40) for each in range(14)]
    _, said = diagnose(tmp_path, [*stops, *quick(at + 15 + each for at in range(0, 400, 40) for each in range(1, 25))])
    assert said.startswith("The workers stood still:")
    assert "limit of connections" in said
    assert "a process that was stopped" in said


def test_workers_of_two_generations_have_the_same_places(tmp_path: Path) -> None:
    """A deployment, in which the old workers finish what they have while new ones begin: two workers, full at times."""
    free, requests = {"1": 0.0, "2": 0.0}, []
    for sent in np.arange(0.0, 400.0, 0.5):
        if sent == 200:
            free |= {"3": 0.0, "4": 0.0}
        if sent == 205:
            del free["1"], free["2"]
        worker = min(free, key=lambda worker: (max(free[worker], sent), worker))
        began = max(free[worker], float(sent))
        free[worker] = began + (3.0 if sent % 20 < 2 else 0.4)
        requests.append(logged("GET /page", sent, began, free[worker], worker))
    found, said = diagnose(tmp_path, requests)
    assert (found.capacity.workers, found.capacity.restarts) == (2, 2)
    assert found.findings.cause == "full"
    assert said.startswith("Too few threads:")
    assert found.findings.avoidably.likely < 0.01


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_that_was_killed_with_its_requests_is_away_until_the_next_serves(
    tmp_path: Path, lab: Lab, threads: int
) -> None:
    """No server has a line of the requests that held it; pages wait meanwhile."""
    requests, worker = [], 1
    for cycle in range(0, 400, 40):
        requests += quick(range(cycle, cycle + 20), str(worker))
        requests += [logged("GET /hang", cycle + 20.2, 0, cycle + 31, status=502) for _ in range(threads)]
        worker += 1
        requests += [logged("GET /page", cycle + at, cycle + 33, cycle + 33.1, str(worker)) for at in range(21, 33)]
        requests += quick(range(cycle + 34, cycle + 40), str(worker))
    found, said = diagnose(tmp_path, requests)
    assert found.findings.cause == "away"
    assert said.startswith("Workers were away:")
    assert "A 502 after a while means that the worker ended while it had the request." in said
    screen = lab.call("diagnose", *map(str, written(tmp_path, requests))).stdout
    assert "With " not in screen.partition("longest wait")[2], "more threads are no cure"
    assert "symptoms.md#no-answers-for-seconds" in screen


def test_a_bad_minute_of_hours_is_told(tmp_path: Path) -> None:
    requests = quick(np.arange(0, 7200, 2.0).tolist())
    requests += [logged("GET /page", 3612.5 + at, 3640.5, 3640.6, "7") for at in range(24)]
    found, said = diagnose(tmp_path, requests)
    assert found.findings.waited.likely < 0.01
    assert "44.4% of those in the minute from " in said
    assert found.findings.bad_minute == pytest.approx((3600, 24 / 54))
    few = [*quick(np.arange(0, 7200, 2.0).tolist()), *requests[-9:]]
    assert diagnose(tmp_path, few)[0].findings.cause == ""


def test_a_server_that_answers_nobody_any_more_comes_first(tmp_path: Path) -> None:
    """Although its log ends long before the balancer's."""
    hung = [logged("GET /page", at, 0, at + 60, status=504) for at in range(200, 500)]
    found, said = diagnose(tmp_path, [*quick(range(200)), *hung])
    assert said.startswith("The balancer answered 300 requests itself, from ")
    assert found.requests.in_both == 1


def test_a_log_of_a_part_of_the_time_makes_no_failures(tmp_path: Path) -> None:
    lost = [logged("GET /page", at, 0, at + 0.1) for at in range(200, 400)]
    found, said = diagnose(tmp_path, [*quick(range(200)), *lost])
    assert "itself" not in said
    assert found.requests.in_both == 0.5


def test_what_the_balancer_refused_is_no_missing_line(tmp_path: Path) -> None:
    """So it makes the cause no less certain."""
    free, requests = 0.0, []
    for number in range(600):
        sent = float(number)
        if free > sent + 4:
            requests.append(logged("GET /page", sent, 0, sent + 4, status=503))
            continue
        began = max(free, sent)
        free = began + (12 if number % 60 == 10 else 0.3)
        requests.append(logged("GET /page", sent, began, free, "7"))
    found, _ = diagnose(tmp_path, requests)
    assert sum(each.requests for each in found.requests.refused) > 50
    assert (found.findings.ranges, found.findings.cause) == (None, "full")


@pytest.mark.parametrize("named", [True, False])
def test_threads_that_a_killed_worker_never_gave_back_were_not_free(tmp_path: Path, *, named: bool) -> None:
    """One of two threads hangs for 30 s in each cycle, and the other goes on, until the worker is killed."""
    requests = []
    for cycle in range(0, 400, 40):
        worker, free = str(cycle), [cycle + 0.0] * 2
        for sent in np.arange(cycle, cycle + 36.0, 0.5):
            if sent == cycle + 4:
                free[0] = np.inf
                requests.append(logged("GET /hang", sent + 0.1, 0, cycle + 36, status=502))
            at = int(np.argmin(free))
            began = max(free[at], float(sent))
            free[at] = began + 0.6
            if free[at] < cycle + 36:
                requests.append(logged("GET /page", sent, began, free[at], worker))
    found, _ = diagnose(tmp_path, requests, workers=named)
    assert found.findings.waited.likely > 0.5
    assert found.findings.cause in ("away", "full")
    assert found.findings.avoidable.likely < 0.1


def test_what_the_balancer_answers_itself_at_once_is_no_missing_line(tmp_path: Path) -> None:
    """A redirection to HTTPS is not even told; a limit of requests is."""
    waits = [logged("GET /page", at + 0.01, at + 0.1, at + 0.2, "7") for at in range(0, 200, 4)]
    itself = [logged("GET /page", at + 0.5, at + 0.5, at + 0.5, status=301 if at % 10 else 429) for at in range(200)]
    found, said = diagnose(tmp_path, [*quick(range(200)), *waits, *itself])
    assert found.findings.ranges is None
    assert found.requests.in_both > 0.99
    assert "The balancer answered 20 requests itself" in said
    assert "status 429 for GET /page (20, at once)" in said
    assert "301" not in said

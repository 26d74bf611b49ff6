"""stampede diagnose: what logs say of a service in trouble comes first, and nothing else counts as a wait."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from stampede.evaluate.metrics.waiting import Answered, avoidable_waits
from stampede.logs.diagnose.diagnosis import Diagnosis
from stampede.logs.diagnose.page import diagnosis_page
from stampede.logs.diagnose.replayed import Replay
from stampede.logs.diagnose.replayed import Served as Way
from stampede.logs.diagnose.screen import answer, cures_in_words, print_diagnosis
from stampede.report.wording import percent
from tests.whole.test_diagnose import BEGAN
from tests.whole.test_pairs_of_logs import clf, diagnosed, iso


@dataclass(frozen=True)
class Request:
    """One request as both logs have it; times are seconds since BEGAN.

    ``of_server`` is the status that the server writes down; 0: it has no line. ``says`` is how long it says it worked.
    """

    path: str
    sent: float
    began: float
    ended: float
    answered: float
    worker: int
    status: int = 200
    of_server: int = 200
    upstream: float | None = None
    says: float | None = None
    method: str = "GET"


def quiet(slow: str, every: int = 12) -> list[Request]:
    """Return 1,200 requests of which none waits for its worker; some have another path."""
    random, requests = Random(1), []
    for number in range(1200):
        sent = number * 0.3 + random.uniform(0, 0.2)
        worked = random.uniform(0.02, 0.06)
        path = slow if number % every == 5 else "/items"
        requests.append(Request(path, sent, sent + 0.001, sent + worked, sent + worked + 0.001, number % 4))
    return requests


def write(
    folder: Path, requests: Sequence[Request], *, ids: bool = True, ahead_s: float = 0.0, upstream: bool = False,
    precise: Sequence[bool] = (True, True), named: bool = True, whole: bool = False,
) -> tuple[Path, Path]:  # fmt: skip
    """Write nginx.log and gunicorn.log, whose times may be whole seconds; ``whole``: so are the server's durations."""
    lines: tuple[list[tuple[float, str]], list[tuple[float, str]]] = [], []
    for number, each in enumerate(requests):
        id_ = f" id={number:032x}" if ids else ""
        urt = f" urt={each.answered - each.sent if each.upstream is None else each.upstream:.3f}" if upstream else ""
        at, took, asked = BEGAN + each.answered, each.answered - each.sent, f"{each.method} {each.path}"
        line = f'10.0.0.1 - - {clf(at)} "{asked} HTTP/1.1" {each.status} 9 "-" "-" rt={took:.3f}{urt}'
        lines[0].append((each.answered, line + f" at={at:.3f}" * precise[0] + id_))
        at, worked = BEGAN + each.ended + ahead_s, each.ended - each.began if each.says is None else each.says
        duration = f"{int(worked)}s" if whole else f"{worked:.6f}"
        line = f'10.0.0.9 - - {clf(at)} "{asked} HTTP/1.0" {each.of_server} 9 "-" "-" rt={duration}'
        if each.of_server:
            lines[1].append((each.ended, line + f" <{each.worker}>" * named + f" at={at:.6f}" * precise[1] + id_))
    paths = folder / "nginx.log", folder / "gunicorn.log"
    for path, written in zip(paths, lines, strict=True):
        path.write_text("".join(f"{text}\n" for _, text in sorted(written)))
    return paths


def diagnosis(folder: Path, requests: Sequence[Request], **writing: Any) -> Diagnosis:
    nginx, gunicorn = write(folder, requests, **writing)
    return diagnosed([nginx], [gunicorn])


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("status", [499, 504])
def test_work_for_requests_that_the_balancer_left_is_told_first(tmp_path: Path, status: int, *, ids: bool) -> None:
    """The server writes its line later than the balancer, and its clock is known nevertheless."""
    requests = [replace(each, ended=each.began + 12, answered=each.sent + 5, status=status)
                if each.path == "/export" else each for each in quiet("/export")]  # fmt: skip
    found = diagnosis(tmp_path, requests, ids=ids, ahead_s=0.7)

    first = next(answer(found))
    assert (
        f"went on with 100 requests that the balancer or its client had left: status {status} for GET /export" in first
    )
    assert found.requests.left_work == pytest.approx(1200 / (1200 + 44), abs=0.01)
    assert (found.findings.cause, found.requests.in_both) == ("", 1)
    assert found.requests.joins[0][2].clock.ahead_s == pytest.approx(0.7, abs=0.1)


def slow_to_send(request: Request, by_s: float) -> Request:
    return replace(request, sent=request.sent - by_s, upstream=request.answered - request.sent)


def slow_to_take(request: Request, by_s: float) -> Request:
    return replace(request, answered=request.answered + by_s, upstream=request.answered - request.sent)


@pytest.mark.parametrize(
    ("slow", "upstream"), [(slow_to_send, True), (slow_to_take, True), (slow_to_take, False)]
)  # fmt: skip
def test_the_time_of_a_slow_client_is_no_wait(
    tmp_path: Path, slow: Callable[[Request, float], Request], *, upstream: bool
) -> None:
    """Neither of one that sends slowly, if nginx says how long the server took, nor of one that reads slowly."""
    random = Random(2)
    requests = [slow(each, random.uniform(5, 40)) if each.path == "/files" else each for each in quiet("/files")]
    found = diagnosis(tmp_path, requests, upstream=upstream)

    assert (found.findings.cause, found.findings.waited.likely) == ("", 0)
    assert found.requests.slow_clients == (100 if slow is slow_to_take else 0)
    if slow is slow_to_send:  # the log of a balancer that does not say how long the server took cannot tell
        assert "clients that send slowly" in " ".join(answer(diagnosis(tmp_path, requests)))


@pytest.mark.parametrize("before", ["2.000, ", "2.000 : ", "-, ", "2,000, "])
def test_the_time_of_a_server_that_did_not_answer_is_no_wait_for_the_one_that_did(tmp_path: Path, before: str) -> None:
    requests = [slow_to_send(each, 2) if each.path == "/files" else each for each in quiet("/files")]
    nginx, gunicorn = write(tmp_path, requests, upstream=True)
    lines = [line.replace("urt=", f"urt={before}" if "/files" in line else "urt=") for line in nginx.open()]
    nginx.write_text("".join(lines))
    found = diagnosed([nginx], [gunicorn])

    assert (found.findings.cause, found.findings.waited.likely) == ("", 0)


def test_slow_clients_without_ids_are_joined_by_their_starts(tmp_path: Path) -> None:
    """Quick requests end at the moments at which slow clients are done, which is chance."""
    random = Random(3)
    requests = [slow_to_take(each, random.uniform(0, 60)) if each.path == "/files" else each
                for each in quiet("/files", every=6)]  # fmt: skip
    found = diagnosis(tmp_path, requests, ids=False)

    assert (found.findings.cause, found.requests.in_both) == ("", 1)
    assert found.requests.slow_clients == pytest.approx(200, abs=3)


def test_a_server_takes_up_later_in_their_order_what_the_balancer_left_in_a_queue(tmp_path: Path) -> None:
    """Without ids: each of 60 requests waits longer than the balancer, for the only worker."""
    requests, free = quiet("/items"), 100.0
    for number in range(60):
        sent = 100 + number * 0.2
        free = max(free, sent) + 1
        requests.append(Request("/report", sent, free - 1, free, min(sent + 5, free), 0,
                                504 if free > sent + 5 else 200))  # fmt: skip
    found = diagnosis(tmp_path, requests, ids=False)

    assert found.requests.in_both == 1
    assert sum(each.requests for each in found.requests.left) == sum(each.status == 504 for each in requests) > 50
    waited_s = [each.began - each.sent for each in requests if each.path == "/report"]
    route = found.logs.routes.names.index("GET /report")
    found_s = found.requests.waited_s[found.requests.route == route]
    assert np.mean(found_s) == pytest.approx(np.mean(waited_s), rel=0.02)


def test_what_a_balancer_turned_away_after_a_queue_has_no_line_of_a_server(tmp_path: Path) -> None:
    """Without ids: each burst of requests is longer than the queue of two workers, in which HAProxy lets them wait."""
    requests = []
    for at in range(0, 160, 4):
        for n in range(12):
            sent, began = at + n / 100, at + 0.28 * (n // 2) + 0.02
            is_late = began > sent + 1
            requests.append(Request(f"/{n % 3}", sent, began, began + 0.28, sent + 1 if is_late else began + 0.281,
                                    n % 2, 503 if is_late else 200, 0 if is_late else 200))  # fmt: skip
    found = diagnosis(tmp_path, requests, ids=False, precise=(True, False))

    assert sum(each.requests for each in found.requests.refused) == sum(each.status == 503 for each in requests) > 50
    assert found.findings.cause == "full"


@pytest.mark.parametrize("is_same_id", [False, True])
def test_requests_whose_lines_are_alike_count_each(tmp_path: Path, *, is_same_id: bool) -> None:
    """Of some quick requests in a second, a server without ids writes the same line; a prober has one id."""
    requests = [Request("/up", 0.1 * n, 0.1 * n + 0.001, 0.1 * n + 0.0011, 0.1 * n + 0.0015, 0) for n in range(400)]
    logs = write(tmp_path, requests, ids=False, precise=(True, False))
    if is_same_id:
        for path in logs:
            path.write_text("".join(f"{line.rstrip()} id={7:032x}\n" for line in path.open()))
    found = diagnosed(logs[:1], logs[1:])

    assert (len(found.requests), found.logs.servers[0].notes) == (400, ())
    assert found.requests.in_both == (1 if not is_same_id else pytest.approx(1, abs=0.01))


def test_what_a_server_turned_away_comes_in_the_first_sentence(tmp_path: Path) -> None:
    requests = [replace(each, status=503, of_server=503, ended=each.sent + 0.002, answered=each.sent + 0.003)
                if each.path == "/busy" else each for each in quiet("/busy")]  # fmt: skip

    assert next(answer(diagnosis(tmp_path, requests))).startswith(
        "The server turned away 100 requests: status 503 for GET /busy (100, at once)"
    )


def test_health_checks_do_not_drown_the_requests_that_wait(tmp_path: Path) -> None:
    """Fifteen of ten thousand requests wait, of a route of which each does, behind its own worker."""
    checks = [Request("/healthz", 0.03 * n, 0.03 * n + 0.0004, 0.03 * n + 0.001, 0.03 * n + 0.0014, n % 2)
              for n in range(10_000)]  # fmt: skip
    pairs = ((20.0 * n, 20.0 * n + 0.1) for n in range(15))
    waits = chain.from_iterable(
        (
            Request("/pay", at, at + 0.001, at + 1, at + 1.001, 7),
            Request("/pay", later, at + 1.001, later + 2, later + 2.001, 7),
        )
        for at, later in pairs
    )
    found = diagnosis(tmp_path, [*checks, *waits])

    assert found.findings.waited.likely == pytest.approx(15 / 10_030, abs=1e-4)
    assert found.findings.cause == "avoidable"
    assert "50.0% of those for GET /pay, waited" in next(answer(found))
    today, slow = Way("", 0.2, 0.0, 0.2, 0.2, computing_p99_s=3), Way("", 0, 0, 0, 0, change="a = 1", computing_p99_s=9)
    cures = [*cures_in_words(found, Replay(today, today, [slow], 0))]
    assert cures[-2].endswith("If they only compute, their p99 overhead is 9 s with a = 1 (today: 3 s).")
    assert cures[-1] == "Not replayed: workers of its own for GET /pay, or less work in it."


def behind_workers(rate_rps: float, work_s: tuple[float, float], *, hangs: bool = False) -> list[Request]:
    """Return requests that chance sends to three workers with a queue each. A request that hangs ends its worker."""
    random, free, names, requests, sent, hang = Random(1), [0.0] * 3, [0, 1, 2], list[Request](), 0.0, 60.0
    while sent < 500:
        sent += random.expovariate(rate_rps)
        worker = random.randrange(3)
        is_hanging = hangs and sent > hang
        began = max(free[worker], sent)
        free[worker] = ended = began + (30 if is_hanging else random.uniform(*work_s))
        hang += 90 * is_hanging
        status = 502 if is_hanging else 200
        requests.append(Request("/hang" if is_hanging else f"/items/{random.randrange(50)}", sent, began, ended,
                                ended + 0.0005, names[worker], status, 0 if is_hanging else 200))  # fmt: skip
        names[worker] += 3 * is_hanging
    return requests


def tells_the_truth(found: Diagnosis, requests: Sequence[Request]) -> bool:
    """Whether the shares that waited, also avoidably, lie in the ranges of the table."""
    sent, began, ended = (np.array([getattr(each, name) for each in requests]) for name in ("sent", "began", "ended"))
    worker, served = (np.array([getattr(each, name) for each in requests]) for name in ("worker", "status"))
    worker %= 3
    answered = Answered(["0", "1", "2"], [], 0.0, ended.max(), sent[-1], worker, worker, sent, began, ended)
    avoidably = (avoidable_waits(answered, 3, 1).beside_s > 0.05)[served != 502].mean()
    shares = (((began - sent) > 0.05)[served != 502].mean(), found.findings.waited), (
        avoidably, found.findings.avoidably)  # fmt: skip
    return all(within.low - 0.01 <= share <= within.high + 0.01 for share, within in shares)


@pytest.mark.parametrize("status", [499, 504])
@pytest.mark.parametrize("whole", [True, False])
def test_whole_seconds_beside_requests_that_the_balancer_left_give_a_range(
    tmp_path: Path, status: int, *, whole: bool
) -> None:
    """Gunicorn's %(T)s, or %(t)s: neither tells when the work began for which nobody waited any more."""
    served = behind_workers(1.2, (1.1, 2.6))
    requests = [replace(each, answered=each.sent + 5, status=status) if each.answered - each.sent > 5 else each
                for each in served]  # fmt: skip
    found = diagnosis(tmp_path, requests, precise=(True, False), whole=whole)
    print_diagnosis(Console(file=(told := StringIO()), width=80), found, None)

    assert tells_the_truth(found, served)
    low, _, high = found.findings.avoidably
    assert low + 0.02 < high
    assert f"{100 * low:.0f}-{100 * high:.0f}%" in told.getvalue()
    assert ("durations of gunicorn.log are whole seconds" in told.getvalue()) is whole


@pytest.mark.parametrize("named", [True, False])
def test_a_wait_during_a_long_502_may_have_been_avoidable_if_no_log_names_the_processes(
    tmp_path: Path, *, named: bool
) -> None:
    """All others went on meanwhile, but they might have ended, too. A new worker may have the name of the old one."""
    requests = [replace(each, worker=each.worker % 3) for each in behind_workers(4, (0.05, 0.25), hangs=True)]
    found = diagnosis(tmp_path, requests, named=named)

    assert tells_the_truth(found, requests)
    assert found.findings.avoidable.low < 0.5
    assert found.findings.cause in ("missing", "unknown") if named else found.findings.cause == "missing"
    if not named:
        assert found.findings.avoidable.high > 0.8
        assert "if it named the processes" in " ".join(answer(found))


@pytest.mark.parametrize("precise", [(False, False), (True, False)])
def test_slow_clients_beside_whole_seconds_leave_a_range(tmp_path: Path, precise: Sequence[bool]) -> None:
    """Nobody can tell them from waits; that there are some shows in ends that are noted too late."""
    random, served = Random(4), behind_workers(6, (0.05, 0.25))
    requests = [slow_to_take(each, random.uniform(0.1, 2.5)) if random.random() < 0.04 else each for each in served]
    found = diagnosis(tmp_path, requests, precise=precise)

    assert tells_the_truth(found, served)
    assert found.findings.is_doubtful
    low, high = (percent(end) for end in found.findings.waited[::2])
    assert f"{low} to {high}" in diagnosis_page(found, None).partition("of the requests waited for a worker")[0]
    assert not diagnosis(tmp_path, served, precise=precise).findings.is_doubtful


def test_whole_seconds_beside_lost_lines_leave_open_who_waited(tmp_path: Path) -> None:
    """Requests that take 1.9 s and never wait log a second, as gunicorn's %(T)s does."""
    served = [Request("/items", n * 0.7, n * 0.7 + 0.001, n * 0.7 + 1.9, n * 0.7 + 1.901, n % 4) for n in range(1000)]
    nginx, gunicorn = write(tmp_path, served, precise=(True, False), whole=True)
    gunicorn.write_text("".join(line for n, line in enumerate(gunicorn.open()) if n % 50))
    found = diagnosed([nginx], [gunicorn])

    assert found.findings.ranges
    assert (found.findings.ranges.waited.low, found.findings.ranges.usually.low) == (0, 0)
    assert found.findings.cause in ("coarse", "missing")


@pytest.mark.parametrize("named", [True, False])
def test_waits_below_a_whole_second_may_have_been_avoidable(tmp_path: Path, *, named: bool) -> None:
    """Three of ten requests wait for 0.3 s behind their own worker, and gunicorn's %(T)s logs one second of 1.05 s."""
    served = []
    for n in range(300):
        at = n * 5.0
        served += [Request("/items", at, at + 0.001, at + 1.051, at + 1.052, 0),
                   Request("/items", at + 2, at + 2.001, at + 3.051, at + 3.052, 1)]  # fmt: skip
        if n % 7 != 6:
            served.append(Request("/items", at + 0.751, at + 1.052, at + 2.102, at + 2.103, 0))
    found = diagnosis(tmp_path, served, precise=(True, False), whole=True, named=named)

    low, _, high = found.findings.avoidably
    assert low <= 0.3 <= high


@pytest.mark.parametrize("by_s", [1.5, -4.0, 90.0])
def test_a_clock_that_was_set_meanwhile_is_told_by_ids(tmp_path: Path, by_s: float) -> None:
    requests = behind_workers(4, (0.05, 0.25))
    paths = write(tmp_path, requests)
    ended = sorted(requests, key=lambda each: each.ended)
    (tmp_path / "later").mkdir()
    early, late = (
        write(tmp_path / "later", requests, ahead_s=ahead)[1].read_text().splitlines() for ahead in (0, by_s)
    )
    paths[1].write_text("\n".join([*early[: len(ended) // 2], *late[len(ended) // 2 :]]))
    found = diagnosed(paths[:1], paths[1:])
    print_diagnosis(Console(file=(told := StringIO()), width=80), found, None)

    assert "The times of gunicorn.log run unsteadily" in told.getvalue()
    assert tells_the_truth(found, requests)
    assert (found.findings.cause, found.findings.is_doubtful) == ("avoidable", False)


@pytest.mark.parametrize("ids", [True, False])
def test_lines_that_stand_in_a_log_again_count_once(tmp_path: Path, *, ids: bool) -> None:
    """All of them, or with ids some."""
    requests = behind_workers(4, (0.05, 0.25))
    nginx, gunicorn = write(tmp_path, requests, ids=ids)
    lines = gunicorn.read_text().splitlines()
    gunicorn.write_text("\n".join([*lines, *lines[300 if ids else 0 :]]))
    found = diagnosed([nginx], [gunicorn])

    assert f"gunicorn.log has {len(lines) - 300 * ids} repeated lines" in " ".join(found.logs.servers[0].notes)
    assert len(found.requests) == len(requests)


def test_an_aws_load_balancer_says_how_long_it_waited_for_what_it_gave_up(tmp_path: Path) -> None:
    requests = [replace(each, ended=each.began + 12, answered=each.sent + 5, status=504)
                if each.path == "/export" else each for each in quiet("/export")]  # fmt: skip
    nginx, gunicorn = write(tmp_path, requests)

    def line(each: Request) -> str:
        at, created = (datetime.fromtimestamp(BEGAN + time, UTC).isoformat(timespec="microseconds")[:26]
                       for time in (each.answered, each.sent))  # fmt: skip
        took = "0.000 -1 -1 504 -" if each.status == 504 else f"0.000 {each.answered - each.sent:.3f} 0.000 200 200"
        return (f'h2 {at}Z app/a/5 192.0.2.1:49 10.0.0.9:80 {took} 34 9 "GET https://a.example:443{each.path} HTTP/2" '
                f'"curl" E T arn:x "Root=1-5" "a.example" "arn" 0 {created}Z "forward" "-" "-"')  # fmt: skip

    nginx.write_text("\n".join(line(each) for each in sorted(requests, key=lambda each: each.answered)))

    assert "status 504 for GET /export (100, after 5 s)" in next(answer(diagnosed([nginx], [gunicorn])))


def test_durations_of_a_whole_second_may_be_precise(tmp_path: Path) -> None:
    """Requests that sleep for a second take a millisecond more."""
    requests = [replace(each, ended=each.began + 1.0003, answered=each.began + 1.0008) for each in quiet("/items")]
    found = diagnosis(tmp_path, requests)

    assert (found.logs.servers[0].took_tick_s, found.findings.is_doubtful) == (0, False)


def test_a_wait_below_a_second_may_be_behind_a_slow_client(tmp_path: Path) -> None:
    """All clients are 3 s late, all requests wait for 0.3 s, and the server's times are whole seconds."""
    requests = [slow_to_take(replace(each, sent=each.sent - 0.3), 3) for each in quiet("/items")]
    findings = diagnosis(tmp_path, requests, precise=(True, False)).findings

    assert findings.waited.high == 1
    assert findings.cause


def test_clients_that_are_all_as_late_for_a_while_are_no_clock_that_was_set(tmp_path: Path) -> None:
    requests = [replace(each, answered=each.answered + 2) if 600 <= n < 800 else each
                for n, each in enumerate(quiet("/items"))]  # fmt: skip
    found = diagnosis(tmp_path, requests)

    assert [server.notes for _, server, _ in found.requests.joins] == [()]
    assert (found.findings.waited.likely, found.findings.cause) == (0, "")


def test_lost_lines_are_no_whole_seconds(tmp_path: Path) -> None:
    served = [replace(each, sent=each.sent - 0.4) if n % 33 == 0 else each for n, each in enumerate(quiet("/items"))]
    nginx, gunicorn = write(tmp_path, served)
    gunicorn.write_text("".join(line for n, line in enumerate(gunicorn.open()) if n % 30))
    found = diagnosed([nginx], [gunicorn])

    assert found.findings.ranges
    assert found.findings.waited.low < 0.01 < found.findings.ranges.usually.low
    assert "Whole seconds" not in " ".join(answer(found))


@pytest.mark.parametrize("late_s", [0.1, 0.3])
def test_clients_that_are_a_little_late_for_whole_seconds_may_be_all_that_there_is(
    tmp_path: Path, late_s: float
) -> None:
    random = Random(5)
    requests = [slow_to_take(each, late_s) if random.random() < 0.3 else each for each in quiet("/items")]
    found = diagnosis(tmp_path, requests, precise=(False, False))

    assert found.findings.waited.low <= 0.01


@pytest.mark.parametrize("left", [0, 460])
def test_balancers_have_several_statuses_for_a_client_that_left(tmp_path: Path, left: int) -> None:
    """Of a log without any status, none tells it."""
    requests = [replace(each, ended=each.began + 12, answered=each.sent + 5, status=left)
                if each.path == "/export" else each for each in quiet("/export")]  # fmt: skip
    nginx, gunicorn = write(tmp_path, requests)

    def envoy(each: Request, status: int) -> str:
        return json.dumps({"start_time": iso(BEGAN + each.sent), "method": "GET", "path": each.path,
                           "response_code": status, "duration": round(1000 * (each.answered - each.sent))})  # fmt: skip

    nginx.write_text("\n".join(envoy(each, each.status) for each in requests))
    assert "status 499 for GET /export (100, after 5 s)" in next(answer(diagnosed([nginx], [gunicorn])))
    nginx.write_text("\n".join(envoy(each, 0) for each in requests))
    assert not diagnosed([nginx], [gunicorn]).requests.left


@pytest.mark.parametrize("of", [0, 1])
def test_a_log_alone_tells_no_waits_however_coarse(tmp_path: Path, of: int) -> None:
    path = write(tmp_path, quiet("/items"), precise=(False, False))[of]
    findings = diagnosed([path] * (of == 0), [path] * (of == 1)).findings

    assert (findings.cause, findings.is_doubtful) == ("", False)


def test_whole_durations_of_a_balancer_leave_a_range(tmp_path: Path) -> None:
    """Apache's %T: requests that wait for 0.9 s take as long as the server's own duration says."""
    requests = [Request("/items", n * 3.0, n * 3 + 0.9, n * 3 + 1.9, n * 3 + 1.901, n % 4) for n in range(400)]
    nginx, gunicorn = write(tmp_path, requests)
    nginx.write_text(nginx.read_text().replace("rt=1.901", "rt=1s"))
    findings = diagnosed([nginx], [gunicorn]).findings

    assert findings.waited.high == 1


def test_lines_of_one_route_that_are_missing_leave_a_range_for_this_route(tmp_path: Path) -> None:
    """Most of the lines of a twelfth of the requests."""
    nginx, gunicorn = write(tmp_path, quiet("/pay"))
    lines = gunicorn.read_text().splitlines(keepends=True)
    gunicorn.write_text("".join(line for n, line in enumerate(lines) if "/pay" not in line or n % 5 < 2))
    items, pay = sorted(diagnosed([nginx], [gunicorn]).findings.classes, key=lambda each: each.name)

    assert (items.name, items.waited.high) == ("GET /items", 0)
    assert pay.waited.high > 0.5
    assert pay.wait_p99_s.high > 0.02


def test_the_clock_of_a_second_balancer_is_told_by_the_server_that_tells_it_best(tmp_path: Path) -> None:
    """It is 0.1 s ahead of the first, and the last of the servers logs whole seconds."""
    requests, written = quiet("/items"), {}
    ahead = [replace(each, sent=each.sent + 0.1, answered=each.answered + 0.1) for each in requests]
    for name, of, precise in (("first", requests, True), ("second", ahead, True), ("coarse", requests, False)):
        (tmp_path / name).mkdir()
        written[name] = [path.read_text().splitlines() for path in write(tmp_path / name, of, precise=(True, precise))]
    logs, few = [], set(range(0, 1200, 37))  # requests of the last server, of both balancers
    second = set(range(0, 1200, 2))
    for at, name, mine in ((0, "first", {*range(1200)} - second), (0, "second", second),
                           (1, "first", {*range(1200)} - few), (1, "coarse", few)):  # fmt: skip
        lines = [line for line in written[name][at] if int(line.rpartition("id=")[2], 16) in mine]
        logs.append(tmp_path / f"{name}-{at}.log")
        logs[-1].write_text("\n".join(lines))
    found = diagnosed(logs[:2], logs[2:])

    ahead_s = {(ours.file, its.file): joined.clock.ahead_s for ours, its, joined in found.requests.joins}
    assert ahead_s["second-0.log", "first-1.log"] == pytest.approx(ahead_s["first-0.log", "first-1.log"], abs=0.02)


def one_queue(sent: Sequence[float], work_s: float, threads_at: Callable[[float], Sequence[int]]) -> list[Request]:
    """Return requests that the workers of free threads take in order; workers differ by time, each with a thread."""
    free, requests = dict[int, float](), []
    for number, at in enumerate(sent):
        thread = min(threads_at(at), key=lambda each: (max(free.get(each, 0.0), at), (each + number) % 2))
        began = max(free.get(thread, 0.0), at)
        free[thread] = began + work_s
        requests.append(Request("/a", at, began + 0.001, began + work_s, began + work_s + 0.001, thread))
    return requests


@pytest.mark.parametrize("is_added", [True, False])
def test_a_worker_before_its_first_request_or_after_its_last_may_not_be_there(
    tmp_path: Path, *, is_added: bool
) -> None:
    """Half of the time, a single worker serves pairs of requests, of which the second waits; then there are two."""
    sent = [2 * n + late for n in range(100) for late in (0, 0.1)]
    found = diagnosis(tmp_path, one_queue(sent, 0.5, lambda at: [0, 1] if (at > 100) is is_added else [0]))

    assert found.findings.waited.likely == pytest.approx(0.25, abs=0.01)
    assert found.findings.avoidably == pytest.approx((0, 0, 0.25), abs=0.01)
    assert next(answer(found)).startswith("Nobody can tell the cause: ")
    assert "whether a worker was there" in " ".join(answer(found))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("status", [499, 504])
def test_what_the_balancer_gave_up_without_a_line_of_the_server_may_have_held_a_thread(
    tmp_path: Path, status: int, *, named: bool
) -> None:
    """One of two threads hangs, again and again for a minute, and the second of each pair of requests waits."""
    sent = [2 * n + late for n in range(200) for late in (0, 0.1)]
    served = one_queue(sent, 0.5, lambda at: [1] if at % 100 > 20 else [0, 1])
    hung = [Request("/a", at, at, at + 79, at + 79, 0, status, 0) for at in (20.05, 120.05, 220.05, 320.05)]
    findings = diagnosis(tmp_path, [*served, *hung], named=named).findings

    assert findings.avoidably.low == pytest.approx(0, abs=0.01)
    assert findings.cause != "avoidable"


@pytest.mark.parametrize("hosts", [1, 2])
def test_without_the_log_of_a_host_nobody_can_tell_who_waited_there(tmp_path: Path, hosts: int) -> None:
    nginx, gunicorn = write(tmp_path, quiet("/items"))
    lines = gunicorn.read_text().splitlines(keepends=True)
    gunicorn.write_text("".join(line for line in lines if int(line.partition(" <")[2][0]) < hosts))
    found = diagnosed([nginx], [gunicorn])

    assert found.findings.cause == "missing"
    assert found.findings.avoidably.high > 0.4
    assert next(answer(found)).startswith("Nobody can tell the cause, because lines are missing")


def test_hardly_any_request_waited_is_said_of_those_with_all_their_lines(tmp_path: Path) -> None:
    nginx, gunicorn = write(tmp_path, quiet("/items"))
    gunicorn.write_text("".join(line for n, line in enumerate(gunicorn.open()) if n % 10))

    assert next(answer(diagnosed([nginx], [gunicorn]))).startswith("Hardly any request that has all its lines waited")


def of_sizes(threads: Sequence[int], more: int) -> list[Request]:
    """Return requests to workers with a queue and so many threads each, in bursts of as many and some more."""
    requests = []
    for worker, own in enumerate(threads):
        for at in (2.0 * n for n in range(60)):
            requests += [Request("/a", at, at + 0.001, at + 0.5, at + 0.501, worker) for _ in range(own)]
            requests += [Request("/a", at + 0.1, at + 0.501, at + 1, at + 1.001, worker)] * (more if own == 1 else 0)
    return sorted(requests, key=lambda each: each.sent)


def test_workers_of_other_sizes_have_their_own_numbers_of_threads(tmp_path: Path) -> None:
    """The worker with a single thread has a queue, while another has threads that are free for half of each wait."""
    requests = [replace(each, ended=each.sent + 0.3, answered=each.sent + 0.301) if each.worker else each
                for each in of_sizes([1, 4], more=1)]  # fmt: skip
    found = diagnosis(tmp_path, requests)

    assert len(found.capacity.lacking) == 3
    assert found.findings.avoidable.low < 0.5 < found.findings.avoidable.high
    assert found.findings.avoidably.high == pytest.approx(60 / 360)
    assert found.findings.cause != "unknown"


@pytest.mark.parametrize("named", [True, False])
def test_whole_seconds_of_an_overload_that_the_balancer_left_do_not_tell_of_avoidable_waits(
    tmp_path: Path, *, named: bool
) -> None:
    """Two workers take all from one queue, so no wait was avoidable."""
    served = one_queue([0.53 * n for n in range(110)], 1.2, lambda _: [0, 1])
    requests = [replace(each, answered=each.sent + 3, status=499) if each.answered - each.sent > 3 else each
                for each in served]  # fmt: skip
    found = diagnosis(tmp_path, requests, precise=(True, False), named=named)

    assert found.findings.avoidably.low < 0.01
    assert found.findings.waited.low > 0.9

"""stampede diagnose: what logs say of a service in trouble comes first, and nothing else counts as a wait."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pytest

from stampede.logs.diagnose.diagnosis import Diagnosis
from stampede.logs.diagnose.screen import answer
from tests.whole.test_diagnose import BEGAN
from tests.whole.test_pairs_of_logs import clf, diagnosed


@dataclass(frozen=True)
class Request:
    """One request as both logs have it; times are seconds since BEGAN."""

    path: str
    sent: float
    began: float
    ended: float
    answered: float
    worker: int
    status: int = 200
    of_server: int = 200
    upstream: float | None = None


def quiet(slow: str, every: int = 12) -> list[Request]:
    """Return 1,200 requests of which none waits for its worker; some have another path."""
    random, requests = Random(1), []
    for number in range(1200):
        sent = number * 0.3 + random.uniform(0, 0.2)
        worked = random.uniform(0.02, 0.06)
        path = slow if number % every == 5 else "/items"
        requests.append(Request(path, sent, sent + 0.001, sent + worked, sent + worked + 0.001, number % 4))
    return requests


def diagnosis(
    folder: Path, requests: Sequence[Request], *, ids: bool = True, ahead_s: float = 0.0, upstream: bool = False
) -> Diagnosis:
    lines: tuple[list[tuple[float, str]], list[tuple[float, str]]] = [], []
    for number, each in enumerate(requests):
        id_ = f" id={number:032x}" if ids else ""
        urt = f" urt={each.answered - each.sent if each.upstream is None else each.upstream:.3f}" if upstream else ""
        at, took = BEGAN + each.answered, each.answered - each.sent
        lines[0].append((each.answered, f'10.0.0.1 - - {clf(at)} "GET {each.path} HTTP/1.1" {each.status} 9 "-" "-" '
                                        f"rt={took:.3f}{urt} at={at:.3f}{id_}"))  # fmt: skip
        at = BEGAN + each.ended + ahead_s
        lines[1].append((each.ended, f'10.0.0.9 - - {clf(at)} "GET {each.path} HTTP/1.0" {each.of_server} 9 "-" "-" '
                                     f"rt={each.ended - each.began:.6f} <{each.worker}> at={at:.6f}{id_}"))  # fmt: skip
    paths = folder / "nginx.log", folder / "gunicorn.log"
    for path, written in zip(paths, lines, strict=True):
        path.write_text("".join(f"{text}\n" for _, text in sorted(written)))
    return diagnosed(paths[:1], paths[1:])


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

    assert (found.findings.cause, found.findings.waited) == ("", 0)
    assert found.requests.slow_clients == (100 if slow is slow_to_take else 0)


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


def test_an_upload_that_may_be_slow_is_named_as_a_cause(tmp_path: Path) -> None:
    requests = [slow_to_send(each, 20) if each.path == "/files" else each for each in quiet("/files")]

    assert "clients that send slowly" in " ".join(answer(diagnosis(tmp_path, requests)))


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

    assert found.findings.waited == pytest.approx(15 / 10_030, abs=1e-4)
    assert found.findings.cause == "avoidable"
    assert "50.0% of those for GET /pay, waited" in next(answer(found))

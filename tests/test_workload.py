"""servers/app: what a server is asked to do, and what it refuses."""

import importlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.paths import SERVERS

sys.path.insert(0, str(SERVERS / "app"))

import workload
import wsgi


def get(path: str, query: str = "") -> tuple[str, dict[str, Any]]:
    """Call the WSGI application and return status and answer."""
    started: list[str] = []
    environ = {"PATH_INFO": path, "QUERY_STRING": query, "SERVER_SOFTWARE": "gunicorn/27.0.1"}
    body = b"".join(wsgi.app(environ, lambda status, _headers: started.append(status)))
    return started[0], json.loads(body)


def test_an_answer_says_who_did_it_and_when() -> None:
    before = time.time()

    status, answer = get("/", "delay=0.05")

    assert status == "200 OK"
    assert set(answer) == {"worker", "host", "thread", "connection", "began", "ended", "server"}
    assert answer["thread"] == threading.get_native_id()
    assert answer["server"] == "gunicorn/27.0.1"
    assert before - 1e-5 <= answer["began"]
    assert answer["ended"] - answer["began"] >= 0.05


def test_readiness_does_no_work() -> None:
    assert get("/-/ready") == ("200 OK", {"ready": True})


def test_an_unknown_path_is_not_found() -> None:
    assert get("/nope") == ("404 Not Found", {"error": "no such path: /nope"})


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/", "delay=soon", "delay='soon' is not a number"),
        ("/", "delay=", "delay='' is not a number"),
        ("/", "delay=-1", "delay=-1 is not between 0 and 3600"),
        ("/", "delay=nan", "delay=nan is not between 0 and 3600"),
        ("/", "delay=1&dealy=2", "unknown parameter dealy"),
        ("/work", "rounds=1.5", "rounds=1.5 is not a whole number"),
        ("/work", "cpu=melt", "cpu='melt' is not one of burn, hold"),
        ("/work", "cpu=hold&call_us=3000", "call_us=3000 is not between 0 and 2000"),
        ("/call", "delay=31", "delay=31 is not between 0 and 30"),
        ("/call", "dealy=1", "unknown parameter dealy"),
        ("/work", "cpu_ms=1e9", "cpu_ms=1e9 is not between 0 and 3.6e+06"),
    ],
)
def test_a_bad_parameter_is_refused_before_any_work(path: str, query: str, message: str) -> None:
    assert get(path, query) == ("400 Bad Request", {"error": message})


def test_burning_uses_processor_time_and_sleeping_does_not() -> None:
    began = time.thread_time()
    get("/work", "rounds=2&cpu_ms=30&cpu=burn")
    burnt = time.thread_time() - began
    get("/work", "rounds=2&wait_ms=30&cpu_ms=30&cpu=hold")
    held = time.thread_time() - began - burnt

    assert burnt >= 0.06
    assert held < burnt / 2


def test_holding_keeps_the_interpreter_lock() -> None:
    """While one thread holds the lock, another gets on only at the switch interval, not in parallel."""
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)

    def progress(seconds_of: Any) -> float:
        nonlocal counted
        counted, began = 0, time.perf_counter()
        seconds_of()
        return counted / (time.perf_counter() - began)

    other = threading.Thread(target=count)
    other.start()
    try:
        free = progress(lambda: time.sleep(0.2))
        held = progress(lambda: workload.hold(200))
    finally:
        stop.set()
        other.join()

    assert held < free / 5


def test_a_longer_call_holds_the_lock_for_longer() -> None:
    def held(call_us: float) -> float:
        began = time.perf_counter()
        workload.hold(20, call_us=call_us)
        return time.perf_counter() - began

    short = min(held(100) for _ in range(5))

    assert held(2000) > 2 * short


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The service that is called, on a port of this machine. Each stall lasts for 2 s of every 10."""
    settings = {"FIRST_S": "1", "EVERY_S": "10", "STALL_S": "2", "TAKES_S": "0.2"}
    for name, value in settings.items():
        monkeypatch.setenv(f"LAB_API_{name}", value)
    monkeypatch.syspath_prepend(str(SERVERS / "api"))
    module = importlib.import_module("api")
    monkeypatch.setattr(module, "STALLS", tmp_path / "stalls")
    server = module.Server(("127.0.0.1", 0), module.Handler)
    monkeypatch.setattr(workload, "API", server.server_address)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield module
    server.shutdown()
    thread.join()
    server.server_close()
    del sys.modules["api"]


def test_a_call_waits_for_the_other_service(api: ModuleType) -> None:
    status, answer = get("/call", "delay=0.1")

    assert status == "200 OK"
    assert answer["ended"] - answer["began"] >= 0.1
    assert api.STALLS.exists() is False


@pytest.mark.parametrize("query", ["", "?delay=", "?delay=soon", "?delay=-1", "?delay=nan", "?delay=31"])
def test_the_service_refuses_a_delay_that_is_none_and_does_not_count_it(api: ModuleType, query: str) -> None:
    connection = HTTPConnection(*workload.API)
    connection.request("GET", f"/{query}")
    response = connection.getresponse()

    given = query.removeprefix("?delay=")
    assert response.status == 400
    assert json.load(response) == {"error": f"delay={given} is not between 0 and 30"}
    assert api.Handler.schedule._first_stall is None
    connection.close()


def test_a_call_that_nobody_answers_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setattr(workload, "API", nobody.getsockname())

        status, answer = get("/call", "delay=0.1")

    assert status == "504 Gateway Timeout"
    assert answer == {"error": "127.0.0.1 did not answer: [Errno 111] Connection refused"}


def test_a_call_that_is_answered_with_an_error_is_a_failure(api: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(api.Handler, "do_GET")

    assert get("/call") == ("504 Gateway Timeout", {"error": "127.0.0.1 answered 501"})


def test_the_service_stalls_on_its_schedule_and_writes_down_what_was_met(api: ModuleType) -> None:
    """From 1 to 3 s after the first call, and every 10 s again; nobody called from 11 to 13."""
    schedule = api.Schedule()

    met = [second for second in range(1000, 1034) if second not in (1011, 1012) and schedule.stalls(second)]

    assert met == [1001, 1002, 1021, 1022, 1031, 1032]
    assert api.STALLS.read_text() == "".join(f"{began}.000000 {began + 2}.000000\n" for began in (1001, 1021, 1031))

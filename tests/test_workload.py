"""servers/app: what a server is asked to do, and what it refuses."""

import json
import sys
import threading
import time
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

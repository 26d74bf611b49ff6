"""servers/app: what a server is asked to do, and what it refuses."""

import asyncio
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from stampede.paths import ROOT, SERVERS
from tests.conftest import wait_until
from tests.django_site import Site

sys.path.insert(0, str(SERVERS / "app"))
sys.path.insert(0, str(ROOT / "probe"))

import counters
import flask_app
import sampled
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


def test_readiness_does_no_work_and_an_unknown_path_is_not_found() -> None:
    assert get("/-/ready") == ("200 OK", {"ready": True})
    assert get("/nope") == ("404 Not Found", {"error": "no such path: /nope"})
    with pytest.raises(workload.NoSuchPath, match=r"^no such path: /nope$"):
        asyncio.run(workload.answer_async("/nope", "", "uvicorn/0"))


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/", "delay=soon", "delay='soon' is not a number"),
        ("/", "delay=-1", "delay=-1 is not between 0 and 3600"),
        ("/", "delay=nan", "delay=nan is not between 0 and 3600"),
        ("/", "delay=1&dealy=2", "unknown parameter dealy"),
        ("/work", "rounds=1.5", "rounds=1.5 is not a whole number"),
        ("/fibonacci", "n=36", "n=36 is not between 0 and 35"),
        ("/work", "cpu=melt", "cpu='melt' is not one of burn, hold, pool, dirty"),
        ("/work", "cpu=hold&call_us=3000", "call_us=3000 is not between 0 and 2000"),
        ("/call", "delay=31", "delay=31 is not between 0 and 30"),
        ("/work", "cpu_ms=1e9", "cpu_ms=1e9 is not between 0 and 3.6e+06"),
        ("/cache", "objects=1", "unknown parameter objects"),
        ("/query", "takes=long", "takes='long' is not a number"),
        ("/stream", "parts=0.5", "parts=0.5 is not a whole number"),
        ("/stream", "every=-1", "every=-1 is not between 0 and 3600"),
    ],
)
def test_a_bad_parameter_is_refused_before_any_work(path: str, query: str, message: str) -> None:
    assert get(path, query) == ("400 Bad Request", {"error": message})


def test_a_fibonacci_number_is_computed_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [workload.fibonacci(n) for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]
    counted = Mock(wraps=workload.fibonacci)
    monkeypatch.setattr(workload, "fibonacci", counted)

    assert get("/fibonacci", "n=10")[0] == "200 OK"
    assert counted.call_count == 177


@pytest.mark.parametrize(
    ("collector", "enabled", "threshold", "frozen"),
    [("default", True, 700, False), ("freeze", True, 700, True), ("disable", False, 700, False),
     ("rare", True, 50_000, False)],
)  # fmt: skip
def test_the_collector_is_set_beside_a_full_cache_that_requests_renew(
    collector: str, enabled: bool, threshold: int, frozen: bool
) -> None:
    """In a process of its own, whose cache has a thousandth of the objects."""
    program = f"""
import gc, sys
sys.path.insert(0, {str(SERVERS / "app")!r})
import cache, workload
gc.set_threshold(700)
cache.OBJECTS = 10
cache.set_up({collector!r})
first = cache._entries[0]
frozen = gc.get_freeze_count() > 2000
workload.answer("/cache", "", "")
workload.answer("/collect", "", "")
print(gc.isenabled(), gc.get_threshold()[0], frozen, len(cache._entries), cache._entries[0] is first)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(said) for said in (enabled, threshold, frozen, 200, False)]


def test_a_connection_that_nobody_accepts_waits_in_the_listen_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's table tells of each listening socket; a busy server's other sockets do not count."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(sampled, "_PORT", f":{server.getsockname()[1]:04X}")
        assert sampled.waiting(sampled.TABLES) == 0
        with socket.create_connection(server.getsockname()), socket.create_connection(server.getsockname()):
            assert sampled.waiting(sampled.TABLES) == 2
            server.accept()[0].close()
            assert sampled.waiting([*sampled.TABLES, Path("no-such-table")]) == 1


def test_samples_of_the_probe_are_summed_and_its_counts_are_as_they_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = iter([(2, 1), (1, 4), (0, 4)])

    def snapshot(_: object) -> dict[str, Any]:
        busy, known = next(told)
        routes = {"/": {"known": known, "avoidable": 1}, "/slow": {"known": 1, "avoidable": 0}}
        return {"busy_threads": busy, "threads": 8, "routes": routes}

    monkeypatch.setattr(sampled, "snapshot", snapshot)
    table = tmp_path / "tcp"
    table.write_text("sl local rem st queues\n 0: 00000000:1F40 00000000:0000 0A 00000000:00000003 00:0\n")
    samples = sampled.sampled(None, [table])

    assert [*next(samples).values()] == [1, 1, 2, 8, 2, 1]
    table.write_text(table.read_text().replace("3 00:0", "0 00:0"))
    assert next(samples) == {"samples": 2, "backlog": 1, "busy": 3, "threads": 16, "known": 5, "avoidable": 1}
    assert next(samples)["samples"] == 2, "nobody is at work"


def test_burning_uses_processor_time_and_sleeping_does_not() -> None:
    began = time.thread_time()
    get("/work", "rounds=2&cpu_ms=30&cpu=burn")
    burnt = time.thread_time() - began
    get("/work", "rounds=2&wait_ms=30&cpu_ms=30&cpu=hold")
    held = time.thread_time() - began - burnt

    assert burnt >= 0.06
    assert held < burnt / 2


def test_a_process_of_a_pool_computes_while_the_thread_waits() -> None:
    """In a process of its own, because multiprocessing leaves a process behind that lives as long as its parent."""
    program = """
import time, workload
began, began_here = time.time(), time.process_time()
workload.answer("/work", "cpu_ms=200&cpu=pool", "")
print(time.time() - began, time.process_time() - began_here)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=SERVERS / "app", capture_output=True, text=True, check=True
    )

    took_s, computed_s = map(float, done.stdout.split())
    assert took_s >= 0.2
    assert computed_s < 0.15


def test_a_dirty_worker_of_gunicorn_computes_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class has the method that it is called by; gunicorn's client carries the call into its process."""
    monkeypatch.syspath_prepend(str(SERVERS / "gunicorn"))
    burnt: list[float] = []
    monkeypatch.setattr(workload, "burn", burnt.append)

    class Client:
        def execute(self, path: str, action: str, *given: object) -> None:
            module, _, name = path.partition(":")
            getattr(importlib.import_module(module), name)()(action, *given)

    monkeypatch.setattr("gunicorn.dirty.get_dirty_client", Client)

    assert get("/work", "rounds=2&cpu_ms=30&cpu=dirty")[0] == "200 OK"
    assert burnt == [30, 30]


def test_holding_keeps_the_interpreter_lock() -> None:
    """Another thread does not get on during a call."""
    gaps: list[float] = []
    stop = threading.Event()

    def look() -> None:
        last = time.perf_counter()
        while not stop.is_set():
            time.sleep(0)
            gaps.append(-last + (last := time.perf_counter()))

    other = threading.Thread(target=look)
    other.start()
    try:
        wait_until(lambda: gaps)
        workload.hold(1, call_us=200_000)
    finally:
        stop.set()
        other.join()

    assert max(gaps) >= 0.19


def test_a_longer_call_holds_the_lock_for_longer() -> None:
    """Without its length, twenty calls would take less than 20 ms."""
    began = time.perf_counter()
    workload.hold(20, call_us=2000)

    assert time.perf_counter() - began >= 0.04


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The service that is called, on a port of this machine. Each stall lasts for 2 s of every 10."""
    settings = {"FIRST_S": "1", "EVERY_S": "10", "STALL_S": "2", "TAKES_S": "0.2", "ONE_DEVICE": "false"}
    for name, value in settings.items():
        monkeypatch.setenv(f"LAB_API_{name}", value)
    monkeypatch.syspath_prepend(str(SERVERS / "api"))
    module = importlib.import_module("api")
    monkeypatch.setattr(module, "STALLS", tmp_path / "stalls")
    server = module.Server(("127.0.0.1", 0), module.Handler)
    monkeypatch.setattr(workload, "API", server.server_address)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
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


def test_a_device_works_on_each_call_for_a_slice_in_turn(api: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three at once takes about three times as long as one alone."""
    now_s, done = [0.0], list[float]()
    all_there = threading.Event()

    def sleep(seconds: float) -> None:
        all_there.wait()
        now_s[0] += seconds

    def use(_: int) -> None:
        device.use(20)
        done.append(now_s[0])

    monkeypatch.setattr(api, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s[0]))
    monkeypatch.setattr(api, "SLICE_S", 1)
    device = api.Device()
    with ThreadPoolExecutor(3) as pool:
        using = [pool.submit(use, number) for number in range(3)]
        wait_until(lambda: device._waiting.qsize() == 2)  # the device has begun with the third
        all_there.set()

    assert all(one.exception() is None for one in using)
    assert min(done) >= 58
    assert now_s[0] == 60


def test_calls_that_share_one_device_use_it(api: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    monkeypatch.setattr(api, "ONE_DEVICE", True)
    monkeypatch.setattr(api.Handler, "device", SimpleNamespace(use=used.append))

    assert (get("/call", "delay=0.2")[0], used) == ("200 OK", [0.2])


def test_calls_that_share_no_device_do_not_wait_for_each_other(
    api: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the three would end if they took turns."""
    assert api.ONE_DEVICE is False
    together = threading.Barrier(3)
    monkeypatch.setattr(api, "time", SimpleNamespace(sleep=lambda _: together.wait(), time=time.time))

    with ThreadPoolExecutor(3) as pool:
        called = list(pool.map(lambda _: get("/call", "delay=0.2")[0], range(3)))

    assert called == ["200 OK"] * 3


def turns_meanwhile(path: str, query: str) -> int:
    """Return how often something else on an event loop had its turn while the loop answered a request."""

    async def count() -> int:
        answering = asyncio.create_task(workload.answer_async(path, query, "uvicorn/0"))
        turns = 0
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
        assert answering.result()["server"] == "uvicorn/0"
        return turns

    return asyncio.run(count())


def test_an_event_loop_serves_others_while_a_request_waits_and_only_then(
    api: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computing blocks it, and so does a call: one turn before, and one for each time that the request waits."""

    async def sleep(seconds: float) -> None:
        for _ in range(round(seconds * 2000)):
            await asyncio.sleep(0)

    monkeypatch.setattr(workload, "asyncio", SimpleNamespace(sleep=sleep))
    assert api.ONE_DEVICE is False
    assert turns_meanwhile("/", "delay=0.05") >= 100
    assert turns_meanwhile("/call", "delay=0.05") <= 3
    for cpu in ("burn", "hold"):
        assert turns_meanwhile("/work", f"rounds=1&wait_ms=0&cpu_ms=50&cpu={cpu}") <= 3


@pytest.mark.parametrize(
    "answered",
    ["workload.answer('/crash', '', '')", "asyncio.run(workload.answer_async('/crash', '', ''))"],
    ids=["answer", "answer_async"],
)
def test_a_crash_kills_the_process(answered: str) -> None:
    """As the kernel would when there is no memory left: nothing is tidied up, and nobody is told."""
    script = f"import asyncio, workload\ntry: {answered}\nfinally: print('alive')"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=SERVERS / "app", capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


Ask = Callable[[str, str], tuple[int, str, dict[str, Any]]]
"""Asks an application for a path and a query, and returns status, content type and answer."""
FASTAPI = ("sync", "typed", "asynchronous", "blocking", "in_threads")


@pytest.fixture(scope="module")
def fastapi_app() -> Iterator[ModuleType]:
    """The applications of FastAPI, as a server would load them that is called httpx."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_SERVER", "httpx")
        yield importlib.import_module("fastapi_app")
    del sys.modules["fastapi_app"]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which workers count, which is another one in a container."""
    monkeypatch.setattr(counters, "FOLDER", tmp_path / "workers")
    return tmp_path / "workers"


def served(workers: Path) -> int:
    """Return how many requests this process has counted."""
    name, count = (workers / str(os.getpid())).read_text().split()
    assert name == "served"
    return int(count)


def answers(app: Any, paths: list[str], method: str = "GET") -> list[httpx.Response]:
    """Start an application of FastAPI, ask it for some paths at the same moment, and end it."""

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            return await asyncio.gather(*(client.request(method, f"http://app{path}") for path in paths))

    return asyncio.run(ask_all())


@pytest.mark.parametrize("name", ["sync", "asynchronous", "in_threads"])
@pytest.mark.usefixtures("workers")
def test_a_background_task_sleeps_after_the_answer_in_the_pool(
    fastapi_app: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    slept: list[tuple[float, int]] = []
    monkeypatch.setattr(fastapi_app.time, "sleep", lambda seconds: slept.append((seconds, threading.get_native_id())))
    [answer] = answers(getattr(fastapi_app, name), ["/background?takes=5"])

    assert (answer.status_code, answer.json()["worker"]) == (200, os.getpid())
    assert [seconds for seconds, _ in slept] == [5]
    assert slept[0][1] != threading.get_native_id()


ON_THE_LOOP = {"LAB_APP": "django_app:asynchronous"}


@pytest.fixture(
    scope="module",
    params=[
        ("wsgi", {}),
        ("asgi", {}),
        ("asgi", {"LAB_MIDDLEWARE": "sync"}),
        ("asgi", ON_THE_LOOP | {"LAB_MIDDLEWARE": "sync"}),
        ("asgi", ON_THE_LOOP | {"LAB_MIDDLEWARE": "async"}),
    ],
    ids=str,
)
def django(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Django without a database, with each kind of views and middlewares."""
    kind, environment = request.param
    with Site(kind, tmp_path_factory.mktemp("django"), LAB_DATABASE="", **environment) as site:
        yield site


def ask_django(site: Site, path: str, query: str) -> tuple[int, str, dict[str, Any]]:
    """Ask Django, which is in another process than the bare application, whose answer it is compared with."""
    status, headers, body = site.ask(path, query=query, api=workload.API)
    answer = json.loads(body)
    assert "lab-served" not in headers
    if "worker" in answer:
        assert answer["worker"] == site.pid
        answer["worker"] = os.getpid()
    return status, headers["content-type"], answer


@pytest.fixture(params=["flask", *FASTAPI])
def ask(request: pytest.FixtureRequest, fastapi_app: ModuleType, workers: Path) -> Iterator[Ask]:  # noqa: ARG001
    """Every application that has a framework and fits into this process, one after the other."""
    if request.param == "flask":
        flask = flask_app.app.test_client()

        def of_flask(path: str, query: str) -> tuple[int, str, dict[str, Any]]:
            server = {"SERVER_SOFTWARE": f"httpx/{version('httpx')}"}
            answer = flask.get(path, query_string=query, environ_overrides=server)
            return answer.status_code, answer.content_type, answer.get_json()

        yield of_flask
        return

    def of_fastapi(path: str, query: str) -> tuple[int, str, dict[str, Any]]:
        [answer] = answers(getattr(fastapi_app, request.param), [f"{path}?{query}"])
        return answer.status_code, answer.headers["content-type"], answer.json()

    yield of_fastapi


REQUESTS = pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/-/ready", ""),
        ("/", ""),
        ("/", "delay=0.01"),
        ("/work", "rounds=2&wait_ms=1&cpu_ms=1&cpu=hold&call_us=900"),
        ("/work", "cpu_ms=1"),
        ("/fibonacci", "n=5"),
        ("/health", ""),
        ("/nope", ""),
        ("/work/", ""),
        ("/", "delay="),
        ("/", "delay=%31&dealy=%32"),
        ("/work", "rounds=1.5"),
        ("/call", "delay=0.1"),
    ],
)


@REQUESTS
def test_every_application_answers_as_the_bare_one_does(
    ask: Ask, path: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which thread it was and when differs; what a framework adds is time alone. Nobody answers the call."""
    compare(ask, path, query, monkeypatch)


@REQUESTS
def test_django_answers_as_the_bare_application_does(
    django: Site, path: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only pages, which are not JSON, say in a header who served them."""
    compare(partial(ask_django, django), path, query, monkeypatch)


def compare(ask: Ask, path: str, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask an application and the bare one, and find no difference but who did it and when."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setattr(workload, "API", nobody.getsockname())

        expected_status, expected = get(path, query)
        status, kind, answer = ask(path, query)

    assert status == int(expected_status.split()[0])
    assert kind == "application/json"
    if "worker" in expected:
        assert answer["began"] <= answer["ended"]
        assert type(answer["thread"]) is int
        expected |= {name: answer[name] for name in ("thread", "began", "ended")}
        expected["server"] = f"httpx/{version('httpx')}"
    assert answer == expected


@pytest.mark.parametrize("name", FASTAPI)
def test_an_application_of_fastapi_counts_what_it_served_from_its_start_on(
    fastapi_app: ModuleType, workers: Path, name: str
) -> None:
    """Its server may not do so. Whether all workers have started is seen by their counts."""
    app = getattr(fastapi_app, name)

    answers(app, [])
    assert served(workers) == 0
    answers(app, ["/", "/-/ready", "/nope", "/?delay=soon"])
    assert served(workers) == 4


def at_once(app: Any, number: int) -> int:
    """Ask for some sleeps at the same moment, and return how many of them the application had at work at once."""
    worked = [one.json() for one in answers(app, number * ["/?delay=0.1"])]
    times = [(float(one["began"]), float(one["ended"])) for one in worked]
    return max(sum(began <= moment < ended for began, ended in times) for moment, _ in times)


class NoConnection(workload.Failure):
    """As in servers/app/connections.py."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR


def one_connection(asked: list[float], free: list[str]) -> SimpleNamespace:
    """Return what stands in for servers/app/connections.py: a pool of one connection, which nobody waits for."""

    @contextmanager
    def taken() -> Iterator[str]:
        if not free:
            raise NoConnection("QueuePool limit reached")
        connection = free.pop()
        try:
            yield connection
        finally:
            free.append(connection)

    def query(connection: str, takes_s: float) -> None:
        assert (connection, free) == ("it", [])
        asked.append(takes_s)

    return SimpleNamespace(NoConnection=NoConnection, taken=taken, query=query)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(("name", "asked"), [("sync", [0.5]), ("depends", [0, 0.5])])
def test_a_query_has_a_connection_for_itself_and_fails_without_one(
    fastapi_app: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, asked: list[float]
) -> None:
    queries, free = list[float](), ["it"]
    monkeypatch.setitem(sys.modules, "connections", one_connection(queries, free))

    [answer] = answers(getattr(fastapi_app, name), ["/query?takes=0.5"])

    assert (answer.status_code, answer.json()["worker"], queries, free) == (200, os.getpid(), asked, ["it"])
    free.clear()
    [answer] = answers(getattr(fastapi_app, name), ["/query?takes=0.5"])
    said = "QueuePool limit reached"
    assert (answer.status_code, answer.json(), answer.headers["Lab-Error"]) == (500, {"error": said}, said)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(
    ("name", "threads", "most"),
    [("sync", "2", 2), ("typed", "2", 2), ("asynchronous", "2", 6), ("blocking", "2", 1), ("in_threads", "2", 2),
     ("sync", "", 6)],
)  # fmt: skip
def test_the_pool_of_threads_is_as_large_as_it_is_told_to_be(
    fastapi_app: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, threads: str, most: int
) -> None:
    """Six at once; what runs on the event loop needs no thread, and may hold up all others."""
    monkeypatch.setenv("LAB_THREADS", threads)

    found = 0
    for _ in range(20):  # on a busy machine, a request may have ended when the last one begins
        found = max(found, at_once(getattr(fastapi_app, name), 6))
        if found >= most:
            break

    assert found == most


@contextmanager
def fastapi_with(**environment: str) -> Iterator[ModuleType]:
    """Load the applications of FastAPI with other variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LAB_SERVER": "httpx", "LAB_THREADS": "2", **environment}.items():
            patch.setenv(name, value)
        patch.delitem(sys.modules, "fastapi_app", raising=False)
        yield importlib.import_module("fastapi_app")


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(
    ("health", "name", "waits"),
    [("endpoint", "sync", True), ("loop", "sync", False), ("loop", "typed", False), ("endpoint", "in_threads", False),
     ("endpoint", "asynchronous", False), ("endpoint", "blocking", True)],
)  # fmt: skip
def test_a_probe_waits_for_a_thread_unless_it_is_answered_on_a_free_loop(health: str, name: str, waits: bool) -> None:
    """Two requests keep both threads, or the loop."""
    with fastapi_with(LAB_HEALTH=health) as module:
        *users, probe = [
            one.json() for one in answers(getattr(module, name), ["/?delay=0.2", "/?delay=0.2", "/health"])
        ]

    assert (probe["began"] >= min(user["ended"] for user in users)) == waits


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(("kind", "stamp"), [("none", None), ("asgi", "1"), ("base", "1")])
def test_six_middlewares_add_a_header_to_the_answer(kind: str, stamp: str | None) -> None:
    with fastapi_with(LAB_MIDDLEWARE=kind) as module:
        [answer] = answers(module.asynchronous, ["/?delay=0"])

        assert (answer.status_code, answer.headers.get("Lab-Stamp")) == (200, stamp)
        assert len(module.asynchronous.user_middleware) == (1 if kind == "none" else 7)


def test_a_port_of_its_own_answers_while_the_loop_is_blocked(workers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free, fastapi_with(LAB_HEALTH="port") as module:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(module, "HEALTH_PORT", free.getsockname()[1])
        free.close()

        async def probe() -> tuple[httpx.Response, int]:
            async with module.blocking.router.lifespan_context(module.blocking):
                asked = asyncio.to_thread(httpx.get, f"http://127.0.0.1:{module.HEALTH_PORT}/health")
                answer = await asked
                return answer, wait_until(lambda: served(workers))  # it counts after the answer

        answer, count = asyncio.run(probe())

    assert (answer.status_code, answer.json()["worker"], count) == (200, os.getpid(), 1)


def test_a_stream_sends_its_parts_one_by_one_and_says_at_last_who_sent_them() -> None:
    started: list[Any] = []
    environ = {"PATH_INFO": "/stream", "QUERY_STRING": "parts=3&every=0.02", "SERVER_SOFTWARE": "gunicorn/27.0.1"}
    parts = [(time.time(), part) for part in wsgi.app(environ, lambda *said: started.append(said))]

    *before, last = [json.loads(part.removeprefix(b"data: ")) for _, part in parts]
    assert started == [("200 OK", [("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no")])]
    assert before == [{"part": 0}, {"part": 1}]
    assert parts[0][0] <= parts[1][0] <= last["ended"]
    assert last["began"] < parts[0][0]
    assert (last["worker"], last["server"]) == (os.getpid(), "gunicorn/27.0.1")


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(("name", "waits"), [("sync", True), ("asynchronous", False)])
def test_a_stream_of_fastapi_takes_a_thread_for_each_part(
    fastapi_app: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, waits: bool
) -> None:
    """With one thread, two streams of def take turns: the second part of either comes after a part of the other."""
    monkeypatch.setenv("LAB_THREADS", "1")
    app = getattr(fastapi_app, name)

    streams = answers(app, 2 * ["/stream?parts=4&every=0.05"])
    told = [json.loads(one.text.strip().split("\n")[-1].removeprefix("data: ")) for one in streams]

    assert all(one.headers["content-type"].startswith("text/event-stream") for one in streams)
    assert all(one.text.count("data: ") == 4 for one in streams)
    assert not waits or max(one["ended"] - one["began"] for one in told) > 6 * 0.05  # of two times four parts
    assert told[0]["began"] < told[1]["ended"]
    assert told[1]["began"] < told[0]["ended"]

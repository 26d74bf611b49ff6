"""The work that requests ask for, the same for every server and framework. This module does not know HTTP.

A request names its work by its path and query string: ``/?delay=S`` sleeps S seconds;
``/work?rounds=N&wait_ms=W&cpu_ms=C&cpu=burn|hold`` does N times {sleep W ms, compute C ms}; with ``cpu=pool`` and
``cpu=dirty``, another process computes meanwhile: the only one of a pool, or one of gunicorn's dirty workers;
``/fibonacci?n=N`` computes the Nth Fibonacci number by recursion, a fixed amount of work in pure Python;
``/call?delay=S`` calls the service ``api``, which answers after S seconds unless it stalls;
``/query?takes=S`` takes a connection to the database from a pool, and asks for something that takes S seconds;
``/crash`` kills the process; ``/health`` asks for no work;
``/cache`` renews an entry of a cache, and ``/collect`` runs Python's garbage collector;
``/stream?parts=N&every=S`` sends N server-sent events, each after S seconds (bare WSGI and FastAPI alone).
The answer says which process and thread did the work, and when.
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import cache

MAX_SERVICE_S = 3600.0
HOLD_CALL_US = 940.0
"""A ``usleep`` of this length takes about a millisecond on Linux, timer slack included. ``call_us`` in a request
replaces this length by the length that takes a millisecond on this machine. A call must be much shorter than the
interpreter's switch interval of 5 ms, or other threads could not ask for the lock between two calls."""
MAX_CALL_US = 2000.0
API = "api", 8000
API_WITHIN_S = 55.0
MAX_CALL_S = 30.0
MAX_FIBONACCI = 35
MAX_PARTS = 10_000
STREAM_HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}

_HOST = socket.gethostname()
time.sleep(float(os.environ.get("LAB_BOOT_S", "0")))  # an application that takes long to start
_libc_holding_the_lock = ctypes.PyDLL(None)


Work = Callable[[], Iterator[float]]
"""Work that yields how many seconds the server must wait before the work goes on."""


class Failure(Exception):
    """A request that cannot be answered; the message says why."""

    status: ClassVar[HTTPStatus]


class BadRequest(Failure):
    """A query string with a wrong parameter; the message names the parameter and its value."""

    status = HTTPStatus.BAD_REQUEST


class NoSuchPath(Failure):
    """A path that does not exist."""

    status = HTTPStatus.NOT_FOUND


class NoAnswer(Failure):
    """The service that was called did not answer; the message says why."""

    status = HTTPStatus.GATEWAY_TIMEOUT


def answer(path: str, query: str, server: str, connection: str = "") -> dict[str, Any]:
    """Do the work that ``path`` and ``query`` ask for and return the answer as JSON-ready values.

    ``worker`` is the process id, ``host`` the name of its container, ``thread`` the native thread id, ``connection`` an
    identifier of the connection, which is empty if the server has none.
    ``began`` and ``ended`` are epoch seconds just before and after the work, with microsecond digits.
    A parameter that is left out asks for no work. Raise BadRequest or NoSuchPath before any work is done, and NoAnswer
    if the called service does not answer.
    """
    work = _planned_work(path, query)
    began = time.time()
    for wait_s in work():
        time.sleep(wait_s)
    return who_and_when(began, server, connection)


async def answer_async(path: str, query: str, server: str) -> dict[str, Any]:
    """Do the same as ``answer`` on an event loop, which serves other requests only while this request sleeps.

    Computing and ``/call`` block the event loop. This is intended: the lab measures what such a mistake costs.
    """
    work = _planned_work(path, query)
    began = time.time()
    for wait_s in work():
        await asyncio.sleep(wait_s)
    return who_and_when(began, server, "")


@dataclass(frozen=True)
class Stream:
    """An answer in ``count`` parts, server-sent events; each is sent ``every_s`` after the part before it.

    The last part is what ``answer`` returns. ``began`` is when the application began its work.
    """

    count: int
    every_s: float
    server: str
    connection: str
    began: float = field(default_factory=time.time)

    def parts(self) -> Iterator[bytes]:
        """Yield the parts, and sleep before each of them."""
        for number in range(self.count):
            time.sleep(self.every_s)
            yield self._part(number)

    async def parts_async(self) -> AsyncIterator[bytes]:
        """Yield the parts on an event loop, which serves other requests meanwhile."""
        for number in range(self.count):
            await asyncio.sleep(self.every_s)
            yield self._part(number)

    def _part(self, number: int) -> bytes:
        is_last = number == self.count - 1
        said = who_and_when(self.began, self.server, self.connection) if is_last else {"part": number}
        return f"data: {json.dumps(said)}\n\n".encode()


def stream(query: str, server: str, connection: str = "") -> Stream:
    """Return the stream that a query string asks for. Raise BadRequest if it asks for something else."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    count = _whole(given, "parts", default=1, at_most=MAX_PARTS)
    every_s = _number(given, "every", default=0.0, at_most=MAX_SERVICE_S)
    _refuse_unknown(given)
    return Stream(max(1, count), every_s, server, connection)


def who_and_when(began: float, server: str, connection: str) -> dict[str, Any]:
    ended = time.time()
    return {
        "worker": os.getpid(),
        "host": _HOST,
        "thread": threading.get_native_id(),
        "connection": connection,
        "began": round(began, 6),
        "ended": round(ended, 6),
        "server": server,
    }


def burn(cpu_ms: float) -> None:
    """Compute until this thread has used ``cpu_ms`` of processor time."""
    deadline = time.thread_time() + cpu_ms / 1000
    while time.thread_time() < deadline:
        sum(range(200))


def hold(cpu_ms: float, call_us: float = HOLD_CALL_US) -> None:
    """Hold the interpreter lock for about ``cpu_ms`` without using a core: one call of ``call_us`` per millisecond.

    The number of calls is fixed. A deadline would count time spent waiting for the lock as work.
    """
    for _ in range(round(cpu_ms)):
        _libc_holding_the_lock.usleep(round(call_us))


@lru_cache
def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"))


def burn_in_pool(cpu_ms: float) -> None:
    """Let a process of a pool compute, and wait for it."""
    _pool().submit(burn, cpu_ms).result()


def burn_in_dirty_worker(cpu_ms: float) -> None:
    """Let one of gunicorn's dirty workers compute, and wait for it."""
    from gunicorn.dirty import get_dirty_client  # noqa: PLC0415  # other servers have none

    get_dirty_client().execute("dirty_app:Burning", "burn", cpu_ms)


def fibonacci(n: int) -> int:
    """Return the nth Fibonacci number; about 1.6 to the power of n calls."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def call(delay_s: float) -> None:
    """Call the service ``api`` and wait for its answer. Raise NoAnswer if it does not answer with status 200."""
    connection = HTTPConnection(*API, timeout=API_WITHIN_S)
    try:
        connection.request("GET", f"/?delay={delay_s}")
        response = connection.getresponse()
        response.read()
    except (OSError, HTTPException) as error:
        raise NoAnswer(f"{API[0]} did not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise NoAnswer(f"{API[0]} answered {response.status}")


def query(takes_s: float) -> None:
    """Ask the database for something that takes ``takes_s``. Raise connections.NoConnection if this fails."""
    import connections  # noqa: PLC0415  # only images whose applications may have a database have its packages

    with connections.taken() as connection:
        connections.query(connection, takes_s)


def _planned_work(path: str, query: str) -> Work:
    plans: dict[str, Callable[[dict[str, str]], Work]] = {
        "/": _waiting, "/work": _rounds, "/fibonacci": _fibonacci, "/call": _calling, "/query": _querying,
        "/crash": _crashing, "/health": lambda _: _without_waiting(lambda: None),
        "/cache": lambda _: _without_waiting(cache.renew), "/collect": lambda _: _without_waiting(gc.collect),
    }  # fmt: skip
    if path not in plans:
        raise NoSuchPath(f"no such path: {path}")
    given = dict(parse_qsl(query, keep_blank_values=True))
    work = plans[path](given)
    _refuse_unknown(given)
    return work


def _refuse_unknown(given: dict[str, str]) -> None:
    if given:
        raise BadRequest(f"unknown parameter {', '.join(sorted(given))}")


def _waiting(given: dict[str, str]) -> Work:
    delay_s = _number(given, "delay", default=0.0, at_most=MAX_SERVICE_S)
    return lambda: iter((delay_s,))


def _calling(given: dict[str, str]) -> Work:
    delay_s = _number(given, "delay", default=0.0, at_most=MAX_CALL_S)
    return _without_waiting(lambda: call(delay_s))


def _querying(given: dict[str, str]) -> Work:
    takes_s = _number(given, "takes", default=0.0, at_most=MAX_SERVICE_S)
    return _without_waiting(lambda: query(takes_s))


def _crashing(_: dict[str, str]) -> Work:
    return _without_waiting(lambda: os.kill(os.getpid(), signal.SIGKILL))


def _without_waiting(do: Callable[[], object]) -> Work:
    """Return work that does something and never lets the server wait."""

    def work() -> Iterator[float]:
        do()
        return iter(())

    return work


def _rounds(given: dict[str, str]) -> Work:
    rounds = _whole(given, "rounds", default=1, at_most=10_000)
    wait_ms = _number(given, "wait_ms", default=0.0, at_most=MAX_SERVICE_S * 1000)
    cpu_ms = _number(given, "cpu_ms", default=0.0, at_most=MAX_SERVICE_S * 1000)
    call_us = _number(given, "call_us", default=HOLD_CALL_US, at_most=MAX_CALL_US)
    kind = given.pop("cpu", "burn")
    computes: dict[str, Callable[[float], None]] = {
        "burn": burn, "hold": partial(hold, call_us=call_us), "pool": burn_in_pool, "dirty": burn_in_dirty_worker,
    }  # fmt: skip
    if kind not in computes:
        raise BadRequest(f"cpu={kind!r} is not one of {', '.join(computes)}")

    def work() -> Iterator[float]:
        for _ in range(rounds):
            if wait_ms:  # even a wait of 0 s would let other requests go first
                yield wait_ms / 1000
            computes[kind](cpu_ms)

    return work


def _fibonacci(given: dict[str, str]) -> Work:
    n = _whole(given, "n", default=0, at_most=MAX_FIBONACCI)
    return _without_waiting(lambda: fibonacci(n))


def _whole(given: dict[str, str], name: str, *, default: int, at_most: int) -> int:
    value = _number(given, name, default=default, at_most=at_most)
    if value != int(value):
        raise BadRequest(f"{name}={value:g} is not a whole number")
    return int(value)


def _number(given: dict[str, str], name: str, *, default: float, at_most: float) -> float:
    text = given.pop(name, None)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise BadRequest(f"{name}={text!r} is not a number") from None
    if not 0 <= value <= at_most:
        raise BadRequest(f"{name}={text} is not between 0 and {at_most:g}")
    return value

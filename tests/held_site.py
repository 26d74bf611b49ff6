"""Applications whose requests are held by something: ``app`` for WSGI, ``fast`` for ASGI.

Each function has the name of its path; the probe is to tell its kind, and the line in which it is held.
"""

import asyncio
import fcntl
import queue
import re
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

HELD_S = 0.6
executor = ThreadPoolExecutor(1)
locks: dict[str, asyncio.Lock] = {}
few = threading.Semaphore(8)
nothing = queue.SimpleQueue[int]()
NESTED, TEXT = re.compile(r"(a+)+$"), "a" * 23 + "b"


def file_lock() -> None:
    with open(tempfile.gettempdir() + "/held_site", "w") as file:  # noqa: PTH123  # one line
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(HELD_S)


def turnstile() -> None:
    with few:
        time.sleep(HELD_S)


def future() -> None:
    executor.submit(time.sleep, HELD_S).result()


def receive() -> None:
    one, _other = socket.socketpair()
    one.settimeout(HELD_S)
    with suppress(TimeoutError):
        one.recv(1)


def simple_queue() -> None:
    with suppress(queue.Empty):
        nothing.get(timeout=HELD_S)  # of a queue that is written in C


class Pool:
    """The application's own pool of one connection."""

    def __init__(self) -> None:
        self.kept = queue.Queue[int](1)
        self.kept.put(1)

    def get(self) -> int:
        """Wait for the connection."""
        return self.kept.get()


connections = Pool()


def own_pool() -> None:
    taken = connections.get()
    time.sleep(HELD_S)
    connections.kept.put(taken)


def regex() -> None:
    """Search with a pattern that goes back and back; the interpreter's lock is kept meanwhile."""
    NESTED.match(TEXT)


def crunch() -> None:
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        sum(range(1000))


def thread() -> None:
    """Wait while a thread that serves nobody computes."""
    started = threading.Thread(target=crunch, daemon=True)
    started.start()
    started.join()


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Call the function that the path names."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    globals().get(environ["PATH_INFO"][1:], str)()
    return [b"done"]


async def lock() -> None:
    async with locks.setdefault("one", asyncio.Lock()):
        await asyncio.sleep(HELD_S)


async def a_queue() -> None:
    await asyncio.wait([asyncio.ensure_future(asyncio.Queue[int]().get())], timeout=HELD_S)


async def in_thread() -> None:
    await asyncio.to_thread(in_pool)


def in_pool() -> None:
    time.sleep(HELD_S)


async def of_library() -> None:
    """Wait for a function in a thread in which nothing is the application's."""
    await asyncio.to_thread(time.sleep, HELD_S)


async def event() -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), HELD_S)


async def read() -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.StreamReader().read(), HELD_S)


async def parts() -> None:
    async for _ in steps():
        pass


async def steps() -> AsyncIterator[int]:
    await asyncio.sleep(HELD_S)
    yield 1


async def several() -> None:
    await asyncio.gather(nap(), asyncio.sleep(0))


async def nap() -> None:
    await asyncio.sleep(HELD_S)


async def callback() -> None:
    """Hold the loop in a callback that is written in C."""
    asyncio.get_running_loop().call_soon(time.sleep, HELD_S)
    await asyncio.sleep(0)


async def in_task() -> None:
    await asyncio.create_task(hold())


async def hold() -> None:
    time.sleep(HELD_S)  # on purpose


async def search() -> None:
    regex()


async def fast(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    """Await the function that the path names."""
    if scope["type"] == "http":
        if found := globals().get(scope["path"][1:]):
            scope["endpoint"] = found
            await found()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

"""Applications whose requests are held by something: ``app`` for WSGI, ``fast`` and ``django`` for ASGI.

Each function has the name of its path; the probe is to tell its kind, and the line in which it is held.
"""

import asyncio
import fcntl
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

HELD_S = 0.6
executor = ThreadPoolExecutor(1)
locks: dict[str, asyncio.Lock] = {}
few = threading.Semaphore(8)
NESTED, TEXT = re.compile(r"(a+)+$"), "a" * 23 + "b"


def file_lock() -> None:
    """Wait for a lock of a file that another request has."""
    with open(tempfile.gettempdir() + "/held_site", "w") as file:  # noqa: PTH123  # one line
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(HELD_S)


def turnstile() -> None:
    """Wait until fewer than eight requests are in."""
    with few:
        time.sleep(HELD_S)


def future() -> None:
    """Wait for what another thread does."""
    executor.submit(time.sleep, HELD_S).result()


def regex() -> None:
    """Search with a pattern that goes back and back; the interpreter's lock is kept meanwhile."""
    NESTED.match(TEXT)


def crunch() -> None:
    """Compute for no request."""
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
    """Keep a lock while others wait for it."""
    async with locks.setdefault("one", asyncio.Lock()):
        await asyncio.sleep(HELD_S)


async def queue() -> None:
    """Wait for something in a queue."""
    await asyncio.wait([asyncio.ensure_future(asyncio.Queue[int]().get())], timeout=HELD_S)


async def in_thread() -> None:
    """Wait for a function in a thread."""
    await asyncio.to_thread(in_pool)


def in_pool() -> None:
    """Be at work in a thread of the pool."""
    time.sleep(HELD_S)


async def in_task() -> None:
    """Hold the loop in a task that has been begun for this request."""
    await asyncio.create_task(hold())


async def hold() -> None:
    """Hold the loop."""
    time.sleep(HELD_S)  # on purpose


async def search() -> None:
    """Hold the loop in a function that is written in C."""
    regex()


async def fast(scope: dict[str, Any], _receive: Any, send: Any) -> None:
    """Await the function that the path names."""
    if scope["type"] != "http":
        return
    found = {"/lock": lock, "/queue": queue, "/in_thread": in_thread, "/in_task": in_task, "/search": search}
    if scope["path"] in found:
        scope["endpoint"] = found[scope["path"]]
        await found[scope["path"]]()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})

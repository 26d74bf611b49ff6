"""The load of a client: CONNECTIONS connections at once, each opened again and again until DURATION has passed."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from lib import settings
from lib.connection import Connection
from lib.points import Points

POINTS = Path(os.environ.get("LAB_FOLDER", "/results"), "points-client.json.gz")
FAILED, INTERRUPTED = 1, 130
RETRY_AFTER_S = 1.0


class Load:
    """The load, as the function of a client sees it: it opens connections, waits, and knows when the load is over."""

    def __init__(self, address: tuple[str, int], points: Points, ends: float) -> None:
        self._address = address
        self._points = points
        self._ends = ends
        self._loop = asyncio.get_running_loop()

    @property
    def over(self) -> bool:
        """Whether the duration has passed."""
        return self._loop.time() >= self._ends

    def connect(self, request_id: str) -> Connection:
        """Return a connection for one request. ``async with`` opens it."""
        return Connection(self._address, self._points, request_id)

    async def wait(self, seconds: float) -> None:
        """Wait, but at most until the end of the load."""
        await asyncio.sleep(max(0.0, min(seconds, self._ends - self._loop.time())))


Turn = Callable[[Load, Connection], Awaitable[None]]
"""What a client does with one open connection. ``run`` closes the connection afterwards."""


def run(request: str, turn: Turn, pause_s: float = 0) -> int:
    """Check the settings that all clients share, send the load to the server, and return the exit code.

    Write points of class ``request`` to /results, or to the file that the command line names. The load begins after
    START_AFTER. Requests that are unanswered GRACE_S after its end are cut off. SIGTERM and SIGINT also cut requests
    off. The points file is complete in every case.
    """
    connections = settings.count("CONNECTIONS")
    address = settings.address("LAB_SERVER")
    lasts_s = settings.duration_s("DURATION")
    grace_s = settings.number("GRACE_S")
    start_after_s = settings.duration_s("START_AFTER")
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else POINTS
    try:
        with Points(path, request) as points:
            return asyncio.run(_load(points, address, connections, start_after_s, lasts_s, grace_s, turn, pause_s))
    except* OSError as errors:
        print(f"{path} cannot be written: {_first(errors)}", file=sys.stderr)
    return FAILED


async def _load(
    points: Points,
    address: tuple[str, int],
    connections: int,
    start_after_s: float,
    lasts_s: float,
    grace_s: float,
    turn: Turn,
    pause_s: float,
) -> int:
    _cancel_on_signals()
    loop = asyncio.get_running_loop()
    ends = loop.time() + start_after_s + lasts_s
    load = Load(address, points, ends)
    try:
        await asyncio.sleep(start_after_s)
        async with asyncio.timeout_at(ends + grace_s), asyncio.TaskGroup() as group:
            for number in range(1, connections + 1):
                group.create_task(_again_and_again(load, number, turn, pause_s))
    except TimeoutError:
        print(f"requests had no answer {grace_s:g} s after the load and were cut off", file=sys.stderr)
    except asyncio.CancelledError:
        return INTERRUPTED
    return 0


async def _again_and_again(load: Load, number: int, turn: Turn, pause_s: float) -> None:
    sequence = 0
    while not load.over:
        sequence += 1
        async with load.connect(f"{number}-{sequence}") as connection:
            if connection.is_open:
                await turn(load, connection)
        await load.wait(pause_s if connection.is_open else max(pause_s, RETRY_AFTER_S))


def _cancel_on_signals() -> None:
    """Let the first SIGTERM or SIGINT cancel this task. Later signals do nothing, so that the points are completed."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    stops = (signal.SIGTERM, signal.SIGINT)

    def cancel() -> None:
        for each in stops:
            loop.add_signal_handler(each, lambda: None)
        if task:
            task.cancel()

    for each in stops:
        loop.add_signal_handler(each, cancel)


def _first(errors: BaseExceptionGroup[OSError]) -> str:
    """Return the message of the first error of a group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return getattr(error, "strerror", None) or str(error)

"""A connection to the server. It carries at most one request, and stays open for as long as the client wants."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from lib.points import Points

REQUEST = b"%s /?delay=0 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n"


class NoAnswer(Exception):
    """No valid answer came. The message says why; ``status`` is 0 if there was no HTTP status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """A connection that is closed at the end of its ``async with`` block.

    If connecting fails, the points show a failed request. If the run ends during connecting, the points show a request
    without an answer, because the client would have sent its request on this connection.
    """

    def __init__(self, address: tuple[str, int], points: Points, request_id: str) -> None:
        self._address = address
        self._host = "{}:{}".format(*address).encode()
        self._points = points
        self._id = request_id
        self._connecting_ms = 0.0
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_open(self) -> bool:
        """Whether connecting has succeeded."""
        return self._stream is not None

    async def __aenter__(self) -> Self:
        began = _now()
        try:
            self._stream = await asyncio.open_connection(*self._address)
        except OSError as error:
            self._points.sent(self._id)
            self._failed(0, NoAnswer(_reason(error)))
        except asyncio.CancelledError:
            self._points.sent(self._id)
            raise
        self._connecting_ms = (_now() - began) * 1000
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream:
            self._stream[1].transport.abort()

    async def get(self) -> None:
        """Send the request, read the whole answer (by its Content-Length), and write both points."""
        await self._exchange(REQUEST % (b"GET", self._host, b""))

    async def post(self, length: int, parts: AsyncIterator[bytes]) -> None:
        """Do the same for a request with a body of ``length`` bytes, which is sent part by part."""
        await self._exchange(REQUEST % (b"POST", self._host, b"Content-Length: %d\r\n" % length), parts)

    async def _exchange(self, head: bytes, body: AsyncIterator[bytes] | None = None) -> None:
        if not self._stream:
            return
        self._points.sent(self._id)
        began = _now()
        try:
            status, answer = await _ask(*self._stream, head, body)
            duration_ms = (_now() - began) * 1000
            served = _served(status, answer)
        except OSError as error:
            self._failed((_now() - began) * 1000, NoAnswer(_reason(error)))
        except NoAnswer as error:
            self._failed((_now() - began) * 1000, error)
        else:
            self._points.answered(self._id, duration_ms, self._timings(200) | served)

    def stop_reading(self) -> None:
        """Read nothing more from the connection, not even its end."""
        if self._stream:
            self._stream[1].transport.pause_reading()  # type: ignore[attr-defined]

    def _failed(self, duration_ms: float, error: NoAnswer) -> None:
        self._points.answered(self._id, duration_ms, self._timings(error.status) | {"error": str(error)})

    def _timings(self, status: int) -> dict[str, str]:
        return {"status": str(status), "blocked_ms": "0", "connecting_ms": str(self._connecting_ms)}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _reason(error: OSError) -> str:
    """Return why a connection failed, without the address that asyncio adds to the message."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, body: AsyncIterator[bytes] | None
) -> tuple[int, bytes]:
    """Send the request, and return the status and the body of the answer."""
    if reader.at_eof():
        raise NoAnswer("the server had closed the connection before the request")
    writer.write(head)
    await writer.drain()
    if body:
        async for part in body:
            writer.write(part)
            await writer.drain()
    return await _read(reader)


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read an answer, and return its status and body."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status_line, *fields = head.decode("latin-1").split("\r\n")
        status = int(status_line.split(" ")[1])
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        return status, await reader.readexactly(int(headers["content-length"]))
    except asyncio.IncompleteReadError:
        raise NoAnswer("the connection was closed before the answer was complete") from None
    except KeyError:
        raise NoAnswer("the answer has no Content-Length", status) from None
    except (ValueError, IndexError, asyncio.LimitOverrunError):
        raise NoAnswer("the answer is not HTTP") from None


def _served(status: int, body: bytes) -> dict[str, str]:
    """Return which worker served the request. Raise NoAnswer unless a 200 names the worker, as in k6."""
    if status != 200:
        raise NoAnswer(f"status {status}", status)
    try:
        answer: Any = json.loads(body)
    except ValueError:
        raise NoAnswer("the answer is not JSON", status) from None
    if not isinstance(answer, dict) or not all(answer.get(f) for f in ("worker", "host", "thread", "began", "ended")):
        raise NoAnswer("the answer does not say which worker served it", status)
    return {
        "worker": f"{answer['host']}:{answer['worker']}",
        "thread": str(answer["thread"]),
        "connection": str(answer.get("connection", "")),
        "began": str(answer["began"]),
        "ended": str(answer["ended"]),
        "server": str(answer.get("server")),
    }

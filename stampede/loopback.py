"""Pages that only this machine can open: a server on the loopback interface, which answers only to its own name."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from stampede.docker.machine_usage import Progress
from stampede.errors import LabError
from stampede.interruption import uninterrupted

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
MOST_POSTED = 10_000
"""The most bytes that a page may send at once."""


class Response(NamedTuple):
    """What a page is answered: a text, and its media type."""

    text: str
    kind: str = "text/html"
    status: HTTPStatus = HTTPStatus.OK

    @classmethod
    def json(cls, values: object, status: HTTPStatus = HTTPStatus.OK) -> "Response":
        """Return values as JSON."""
        return cls(json.dumps(values, separators=(",", ":")), "application/json", status)


Get = Callable[[str, dict[str, str]], Response | None]
"""Answers a path and its query; None: there is no such path."""
Post = Callable[[str, dict[str, Any]], None]
"""Does what a page sends to a path."""


class Stage:
    """What the lab is doing while it measures, for a page that asks for it."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Say that the lab is getting ready."""
        self.text = "the lab is getting ready"
        self.is_loading = True

    def follow(self, progress: Progress) -> Progress:
        """Return a Progress that also tells the page."""

        def both(what: str, spent_s: float, expected_s: float) -> None:
            self.text = f"{what}: {spent_s:.0f} s of about {expected_s:.0f} s"
            self.is_loading = what == "load"
            progress(what, spent_s, expected_s)

        return both


def read_whole(given: object) -> int:
    """Return a number that a page gave; 0: it gave none."""
    text = str(given)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


@contextmanager
def serving(port: int, get: Get, post: Post | None = None) -> Iterator[None]:
    """Answer requests on a port of this machine. Raise LabError if the port cannot be used.

    A LabError of ``get`` or ``post`` is answered with its message and its hint.
    """
    try:
        server = _Server(port, get, post)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LabError(
            f"The page cannot be shown on port {port} of {HOST}: {reason}.", hint=f"--port {port % 65535 + 1}"
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with uninterrupted():
        thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, port: int, get: Get, post: Post | None) -> None:
        super().__init__((HOST, port), _Handler)
        self.get, self.post = get, post

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as in socketserver
        """Print an exception, but say nothing of a page that was closed while it was answered."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer, unless the request does not name this machine: then a page of another site has sent it."""
        if not self._names_this_machine():
            self.send_error(HTTPStatus.FORBIDDEN)
            return

        def found() -> Response | None:
            asked = urlsplit(self.path)
            try:
                return self.server.get(asked.path, dict(parse_qsl(asked.query)))
            except LabError as error:
                return Response(f"{error.message}\n{error.hint}\n", "text/plain", HTTPStatus.BAD_REQUEST)

        self._answer(found)

    def do_POST(self) -> None:
        """Do what was asked for, unless the request is not one of our own page."""
        post, size = self.server.post, self.headers.get("Content-Length", "")
        own = self.headers.get("Origin") == f"http://{self.headers.get('Host')}" and self._names_this_machine()
        if not (post and own and self.headers.get("Content-Type") == "application/json"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        if not (size.isascii() and size.isdecimal() and int(size) <= MOST_POSTED):
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        content = None
        with suppress(ValueError):
            content = json.loads(self.rfile.read(int(size)))
        if not isinstance(content, dict):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return

        def done() -> Response:
            try:
                post(urlsplit(self.path).path, content)
            except LabError as error:
                return Response.json({"message": error.message, "hint": error.hint}, HTTPStatus.BAD_REQUEST)
            return Response.json({})

        self._answer(done)

    def _answer(self, ask: Callable[[], Response | None]) -> None:
        """Answer. Tell the page of a mistake of ours, too, so that it does not look as if the lab had ended."""
        try:
            if not (response := ask()):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            content = response.text.encode()
            self.send_response(response.status)
            self.send_header("Content-Type", f"{response.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:
            raise
        except Exception:
            with suppress(OSError):
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise

    def _names_this_machine(self) -> bool:
        try:
            return urlsplit(f"//{self.headers.get('Host')}").hostname in NAMES
        except ValueError:
            return False

    def log_message(self, *_: object) -> None:
        """Say nothing."""

"""Pages that only this machine can open: a server on the loopback interface, which answers only to its own name."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lab.errors import LabError
from lab.interruption import uninterrupted

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
MOST_POSTED = 10_000
"""The most bytes that a page may send at once."""


class LocalHandler(BaseHTTPRequestHandler):
    """Answers requests for a page of this machine."""

    def get(self, asked: SplitResult) -> None:
        """Answer what was asked for with GET."""
        raise NotImplementedError

    def post(self, path: str, content: dict[str, Any]) -> None:
        """Do what was asked for with POST."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer, unless the request does not name this machine: then a page of another site has sent it."""
        if self._names_this_machine(self.headers.get("Host")):
            with self._answering():
                self.get(urlsplit(self.path))
        else:
            self.send_error(HTTPStatus.FORBIDDEN)

    def do_POST(self) -> None:
        """Do what was asked for, unless the request is not one of our own page."""
        origin = self.headers.get("Origin", "")
        own = origin == f"http://{self.headers.get('Host')}" and self._names_this_machine(self.headers.get("Host"))
        size = self.headers.get("Content-Length", "")
        if not own or self.headers.get("Content-Type") != "application/json":
            self.send_error(HTTPStatus.FORBIDDEN)
        elif not (size.isascii() and size.isdecimal() and int(size) <= MOST_POSTED):
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            try:
                content = json.loads(self.rfile.read(int(size)))
            except ValueError:
                content = None
            if isinstance(content, dict):
                with self._answering():
                    self.post(urlsplit(self.path).path, content)
            else:
                self.send_error(HTTPStatus.BAD_REQUEST)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Tell the page of a mistake of ours, so that it does not look as if the lab had ended."""
        try:
            yield
        except ConnectionError:
            raise
        except Exception:
            with suppress(OSError):
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise

    @staticmethod
    def _names_this_machine(host: str | None) -> bool:
        try:
            return urlsplit(f"//{host}").hostname in NAMES
        except ValueError:
            return False

    def answer(self, kind: str, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Answer with a text of this kind, e.g. ``text/html``."""
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as in socketserver
        """Print an exception, but say nothing of a page that was closed while it was answered."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(handler: type[LocalHandler], port: int) -> Iterator[None]:
    """Answer requests on a port of this machine. Raise LabError if the port cannot be used."""
    try:
        server = _Server((HOST, port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LabError(
            f"The page cannot be shown on port {port} of {HOST}: {reason}.", hint=f"PORT={port % 65535 + 1}"
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with uninterrupted():
        thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()

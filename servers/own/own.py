"""Somebody's WSGI application, and notes of which worker served which request.

k6 sends an id with each request, in the header ``Lab-Id``. This wrapper takes the header away before the application
sees it, and leaves the answer as it is. It writes a line when work on a request begins, and a line when it ends:
``began,ID,HOST:PID,THREAD,CONNECTION,TIME`` and ``ended,ID,,,,TIME``, with times in epoch seconds. The lines are in
``/tmp/served/PID``, so they outlive a worker that is killed.
"""

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

APPLICATION = "/opt/application"
SERVED = Path("/tmp/served")
_ID = re.compile(r"[0-9-]{1,40}")
_HOST = socket.gethostname()
_files: dict[int, int] = {}


def load(name: str) -> Any:
    """Return the application that ``module:callable`` names; ``module:function()`` calls a function that returns it."""
    module, _, what = name.partition(":")
    found: Any = import_module(module)
    for part in what.removesuffix("()").split("."):
        found = getattr(found, part)
    return found() if what.endswith("()") else found


def note(*words: object) -> None:
    """Write one line. An application must not fail because the disk is full, so the line may be missing."""
    process = os.getpid()  # a worker may be forked after this module was imported
    with suppress(OSError):
        if process not in _files:
            SERVED.mkdir(exist_ok=True)
            _files[process] = os.open(SERVED / str(process), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(_files[process], (",".join(map(str, words)) + "\n").encode())


def connection(environ: dict[str, Any]) -> str:
    """Return the inode of the request's socket, which, unlike a port, is unique; empty if there is no socket."""
    with suppress(OSError, AttributeError):
        return str(os.fstat(environ["gunicorn.socket"].fileno()).st_ino) if "gunicorn.socket" in environ else ""
    return ""


class Answer:
    """The body of an answer as the application gave it. The work ends when the server closes the body."""

    def __init__(self, body: Iterable[bytes], ident: str) -> None:
        self._body, self._ident = body, ident

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the application's body, if it can be closed."""
        try:
            if close := getattr(self._body, "close", None):
                close()
        finally:
            note("ended", self._ident, "", "", "", f"{time.time():.6f}")


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Pass a request to the application, and note who served it. ``/-/ready`` tells that the application is loaded."""
    if environ.get("PATH_INFO") == "/-/ready":
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
        return [b"ready\n"]
    ident = environ.pop("HTTP_LAB_ID", "")
    if not _ID.fullmatch(ident):
        return application(environ, start_response)
    worker, thread = f"{_HOST}:{os.getpid()}", threading.get_native_id()
    note("began", ident, worker, thread, connection(environ), f"{time.time():.6f}")
    try:
        body: Iterable[bytes] = application(environ, start_response)
    except BaseException:
        note("ended", ident, "", "", "", f"{time.time():.6f}")
        raise
    file_wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(body, list | tuple) or (isinstance(file_wrapper, type) and isinstance(body, file_wrapper)):
        note("ended", ident, "", "", "", f"{time.time():.6f}")  # servers treat these kinds of bodies in their own ways
        return body
    return Answer(body, ident)


sys.modules.pop("counters", None)  # gunicorn's settings have imported it; the application may have its own
sys.path[:] = [APPLICATION, *(one for one in sys.path if one != str(Path(__file__).parent))]
os.chdir(APPLICATION)
os.environ.update(json.loads((Path(__file__).parent / "environment.json").read_text(encoding="utf-8")))
application: Callable[..., Iterable[bytes]] = load(os.environ["LAB_CALLABLE"])

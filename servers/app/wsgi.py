"""The workload as a bare WSGI application: no framework between the server and the sleep."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import workload

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Serve ``/``, ``/work``, ``/call`` and ``/-/ready``; see ``workload`` for what they mean."""
    path = environ.get("PATH_INFO", "/")
    body: dict[str, Any]
    if path == "/-/ready":
        status, body = "200 OK", {"ready": True}
    elif path in ("/", "/work", "/call"):
        try:
            query, server = environ.get("QUERY_STRING", ""), environ.get("SERVER_SOFTWARE", "unknown")
            body = workload.answer(path, query, server, _connection(environ))
            status = "200 OK"
        except workload.BadRequest as error:
            status, body = "400 Bad Request", {"error": str(error)}
        except workload.NoAnswer as error:
            status, body = "504 Gateway Timeout", {"error": str(error)}
    else:
        status, body = "404 Not Found", {"error": f"no such path: {path}"}
    payload = json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))])
    return [payload]


def _connection(environ: dict[str, Any]) -> str:
    """Return the inode of the request's socket: unlike a port it is never used again. Empty where no socket is told."""
    socket = environ.get("gunicorn.socket")
    descriptor = socket.fileno() if socket else environ.get("lab.connection_fd")
    return str(os.fstat(descriptor).st_ino) if descriptor is not None else ""

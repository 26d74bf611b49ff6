"""The workload as a bare WSGI application: no framework between the server and the sleep."""

import json
import os
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import workload

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Read the body, if there is one, and serve ``/-/ready``, ``/stream`` and the paths of ``workload``."""
    path = environ.get("PATH_INFO", "/")
    body: dict[str, Any]
    status = HTTPStatus.OK
    if path == "/-/ready":
        body = {"ready": True}
    else:
        try:
            if length := int(environ.get("CONTENT_LENGTH") or 0):
                environ["wsgi.input"].read(length)
            query, server = environ.get("QUERY_STRING", ""), environ.get("SERVER_SOFTWARE", "unknown")
            if path == "/stream":
                stream = workload.stream(query, server, connection(environ))
                start_response("200 OK", [*workload.STREAM_HEADERS.items()])
                return stream.parts()
            body = workload.answer(path, query, server, connection(environ))
        except workload.Failure as failure:
            status, body = failure.status, {"error": str(failure)}
    payload = json.dumps(body).encode()
    start_response(
        f"{status.value} {status.phrase}", [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))]
    )
    return [payload]


def connection(environ: dict[str, Any]) -> str:
    """Return the inode of the request's socket, which, unlike a port, is unique; empty if there is no socket."""
    socket = environ.get("gunicorn.socket")
    descriptor = socket.fileno() if socket else environ.get("lab.connection_fd")
    return str(os.fstat(descriptor).st_ino) if descriptor is not None else ""

"""The workload as a bare WSGI application: no framework between the server and the sleep."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import workload

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Serve ``/``, ``/work`` and ``/-/ready``; see ``workload`` for what they mean."""
    path = environ.get("PATH_INFO", "/")
    body: dict[str, Any]
    if path == "/-/ready":
        status, body = "200 OK", {"ready": True}
    elif path in ("/", "/work"):
        try:
            body = workload.answer(path, environ.get("QUERY_STRING", ""), environ.get("SERVER_SOFTWARE", "unknown"))
            status = "200 OK"
        except workload.BadRequest as error:
            status, body = "400 Bad Request", {"error": str(error)}
    else:
        status, body = "404 Not Found", {"error": f"no such path: {path}"}
    payload = json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))])
    return [payload]

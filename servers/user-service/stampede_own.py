"""Around somebody's application: ``/-/ready``, the counts of requests, and when a process has loaded the application.

k6 sends an id with each request, in the header ``Lab-Id``. stampede-probe, which stands within these wrappers, takes
the header away, and notes in ``/tmp/served/PID`` when work on a request begins and ends (see
probe/stampede_probe/worker.py). Each worker counts in ``/tmp/workers/PID``, which also says that it has loaded the
application, and adds a line ``loaded,,HOST:PID,,SECONDS,TIME`` to its notes: how long after its start that was. All of
these files outlive a worker that is killed.
"""

from __future__ import annotations

import ast
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from stampede_counters import Counters

SERVED = Path("/tmp/served")
READY = os.environ.get("STAMPEDE_READY", "")
"""The path that tells that the application is ready; empty: it is ready when it is loaded."""
WITHOUT_LIFESPAN = ("granian", "daphne")
"""Servers whose workers are ready when they have loaded the application: they tell it nothing of its lifespan."""
Receive = Callable[[], Awaitable["dict[str, Any]"]]
Send = Callable[["dict[str, Any]"], Awaitable[None]]
_counters: dict[int, Counters] = {}
_began_s = [time.monotonic()]


def began() -> None:
    """Note that this process begins now."""
    _began_s[0] = time.monotonic()


os.register_at_fork(after_in_child=began)


def counters() -> Counters:
    """Return the counters of this process, and note that it has loaded the application when it asks first."""
    process = os.getpid()
    if process not in _counters:
        _counters[process] = Counters("served")
        with suppress(OSError):  # the disk may be full, so the line may be missing
            SERVED.mkdir(exist_ok=True)
            with (SERVED / str(process)).open("a") as file:
                took_s = time.monotonic() - _began_s[0]
                file.write(f"loaded,,{socket.gethostname()}:{process},,{took_s:.6f},{time.time():.6f}\n")
    return _counters[process]


def wsgi(application: Callable[..., Any], *, at_once: bool = True) -> Callable[..., Any]:
    """Return a WSGI application with the probe that answers ``/-/ready`` and counts the others.

    If the application has a path that tells when it is ready, ``/-/ready`` is this path. ``at_once``: this process is a
    worker, and ready. The hooks of the probe call this in the place of its own wrapper.
    """
    from stampede_probe.wrap import wsgi as with_probe  # noqa: PLC0415  # whose hooks come first

    probed = with_probe(application)
    if at_once:
        counters()

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/-/ready":
            try:
                return probed(environ, start_response)
            finally:
                counters().add("served")
        counters()
        if READY:
            environ["PATH_INFO"], _, environ["QUERY_STRING"] = READY.partition("?")
            return application(environ, start_response)  # type: ignore[no-any-return]
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
        return [b"ready\n"]

    return app


def asgi(application: Callable[..., Any]) -> Callable[..., Any]:
    """Return an ASGI application that does the same. A request is served when the last part of the answer is sent."""
    from stampede_probe.worker import state  # noqa: PLC0415  # whose hooks come first
    from stampede_probe.wrap import asgi as with_probe  # noqa: PLC0415

    probed = with_probe(application)
    if state.capacity and state.capacity[1] in WITHOUT_LIFESPAN:
        counters()

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            counters()
        elif scope["type"] == "http" and scope["path"] != "/-/ready":
            return await counted(scope, receive, send)
        elif scope["type"] == "http" and READY:
            path, _, query = READY.partition("?")
            scope = {**scope, "path": path, "raw_path": path.encode(), "query_string": query.encode()}
            return await application(scope, receive, send)  # type: ignore[no-any-return]
        elif scope["type"] == "http":
            counters()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
            return await send({"type": "http.response.body", "body": b"ready\n"})
        return await probed(scope, receive, send)

    async def counted(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        answered = False

        async def noted(message: dict[str, Any]) -> None:
            nonlocal answered
            await send(message)
            if not answered and message["type"] == "http.response.body" and not message.get("more_body", False):
                answered = True
                counters().add("served")

        try:
            await probed(scope, receive, noted)
        finally:
            if not answered:
                counters().add("served")

    return app


def load(name: str) -> Any:
    """Return the application that ``module:callable`` names.

    ``module:function()`` calls a function that returns it; its arguments are literals, or names of the module:
    ``module:function("prod", settings)``.
    """
    module, _, what = name.partition(":")
    call = ast.parse(what, mode="eval").body
    found: Any = import_module(module)
    for part in ast.unparse(call.func if isinstance(call, ast.Call) else call).split("."):
        found = getattr(found, part)
    if not isinstance(call, ast.Call):
        return found

    def value(node: ast.expr) -> Any:
        return getattr(import_module(module), node.id) if isinstance(node, ast.Name) else ast.literal_eval(node)

    return found(*map(value, call.args), **{str(keyword.arg): value(keyword.value) for keyword in call.keywords})

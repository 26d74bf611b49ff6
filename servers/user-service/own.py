"""Somebody's application with stampede-probe around it. ``app`` is for WSGI, ``asgi`` for ASGI.

k6 sends an id with each request, in the header ``Lab-Id``. The probe takes the header away, and notes in
``/tmp/served/PID`` when work on a request begins and ends, what held event loops, hubs and threads, and in which line
(see probe/stampede_probe/worker.py). This module answers ``/-/ready``, counts for servers that do not count, and adds a
line ``loaded,,HOST:PID,,SECONDS,TIME`` when a process has loaded the application. All of these files outlive a worker
that is killed.
"""

import ast
import inspect
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import stampede_probe
from counters import Counters

APPLICATION = os.environ.get("LAB_FOLDER", "/opt/application")
SERVED = Path("/tmp/served")
COUNTED = os.environ.get("LAB_SERVER", "") == "granian-wsgi"
"""Whether this module counts the requests of a WSGI application, because the server does not."""
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def load(name: str) -> Any:
    """Return the application that ``module:callable`` names.

    ``module:function()`` calls a function that returns it; its arguments are literals, or names of the
    module: ``module:function("prod", settings)``.
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


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Pass a request to the application. ``/-/ready`` tells that the application is loaded.

    If the application has a path that tells when it is ready, ``/-/ready`` is this path.
    """
    if environ.get("PATH_INFO") == "/-/ready":
        if READY:
            environ["PATH_INFO"], _, environ["QUERY_STRING"] = READY.partition("?")
            return application(environ, start_response)
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
        return [b"ready\n"]
    try:
        return probed(environ, start_response)
    finally:
        if COUNTED:
            counters().add("served")


async def asgi(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Do the same for ASGI. A request is served when the last part of the answer is sent."""
    if scope["type"] == "lifespan":
        counters()
    elif scope["type"] == "http" and scope["path"] != "/-/ready":
        return await counted(scope, receive, send)
    elif scope["type"] == "http" and READY:
        path, _, query = READY.partition("?")
        scope = {**scope, "path": path, "raw_path": path.encode(), "query_string": query.encode()}
        return await application(scope, receive, send)
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        return await send({"type": "http.response.body", "body": b"ready\n"})
    return await probed(scope, receive, send)


async def counted(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Pass a request to the application, and count it when it is answered or has failed."""
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


def note_loaded(seconds: float) -> None:
    """Write for how long this process has loaded the application. The disk may be full, so the line may be missing."""
    with suppress(OSError):
        SERVED.mkdir(exist_ok=True)
        with (SERVED / str(os.getpid())).open("a") as file:
            file.write(f"loaded,,{socket.gethostname()}:{os.getpid()},,{seconds:.6f},{time.time():.6f}\n")


def counters() -> Counters:
    """Return the counters of this process, which is new after a fork."""
    process = os.getpid()
    if process not in _counters:
        _counters[process] = Counters("served")
    return _counters[process]


def interface_of(found: Callable[..., Any]) -> str:
    """Return ``app`` for a WSGI application and ``asgi`` for an ASGI application, by how it is called; else nothing.

    A function without arguments is a ``factory``, which returns an application.
    """
    with suppress(TypeError, ValueError):  # there is no signature
        takes = [one for one in inspect.signature(found).parameters.values() if one.default is one.empty]
        if not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in takes):
            return {0: "factory" if inspect.isfunction(found) else "", 2: "app", 3: "asgi"}.get(len(takes), "")
    return ""


_counters: dict[int, Counters] = {}
sys.modules.pop("counters", None)  # the application may have a module of this name
sys.path[:] = [APPLICATION, *(one for one in sys.path if one != str(Path(__file__).parent))]
os.chdir(APPLICATION)
_environment = json.loads((Path(__file__).parent / "environment.json").read_text(encoding="utf-8"))
os.environ.update(_environment)
if "PYTHONPATH" in _environment:  # this Python has read its own already
    _imports = [str(Path(APPLICATION, one)) for one in _environment["PYTHONPATH"].split(os.pathsep) if one]
    os.environ["PYTHONPATH"] = os.pathsep.join(_imports)
    sys.path[1:1] = _imports
READY = os.environ.pop("LAB_READY", "")
_began_s = time.monotonic()
application: Callable[..., Any] = load(os.environ["LAB_CALLABLE"])
_took_s = time.monotonic() - _began_s
_called, _is = os.environ["LAB_APP"].partition(":")[2], interface_of(application)
if _is == "factory":
    _name = os.environ["LAB_CALLABLE"]
    sys.exit(f"{_name} is a function that takes no arguments, so it is a factory: write callable: {_name}()")
if _is and _is != _called:
    names = {"app": "WSGI", "asgi": "ASGI"}
    sys.exit(f"{os.environ['LAB_CALLABLE']} is {names[_is]}, but the server that is named serves {names[_called]}.")
if COUNTED or os.environ.get("LAB_SERVER") == "daphne":  # no lifespan tells that a worker is ready
    counters()
note_loaded(_took_s)
os.environ.update(STAMPEDE_PROBE_ROWS=str(SERVED), STAMPEDE_PROBE_ID="Lab-Id", STAMPEDE_PROBE_SEGMENTS="1")
probed: Callable[..., Any] = getattr(stampede_probe, "asgi" if _called == "asgi" else "wsgi")(application)

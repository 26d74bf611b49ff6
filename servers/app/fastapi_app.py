"""The workload behind FastAPI: ``sync`` in a pool of threads, ``asynchronous`` on the event loop.

``typed`` is ``sync`` with a response model. FastAPI checks the answer in the same pool, so each request uses the pool
twice. In ``depends``, a dependency takes the connection for ``/query``. ``blocking`` is a mistake: its ``async def``
sleeps without ``await``. ``in_threads`` mends it with asyncio's own pool. ``/background?takes=S`` answers at once, and
sleeps afterwards as a background task. ``LAB_THREADS`` is the size of the pool
(default: 40, from AnyIO). ``LAB_SERVER`` names the server, and ``LAB_HEALTH`` says whether ``/health`` is an endpoint
like the others, ``async def``, or on a port of its own. ``LAB_MIDDLEWARE`` is the kind of six middlewares before the
endpoints, which each add a header to the answer: ``asgi``, ``base`` (Starlette's BaseHTTPMiddleware) or ``none``.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread
from typing import Annotated, Any

import anyio.to_thread
import workload
from counters import Counters
from fastapi import BackgroundTasks, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME = os.environ["LAB_SERVER"]
SERVER = f"{_NAME}/{version(_NAME)}"
HEALTH_PORT = 9000
_HEALTH = os.environ.get("LAB_HEALTH", "endpoint")


class Counted:
    """Counts the requests that were served, because most ASGI servers have no such count."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                scope["app"].state.counters.add("served")  # background tasks come later

        await self._app(scope, receive, counted)


class Stamped:
    """Adds a header to each answer, as an ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Lab-Stamp"] = "1"
            await send(message)

        await self._app(scope, receive, stamped)


class StampedByStarlette(BaseHTTPMiddleware):
    """Adds the same header, as ``@app.middleware("http")`` does."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["Lab-Stamp"] = "1"
        return response


_KINDS: dict[str, list[type[Stamped | StampedByStarlette]]] = {"asgi": [Stamped], "base": [StampedByStarlette]}
_MIDDLEWARES = 6 * _KINDS.get(os.environ.get("LAB_MIDDLEWARE", ""), [])


@asynccontextmanager
async def _worker(app: FastAPI) -> AsyncIterator[None]:
    if threads := os.environ.get("LAB_THREADS"):
        anyio.to_thread.current_default_thread_limiter().total_tokens = int(threads)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(int(threads)))
    app.state.counters = Counters("served")
    health = _answer_on_a_port(app.state.counters) if _HEALTH == "port" else None
    yield
    if health:
        health.shutdown()


def _answer_on_a_port(counters: Counters) -> ThreadingHTTPServer:
    """Answer every GET to HEALTH_PORT from threads that neither the pool nor the event loop can hold up."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            payload = json.dumps(_healthy()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
            counters.add("served")

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("", HEALTH_PORT), Health)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def _healthy() -> dict[str, Any]:
    return workload.answer("/health", "", SERVER)


async def _healthy_on_the_loop() -> dict[str, Any]:
    return _healthy()


def _failed(_: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, workload.Failure)
    return JSONResponse({"error": str(failure)}, failure.status, {"Lab-Error": str(failure)})


def _application(*, health_on_the_loop: bool = False) -> FastAPI:
    app = FastAPI(lifespan=_worker, openapi_url=None)
    for middleware in (*_MIDDLEWARES, Counted):  # the last one comes first
        app.add_middleware(middleware)
    app.add_exception_handler(workload.Failure, _failed)
    app.add_api_route("/-/ready", lambda: {"ready": True})
    if health_on_the_loop or _HEALTH == "loop":
        app.add_api_route("/health", _healthy_on_the_loop, response_model=None)
    return app


def _connection() -> Iterator[Any]:
    """Take a connection for a request, and ask who the user is."""
    import connections  # noqa: PLC0415  # only images whose applications may have a database have its packages

    with connections.taken() as connection:
        connections.query(connection, 0)
        yield connection


sync, typed, depends, asynchronous, blocking = (_application() for _ in range(5))
in_threads = _application(health_on_the_loop=True)


@depends.get("/query")
def query(takes: float, connection: Annotated[Any, Depends(_connection)]) -> dict[str, Any]:
    """Ask for something that takes ``takes`` seconds, in another thread than the one that took the connection."""
    import connections  # noqa: PLC0415

    began = time.time()
    connections.query(connection, takes)
    return workload.who_and_when(began, SERVER, "")


METHODS = ["GET", "POST"]


@sync.get("/stream", response_model=None)
def stream(request: Request) -> StreamingResponse:
    """Send the parts that the query string asks for (see ``workload``), each from a thread of the pool."""
    parts = workload.stream(request.url.query, SERVER).parts()
    return StreamingResponse(parts, headers=workload.STREAM_HEADERS)


@asynchronous.get("/stream", response_model=None)
async def stream_on_the_loop(request: Request) -> StreamingResponse:
    """Send the parts that the query string asks for (see ``workload``), on the event loop."""
    parts = workload.stream(request.url.query, SERVER).parts_async()
    return StreamingResponse(parts, headers=workload.STREAM_HEADERS)


@sync.get("/background")
@asynchronous.get("/background")
@in_threads.get("/background")
async def background(takes: float, tasks: BackgroundTasks) -> dict[str, Any]:
    """Answer at once, and sleep for ``takes`` seconds afterwards, in a thread of AnyIO's pool."""
    tasks.add_task(time.sleep, min(max(takes, 0.0), workload.MAX_SERVICE_S))
    return _healthy()


@sync.api_route("/{path:path}", methods=METHODS, response_model=None)
@typed.get("/{path:path}")
@depends.get("/{path:path}")
def work(path: str, request: Request) -> dict[str, Any]:
    """Do the work that the path asks for (see ``workload``), in a thread of the pool."""
    return workload.answer(f"/{path}", request.url.query, SERVER)


@asynchronous.api_route("/{path:path}", methods=METHODS, response_model=None)
async def work_on_the_loop(path: str, request: Request) -> dict[str, Any]:
    """Read the body, and do the work that the path asks for (see ``workload``), on the event loop."""
    await request.body()
    return await workload.answer_async(f"/{path}", request.url.query, SERVER)


@blocking.get("/{path:path}", response_model=None)
async def work_without_await(path: str, request: Request) -> dict[str, Any]:
    """Do the work that the path asks for (see ``workload``), and hold up the event loop meanwhile."""
    return workload.answer(f"/{path}", request.url.query, SERVER)


@in_threads.get("/{path:path}", response_model=None)
async def work_in_a_thread(path: str, request: Request) -> dict[str, Any]:
    """Do the work that the path asks for (see ``workload``), in a thread of asyncio's pool."""
    return await asyncio.to_thread(workload.answer, f"/{path}", request.url.query, SERVER)

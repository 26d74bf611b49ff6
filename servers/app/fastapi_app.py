"""The workload behind FastAPI: ``sync`` in a pool of threads, ``asynchronous`` on the event loop.

``typed`` is ``sync`` with a response model. FastAPI checks the answer in the same pool, so each request uses the pool
twice. ``LAB_THREADS`` is the size of the pool (default: 40, from AnyIO). ``LAB_SERVER`` names the server.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio.to_thread
import workload
from counters import Counters
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_NAME = os.environ["LAB_SERVER"]
SERVER = f"{_NAME}/{version(_NAME)}"


class Counted:
    """Counts the requests that were served, because most ASGI servers have no such count."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        if scope["type"] == "http":
            scope["app"].state.counters.add("served")


@asynccontextmanager
async def _worker(app: FastAPI) -> AsyncIterator[None]:
    if threads := os.environ.get("LAB_THREADS"):
        anyio.to_thread.current_default_thread_limiter().total_tokens = int(threads)
    app.state.counters = Counters("served")
    yield


def _failed(_: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, workload.Failure)
    return JSONResponse({"error": str(failure)}, failure.status)


def _application() -> FastAPI:
    app = FastAPI(lifespan=_worker, openapi_url=None)
    app.add_middleware(Counted)
    app.add_exception_handler(workload.Failure, _failed)
    app.add_api_route("/-/ready", lambda: {"ready": True})
    return app


sync, typed, asynchronous = (_application() for _ in range(3))


METHODS = ["GET", "POST"]


@sync.api_route("/{path:path}", methods=METHODS, response_model=None)
@typed.get("/{path:path}")
def work(path: str, request: Request) -> dict[str, Any]:
    """Do the work that the path asks for (see ``workload``), in a thread of the pool."""
    return workload.answer(f"/{path}", request.url.query, SERVER)


@asynchronous.api_route("/{path:path}", methods=METHODS, response_model=None)
async def work_on_the_loop(path: str, request: Request) -> dict[str, Any]:
    """Do the work that the path asks for (see ``workload``), on the event loop."""
    return await workload.answer_async(f"/{path}", request.url.query, SERVER)

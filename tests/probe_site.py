"""Applications that are served under the probe: ``app`` for WSGI, ``fast`` for ASGI, ``flask`` and ``django``.

``/slow`` and ``/hold`` last 0.6 s; ``/hold`` keeps the event loop. ``/stream``, ``/file`` and ``/fail`` answer as
applications do.
"""

# ruff: noqa: PLC0415  # a server imports one framework
import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

SLOW_S = 0.6


def pause() -> None:
    """Be at work for a while; its name is in the stack."""
    time.sleep(SLOW_S)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer as the path says."""
    path = environ["PATH_INFO"]
    if path == "/fail":
        raise RuntimeError("on purpose")
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path in ("/slow", "/hold"):
        pause()
    if path == "/stream":
        return stream()
    if path == "/file" and "wsgi.file_wrapper" in environ:
        return environ["wsgi.file_wrapper"](Path(__file__).open("rb"))  # type: ignore[no-any-return]
    return [str(os.getpid()).encode()]


def stream() -> Iterator[bytes]:
    """Yield parts, the last one after a while."""
    yield b"one,"
    pause()
    yield b"two"


def factory() -> Callable[..., Any]:
    """Return the WSGI application."""
    return app


def in_flask() -> Any:
    """Return an application with Flask's routes."""
    from flask import Flask

    made = Flask(__name__)

    @made.get("/slow/<int:number>")
    def slow(number: int) -> str:
        pause()
        return str(number)

    return made


def in_django() -> Any:
    """Return an application with Django's routes."""
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    def slow(_request: HttpRequest, number: int) -> HttpResponse:
        pause()
        return HttpResponse(str(number))

    urls = type("urls", (), {"urlpatterns": [path("slow/<int:number>", slow)]})
    settings.configure(ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], SECRET_KEY="test", DEBUG=False)
    return get_wsgi_application()


def in_fastapi() -> Any:
    """Return an application with FastAPI's routes, a mounted part, and something in the background."""
    from fastapi import FastAPI
    from starlette.responses import PlainTextResponse, StreamingResponse

    begun: list[str] = []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        begun.append("begun")
        task = asyncio.create_task(in_background()) if os.environ.get("BACKGROUND") else None
        yield
        if task:
            task.cancel()

    async def in_background() -> None:
        while True:
            await asyncio.sleep(0.1)
            check_all()

    def check_all() -> None:
        time.sleep(0.3)

    made, part = FastAPI(lifespan=lifespan), FastAPI()

    @made.get("/ping")
    async def ping() -> PlainTextResponse:
        return PlainTextResponse(",".join([str(os.getpid()), *begun]))

    @made.get("/hold/{number}")
    async def hold(number: int) -> int:
        pause()
        return number

    @made.get("/slow/{number}")
    def slow(number: int) -> int:
        pause()
        return number

    @made.get("/compute")
    def compute() -> int:
        ends = time.thread_time() + SLOW_S
        while time.thread_time() < ends:
            sum(range(1000))
        return 0

    @made.get("/wait/{number}")
    async def wait(number: int) -> int:
        await asyncio.sleep(SLOW_S)
        return number

    @part.get("/inner/{number}")
    def inner(number: int) -> int:
        return number

    @made.get("/stream")
    async def streamed() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"one,"
            await asyncio.sleep(SLOW_S)
            yield b"two"

        return StreamingResponse(parts())

    @made.get("/fail")
    async def fail() -> None:
        raise RuntimeError("on purpose")

    made.mount("/part", part)
    return made


def __getattr__(name: str) -> Any:
    if name == "by_hand":
        from stampede_probe import wsgi

        return wsgi(app)
    makers = {"flask": in_flask, "fast": in_fastapi, "django": in_django}
    if name not in makers:
        raise AttributeError(name)
    globals()[name] = makers[name]()
    return globals()[name]

"""Applications as they were, with a note of when work on each request begins and ends."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Awaitable, Callable, Dict, Iterable, Iterator

from stampede_probe.worker import Request, Worker, current, fault, guarded, native, state, worker

_ID = os.environ.get("STAMPEDE_PROBE_ID", "")
_WSGI_ID = "HTTP_" + _ID.upper().replace("-", "_") if _ID else ""
_ASGI_ID = _ID.lower().encode()
Scope = Dict[str, Any]
Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Wrapped:
    """An application that also has the attributes of what it wraps."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self.application = application

    def __getattr__(self, name: str) -> Any:
        if name == "application":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.application, name)


class Wsgi(Wrapped):
    """A WSGI application with the probe."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass a request to the application."""
        if state.off or current.get() is not None:
            return self.application(environ, start_response)  # type: ignore[no-any-return]
        try:
            request = _begin_wsgi(environ)
        except Exception:  # whatever fails here must not reach the request
            fault()
            return self.application(environ, start_response)  # type: ignore[no-any-return]
        sent_files: list[Any] = []
        files = environ.get("wsgi.file_wrapper")
        if files is not None and not isinstance(files, type):  # uWSGI knows a file by its identity

            def wrapper(*arguments: Any) -> Any:
                sent_files.append(files(*arguments))
                return sent_files[-1]

            environ["wsgi.file_wrapper"] = wrapper
        token = current.set(request)
        try:
            body: Iterable[bytes] = self.application(environ, start_response)
        except BaseException:
            _end(request)
            raise
        finally:
            current.reset(token)
        if isinstance(body, (list, tuple)):
            _end(request)
            return body
        if (isinstance(files, type) and isinstance(body, files)) or any(body is one for one in sent_files):
            _end(request)  # the server sends the file in its own way
            return body
        return (SizedBody if hasattr(body, "__len__") else Body)(body, request)


class Body:
    """The body of an answer as the application gave it. The work ends when the server closes it."""

    def __init__(self, body: Iterable[bytes], request: Request) -> None:
        self._body, self._request = body, request

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the application's body, if it can be closed."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            _end(self._request)

    def __del__(self) -> None:
        if not self._request.ended and state.worker is not None:  # the lock may be held here: the next request ends it
            state.worker.left.append(self._request)


class SizedBody(Body):
    """A body that knows its length."""

    def __len__(self) -> int:
        return len(self._body)  # type: ignore[arg-type]


def _begin_wsgi(environ: dict[str, Any]) -> Request:
    mine = state.worker or worker(*_threads(environ))
    ident = environ.pop(_WSGI_ID, "") if _WSGI_ID else ""
    holder = _greenlet() if mine.loop else None
    request = Request(_get_ident(), holder, environ, ident if ident.replace("-", "").isalnum() else "")
    mine.begin(request, environ.get("HTTP_X_REQUEST_START") or environ.get("HTTP_X_QUEUE_START"))
    return request


_get_ident = native("_thread", "get_ident")


def _greenlet() -> Any:
    greenlet = sys.modules.get("greenlet")
    return greenlet.getcurrent() if greenlet is not None else None


def _threads(environ: dict[str, Any]) -> tuple[int, str]:
    """Return how many requests this process serves at once, and its server, as far as a request tells."""
    uwsgi = sys.modules.get("uwsgi")
    options = getattr(uwsgi, "opt", None)
    if options is not None:
        return int(options.get("threads", 1)), "uwsgi"
    return (0, "") if environ.get("wsgi.multithread") else (1, "")


class Asgi(Wrapped):
    """An ASGI application with the probe."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a scope to the application. The work ends when the last part of the answer is sent."""
        kind = scope["type"]
        if state.off or kind not in ("http", "lifespan") or current.get() is not None:
            await self.application(scope, receive, send)
            return
        if kind == "lifespan":
            guarded(_serving)
            await self.application(scope, receive, send)
            guarded(state.close)  # uvicorn then ends by a signal, and no function of atexit is called
            return
        try:
            request = _begin_asgi(scope)
        except Exception:  # whatever fails here must not reach the request
            fault()
            await self.application(scope, receive, send)
            return

        def noted(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                _end(request)
            return send(message)

        token = current.set(request)
        try:
            await self.application(scope, receive, noted)
        finally:
            _end(request)
            current.reset(token)


def _serving() -> Worker:
    mine = state.worker or worker(loop=True)
    if mine.watcher.loop is None:
        mine.watcher.watch_loop(asyncio.get_running_loop())
    return mine


def _begin_asgi(scope: Scope) -> Request:
    mine = state.worker
    if mine is None or mine.watcher.loop is None:
        mine = _serving()
    sent, ident = None, ""
    for name, value in scope["headers"]:
        if name in (b"x-request-start", b"x-queue-start"):
            sent = value.decode("latin-1")
        elif _ASGI_ID and name == _ASGI_ID:
            ident = value.decode("latin-1")
    if ident:
        scope["headers"] = [one for one in scope["headers"] if one[0] != _ASGI_ID]
        ident = ident if ident.replace("-", "").isalnum() else ""
    request = Request(_get_ident(), asyncio.current_task(mine.watcher.loop), scope, ident)
    mine.begin(request, sent)
    return request


def _end(request: Request) -> None:
    mine = state.worker
    if mine is not None and not request.ended and not state.off:
        try:
            mine.end(request)
        except Exception:  # whatever fails here must not reach the request
            fault()


def wsgi(application: Callable[..., Any]) -> Wsgi:
    """Return a WSGI application with the probe."""
    return application if isinstance(application, Wsgi) else Wsgi(_ready(application))


def asgi(application: Callable[..., Any]) -> Asgi:
    """Return an ASGI application with the probe."""
    return application if isinstance(application, Asgi) else Asgi(_ready(application))


def _ready(application: Callable[..., Any]) -> Callable[..., Any]:
    from stampede_probe import hooks  # it imports the wrappers
    from stampede_probe.worker import memory

    guarded(hooks.install)
    guarded(memory)  # workers that are forked later share it
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "load_wsgi":
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:  # gunicorn loads the application in the worker
        guarded(hooks.serve_gunicorn, frame.f_locals.get("self"))
    state.by_hand = True
    return application

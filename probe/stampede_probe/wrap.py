"""Applications as they were, with a note of when work on each request begins and ends."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Awaitable, Callable, Dict, Iterable, Iterator

from stampede_probe.worker import Request, Worker, current, getcurrent, guarded, state, worker

_ID = os.environ.get("STAMPEDE_PROBE_ID", "")
_WSGI_ID = "HTTP_" + _ID.upper().replace("-", "_") if _ID else ""
_ASGI_ID = _ID.lower().encode()
_UWSGI = "uwsgi" in sys.modules
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
        request, mine = None, state.worker or guarded(_worker_of, environ)
        if mine is not None and not state.off and current.get() is None:
            sent = environ.get("HTTP_X_REQUEST_START") or environ.get("HTTP_X_QUEUE_START")
            ident = environ.pop(_WSGI_ID, "") if _WSGI_ID else ""
            request = mine.begin(environ, sent, ident, getcurrent() if mine.loop else None)
        if request is None:
            return self.application(environ, start_response)  # type: ignore[no-any-return]
        sent_files = _note_files(environ) if _UWSGI else ()
        try:
            body: Iterable[bytes] = self.application(environ, start_response)
        except BaseException:
            mine.end(request)
            raise
        files = environ.get("wsgi.file_wrapper")  # the server sends a file in its own way
        kinds = (list, tuple, files) if isinstance(files, type) else (list, tuple)
        if isinstance(body, kinds) or any(body is one for one in sent_files):
            mine.end(request)
            return body
        mine.leave_thread(request)
        return (SizedBody if hasattr(body, "__len__") else Body)(body, mine, request)


def _note_files(environ: dict[str, Any]) -> list[Any]:
    """Return a list that gets what ``wsgi.file_wrapper`` returns: uWSGI knows a file by its identity."""
    sent: list[Any] = []
    files: Any = environ.get("wsgi.file_wrapper")

    def wrapper(*arguments: Any) -> Any:
        sent.append(files(*arguments))
        return sent[-1]

    if files is not None:
        environ["wsgi.file_wrapper"] = wrapper
    return sent


class Body:
    """The body of an answer as the application gave it. The work ends when the server closes it."""

    def __init__(self, body: Iterable[bytes], mine: Worker, request: Request) -> None:
        self._body, self._worker, self._request = body, mine, request

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the application's body, if it can be closed."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._worker.end(self._request)

    def __del__(self) -> None:
        if not self._request.ended:  # the lock may be held here: the watching thread ends it
            self._worker.left.append(self._request)


class SizedBody(Body):
    """A body that knows its length."""

    def __len__(self) -> int:
        return len(self._body)  # type: ignore[arg-type]


def _worker_of(environ: dict[str, Any]) -> Worker:
    """Make the worker of this process; how much it serves at once, and on which server, is what a request tells."""
    if getattr(getcurrent(), "parent", None) is not None:  # whoever runs in the main greenlet has no hub
        return worker(loop=True)
    options = getattr(sys.modules.get("uwsgi"), "opt", None)
    if options is not None:
        return worker(int(options.get("threads", 1)), "uwsgi")
    return worker(0 if environ.get("wsgi.multithread") else 1)


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

            async def heard() -> Message:
                message = await receive()
                if message["type"] == "lifespan.shutdown":
                    guarded(state.close)  # uvicorn then ends by a signal, and no function of atexit is called
                return message

            await self.application(scope, heard, send)
            return
        mine = state.worker
        if mine is None or mine.watcher.loop is None:
            mine = guarded(_serving)
        headers, ident = dict(scope["headers"]), ""
        if _ASGI_ID and _ASGI_ID in headers:
            ident = headers[_ASGI_ID].decode("latin-1")
            scope["headers"] = [one for one in scope["headers"] if one[0] != _ASGI_ID]
        sent = headers.get(b"x-request-start") or headers.get(b"x-queue-start")
        request = mine.begin(scope, sent, ident, asyncio.current_task()) if mine else None
        if request is None:
            await self.application(scope, receive, send)
            return

        def noted(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                mine.end(request)
            return send(message)

        token = current.set(request)
        try:
            await self.application(scope, receive, noted)
        finally:
            mine.end(request)
            current.reset(token)


def _serving() -> Worker:
    mine = state.worker or worker(loop=True)
    if mine.watcher.loop is None:
        mine.watcher.watch_loop(asyncio.get_running_loop())
    return mine


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

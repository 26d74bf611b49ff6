"""Where servers load applications and frameworks match routes: what is changed when a module is imported."""

from __future__ import annotations

import sys
from functools import wraps
from importlib.abc import MetaPathFinder
from threading import current_thread
from typing import Any, Callable

from stampede_probe.worker import Worker, guarded, note_route, state, worker
from stampede_probe.wrap import asgi, wsgi


def after(owner: Any, name: str, then: Callable[..., Any]) -> None:
    """Call ``then(result, *arguments)`` after a function; what it returns, if anything, is the new result."""
    function = getattr(owner, name, None)
    if function is None or hasattr(function, "_stampede_probe"):
        return

    @wraps(function)
    def replaced(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        changed = guarded(then, result, *arguments)
        return result if changed is None else changed

    replaced._stampede_probe = True  # type: ignore[attr-defined]
    setattr(owner, name, replaced)


def _gunicorn(module: Any) -> None:
    def loaded(_result: Any, self: Any, *_: Any) -> None:
        of_tornado = any(one.__module__.startswith("tornado.") for one in type(self.wsgi).__mro__)  # it is no WSGI
        if not of_tornado and serve_gunicorn(self):
            self.wsgi = wsgi(self.wsgi)

    after(module.Worker, "load_wsgi", loaded)


def serve_gunicorn(gunicorn_worker: Any) -> bool:
    """Take a slot for a WSGI worker of gunicorn; False: it is none, and hands the application on."""
    of = {one.__name__ for one in type(gunicorn_worker).__mro__}
    if of & {"SyncWorker", "TornadoWorker"}:  # a handler blocks the loop of Tornado
        _serve(1, "sync" if "SyncWorker" in of else "tornado").server = gunicorn_worker
    elif "ThreadWorker" in of:
        _serve(gunicorn_worker.cfg.threads, "gthread").server = gunicorn_worker
    elif "AsyncWorker" in of:
        _serve(0, type(gunicorn_worker).__name__, loop=True)
    return bool(of & {"SyncWorker", "TornadoWorker", "ThreadWorker", "AsyncWorker"})


def _serve(capacity: int, server: str, *, loop: bool = False) -> Worker:
    state.capacity = (capacity, server)
    return worker(loop=loop)


def _asgi(loads: str, attribute: str, server: str) -> Callable[[Any], None]:
    """Return a hook that wraps what ``Class.method`` of a module leaves in an attribute."""
    owner, name = loads.split(".")

    def loaded(_result: Any, self: Any, *_: Any) -> None:
        state.capacity = (0, server)
        setattr(self, attribute, asgi(getattr(self, attribute)))

    return lambda module: after(getattr(module, owner), name, loaded)


def _granian(module: Any) -> None:
    function, is_wsgi = module._callback_wrapper, module.__name__ == "granian.wsgi"

    @wraps(function)
    def replaced(callback: Any, *arguments: Any, **named: Any) -> Any:
        threads = sys._getframe(1).f_locals.get("blocking_threads")
        if not is_wsgi:
            state.capacity = (0, "granian")
            return function(guarded(asgi, callback) or callback, *arguments, **named)
        guarded(_serve, threads if isinstance(threads, int) else 0, "granian")
        probed = guarded(wsgi, callback) or callback

        def known(*request: Any) -> Any:
            current_thread()  # Python did not start this thread, and asks for its id in the kernel now
            return probed(*request)

        return function(known, *arguments, **named)

    module._callback_wrapper = replaced


def _hypercorn(module: Any) -> None:
    def wrapped(result: Any, *_: Any) -> None:
        state.capacity = (0, "hypercorn")
        result.app = (wsgi if type(result).__name__ == "WSGIWrapper" else asgi)(result.app)

    after(module, "wrap_app", wrapped)


def _daphne(module: Any) -> None:
    def loaded(result: Any, *_: Any) -> Any:
        state.capacity = (0, "daphne")
        return asgi(result)

    after(module.CommandLineInterface, "load_asgi_app", loaded)


def _matching(matches: str, route: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a hook that notes the route in what ``Class.method`` of a module returns."""
    owner, name = matches.split(".")
    return lambda module: after(getattr(module, owner), name, lambda result, *_: note_route(route(result)))


HOOKS: dict[str, Callable[[Any], None]] = {
    "gunicorn.workers.base": _gunicorn,
    "gunicorn.workers.gasgi": _asgi("ASGIWorker.load_wsgi", "asgi", "gunicorn asgi"),
    "uvicorn.config": _asgi("Config.load", "loaded_app", "uvicorn"),
    "granian.wsgi": _granian,
    "granian.asgi": _granian,
    "hypercorn.utils": _hypercorn,
    "daphne.cli": _daphne,
    "werkzeug.routing.map": _matching("MapAdapter.match", lambda found: getattr(found[0], "rule", None)),
    "django.core.handlers.base": _matching("BaseHandler.resolve_request", lambda found: getattr(found, "route", None)),
}


class Finder(MetaPathFinder):
    """Finds nothing itself: it lets the others find a module, and calls its hook after the module was executed."""

    def __init__(self, hooks: dict[str, Callable[[Any], None]], call: Callable[..., Any] = guarded) -> None:
        """Remember the hooks of modules; ``call(hook, module)`` calls one."""
        self.hooks, self.call = hooks, call
        self.sought: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the next finders give, with a loader that calls the hook."""
        if name not in self.hooks or name in self.sought:  # another finder of this kind asks all others, too
            return None
        self.sought.add(name)
        try:
            finders = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
            spec = next(filter(None, (one.find_spec(name, path, target) for one in finders)), None)
        finally:
            self.sought.discard(name)
        loader: Any = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if execute is not None:

            def exec_module(module: Any) -> None:
                execute(module)
                self.call(self.hooks[name], module)

            loader.exec_module = exec_module
        return spec


def install() -> None:
    """Change the modules that are imported already, and the others when they are imported."""
    if not any(isinstance(one, Finder) and one.hooks is HOOKS for one in sys.meta_path):
        sys.meta_path.insert(0, Finder(HOOKS))
        for name, hook in HOOKS.items():
            if name in sys.modules:
                hook(sys.modules[name])

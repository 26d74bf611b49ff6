"""Somebody's application, and notes of which worker served which request. ``app`` is for WSGI, ``asgi`` for ASGI.

k6 sends an id with each request, in the header ``Lab-Id``. This wrapper takes the header away before the application
sees it, and leaves the answer as it is. It writes a line when work on a request begins, and a line when it ends:
``began,ID,HOST:PID,THREAD,CONNECTION,TIME`` and ``ended,ID,,,,TIME``, with times in epoch seconds. If the event loop of
an ASGI application, or the hub of gevent or eventlet, does not go on for some time, it writes
``held,,HOST:PID,THREAD,SECONDS,TIME``, ``computed,…`` or ``locked,…`` at the end of this time (see ``Stall``). If all
threads of a pool are busy and calls wait for them, it writes ``pool,,HOST:PID,THREADS,SECONDS,TIME`` for AnyIO's pool,
``executor,…`` for asyncio's (see ``Pool``). When a process has loaded the application, it writes
``loaded,,HOST:PID,THREAD,SECONDS,TIME``. The lines are in ``/tmp/served/PID``, so they outlive a worker that is killed.
"""

import ast
import asyncio
import inspect
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from counters import Counters

APPLICATION = os.environ.get("LAB_FOLDER", "/opt/application")
SERVED = Path("/tmp/served")
TICK_S, HELD_S = 0.02, 0.05
"""How often an event loop is looked at, and the delay from which on it counts as held up."""
POOL_S = 1
"""A pool that stays full is noted at least this often, so that little is lost when the worker ends."""
GREENLETS = {"gevent": "gevent", "eventlet": "eventlet"}.get(os.environ.get("LAB_WORKER_CLASS", ""), "")
"""The library of greenlets, if gunicorn's class of workers has one."""
COUNTED = os.environ.get("LAB_SERVER", "") == "granian-wsgi"
"""Whether this wrapper counts the requests of a WSGI application, because the server does not."""
_ID = re.compile(r"[0-9-]{1,40}")
_HOST = socket.gethostname()
_files: dict[int, int] = {}
uwsgi: Any = sys.modules.get("uwsgi")  # uWSGI itself has put it there; an application may have a module of this name
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


def note(*words: object) -> None:
    """Write one line. An application must not fail because the disk is full, so the line may be missing."""
    process = os.getpid()  # a worker may be forked after this module was imported
    with suppress(OSError):
        if process not in _files:
            SERVED.mkdir(exist_ok=True)
            _files[process] = os.open(SERVED / str(process), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(_files[process], (",".join(map(str, words)) + "\n").encode())


def began(ident: str, of_connection: str = "") -> None:
    """Note that this thread begins to work on a request."""
    worker = f"{_HOST}:{os.getpid()}"
    note("began", ident, worker, threading.get_native_id(), of_connection, f"{time.time():.6f}")


def ended(ident: str) -> None:
    """Note that the work on a request ends."""
    note("ended", ident, "", "", "", f"{time.time():.6f}")


def connection(environ: dict[str, Any]) -> str:
    """Return the inode of the request's socket, which, unlike a port, is unique; empty if there is no socket."""
    with suppress(OSError, AttributeError, KeyError):
        descriptor = environ["gunicorn.socket"].fileno() if uwsgi is None else uwsgi.connection_fd()
        return str(os.fstat(descriptor).st_ino)
    return ""


class Answer:
    """The body of an answer as the application gave it. The work ends when the server closes the body."""

    def __init__(self, body: Iterable[bytes], ident: str) -> None:
        self._body, self._ident = body, ident

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the application's body, if it can be closed."""
        try:
            if close := getattr(self._body, "close", None):
                close()
        finally:
            ended(self._ident)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Pass a request to the application, and note who served it. ``/-/ready`` tells that the application is loaded.

    If the application has a path that tells when it is ready, ``/-/ready`` is this path.
    """
    if environ.get("PATH_INFO") == "/-/ready":
        if READY:
            environ["PATH_INFO"], _, environ["QUERY_STRING"] = READY.partition("?")
            return application(environ, start_response)
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
        return [b"ready\n"]
    ident = environ.pop("HTTP_LAB_ID", "")
    if GREENLETS and os.getpid() not in _watched:  # a worker may be forked after the import
        _watched.add(os.getpid())
        library = import_module(GREENLETS)
        library.spawn(watch_hub, library.sleep)
    try:
        return noted(environ, start_response, ident if _ID.fullmatch(ident) else "")
    finally:
        if COUNTED:
            counters().add("served")


def noted(environ: dict[str, Any], start_response: Callable[..., Any], ident: str) -> Iterable[bytes]:
    """Pass a request to the application, and note when its work begins and ends if the request has an id."""
    if not ident:
        return application(environ, start_response)
    began(ident, connection(environ))
    try:
        body: Iterable[bytes] = application(environ, start_response)
    except BaseException:
        ended(ident)
        raise
    file_wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(body, (list, tuple)) or (isinstance(file_wrapper, type) and isinstance(body, file_wrapper)):
        ended(ident)  # servers treat these kinds of bodies in their own ways
        return body
    return Answer(body, ident)


async def asgi(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """The same for ASGI. The work ends when the last part of the answer is sent; tasks in the background may go on."""
    if scope["type"] == "lifespan":
        counters()
        return await application(scope, until_shutdown(receive, watching()), send)
    if scope["type"] != "http":
        return await application(scope, receive, send)
    watching()  # daphne has no lifespan
    if scope["path"] == "/-/ready":
        if READY:
            path, _, query = READY.partition("?")
            scope = {**scope, "path": path, "raw_path": path.encode(), "query_string": query.encode()}
            return await application(scope, receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": b"ready\n"})
        return None
    sent = [value.decode("latin-1") for name, value in scope["headers"] if name == b"lab-id"]
    ident = sent[0] if sent and _ID.fullmatch(sent[0]) else ""
    scope = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"lab-id"]}
    at_work = True

    def end() -> None:
        nonlocal at_work
        if at_work:
            at_work = False
            counters().add("served")
            if ident:
                ended(ident)

    async def noted(message: dict[str, Any]) -> None:
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            end()

    if ident:
        began(ident)
    try:
        await application(scope, receive, noted)
    finally:
        end()
    return None


class Pulse:
    """A thread that only wakes up every now and then. If it cannot, another thread keeps Python's interpreter lock.

    Code that computes in Python lets it wake up; a C function that keeps the lock, or the garbage collector, does not.
    """

    def __init__(self) -> None:
        """Start the thread."""
        self._silent_s, self._last_s = 0.0, perf_counter()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            sleep(TICK_S)
            self._silent_s, self._last_s = self.silent_s(), perf_counter()

    def silent_s(self) -> float:
        """Return for how many seconds in all the thread could not wake up."""
        late_s = perf_counter() - self._last_s - TICK_S
        return self._silent_s + (late_s if late_s > HELD_S else 0.0)


class Stall:
    """The time between two looks at an event loop or a hub, and whether the loop did not go on in between.

    ``held``: a function on the loop blocks. ``computed``: it computes. ``locked``: other threads of the process have
    Python's interpreter lock: they compute meanwhile, so they have the processor time that the loop lacks, or no other
    thread can run, either. Nothing is noted if the loop could go on and only waits for a processor.
    """

    def __init__(self, silent_s: Callable[[], float] = lambda: 0.0) -> None:
        """Begin to watch; ``silent_s`` is that of the pulse, if the process has one."""
        self._silent_s, self._silent_before_s, self._waited_s = silent_s, silent_s(), waited_s()
        self._began_s, self._mine_s, self._all_s = time.monotonic(), time.thread_time(), time.process_time()

    def end(self) -> float:
        """Note the stall if there was one, and return how many seconds have passed."""
        passed_s = time.monotonic() - self._began_s
        held_s = passed_s - TICK_S
        if held_s > HELD_S and waited_s() - self._waited_s < held_s / 2:
            mine_s, all_s = time.thread_time() - self._mine_s, time.process_time() - self._all_s
            kept_s = max(all_s - mine_s, self._silent_s() - self._silent_before_s)
            what = "computed" if mine_s >= held_s / 2 else "locked" if kept_s > held_s / 2 else "held"
            note_span(what, threading.get_native_id(), held_s)
        return passed_s


def waited_s() -> float:
    """Return for how long this thread was ready to run and had no processor; 0 if the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return 0.0


class Pool:
    """How long all threads of a pool have been busy while calls waited for a thread, until this was noted."""

    def __init__(self, what: str, look: Callable[[], int]) -> None:
        """Take the word for the notes, and a function that returns how many threads are busy if calls wait, else 0."""
        self._what, self._look, self._full_s, self._threads = what, look, 0.0, 0

    def look(self, passed_s: float) -> None:
        """Look at the pool. ``passed_s`` is how long ago the last look was."""
        threads = self._look()
        if threads:
            self._full_s, self._threads = self._full_s + passed_s, threads
        if self._full_s and (not threads or self._full_s >= POOL_S):
            note_span(self._what, self._threads, self._full_s)
            self._full_s = 0.0


def threads_of_anyio() -> int:
    """Return the size of AnyIO's pool if all of its threads are busy and calls wait, else 0."""
    to_thread: Any = sys.modules.get("anyio.to_thread")
    if to_thread is None:
        return 0
    limiter = to_thread.current_default_thread_limiter()
    full = limiter.borrowed_tokens >= limiter.total_tokens and limiter.statistics().tasks_waiting
    return int(limiter.borrowed_tokens) if full else 0


def threads_of_asyncio() -> int:
    """Return the size of the pool of ``asyncio.to_thread`` if calls wait, else 0. uvloop does not tell."""
    executor: Any = getattr(asyncio.get_running_loop(), "_default_executor", None)
    waiting = getattr(executor, "_work_queue", None)
    return int(executor._max_workers) if waiting is not None and waiting.qsize() else 0


def note_span(what: str, number: int, seconds: float) -> None:
    """Note what has lasted for some time until now."""
    note(what, "", f"{_HOST}:{os.getpid()}", number, f"{seconds:.6f}", f"{time.time():.6f}")


def watching() -> "asyncio.Task[None]":
    """Return the task that watches the event loop of this process, and start it if there is none."""
    if os.getpid() not in _watching:
        _watching[os.getpid()] = asyncio.create_task(watch())
    return _watching[os.getpid()]


async def watch() -> None:
    """Note each time that the event loop of this process does not go on, and when its pools of threads are full."""
    pools = [Pool("pool", threads_of_anyio), Pool("executor", threads_of_asyncio)]
    pulse = Pulse()
    while True:
        stall = Stall(pulse.silent_s)
        await asyncio.sleep(TICK_S)
        passed_s = stall.end()
        for pool in pools:
            pool.look(passed_s)


def watch_hub(sleep: Callable[[float], None]) -> None:
    """Note each time that the hub of this process does not go on: no greenlet of the worker runs meanwhile."""
    while True:
        stall = Stall()
        sleep(TICK_S)
        stall.end()


def until_shutdown(receive: Receive, task: "asyncio.Task[None]") -> Receive:
    """Return a function that does the same as ``receive``, and ends a task when the server shuts down."""

    async def received() -> dict[str, Any]:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            task.cancel()
        return message

    return received


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
_watched: set[int] = set()
_watching: dict[int, "asyncio.Task[None]"] = {}
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
note_span("loaded", threading.get_native_id(), _took_s)

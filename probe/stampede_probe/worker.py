"""What one worker process notes: each request's beginning and end, and when all of its threads are busy.

Everything here runs within somebody's request. It must be quick, and a fault in it must not reach the request:
``begin`` and ``end`` below are what the wrappers call, and they turn the probe off if it fails.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from operator import add
from struct import Struct
from time import monotonic
from time import time as epoch
from typing import Any, Callable

from stampede_probe import shared as layout

# isort: off
from stampede_probe.shared import (
    AHEAD, AHEAD_S, AVOIDABLE_S, AVOIDABLES, AVOIDED, BUCKETS_S, DELAY_S, DELAYS, FAULTS, HEAD, HELD_S, HELD_SINCE,
    KNOWN, MINUTE, MISTOLD, NO_HEADER, NO_RING, OTHER, PLACE_AT, PLACE_WORDS, PLACES, REQUESTS, RING, RING_AT, ROUTE_AT,
    ROUTE_S, ROUTE_WORDS, SECOND_WORDS, SECONDS, UNMATCHED, UNTIL, WITHOUT_PLACE, WORDS, WORK_S, Shared,
)  # fmt: skip

# isort: on

COUNTS_S = 0.05
"""A wait counts if it is longer than this, as in the lab."""
CLOCK_S, STEP_S, LONGEST_S, NEVER = 0.002, 0.001, 3600.0, float("inf")
"""A clock that is ahead by less is in step. Proxies tell the time in steps of a millisecond, so a shorter delay is none
that another worker could avoid. A request that came longer ago carries a wrong time."""
UNCOUNTED = 64
"""At most so many requests have ended and are not counted."""
NAMES = 500
"""How many names of one kind a worker keeps counts of."""
_NO_CSV = str.maketrans(',"\n\r', ";'  ")
current: ContextVar[Any] = ContextVar("stampede_probe", default=None)
_DETAILS, _SECOND = Struct("=QdQd"), Struct("=QQQQ")
_SEGMENTS = bool(os.environ.get("STAMPEDE_PROBE_SEGMENTS"))


def native(module: str, name: str) -> Any:
    """Return a function of the standard library as it was before gevent or eventlet replaced it."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None:
        return gevent.get_original(module, name)
    return getattr(import_module(module) if eventlet is None else eventlet.original(module), name)


get_ident = native("_thread", "get_ident")


def sent_at(text: str) -> float | None:
    """Return the epoch seconds of a header ``X-Request-Start``; its unit follows from its size. None: it is no time."""
    try:
        value = float(text[2:] if text.startswith("t=") else text.rstrip("s"))
    except ValueError:
        return None
    if 1e9 <= value < 1e10:
        return value
    return next((value / unit for unit in (1e3, 1e6, 1e9) if 1e9 <= value / unit < 1e10), None)


class Request:
    """A request at work: what a server hands to the application, when it was sent, and how long it waited.

    ``key`` is where it stands in ``Worker.at_work``; ``delay`` and ``avoidable`` are None if nobody can tell.
    """

    source: Any
    sent: str | bytes | None
    ident: str
    holder: Any
    thread: int
    key: Any
    began: float
    place = 0
    ended = 0.0
    route: str | None = None
    is_judged = False
    delay: float | None = None
    avoidable: float | None = None


class Worker:
    """The notes of this process. ``capacity`` is how many requests it works on at once; 0: it has no limit."""

    __slots__ = (
        "at_work", "base", "bytes", "capacity", "counting", "d", "due", "ended", "free", "free_since", "head",
        "held_by", "held_since", "holds", "idle_since", "lately", "left", "lock", "loop", "memory", "notes",
        "notes_lock", "numbers", "pid", "q", "rows", "server", "watcher",
    )  # fmt: skip  # a request finds what it needs beside each other in memory

    def __init__(self, memory: Shared, capacity: int, server: str, *, loop: bool) -> None:
        """Take a slot, and watch this process."""
        try:
            slot = memory.claim(capacity, server, loop=loop)
            reason = "all slots for workers are taken"
        except OSError as error:
            slot, reason = None, f"there is no room for another worker: {error.strerror}"
        if slot is None:
            _say(f"{reason}; this worker counts for itself alone")
            memory = Shared(-1, "")
            slot = memory.claim(capacity, server, loop=loop)
        assert slot is not None
        self.memory, self.base, self.capacity, self.loop = memory, slot, capacity, loop
        self.pid, self.idle_since, self.held_since = os.getpid(), monotonic(), 0.0
        self.q, self.d, self.bytes = memory.q, memory.d, memory.bytes
        self.lock = native("_thread", "allocate_lock")()
        self.free = list(range(slot + PLACE_AT, slot + PLACE_AT + PLACES * PLACE_WORDS, PLACE_WORDS))[::-1]
        """The first word of each free place."""
        self.at_work: dict[Any, Request] = {}
        """By thread, task or greenlet while the application is called; by itself while its body is sent."""
        self.left: deque[Request] = deque()
        """Requests whose body was forgotten by the server without being closed."""
        self.held_by = "(not seen)"
        self.holds: deque[tuple[float, float, str]] = deque(maxlen=64)
        self.lately: deque[tuple[float, float, str]] = deque(maxlen=4 * UNCOUNTED)
        self.ended: deque[Request] = deque()
        """Requests that are not counted yet."""
        self.counting = native("_thread", "allocate_lock")()
        self.numbers = {UNMATCHED: 0, OTHER: 1}
        self.head, self.free_since = 0, 0.0
        self.server: Any = None
        """gunicorn's worker: while it is ``alive``, it takes requests."""
        self.due = NEVER
        """When the event loop must show again that it goes on."""
        self.notes: dict[str, dict[str, float]] = {}
        self.notes_lock = native("_thread", "allocate_lock")()
        self.rows = Rows(os.environ["STAMPEDE_PROBE_ROWS"]) if os.environ.get("STAMPEDE_PROBE_ROWS") else None
        from stampede_probe.watch import Watcher  # it knows the worker

        self.watcher = Watcher(self)

    def begin(self, source: Any, sent: str | bytes | None, ident: str = "", holder: Any = None) -> Request | None:
        """Note that work on a request begins; None: it had begun further out, or the probe failed.

        Mostly, the caches of the processor hold nothing of the probe when a request comes, so its cost is the memory
        that it touches: one function at the beginning and one at the end. For how long a request waited is found by
        the watching thread, or when the request has ended.
        """
        try:
            request = Request()
            request.began = now = monotonic()
            if now >= self.due:
                self.watcher.goes_on(now)
            request.source, request.sent, request.ident, request.holder = source, sent, ident, holder
            request.thread = thread = get_ident()
            request.key = key = holder or thread
            with self.lock:
                at_work = self.at_work
                if key in at_work:
                    return None
                at_work[key] = request
                if len(at_work) == self.capacity and not self.held_since:
                    self._turn(now)
                if self.free:
                    request.place = place = self.free.pop()
                    self.d[place] = now
                else:
                    self.q[self.base + WITHOUT_PLACE] += 1
            if self.rows:
                self.rows.began(request)
        except Exception:  # whatever it is, it must not reach the request
            fault()
            return None
        return request

    def leave_thread(self, request: Request) -> None:
        """Note that the application has returned a body, so that this thread may call it for another request."""
        with self.lock:
            if self.at_work.pop(request.key, None) is not None:
                request.key = request
                self.at_work[request] = request

    def end(self, request: Request) -> None:
        """Note that work on a request ends. It is counted later, with others: that costs less."""
        if request.ended:
            return
        try:
            request.ended = self.idle_since = now = monotonic()
            if request.route is None:
                request.route = route_of(request)
            with self.lock:
                if self.server is not None and not self.server.alive:
                    if not self.head % 2:  # as after max_requests: none of its threads is free
                        self._turn(now)
                    self.server, self.capacity = None, -1
                elif len(self.at_work) == self.capacity and not self.held_since:
                    self._turn(now)
                del self.at_work[request.key]
                if request.place:
                    self.d[request.place] = -now
                    self.free.append(request.place)
                else:
                    self.q[self.base + WITHOUT_PLACE] -= 1
            request.source = request.holder = request.key = None
            self.ended.append(request)
            if self.rows:
                self.count_ended()
                self.rows.ended(request, request.route)
            if len(self.ended) >= UNCOUNTED:
                self.count_ended()
        except Exception:  # whatever it is, it must not reach the request
            fault()

    def count_ended(self) -> None:
        """Count the requests that have ended; called by the watching thread, and when there are many."""
        routes: dict[str, list[Any]] = {}
        seconds: dict[int, list[int]] = {}
        with self.counting:
            q, d = self.q, self.d
            ended = [self.ended.popleft() for _ in range(len(self.ended))]
            self.lately.extend((one.began, one.ended, one.route or UNMATCHED) for one in ended)
            for request in ended:
                self._judge(request)
                delay, avoidable, route = request.delay, request.avoidable, request.route or UNMATCHED
                of = routes.get(route) or routes.setdefault(route, [0] * ROUTE_WORDS)
                of[REQUESTS] += 1
                of[WORK_S] += request.ended - request.began
                if delay is None:
                    continue
                of[DELAY_S] += delay
                of[DELAYS + bisect_left(BUCKETS_S, delay)] += 1
                if avoidable is None:
                    continue
                of[KNOWN] += 1
                of[AVOIDABLE_S] += avoidable
                of[AVOIDABLES + bisect_left(BUCKETS_S, avoidable)] += 1
                of[AVOIDED] += avoidable > COUNTS_S
                second = seconds.setdefault(int(request.ended), [0, 0, 0])
                second[0] += 1
                second[1] += delay > COUNTS_S
                second[2] += avoidable > COUNTS_S
            for route, of in routes.items():
                at = self.base + ROUTE_AT + self._number_of(route) * ROUTE_WORDS
                for word, value in enumerate(of):
                    if value:
                        (d if word in ROUTE_S else q)[at + word] += value
            for number, counts in seconds.items():
                at = self.base + MINUTE + number % SECONDS * SECOND_WORDS
                before = q[at + 1 : at + 4].tolist() if q[at] == number else (0, 0, 0)
                _SECOND.pack_into(self.bytes, at * WORDS, number, *map(add, before, counts))

    def judge_all(self) -> None:
        """Find for how long each request at work waited."""
        self.count_ended()
        with self.lock:
            new = [one for one in self.at_work.values() if not one.is_judged]
        with self.counting:
            for request in new:
                self._judge(request)
                with self.lock:
                    if request.place and not request.ended:
                        delay = -1.0 if request.delay is None else request.delay
                        _DETAILS.pack_into(
                            self.bytes, (request.place + 1) * WORDS, request.thread, delay, 0, request.began
                        )

    def _judge(self, request: Request) -> None:
        """Find for how long a request waited, and how much of this another worker could have avoided."""
        if request.is_judged:
            return
        request.is_judged, began, sent = True, request.began, request.sent
        if not sent:
            self.q[self.base + NO_HEADER] += 1
            return
        at = sent_at(sent if isinstance(sent, str) else sent.decode("latin-1"))
        delay = began + epoch() - monotonic() - at if at else LONGEST_S + 1
        if delay > LONGEST_S:
            self.q[self.base + MISTOLD] += 1
        elif delay < -CLOCK_S:
            self.q[self.base + AHEAD] += 1
            self.d[self.base + AHEAD_S] = max(self.d[self.base + AHEAD_S], -delay)
        else:
            request.delay = delay = max(0.0, delay)
            request.avoidable = 0.0
            if delay >= STEP_S and self.free_since >= began - delay:
                request.avoidable = self.memory.avoidable(self.base, began - delay, began)
                if request.avoidable is None:
                    self.q[self.base + NO_RING] += 1
                elif request.avoidable > COUNTS_S:
                    self._blame(request.avoidable, began - delay, began)

    def _turn(self, now: float) -> None:
        """Note that the worker has become full, or is no longer. The time is written before it counts."""
        head = self.head
        self.d[self.base + RING_AT + head % RING] = now
        self.q[self.base + HEAD] = self.head = head + 1
        self.free_since = now if head % 2 else NEVER

    def hold(self, since: float) -> None:
        """Note that the event loop has not gone on since a time; the worker is full from then on."""
        with self.lock:
            if not self.held_since:
                if not (self.capacity and len(self.at_work) >= self.capacity):
                    self._turn(since)
                self.held_since = self.d[self.base + HELD_SINCE] = since

    def let_go(self, now: float) -> None:
        """Note that the event loop goes on."""
        with self.lock:
            if self.held_since:
                self.d[self.base + HELD_S] += now - self.held_since
                self.holds.append((self.held_since, now, self.held_by))
                self.held_by = "(not seen)"
                self.held_since = self.d[self.base + HELD_SINCE] = 0.0
                if not (self.capacity and len(self.at_work) >= self.capacity):
                    self._turn(now)

    def _blame(self, avoidable: float, from_s: float, to_s: float) -> None:
        """Share a wait among the routes that worked here, or that held the loop, meanwhile, each by its time."""
        with self.lock:
            spans, at_work = [*self.holds], [*self.at_work.values()]
        if not self.loop:
            spans = [*self.lately, *((one.began, to_s, one.route or route_of(one)) for one in at_work)]
        times: dict[str, float] = {}
        for began, ended, route in spans:
            if began < to_s and ended > from_s:
                times[route] = times.get(route, 0.0) + min(ended, to_s) - max(began, from_s)
        whole = sum(times.values())
        for route, seconds in times.items():
            self.count("filled by", route, avoidable * seconds / whole)

    def count(self, kind: str, name: str, value: float) -> None:
        """Add to what is counted under a name."""
        with self.notes_lock:
            of = self.notes.setdefault(kind, {})
            if name not in of and len(of) >= NAMES:
                name = OTHER
            of[name] = of.get(name, 0.0) + value

    def show_route(self, request: Request, route: str) -> None:
        """Show the route of a request at work to others."""
        with self.counting:
            number = self._number_of(route)
        with self.lock:
            if request.place and not request.ended:
                self.q[request.place + 3] = number

    def _number_of(self, route: str) -> int:
        number = self.numbers.get(route)
        if number is None:
            number = self.memory.add_route(self.base, route)
            if len(self.numbers) < 4 * layout.ROUTES:
                self.numbers[route] = number
        return number

    def close(self) -> None:
        """Say that this worker has ended. What it notes later is seen by nobody: its slot may be another worker's."""
        if os.getpid() == self.pid:
            self.count_ended()
            with self.counting, self.lock, self.notes_lock:
                self.memory.write_notes(self.base, self.notes)
                words, self.memory = self.d, Shared(-1, "")
                self.q, self.d, self.bytes = self.memory.q, self.memory.d, self.memory.bytes
                words[self.base + UNTIL] = monotonic()


class Rows:
    """A line at the beginning and at the end of each request, in a file of this process.

    ``began,ID,HOST:PID,THREAD,CONNECTION,TIME`` and ``ended,ID,ROUTE,DELAY,AVOIDABLE,TIME``, with times in epoch
    seconds. Each second has a line ``stack,KIND|ROUTE|LINE,HOST:PID,,SECONDS,TIME`` for each stack that was counted.
    """

    def __init__(self, folder: str) -> None:
        """Open the file, in a folder that is made if it is missing."""
        os.makedirs(folder, exist_ok=True)
        self._worker = f"{socket.gethostname()}:{os.getpid()}"
        self._file = os.open(os.path.join(folder, str(os.getpid())), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._count = 0
        self._stacks: dict[str, float] = {}

    def began(self, request: Request) -> None:
        """Write the first line of a request."""
        self._count += 1
        if not request.ident.replace("-", "").isalnum():
            request.ident = f"pid{os.getpid()}-{self._count}"
        try:
            given = request.source.get("gunicorn.socket")
            number = given.fileno() if given is not None else sys.modules["uwsgi"].connection_fd()
            connection = str(os.fstat(number).st_ino)  # the inode is unique, unlike a port
        except (OSError, AttributeError, KeyError):
            connection = ""  # the server keeps the socket
        began = epoch() - monotonic() + request.began
        self.write(f"began,{request.ident},{self._worker},{request.thread},{connection},{began:.6f}")

    def ended(self, request: Request, route: str) -> None:
        """Write the second line of a request."""
        delay, avoidable = ("" if one is None else f"{one:.6f}" for one in (request.delay, request.avoidable))
        ended = epoch() - monotonic() + request.ended
        self.write(f"ended,{request.ident},{route.replace(',', '')},{delay},{avoidable},{ended:.6f}")

    def stacks(self, counts: dict[str, float]) -> None:
        """Write by how much the counts of stacks have grown since they were last written."""
        now = f"{epoch():.6f}"
        for name, seconds in counts.items():
            grown_s = seconds - self._stacks.get(name, 0.0)
            if grown_s > 0:
                self.write(f"stack,{name.translate(_NO_CSV)},{self._worker},,{grown_s:.6f},{now}")
        self._stacks = counts

    def span(self, what: str, number: int, seconds: float) -> None:
        """Write what has lasted for some time until now."""
        self.write(f"{what},,{self._worker},{number},{seconds:.6f},{epoch():.6f}")

    def write(self, line: str) -> None:
        """Write a line; a full disk loses it."""
        try:
            os.write(self._file, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass


def route_of(request: Request) -> str:
    """Return the route as the framework wrote it: its template, with names in place of the values."""
    source = request.source
    if source is None:
        return UNMATCHED
    if "PATH_INFO" in source:
        route = source.get("bottle.route") or source.get("bfg.routes.route")
    else:
        route = source.get("route") or source.get("path_template")
    if route is not None:
        text = getattr(route, "path", None) or getattr(route, "rule", None) or getattr(route, "pattern", None) or route
        if isinstance(text, str):
            above = source.get("app_root_path")  # a part of the application that is mounted under a path
            return printable((source.get("root_path", "")[len(above) :] if above is not None else "") + text)
    elif hasattr(source.get("endpoint"), "__name__"):  # Starlette without FastAPI keeps no template
        return printable(source["endpoint"].__name__ + "()")
    if _SEGMENTS:
        return printable("/" + str(source.get("path", source.get("PATH_INFO", ""))).lstrip("/").partition("/")[0])
    return UNMATCHED


def printable(text: str) -> str:
    """Return a text without control characters, and no longer than a field."""
    return (text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text))[:60]


def getcurrent() -> Any:
    """Return the greenlet that runs, if there are greenlets."""
    greenlet = sys.modules.get("greenlet")
    return greenlet.getcurrent() if greenlet is not None else None


def note_route(route: Any) -> None:
    """Note the route of the request at work, which a framework has just found."""
    request = current.get()
    if request is None and state.worker is not None:
        request = state.worker.at_work.get(getcurrent() if state.worker.loop else get_ident())
    if request is not None and isinstance(route, str):
        request.route = printable("/" + route.lstrip("^/"))


class _State:
    """The worker of this process, and whether the probe is on."""

    worker: Worker | None = None
    memory: Shared | None = None
    capacity: tuple[int, str] | None = None
    off = by_hand = False
    """``by_hand``: whether an application was wrapped in this process before its workers were forked."""
    keeps_file = 0
    """The process that removes the file when it ends as the last one: it made the file, or became the server."""

    def close(self) -> None:
        """Say that this worker has ended, and remove the file if it was the last one."""
        if self.worker is not None:
            self.worker.close()
        shared = self.memory
        if self.keeps_file == os.getpid() and shared and shared.path and not any(map(shared.is_same, shared.slots())):
            with suppress(OSError):
                os.unlink(shared.path)


state = _State()
atexit.register(state.close)
_said: set[str] = set()
_making = threading.Lock()


def memory() -> Shared:
    """Return the memory of this server, and make it if nobody has.

    ``stampede-probe run`` names its file in the environment. Without it, workers whose parent runs the same program
    share a file that is named after the parent; any other process has a file of its own.
    """
    if state.memory is None:
        path, process, space = os.environ.get("STAMPEDE_PROBE_FILE", ""), os.getpid(), "0"
        try:
            if os.readlink(f"/proc/{os.getppid()}/exe") == os.readlink("/proc/self/exe"):
                process = os.getppid()
            space = os.readlink("/proc/self/ns/pid")[5:-1]
        except OSError:
            pass
        name = f"{os.getuid()}-{process}-{layout.started(process)}-{space}"
        try:
            state.memory = Shared.open(path) if path else Shared.create(name)
        except OSError as error:
            _say(f"{error}; this process counts for itself alone")
            state.memory = Shared(-1, "")
        if state.memory.descriptor < 0:
            _say(
                "no folder for shared memory has room, so only workers that are forked from one process see each other"
            )
    return state.memory


def worker(capacity: int = 0, server: str = "", *, loop: bool = False) -> Worker:
    """Return the worker of this process, and make it if there is none."""
    found = state.worker
    if found is None:
        with _making:
            if state.worker is None:
                capacity, server = state.capacity or (capacity, server)
                state.worker = Worker(memory(), capacity, server, loop=loop)
            found = state.worker
    return found


def fault() -> None:
    """Turn the probe off because it failed; say so once."""
    error = sys.exc_info()[1]
    if state.worker is not None:
        state.worker.q[state.worker.base + FAULTS] = 1
    state.off = True
    _say(f"turned off in process {os.getpid()}, because it failed: {error!r}")


def _say(text: str) -> None:
    if text not in _said:
        _said.add(text)
        try:
            os.write(2, f"stampede-probe: {text}.\n".encode())
        except OSError:
            pass


def _forked() -> None:
    """A child is another process: it takes a slot of its own if it ever serves."""
    global _making  # another thread may have held it
    is_worker = state.by_hand and state.worker is None
    for request in state.worker.at_work.values() if state.worker is not None else ():
        request.ended = request.began  # it is the parent's
    state.worker, _making = None, threading.Lock()
    options = getattr(sys.modules.get("uwsgi"), "opt", None)
    if is_worker and options is not None:  # gunicorn's workers say when they are ready, those of uWSGI do not
        guarded(worker, int(options.get("threads", 1)), "uwsgi")


os.register_at_fork(after_in_child=_forked)


def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the probe; if it fails, turn the probe off."""
    if not state.off:
        try:
            return function(*arguments)
        except Exception:  # whatever it is, it must not reach a request
            fault()
    return None

"""A thread of each worker that finds what holds requests: it takes stacks while something is held, and else sleeps."""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from contextvars import Context
from functools import lru_cache, partial
from itertools import islice
from time import monotonic
from types import BuiltinMethodType, CodeType, FrameType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, NamedTuple

from stampede_probe.shared import COLLECTED_MAX_S, COLLECTED_S, COLLECTIONS, LOOP, SEEN
from stampede_probe.worker import Request, current, fault, get_ident, native, route_of, state

if TYPE_CHECKING:
    from stampede_probe.worker import Worker

TICK_S, IDLE_TICK_S, QUIET_TICK_S, HELD_S = 0.025, 0.05, 0.2, 0.05
"""How often a loop shows that it goes on (with requests, without, after a second without), and when it is held."""
LOOK_S, QUIET_LOOK_S, SAMPLE_S, LONG_S = 0.1, 0.5, 0.2, 0.1
"""How often the thread looks, how often it takes stacks, and how long a request is at work before it does."""
QUIET_S = 1.0
LONGEST_SAMPLE_S = 60.0
"""While a thread keeps the interpreter's lock, the watching thread waits for it, too: a sample counts for so long."""
OTHERS_RUN = 5
"""Other threads have the lock if they run for more than this part of the time; on a busy machine, they run seldom."""
LOCK_TURNS = 20
"""A thread that waits for the interpreter's lock asks for it every 5 ms; it runs at least so often in a second."""
PAUSE_S = 0.01
"""A pause of the garbage collector from this length on is counted beside the stacks."""
SAMPLED = 16
"""At most so many requests are looked at each time, of each age; the others count as these do."""
SOME = 10
"""A thread that serves no request is counted if it runs for more than this part of the time."""
BY_NOBODY, IN_POOL = "(no request)", "(pool)"
_PLUMBING = {
    "threading", "selectors", "socket", "ssl", "queue", "asyncio", "http", "concurrent", "_socket", "select",
    "contextlib", "anyio", "sniffio", "subprocess", "importlib", "codecs",
}  # fmt: skip
_POOL = re.compile(
    r"^(?!multiprocessing).*[Pp]ool[\w.]*\.(_?do_)?_?(get|connect|acquire|checkout|getconn|get_conn|get_connection|connection|"
    r"wait_for_connection|add)$"
)
_WAITING = re.compile(
    r"^(threading|queue|asyncio\.(locks|queues)|sqlalchemy\.util\.queue|gevent|eventlet)\b|_?acquire$"
)
_KINDS = (
    (re.compile(r"getaddrinfo$|getnameinfo$|gethostby|resolver\."), "dns"),
    (re.compile(r"\b(Simple)?[qQ]ueues?\.(.*\.)?(get|put|join)$|\bMemoryObject\w+\.(receive|send)$"), "queue"),
    (re.compile(r"^concurrent\.futures\.|^threading\.Thread\.join$"), "waits"),
    (re.compile(r"(^|\.)(base_)?subprocess\.|^os\.(system|popen|wait\w*)$|^multiprocessing\."), "subprocess"),
    (re.compile(r"^with |\.acquire$|^fcntl\.|^threading\.(.*\.)?(wait|_wait_for_tstate_lock)$"), "lock"),
    (
        re.compile(
            r"^(gevent\._?)?(ssl|socket|select|http|urllib)\w*\.|\.streams\.Stream|\bSocketStream\.|connect_tcp$"
        ),
        "network",
    ),
    (re.compile(r"^asyncio\.locks\.|\bEvent\.wait$"), "lock"),
)
_IDLE = re.compile(r"(selectors|gevent\.hub|eventlet\.hubs)\.")
_SERVERS = {"gunicorn", "uvicorn", "granian", "hypercorn", "daphne", "click", "runpy"}
_POOLS = ("anyio/_backends/_asyncio.py", "concurrent/futures/thread.py")
DEPTH = 3
"""A request is followed through at most so many tasks that wait for each other."""
_TASKS, _GROUPS = "asyncio/tasks.py", ("asyncio.taskgroups", "anyio._backends._asyncio")
CO_OPTIMIZED = 1
_CALLERS = (*_POOLS, "asgiref/sync.py", "asyncio/events.py")
"""What calls functions in a copy of a request's context."""
_PART = os.environ.get("STAMPEDE_PROBE_PART")
_OWN = tuple(os.path.join(one, "") for one in (os.path.dirname(os.path.abspath(__file__)), _PART) if one)
"""The folders of the probe, and of a program around it: their frames are not the application's."""
_SCRIPT = os.path.abspath(sys.argv[0]) if getattr(sys, "argv", None) else ""
"""The command that started the server."""
_GIL = bool(getattr(sys, "_is_gil_enabled", lambda: True)())


class Stack(NamedTuple):
    """Where a thread is: its frames, the innermost first, and the code of the innermost frame of the application.

    ``names`` are the functions of libraries that this frame called, the innermost first. Without such a frame, it is
    that of a library that called another library.
    """

    frames: list[FrameType]
    names: list[str]
    is_application: bool = False
    code: CodeType | None = None
    line: int = 0
    instruction: int = -1


class Watcher:
    """Watches the requests, the event loop or hub, the collector and the pools of a process."""

    def __init__(self, worker: Worker) -> None:
        """Start the thread."""
        self.worker = worker
        self.loop: Any = None
        self._limiter: Any = None
        self._loop_thread = self._loop_native = self._samples = 0
        self._paused_s, self._looked = TICK_S, monotonic()
        self._ticked = self._passed_s = self._next_sample = self._next_second = 0.0
        self._loop_cpu = self._process_cpu = self._loop_waited = 0.0
        self._silent_s = self._collected_before = self._collecting = 0.0
        self._changed = self._full_since_look = False
        self._before: dict[int, tuple[float, float, float, int]] = {}
        self._ran: dict[int, float] = {}
        self._files: dict[int, int] = {}
        self._pauses: deque[tuple[CodeType, int, int, int, float]] = deque(maxlen=100)
        self._idle = ""
        self._sleep: Callable[[float], None] = native("time", "sleep")
        gc.callbacks.append(self._collected)
        hubs = (sys.modules.get(library) for library in ("gevent", "eventlet"))
        hub: Any = next(filter(None, hubs), None) if worker.loop else None
        if hub is not None:
            self._start_ticking()
            hub.spawn(self._tick_of_hub, hub.sleep)
        native("_thread", "start_new_thread")(self._run, ())

    # The loop's side: called in the thread of the loop.

    def watch_loop(self, loop: Any) -> None:
        """Watch the running event loop of asyncio or uvloop."""
        self.worker.q[self.worker.base + LOOP] = 1
        self.loop = loop
        self._start_ticking()
        self._tick_of_loop()

    def _start_ticking(self) -> None:
        self._loop_thread, self._loop_native = get_ident(), threading.get_native_id()
        self._tick(monotonic())

    def _tick_of_loop(self) -> None:
        if state.worker is self.worker and not state.off:
            caller = sys._getframe(1).f_code
            if not caller.co_filename.endswith(_CALLERS):
                self._idle = _about(caller)[1]  # it called the loop, which is not written in Python
            self.goes_on(monotonic())
            self._look_at_pools()
            self.loop.call_later(self._pause(), self._tick_of_loop)

    def _tick_of_hub(self, sleep: Callable[[float], None]) -> None:
        while state.worker is self.worker and not state.off:
            self.goes_on(monotonic())
            sleep(self._pause())

    def _pause(self) -> float:
        self._paused_s = TICK_S if self.worker.at_work else QUIET_TICK_S if self._is_quiet() else IDLE_TICK_S
        return self._paused_s

    def _is_quiet(self) -> bool:
        return not self.worker.at_work and monotonic() - self.worker.idle_since > QUIET_S

    def goes_on(self, now: float) -> None:
        """Note that the loop goes on, and what kept it if it was held."""
        passed_s = now - self._ticked
        held_s = passed_s - self._paused_s
        if held_s > HELD_S:
            held_s -= self._scheduled(self._loop_native)[1] - self._loop_waited  # without a processor
            if held_s > HELD_S:
                mine_s = time.thread_time() - self._loop_cpu
                others_s = max(time.process_time() - self._process_cpu - mine_s, self._silent_s)
                kind = "computed" if mine_s >= held_s / 2 else "locked" if others_s > held_s / 2 else "held"
                if self.worker.d[self.worker.base + COLLECTED_S] - self._collected_before > held_s / 2:
                    kind = "collected"
                self.worker.hold(self._ticked + self._paused_s)
                self.worker.count("loop", kind, held_s)
                self._changed = True
                if self.worker.rows:
                    self.worker.rows.span(kind, self._loop_native, held_s)
            self.worker.let_go(now)
            self._tick(now)
        elif passed_s >= TICK_S / 2:
            self._tick(now)

    def _tick(self, now: float) -> None:
        self._silent_s, self._collected_before = 0.0, self.worker.d[self.worker.base + COLLECTED_S]
        self._loop_cpu, self._process_cpu = time.thread_time(), time.process_time()
        self._ticked = now
        self.worker.due = now + TICK_S / 2

    def _look_at_pools(self) -> None:
        executor: Any = getattr(self.loop, "_default_executor", None)
        waiting = getattr(executor, "_work_queue", None)
        if waiting is not None and waiting.qsize():
            self._full("executor", "asyncio's default pool", executor._max_workers)
        threads = sys.modules.get("anyio.to_thread")
        if self._limiter is None and threads is not None:
            self._limiter = False

            async def look() -> None:
                self._limiter = threads.current_default_thread_limiter()

            self._task = self.loop.create_task(look())
        elif self._limiter and self._limiter.statistics().tasks_waiting:
            self._full("pool", "AnyIO's pool", int(self._limiter.total_tokens))

    def _full(self, what: str, name: str, threads: int) -> None:
        self.worker.count("pool full", f"{name} of {threads} threads", self._paused_s)
        self._changed = self._full_since_look = True
        if self.worker.rows:
            self.worker.rows.span(what, threads, self._paused_s)

    def _collected(self, phase: str, about: dict[str, Any]) -> None:
        """Add up the pauses of the garbage collector. This may run anywhere, so it takes no lock."""
        if phase == "start":
            self._collecting = monotonic()
        elif self._collecting and state.worker is self.worker:
            seconds = monotonic() - self._collecting
            d, base = self.worker.d, self.worker.base
            self.worker.q[base + COLLECTIONS] += 1
            d[base + COLLECTED_S] += seconds
            d[base + COLLECTED_MAX_S] = max(d[base + COLLECTED_MAX_S], seconds)
            if seconds > PAUSE_S:
                by = sys._getframe().f_back or sys._getframe()  # while the interpreter ends, nobody called this
                self._pauses.append((by.f_code, by.f_lasti, by.f_lineno, about.get("generation", 2), seconds))

    # The watching thread.

    def _run(self) -> None:
        from stampede_probe.serve import Endpoint  # it reads all workers

        endpoint = Endpoint(self.worker.memory)
        _libraries()  # now: it looks at many folders, which takes long while others have the interpreter's lock
        self._count_others({})
        last = monotonic()
        while state.worker is None or state.worker is self.worker:
            try:
                wait_s = LOOK_S if self.worker.loop else SAMPLE_S
                if self._is_quiet() and not self.worker.held_since:
                    wait_s = QUIET_LOOK_S
                self._sleep(wait_s)
                now = monotonic()
                late_s = now - last - wait_s
                last = now
                if late_s > HELD_S:
                    self._silent_s += late_s
                if state.off:
                    return
                self.worker.d[self.worker.base + SEEN] = now
                with uncollected():  # first: whoever kept the interpreter's lock is still where it was
                    self._look(now)
                while self.worker.left:
                    self.worker.end(self.worker.left.popleft())
                self.worker.judge_all()
                while self._pauses:
                    code, instruction, line, generation, seconds = self._pauses.popleft()
                    by = _collector(code, instruction, line, generation)
                    self.worker.count("stacks", f"gc|(all requests)|{by}", seconds)
                    self._changed = True
                if now >= self._next_second:
                    self._next_second = now + 1.0
                    if self._changed:
                        self._changed = False
                        with self.worker.notes_lock:
                            self.worker.memory.write_notes(self.worker.base, self.worker.notes)
                            stacks = dict(self.worker.notes.get("stacks", {}))
                        if self.worker.rows:
                            self.worker.rows.stacks(stacks)
                    endpoint.take()
            except Exception:  # a fault of the probe is no fault of the server
                fault()
                return

    def _look(self, now: float) -> None:
        held = bool(self._ticked) and now - self._ticked > self._paused_s + HELD_S
        with self.worker.lock:
            at_work = list(self.worker.at_work.values())
        long = sorted((one for one in at_work if now - one.began > LONG_S), key=lambda one: one.began)
        is_due, step = now >= self._next_sample, -(-len(long) // SAMPLED) or 1
        stacks: dict[int, Stack] = {}
        if is_due and (held or long or self._full_since_look):
            stacks = {thread: _stack(_outwards(frame)) for thread, frame in sys._current_frames().items()}
        self._samples += bool(stacks)
        found = list(self._found(long[self._samples % step :: step], at_work, stacks, held=held)) if stacks else []
        # Until here, a thread that kept the interpreter's lock is where it was. Calls of the system let it go on.
        waited_s = self._scheduled(self._loop_native)[1] if self._ticked else 0.0
        if not held:
            self._loop_waited = waited_s
        elif now - self._ticked - self._paused_s - (waited_s - self._loop_waited) > HELD_S:
            self.worker.hold(self._ticked + self._paused_s)
        if not is_due:
            return
        pool_is_full, self._full_since_look = self._full_since_look, False
        self._passed_s, self._looked = min(LONGEST_SAMPLE_S, now - self._looked), now
        if not stacks:
            self._before.clear()
            for thread in [one for one in self._files if one != self._loop_native]:
                os.close(self._files.pop(thread))
            self._next_sample = 0.0  # the next sample is the first one
            self._count_others({})
            return
        passed_s = self._passed_s if self._next_sample else max(SAMPLE_S, self._passed_s)
        self._next_sample, self._changed = now + SAMPLE_S, True
        if pool_is_full:
            self._count_pools(stacks, passed_s)
        for request, thread, stack, where in found:
            route, lasted_s = BY_NOBODY, now - self._ticked
            if request is not None:
                route = request.route or route_of(request)
                self.worker.show_route(request, route)
                lasted_s = lasted_s if where else now - request.began
            if where:
                self.worker.held_by = route
            share = 1 if where else step
            self._count(route, stack, share * min(passed_s, max(SAMPLE_S, lasted_s)), thread, where)
            stacks.pop(thread, None)
        for request in at_work if not self.worker.loop else ():
            stacks.pop(request.thread, None)
        self._count_others(stacks)

    def _found(
        self, long: list[Request], at_work: list[Request], stacks: dict[int, Stack], *, held: bool
    ) -> Iterator[tuple[Request | None, int, Stack, str]]:
        """Yield what holds the loop, and where long requests are: the request, its thread (0: none) and its stack.

        While the loop is held, nobody can tell what else a task would wait for.
        """
        loop = stacks.get(self._loop_thread, Stack([], []))
        runs = next((one for one in at_work if _is_running(one.holder)), None) or _request_in(loop)
        if runs is None and self.loop is not None:
            task = sys.modules["asyncio"].current_task(self.loop)
            runs = task.get_context().get(current) if hasattr(task, "get_context") else None
        if held:
            yield None if runs is None or runs.ended else runs, self._loop_thread, loop, "loop "
        if not self.worker.loop:
            yield from ((one, one.thread, stacks[one.thread], "") for one in long if one.thread in stacks)
            return
        in_pools = {_request_in(stack): of for of, stack in stacks.items() if of != self._loop_thread}
        for request in long:
            thread = in_pools.get(request, 0)
            if thread:
                stack = stacks[thread]
                if not (held or stack.is_application):
                    stack = _stack(_awaited(request.holder))
                yield request, thread, stack, ""
            elif not held and request is runs:
                yield request, self._loop_thread, loop, ""
            elif not held:
                yield request, 0, _stack(_awaited(request.holder)), ""

    def _count_pools(self, stacks: dict[int, Stack], weight_s: float) -> None:
        """Count what the threads of asyncio's and AnyIO's pools do, for requests and after their answers."""
        for thread, (frames, *_) in stacks.items():
            inner = next((place for place, one in enumerate(frames) if one.f_code.co_filename.endswith(_POOLS)), 0)
            stack = _stack(frames[:inner])
            if stack.is_application:
                self._count(IN_POOL, stack, weight_s, thread, "pool thread ")

    def _count_others(self, stacks: dict[int, Stack]) -> None:
        """Count for how long each thread ran that serves no request: it keeps the interpreter's lock from those."""
        ran, servers = {}, (threading.main_thread().ident, self._loop_thread)
        for thread, native_id in _natives().items():
            ran[native_id] = ran_s = _ran_s(native_id)
            grown_s = ran_s - self._ran.get(native_id, 0.0)
            stack = stacks.get(thread) if grown_s > self._passed_s / SOME and thread not in servers else None
            if stack is not None and stack.is_application:
                self._count(BY_NOBODY, stack, grown_s, thread, "thread computes")
        self._ran = ran

    def _count(self, route: str, stack: Stack, weight_s: float, thread: int, where: str = "") -> None:
        frames, names, is_application, code, line, instruction = stack
        if not frames:
            return
        at = f"{_short(code.co_filename)}:{line} {_about(code)[1]}" if code is not None else ""
        called = _called(code, instruction) if code is not None and not names else ""
        kind, library = _kind(names or [called])
        is_idle = bool(names) and (names[0] == self._idle or _IDLE.match(names[0]) is not None)
        if where.endswith("computes"):
            kind = ""
        elif kind in ("", "network") or (where and is_idle):  # a held loop waits for no network
            doing = self._lock_kind(stack, thread)
            if where == "loop " and is_idle and doing != "interpreter lock":
                return  # it only lacked a processor
            if kind != "network" or doing == "computes" or (where and is_idle):
                kind = doing if doing != "waits" else _kind([_typed(frames[0])])[0] or doing
        if kind in ("queue", "lock") and code is not None and _POOL.search(_about(code)[1]):
            kind = "pool"  # of the application's own
        called = library or called
        text = " ".join(filter(None, ["" if is_application else "(library)", at, called and f"→ {called}"]))
        self.worker.count("stacks", f"{where}{kind}|{route}|{text}", weight_s)

    def _scheduled(self, thread: int) -> tuple[float, float, int]:
        """Return how long a thread ran, was ready to run without a processor, and how often it ran; 0 if nobody tells.

        Each call of the system gives the interpreter's lock away, and others may keep it for long, so files stay open.
        """
        try:
            if thread not in self._files:
                self._files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
            ran, waited, turns = map(int, os.pread(self._files[thread], 100, 0).split())
            return ran / 1e9, waited / 1e9, turns
        except (OSError, ValueError):
            return 0.0, 0.0, 0

    def _lock_kind(self, stack: Stack, thread: int) -> str:
        """Return whether a thread computes, waits for the interpreter's lock, or waits for something else."""
        native_id = self._loop_native if thread == self._loop_thread else _natives().get(thread)
        if native_id is None or not stack.frames:
            return "waits"
        now, process_s = monotonic(), time.process_time()
        ran_s, waited_s, turns = self._scheduled(native_id)
        before = self._before.get(thread)
        self._before[thread] = now, ran_s + waited_s, process_s - ran_s, turns
        if before is None or now <= before[0] or now - before[0] > LONGEST_SAMPLE_S:
            grown_s = ran_s - self._ran.get(native_id, 0.0)  # it may have started since then
            part = SOME if self._passed_s > 2 * SAMPLE_S else 2  # it kept the interpreter's lock for so long
            return "computes" if grown_s > self._passed_s / part or _state(native_id) == "R" else "waits"
        wall_s, mine_s, others_s = now - before[0], ran_s + waited_s - before[1], process_s - ran_s - before[2]
        if mine_s > wall_s / 2:
            return "computes"
        if _GIL and turns - before[3] > LOCK_TURNS * wall_s and others_s > wall_s / OTHERS_RUN:
            return "interpreter lock"
        return "waits"


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector of Python 3.11 from running while frames of other threads are looked at.

    It runs while the object of a frame is made. If it gives the interpreter's lock away, the frame may end meanwhile.
    """
    is_on = sys.version_info[:2] == (3, 11) and gc.isenabled()
    try:
        if is_on:
            gc.disable()
        yield
    finally:
        if is_on:
            gc.enable()


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    count = 0
    while frame is not None and count < 200:
        yield frame
        frame, count = frame.f_back, count + 1


def _stack(frames: Iterable[FrameType]) -> Stack:
    """Return where a thread is, given its frames."""
    frames = list(frames)
    names: list[str] = []
    caller, called = Stack(frames, names), ""
    for frame in frames:
        is_application, name = _about(frame.f_code)
        package = name.partition(".")[0]
        if is_application:
            return Stack(frames, names, True, frame.f_code, frame.f_lineno, frame.f_lasti)
        is_caller = bool(package) and package not in (called, *_PLUMBING, *_SERVERS)
        if called and is_caller and caller.code is None:
            caller = Stack(frames, names[:], False, frame.f_code, frame.f_lineno, frame.f_lasti)
        called = called or package if package not in _PLUMBING else called
        if name:
            names.append(name)
    return caller


@lru_cache(5000)
def _about(code: CodeType) -> tuple[bool, str]:
    """Return whether code is the application's, and its name; no name if it is the probe's."""
    path, name = code.co_filename, _name(code)
    if path.startswith(_OWN) or (path == _SCRIPT and not path.endswith(".py")):
        return False, ""
    if not path.startswith(("<", *_libraries())):
        return True, name
    short = path[8:-1] if path.startswith("<frozen ") else os.path.splitext(_short(path))[0]
    return False, f"{short.replace('/', '.').replace('.__init__', '')}.{name}"


@lru_cache(None)
def _libraries() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    found = {os.path.dirname(os.__file__)}
    for folder in sys.path:
        if os.path.isdir(folder) and any(one.endswith(".dist-info") for one in os.listdir(folder)):
            found.add(folder)
    return tuple({os.path.join(path, "") for one in found for path in (one, os.path.realpath(one))})


def _is_running(holder: Any) -> bool:
    """Whether a task or a greenlet is what its thread runs now."""
    if hasattr(holder, "gr_frame"):
        return holder.gr_frame is None and not holder.dead  # the greenlet that runs has no frame of its own
    return bool(getattr(getattr(holder, "get_coro", lambda: None)(), "cr_running", False))


def _awaited(task: Any, depth: int = 0) -> list[FrameType]:
    """Return the frames of what a task or greenlet waits in, the innermost first, through the tasks it waits for."""
    if hasattr(task, "gr_frame"):
        return list(_outwards(task.gr_frame))
    one: Any = getattr(task, "get_coro", lambda: None)()
    frames: list[FrameType] = []
    others: list[list[FrameType]] = []
    while one is not None and len(frames) < 100:
        frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None) or getattr(one, "ag_frame", None)
        waits_for: list[Any] = []
        if frame is None:  # a step of a generator, or of a future
            known = gc.get_referents(one)
            waits_for = [*known, *(child for of in known for child in getattr(of, "_children", ()))]
            one = next((of for of in known if hasattr(of, "ag_await") or hasattr(of, "cr_await")), None)
        else:
            frames.append(frame)
            for value in _locals(frame).values() if depth < DEPTH else ():
                if frame.f_code.co_filename.endswith(_TASKS):
                    waits_for += value if isinstance(value, (list, set, tuple)) else [value]
                elif type(value).__module__ in _GROUPS:
                    waits_for += getattr(value, "_tasks", ())
            one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None) or getattr(one, "ag_await", None)
        for other in waits_for if depth < DEPTH else ():
            if other is not task and hasattr(other, "get_coro") and not other.done():
                others.append([*_awaited(other, depth + 1), *frames[::-1]])
    return max([frames[::-1], *others], key=lambda each: (_stack(each).is_application, len(each)))


def _request_in(stack: Stack) -> Request | None:
    """Return the request for which a thread or a task works: both run in a copy of the context of their caller."""
    for frame in stack.frames:
        if frame.f_code.co_filename.endswith(_CALLERS):
            for value in _locals(frame).values():
                attribute = {"_WorkItem": "fn", "Handle": "_context", "TimerHandle": "_context"}
                value = getattr(value, attribute.get(type(value).__name__, ""), value)  # noqa: PLW2901
                value = value.func if isinstance(value, partial) else value  # noqa: PLW2901
                value = value.__self__ if isinstance(value, BuiltinMethodType) else value  # noqa: PLW2901
                if isinstance(value, Context):
                    request: Request | None = value.get(current)
                    return request
    return None


def _locals(frame: FrameType) -> dict[str, Any]:
    found = frame.f_locals
    values = dict(found)
    if isinstance(found, dict) and frame.f_code.co_flags & CO_OPTIMIZED:  # before Python 3.13: the frame keeps a copy
        found.clear()
    return values


def _typed(frame: FrameType) -> str:
    """Return what a frame calls by its type: ``socket.socket.recv`` for ``self._socket.recv``. No property is asked."""
    called = _called(frame.f_code, frame.f_lasti)
    if called.startswith("with "):
        return called
    first, *rest = called.split(".")
    value = {**frame.f_globals, **_locals(frame)}.get(first)
    for name in rest[:-1]:
        try:
            value = object.__getattribute__(value, "__dict__").get(name)
        except AttributeError:
            return ""
    return f"{type(value).__module__.lstrip('_')}.{type(value).__qualname__}.{rest[-1]}" if rest else ""


def _ran_s(thread: int) -> float:
    """Return how long a thread of this process ran, by its clock, which can be read with the interpreter's lock."""
    try:
        return time.clock_gettime(~thread << 3 | 6)
    except (OSError, OverflowError):
        return 0.0


def _kind(names: list[str]) -> tuple[str, str]:
    """Return the kind of a wait, and the function of a library that says most about it; names go outwards."""
    if any(map(_WAITING.search, names[:4])):
        for name in reversed(names):
            if _POOL.search(name):
                return "pool", name
    telling = next((one for one in names if one.partition(".")[0] not in _PLUMBING), "")
    for pattern, kind in _KINDS:
        matched = [name for name in names if pattern.search(name)]
        if matched and matched[0] in names[:3]:
            is_telling = kind in ("dns", "queue") or matched[0].startswith("logging.")
            return kind, matched[0] if is_telling else telling or matched[-1]
    return "", telling or (names[-1] if names else "")


def _collector(code: CodeType, instruction: int, line: int, generation: int) -> str:
    """Return which line called the garbage collector; mostly it runs by itself."""
    called = _called(code, instruction)
    if called.rpartition(".")[2] != "collect":
        return f"garbage collector, generation {generation}"
    return f"{_short(code.co_filename)}:{line} {_name(code)} → {called}"


def _name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name)).replace(".<locals>", "")


@lru_cache(1000)
def _called(code: CodeType, instruction: int) -> str:
    """Return what a line calls that is not written in Python: ``time.sleep``, ``with lock``; from Python 3.11 on."""
    positions = getattr(code, "co_positions", None)
    if positions is None or instruction < 0:
        return ""
    import linecache  # only when something is held

    line, _last, start, _ = next(islice(positions(), instruction // 2, None), (None, None, None, None))
    is_kept = code.co_filename in linecache.cache
    source = linecache.getline(code.co_filename, line).encode() if line and start is not None else b""
    if not is_kept:  # the whole file
        linecache.cache.pop(code.co_filename, None)
    called = source[start:] if start else source.lstrip()
    match = re.match(rb"(?:async )?(?:with )?([A-Za-z_][\w.]*)(\(?)", called)
    is_with = source.lstrip().startswith((b"with ", b"async with "))
    is_first = source[: start or 0].strip() in (b"", b"with", b"async with")  # not the name after "as"
    is_lock = match is not None and not match.group(2) and is_with and is_first
    name = match.group(1).decode() if match is not None and (match.group(2) or is_lock) else ""
    return f"with {name}" if is_lock else name


def _short(path: str) -> str:
    """Return a path from the entry of sys.path, or from the working directory, that it stands in."""
    for root in sorted({os.getcwd(), *filter(None, sys.path)}, key=len, reverse=True):
        if path.startswith(os.path.join(root, "")):
            return path[len(os.path.join(root, "")) :]
    return path


def _natives() -> dict[int, int]:
    """Return the ids that the kernel gave to threads; before Python 3.13, a forked main thread has its parent's."""
    threads = list(threading._active.items())  # type: ignore[attr-defined]  # eventlet's have no id of the kernel's
    found = {int(ident): int(one.native_id) for ident, one in threads if getattr(one, "native_id", None)}
    return {**found, threading.main_thread().ident or 0: os.getpid()}


def _state(thread: int) -> str:
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:  # quick
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""

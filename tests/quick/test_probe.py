"""The probe without a server: the shared memory, who waited avoidably, what is told, and what fails."""

import asyncio
import errno
import gc
import os
import random
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stampede.evaluate.metrics.waiting import Answered, avoidable_waits
from stampede.paths import ROOT
from tests.conftest import wait_until

PROBE = ROOT / "probe"
sys.path.insert(0, str(PROBE))

from stampede_probe import shared as layout  # noqa: E402
from stampede_probe import worker as notes  # noqa: E402
from stampede_probe.__main__ import main as command  # noqa: E402
from stampede_probe.serve import metrics, snapshot  # noqa: E402
from stampede_probe.shared import HEAD, RING, RING_AT, ROUTES, SINCE, STARTED, UNTIL, Shared  # noqa: E402
from stampede_probe.top import screen, span  # noqa: E402
from stampede_probe.watch import Watcher, _called, _collector, _kind, _natives, _stack, _typed  # noqa: E402
from stampede_probe.worker import Request, Rows, Worker, sent_at, state  # noqa: E402
from stampede_probe.wrap import Asgi, Body, SizedBody, Wsgi  # noqa: E402


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared.create()
    yield made
    if made.path:
        Path(made.path).unlink(missing_ok=True)


@pytest.fixture
def served(shared: Shared) -> Iterator[Callable[..., Any]]:
    """A WSGI application under the probe, which shares memory with nobody else."""
    state.memory = shared
    yield Wsgi(lambda _environ, _start: [b"ok"])
    state.worker, state.memory, state.off, state.capacity = None, None, False, None


def turn(shared: Shared, base: int, *times_s: float) -> None:
    """Note when a worker became full, no longer full, full, and so on."""
    for when in times_s:
        head = shared.q[base + HEAD]
        shared.d[base + RING_AT + head % RING] = when
        shared.q[base + HEAD] = head + 1


def claim(shared: Shared) -> int | None:
    """Claim a slot as a worker with one thread does."""
    return shared.claim(1, "sync", loop=False)


def workers(shared: Shared, count: int, since_s: float = 0.0) -> list[int]:
    """Claim slots, and return their first words."""
    bases = [base for _ in range(count) if (base := claim(shared)) is not None]
    assert len(bases) == count
    for base in bases:
        shared.d[base + SINCE] = since_s
    return bases


def has_counted(shared: Shared, base: int, route: str, requests: int) -> int:
    """Note that a worker has counted so many requests of a route, and return the first word of this route."""
    at = base + layout.ROUTE_AT + shared.add_route(base, route) * layout.ROUTE_WORDS
    shared.q[at + layout.REQUESTS] = requests
    return at


def test_a_wait_is_avoidable_while_the_own_worker_is_full_and_another_is_not(shared: Shared) -> None:
    one, two = workers(shared, 2)
    turn(shared, one, 10, 20, 21, 30)
    turn(shared, two, 12, 15, 25)

    assert shared.avoidable(one, 5, 31) == pytest.approx(11)  # full for 19 s, 8 s of them both
    assert shared.avoidable(two, 5, 31) == pytest.approx(1)  # from 30 on
    assert shared.avoidable(one, 20, 21) == 0


def test_a_wait_that_began_before_what_is_kept_is_unknown(shared: Shared) -> None:
    one, _ = workers(shared, 2)
    turn(shared, one, *range(RING + 100))
    assert shared.turns(one, RING + 1.5, RING + 4) == (False, [RING + 2, RING + 3])

    assert shared.avoidable(one, 50, RING + 101) is None
    assert shared.avoidable(one, RING - 10, RING + 101) is not None


def test_a_worker_that_was_not_there_had_no_free_thread(shared: Shared) -> None:
    one, two, three = workers(shared, 3)
    turn(shared, one, 10, 20)
    shared.d[two + SINCE], shared.d[two + UNTIL] = 13, 16
    shared.d[three + SINCE], shared.d[three + UNTIL] = 1, 2

    assert shared.avoidable(one, 5, 20) == pytest.approx(3)


@pytest.mark.parametrize("seed", range(20))
def test_avoidable_waits_are_those_of_the_lab(seed: int, shared: Shared) -> None:
    """Random requests, served by workers of some threads: the probe and the lab get the same seconds."""
    chance = random.Random(seed)
    count, threads = chance.randint(2, 4), chance.randint(1, 3)
    bases = workers(shared, count, since_s=-1.0)
    free = [[0.0] * threads for _ in bases]
    rows: list[tuple[float, float, float, int]] = []
    for sent in sorted(chance.uniform(0, 60) for _ in range(200)):
        worker = chance.randrange(count)
        place = min(range(threads), key=lambda one: free[worker][one])
        began = max(sent, free[worker][place])
        free[worker][place] = began + chance.choice([0.1, 0.3, 4.0])
        rows.append((sent, began, free[worker][place], worker))
    waited: list[float | None] = [0.0] * len(rows)
    at_work = [0] * count
    events = [(row[2 - begins], begins, number) for number, row in enumerate(rows) for begins in (0, 1)]
    for when, begins, number in sorted(events):
        worker = rows[number][3]
        if begins:
            waited[number] = shared.avoidable(bases[worker], rows[number][0], when)
        at_work[worker] += 1 if begins else -1
        if (at_work[worker] == threads and begins) or (at_work[worker] == threads - 1 and not begins):
            turn(shared, bases[worker], when)
    sent_s, began_s, ended_s, of = (np.array(column) for column in zip(*rows, strict=True))
    names = [str(one) for one in range(count)]
    answered = Answered(names, ["all"], 0, 100, 60, of, np.zeros_like(of), sent_s, began_s, ended_s)

    expected = avoidable_waits(answered, count, threads).beside_s
    assert waited == pytest.approx(expected.tolist(), abs=2e-6)
    assert sum(expected) > 0


def lines_of_a_claim(shared: Shared, killed_at: int = -1) -> list[int]:
    """Claim a slot, and return the lines that ran. Kill this process before the line with this place among them."""
    codes = {one.__code__ for one in (Shared.claim, Shared._add, Shared.add_route, Shared.write_notes)}
    ran: list[int] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            if len(ran) == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            ran.append(frame.f_lineno)
        return trace if frame.f_code in codes else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        claim(shared)
    finally:
        sys.settrace(before)
    return ran


def ended_workers() -> Shared:
    """Return the memory of a server whose two workers were killed in their fourth request."""
    shared = Shared.create()
    for base in workers(shared, 2):
        has_counted(shared, base, "/a", 3)
        shared.write_notes(base, {"stacks": {"waits|/a|": 3.0}})
        shared.q[base + layout.FAULTS] = 3
        shared.d[base + layout.AHEAD_S] = shared.d[base + layout.PLACE_AT] = 3.0
        shared.q[base + STARTED] -= 1
    return shared


def test_who_is_killed_while_it_claims_a_slot_changes_no_sum() -> None:
    """It is killed before each line, when this line runs for the first time and for the last."""
    shared = ended_workers()
    ran = lines_of_a_claim(shared)
    Path(shared.path).unlink()
    assert len(set(ran)) > 30
    wrong = {}
    firsts, lasts = map(ran.index, ran), {line: at for at, line in enumerate(ran)}.values()
    for killed_at in sorted({*firsts, *lasts}):
        shared = ended_workers()
        child = os.fork()
        if not child:
            with suppress(BaseException):
                lines_of_a_claim(shared, killed_at)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        for claims in range(4):
            told = snapshot(shared)
            sums = told["routes"]["/a"]["requests"], told["faults"], told["clock_ahead_s"], told["in_flight"]
            if (*sums, told["notes"]) != (6, 6, 3.0, 0, {"stacks": {"waits|/a|": 6.0}}):
                wrong[ran[killed_at], claims] = (*sums, told["notes"])
            claim(shared)
        assert len(list(shared.slots())) == 4  # both slots were used again
        Path(shared.path).unlink()

    assert wrong == {}


def test_names_whose_writer_died_are_not_told_and_those_of_the_next_writer_are(shared: Shared) -> None:
    [base] = workers(shared, 1)
    shared.write_notes(base, {"stacks": {"a": 1.0}})
    shared.q[base + layout.NOTES_SEQUENCE] += 1
    died = snapshot(shared)["notes"]
    shared.write_notes(base, {"stacks": {"b": 1.0}})

    assert (died, snapshot(shared)["notes"]) == ({}, {"stacks": {"b": 1.0}})


def test_a_request_is_not_shown_with_the_details_of_the_one_before_it(shared: Shared) -> None:
    [base] = workers(shared, 1)
    at = base + layout.PLACE_AT
    shared.d[at], shared.q[at + 1], shared.d[at + 2], shared.q[at + 3], shared.d[at + 4] = 7.0, 99, 0.5, 1, 6.0

    [worker] = snapshot(shared)["workers"]
    [request] = worker["requests"]
    assert request["since_s"] == pytest.approx(time.monotonic() - 7, abs=5)
    assert (request["thread"], request["delay_s"], request["route"]) == (0, None, layout.UNMATCHED)


@pytest.mark.usefixtures("served")
def test_a_worker_that_has_ended_leaves_its_slot_to_the_next_one(shared: Shared) -> None:
    """The end of a lifespan closes a worker, and the end of its process again. A request may end between them."""
    ended = Worker(shared, 1, "ended", loop=False)
    state.worker, request = ended, ended.begin({"PATH_INFO": "/"}, None)
    ended.close()
    [base] = workers(shared, 1)
    slot = slice(base * layout.WORDS, base * layout.WORDS + layout.SLOT_BYTES)
    before = bytes(shared.bytes[slot])
    assert request
    ended.end(request)
    ended.hold(1.0)
    ended.judge_all()
    notes.fault()
    ended.close()

    assert base == ended.base
    assert bytes(shared.bytes[slot]) == before


def test_what_has_no_room_is_left_out_and_never_a_request(shared: Shared) -> None:
    """Of names, the greatest counts are kept. Of routes, those of the next workers become others."""
    for worker in range(2):
        [base] = workers(shared, 1)
        for number in range(ROUTES - 2):
            has_counted(shared, base, f"/{worker}/{number}", 10)
        shared.write_notes(base, {"stacks": {f"{n}|" + "x" * 300: n for n in range(500)}})
        shared.q[base + STARTED] -= 1  # it has gone
    claim(shared)
    found = snapshot(shared)

    assert len(found["routes"]) == ROUTES - 2 + 1
    assert {of["requests"] for name, of in found["routes"].items() if name != layout.OTHER} == {10}
    assert found["routes"][layout.OTHER]["requests"] == 10 * (ROUTES - 2)
    kept = sorted(int(name.partition("|")[0]) for name in found["notes"]["stacks"])
    assert kept == list(range(500 - len(kept), 500))
    assert len(kept) > 40


def test_a_process_that_got_the_id_of_a_dead_worker_is_not_this_worker(shared: Shared) -> None:
    [base] = workers(shared, 1)
    shared.q[base + STARTED] -= 1

    assert snapshot(shared)["workers"] == []


def test_sixty_four_workers_and_more_have_slots_and_then_nobody_fails(shared: Shared) -> None:
    assert len(set(workers(shared, layout.WORKERS))) == layout.WORKERS
    assert claim(shared) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t=1700000000.123", 1700000000.123),
        ("1700000000", 1700000000.0),
        ("1700000000.5s", 1700000000.5),
        ("t=1700000000123", 1700000000.123),
        ("1700000000123456", 1700000000.123456),
        ("1700000000123456789", 1700000000.1234567),
        ("t=", None),
        ("nan", None),
        ("inf", None),
        ("-1700000000", None),
        ("yesterday", None),
        ("12", None),
    ],
)
def test_the_unit_of_the_header_follows_from_its_size(text: str, expected: float | None) -> None:
    assert sent_at(text) == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize(
    ("names", "kind", "telling"),
    [
        (["threading.Condition.wait", "queue.Queue.get", "lib.pool.Pool._do_get"], "pool", "lib.pool.Pool._do_get"),
        (["socket.create_connection", "psycopg.connect", "lib.pool.Pool.connect"], "network", "psycopg.connect"),
        (["socket.getaddrinfo", "http.client.HTTPConnection.connect"], "dns", "socket.getaddrinfo"),
        (["logging.Handler.acquire", "logging.Handler.handle"], "lock", "logging.Handler.acquire"),
        (["threading.Condition.wait", "queue.Queue.get"], "queue", "queue.Queue.get"),
        (["psycopg.wait"], "", "psycopg.wait"),
        (["with lock"], "lock", "with lock"),
        (["asyncio.locks.Event.wait", "anyio.SocketStream.receive", "lib.read"], "network", "lib.read"),
        (["asyncio.locks.Event.wait", "asyncio.tasks.wait_for"], "lock", "asyncio.locks.Event.wait"),
        (["asyncio.subprocess.Process.wait"], "subprocess", "asyncio.subprocess.Process.wait"),
        (["threading.Condition.wait", "multiprocessing.Pool.get"], "subprocess", "multiprocessing.Pool.get"),
        (["os.system"], "subprocess", "os.system"),
        (["gevent._socketcommon.SocketMixin.recv"], "network", "gevent._socketcommon.SocketMixin.recv"),
        (["gevent._gevent_cevent.Event.wait"], "lock", "gevent._gevent_cevent.Event.wait"),
    ],
)  # fmt: skip
def test_a_wait_has_a_kind_and_the_name_that_says_most(names: list[str], kind: str, telling: str) -> None:
    assert _kind(names) == (kind, telling)


def test_without_a_line_of_the_application_the_line_of_a_library_that_called_another_is_told() -> None:
    folder = sysconfig.get_path("purelib")
    libraries: dict[str, Any] = {}
    for name, source in (("db", "import sys\ndef read(): return sys._getframe(), sys._getframe(1)"),
                         ("web/views", "def show():\n    return read()")):  # fmt: skip
        exec(compile(source, f"{folder}/{name}.py", "exec"), libraries)
    counted: list[str] = []
    watcher = Watcher.__new__(Watcher)
    vars(watcher).update(worker=SimpleNamespace(count=lambda _, name, _seconds: counted.append(name)), _idle="")

    watcher._count("/a", _stack(libraries["show"]()), 1.0, 0, "thread computes")

    assert counted == ["thread computes|/a|(library) web/views.py:2 web.views.show → db.read"]


def test_rows_have_what_stacks_have_grown_by(tmp_path: Path) -> None:
    rows = Rows(str(tmp_path))

    rows.stacks({"waits|/a|shop.py:1 f → lib.g": 1.0, 'waits|/a|"x", 2\n': 0.25})
    rows.stacks({"waits|/a|shop.py:1 f → lib.g": 1.5, 'waits|/a|"x", 2\n': 0.25})

    [file] = tmp_path.iterdir()
    lines = [line.split(",") for line in file.read_text().splitlines()]
    assert [(line[0], line[1], line[4]) for line in lines] == [
        ("stack", "waits|/a|shop.py:1 f → lib.g", "1.000000"),
        ("stack", "waits|/a|'x'; 2 ", "0.250000"),
        ("stack", "waits|/a|shop.py:1 f → lib.g", "0.500000"),
    ]


def test_rows_name_the_connection_if_the_server_hands_on_its_socket(tmp_path: Path) -> None:
    rows, request = Rows(str(tmp_path)), Request()
    request.ident, request.thread, request.began = "1-1", 7, 1.0
    with socket.socket() as connection:
        request.source = {"gunicorn.socket": connection}
        rows.began(request)
        inode = os.fstat(connection.fileno()).st_ino
    rows.began(request)  # it is closed now
    request.source = {}
    rows.began(request)

    [file] = tmp_path.iterdir()
    assert [line.split(",")[4] for line in file.read_text().splitlines()] == [str(inode), "", ""]


def test_the_line_that_calls_the_collector_is_named_and_no_other() -> None:
    frames: list[FrameType] = []

    def collected(_phase: str, _about: dict[str, int]) -> None:
        frames.append(sys._getframe(1))
        called.append(_collector(frames[-1].f_code, frames[-1].f_lasti, frames[-1].f_lineno, 2))

    called: list[str] = []
    gc.callbacks.append(collected)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collected)

    assert re.fullmatch(r"(.*/)?test_probe.py:\d+ test_the_line_that_calls_\w+ → gc.collect", called[-1])
    assert _collector(frames[-1].f_code, 0, 1, 1) == "garbage collector, generation 1"


def test_frames_of_other_threads_are_followed_while_garbage_is_collected() -> None:
    """Functions of many sizes call each other, and each collection lets other threads go on."""
    code = """
import gc, sys, threading, time
from stampede_probe.watch import _outwards, uncollected

functions = []
for size in range(40):
    values = ";".join(f"v{number} = object()" for number in range(size % 13))
    exec(f"def call(n):\\n  {values or 'pass'}\\n  return functions[(7 * n + {size}) % 40](n - 1) if n else n")
    functions.append(call)

def work():
    number = 0
    while True:
        number += 1
        functions[number % 40](number % 37)

gc.callbacks.append(lambda *_: time.sleep(0))
gc.set_threshold(40)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
ends = time.monotonic() + 2
while time.monotonic() < ends:
    with uncollected():
        assert all(frame.f_code.co_name for one in sys._current_frames().values() for frame in _outwards(one))
print(gc.isenabled())
"""
    given = {**os.environ, "PYTHONPATH": str(PROBE)}
    ended = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("True\n", "", 0)


@pytest.mark.parametrize(
    ("waited_s", "collected_s", "told"),
    [(0.0, 0.0, {"held": 0.975}), (0.6, 0.0, {"computed": 0.375}), (0.95, 0.0, {}), (0.0, 0.6, {"collected": 0.975})],
)
def test_a_loop_that_lacks_a_processor_is_held_for_the_rest_of_the_time(
    waited_s: float, collected_s: float, told: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a second, it computes for 0.3 s; it should go on after 25 ms."""
    counted: dict[str, float] = {}
    watcher = Watcher.__new__(Watcher)
    vars(watcher).update(
        worker=SimpleNamespace(
            d={layout.COLLECTED_S: collected_s}, base=0, rows=None, due=0.0,
            hold=lambda _: None, let_go=lambda _: None,
            count=lambda _, name, seconds: counted.update({name: seconds}),
        ),
        _loop_native=1, _loop_waited=0.0, _paused_s=0.025, _silent_s=0.0, _collected_before=0.0,
        _process_cpu=time.process_time(), _loop_cpu=time.thread_time() - 0.3, _ticked=time.monotonic() - 1.0,
    )  # fmt: skip
    monkeypatch.setattr(watcher, "_scheduled", lambda _: (0.0, waited_s, 0))

    watcher.goes_on(watcher._ticked + 1.0)

    assert counted == pytest.approx(told)


def test_the_screen_has_no_control_characters_and_fits(shared: Shared) -> None:
    [base] = workers(shared, 1, since_s=time.monotonic())
    has_counted(shared, base, "/a\x1b[2J" + "x" * 90, 1)
    shared.write_notes(base, {"stacks": {"waits|/a\x1b]0;|b\n": 1.0}})

    lines = screen(snapshot(shared), 80, 50)
    assert any("/a?[2J" in line for line in lines)
    assert all(line.isprintable() and len(line) <= 80 for line in lines)


def test_spans_have_the_unit_that_suits_them() -> None:
    spans = [span(one) for one in (0.0004, 0.25, 1.25, 65, 700, 40000)]
    assert spans == ["0 ms", "250 ms", "1.2 s", "65 s", "12 min", "11 h"]


def test_the_text_for_prometheus_has_one_type_for_each_family_and_cumulative_buckets(shared: Shared) -> None:
    [base] = workers(shared, 1)
    at, now = has_counted(shared, base, "/a", 3), int(time.monotonic())
    shared.q[at + layout.DELAYS], shared.q[at + layout.DELAYS + layout.COUNTS - 1] = 2, 1
    for second, counts in ((now, (4, 2, 1)), (now - 61, (4, 4, 4))):
        for place, value in enumerate((second, *counts)):
            shared.q[base + layout.MINUTE + second % layout.SECONDS * layout.SECOND_WORDS + place] = value

    text = metrics(shared)
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert 'stampede_queueing_delay_seconds_bucket{route="/a",le="10"} 2\n' in text
    assert 'stampede_queueing_delay_seconds_bucket{route="/a",le="+Inf"} 3\n' in text
    assert 'stampede_requests_total{route="/a"} 3\n' in text
    assert "\nstampede_waited_share 0.5\n" in text
    assert "\nstampede_avoidable_wait_share 0.25\n" in text
    dashboard = (ROOT / "docs/how-to/diagnose-dashboard.json").read_text()
    assert set(re.findall(r"stampede_\w+", dashboard)) <= set(re.findall(r"^stampede_\w+", text, re.MULTILINE))


def test_a_fault_in_the_probe_reaches_no_request_and_is_said_once(
    shared: Shared, served: Callable[..., Any], capfd: Any
) -> None:
    environ = {"PATH_INFO": "/", "wsgi.multithread": False}
    assert served(dict(environ), print) == [b"ok"]
    assert state.worker is not None
    state.worker.due = object()  # type: ignore[assignment]

    assert [served(dict(environ), print) for _ in range(3)] == [[b"ok"]] * 3
    assert state.off
    assert capfd.readouterr().err.count("stampede-probe: turned off") == 1
    assert snapshot(shared)["faults"] == 1


@pytest.mark.usefixtures("served")
def test_a_clock_that_is_set_back_makes_waits_unknown_and_no_time_negative(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Wsgi(lambda _environ, _start: iter([b"ok"]))
    now = time.time()
    bodies = []
    for clock in (now, now - 3600, now - 3590):
        monkeypatch.setattr(notes, "epoch", lambda clock=clock: clock)
        bodies.append(app({"PATH_INFO": "/", "HTTP_X_REQUEST_START": f"t={now - 0.01:.6f}"}, print))
        assert state.worker is not None
        state.worker.judge_all()
    at_work = snapshot(shared)["workers"][0]["requests"]
    for body in bodies:
        body.close()  # type: ignore[attr-defined]
    found = snapshot(shared)

    assert [(one["since_s"] >= 0, one["delay_s"] is None) for one in at_work] == [
        (True, False),
        (True, True),
        (True, True),
    ]
    assert found["unknown"]["clock_ahead"] == 2
    assert found["routes"]["(unmatched)"]["known"] == 1
    assert found["routes"]["(unmatched)"]["work_s"] >= 0
    assert found["clock_ahead_s"] == pytest.approx(3600, abs=1)


@pytest.mark.usefixtures("served")
def test_an_application_within_another_is_one_request(shared: Shared) -> None:
    inner = Wsgi(lambda _environ, _start: [b"ok"])

    async def outer(_scope: Any, _receive: Any, _send: Any) -> None:
        assert await asyncio.to_thread(Wsgi(inner), {"PATH_INFO": "/"}, print) == [b"ok"]

    asyncio.run(Asgi(outer)({"type": "http", "path": "/", "headers": []}, None, None))  # type: ignore[arg-type]

    assert snapshot(shared)["routes"]["(unmatched)"]["requests"] == 1
    assert not state.off


def test_a_worker_counts_so_many_routes_and_the_requests_of_all_others(
    shared: Shared, served: Callable[..., Any]
) -> None:
    for number in range(2 * ROUTES):
        served({"PATH_INFO": "/", "bottle.route": f"/{number}"}, print)
    served({"PATH_INFO": "/"}, print)

    routes, named = snapshot(shared)["routes"], ROUTES - 2
    assert [*routes] == [layout.UNMATCHED, layout.OTHER, *(f"/{number}" for number in range(named))]
    assert [routes[name]["requests"] for name in (layout.UNMATCHED, layout.OTHER)] == [1, 2 * ROUTES - named]


@pytest.mark.usefixtures("served")
def test_bodies_stay_what_they_are() -> None:
    """Lists and files are the application's own; other bodies are closed, keep their length, and end when forgotten."""
    closed = []

    class Sized:
        def __iter__(self) -> Iterator[bytes]:
            yield b"x"

        def __len__(self) -> int:
            return 1

        def close(self) -> None:
            closed.append(1)

    class Files:
        pass

    bodies: list[Any] = [[b"a"], (b"a",), Files(), Sized(), iter([b"z"])]
    environ = {"PATH_INFO": "/", "wsgi.file_wrapper": Files}
    given = [Wsgi(lambda _environ, _start, one=one: one)(dict(environ), print) for one in bodies]
    assert state.worker is not None

    assert given[:3] == bodies[:3]
    assert type(given[3]) is SizedBody
    assert type(given[4]) is Body
    assert len(given[3]) == 1
    assert len(state.worker.at_work) == 2
    given[3].close()
    assert closed == [1]
    given.clear()
    wait_until(lambda: state.worker and not state.worker.at_work, every_s=0.01)


@pytest.mark.parametrize(("full", "expected"), [("/dev/shm", "/tmp"), ("/dev/shm /tmp /var/tmp", " True")])
def test_without_room_in_a_folder_the_next_one_is_used(full: str, expected: str) -> None:
    """A page that cannot be had would end the process, so the file is filled before it is mapped."""
    code = f"""
import os
from stampede_probe import shared
write = os.pwrite
def pwrite(descriptor, data, at):
    path = os.readlink(f"/proc/self/fd/{{descriptor}}")
    if any(path.startswith(one) for one in {full.split()!r}):
        if len(data) <= 4096:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:-4096], at)
    return write(descriptor, data, at)
os.pwrite = pwrite
made = shared.Shared.create()
print(made.path, made.claim(1, "sync", loop=False) is not None)
if made.path:
    os.unlink(made.path)
"""
    given = {**os.environ, "PYTHONPATH": str(PROBE), "TMPDIR": "/tmp"}
    found = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True).stdout

    assert found.startswith(expected)
    assert found.endswith("True\n")


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EROFS])
def test_without_a_folder_each_worker_counts_for_itself(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No /dev/shm, or a root that is only read."""

    def refuse(*_: Any) -> int:
        raise OSError(error, "no")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        made = Shared.create()

    assert (made.path, made.descriptor) == ("", -1)
    assert claim(made) is not None


def test_a_child_that_is_forked_while_threads_have_the_locks_takes_a_slot_of_its_own(
    shared: Shared, served: Callable[..., Any]
) -> None:
    environ = {"PATH_INFO": "/", "wsgi.multithread": True}
    served(dict(environ), print)
    assert state.worker is not None
    mine, had, over = state.worker, threading.Event(), threading.Event()

    def keep() -> None:
        with mine.lock, mine.counting, mine.notes_lock, notes._making:
            had.set()
            over.wait(60)

    thread = threading.Thread(target=keep)
    thread.start()
    had.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)
        served(dict(environ), print)
        state.close()
        os._exit(int(state.off))
    _, status = os.waitpid(child, 0)
    over.set()
    thread.join()

    assert status == 0
    found = snapshot(shared)
    assert found["routes"]["(unmatched)"]["requests"] == 2
    assert [one["pid"] for one in found["workers"]] == [os.getpid()]


def test_the_package_says_what_it_is() -> None:
    project = tomllib.loads((PROBE / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert "dependencies" not in project
    assert project["requires-python"] == ">=3.9"
    assert (PROBE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for path in (PROBE / "stampede_probe").rglob("*.py"):
        assert "import stampede\n" not in path.read_text(encoding="utf-8")


def test_threads_that_eventlet_replaced_have_no_id_of_the_kernel_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(threading._active, 1, SimpleNamespace())  # type: ignore[attr-defined]
    assert _natives()[threading.get_ident()] == threading.get_native_id()
    assert 1 not in _natives()


def test_several_servers_are_told_apart_by_their_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layout, "_folders", lambda: [str(tmp_path)])
    paths = [Shared.create(name).path for name in ("one", "two")]

    assert command(["top"]) == 2

    said = capsys.readouterr().err
    assert all(re.search(rf"^{path}  process {os.getpid()}: \S*python", said, re.MULTILINE) for path in paths)


@pytest.mark.parametrize(
    ("line", "called"),
    [("with open('x') as file:", "open"), ("with lock:", "with lock"), ("time.sleep(1)", "time.sleep")],
)
def test_what_a_line_calls_is_read_from_its_source(tmp_path: Path, line: str, called: str) -> None:
    path = tmp_path / "shop.py"
    path.write_text(f"def work():\n    {line}\n" + ("        pass\n" if line.startswith("with") else ""))
    code = compile(path.read_text(), str(path), "exec").co_consts[0]
    starts = [place for place, (row, *_) in enumerate(code.co_positions()) if row == 2]

    assert {_called(code, 2 * place) for place in starts} <= {called, ""}
    assert called in {_called(code, 2 * place) for place in starts}


def test_a_library_that_waits_for_a_lock_is_told_by_its_source() -> None:
    """As logging.Handler.handle does from Python 3.13 on."""

    class Lock:
        told = ""

        def __enter__(self) -> None:
            self.told = _typed(sys._getframe(1))

        def __exit__(self, *_: object) -> None:
            pass

    with (lock := Lock()):
        pass
    with lock:
        pass

    assert _kind([lock.told]) == ("lock", "with lock")

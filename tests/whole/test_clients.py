"""clients: some that misbehave as k6 cannot, and rows that stampede.evaluate.read.rows makes of their points."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import duckdb
import pytest

from stampede.evaluate.read.rows import UnreadablePoints, write_requests
from stampede.paths import ROOT, SERVERS
from tests.conftest import PATIENCE_S, wait_until

sys.path.insert(0, str(SERVERS / "app"))

import wsgi

CLIENTS = ("silent", "lingering", "uploading")
BODY = b'{"worker": 7, "host": "box", "thread": 9, "began": 1.5, "ended": 1.5, "server": "scripted"}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
POINTS = "points-client.json.gz"


def start(client: str, results: Path, server: str, **changed: str | None) -> subprocess.Popen[str]:
    """Start a client with settings of which some are changed, or left out where they are None."""
    given = (
        "CONNECTIONS=2 DURATION=1s GRACE_S=55 START_AFTER=0s SILENT_S=0.4 LINGER_S=0.4 PAUSE_S=0 KIB=64 UPLOAD_S=0.4"
    )
    settings = dict(each.split("=") for each in given.split()) | {"LAB_SERVER": server} | changed
    env = os.environ | {name: value for name, value in settings.items() if value is not None}
    command = [sys.executable, str(ROOT / "clients" / f"{client}.py"), str(results / POINTS)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a client and return its exit code and what it said."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == ""
    return process.returncode, err


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that the analysis makes of a client's points."""
    write_requests(folder, "one", "mix", 1)
    relation = duckdb.read_parquet(str(folder / "requests.parquet"))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def measure(client: str, folder: Path, server: str, **changed: str | None) -> list[dict[str, Any]]:
    """Run a client to its end and return its rows."""
    assert finish(start(client, folder, server, **changed)) == (0, "")
    return rows(folder)


def measure_until(visits: int, client: str, folder: Path, server: "Scripted", **changed: str) -> list[dict[str, Any]]:
    """Run a client until the server has answered so many visits, and return its rows that were answered."""
    process = start(client, folder, server.address, **changed)
    server.wait_for(lambda visit: visit.answered, visits)
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (130, "")
    return [row for row in rows(folder) if not row["error"]]


@dataclass
class Visit:
    """One connection as the server saw it, in seconds of time.monotonic()."""

    accepted: float
    asked: float | None = None
    request: bytes = b""
    answered: float | None = None
    closed: float | None = None


@dataclass
class Scripted:
    """A server that does as it is told and remembers its visits."""

    address: str
    visits: list[Visit] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def ended(self) -> list[Visit]:
        """Wait until all visits are over and return them."""
        for thread in self.threads:
            thread.join(PATIENCE_S)
        assert all(visit.closed for visit in self.visits)
        return self.visits

    def wait_for(self, done: Callable[[Visit], object], visits: int) -> None:
        """Wait until so many visits have done something."""
        wait_until(lambda: sum(bool(done(visit)) for visit in self.visits) >= visits)


@contextmanager
def scripted(answer: bytes | None = ANSWER % (len(BODY), BODY), *, hangs_up: bool = False) -> Iterator[Scripted]:
    """Serve one answer to everybody and then half-close; None never answers. ``hangs_up`` closes at once."""

    def serve(connection: socket.socket, visit: Visit) -> None:
        with connection:
            if not hangs_up:
                while b"\r\n\r\n" not in visit.request and (data := connection.recv(4096)):  # a body may follow
                    visit.asked = visit.asked or time.monotonic()
                    visit.request += data
                if visit.asked and answer is not None:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    visit.answered = time.monotonic()
                while connection.recv(4096):
                    pass
        visit.closed = time.monotonic()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            visit = Visit(accepted=time.monotonic())
            server.visits.append(visit)
            thread = threading.Thread(target=serve, args=(connection, visit), daemon=True)
            server.threads.append(thread)
            thread.start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Scripted(f"127.0.0.1:{listener.getsockname()[1]}")
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join(PATIENCE_S)


class ThreadingServer(ThreadingMixIn, WSGIServer):
    """A thread for each connection."""

    daemon_threads = True


class QuietHandler(WSGIRequestHandler):
    """No access log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def lab_app() -> Iterator[str]:
    """Serve the lab's own application and yield its address."""
    with ThreadingServer(("127.0.0.1", 0), QuietHandler) as server:
        server.set_app(wsgi.app)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def closed_port() -> Iterator[str]:
    """Yield an address at which nobody listens, and nobody else will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("client", CLIENTS)
def test_the_labs_own_application_answers_a_client_in_rows_of_its_class(client: str, tmp_path: Path) -> None:
    before = time.time()
    with lab_app() as address:
        found = measure(client, tmp_path, address, CONNECTIONS="3", DURATION="0.5s", SILENT_S="0.1", LINGER_S="0.1")

    assert len(found) >= 3
    assert {
        (row["request_class"], row["generator"], row["service_time_ms"], row["status"], row["error"]) for row in found
    } == {(client, "points-client", 0, 200, None)}
    assert {row["worker"] for row in found} == {f"{socket.gethostname()}:{os.getpid()}"}
    assert {row["id"] for row in found} >= {"1-1", "2-1", "3-1"}
    assert len({row["id"] for row in found}) == len(found)
    for row in found:
        assert row["thread"] > 0
        assert row["server"].startswith("WSGIServer/")
        assert row["connecting_ms"] > 0
        assert row["blocked_ms"] == 0
        assert before <= row["began"] <= row["ended"]
        assert row["overhead_ms"] == row["duration_ms"] >= (row["ended"] - row["began"]) * 1000 - 0.01
        assert (row["answered"] - row["sent"]).total_seconds() * 1000 == pytest.approx(row["duration_ms"], abs=1000)


def test_a_silent_client_says_nothing_until_its_silence_is_over_and_begins_anew(tmp_path: Path) -> None:
    with scripted() as server:
        found = measure_until(4, "silent", tmp_path, server, SILENT_S="0.3", DURATION="1h")
        visits = server.ended()

    assert len(found) >= 4, "each of two connections is opened at least twice"
    begun = sorted(row["sent"] for row in found if row["id"].startswith("1-"))
    assert (begun[1] - begun[0]).total_seconds() >= 0.29
    for visit in [visit for visit in visits if visit.asked]:
        assert visit.request == (
            f"GET /?delay=0 HTTP/1.1\r\nHost: {server.address}\r\nConnection: close\r\n\r\n".encode()
        )


def test_the_silence_is_no_part_of_the_duration(tmp_path: Path) -> None:
    with scripted() as server:
        found = measure("silent", tmp_path, server.address, SILENT_S="2", DURATION="3s", CONNECTIONS="1")

    first = found[0]
    assert first["duration_ms"] <= (first["answered"] - first["sent"]).total_seconds() * 1000 + 1
    assert first["duration_ms"] < 2000


def test_a_lingering_client_has_its_answer_keeps_its_socket_open_and_then_pauses(tmp_path: Path) -> None:
    """The server has closed its side long before: the client neither sees that nor closes."""
    with scripted() as server:
        changed = {"LINGER_S": "0.5", "PAUSE_S": "0.3", "DURATION": "1h", "CONNECTIONS": "1"}
        found = measure_until(3, "lingering", tmp_path, server, **changed)
        visits = server.ended()

    first, second, *_ = sorted(found, key=lambda row: row["sent"])
    assert visits[0].answered is not None
    assert visits[0].closed is not None
    assert visits[0].closed - visits[0].answered >= 0.49
    assert visits[1].accepted - visits[0].closed >= 0.29
    between_s = (second["sent"] - first["sent"]).total_seconds()
    assert first["duration_ms"] / 1000 + 0.79 <= between_s, "lingering is no part of the duration"


@pytest.mark.parametrize(("client", "setting"), [("silent", "SILENT_S"), ("lingering", "LINGER_S")])
def test_a_silence_and_lingering_end_with_the_load(tmp_path: Path, client: str, setting: str) -> None:
    with scripted() as server:
        found = measure(client, tmp_path, server.address, DURATION="1s", CONNECTIONS="3", **{setting: "3600"})
        visits = server.ended()

    assert [row["error"] for row in found] == [None, None, None]
    assert all(visit.closed and visit.closed - visit.accepted >= 0.3 for visit in visits)


def test_an_upload_is_answered_after_its_whole_body_which_comes_slowly(tmp_path: Path) -> None:
    """The application begins its work when it has read the body. What is left when the load ends comes at once."""
    with lab_app() as address:
        found = measure("uploading", tmp_path, address, UPLOAD_S="1.5", DURATION="2.5s", CONNECTIONS="1")

    first, last = sorted(found, key=lambda row: row["sent"])
    assert (first["error"], last["error"]) == (None, None)
    assert first["began"] - first["sent"].timestamp() >= 1.49
    assert last["duration_ms"] < first["duration_ms"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_load_begins_as_long_after_the_start_as_asked(client: str, tmp_path: Path) -> None:
    with scripted() as server:
        began = time.monotonic()
        measure(client, tmp_path, server.address, START_AFTER="0.7s", DURATION="300ms")

    assert server.visits[0].accepted - began >= 0.7


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_connection_is_a_request_that_failed_and_is_tried_again_a_second_later(
    client: str, tmp_path: Path
) -> None:
    with closed_port() as address:
        found = measure(client, tmp_path, address, DURATION="3s")

    assert {row["id"] for row in found} >= {"1-1", "1-2", "2-1", "2-2"}
    first, second = (next(row["sent"] for row in found if row["id"] == name) for name in ("1-1", "1-2"))
    assert (second - first).total_seconds() >= 0.99
    assert {
        (row["request_class"], row["error"], row["status"], row["duration_ms"], row["overhead_ms"]) for row in found
    } == {(client, os.strerror(errno.ECONNREFUSED), 0, 0, None)}


BROKEN = {
    "status 503": ANSWER.replace(b"200 OK", b"503 Busy") % (2, b"{}"),
    "the answer is not JSON": ANSWER % (5, b"hello"),
    "the answer does not say which worker served it": ANSWER % (15, b'{"ready": true}'),
    "the answer is not HTTP": b"hello\r\n\r\n",
    "the answer has no Content-Length": b"HTTP/1.1 200 OK\r\n\r\n" + BODY,
    "the connection was closed before the answer was complete": ANSWER % (len(BODY) + 1, BODY),
}


@pytest.mark.parametrize("error", list(BROKEN))
def test_an_answer_that_is_none_is_a_request_that_failed(error: str, tmp_path: Path) -> None:
    with scripted(BROKEN[error]) as server:
        found = measure("lingering", tmp_path, server.address, CONNECTIONS="1", DURATION="0.1s", LINGER_S="0.1")

    assert {(row["error"], row["overhead_ms"]) for row in found} == {(error, None)}


def test_a_server_that_hangs_up_on_the_silent_has_failed_them(tmp_path: Path) -> None:
    with scripted(hangs_up=True) as server:
        found = measure("silent", tmp_path, server.address)

    assert {(row["error"], row["status"], row["overhead_ms"]) for row in found} == {
        ("the server had closed the connection before the request", 0, None)
    }


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_signal_cuts_off_what_is_in_flight_and_leaves_complete_points(
    client: str, with_signal: signal.Signals, tmp_path: Path
) -> None:
    with scripted(answer=None) as server:
        process = start(client, tmp_path, server.address, DURATION="1h")
        server.wait_for(lambda visit: visit.asked, visits=2)
        process.send_signal(with_signal)
        assert finish(process) == (130, "")

    found = rows(tmp_path)
    assert {(row["id"], row["error"]) for row in found} == {
        ("1-1", "no answer before the end of the run"),
        ("2-1", "no answer before the end of the run"),
    }


def test_points_of_a_killed_client_are_refused(tmp_path: Path) -> None:
    """A client that was lost can never pass for one that had nothing to do."""
    with scripted() as server:
        process = start("silent", tmp_path, server.address, SILENT_S="3600", DURATION="1h")
        server.wait_for(lambda visit: visit.accepted, visits=2)
        process.kill()
        assert finish(process) == (-signal.SIGKILL, "")

    with pytest.raises(UnreadablePoints):
        write_requests(tmp_path, "one", "mix", 1)


def test_points_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / POINTS).symlink_to("/dev/full")

    said = finish(start("silent", tmp_path, "127.0.0.1:1"))

    assert said == (1, f"{tmp_path / POINTS} cannot be written: No space left on device\n")


def not_set(name: str) -> str:
    """Return what is said of a setting that is missing."""
    return f"{name} is not set; the .env file beside the script has an example"


@pytest.mark.parametrize(
    ("client", "name", "value", "message"),
    [
        ("silent", "SILENT_S", "", not_set("SILENT_S")),
        ("silent", "SILENT_S", "nan", "SILENT_S=nan is not a number"),
        ("lingering", "LINGER_S", "long", "LINGER_S=long is not a number"),
        ("lingering", "PAUSE_S", None, not_set("PAUSE_S")),
        ("uploading", "KIB", "inf", "KIB=inf is not a number"),
        *((client, "CONNECTIONS", "1.5", "CONNECTIONS=1.5 is not a whole number") for client in CLIENTS),
        ("silent", "DURATION", "30", "DURATION=30 is not a duration like 30s or 1m30s"),
        ("silent", "START_AFTER", "-1s", "START_AFTER=-1s is not a duration like 30s or 1m30s"),
        ("silent", "LAB_SERVER", None, not_set("LAB_SERVER")),
        ("silent", "LAB_SERVER", "app", "LAB_SERVER=app is not host:port, e.g. app:8000"),
        ("silent", "LAB_SERVER", "app:65536", "LAB_SERVER=app:65536 is not host:port, e.g. app:8000"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_before_anything_is_sent(
    client: str, name: str, value: str | None, message: str, tmp_path: Path
) -> None:
    with scripted() as server:
        process = start(client, tmp_path, server.address, **{name: value})
        assert finish(process) == (2, f"{message}\n")

    assert server.visits == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "seconds"), [("500ms", 0.5), ("1.5s", 1.5), ("1m30s", 90), ("2m", 120), ("1h1s", 3601)]
)
def test_durations_are_in_k6s_own_notation(given: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURATION", given)
    code = "from lib import settings; print(settings.duration_s('DURATION'))"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "clients", capture_output=True, text=True, check=True
    )

    assert float(done.stdout) == seconds

"""servers/flup: who is served, who waits and who is turned away, by real processes on a port of this machine."""

import os
import runpy
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from stampede.paths import SERVERS
from tests.conftest import PATIENCE_S, wait_until

READY = runpy.run_path(str(SERVERS / "flup" / "ready.py"))


GATED = """\
import time
from pathlib import Path

from wsgi import app as answers

FOLDER = Path("{folder}")


def app(environ, start_response):
    if environ["PATH_INFO"] == "/":
        (FOLDER / f"began-{{time.monotonic_ns()}}").touch()
        while not (FOLDER / "open").exists():
            time.sleep(0.01)
    return answers(environ, start_response)
"""
"""An application whose requests end when a file is there, and tell when they begin."""


class Flup:
    """The programs of the image, with a folder in place of /tmp and a port of this machine."""

    def __init__(self, folder: Path, server: str, app: str, most: int, **environment: str) -> None:
        self.folder, self.server = folder, server
        (folder / "gated.py").write_text(GATED.format(folder=folder))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (folder / "srv").mkdir()
        for source in (SERVERS / "flup" / "serve.py", SERVERS / "flup" / "ready.py", SERVERS / "app" / "counters.py"):
            text = (
                source.read_text()
                .replace('"/tmp/', f'"{folder}/')
                .replace('"0.0.0.0", 8000', f'"127.0.0.1", {self.port}')
            )
            (folder / "srv" / source.name).write_text(text.replace('"127.0.0.1", 8000', f'"127.0.0.1", {self.port}'))
        prefork = server == "flup-prefork"
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (folder / "srv", SERVERS / "app", folder))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LAB_SERVER": server, "LAB_APP": app, "LAB_DATABASE": "", "LAB_QUICK_EXIT": "false",
            "LAB_MIN_SPARE": "1", "LAB_MAX_SPARE": "1",
            "LAB_WORKERS": str(most if prefork else 1), "LAB_THREADS": str(1 if prefork else most),
        } | environment  # fmt: skip
        self.process = subprocess.Popen([sys.executable, folder / "srv" / "serve.py"], env=self._environment)

    def ready(self) -> "subprocess.CompletedProcess[str]":
        """Ask as the health check does."""
        return subprocess.run(
            [sys.executable, self.folder / "srv" / "ready.py"], env=self._environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Ask until it is ready."""
        wait_until(lambda: self.ready().returncode == 0)

    def ask(self, path: str, query: str = "") -> str:
        """Return what is answered; nothing when the connection is closed instead."""
        asked = READY["ASKED"] | {"PATH_INFO": path, "QUERY_STRING": query}
        params = b"".join(bytes((len(name), len(value))) + f"{name}{value}".encode() for name, value in asked.items())
        record: Callable[..., bytes] = READY["record"]
        request = record(READY["BEGIN"], b"\0\1\0\0\0\0\0\0") + record(READY["PARAMS"], params)
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as connection:
                connection.sendall(request + record(READY["PARAMS"]) + record(READY["STDIN"]))
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
        except ConnectionError:
            return ""

    def counted(self) -> Counter[str]:
        """Return what all workers have counted together."""
        found: Counter[str] = Counter()
        for worker in (self.folder / "workers").iterdir():
            found.update({name: int(count) for name, count in map(str.split, worker.read_text().splitlines())})
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Flup]]:
    """Start flup; it is killed at the end, and processes that it forked end with it."""
    with ExitStack() as end:

        def started(server: str, app: str = "wsgi:app", most: int = 2, **environment: str) -> Flup:
            one = Flup(tmp_path, server, app, most, **environment)
            end.callback(one.process.wait)
            end.callback(one.process.kill)
            return one

        yield started


@pytest.mark.parametrize("app", ["wsgi:app", "flask_app:app", "django_app:app"])
@pytest.mark.parametrize("server", ["flup-prefork", "flup-threaded"])
def test_flup_is_ready_with_every_application_and_says_who_served(
    start: Callable[..., Flup], server: str, app: str
) -> None:
    """Each application writes JSON in its own way."""
    flup = start(server, app)

    flup.wait_until_ready()
    answer = flup.ask("/", "delay=0.01")

    assert "Status: 200 OK" in answer
    assert '"flup6/1.1.1"' in answer
    assert (flup.folder / "settings").read_text() == (
        '{"minSpare": 1, "maxSpare": 1, "maxChildren": 2}\n' if server == "flup-prefork"
        else '{"minSpare": 1, "maxSpare": 1, "maxThreads": 2}\n'
    )  # fmt: skip
    assert flup.counted()["served"] >= 2


def three_at_once(flup: Flup) -> tuple[list[str], Counter[str]]:
    """Send three requests to two workers, each as soon as a worker has the one before; return answers and counts."""
    flup.wait_until_ready()
    before = flup.counted()
    answers: list[Future[str]] = []
    with ThreadPoolExecutor(3) as pool:
        try:
            for number in (1, 2):
                answers.append(pool.submit(flup.ask, "/"))
                wait_until(partial(lambda begun: len([*flup.folder.glob("began-*")]) == begun, number))
            answers.append(pool.submit(flup.ask, "/"))
            if flup.server == "flup-threaded":  # which turns it away while the others last
                answers[2].result()
        finally:
            (flup.folder / "open").touch()
    after = flup.counted()
    after.subtract(before)
    return [answer.result() for answer in answers], after


def test_threads_that_are_all_busy_turn_a_connection_away_and_it_is_counted(start: Callable[..., Flup]) -> None:
    answers, counted = three_at_once(start("flup-threaded", "gated:app"))

    assert ["Status: 200 OK" in answer for answer in answers] == [True, True, False]
    assert answers[2] == ""
    assert counted == {"served": 2, "closed": 1}


def test_processes_that_are_all_busy_let_a_connection_wait(start: Callable[..., Flup]) -> None:
    answers, counted = three_at_once(start("flup-prefork", "gated:app"))

    assert ["Status: 200 OK" in answer for answer in answers] == [True, True, True]
    assert (counted["served"], counted["closed"]) == (3, 0)


@pytest.mark.parametrize("quick", [True, False])
def test_a_process_too_many_ends_with_its_interpreter_or_at_once(
    start: Callable[..., Flup], tmp_path: Path, *, quick: bool
) -> None:
    (tmp_path / "farewell.py").write_text(
        "import atexit\nfrom pathlib import Path\nfrom gated import app\n"
        f"atexit.register(Path({str(tmp_path / 'said')!r}).write_text, 'farewell')\n"
    )
    flup = start("flup-prefork", "farewell:app", LAB_QUICK_EXIT=str(quick).lower())
    three_at_once(flup)
    children = Path(f"/proc/{flup.process.pid}/task/{flup.process.pid}/children")

    wait_until(lambda: len(children.read_text().split()) == 1)

    assert (tmp_path / "said").exists() != quick


@pytest.mark.parametrize("waiting", [0, 1, 3])
def test_a_process_that_ends_while_connections_wait_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, waiting: int
) -> None:
    """The end is all that is left of its life here."""
    monkeypatch.syspath_prepend(str(SERVERS / "app"))
    monkeypatch.setenv("LAB_QUICK_EXIT", "false")
    monkeypatch.setattr("counters.FOLDER", tmp_path)
    monkeypatch.setattr("flup.server.fcgi_fork.WSGIServer._child", lambda *_: None)
    program = runpy.run_path(str(SERVERS / "flup" / "serve.py"))
    with ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(waiting):
            opened.enter_context(socket.create_connection(listening.getsockname()))
        wait_until(lambda: program["queued"](listening) == waiting)  # the other side is connected a moment before
        prefork = program["Prefork"]
        prefork._child(prefork.__new__(prefork), listening, None)

    [counted] = tmp_path.iterdir()
    assert dict(map(str.split, counted.read_text().splitlines())) == {
        "served": f"{0:020}", "ended_beside_a_queue": f"{bool(waiting):020}",
    }  # fmt: skip


@pytest.mark.parametrize("server", ["flup-prefork", "flup-threaded"])
def test_flup_ends_when_it_is_told_to(start: Callable[..., Flup], server: str) -> None:
    """Not when the next request comes."""
    flup = start(server)
    flup.wait_until_ready()

    flup.process.send_signal(signal.SIGTERM)

    assert flup.process.wait(PATIENCE_S) == 0


def test_an_application_that_is_not_ready_says_so(start: Callable[..., Flup], tmp_path: Path) -> None:
    (tmp_path / "unready.py").write_text(
        'def app(environ, start):\n    start("503 No", [])\n    return [b"migrations are not applied"]\n'
    )
    flup = start("flup-threaded", "unready:app")

    said = wait_until(lambda: None if "refused" in (found := flup.ready()).stderr else found)

    assert said.returncode == 1
    assert "migrations are not applied" in said.stderr

"""Real servers under the probe: each answers as without it, and the probe tells who works and who waits."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stampede.evaluate.metrics.waiting import FROM_S, Answered, avoidable_waits
from stampede.paths import ROOT
from tests.conftest import PATIENCE_S, wait_until
from tools.browser import free_port

PROBE = ROOT / "probe"
ON_LOOPS = ("/ping", "/stream", "/hold/1", "/slow/2", "/wait/3", "/part/inner/4", "/fail")
IN_THREADS = ("/ping", "/stream", "/slow", "/file", "/fail")
KINDS = ("computes", "interpreter lock", "waits")
HTTP = http.client.HTTPException, OSError


@dataclass
class Server:
    """A server that runs under the probe."""

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    def ask(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Send a request on a connection of its own, and return the status and the body."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with closing(client):
            client.request(method, path, headers={"X-Request-Start": f"t={time.time():.6f}", "Connection": "close"})
            answer = client.getresponse()
            return answer.status, answer.read()

    def ask_for(self, seconds: float, paths: list[str]) -> list[int]:
        """Ask for each path again and again, side by side; return how many were answered. Some may fail."""
        ends = time.monotonic() + seconds

        def ask(path: str) -> int:
            count = 0
            while time.monotonic() < ends:
                with suppress(*HTTP):
                    self.ask(path)
                    count += 1
            return count

        with ThreadPoolExecutor(len(paths)) as pool:
            return list(pool.map(ask, paths))

    @property
    def file(self) -> str:
        """The file of the probe."""
        environment = Path(f"/proc/{self.process.pid}/environ").read_bytes().decode().split("\0")
        return next(one.partition("=")[2] for one in environment if one.startswith("STAMPEDE_PROBE_FILE="))

    def snapshot(self) -> dict[str, Any]:
        """Return what the probe tells."""
        return snapshot_of(self.file)

    def answers(self) -> bool:
        """Whether the server answers. It must not have ended."""
        assert self.process.poll() is None, self.log.read_text()
        with suppress(*HTTP):
            self.ask("/ping")
            return True
        return False

    def until(self, told: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the first snapshot that tells something."""
        return wait_until(lambda: found if told(found := self.snapshot()) else None, every_s=0.1)


def snapshot_of(file: str) -> dict[str, Any]:
    """Return what the probe tells of the server that has a file."""
    command = [sys.executable, "-m", "stampede_probe", "snapshot", file]
    told = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    return json.loads(told)  # type: ignore[no-any-return]


def counted(found: dict[str, Any]) -> int:
    """Return how many requests the probe has counted."""
    return sum(of["requests"] for of in found["routes"].values())


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which Python finds the probe and the site."""
    paths = os.pathsep.join([str(PROBE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, **more}


@contextmanager
def served(
    folder: Path, command: str, options: tuple[str, ...] = (), *, probe: bool = True, **more: str
) -> Iterator[Server]:
    """Start a server, and end it with all of its processes."""
    port, (program, *words) = free_port(), command.split()
    where = {"gunicorn": f"-b 127.0.0.1:{port}", "hypercorn": f"-b 127.0.0.1:{port}", "daphne": f"-p {port}"}
    words = [*where.get(program, f"--port {port}").split(), *words]
    run = [sys.executable, "-m", "stampede_probe", "run", *options] if probe else []
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*run, sys.executable, "-m", program, *words],
            stdout=log, stderr=log, cwd=folder, env=environment(**more), start_new_session=True,
        )  # fmt: skip
    server = Server(port, process, folder / "log")
    try:
        wait_until(server.answers, every_s=0.1)
        yield server
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


SERVERS = {
    "sync": "gunicorn --workers 2 tests.probe_site:app",
    "gthread": "gunicorn --workers 2 --threads 2 tests.probe_site:app",
    "preload": "gunicorn --workers 2 --preload tests.probe_site:app",
    "factory": "gunicorn --workers 2 tests.probe_site:factory()",
    "gevent": "gunicorn --workers 2 -k gevent tests.probe_site:app",
    "gunicorn-asgi": "gunicorn --workers 2 -k asgi tests.probe_site:in_fastapi()",
    "uvicorn": "uvicorn tests.probe_site:fast",
    "uvicorn-workers": "uvicorn --workers 2 tests.probe_site:fast",
    "uvicorn-factory": "uvicorn --factory tests.probe_site:in_fastapi",
    "granian-wsgi": "granian --interface wsgi --workers 2 --blocking-threads 2 tests.probe_site:app",
    "granian-asgi": "granian --interface asgi --workers 2 tests.probe_site:fast",
    "hypercorn": "hypercorn -w 2 tests.probe_site:in_fastapi()",
    "hypercorn-wsgi": "hypercorn wsgi:tests.probe_site:app",
    "daphne": "daphne tests.probe_site:fast",
}


@pytest.mark.parametrize("name", SERVERS)
def test_each_server_answers_as_without_the_probe_which_names_routes_and_lines_and_leaves_no_file(
    name: str, tmp_path: Path
) -> None:
    command = SERVERS[name]
    loop = "fast" in command
    paths = [(path, method) for path in (ON_LOOPS if loop else IN_THREADS) for method in ("GET", "HEAD")]

    def answers(server: Server) -> list[tuple[int, bytes]]:
        given = [server.ask(*one) for one in paths]
        return [(status, re.sub(rb"^\d{2,}", b"pid", body)) for status, body in given]

    (tmp_path / "without").mkdir()
    with served(tmp_path / "without", command, probe=False) as plain:
        expected = answers(plain)
    with served(tmp_path, command) as server:
        file = Path(server.file)
        assert answers(server) == expected
        found = server.until(
            lambda one: one["notes"].get("stacks") and counted(one) > len(paths) and (one["held_s"] > 0 or not loop)
        )
        requests = counted(found)

    assert not file.exists()
    assert found["faults"] == 0
    assert requests == len(paths) + 1  # and the first one, which found that the server answers
    assert all(of["known"] == of["requests"] for of in found["routes"].values())
    assert all(one["busy"] == 0 and not one["requests"] for one in found["workers"])
    assert not re.search("stampede-probe:|destroyed", server.log.read_text())
    stacks = "\n".join(found["notes"]["stacks"])
    assert "probe_site.py" in stacks
    if loop:
        assert {"/hold/{number}", "/slow/{number}", "/wait/{number}", "/part/inner/{number}"} <= set(found["routes"])
        assert any(one.startswith("loop ") and "|/hold/{number}|" in one for one in found["notes"]["stacks"])


@pytest.mark.parametrize("framework", ["flask", "django"])
def test_routes_are_those_of_the_framework_and_no_part_of_a_path(framework: str, tmp_path: Path) -> None:
    with served(tmp_path, f"gunicorn tests.probe_site:{framework}") as server:
        server.ask("/slow/471147114711?secret=yes")
        server.ask("/nobody/471147114711")
        found = server.until(lambda one: one["notes"].get("stacks") and counted(one) == 3)

    assert found["routes"]["/slow/<int:number>"]["requests"] == 1
    assert found["routes"]["(unmatched)"]["requests"] == 2
    assert not re.search("471147114711|secret", json.dumps(found))


def test_who_waits_and_who_filled_the_worker_is_told(tmp_path: Path) -> None:
    """Kept connections bind requests to a worker: while one request fills it, the next waits, and a worker is free."""
    command = "gunicorn --workers 2 --threads 1 -k gthread tests.probe_site:flask"
    with served(tmp_path, command) as server, ThreadPoolExecutor(4) as pool:

        def told() -> Any:
            list(pool.map(server.ask, ["/slow/1", "/ping", "/ping", "/ping"]))
            found = server.snapshot()
            waits = any(of["avoidable"] for of in found["routes"].values())
            return waits and "/slow/<int:number>" in found["notes"].get("filled by", {})

        wait_until(told)


def test_the_avoidable_waits_of_a_mixed_load_are_those_that_the_lab_computes_from_the_rows(tmp_path: Path) -> None:
    """Slow and quick requests on gthread; the share is within one point, the seconds within a few per cent."""
    command, options = "gunicorn --workers 3 --threads 2 tests.probe_site:app", ("--rows", "rows")
    with served(tmp_path, command, options) as server:
        server.ask_for(8, ["/slow"] * 3 + ["/ping"] * 5)
        rows = [line.split(",") for file in (tmp_path / "rows").iterdir() for line in file.read_text().splitlines()]
        ends = sum(row[0] == "ended" for row in rows)
        told = server.until(lambda one: counted(one) == ends)["routes"]["(unmatched)"]
    began = {row[1]: (row[2], float(row[5])) for row in rows if row[0] == "began"}
    done = sorted(
        (began[row[1]][1] - float(row[3]), *began[row[1]], float(row[5])) for row in rows if row[0] == "ended"
    )
    sent, workers, begun, ended = zip(*done, strict=True)
    names = sorted(set(workers))
    assert {name.partition(":")[2] for name in names} == {file.name for file in (tmp_path / "rows").iterdir()}
    sent_s, began_s, ended_s = (np.array(times) - sent[0] for times in (sent, begun, ended))
    worker = np.array([names.index(one) for one in workers])
    answered = Answered(names, ["all"], 0, 100, 100, worker, np.zeros_like(worker), sent_s, began_s, ended_s)
    beside_s = avoidable_waits(answered, 3, 2).beside_s

    assert told["known"] == len(done)
    assert told["avoidable"] / len(done) == pytest.approx((beside_s > FROM_S).mean(), abs=0.01)
    assert told["avoidable_s"] == pytest.approx(beside_s.sum(), rel=0.1, abs=0.1)


def test_a_job_in_the_background_that_holds_the_loop_is_named_and_no_request_is_blamed(tmp_path: Path) -> None:
    with served(tmp_path, SERVERS["uvicorn"], BACKGROUND="1") as server:
        found = server.until(
            lambda one: sum(value for name, value in one["notes"].get("stacks", {}).items() if "check_all" in name) > 1
        )

    of_jobs = [name for name in found["notes"]["stacks"] if "check_all" in name]
    assert all("|(no request)|" in name and name.startswith("loop ") for name in of_jobs)


def test_threads_that_wait_for_the_interpreter_and_pools_that_are_full_are_told(tmp_path: Path) -> None:
    """Threads that compute wait for each other, even if the machine has no processor for any of them."""
    command = "uvicorn --loop asyncio tests.probe_site:fast"
    with served(tmp_path, command) as server, ThreadPoolExecutor(60) as pool:
        list(pool.map(server.ask, ["/compute"] * 6))
        list(pool.map(server.ask, ["/slow/1"] * 60))
        found = server.until(lambda one: counted(one) == 1 + 6 + 60)

    stacks = found["notes"]["stacks"]
    of = {kind: sum(value for name, value in stacks.items() if name.startswith(f"{kind}|/compute|")) for kind in KINDS}
    assert of["interpreter lock"] > of["waits"]
    assert found["notes"]["pool full"]["AnyIO's pool of 40 threads"] > 0
    of_pool = {name for name in stacks if name.startswith("pool thread ")}
    assert any(
        re.fullmatch(r"pool thread waits\|\(pool\)\|.*probe_site.py:\d+ pause → time.sleep", name) for name in of_pool
    )
    assert all("_site.py" in name for name in of_pool), "idle threads are not counted"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """A server for each application of held_site."""
    folders = [tmp_path_factory.mktemp(name) for name in ("app", "fast")]
    with (
        served(folders[0], "gunicorn --threads 4 tests.held_site:app") as app,
        served(folders[1], "uvicorn --loop asyncio tests.held_site:fast") as fast,
    ):
        yield {"app": app, "fast": fast}


@pytest.mark.parametrize(
    ("site", "path", "at_once", "kind", "where"),
    [
        ("app", "file_lock", 3, "lock", "file_lock → fcntl.flock"),
        ("app", "future", 3, "waits", "future → concurrent.futures._base.Future.result"),
        ("app", "regex", 1, "computes", "regex → NESTED.match"),
        ("app", "thread", 2, "thread computes", "crunch"),
        ("app", "receive", 1, "network", "receive → one.recv"),
        ("app", "simple_queue", 1, "queue", "simple_queue → nothing.get"),
        ("app", "own_pool", 2, "pool", "Pool.get → queue.Queue.get"),
        ("fast", "lock", 3, "lock", "lock → asyncio.locks"),
        ("fast", "a_queue", 1, "queue", "a_queue → asyncio.queues.Queue.get"),
        ("fast", "of_library", 1, "waits", "of_library → asyncio.threads.to_thread"),
        ("fast", "event", 1, "lock", "event → asyncio.locks.Event.wait"),
        ("fast", "read", 1, "network", "read → asyncio.streams"),
        ("fast", "parts", 1, "waits", "steps → asyncio.tasks.sleep"),
        ("fast", "several", 1, "waits", "nap → asyncio.tasks.sleep"),
        ("fast", "callback", 1, "loop waits", "(library)"),
        ("fast", "in_thread", 1, "waits", "in_pool → time.sleep"),
        ("fast", "in_task", 1, "loop waits", "hold → time.sleep"),
        ("fast", "search", 1, "loop computes", "regex → NESTED.match"),
    ],
)
def test_what_holds_a_request_is_told_with_its_kind_and_line(
    site: str, path: str, at_once: int, kind: str, where: str, held: dict[str, Server]
) -> None:
    """Mostly at once; a thread that has kept the interpreter's lock may have gone on before the probe gets it."""
    route = "(no request)" if path == "thread" else "(unmatched)" if site == "app" else f"{path}()"
    line = "" if where == "(library)" else r".*held_site.py:\d+ "
    told = re.escape(f"{kind}|{route}|") + line + re.escape(where)
    with ThreadPoolExecutor(at_once) as pool:

        def is_told() -> bool:
            list(pool.map(held[site].ask, [f"/{path}"] * at_once))  # again: what is counted is told a little later
            return any(re.match(told, name) for name in held[site].snapshot()["notes"].get("stacks", {}))

        wait_until(is_told, every_s=0.1)
    assert held[site].snapshot()["faults"] == 0


def test_of_many_requests_old_and_new_are_looked_at(tmp_path: Path) -> None:
    """Of 32 requests, 8 are let in at a time, so they wait for 0, 1, 2 and 3 turns, and are in for one."""
    command = "gunicorn --threads 32 tests.held_site:app"
    with served(tmp_path, command) as running, ThreadPoolExecutor(32) as pool:
        list(pool.map(running.ask, ["/turnstile"] * 32))
        stacks = running.until(lambda one: one["notes"].get("stacks") and not one["in_flight"])["notes"]["stacks"]
    kinds = {kind: sum(value for name, value in stacks.items() if name.startswith(kind)) for kind in ("lock", "waits")}

    assert kinds["lock"] / sum(kinds.values()) == pytest.approx(0.6, abs=0.12)


def test_workers_that_are_killed_leave_their_counts_and_no_slot(tmp_path: Path) -> None:
    with served(tmp_path, "gunicorn --workers 3 --threads 2 tests.probe_site:app") as server:
        answered = 1 + sum(server.ask_for(3, ["/slow"] * 2 + ["/ping"] * 4))
        server.until(lambda one: counted(one) == answered)
        for _ in range(3):
            pid = server.snapshot()["workers"][0]["pid"]
            os.kill(pid, signal.SIGKILL)
            found = server.until(
                lambda one: len(one["workers"]) == 3 and pid not in [of["pid"] for of in one["workers"]]  # noqa: B023
            )
            assert counted(found) == answered
        assert (found["busy_threads"], found["faults"]) == (0, 0)


def test_workers_that_are_replaced_keep_their_counts(tmp_path: Path) -> None:
    with served(tmp_path, "gunicorn --workers 2 --max-requests 5 tests.probe_site:app") as server:
        answered = 1
        for _ in range(60):
            with suppress(*HTTP):
                answered += server.ask("/ping")[0] == 200
        found = server.until(lambda one: len(one["workers"]) == 2 and counted(one) >= answered)

    assert max(one["generation"] for one in found["workers"]) > 5


def test_a_new_master_on_usr2_goes_on_in_the_same_file(tmp_path: Path) -> None:
    with served(tmp_path, "gunicorn --workers 2 --pid pid tests.probe_site:app") as server:
        file = server.file
        os.kill(server.process.pid, signal.SIGUSR2)
        server.until(lambda one: len(one["workers"]) == 4)
        new = int((tmp_path / "pid.2").read_text())
        os.kill(server.process.pid, signal.SIGTERM)
        server.process.wait(PATIENCE_S)
        assert Path(file).exists()
        server.ask("/ping")
        after = snapshot_of(file)
        os.kill(new, signal.SIGTERM)

    assert len(after["workers"]) == 2


def test_another_worker_serves_the_metrics_when_the_one_that_did_is_killed(tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path, SERVERS["sync"], ("--metrics", str(port))) as server:

        def scraped() -> str:
            with suppress(*HTTP):
                client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
                client.request("GET", "/metrics")
                return client.getresponse().read().decode()
            return ""

        for _ in range(2):
            assert "stampede_workers 2\n" in wait_until(scraped, every_s=0.1)
            for one in server.snapshot()["workers"][:1]:
                os.kill(one["pid"], signal.SIGKILL)
            server.until(lambda one: len(one["workers"]) == 2)


@pytest.mark.parametrize("more", ["", "--preload "])
def test_workers_of_an_application_that_was_wrapped_by_hand_find_each_other(more: str, tmp_path: Path) -> None:
    command = f"gunicorn --workers 3 --threads 2 {more}tests.probe_site:by_hand"
    with served(tmp_path, command, probe=False) as server:

        def workers() -> list[dict[str, Any]]:
            master = server.process.pid
            children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
            maps = "".join(Path(f"/proc/{child}/maps").read_text() for child in children)
            for file in {line.split()[-1] for line in maps.splitlines() if "stampede-probe-" in line}:
                used.add(file)
                found: list[dict[str, Any]] = snapshot_of(file)["workers"]
                return found if len(found) == 3 else []
            return []

        used: set[str] = set()
        found = wait_until(workers, every_s=0.1)
    [file] = used
    Path(file).unlink()

    assert [(one["server"], one["threads"]) for one in found] == [("gthread", 2)] * 3

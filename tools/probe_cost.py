"""What the probe costs: the processor time of a server for each request, and its memory, with and without the probe.

    PYTHONPATH=. .venv/bin/python -m tools.probe_cost [sync gthread uvicorn granian]

A worker under the probe gets short blocks of requests. In two of each four (without, with, with, without) it passes
them on without the probe, so that whatever else the machine does cancels. The difference is the median over these
fours, with its interval of 95 %. Memory, and the time for each second while idle and while a request sleeps, are
compared with a server without the probe that runs beside it. The processor time is that of all threads of the server
and its workers, from the kernel's scheduler, and has all that is counted after a request.
"""

import http.client
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from stampede.paths import ROOT

REQUESTS, FOURS, IDLE_TRIALS, WARM = 100, 100, 8, 300
SITE = '''
import time

def answer(path):
    """Sleep, or put the probe in or out of the way of the next requests once those that have ended are counted."""
    if path == "/hold":
        time.sleep(1)
    elif path != "/":
        from stampede_probe import worker, wrap
        worker.state.worker.judge_all()
        kept = answer.__dict__.setdefault("kept", (wrap.Wsgi.__call__, wrap.Asgi.__call__))
        wrap.Wsgi.__call__, wrap.Asgi.__call__ = kept if path == "/with" else (passed_on, passed_on)

def passed_on(wrapped, *arguments):
    return wrapped.application(*arguments)

def app(environ, start_response):
    answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        answer(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
'''
SERVERS = {
    "sync": ["gunicorn", "site_of_cost:app", "--bind"],
    "gthread": ["gunicorn", "--threads", "4", "site_of_cost:app", "--bind"],
    "uvicorn": ["uvicorn", "site_of_cost:asgi", "--no-access-log", "--port"],
    "granian": ["granian", "--interface", "asgi", "site_of_cost:asgi", "--port"],
}


def family(process: int) -> list[int]:
    """Return a process and the processes that it started."""
    return [process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def used_us(process: int) -> float:
    """Return the processor time of a server so far, in microseconds."""
    tasks = [task for one in family(process) for task in Path(f"/proc/{one}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def memory_kb(process: int) -> float:
    """Return the memory of a worker, with its part of what is shared, in kB."""
    *_, worker = family(process)
    lines = Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("Pss:")))


@contextmanager
def served(command: list[str], folder: str, *, probe: bool) -> Iterator[tuple[int, int]]:
    """Start a server, and yield its process and its port once it has answered some requests."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    where = f"127.0.0.1:{port}" if command[-1] == "--bind" else str(port)
    run = [sys.executable, "-m", "stampede_probe", "run"] if probe else []
    paths = os.pathsep.join([str(ROOT / "probe"), folder, os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [*run, sys.executable, "-m", *command, where],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    try:
        for _ in range(300):
            try:
                ask(port, *["/"] * WARM)
                break
            except OSError:
                time.sleep(0.1)
        yield server.pid, port
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def ask(port: int, *paths: str) -> None:
    """Send requests, one after the other."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for path in paths:
        client.request("GET", path, headers={"X-Request-Start": f"t={time.time():.3f}"})
        client.getresponse().read()


def block_us(process: int, port: int, way: str) -> float:
    """Return the processor time of a request, with the probe or without."""
    ask(port, way)
    before = used_us(process)
    ask(port, *["/"] * REQUESTS, way)
    return (used_us(process) - before) / REQUESTS


def with_interval(values: list[float]) -> str:
    """Return the median, and the interval of 95 % that the ranks of the values give it."""
    low = max(0, round(len(values) / 2 - 0.98 * len(values) ** 0.5 - 1))
    ordered = sorted(values)
    return f"{statistics.median(values):.1f} ({ordered[low]:.1f} to {ordered[-1 - low]:.1f})"


def row(command: list[str], folder: str) -> list[str]:
    """Measure a server under the probe, and one without it beside it."""
    without: list[float] = []
    more: list[float] = []
    idle: list[float] = []
    held: list[float] = []
    with served(command, folder, probe=False) as plain, served(command, folder, probe=True) as probed:
        for _ in range(FOURS):
            one, two, three, four = (block_us(*probed, way) for way in ("/without", "/with", "/with", "/without"))
            without.append((one + four) / 2)
            more.append((two + three) / 2 - without[-1])
        memory = memory_kb(probed[0]) - memory_kb(plain[0])
        time.sleep(2)  # nothing has been asked for a while
        for trials, path in ((idle, ""), (held, "/hold")):
            for _ in range(IDLE_TRIALS):
                before = [used_us(process) for process, _ in (plain, probed)]
                if path:
                    with ThreadPoolExecutor() as pool:
                        list(pool.map(lambda port: ask(port, "/hold"), (plain[1], probed[1])))
                else:
                    time.sleep(1)
                low, high = (used_us(server[0]) - was for server, was in zip((plain, probed), before, strict=True))
                trials.append(high - low)
    return [f"{statistics.median(without):.0f}", with_interval(more), f"{memory:.0f}",
            *(f"{statistics.median(trials):.0f}" for trials in (idle, held))]  # fmt: skip


def main() -> None:
    """Measure the servers that are named, or all, and print a table."""
    print("| server | µs a request, without | more with the probe | kB a worker more | idle, µs/s more | held, more |")
    print("|" + " --- |" * 6)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "site_of_cost.py").write_text(SITE)
        for name in sys.argv[1:] or SERVERS:
            print(f"| {name} | {' | '.join(row(SERVERS[name], folder))} |", flush=True)


if __name__ == "__main__":
    main()

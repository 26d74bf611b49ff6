"""What the probe costs: the processor time of a server for each request, and its memory, with and without the probe.

    PYTHONPATH=. .venv/bin/python -m tools.probe_cost

A server with and a server without the probe run side by side, and get short trials in turn. Numbers are medians of the
trials' differences. The processor time is that of all threads of the server and its workers, from the kernel's
scheduler. While idle, and while a request sleeps for a second, it is given for each second.
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

REQUESTS, TRIALS, IDLE_TRIALS, WARM = 200, 60, 8, 300
SITE = """
import time
def app(environ, start_response):
    if environ["PATH_INFO"] == "/hold":
        time.sleep(1)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
async def asgi(scope, receive, send):
    if scope["type"] == "http":
        if scope["path"] == "/hold":
            time.sleep(1)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""
SERVERS = {
    "sync": ["gunicorn", "--workers", "2", "site_of_cost:app", "--bind"],
    "gthread": ["gunicorn", "--workers", "2", "--threads", "4", "site_of_cost:app", "--bind"],
    "uvicorn": ["uvicorn", "site_of_cost:asgi", "--no-access-log", "--port"],
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
    where = str(port) if command[0] == "uvicorn" else f"127.0.0.1:{port}"
    run = [sys.executable, "-m", "stampede_probe", "run"] if probe else []
    paths = os.pathsep.join([str(ROOT / "probe"), folder, os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [*run, sys.executable, "-m", *command, where],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    try:
        for _ in range(300):
            try:
                ask(port, WARM)
                break
            except OSError:
                time.sleep(0.1)
        yield server.pid, port
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def ask(port: int, count: int, path: str = "/") -> None:
    """Send requests, one after the other."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        client.request("GET", path, headers={"X-Request-Start": f"t={time.time():.3f}"})
        client.getresponse().read()


def more(values: dict[bool, list[float]]) -> float:
    """Return the median difference of the trials with the probe and the trials beside them without it."""
    return statistics.median(high - low for high, low in zip(values[True], values[False], strict=True))


def row(command: list[str], folder: str) -> list[str]:
    """Measure a server with and without the probe, both of which run all the time."""
    each: dict[bool, list[float]] = {False: [], True: []}
    idle: dict[bool, list[float]] = {False: [], True: []}
    held: dict[bool, list[float]] = {False: [], True: []}
    with served(command, folder, probe=False) as plain, served(command, folder, probe=True) as probed:
        servers = {False: plain, True: probed}
        for number in range(TRIALS):
            for probe in (False, True) if number % 2 else (True, False):
                process, port = servers[probe]
                used = used_us(process)
                ask(port, REQUESTS)
                each[probe].append((used_us(process) - used) / REQUESTS)
        memory = {probe: [memory_kb(servers[probe][0])] for probe in servers}
        time.sleep(2)  # nothing has been asked for a while
        for _ in range(IDLE_TRIALS):
            before = {probe: used_us(servers[probe][0]) for probe in servers}
            time.sleep(1)
            for probe in servers:
                idle[probe].append(used_us(servers[probe][0]) - before[probe])
        for _ in range(IDLE_TRIALS):
            before = {probe: used_us(servers[probe][0]) for probe in servers}
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda port: ask(port, 1, "/hold"), [port for _, port in servers.values()]))
            for probe in servers:
                held[probe].append(used_us(servers[probe][0]) - before[probe])
    low, high = (f"{statistics.median(each[probe]):.0f}" for probe in (False, True))
    return [low, high, f"{more(each):.1f}", f"{more(memory):.0f}", f"{more(idle):.0f}", f"{more(held):.0f}"]


def main() -> None:
    """Measure the servers that are named, or all, and print a table."""
    print(
        "| server | µs a request, without | with | difference | kB more a worker | idle, µs/s more | held, µs/s more |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "site_of_cost.py").write_text(SITE)
        for name in sys.argv[1:] or SERVERS:
            print(f"| {name} | {' | '.join(row(SERVERS[name], folder))} |", flush=True)


if __name__ == "__main__":
    main()

"""What the probe costs: the processor time of a server for each request, and its memory, with and without the probe.

    PYTHONPATH=. .venv/bin/python -m tools.probe_cost

Trials with and without are interleaved. The processor time is that of all threads of the server and its workers, from
the kernel's scheduler; it is larger while others use the machine, which the spread of the trials shows.
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
from collections.abc import Iterable
from pathlib import Path

from stampede.paths import ROOT

REQUESTS, TRIALS, WARM = 4000, 7, 300
SITE = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""
SERVERS = {
    "sync": ["gunicorn", "--workers", "2", "site_of_cost:app", "--bind"],
    "gthread": ["gunicorn", "--workers", "2", "--threads", "4", "site_of_cost:app", "--bind"],
    "uvicorn": ["uvicorn", "site_of_cost:asgi", "--no-access-log", "--port"],
}


def family(process: int) -> Iterable[int]:
    """Return a process and the processes that it started."""
    return [process, *(int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def used_us(process: int) -> float:
    """Return the processor time of a server so far, in microseconds."""
    tasks = [task for one in family(process) for task in Path(f"/proc/{one}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def memory_kb(process: int) -> float:
    """Return the memory of a worker, with its part of what is shared, in kB."""
    *_, worker = family(process)
    lines = Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("Pss:")))


def ask(port: int, count: int) -> None:
    """Send requests, one after the other."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        client.request("GET", "/", headers={"X-Request-Start": f"t={time.time():.3f}"})
        client.getresponse().read()


def trial(command: list[str], folder: str, *, probe: bool) -> tuple[float, float, float]:
    """Return the processor time for each request in µs, the memory of a worker in kB, the use while idle in µs/s."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    where = str(port) if command[0] == "uvicorn" else f"127.0.0.1:{port}"
    run = [sys.executable, "-m", "stampede_probe", "run"] if probe else []
    line = [*run, sys.executable, "-m", *command, where]
    paths = os.pathsep.join([str(ROOT / "probe"), folder, os.environ.get("PYTHONPATH", "")])
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(line, cwd=folder, stdout=quiet, stderr=quiet, env={**os.environ, "PYTHONPATH": paths})
    try:
        for _ in range(300):
            try:
                ask(port, WARM)
                break
            except OSError:
                time.sleep(0.1)
        before = used_us(server.pid)
        ask(port, REQUESTS)
        each = (used_us(server.pid) - before) / REQUESTS
        idle = used_us(server.pid)
        time.sleep(2)
        return each, memory_kb(server.pid), (used_us(server.pid) - idle) / 2
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def main() -> None:
    """Measure, and print a table."""
    print("| server | µs a request, without | with | difference (median) | kB more a worker | idle, µs/s more |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "site_of_cost.py").write_text(SITE)
        for name, command in SERVERS.items():
            of: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
            for number in range(TRIALS):
                for probe in (False, True) if number % 2 else (True, False):
                    of[probe].append(trial(command, folder, probe=probe))
            spans = [" to ".join(f"{end([row[0] for row in of[probe]]):.0f}" for end in (min, max)) for probe in of]
            more = [
                statistics.median(row[place] for row in of[True]) - statistics.median(row[place] for row in of[False])
                for place in range(3)
            ]
            print(f"| {name} | {' | '.join(spans)} | {more[0]:.1f} | {more[1]:.0f} | {more[2]:.0f} |", flush=True)


if __name__ == "__main__":
    main()

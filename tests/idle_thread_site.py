"""A site on gunicorn's IdleThreadWorker, and what its clients see; runs inside an image of gunicorn.

    python site.py

prints what was seen as JSON: see ``main``. Two workers of two threads listen on two ports.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

PORTS = 8001, 8002
THREADS = 4
ALL = PORTS * (THREADS // 2)
"""A port for each thread of each worker."""
SLOW_S = 1.0
PATIENCE_S = 60
CLOSED = Path("closed")
"""While this file is there, slow requests do not end."""
SETTINGS = f"""
bind = [{", ".join(f"'127.0.0.1:{port}'" for port in PORTS)}]
worker_class = "gunicorn_idle_thread.IdleThreadWorker"
workers, threads, keepalive, graceful_timeout = 2, 2, 60, 10
worker_tmp_dir = "/dev/shm"
control_socket_disable = True
"""


def app(environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Note that a request to /slow has begun and hold it while CLOSED is there; answer with the worker's process id."""
    if environ["PATH_INFO"] == "/slow":
        Path(f"began-{time.monotonic_ns()}-{os.getpid()}").touch()
        while CLOSED.exists():
            time.sleep(0.01)
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def ask(path: str, port: int = PORTS[0]) -> str:
    """Return who answered a request on a connection of its own."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    client.request("GET", path, headers={"Connection": "close"})
    return client.getresponse().read().decode()


def hold(pool: ThreadPoolExecutor, ports: Iterable[int]) -> list[Any]:
    """Send a slow request to each port, which ends without CLOSED, and wait until all of them have begun."""
    for before in Path().glob("began-*"):
        before.unlink()
    CLOSED.touch()
    asked = [pool.submit(ask, "/slow", port) for port in ports]
    assert until(lambda: len([*Path().glob("began-*")]) >= len(asked))
    return asked


def until(holds: Callable[[], bool]) -> bool:
    """Wait until something holds, and return whether it does."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def answers() -> bool:
    """Whether gunicorn answers."""
    with suppress(OSError):
        return bool(ask("/"))
    return False


def silent() -> socket.socket:
    """Connect and say nothing."""
    return socket.create_connection(("127.0.0.1", PORTS[0]), timeout=PATIENCE_S)


def is_open(client: socket.socket) -> bool:
    """Whether the worker has left a connection open."""
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    finally:
        client.settimeout(PATIENCE_S)


def main() -> None:
    """Print what clients saw.

    ``shared``: how many of as many slow requests as there are threads each worker served. ``kept``: how many workers
    answered two requests on one connection, whether it was open before all threads got work, and then closed.
    ``beside_closed``: whether two idle connections were open after 20 clients had connected and gone without a word.
    ``beside_silent``: how many of 8 requests were answered beside 6 silent connections, how many of these were still
    open then, and who answered when one of them spoke. ``ended``: what a slow request got while gunicorn was stopped,
    and gunicorn's exit code.
    """
    Path("settings.py").write_text(SETTINGS, encoding="ascii")
    here = Path(__file__).stem
    master = subprocess.Popen([sys.executable, "-m", "gunicorn", "--config", "settings.py", f"{here}:app"])
    seen: dict[str, Any] = {}
    assert until(answers)
    with ThreadPoolExecutor(2 * THREADS) as pool:
        slow = hold(pool, ALL)
        CLOSED.unlink()
        seen["shared"] = sorted(Counter(one.result() for one in slow).values())

        kept = http.client.HTTPConnection("127.0.0.1", PORTS[1], timeout=PATIENCE_S)
        answered = set()
        for _ in range(2):
            kept.request("GET", "/")
            answered.add(kept.getresponse().read())
        assert kept.sock
        before = is_open(kept.sock)
        slow = hold(pool, ALL)
        seen["kept"] = [
            len(answered),
            before,
            until(lambda: not is_open(kept.sock)),
        ]  # after the last thread has its work
        CLOSED.unlink()
        for one in slow:
            one.result()

        idle = [http.client.HTTPConnection("127.0.0.1", PORTS[0], timeout=PATIENCE_S) for _ in range(2)]
        for one in idle:
            one.request("GET", "/")
            one.getresponse().read()
        for gone in [silent() for _ in range(20)]:
            gone.close()
        time.sleep(SLOW_S / 4)
        seen["beside_closed"] = [bool(one.sock and is_open(one.sock)) for one in idle]
        for one in idle:
            one.close()

        quiet = [silent() for _ in range(6)]
        served = [pool.submit(ask, "/") for _ in range(8)]
        count = sum(one.exception() is None for one in served)
        still_open = sum(map(is_open, quiet))
        quiet[0].sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        spoken = b"".join(iter(lambda: quiet[0].recv(4096), b""))
        seen["beside_silent"] = [count, still_open, spoken.split(b"\r\n")[0].decode()]

        [last] = hold(pool, PORTS[:1])
        master.send_signal(signal.SIGTERM)
        time.sleep(SLOW_S / 2)
        CLOSED.unlink()
        seen["ended"] = [last.result() != "", master.wait(PATIENCE_S)]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()

"""A service that the application calls and waits for. It stalls on a schedule: during a stall, each call is slow.

``GET /?delay=S`` answers after S seconds. The first stall begins LAB_API_FIRST_S seconds after the first call, and
another stall begins every LAB_API_EVERY_S seconds. A stall lasts LAB_API_STALL_S seconds, in which each call takes
LAB_API_TAKES_S seconds. With LAB_API_STALL_S=0, the service never stalls.
With LAB_API_ONE_DEVICE=true, all calls take turns on one device: n simultaneous calls each take n times as long.
"""

import json
import math
import os
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import parse_qs, urlsplit

FIRST_S = float(os.environ["LAB_API_FIRST_S"])
EVERY_S = float(os.environ["LAB_API_EVERY_S"])
STALL_S = float(os.environ["LAB_API_STALL_S"])
TAKES_S = float(os.environ["LAB_API_TAKES_S"])
ONE_DEVICE = os.environ["LAB_API_ONE_DEVICE"] == "true"
MAX_DELAY_S = 30
SLICE_S = 0.010
STALLS = Path("/tmp/stalls")
"""A file with a line for each stall during which a call came: its beginning and its end, in epoch seconds."""


class Schedule:
    """Knows when the stalls are, and writes down each stall during which a call came."""

    def __init__(self) -> None:
        self._first_stall: float | None = None
        self._written = -1
        self._lock = threading.Lock()

    def stalls(self, now: float) -> bool:
        """Whether a call at ``now`` (epoch seconds) comes during a stall."""
        with self._lock:
            self._first_stall = self._first_stall or now + FIRST_S
            number, since = divmod(now - self._first_stall, EVERY_S)
            if number < 0 or since >= STALL_S:
                return False
            if number > self._written:
                began = self._first_stall + number * EVERY_S
                with STALLS.open("a", encoding="utf-8") as file:
                    file.write(f"{began:.6f} {began + STALL_S:.6f}\n")
                self._written = int(number)
            return True


class Device:
    """Works on one call at a time: each call in turn gets a slice of SLICE_S seconds."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[float, threading.Event]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def use(self, seconds: float) -> None:
        """Use the device for some seconds of its working time, and return when the work is done."""
        done = threading.Event()
        self._waiting.put((seconds, done))
        done.wait()

    def _work(self) -> None:
        while True:
            left_s, done = self._waiting.get()
            began = time.monotonic()
            time.sleep(min(left_s, SLICE_S))
            left_s -= time.monotonic() - began
            if left_s > 0:
                self._waiting.put((left_s, done))
            else:
                done.set()


class Handler(BaseHTTPRequestHandler):
    """Answers one call."""

    schedule = Schedule()
    device = Device()

    def do_GET(self) -> None:
        """Answer ``/-/ready`` at once and every other path after its delay."""
        url = urlsplit(self.path)
        if url.path == "/-/ready":
            self._answer(HTTPStatus.OK, {"ready": True})
            return
        text = parse_qs(url.query).get("delay", [""])[0]
        try:
            delay_s = float(text)
        except ValueError:
            delay_s = math.nan
        if not 0 <= delay_s <= MAX_DELAY_S:  # checked first: a bad request must not start the schedule
            self._answer(HTTPStatus.BAD_REQUEST, {"error": f"delay={text} is not between 0 and {MAX_DELAY_S}"})
            return
        stalled = self.schedule.stalls(time.time())
        (self.device.use if ONE_DEVICE else time.sleep)(TAKES_S if stalled else delay_s)
        self._answer(HTTPStatus.OK, {"stalled": stalled})

    def _answer(self, status: HTTPStatus, values: dict[str, bool | str]) -> None:
        body = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: to log each call would take longer than to answer it."""


class Server(ThreadingHTTPServer):
    """A server with one thread for each call, and no limit on the number of threads."""

    request_queue_size = 1024
    daemon_threads = True


if __name__ == "__main__":
    STALLS.touch()
    Server(("0.0.0.0", 8000), Handler).serve_forever()

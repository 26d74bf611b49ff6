"""The other service that an application waits for. On a schedule it is slow: that is a stall.

``GET /?delay=S`` answers after S seconds. Every LAB_API_EVERY_S, at first LAB_API_FIRST_S after the first call, there
are LAB_API_STALL_S in which each call takes LAB_API_TAKES_S instead; LAB_API_STALL_S=0: never.
With LAB_API_ONE_DEVICE=true it has one device, on which all calls take turns: of n at once each takes n times as long.
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
"""A line for each stall that a call has met: when it began and ended, in epoch seconds."""


class Schedule:
    """Knows when the stalls are, and writes down those that were met."""

    def __init__(self) -> None:
        self._first_stall: float | None = None
        self._written = -1
        self._lock = threading.Lock()

    def stalls(self, now: float) -> bool:
        """Whether a call at ``now`` (epoch seconds) meets a stall."""
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
    """Works on one call at a time, for a slice each in turn."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[float, threading.Event]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def use(self, seconds: float) -> None:
        """Use the device for some seconds of its time, and return when it is done."""
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
        if not 0 <= delay_s <= MAX_DELAY_S:  # before it counts as a call
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
        """Say nothing: a line for each call would be most of the work."""


class Server(ThreadingHTTPServer):
    """One thread for each call, however many there are."""

    request_queue_size = 1024
    daemon_threads = True


if __name__ == "__main__":
    STALLS.touch()
    Server(("0.0.0.0", 8000), Handler).serve_forever()

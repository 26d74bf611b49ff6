"""What the workers of a server are doing and have counted: as a dictionary, as Prometheus text, and over HTTP."""

from __future__ import annotations

import json
import os
import time
from time import monotonic
from typing import Any

from stampede_probe import shared as layout
from stampede_probe.shared import (
    AHEAD,
    AHEAD_S,
    AVOIDABLE_S,
    AVOIDABLES,
    AVOIDED,
    BUCKETS_S,
    BUSY,
    CAPACITY,
    CLAIM,
    COLLECTED_MAX_S,
    COLLECTED_S,
    COLLECTIONS,
    COUNTS,
    DELAY_S,
    DELAYS,
    FAULTS,
    H_BANK,
    H_CLAIMS,
    HEAD,
    HELD_S,
    HELD_SINCE,
    IDLE_SINCE,
    KNOWN,
    LOOP,
    MINUTE,
    MISTOLD,
    NO_HEADER,
    NO_RING,
    PID,
    PLACE_AT,
    PLACE_WORDS,
    PLACES,
    REQUESTS,
    ROUTE_AT,
    ROUTE_WORDS,
    SECOND_WORDS,
    SECONDS,
    SERVER,
    SINCE,
    WORK_S,
    Shared,
    get_text,
    merged,
)  # fmt: skip
from stampede_probe.worker import fault, memory, native, state

ENDPOINT = "STAMPEDE_PROBE_METRICS"


def snapshot(shared: Shared | None = None) -> dict[str, Any]:
    """Return what the workers are doing and have counted; times in seconds.

    ``workers`` has an entry for each worker that is there, ``routes`` the sums of all workers since the server started.
    """
    shared = shared or memory()
    if state.worker is not None:
        state.worker.count_ended()
    for _ in range(5):
        before = shared.q[H_BANK], shared.q[H_CLAIMS]
        found = _read(shared)
        if before == (shared.q[H_BANK], shared.q[H_CLAIMS]):
            break
    return found


def _read(shared: Shared) -> dict[str, Any]:
    now, q, d = monotonic(), shared.q, shared.d
    workers = [_worker(shared, base, now) for base in shared.slots() if shared.is_same(base)]
    bases = shared.sums()
    routes: dict[str, dict[str, Any]] = {}
    for base in bases:
        for number, name in enumerate(shared.routes(base)):
            at = base + ROUTE_AT + number * ROUTE_WORDS
            kept = routes.setdefault(
                name, {"requests": 0, "known": 0, "avoidable": 0, "work_s": 0.0, "delay_s": 0.0, "avoidable_s": 0.0,
                       "delays": [0] * COUNTS, "avoidables": [0] * COUNTS},
            )  # fmt: skip
            for key, word in (("requests", REQUESTS), ("known", KNOWN), ("avoidable", AVOIDED)):
                kept[key] += q[at + word]
            for key, word in (("work_s", WORK_S), ("delay_s", DELAY_S), ("avoidable_s", AVOIDABLE_S)):
                kept[key] += d[at + word]
            for key, word in (("delays", DELAYS), ("avoidables", AVOIDABLES)):
                kept[key] = [one + two for one, two in zip(kept[key], q[at + word : at + word + COUNTS])]
    minute = [0, 0, 0]
    for base in shared.slots():
        for at in range(base + MINUTE, base + MINUTE + SECONDS * SECOND_WORDS, SECOND_WORDS):
            if now - 60 < q[at] <= now:
                minute = [have + q[at + 1 + place] for place, have in enumerate(minute)]
    known, waited, avoidable = minute
    threads = [one for one in workers if one["threads"]]
    return {
        "time": time.time(),
        "shared": shared.descriptor >= 0,
        "host": os.uname().nodename,
        "workers": workers,
        "threads": sum(one["threads"] for one in threads),
        "busy_threads": sum(min(one["busy"], one["threads"]) for one in threads),
        "in_flight": sum(one["busy"] for one in workers),
        "minute": {
            "known": known,
            "waited_share": waited / known if known else None,
            "avoidable_share": avoidable / known if known else None,
        },
        "routes": {name: of for name, of in routes.items() if of["requests"]},
        "unknown": {
            "no_header": sum(q[base + NO_HEADER] for base in bases),
            "no_time": sum(q[base + MISTOLD] for base in bases),
            "clock_ahead": sum(q[base + AHEAD] for base in bases),
            "too_long_ago": sum(q[base + NO_RING] for base in bases),
        },
        "clock_ahead_s": max(d[base + AHEAD_S] for base in bases),
        "collector": {
            "count": sum(q[base + COLLECTIONS] for base in bases),
            "paused_s": sum(d[base + COLLECTED_S] for base in bases),
            "longest_s": max(d[base + COLLECTED_MAX_S] for base in bases),
        },
        "held_s": sum(d[base + HELD_S] for base in bases),
        "faults": sum(q[base + FAULTS] for base in bases),
        "notes": merged([shared.read_notes(base) for base in bases]),
    }


def _worker(shared: Shared, base: int, now: float) -> dict[str, Any]:
    q, d = shared.q, shared.d
    names = shared.routes(base)
    requests = []
    for at in range(base + PLACE_AT, base + PLACE_AT + PLACES * PLACE_WORDS, PLACE_WORDS):
        for _ in range(3):
            number = q[at + 5]  # written last
            since, thread, delay, route = d[at + 1], q[at + 2], d[at + 3], q[at + 4]
            if number == q[at]:  # written first: the record is whole
                if since:
                    requests.append({
                        "since_s": max(0.0, now - since), "thread": thread, "delay_s": None if delay < 0 else delay,
                        "route": names[route] if route < len(names) else layout.OTHER,
                    })  # fmt: skip
                break
    held = d[base + HELD_SINCE]
    return {
        "pid": q[base + PID],
        "generation": q[base + CLAIM],
        "server": get_text(shared.bytes, base + SERVER, 2),
        "up_s": now - d[base + SINCE],
        "threads": q[base + CAPACITY],
        "loop": bool(q[base + LOOP]),
        "busy": q[base + BUSY],
        "full": bool(q[base + HEAD] % 2),
        "held_s": now - held if held else 0.0,
        "idle_s": now - d[base + IDLE_SINCE] if not q[base + BUSY] else 0.0,
        "requests": sorted(requests, key=lambda one: -one["since_s"]),
    }


def metrics(shared: Shared | None = None, *, openmetrics: bool = False) -> str:
    """Return the counts of all workers as text for Prometheus, or in the format OpenMetrics."""
    found = snapshot(shared)
    lines: list[str] = []

    def family(name: str, kind: str, says: str, samples: list[tuple[str, dict[str, Any], float]]) -> None:
        if samples:
            base = f"stampede_{name}"
            typed = base + "_total" if kind == "counter" and not openmetrics else base
            lines.extend([f"# HELP {typed} {says}", f"# TYPE {typed} {kind}"])
            for suffix, labels, value in samples:
                inside = ",".join(f'{key}="{_escape(str(one))}"' for key, one in labels.items())
                end = "_total" if kind == "counter" else suffix
                lines.append(f"{base}{end}{'{' + inside + '}' if inside else ''} {value:.10g}")

    def histogram(name: str, says: str, counts: str, total: str) -> None:
        samples: list[tuple[str, dict[str, Any], float]] = []
        for route, of in found["routes"].items():
            amount = 0
            for bound, count in zip((*BUCKETS_S, float("inf")), of[counts]):
                amount += count
                samples.append(
                    ("_bucket", {"route": route, "le": "+Inf" if bound == float("inf") else f"{bound:g}"}, amount)
                )
            samples += [("_sum", {"route": route}, of[total]), ("_count", {"route": route}, amount)]
        family(name, "histogram", says, samples)

    def by_route(key: str) -> list[tuple[str, dict[str, Any], float]]:
        return [("", {"route": route}, of[key]) for route, of in found["routes"].items()]

    one = found["minute"]
    notes = found["notes"]
    stacks = [
        ("", dict(zip(("kind", "route", "at"), name.split("|", 2))), value)
        for name, value in notes.get("stacks", {}).items()
    ]
    family("workers", "gauge", "Workers on this host.", [("", {}, len(found["workers"]))])
    family("threads", "gauge", "Threads of all workers that serve requests.", [("", {}, found["threads"])])
    family("busy_threads", "gauge", "Threads at work on a request.", [("", {}, found["busy_threads"])])
    family(
        "requests_in_flight",
        "gauge",
        "Requests at work, by worker.",
        [("", {"pid": of["pid"]}, of["busy"]) for of in found["workers"]],
    )
    if found["threads"]:
        family(
            "utilization_ratio",
            "gauge",
            "Busy threads, divided by threads.",
            [("", {}, found["busy_threads"] / found["threads"])],
        )
    for name, key, says in (
        ("waited_share", "waited_share", "waited"),
        ("avoidable_wait_share", "avoidable_share", "waited avoidably"),
    ):
        if one[key] is not None:
            family(
                name,
                "gauge",
                f"Share of the last minute's requests that {says} for more than 50 ms.",
                [("", {}, one[key])],
            )
    family("requests", "counter", "Requests that ended.", by_route("requests"))
    family("work_seconds", "counter", "Time at work on requests.", by_route("work_s"))
    family("avoidable_waits", "counter", "Requests that waited avoidably for more than 50 ms.", by_route("avoidable"))
    histogram("queueing_delay_seconds", "Time from X-Request-Start to the beginning of the work.", "delays", "delay_s")
    histogram(
        "avoidable_wait_seconds", "The part in which only other workers had a free thread.", "avoidables", "avoidable_s"
    )
    family(
        "unknown_waits",
        "counter",
        "Requests whose wait is unknown.",
        [("", {"reason": name}, value) for name, value in found["unknown"].items()],
    )
    family(
        "clock_ahead_seconds",
        "gauge",
        "How far the clock of X-Request-Start was ahead at most.",
        [("", {}, found["clock_ahead_s"])],
    )
    family(
        "filled_seconds",
        "counter",
        "Avoidable waits, by the route that filled the worker.",
        [("", {"route": name}, value) for name, value in notes.get("filled by", {}).items()],
    )
    family(
        "loop_held_seconds", "counter", "Time in which an event loop or hub did not go on.", [("", {}, found["held_s"])]
    )
    family(
        "pool_full_seconds",
        "counter",
        "Time in which calls waited for a thread of a full pool.",
        [("", {"pool": name}, value) for name, value in notes.get("pool full", {}).items()],
    )
    family("stack_seconds", "counter", "Time of long requests and held loops, by line of code.", stacks)
    family(
        "gc_pause_seconds", "counter", "Pauses of the garbage collector.", [("", {}, found["collector"]["paused_s"])]
    )
    family("probe_faults", "counter", "Faults of the probe, which turned itself off.", [("", {}, found["faults"])])
    return "\n".join([*lines, *(["# EOF"] if openmetrics else []), ""])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Endpoint:
    """A port of the loopback, or a Unix socket, that whichever worker gets it first serves."""

    def __init__(self, shared: Shared) -> None:
        """Read where to listen: a port, or a path."""
        self._where, self._shared = os.environ.get(ENDPOINT, ""), shared
        self._socket: Any = None

    def take(self) -> None:
        """Serve if nobody does; called once a second."""
        if not self._where or self._socket is not None:
            return
        import _socket  # below what gevent and eventlet replace

        path = self._where if "/" in self._where else ""
        one = _socket.socket(_socket.AF_UNIX if path else _socket.AF_INET, _socket.SOCK_STREAM)
        try:
            if path:
                self._bind_path(_socket, one, path)
            else:
                one.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
                one.bind(("127.0.0.1", int(self._where.rpartition(":")[2])))
            one.listen(16)
        except OSError:
            one.close()
            return
        self._socket = one
        native("_thread", "start_new_thread")(self._serve, ())

    def _bind_path(self, library: Any, one: Any, path: str) -> None:
        with self._shared.locked():
            other = library.socket(library.AF_UNIX, library.SOCK_STREAM)
            try:
                other.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)  # whoever served it has died
            except OSError:
                pass
            finally:
                other.close()
            one.bind(path)
            os.chmod(path, 0o600)

    def _serve(self) -> None:
        import struct

        second = struct.pack("ll", 1, 0)
        while self._socket is not None:
            try:
                descriptor, _ = self._socket._accept()
            except OSError:
                return
            try:
                import _socket

                one = _socket.socket(fileno=descriptor)
                one.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, second)
                one.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, second)
                one.sendall(answer(one.recv(8192), self._shared))
                one.close()
            except OSError:
                continue
            except Exception:
                fault()


def answer(asked: bytes, shared: Shared) -> bytes:
    """Return the whole answer to an HTTP request for ``/metrics`` or ``/snapshot``."""
    head, _, rest = asked.partition(b"\r\n")
    method, _, path = head.partition(b" ")
    path = path.split(b" ")[0].split(b"?")[0]
    status, kind, body = "404 Not Found", "text/plain", "Ask for /metrics or /snapshot.\n"
    if path == b"/metrics":
        openmetrics = b"application/openmetrics-text" in rest
        kind = (
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
            if openmetrics
            else "text/plain; version=0.0.4; charset=utf-8"
        )
        status, body = "200 OK", metrics(shared, openmetrics=openmetrics)
    elif path == b"/snapshot":
        status, kind, body = "200 OK", "application/json", json.dumps(snapshot(shared)) + "\n"
    data = body.encode()
    about = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return about.encode() + (b"" if method == b"HEAD" else data)

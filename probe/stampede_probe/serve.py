"""What the workers of a server are doing and have counted: as a dictionary, as Prometheus text, and over HTTP."""

from __future__ import annotations

import json
import os
import time
from time import monotonic
from typing import Any

from stampede_probe import shared as layout
from stampede_probe.shared import Shared, get_text, merged
from stampede_probe.worker import fault, memory, native, state

UNKNOWN = {
    "no_header": layout.NO_HEADER, "no_time": layout.MISTOLD, "clock_ahead": layout.AHEAD,
    "too_long_ago": layout.NO_RING,
}  # fmt: skip


def snapshot(shared: Shared | None = None) -> dict[str, Any]:
    """Return what the workers are doing and have counted; times in seconds.

    ``workers`` has an entry for each worker that is there, ``routes`` the sums of all workers since the server started.
    """
    shared = shared or memory()
    if state.worker is not None:
        state.worker.judge_all()
    for _ in range(5):
        moves = shared.q[layout.H_MOVES]
        found = _read(shared)
        if moves % 2 == 0 and moves == shared.q[layout.H_MOVES]:
            break
    return found


def _read(shared: Shared) -> dict[str, Any]:
    now, q, d = monotonic(), shared.q, shared.d
    workers = [_worker(shared, base, now) for base in shared.slots() if shared.is_same(base)]
    bases = shared.sums()
    routes: dict[str, dict[str, Any]] = {}
    for base in bases:
        for number, name in enumerate(shared.routes(base)):
            at = base + layout.ROUTE_AT + number * layout.ROUTE_WORDS
            histograms = {"delays": at + layout.DELAYS, "avoidables": at + layout.AVOIDABLES}
            kept = routes.setdefault(
                name, {**dict.fromkeys(layout.COUNTED, 0), **{key: [0] * layout.COUNTS for key in histograms}}
            )
            for key, word in layout.COUNTED.items():
                kept[key] += (d if word in layout.ROUTE_S else q)[at + word]
            for key, word in histograms.items():
                kept[key] = [one + two for one, two in zip(kept[key], q[word : word + layout.COUNTS])]
    seconds = [q[at + 1 : at + 4] for base in shared.slots()
               for at in range(base + layout.MINUTE, base + layout.PLACE_AT, layout.SECOND_WORDS)
               if now - 60 < q[at] <= now]  # fmt: skip
    known, waited, avoidable = (sum(second[place] for second in seconds) for place in range(3))
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
        "unknown": {reason: sum(q[base + word] for base in bases) for reason, word in UNKNOWN.items()},
        "clock_ahead_s": max(d[base + layout.AHEAD_S] for base in bases),
        "collector": {
            "count": sum(q[base + layout.COLLECTIONS] for base in bases),
            "paused_s": sum(d[base + layout.COLLECTED_S] for base in bases),
            "longest_s": max(d[base + layout.COLLECTED_MAX_S] for base in bases),
        },
        "held_s": sum(d[base + layout.HELD_S] for base in bases),
        "faults": sum(q[base + layout.FAULTS] for base in bases),
        "notes": merged([shared.read_notes(base) for base in bases]),
    }


def _worker(shared: Shared, base: int, now: float) -> dict[str, Any]:
    q, d = shared.q, shared.d
    names = shared.routes(base)
    requests = []
    idle_since = d[base + layout.SINCE]
    for at in range(base + layout.PLACE_AT, base + layout.ROUTE_AT, layout.PLACE_WORDS):
        of = d[at + 4]  # written last, read first
        thread, delay, route, since = q[at + 1], d[at + 2], q[at + 3], d[at]
        idle_since = max(idle_since, -since)
        if since > 0:
            thread, delay, route = (thread, delay, route) if of == since else (0, -1.0, 0)
            requests.append({
                "since_s": max(0.0, now - since), "thread": thread, "delay_s": None if delay < 0 else delay,
                "route": names[route] if route < len(names) else layout.OTHER,
            })  # fmt: skip
    busy = len(requests) + q[base + layout.WITHOUT_PLACE]
    held = d[base + layout.HELD_SINCE]
    return {
        "pid": q[base + layout.PID],
        "generation": q[base + layout.CLAIM],
        "server": get_text(shared.bytes, base + layout.SERVER, 2),
        "up_s": now - d[base + layout.SINCE],
        "threads": q[base + layout.CAPACITY],
        "loop": bool(q[base + layout.LOOP]),
        "busy": busy,
        "full": bool(q[base + layout.HEAD] % 2),
        "held_s": now - held if held else 0.0,
        "idle_s": 0.0 if busy else now - idle_since,
        "requests": sorted(requests, key=lambda one: -one["since_s"]),
    }


def metrics(shared: Shared | None = None) -> str:
    """Return the counts of all workers as text for Prometheus."""
    found = snapshot(shared)
    minute, notes, routes = found["minute"], found["notes"], found["routes"]
    lines: list[str] = []

    def family(name: str, kind: str, says: str, samples: list[tuple[str, dict[str, Any], float]]) -> None:
        if samples:
            name = f"stampede_{name}{'_total' if kind == 'counter' else ''}"
            lines.extend([f"# HELP {name} {says}", f"# TYPE {name} {kind}"])
            for suffix, labels, value in samples:
                inside = ",".join(f'{key}="{_escape(str(one))}"' for key, one in labels.items())
                lines.append(f"{name}{suffix}{'{' + inside + '}' if inside else ''} {value:.10g}")

    def one(name: str, value: float | None, says: str, kind: str = "gauge") -> None:
        family(name, kind, says, [] if value is None else [("", {}, value)])

    def by(label: str, name: str, values: dict[Any, float], says: str, kind: str = "counter") -> None:
        family(name, kind, says, [("", {label: of}, value) for of, value in values.items()])

    def histogram(name: str, says: str, counts: str, total: str) -> None:
        samples: list[tuple[str, dict[str, Any], float]] = []
        for route, of in routes.items():
            amount = 0
            for bound, count in zip((*(f"{one:g}" for one in layout.BUCKETS_S), "+Inf"), of[counts]):
                amount += count
                samples.append(("_bucket", {"route": route, "le": bound}, amount))
            samples += [("_sum", {"route": route}, of[total]), ("_count", {"route": route}, amount)]
        family(name, "histogram", says, samples)

    busy, threads = found["busy_threads"], found["threads"]
    in_flight = {of["pid"]: of["busy"] for of in found["workers"]}
    share = "Share of the last minute's requests that waited"
    one("workers", len(found["workers"]), "Workers on this host.")
    one("threads", threads, "Threads of all workers that serve requests.")
    one("busy_threads", busy, "Threads at work on a request.")
    by("pid", "requests_in_flight", in_flight, "Requests at work, by worker.", "gauge")
    one("utilization_ratio", busy / threads if threads else None, "Busy threads, divided by threads.")
    one("waited_share", minute["waited_share"], f"{share} for more than 50 ms.")
    one("avoidable_wait_share", minute["avoidable_share"], f"{share} avoidably for more than 50 ms.")
    for name, key, says in (
        ("requests", "requests", "Requests that ended."), ("work_seconds", "work_s", "Time at work on requests."),
        ("avoidable_waits", "avoidable", "Requests that waited avoidably for more than 50 ms."),
    ):  # fmt: skip
        by("route", name, {route: of[key] for route, of in routes.items()}, says)
    histogram("queueing_delay_seconds", "Time from X-Request-Start to the beginning of the work.", "delays", "delay_s")
    says = "The part in which only other workers had a free thread."
    histogram("avoidable_wait_seconds", says, "avoidables", "avoidable_s")
    by("reason", "unknown_waits", found["unknown"], "Requests whose wait is unknown.")
    one("clock_ahead_seconds", found["clock_ahead_s"], "How far the clock of X-Request-Start was ahead at most.")
    filled = notes.get("filled by", {})
    by("route", "filled_seconds", filled, "Avoidable waits, by the route that filled the worker.")
    one("loop_held_seconds", found["held_s"], "Time in which an event loop or hub did not go on.", "counter")
    full = notes.get("pool full", {})
    by("pool", "pool_full_seconds", full, "Time in which calls waited for a thread of a full pool.")
    stacks = [("", dict(zip(("kind", "route", "at"), name.split("|", 2))), value)
              for name, value in notes.get("stacks", {}).items()]  # fmt: skip
    family("stack_seconds", "counter", "Time of long requests and held loops, by line of code.", stacks)
    one("gc_pause_seconds", found["collector"]["paused_s"], "Pauses of the garbage collector.", "counter")
    one("probe_faults", found["faults"], "Faults of the probe, which turned itself off.", "counter")
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Endpoint:
    """A port of the loopback that whichever worker gets it first serves."""

    def __init__(self, shared: Shared) -> None:
        """Read where to listen."""
        self._port, self._shared = int(os.environ.get("STAMPEDE_PROBE_METRICS") or 0), shared
        self._socket: Any = None

    def take(self) -> None:
        """Serve if nobody does; called once a second."""
        if not self._port or self._socket is not None:
            return
        import _socket  # below what gevent and eventlet replace

        one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            one.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", self._port))
            one.listen(16)
        except OSError:
            one.close()
            return
        self._socket = one
        native("_thread", "start_new_thread")(self._serve, ())

    def _serve(self) -> None:
        import _socket
        import struct

        second = struct.pack("ll", 1, 0)
        while self._socket is not None:
            try:
                descriptor, _ = self._socket._accept()
            except OSError:
                return
            try:
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
    method, _, path = asked.partition(b"\r\n")[0].partition(b" ")
    path = path.split(b" ")[0].split(b"?")[0]
    status, kind, body = "404 Not Found", "text/plain", "Ask for /metrics or /snapshot.\n"
    if path == b"/metrics":
        status, kind, body = "200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics(shared)
    elif path == b"/snapshot":
        status, kind, body = "200 OK", "application/json", json.dumps(snapshot(shared)) + "\n"
    data = body.encode()
    about = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return about.encode() + (b"" if method == b"HEAD" else data)

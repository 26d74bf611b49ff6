"""What the workers of a server are doing and have counted: as a dictionary, as Prometheus text, and over HTTP."""

from __future__ import annotations

import os
import time
from itertools import accumulate
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
        sums = shared.q[layout.H_SUMS]
        found = _read(shared)
        if sums == shared.q[layout.H_SUMS]:
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
    known, waited, avoidable = map(sum, zip((0, 0, 0), *seconds))
    return {
        "time": time.time(),
        "shared": shared.descriptor >= 0,
        "host": os.uname().nodename,
        "workers": workers,
        "threads": sum(one["threads"] for one in workers),
        "busy_threads": sum(min(one["busy"], one["threads"]) for one in workers),
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
    notes, routes, minute = found["notes"], found["routes"], found["minute"]
    busy, threads = found["busy_threads"], found["threads"]
    lines: list[str] = []

    def family(kind: str, name: str, says: str, values: float | dict[str, float] | None, *labels: str) -> None:
        """Add one value, or values by the text of their labels, with ``|`` between the texts of several labels."""
        name = f"stampede_{name}_total" if kind == "counter" else f"stampede_{name}"
        by = {} if values is None else values if isinstance(values, dict) else {"": values}
        if by:
            lines.extend([f"# HELP {name} {says}", f"# TYPE {name} {kind}"])
        for of, value in by.items():
            lines.append(f"{name}{_labels(dict(zip(labels, of.split('|', len(labels) - 1))))} {value:.10g}")

    def histogram(name: str, says: str, counts: str, total: str) -> None:
        if routes:
            lines.extend([f"# HELP stampede_{name} {says}", f"# TYPE stampede_{name} histogram"])
        for route, of in routes.items():
            for bound, amount in zip((*(f"{one:g}" for one in layout.BUCKETS_S), "+Inf"), accumulate(of[counts])):
                lines.append(f"stampede_{name}_bucket{_labels({'route': route, 'le': bound})} {amount}")
            lines.append(f"stampede_{name}_sum{_labels({'route': route})} {of[total]:.10g}")
            lines.append(f"stampede_{name}_count{_labels({'route': route})} {sum(of[counts])}")

    share = "Share of the last minute's requests that waited"
    in_flight = {str(of["pid"]): of["busy"] for of in found["workers"]}
    family("gauge", "workers", "Workers on this host.", len(found["workers"]))
    family("gauge", "threads", "Threads of all workers that serve requests.", threads)
    family("gauge", "busy_threads", "Threads at work on a request.", busy)
    family("gauge", "requests_in_flight", "Requests at work, by worker.", in_flight, "pid")
    family("gauge", "utilization_ratio", "Busy threads, divided by threads.", busy / threads if threads else None)
    family("gauge", "waited_share", f"{share} for more than 50 ms.", minute["waited_share"])
    family("gauge", "avoidable_wait_share", f"{share} avoidably for more than 50 ms.", minute["avoidable_share"])
    for name, key, says in (
        ("requests", "requests", "Requests that ended."),
        ("work_seconds", "work_s", "Time at work on requests."),
        ("avoidable_waits", "avoidable", "Requests that waited avoidably for more than 50 ms."),
    ):
        family("counter", name, says, {route: of[key] for route, of in routes.items()}, "route")
    says = "Time from X-Request-Start to the beginning of the work."
    histogram("queueing_delay_seconds", says, "delays", "delay_s")
    says = "The part in which only other workers had a free thread."
    histogram("avoidable_wait_seconds", says, "avoidables", "avoidable_s")
    family("counter", "unknown_waits", "Requests whose wait is unknown.", found["unknown"], "reason")
    says = "How far the clock of X-Request-Start was ahead at most."
    family("gauge", "clock_ahead_seconds", says, found["clock_ahead_s"])
    says = "Avoidable waits, by the route that filled the worker."
    family("counter", "filled_seconds", says, notes.get("filled by"), "route")
    says = "Time in which an event loop or hub did not go on."
    family("counter", "loop_held_seconds", says, found["held_s"])
    says = "Time in which calls waited for a thread of a full pool."
    family("counter", "pool_full_seconds", says, notes.get("pool full"), "pool")
    says = "Time of long requests and held loops, by line of code."
    family("counter", "stack_seconds", says, notes.get("stacks"), "kind", "route", "at")
    family("counter", "gc_pause_seconds", "Pauses of the garbage collector.", found["collector"]["paused_s"])
    family("counter", "probe_faults", "Faults of the probe, which turned itself off.", found["faults"])
    return "\n".join([*lines, ""])


def _labels(values: dict[str, str]) -> str:
    quoted = [
        f'{name}="{value}"'
        for name, text in values.items()
        for value in [text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")]
    ]
    return "{" + ",".join(quoted) + "}" if quoted else ""


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
        """Answer each request, whatever its path is, with the text for Prometheus."""
        import _socket
        import struct

        second = struct.pack("ll", 1, 0)
        while True:
            try:
                descriptor, _ = self._socket._accept()
            except OSError:
                return
            try:
                one = _socket.socket(fileno=descriptor)
                one.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, second)
                one.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, second)
                one.recv(8192)
                text = metrics(self._shared).encode()
                about = f"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {len(text)}"
                one.sendall(f"HTTP/1.1 200 OK\r\n{about}\r\nConnection: close\r\n\r\n".encode() + text)
                one.close()
            except OSError:
                continue
            except Exception:
                fault()

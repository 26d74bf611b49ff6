"""What the workers of a server are doing and have counted: as a dictionary, as Prometheus text, and over HTTP."""

from __future__ import annotations

import os
import time
from itertools import accumulate
from time import monotonic
from typing import Any

from stampede_probe import shared as layout
from stampede_probe.shared import BUCKETS_S, Shared
from stampede_probe.worker import fault, memory, native, state


def snapshot(shared: Shared | None = None) -> dict[str, Any]:
    """Return what the workers are doing and have counted; times in seconds.

    ``workers`` has an entry for each worker that is there, ``routes`` the sums of all workers since the server started.
    """
    shared = shared or memory()
    if state.worker is not None and not state.off:
        state.worker.judge_all()
        state.worker.write()
    now, counts = monotonic(), shared.counts()
    told = {base: shared.read(base).get("worker") for base in shared.slots() if shared.is_same(base)}
    workers = [_worker(shared, base, of, now) for base, of in told.items() if of]  # another may be taking the slot
    seconds = [of for second, of in counts.pop("seconds").items() if now - 60 < int(second) <= now]
    known, waited, avoidable = map(sum, zip((0, 0, 0), *seconds))
    return {
        "time": time.time(),
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
        **counts,
    }


def _worker(shared: Shared, base: int, told: dict[str, Any], now: float) -> dict[str, Any]:
    q, d = shared.q, shared.d
    busy, held_since = q[base + layout.BUSY], d[base + layout.HELD_SINCE]
    requests = told.pop("requests", [])[:busy]  # some may have ended since
    return {
        **told,
        "pid": q[base + layout.PID],
        "generation": q[base + layout.CLAIM],
        "up_s": now - d[base + layout.SINCE],
        "busy": busy,
        "full": bool(q[base + layout.HEAD] % 2),
        "held_s": now - held_since if held_since else 0.0,
        "idle_s": 0.0 if busy else now - d[base + layout.IDLE_SINCE],
        "requests": [
            {"since_s": max(0.0, now - began), "route": route, "delay_s": delay} for began, route, delay in requests
        ],
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
            for bound, amount in zip((*(f"{one:g}" for one in BUCKETS_S), "+Inf"), accumulate(of[counts])):
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
    family("counter", "gc_pause_seconds", "Pauses of the garbage collector.", found["collected_s"])
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

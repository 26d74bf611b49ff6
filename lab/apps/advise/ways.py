"""The ways to serve a load: workers x threads, who accepts a connection, and the balancer; what each of them needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from pydantic import ValidationError

from analysis.predict.ways import KINDS_OF_WAYS, Kind, gthread
from lab.apps.advise.load import Load
from lab.limits import SERVER_MIB, THREAD_MIB
from lab.servers import KINDS
from lab.servers.base import Variant

MOST_WORKERS = 32
_FIRST_PORT = 8001


@dataclass(frozen=True)
class Way:
    """One way to serve, as a variant that the lab can measure. ``workers`` are those of all containers together."""

    kind: Kind
    variant: Variant
    workers: int
    threads: int
    memory_mib: float
    is_today: bool = False

    @property
    def name(self) -> str:
        """A name that a variant of an experiment can have."""
        return "today" if self.is_today else f"{self.kind.name}-{self.workers}x{self.threads}"

    def configuration(self) -> str:
        """Return the configuration to paste: of the server, and of the balancer if it matters."""
        variant = self.variant
        ports = range(_FIRST_PORT, _FIRST_PORT + variant.replicas)
        match variant.server:
            case "uwsgi":
                lines = self._uwsgi()
            case "uvicorn":
                lines = [f"uvicorn --workers {variant.workers}"] if variant.replicas == 1 else []
            case _:
                lines = self._gunicorn()
        if variant.replicas == 1:
            return "\n".join(lines)
        server = variant.server.partition("-")[0]
        workers = " --workers 1" if server == "uvicorn" else ""
        where = {"uvicorn": "--host 127.0.0.1 --port ", "uwsgi": "--http-socket 127.0.0.1:"}.get(
            server, "--bind 127.0.0.1:"
        )
        lines.append(f"# start {server} {variant.replicas} times:{workers} {where}{ports[0]} to {ports[-1]}")
        if variant.balancer == "nginx":
            servers = [f"    server 127.0.0.1:{port};" for port in ports]
            return "\n".join([*lines, "", "# nginx.conf", "upstream app {", "    zone app 64k;",
                              "    least_conn;", *servers, "}"])  # fmt: skip
        servers = [f"    server w{place} 127.0.0.1:{port} maxconn {self.threads}"
                   for place, port in enumerate(ports, start=1)]  # fmt: skip
        return "\n".join([*lines, "", "# haproxy.cfg", "backend app", "    balance leastconn",
                          "    option http-server-close", *servers])  # fmt: skip

    def _gunicorn(self) -> list[str]:
        worker = getattr(self.variant, "worker_class", self.variant.server.removeprefix("gunicorn-"))
        lines = ["# gunicorn.conf.py", f'worker_class = "{worker}"', f"workers = {self.variant.workers}"]
        if self.variant.threads is not None:
            lines += ["keepalive = 0", f"threads = {self.threads}"]
        kind = self.kind.name.removeprefix("advised-")
        if kind == "idle-thread":
            lines += ["# with gunicorn 24 or later, and servers/gunicorn/idle_thread.py beside the application"]
        if kind == "limit":
            lines += ["# with gunicorn 24 or later:", f"worker_connections = {self.threads}"]
        if kind == "reuse-port":
            lines += ["# with gunicorn 24 or later:", "reuse_port = True"]
        return lines

    def _uwsgi(self) -> list[str]:
        workers = self.variant.workers
        lines = ["# uwsgi.ini", "[uwsgi]", "master = true", f"processes = {workers}", f"threads = {self.threads}"]
        if self.kind.name != "map-socket":
            return lines
        for place in range(workers):
            lines += [f"socket = 127.0.0.1:{_FIRST_PORT + place}", f"map-socket = {place}:{place + 1}"]
        servers = [f"    server 127.0.0.1:{_FIRST_PORT + place};" for place in range(workers)]
        return [*lines, "", "# nginx.conf", "upstream app {", "    zone app 64k;", "    least_conn;", *servers, "}"]


def ways(load: Load) -> Iterator[Way]:
    """Yield the ways that fit into the memory and the threads, and into the cores if requests compute."""
    today = load.today
    most_workers = load.cores if load.computes else MOST_WORKERS
    shared: dict[str, Any] = {"memory_mib": 1 << 20}
    if today is not None:
        shared = {name: getattr(today, name) for name in ("memory_mib", "cpuset") if name in today.model_fields_set}
        shared |= {"app": today.app, "cpus": 0 if load.computes else today.cpus}
    for total in _totals(load):
        for workers in _powers(load.least_workers, min(most_workers, total)):
            if total % workers:
                continue
            for kind in KINDS_OF_WAYS:
                if kind.name != "uwsgi" and kind.alone != (workers == 1):
                    continue
                settings = kind.of(workers, total // workers) | shared
                try:
                    variant = KINDS[settings["server"]].model_validate(settings)
                except ValidationError:
                    continue  # the container has too little memory, or uWSGI cannot serve the application
                way = Way(kind, variant, workers, total // workers, _memory_mib(variant, load))
                if way.memory_mib <= load.memory_mib:
                    yield way


def today(load: Load, variant: Variant) -> Way:
    """Return today's variant as a way."""
    workers = variant.workers * variant.replicas
    kind = Kind("today", "today", "", gthread)
    return Way(kind, variant, workers, variant.threads or 1, _memory_mib(variant, load), is_today=True)


def _memory_mib(variant: Variant, load: Load) -> float:
    workers = variant.workers * (load.worker_mib + (variant.threads or 1) * THREAD_MIB)
    return variant.replicas * (SERVER_MIB + workers)


def _totals(load: Load) -> list[int]:
    """Return how many threads all workers together may have: today's number, and powers of two around what is busy."""
    near = 2 ** ceil(log2(max(load.busy, 1)))
    found = {max(1, near // 2), near, 2 * near}
    if load.threads is not None:
        found = {one for one in found if one <= load.threads} | {load.threads}
    if load.today is not None:
        found.add(load.today.workers * load.today.replicas * (load.today.threads or 1))
    return sorted(found)


def _powers(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2

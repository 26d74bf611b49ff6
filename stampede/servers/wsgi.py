"""Further servers of WSGI applications: granian, uWSGI, flup, and servers on Python 3.14."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from stampede.evaluate.read.observation import APP_PORTS
from stampede.records.run import EVEN, GTHREAD_CONNECTIONS, Queueing
from stampede.servers import base
from stampede.servers.base import Release, Replaced, Threads, Variant, WsgiApp
from stampede.servers.program import UWSGI


class GranianWsgi(Variant):
    """granian with a WSGI application, whose blocking threads take requests from their worker's queue."""

    server: Literal["granian-wsgi"]
    threads: int = Field(ge=1, description="Blocking threads in each process.")
    app: Literal["wsgi"] = "wsgi"
    backpressure: int = Field(ge=1, le=65535, description="The most connections of one worker, idle ones included.")

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = ("python/granian",)
    modules: ClassVar[dict[str, str]] = {"wsgi": "counted:app"}
    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2, "backpressure": 256}

    @property
    def queueing(self) -> Queueing:
        """A worker accepts up to ``backpressure`` connections, although its blocking threads are busy."""
        return Queueing(threads=self.threads, max_connections=self.backpressure, race=EVEN, keeps_idle=True)


class Uwsgi(Replaced):
    """uWSGI: a thread accepts when it is free, from a socket that all processes share or its process's socket."""

    server: Literal["uwsgi"]
    threads: Threads
    release: Release = UWSGI.release
    app: Literal["wsgi", "django"] = Field("wsgi", description=base.FRAMEWORK)
    protocol: Literal["http", "uwsgi", "fastcgi"] = Field(
        "http", description="Protocol between the balancer and uWSGI."
    )
    thunder_lock: bool = Field(False, description="true: only one process at a time waits for a connection.")
    map_socket: bool = Field(False, description="true: each process has its own port, and the balancer chooses a port.")
    router: Literal["none", "tcp", "unix"] = Field(
        "none", description="The kind of socket between uWSGI's own HTTP router and its processes; none: no router."
    )
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "uwsgi"
    packages: ClassVar[tuple[str, ...]] = ("python/uwsgi",)

    def problems(self) -> Iterator[str]:
        """Yield also what the balancer does not speak, or what the sockets cannot."""
        yield from super().problems()
        yield from base.lock_problems("uwsgi", self.release)
        if self.balancer in ("haproxy", "envoy") and self.protocol != "http":
            yield f"{self.balancer} does not speak {self.protocol} here; choose protocol: http or balancer: nginx"
        if self.map_socket and self.workers > len(APP_PORTS):
            yield f"map_socket: {self.workers} workers are more than the {len(APP_PORTS)} ports; reduce workers"
        if self.router != "none" and (self.map_socket or self.protocol != "http"):
            wrong = "map_socket: true" if self.map_socket else f"protocol: {self.protocol}"
            yield f"router: uWSGI's router speaks HTTP on one port; leave out {wrong}"

    @property
    def queueing(self) -> Queueing:
        """A thread accepts a connection when it is free."""
        missing = "uWSGI's router" if self.router != "none" else None
        return Queueing(threads=self.threads, max_connections=self.threads, missing=missing)

    def configuration(self) -> list[str]:
        """Return uwsgi.ini, and nginx.conf if each process has a socket."""
        lines = [line for line in super().configuration() if not line.startswith("map-socket")]
        lines.insert(2, "master = true")
        if self.map_socket:
            ports = range(base.FIRST_PORT, base.FIRST_PORT + self.workers)
            for place, port in enumerate(ports):
                lines += [f"socket = 127.0.0.1:{port}", f"map-socket = {place}:{place + 1}"]
            lines += ["", *base.nginx_upstream(ports)]
        return lines


class Flup(Variant):
    """flup, the FastCGI server of Django's runfcgi, which starts and ends processes or threads as needed.

    The defaults are those of runfcgi.
    """

    server: Literal["flup-prefork", "flup-threaded"]
    workers: int = Field(ge=1, le=500, description="The most processes that flup starts; 1 for flup-threaded.")
    threads: int = Field(ge=1, le=500, description="The most threads that flup starts; 1 for flup-prefork.")
    min_spare: int = Field(2, ge=1, description="If fewer processes (or threads) than this idle, flup starts another.")
    max_spare: int = Field(5, ge=1, description="How many there are at the start; if more are idle, flup ends one.")
    quick_exit: bool = Field(False, description="true: a process ends without shutting down its interpreter.")
    app: WsgiApp = "django"
    balancer: Literal["nginx"] = "nginx"
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "flup"
    packages: ClassVar[tuple[str, ...]] = ("python/flup6",)
    example: ClassVar[dict[str, Any]] = {"workers": 10, "threads": 1}

    def problems(self) -> Iterator[str]:
        """Yield also why flup cannot start and end processes or threads as the settings say."""
        yield from super().problems()
        single, several = ("threads", "workers") if self.server == "flup-prefork" else ("workers", "threads")
        if self.quick_exit and self.server == "flup-threaded":
            yield f"quick_exit: {self.server} ends no processes; choose server: flup-prefork"
        if getattr(self, single) != 1:
            yield f"{single}: must be 1 with {self.server}, which varies its {several}"
        most = getattr(self, several)
        if not self.min_spare <= self.max_spare <= most:
            yield f"min_spare {self.min_spare}, max_spare {self.max_spare} and {several} {most} must be in rising order"

    @property
    def queueing(self) -> Queueing:
        """Theory lacks servers that start and end processes or threads as needed."""
        return Queueing(threads=self.threads, missing=f"how {self.server} serves")

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_PROTOCOL": "fastcgi"}


class Python314(Variant):
    """gunicorn's gthread worker, granian or uWSGI on a Python 3.14 with or without an interpreter lock."""

    server: Literal["python314-gunicorn", "python314-granian", "python314-uwsgi"]
    gil: bool = Field(description="Whether the interpreter has its lock (the GIL). false: the free-threaded build.")
    threads: Threads
    app: Literal["wsgi", "flask"] = Field("wsgi", description=base.FRAMEWORK)

    service: ClassVar[str] = "python314"
    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn", "python/granian", "python/uwsgi")
    build_minutes: ClassVar[int] = 4
    worker_class: ClassVar[str] = "gthread"
    example: ClassVar[dict[str, Any]] = {"workers": 1, "threads": 8, "gil": False}

    def problems(self) -> Iterator[str]:
        """Yield also that granian has no worker processes without the interpreter lock."""
        yield from super().problems()
        if self.server == "python314-granian" and not self.gil and self.workers > 1:
            yield "workers: without the interpreter lock, granian's workers are threads; use 1"

    @property
    def queueing(self) -> Queueing:
        """How gunicorn's gthread worker queues requests, granian's, which get them from the kernel, or uWSGI's."""
        if self.server == "python314-granian":
            return Queueing(threads=self.threads, race=EVEN)
        accepts = self.threads if self.server == "python314-uwsgi" else GTHREAD_CONNECTIONS
        return Queueing(threads=self.threads, max_connections=accepts)

    def configuration(self) -> list[str]:
        """Return the configuration, for uWSGI with the setting without which only its first thread answers."""
        holy = ["master = true", "wsgi-env-behaviour = holy"] if self.server == "python314-uwsgi" else []
        return [*super().configuration(), *holy]

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_SERVER": self.program, "LAB_RELEASE": "gil" if self.gil else "free"}

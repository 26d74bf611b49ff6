"""uWSGI."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stampede.evaluate.read.observation import APP_PORTS
from stampede.records.run import Queueing
from stampede.servers.base import FIRST_PORT, Release, Replaced, Threads, check_lock_file, nginx_upstream
from stampede.servers.program import UWSGI


class Uwsgi(Replaced):
    """uWSGI: a thread accepts when it is free, from a socket that all processes share or its process's socket."""

    server: Literal["uwsgi"]
    threads: Threads
    release: Release = UWSGI.release
    app: Literal["wsgi", "django"] = Field("wsgi", description="The framework of the application; wsgi: no framework.")
    protocol: Literal["http", "uwsgi", "fastcgi"] = Field(
        "http", description="The protocol between the balancer and uWSGI."
    )
    thunder_lock: bool = Field(False, description="true: only one process at a time waits for a connection.")
    map_socket: bool = Field(False, description="true: each process has its own port, and the balancer chooses a port.")
    router: Literal["none", "tcp", "unix"] = Field(
        "none", description="The kind of socket between uWSGI's own HTTP router and its processes; none: no router."
    )
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "uwsgi"
    packages: ClassVar[tuple[str, ...]] = ("python/uwsgi",)
    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2}

    @model_validator(mode="after")
    def _balancer_speaks_it(self) -> Self:
        check_lock_file("uwsgi", self.release)
        if self.balancer in ("haproxy", "envoy") and self.protocol != "http":
            raise ValueError(f"{self.balancer} does not speak {self.protocol} here; choose protocol: http or balancer: "
                             "nginx")  # fmt: skip
        if self.map_socket and self.workers > len(APP_PORTS):
            raise ValueError(
                f"map_socket: {self.workers} workers are more than the {len(APP_PORTS)} ports; reduce workers"
            )
        if self.router != "none" and (self.map_socket or self.protocol != "http"):
            wrong = "map_socket: true" if self.map_socket else f"protocol: {self.protocol}"
            raise ValueError(f"router: uWSGI's router speaks HTTP on one port; leave out {wrong}")
        return self

    @property
    def accept(self) -> Literal["shared", "per-worker"] | None:
        """per-worker with map_socket, which gives each process its own listening socket; otherwise shared.

        None with a router, because the lab observes only the sockets to which balancers connect.
        """
        if self.router != "none":
            return None
        return "per-worker" if self.map_socket else "shared"

    @property
    def ports(self) -> range:
        """The ports on which each container listens: one port, or with map_socket a port for each process."""
        return APP_PORTS[: self.workers if self.map_socket else 1]

    @property
    def queueing(self) -> Queueing:
        """A thread accepts a connection when it is free."""
        missing = "uWSGI's router" if self.router != "none" else None
        return Queueing(threads=self.threads, max_connections=self.threads, missing=missing)

    def configuration(self) -> list[str]:
        """Return uwsgi.ini, and nginx.conf if each process has a socket."""
        lines = [line for line in super().configuration() if not line.startswith("map-socket")]
        lines.insert(2, "master = true")
        if not self.map_socket:
            return lines
        ports = range(FIRST_PORT, FIRST_PORT + self.workers)
        for place, port in enumerate(ports):
            lines += [f"socket = 127.0.0.1:{port}", f"map-socket = {place}:{place + 1}"]
        return [*lines, "", *nginx_upstream(ports)]

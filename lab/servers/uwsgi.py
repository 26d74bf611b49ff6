"""uWSGI."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from analysis.read.observation import APP_PORTS
from lab.servers.base import WSGI, Release, Variant, check_lock_file


class Uwsgi(Variant):
    """uWSGI: a thread accepts when it is free, from a socket that all processes share or its process's socket."""

    server: Literal["uwsgi"]
    threads: int = Field(ge=1, description="Threads in each process.")
    release: Release = "2.0.31"
    app: Literal["wsgi", "django"] = Field("wsgi", description="The framework of the application; wsgi: no framework.")
    protocol: Literal["http", "uwsgi", "fastcgi"] = Field(
        "http", description="The protocol between the balancer and uWSGI."
    )
    thunder_lock: bool = Field(False, description="true: only one process at a time waits for a connection.")
    map_socket: bool = Field(False, description="true: each process has its own port, and the balancer chooses a port.")
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "uwsgi"
    packages: ClassVar[tuple[str, ...]] = ("python/uwsgi",)
    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2}

    @model_validator(mode="after")
    def _balancer_speaks_it(self) -> Self:
        check_lock_file("uwsgi", self.release)
        if self.balancer == "haproxy" and self.protocol != "http":
            raise ValueError(f"haproxy does not speak {self.protocol} here; choose protocol: http or balancer: nginx")
        if self.map_socket and self.workers > len(APP_PORTS):
            raise ValueError(
                f"map_socket: {self.workers} workers are more than the {len(APP_PORTS)} ports; reduce workers"
            )
        return self

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """per-worker with map_socket, which gives each process its own listening socket; otherwise shared."""
        return "per-worker" if self.map_socket else "shared"

    @property
    def ports(self) -> range:
        """The ports on which each container listens: one port, or with map_socket a port for each process."""
        return APP_PORTS[: self.workers if self.map_socket else 1]

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {
            "LAB_RELEASE": self.release,
            "LAB_APP": WSGI[self.app],
            "LAB_PROTOCOL": self.protocol,
            "LAB_THUNDER_LOCK": str(self.thunder_lock).lower(),
            "LAB_MAP_SOCKET": str(self.map_socket).lower(),
        }

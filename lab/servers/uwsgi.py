"""uWSGI."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from analysis.read.observation import APP_PORTS
from lab.servers.base import WSGI, Release, Variant, check_lock_file


class Uwsgi(Variant):
    """uWSGI: a thread accepts when it is free, from one socket that all share or from its process's own."""

    server: Literal["uwsgi"]
    threads: int = Field(ge=1, description="Threads in each process.")
    release: Release = "2.0.31"
    app: Literal["wsgi", "django"] = Field("wsgi", description="What stands between the server and the work.")
    protocol: Literal["http", "uwsgi", "fastcgi"] = Field("http", description="How the balancer speaks to it.")
    thunder_lock: bool = Field(False, description="One process at a time waits for a connection.")
    map_socket: bool = Field(False, description="Each process has a port of its own, which the balancer knows.")
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
                f"map_socket: {self.workers} workers are more than the {len(APP_PORTS)} that may have ports"
            )
        return self

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """map_socket gives every process a listening socket of its own."""
        return "per-worker" if self.map_socket else "shared"

    @property
    def ports(self) -> range:
        """Where each container listens: one port, or one for each process."""
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

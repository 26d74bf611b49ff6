"""What every server has in common: its box, and the balancer before it."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from analysis.model import Model
from analysis.nearest import nearest_first
from analysis.read.observation import APP_PORTS
from lab import limits
from lab.paths import SERVERS

RELEASE_PATTERN = r"^[0-9]+(\.[0-9]+)*$"
CPUSET_PATTERN = r"^([0-9]+([,-][0-9]+)*)?$"
Release = Annotated[str, Field(pattern=RELEASE_PATTERN)]
Balance = Literal["round_robin", "least_conn", "random_two_least_conn"]
_BALANCE: dict[str, dict[Balance, str]] = {
    "nginx": {"round_robin": "", "least_conn": "least_conn;", "random_two_least_conn": "random two least_conn;"},
    "haproxy": {"round_robin": "roundrobin", "least_conn": "leastconn", "random_two_least_conn": "random(2)"},
    "none": {"round_robin": ""},
}
LEAST_CPUS = 0.01
BALANCER_PORT = 8080
SOMAXCONN = 4096
"""What Linux allows since 5.4."""
_OF_A_BALANCER = {"replicas", "balance", "upstream_keepalive", "max_conns", "queue_timeout_s", "map_socket", "protocol"}


def check_lock_file(server: str, release: str, package: str = "") -> None:
    """Raise ValueError when an image of a server has no such release, or the release comes without a package."""
    locks = {path.stem: path.read_text(encoding="utf-8") for path in (SERVERS / server / "requirements").glob("*.txt")}
    if release not in locks:
        raise ValueError(f"{server} {release} has no lock file; there are {nearest_first(release, list(locks))}")
    having = [one for one, lock in locks.items() if f"\n{package}==" in lock]
    if package and release not in having:
        raise ValueError(f"{server} {release} has no {package} here; {', '.join(having)} has")


class Variant(Model, ABC):
    """One way of serving: what every server behind the balancer has."""

    workers: int = Field(ge=1, description="Processes in each container.")
    threads: int | None = Field(None, ge=1, description="Threads in each process that requests are served in.")
    replicas: int = Field(1, ge=1, le=32, description="Containers behind the balancer.")
    balancer: Literal["nginx", "haproxy", "none"] = Field(
        "nginx", description="What stands before the containers; none: k6 asks the only one itself."
    )
    balance: Balance = Field("round_robin", description="How the balancer chooses among the containers.")
    upstream_keepalive: int = Field(0, ge=0, le=1024, description="Idle connections it keeps to the servers; 0: none.")
    max_conns: int = Field(
        0,
        ge=0,
        le=65535,
        description="Requests that it gives to one socket at once; nginx refuses others, haproxy queues; 0: any.",
    )
    queue_timeout_s: int = Field(
        3600, ge=1, le=86400, description="How long haproxy lets a request queue before it answers 503."
    )
    cpus: float = Field(1, ge=0, le=1024, description="Cores' worth of time that each container may use; 0: any.")
    memory_mib: int = Field(256, ge=64, description="Memory that each container may use.")
    somaxconn: int = Field(SOMAXCONN, ge=1, le=65535, description="The longest listen queue that the kernel allows.")
    cpuset: str = Field("", pattern=CPUSET_PATTERN, description="Cores that it may run on, e.g. 0 or 0-1.")

    if TYPE_CHECKING:
        server: str
        app: str

    service: ClassVar[str]
    """The service of docker-compose.yml that serves this variant, from the image that is named there."""
    packages: ClassVar[tuple[str, ...]]
    """What the image is for, by the names that Image.packages has; a run records their versions."""
    example: ClassVar[dict[str, Any]]
    """What a file could say of such a variant beside the first word that its key ``server`` can be."""

    @model_validator(mode="after")
    def _engine_and_balancer_can(self) -> Self:
        if 0 < self.cpus < LEAST_CPUS:
            raise ValueError(f"cpus {self.cpus:g} is less than {LEAST_CPUS}, the least there is; 0 is any")
        if self.balancer == "nginx" and "queue_timeout_s" in self.model_fields_set:
            raise ValueError("queue_timeout_s: this nginx has no queue; choose balancer: haproxy")
        if self.balancer == "none" and (left := _OF_A_BALANCER & self.model_fields_set):
            raise ValueError(f"{min(left)}: there is no balancer to do that; choose balancer: nginx")
        return self

    @model_validator(mode="after")
    def _workers_fit(self) -> Self:
        module = self.factors()["LAB_APP"].partition(":")[0]
        if problem := limits.workers_problem(module, self.workers, self.threads or 1, self.memory_mib):
            raise ValueError(problem)
        return self

    @property
    def front(self) -> str:
        """The service that k6 asks."""
        return self.service if self.balancer == "none" else self.balancer

    @property
    def front_port(self) -> int:
        """Where it listens."""
        return self.ports[0] if self.balancer == "none" else BALANCER_PORT

    @property
    @abstractmethod
    def accept(self) -> Literal["shared", "per-worker"]:
        """Whether the workers of one container share a listening socket or have one each."""

    @property
    def elastic(self) -> bool:
        """Whether the server starts and ends workers as it needs them, up to as many as ``workers`` says."""
        return False

    @property
    def ports(self) -> range:
        """Where each container listens: one port for each that the balancer chooses among."""
        return APP_PORTS[:1]

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        kept = self.upstream_keepalive
        return {
            "LAB_WORKERS": str(self.workers),
            "LAB_THREADS": str(self.threads or ""),
            "LAB_REPLICAS": str(self.replicas),
            "LAB_CPUS": f"{self.cpus:g}",
            "LAB_CPUSET": self.cpuset,
            "LAB_MEMORY": f"{self.memory_mib}m",
            "LAB_SOMAXCONN": str(self.somaxconn),
            "LAB_UPSTREAM": " ".join(f"app:{port}" for port in self.ports),
            "LAB_BALANCE": _BALANCE[self.balancer][self.balance],
            "LAB_SERVER_MAXCONN": str(self.max_conns),
            "LAB_QUEUE_TIMEOUT_S": str(self.queue_timeout_s),
            "LAB_UPSTREAM_KEEPALIVE": str(kept) if self.balancer == "haproxy" else f"keepalive {kept};" if kept else "",
            "LAB_UPSTREAM_CONNECTION": '""' if kept else "close",
            "LAB_URL": f"http://{'app' if self.balancer == 'none' else 'balancer'}:{self.front_port}",
        }


WSGI = {"wsgi": "wsgi:app", "flask": "flask_app:app", "django": "django_app:app"}

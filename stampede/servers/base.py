"""The settings that all servers share: those of the container, and those of the balancer before it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stampede.evaluate.read.observation import APP_PORTS
from stampede.paths import SERVERS
from stampede.records.model import Model
from stampede.records.run import Queueing, VariantRecord
from stampede.records.words import nearest_first
from stampede.servers import limits
from stampede.servers.program import PROGRAMS
from stampede.servers.services import variables_of
from stampede.servers.unreleased import Unreleased, patch_of

BESIDE = "beside-"
"""How the names of services begin that a workload has beside its server."""
BEFORE = f"{BESIDE}before"
"""The service that runs a command before the server starts, and ends."""
RELEASE_PATTERN = r"^[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)?$"
CPUSET_PATTERN = r"^([0-9]+([,-][0-9]+)*)?$"
Release = Annotated[
    str, Field(pattern=RELEASE_PATTERN, description="A release of the server that has a file of locked packages.")
]
Threads = Annotated[int, Field(ge=1, description="Threads in each process.")]
WorkerConnections = Annotated[int, Field(ge=1, le=65535, description="The most connections that one worker holds.")]
MaxRequests = Annotated[
    int, Field(ge=0, le=1_000_000, description="A worker is replaced after so many requests; 0: it is never replaced.")
]
MaxRequestsJitter = Annotated[
    int, Field(ge=0, le=1_000_000, description="Up to so many requests more, by chance, before a worker is replaced.")
]
Cpus = Annotated[
    float, Field(ge=0, le=1024, description="CPU time that each container may use, in cores; 0: no limit.")
]
MemoryMib = Annotated[int, Field(ge=64, description="Memory that each container may use, in MiB.")]
UpstreamKeepalive = Annotated[
    int, Field(ge=0, le=1024, description="Idle connections that the balancer keeps open to the servers; 0: none.")
]
WsgiApp = Annotated[
    Literal["wsgi", "flask", "django"], Field(description="The framework of the application; wsgi: no framework.")
]
Balance = Literal["round_robin", "least_conn", "random_two_least_conn"]
_BALANCE: dict[str, dict[str, str]] = {
    "nginx": {"round_robin": "", "least_conn": "least_conn;", "random_two_least_conn": "random two least_conn;",
              "ewma": "ewma"},
    "haproxy": {"round_robin": "roundrobin", "least_conn": "leastconn", "random_two_least_conn": "random(2)"},
    "envoy": {"round_robin": "ROUND_ROBIN", "least_conn": "FULL_SCAN", "random_two_least_conn": "N_CHOICES"},
    "none": {"round_robin": ""},
}  # fmt: skip
LEAST_CPUS = 0.01
BALANCER_PORT = 8080
REPLICAS_MAX = 240
"""Most containers behind a balancer: a network that spans machines has 256 addresses, some of them for other services.
Before anything starts, the lab also checks that the machines have the memory."""
WSGI = {"wsgi": "wsgi:app", "flask": "flask_app:app", "django": "django_app:app"}
"""Where each application is: the frameworks of the lab's workload."""
FIRST_PORT = 8001
"""Of the servers in a configuration to paste, the port of the first."""
_BUILD = "what a build does that is not released"
SOMAXCONN = 4096
"""The default of Linux since 5.4."""
_OF_A_BALANCER = {
    "replicas", "balance", "upstream_keepalive", "resend", "max_conns", "queue_timeout_s", "map_socket", "protocol",
}  # fmt: skip


def check_lock_file(server: str, release: str, package: str = "") -> None:
    """Raise ValueError if the lab has no lock file for a release of a server, or if the lock file lacks a package."""
    locks = {path.stem: path for path in (SERVERS / server / "requirements").glob("*.txt")}
    if release not in locks:
        raise ValueError(f"{server} {release} has no lock file; there are {nearest_first(release, list(locks))}")
    if not package:
        return
    having = [name for name, lock in locks.items() if f"\n{package}==" in lock.read_text(encoding="utf-8")]
    if release not in having:
        raise ValueError(f"{server} {release} has no {package} here; releases with {package}: {', '.join(having)}")


def nginx_upstream(ports: range) -> list[str]:
    """Return the lines of nginx.conf that choose the port with the fewest requests."""
    servers = [f"    server 127.0.0.1:{port};" for port in ports]
    return ["# nginx.conf", "upstream app {", "    zone app 64k;", "    least_conn;", *servers, "}"]


class Workload(ABC):
    """An application with its image, and with services beside its server. Only its own app knows what is in it."""

    secrets: Mapping[str, str]
    """The values that requests need, by name. No file of a run may have them."""

    @abstractmethod
    def build(
        self, service: str, packages: Sequence[str], factors: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        """Build the image of a server with the application, and check it. Raise LabError if this fails."""

    @property
    @abstractmethod
    def variables(self) -> dict[str, str]:
        """The variables that Compose needs for the services. They are in no record of a run."""

    @abstractmethod
    def extend(self, resolved: dict[str, Any], server: str) -> None:
        """Add the services to a resolved Compose file, and let the service ``server`` start after them."""

    @property
    @abstractmethod
    def memory_mib(self) -> dict[str, int]:
        """The memory limits of the services, in MiB."""

    @property
    @abstractmethod
    def load_files(self) -> Path | None:
        """The folder with the files that the load script reads; None: it reads none."""

    @property
    @abstractmethod
    def application(self) -> Path | None:
        """The folder with the application; None: an image has it."""

    @abstractmethod
    def masked(self, said: bytes) -> bytes:
        """Return what a program said, with the names of secrets in the place of their values."""


class Variant(Model, ABC):
    """One way to serve requests: the settings that every server has."""

    workers: int = Field(ge=1, description="Worker processes in each container.")
    threads: int | None = Field(None, ge=1, description="Threads in each process that serve requests.")
    replicas: int = Field(1, ge=1, le=REPLICAS_MAX, description="Containers behind the balancer.")
    balancer: Literal["nginx", "haproxy", "envoy", "none"] = Field(
        "nginx", description="The balancer before the containers; none: k6 connects directly to the only container."
    )
    balance: Literal[Balance, "ewma"] = Field(
        "round_robin", description="How the balancer chooses among the containers; ewma: as ingress-nginx does."
    )
    upstream_keepalive: UpstreamKeepalive = 0
    resend: bool = Field(
        False, description="true: the balancer sends a request again if a connection breaks before the answer and "
        "sending it twice does no harm, as it does by default; false: it sends each request once."
    )  # fmt: skip
    max_conns: int = Field(
        0, ge=0, le=65535, description="Most requests on a socket at once; nginx refuses more, haproxy queues; 0: any."
    )
    queue_timeout_s: int = Field(
        3600, ge=1, le=86400, description="How long haproxy queues a request, in seconds; then it answers 503."
    )
    cpus: Cpus = 1
    memory_mib: MemoryMib = 256
    somaxconn: int = Field(SOMAXCONN, ge=1, le=65535, description="The longest listen queue that the kernel allows.")
    cpuset: str = Field(
        "", pattern=CPUSET_PATTERN, description="The cores that each container may run on, e.g. 0 or 0-1; empty: all."
    )

    probe: bool = Field(
        False, description="true: stampede-probe is in the workers, and nginx says in X-Request-Start when each came."
    )

    if TYPE_CHECKING:
        server: str
        app: str

    service: ClassVar[str]
    """The service of docker-compose.yml that serves this variant. The service names its image."""
    packages: ClassVar[tuple[str, ...]]
    """The main packages of the image, by their names in Image.packages. A run records their versions."""
    build_minutes: ClassVar[int] = 0
    """How many minutes the image takes to build, if it takes minutes. Then only the experiments that need the image
    build it."""
    modules: ClassVar[dict[str, str]] = WSGI
    """Where each application of ``app`` is: a module and a name in it."""
    asks_database: ClassVar[tuple[str, ...]] = ("django",)
    """The applications of ``app`` that can ask a database."""
    threads_of_server: ClassVar[bool] = True
    """Whether ``threads`` are the server's, and not those of a pool in the application."""
    example: ClassVar[dict[str, Any]]
    """Example settings of a variant whose ``server`` is the first word that the class allows."""

    @model_validator(mode="after")
    def _engine_and_balancer_can(self) -> Self:
        if 0 < self.cpus < LEAST_CPUS:
            raise ValueError(f"cpus {self.cpus:g} must be at least {LEAST_CPUS}, or 0 for no limit")
        if self.balancer in ("nginx", "envoy") and "queue_timeout_s" in self.model_fields_set:
            raise ValueError(f"queue_timeout_s: {self.balancer} does not queue requests here; choose balancer: haproxy")
        for name in ("resend", "max_conns", "upstream_keepalive") if self.balancer == "envoy" else ():
            if getattr(self, name):
                raise ValueError(f"{name}: envoy sends each request once, at once, on a connection of its own here; "
                                 "choose balancer: nginx or haproxy")  # fmt: skip
        if self.probe and self.service not in ("gunicorn", "asgi"):
            raise ValueError(
                f"probe: {self.server} is measured without it; choose a gunicorn, uvicorn, granian or hypercorn"
            )
        if self.balancer == "none" and (left := _OF_A_BALANCER & self.model_fields_set):
            raise ValueError(f"{min(left)}: balancer: none cannot do this; choose balancer: nginx")
        if self.balance == "ewma" and (self.balancer != "nginx" or self.max_conns):
            raise ValueError("balance: ewma is nginx's here, and knows no max_conns; choose balancer: nginx without it")
        return self

    @model_validator(mode="after")
    def _workers_fit(self) -> Self:
        build = self.unreleased
        if build and build.kind == "wheel" and not build.path.name.startswith(f"{self.program}-"):
            raise ValueError(f"release.wheel: {build.name} is no wheel of {self.program}")
        if build and build.kind == "patch":
            try:
                patch_of(build.path.read_text(encoding="utf-8"), self.program)
            except ValueError as error:
                raise ValueError(f"release.patch: {build.name}: {error}") from None
        module = self.factors()["LAB_APP"].partition(":")[0]
        if problem := limits.workers_problem(module, self.workers, self.threads or 1, self.memory_mib):
            raise ValueError(problem)
        return self

    @property
    def workload(self) -> Workload | None:
        """What the server serves; None: the lab's own workload."""
        return None

    @property
    def program(self) -> str:
        """The package of the server, such as gunicorn."""
        return self.server.partition("-")[0]

    @property
    def unreleased(self) -> Unreleased | None:
        """The build of the server that is not released; None: it is the release of the lock file."""
        release = getattr(self, "release", None)
        return release if isinstance(release, Unreleased) else None

    @property
    def front(self) -> str:
        """The service that k6 connects to: the balancer, or the server if there is no balancer."""
        return self.service if self.balancer == "none" else self.balancer

    @property
    def front_port(self) -> int:
        """The port on which the front listens."""
        return self.ports[0] if self.balancer == "none" else BALANCER_PORT

    @property
    def accept(self) -> Literal["shared", "per-worker"] | None:
        """Whether the workers of one container share a listening socket, or each have their own; None: not known."""
        known = PROGRAMS.get(self.program)
        return "per-worker" if known and "own sockets" in known.first else "shared"

    @property
    @abstractmethod
    def queueing(self) -> Queueing:
        """How one worker queues requests, for theory and for pictures."""

    @property
    def queueing_of_build(self) -> Queueing:
        """How one worker of a build that is not released queues requests, as far as theory can know it."""
        return Queueing(threads=self.threads, missing=_BUILD)

    def configuration(self) -> list[str]:
        """Return the lines with which the server serves like that outside the lab; none: the lab does not know them."""
        if not (known := PROGRAMS.get(self.program)):
            return []
        names = [name for name in known.names if name != "threads" or self.threads_of_server]
        settings = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        return known.pasted(known.unusual(known.options(settings)))

    def deployment(self) -> str:
        """Return the configuration to paste: of the server, and of the balancer if there are several containers."""
        lines = self.configuration()
        if self.replicas == 1:
            return "\n".join(lines)
        ports = range(FIRST_PORT, FIRST_PORT + self.replicas)
        listens = PROGRAMS[self.program].listens_with if self.program in PROGRAMS else "--bind 127.0.0.1:"
        lines.append(f"# start {self.program} {self.replicas} times: {listens}{ports[0]} to {ports[-1]}")
        if self.balancer == "nginx":
            return "\n".join([*lines, "", *nginx_upstream(ports)])
        servers = [f"    server w{place} 127.0.0.1:{port} maxconn {self.max_conns}"
                   for place, port in enumerate(ports, start=1)]  # fmt: skip
        return "\n".join([*lines, "", "# haproxy.cfg", "backend app", "    balance leastconn",
                          "    option http-server-close", *servers])  # fmt: skip

    @property
    def elastic(self) -> bool:
        """Whether the server starts and ends workers as needed, up to ``workers``."""
        return False

    @property
    def can_deadlock(self) -> bool:
        """Whether a client that connects and says nothing for a while can stop a worker for ever."""
        return False

    @property
    def idle_limit(self) -> tuple[int, float] | None:
        """At how many connections, idle ones included, a worker accepts no more, and for how long it keeps idle ones.

        Seconds; None: idle connections keep nobody waiting.
        """
        return None

    def record(self, name: str) -> VariantRecord:
        """Return how a run records the variant."""
        return VariantRecord(
            name=name,
            workers=self.workers * self.replicas,
            elastic=self.elastic,
            accept=self.accept,
            queueing=self.queueing_of_build if self.unreleased else self.queueing,
            settings=self.model_dump(mode="json"),
        )

    @property
    def ports(self) -> range:
        """The ports on which each container listens; the balancer chooses among them."""
        return APP_PORTS[:1]

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads: the field ``x`` is LAB_X there."""
        kept = self.upstream_keepalive
        read = {name for service in (self.service, "nginx", "haproxy", "envoy") for name in variables_of(service)}
        own = {f"LAB_{name.upper()}": setting_text(getattr(self, name)) for name in type(self).model_fields}
        return {name: value for name, value in own.items() if name in read} | {
            "LAB_APP": self.modules[self.app],
            "LAB_CPUS": f"{self.cpus:g}",
            "LAB_MEMORY": f"{self.memory_mib}m",
            "LAB_UPSTREAM": " ".join(f"app:{port}" for port in self.ports),
            "LAB_BALANCE": _BALANCE[self.balancer][self.balance],
            "LAB_SERVER_MAXCONN": str(self.max_conns),
            **({"LAB_UNRELEASED": f"-{self.program}-{self.unreleased.tag}"} if self.unreleased else {}),
            "LAB_UPSTREAM_KEEPALIVE": str(kept) if self.balancer == "haproxy" else f"keepalive {kept};" if kept else "",
            "LAB_UPSTREAM_CONNECTION": '""' if kept else "close",
            "LAB_URL": f"http://{'app' if self.balancer == 'none' else 'balancer'}:{self.front_port}",
        }


class Replaced(Variant, ABC):
    """A server that can replace its workers. The time that an application takes to start is its own setting."""

    max_requests: MaxRequests = 0
    max_requests_jitter: MaxRequestsJitter = 0
    hup_after_s: float = Field(
        0, ge=0, le=3600, description="The server gets HUP so many seconds after the load begins; 0: never."
    )
    term_after_s: float = Field(
        0, ge=0, le=3600, description="The replicas are restarted by SIGTERM, one after another, so many seconds after "
        "the load begins; 0: never. nginx learns of each a second later, and passes it requests when it is ready.",
    )  # fmt: skip
    pre_stop_s: float = Field(
        0, ge=0, le=60, description="How long each replica goes on before it gets SIGTERM, as with a preStop hook."
    )
    boot_s: float = Field(0, ge=0, le=20, description="How long a worker sleeps before it loads the application.")

    @model_validator(mode="after")
    def _workers_can_be_replaced(self) -> Self:
        if self.max_requests and "max_requests" not in PROGRAMS[self.program].names:
            others = "uvicorn, uwsgi or gunicorn-…"
            raise ValueError(f"max_requests: {self.server} does not count here; choose server: {others}")
        if self.max_requests_jitter and self.server == "uwsgi":
            raise ValueError("max_requests_jitter: uWSGI adds nothing by chance; leave it out")
        if self.max_requests_jitter and not self.max_requests:
            raise ValueError("max_requests_jitter: give max_requests, too")
        if self.hup_after_s and self.server == "hypercorn":
            raise ValueError("hup_after_s: hypercorn ends when it gets HUP; choose another server")
        if self.hup_after_s and self.workers == 1 and not self.server.startswith(("gunicorn", "uwsgi")):
            raise ValueError(f"hup_after_s: {self.server} with one worker has nobody who replaces it; use 2 or more")
        if self.pre_stop_s and not self.term_after_s:
            raise ValueError("pre_stop_s: give term_after_s, too")
        if self.term_after_s and self.balancer != "nginx":
            raise ValueError(f"term_after_s: the lab tells nginx of a restart, not {self.balancer}; use nginx")
        if self.term_after_s and self.replicas == 1:
            raise ValueError("term_after_s: while one replica is away, nginx needs another; use replicas: 2 or more")
        return self

    @property
    def elastic(self) -> bool:
        """Whether workers come and go during the load."""
        return bool(self.max_requests or self.hup_after_s or self.term_after_s)


def setting_text(value: object) -> str:
    """Return the value of a setting as a file writes it; empty: it has none."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)

"""The settings that all servers share: those of the container, and those of the balancer before it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import Field, model_validator

from stampede.evaluate.read.observation import APP_PORTS
from stampede.paths import SERVERS
from stampede.records.model import Model
from stampede.records.run import Queueing, VariantRecord
from stampede.records.words import nearest_first
from stampede.servers.program import PROGRAMS
from stampede.servers.services import services, variables_of
from stampede.servers.unreleased import Unreleased

BESIDE = "beside-"
"""How the names of services begin that a workload has beside its server."""
BEFORE = f"{BESIDE}before"
"""The service that runs a command before the server starts, and ends."""
RELEASE_PATTERN = r"^[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)?$"
CPUSET_PATTERN = r"^([0-9]+([,-][0-9]+)*)?$"
Release = Annotated[str, Field(pattern=RELEASE_PATTERN, description="A release that has a file of locked packages.")]
Threads = Annotated[int, Field(ge=1, description="Threads in each process.")]
Cpus = Annotated[float, Field(ge=0, le=1024, description="CPU time of each container, in cores; 0: no limit.")]
MemoryMib = Annotated[int, Field(ge=64, description="Memory that each container may use, in MiB.")]
UpstreamKeepalive = Annotated[
    int, Field(ge=0, le=1024, description="Idle connections that the balancer keeps open to the servers; 0: none.")
]
FRAMEWORK = "The framework of the application; wsgi: no framework."
WsgiApp = Annotated[Literal["wsgi", "flask", "django"], Field(description=FRAMEWORK)]
Balance = Literal["round_robin", "least_conn", "random_two_least_conn"]
_BALANCE: dict[str, dict[str, str]] = {
    "nginx": {"round_robin": "", "least_conn": "least_conn;", "random_two_least_conn": "random two least_conn;",
              "ewma": "ewma"},
    "haproxy": {"round_robin": "roundrobin", "least_conn": "leastconn", "random_two_least_conn": "random(2)"},
    "envoy": {"round_robin": "ROUND_ROBIN", "least_conn": "FULL_SCAN", "random_two_least_conn": "N_CHOICES"},
    "none": {"round_robin": ""},
}  # fmt: skip
WORKER_MIB = {"wsgi": 8, "counted": 10, "flask_app": 18, "django_app": 20, "fastapi_app": 30, "own": 18}
"""The memory of each worker, by the module of its application; of somebody's own application, at least so much."""
SERVER_MIB, THREAD_MIB = 14, 0.02
"""The memory that a server needs beside its workers, and that of a thread (docs/develop/benchmarks.md)."""
BALANCER_PORT, GRANIAN_IDLE_S = 8080, 30
"""The port of each balancer, and for how long granian keeps an idle connection."""
FIRST_PORT = 8001
"""Of the servers in a configuration to paste, the port of the first."""
_NO_QUEUE = {"queue_timeout_s": "does not queue requests here; choose balancer: haproxy"}
_ONCE = "sends each request once, at once, on a connection of its own here; choose balancer: nginx or haproxy"
_OF_BALANCERS = ("balance", "map_socket", "max_conns", "protocol", "queue_timeout_s", "replicas", "resend",
                 "upstream_keepalive")  # fmt: skip
_CANNOT: dict[str, dict[str, str]] = {
    "nginx": _NO_QUEUE,
    "haproxy": {},
    "envoy": _NO_QUEUE | dict.fromkeys(("resend", "max_conns", "upstream_keepalive"), _ONCE),
    "none": dict.fromkeys(_OF_BALANCERS, "cannot do this; choose balancer: nginx"),
}
"""The settings that have no effect with a balancer, and the way out."""


def lock_problems(server: str, release: str, *packages: str) -> Iterator[str]:
    """Yield what is wrong if a release of a server has no lock file here, or if its lock file lacks a package."""
    locks = {path.stem: path for path in (SERVERS / server / "requirements").glob("*.txt")}
    if release not in locks:
        yield f"{server} {release} has no lock file; there are {nearest_first(release, list(locks))}"
    for package in packages:
        having = [name for name, lock in locks.items() if f"\n{package}==" in lock.read_text(encoding="utf-8")]
        if release not in having:
            yield f"{server} {release} has no {package} here; releases with {package}: {', '.join(having)}"


def nginx_upstream(ports: range) -> list[str]:
    """Return the lines of nginx.conf that choose the port with the fewest requests."""
    servers = [f"    server 127.0.0.1:{port};" for port in ports]
    return ["# nginx.conf", "upstream app {", "    zone app 64k;", "    least_conn;", *servers, "}"]


class Workload(Protocol):
    """An application with its image, and with services beside its server. Only its own app knows what is in it."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """The values that requests need, by name. No file of a run may have them."""

    @property
    def variables(self) -> dict[str, str]:
        """The variables that Compose needs for the services. They are in no record of a run."""

    @property
    def memory_mib(self) -> dict[str, int]:
        """The memory limits of the services, in MiB."""

    @property
    def load_files(self) -> Path | None:
        """The folder with the files that the load script reads; None: it reads none."""

    @property
    def application(self) -> Path | None:
        """The folder with the application; None: an image has it."""

    def build(self, service: str, factors: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Build the image of a server with the application, and check it. Raise LabError if this fails."""

    def extend(self, resolved: dict[str, Any], server: str) -> None:
        """Add the services to a resolved Compose file, and let the service ``server`` start after them."""

    def masked(self, said: bytes) -> bytes:
        """Return what a program said, with the names of secrets in the place of their values."""


class Variant(Model, ABC):
    """One way to serve requests: the settings that every server has."""

    workers: int = Field(ge=1, description="Worker processes in each container.")
    threads: int | None = Field(None, ge=1, description="Threads in each process that serve requests.")
    # a network that spans machines has 256 addresses, some of them for other services
    replicas: int = Field(1, ge=1, le=240, description="Containers behind the balancer.")
    balancer: Literal["nginx", "haproxy", "envoy", "none"] = Field(
        "nginx", description="The balancer before the containers; none: k6 connects directly to the only container."
    )
    balance: Literal[Balance, "ewma"] = Field(
        "round_robin", description="How the balancer chooses among the containers; ewma: as ingress-nginx does."
    )
    upstream_keepalive: UpstreamKeepalive = 0
    resend: bool = Field(
        False, description="true: if a connection breaks before the answer, and sending twice does no harm, the "
        "balancer sends a request again, as it does by default; false: it sends each request once.",
    )  # fmt: skip
    max_conns: int = Field(
        0, ge=0, le=65535, description="Most requests on a socket at once; nginx refuses more, haproxy queues; 0: any."
    )
    queue_timeout_s: int = Field(3600, ge=1, le=86400, description="Seconds that haproxy queues a request; then 503.")
    cpus: Cpus = 1
    memory_mib: MemoryMib = 256
    # the default of Linux since 5.4
    somaxconn: int = Field(4096, ge=1, le=65535, description="The longest listen queue that the kernel allows.")
    cpuset: str = Field("", pattern=CPUSET_PATTERN, description="The cores of each container, as 0 or 0-1; empty: all.")
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
    """How many minutes the image takes to build; 0: it is quick, and built although no experiment needs it yet."""
    modules: ClassVar[dict[str, str]] = {"wsgi": "wsgi:app", "flask": "flask_app:app", "django": "django_app:app"}
    """Where each application of ``app`` is: a module and a name in it."""
    interface: ClassVar[Literal["wsgi", "asgi"]] = "wsgi"
    """What the server calls; ``threads`` of an ASGI application are those of a pool in it, and not the server's."""
    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2}
    """Example settings of a variant whose ``server`` is the first word that the class allows."""

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if problem := next(self.problems(), None):
            raise ValueError(problem)
        return self

    def problems(self) -> Iterator[str]:
        """Yield why the settings do not fit together, and the way out; the first is told."""
        if 0 < self.cpus < 0.01:
            yield f"cpus {self.cpus:g} must be at least 0.01, or 0 for no limit"
        for name, why in _CANNOT[self.balancer].items():
            if name in type(self).model_fields and getattr(self, name) != type(self).model_fields[name].default:
                yield f"{name}: balancer: {self.balancer} {why}"
        if self.probe and self.service not in ("gunicorn", "asgi"):
            yield f"probe: {self.server} is measured without it; choose a gunicorn, uvicorn, granian or hypercorn"
        if self.balance == "ewma" and (self.balancer != "nginx" or self.max_conns):
            yield "balance: ewma is nginx's here, and knows no max_conns; choose balancer: nginx without it"
        if self.unreleased and (problem := self.unreleased.problem(self.program)):
            yield f"release.{problem}"
        workers, threads = self.workers, self.threads or 1
        each_mib = WORKER_MIB[self.modules[self.app].partition(":")[0]] + threads * THREAD_MIB
        if (needed_mib := SERVER_MIB + workers * each_mib) > self.memory_mib:
            fit = max(0, int((self.memory_mib - SERVER_MIB) / each_mib))
            sum_ = f"{SERVER_MIB} + {workers:,} x {each_mib:g} = {needed_mib:,.0f} MiB"
            yield f"{workers:,} workers need about {sum_}, but memory_mib is {self.memory_mib:,}; at most {fit:,} fit"
        if (tasks := workers * (1 + threads)) > (most := services()["gunicorn"]["pids_limit"]):
            product = f"{workers:,} x (1 + {threads:,}) = {tasks:,} processes and threads"
            yield f"{product} are more than the {most:,} that a container may have"

    @property
    def workload(self) -> Workload | None:
        """What the server serves; None: the lab's own workload."""
        return None

    @property
    def program(self) -> str:
        """The package of the server, such as gunicorn."""
        return self.server.removeprefix("python314-").partition("-")[0]

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
        """Whether the workers of one container share a listening socket, or each have their own.

        None with a router, because the lab observes only the sockets to which balancers connect.
        """
        if getattr(self, "router", "none") != "none":
            return None
        known = PROGRAMS.get(self.program)
        own = getattr(self, "reuse_port", False) or getattr(self, "map_socket", False)
        return "per-worker" if own or (known and "own sockets" in known.first) else "shared"

    @property
    @abstractmethod
    def queueing(self) -> Queueing:
        """How one worker queues requests, for theory and for pictures."""

    def configuration(self) -> list[str]:
        """Return the lines with which the server serves like that outside the lab; none: the lab does not know them."""
        if not (known := PROGRAMS.get(self.program)):
            return []
        names = [name for name in known.names if name != "threads" or self.interface == "wsgi"]
        settings = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        return known.pasted(known.unusual_options(settings))

    def deployment(self) -> str:
        """Return the configuration to paste: of the server, and of the balancer if there are several containers."""
        lines = self.configuration()
        if self.replicas == 1:
            return "\n".join(lines)
        ports = range(FIRST_PORT, FIRST_PORT + self.replicas)
        listens = PROGRAMS[self.program].listens_with if self.program in PROGRAMS else "--bind 127.0.0.1:"
        lines += [f"# start {self.program} {self.replicas} times: {listens}{ports[0]} to {ports[-1]}", ""]
        if self.balancer == "nginx":
            return "\n".join([*lines, *nginx_upstream(ports)])
        lines += ["# haproxy.cfg", "backend app", "    balance leastconn", "    option http-server-close"]
        for number, port in enumerate(ports, start=1):
            lines.append(f"    server w{number} 127.0.0.1:{port} maxconn {self.max_conns}")
        return "\n".join(lines)

    @property
    def elastic(self) -> bool:
        """Whether workers come and go during the load, up to ``workers`` at once."""
        replaced = isinstance(self, Replaced) and (self.max_requests or self.hup_after_s or self.term_after_s)
        return bool(replaced) or self.server == "flup-prefork"

    @property
    def can_deadlock(self) -> bool:
        """Whether a client that connects and says nothing for a while can stop a worker for ever."""
        return False

    @property
    def idle_limit(self) -> tuple[int, float] | None:
        """At how many connections, idle ones included, a worker accepts no more, and for how long it keeps idle ones.

        Seconds; None: idle connections keep nobody waiting. At uvicorn's limit, requests are refused.
        """
        return (most, GRANIAN_IDLE_S) if (most := getattr(self, "backpressure", None)) else None

    def record(self, name: str) -> VariantRecord:
        """Return how a run records the variant.

        Of a build that is not released, theory knows only the class of workers that it is like.
        """
        queueing, like = self.queueing, getattr(self.unreleased, "like", None)
        if like:
            queueing = self.model_copy(update={"worker_class": like}).queueing
        elif self.unreleased:
            queueing = Queueing(threads=self.threads, missing="what a build does that is not released")
        workers, settings = self.workers * self.replicas, self.model_dump(mode="json")
        return VariantRecord(
            name=name, workers=workers, elastic=self.elastic, accept=self.accept, queueing=queueing, settings=settings
        )

    @property
    def ports(self) -> range:
        """The ports on which each container listens; the balancer chooses among them."""
        return APP_PORTS[: self.workers if getattr(self, "map_socket", False) else 1]

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
            **({"LAB_UNRELEASED": f"-{self.program}-{self.unreleased.sha256[:12]}"} if self.unreleased else {}),
            "LAB_UPSTREAM_KEEPALIVE": str(kept) if self.balancer == "haproxy" else f"keepalive {kept};" if kept else "",
            "LAB_UPSTREAM_CONNECTION": '""' if kept else "close",
            "LAB_URL": f"http://{'app' if self.balancer == 'none' else 'balancer'}:{self.front_port}",
        }


class Replaced(Variant, ABC):
    """A server that can replace its workers. The time that an application takes to start is its own setting."""

    max_requests: int = Field(0, ge=0, le=1_000_000, description="Requests after which a worker is replaced; 0: never.")
    max_requests_jitter: int = Field(0, ge=0, le=1_000_000, description="Up to so many requests more, by chance.")
    hup_after_s: float = Field(0, ge=0, le=3600, description="Seconds of load until the server gets HUP; 0: never.")
    term_after_s: float = Field(
        0, ge=0, le=3600, description="The replicas are restarted by SIGTERM, one after another, so many seconds after "
        "the load begins; 0: never. nginx learns of each a second later, and passes it requests when it is ready.",
    )  # fmt: skip
    pre_stop_s: float = Field(0, ge=0, le=60, description="How long a replica goes on before SIGTERM (a preStop hook).")
    boot_s: float = Field(0, ge=0, le=20, description="How long a worker sleeps before it loads the application.")

    def problems(self) -> Iterator[str]:
        """Yield also why workers cannot be replaced as the settings say."""
        yield from super().problems()
        if self.max_requests and "max_requests" not in PROGRAMS[self.program].names:
            yield f"max_requests: {self.server} does not count here; choose server: uvicorn, uwsgi or gunicorn-…"
        if self.max_requests_jitter and self.server == "uwsgi":
            yield "max_requests_jitter: uWSGI adds nothing by chance; leave it out"
        if self.max_requests_jitter and not self.max_requests:
            yield "max_requests_jitter: give max_requests, too"
        if self.hup_after_s and self.server == "hypercorn":
            yield "hup_after_s: hypercorn ends when it gets HUP; choose another server"
        if self.hup_after_s and self.workers == 1 and not self.server.startswith(("gunicorn", "uwsgi")):
            yield f"hup_after_s: {self.server} with one worker has nobody who replaces it; use 2 or more"
        if self.pre_stop_s and not self.term_after_s:
            yield "pre_stop_s: give term_after_s, too"
        if self.term_after_s and self.balancer != "nginx":
            yield f"term_after_s: the lab tells nginx of a restart, not {self.balancer}; use nginx"
        if self.term_after_s and self.replicas == 1:
            yield "term_after_s: while one replica is away, nginx needs another; use replicas: 2 or more"


def setting_text(value: object) -> str:
    """Return the value of a setting as a file writes it; empty: it has none."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)

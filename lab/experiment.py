"""Experiment files: one YAML file is one question, and nothing in it goes unread."""

import json
import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import psutil
import yaml
from pydantic import AfterValidator, Field, StrictInt, ValidationError, model_validator

from analysis.observation import APP_PORTS
from analysis.quantities import NAME_PATTERN, Claim, Curve, Model, Name, Published, Quantity
from analysis.run_folder import OTHERS_CORES
from lab import limits
from lab.errors import WrongUse, nearest_first
from lab.loads import CLIENT_SCRIPTS, K6_SCRIPTS, RELATIVE, VISIT_REQUESTS, WrongSetting
from lab.loads import Script as Known
from lab.paths import CLIENTS, EXPERIMENTS, K6, SERVERS

DURATION_PATTERN = r"^[1-9][0-9]*(s|m)$"
DURATION_MAX_S = 24 * 3600


def _short_enough(duration: str) -> str:
    if not re.fullmatch(DURATION_PATTERN, duration):
        raise ValueError(f"{duration!r} is neither whole seconds nor minutes, such as 90s or 5m")
    if in_seconds(duration) > DURATION_MAX_S:
        raise ValueError(f"{duration} is longer than a day, which is the longest that a load may last")
    return duration


Duration = Annotated[
    str,
    AfterValidator(_short_enough),
    Field(description="Whole seconds or minutes: 90s, 5m.", json_schema_extra={"pattern": DURATION_PATTERN}),
]
SettingName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
SettingNumber = StrictInt | Annotated[float, Field(strict=True, allow_inf_nan=False)]
SettingText = Annotated[str, Field(pattern=r"^[^'\\\x00-\x1f\x7f]*$")]
"""It stands between single quotes in an env file, where Compose takes a backslash before the last one for an escape."""
SET_BY_THE_LAB = {"duration", "start_after", "start_at_ms", "lab_url", "lab_server", "cpu", "call_us"}
Release = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]
LAST_ANSWER_WITHIN_S = 60
SLACK_S = 5
"""As in k6/lib/shapes.js."""


class Durations(Model):
    """How long a load lasts: ``short`` by default, ``full`` as it was published."""

    short: Duration
    full: Duration


class Source(Model):
    """Where the published figures come from, and what it does not say of its set-up."""

    title: str
    publisher: str
    year: int | None = None
    unknown: list[str] = Field([])


class Script(Model):
    """A program that asks, and its settings, which reach it as upper-case environment variables."""

    script: str
    settings: dict[SettingName, SettingNumber | SettingText] = Field({})

    programs: ClassVar[tuple[Path, Mapping[str, Known]]]
    """The folder that holds them, and what each of them can be asked for."""

    @model_validator(mode="after")
    def _script_can(self) -> Self:
        folder, known = self.programs
        if self.script not in known:
            there = nearest_first(self.script, list(known))
            exists = self.script in {path.name for path in folder.iterdir()}
            problem = "has no entry in lab/loads.py" if exists else "does not exist"
            raise ValueError(f"{folder.name}/{self.script} {problem}; there are {there}")
        if taken := self.settings.keys() & SET_BY_THE_LAB:
            raise WrongSetting("the lab itself sets this; leave it out", min(taken))
        self._check(known[self.script])
        return self

    def _check(self, known: Known) -> None:
        """Raise WrongSetting where the script cannot be asked for this."""
        known.check(self.script, self.settings, generators=1)

    def environment(self) -> dict[str, str]:
        """Return the settings as the script reads them."""
        return {name.upper(): str(value) for name, value in self.settings.items()}


class Client(Script):
    """A client that misbehaves as k6 cannot, and asks the server past the balancer."""

    programs = (CLIENTS, CLIENT_SCRIPTS)


class Api(Model):
    """A service that the application calls, and its stalls, which are counted from the first call."""

    one_device: bool = Field(False, description="It works on one call at a time, a slice for each in turn.")
    first_s: float = Field(0, ge=0, le=3600, description="When it stalls first, after the first call.")
    every_s: float = Field(3600, gt=0, le=3600, description="How often it stalls.")
    stall_s: float = Field(0, ge=0, le=3600, description="How long a stall lasts; 0: there is none.")
    takes_s: float = Field(0, ge=0, le=30, description="How long a call takes that comes during a stall.")

    @model_validator(mode="after")
    def _stalls_end(self) -> Self:
        if self.stall_s >= self.every_s:
            raise ValueError(f"a stall of {self.stall_s:g} s every {self.every_s:g} s never ends")
        return self

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return {f"LAB_API_{name.upper()}": _as_factor(value) for name, value in self.model_dump().items()}


class Database(Model):
    """A database of the application's own, empty at the beginning of each trial."""

    max_connections: int = Field(151, ge=10, le=1000, description="More than so many at once it refuses.")

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return {"LAB_DATABASE": DATABASE, "LAB_DATABASE_CONNECTIONS": str(self.max_connections)}


DATABASE = "mariadb"
"""The service that is the database, and its name on the lab's network."""


class Relative(Model):
    """A rate that follows from what another load has shown in the same round."""

    times: float = Field(gt=0, le=100, description="So many times the capacity.")
    of: Name = Field(description="The variant whose capacity it is.")
    under: Name = Field(description="The load under which it shows its capacity: one whose rate climbs.")


def _as_factor(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


Cpu = Literal["hold", "burn"]
"""How a request computes: really, or by holding the interpreter lock without using a core."""


class Load(Script):
    """One way of asking: a k6 script, how long, and perhaps somebody who misbehaves meanwhile.

    Requests compute where there is a setting ``cpu_ms``: ``rounds`` times, after waiting for ``wait_ms`` each time.
    """

    loop: Literal["closed", "open"] = Field("closed", description="Whether a user waits for an answer before the next.")
    duration: Durations
    generators: int = Field(1, ge=1, le=16, description="k6 containers that share it.")
    client: Client | None = Field(None, description="A client that misbehaves beside k6.")
    api: Api | None = Field(None, description="A service that the application calls.")
    database: Database | None = Field(None, description="The application's database.")
    overloads: bool = Field(False, description="It asks for more than can be answered: failures are findings.")
    relative: Relative | None = Field(
        None, description="Its rate, first_per_s and last_per_s, is relative to a capacity."
    )
    variants: list[Name] = Field([], description="Only these are measured under this load; left out: all.")

    programs = (K6, K6_SCRIPTS)

    def _check(self, known: Known) -> None:
        """Raise WrongSetting where the script cannot be asked for this, or the rate is said twice."""
        if self.relative and (twice := RELATIVE & self.settings.keys()):
            raise WrongSetting("relative says the rate; leave one of them out", min(twice))
        known.check(self.script, self.settings, self.generators, relative=self.relative is not None)

    def k6_mib(self, duration: str) -> int:
        """Return how much memory each of its k6 containers may use when it lasts so long, in MiB."""
        return limits.k6_mib(self.script, self.settings, in_seconds(duration), self.generators)

    @property
    def climbs(self) -> bool:
        """Whether its rate climbs, so that a capacity shows."""
        first, last = (self.settings.get(name) for name in ("first_per_s", "last_per_s"))
        return isinstance(first, int | float) and isinstance(last, int | float) and first < last

    def at(self, visits_per_s: float | None) -> "Load":
        """Return the load with its rate, if that is relative. Raise WrongSetting when k6 cannot send so much."""
        if visits_per_s is None:
            return self
        rate = max(1, round(visits_per_s))
        settings = self.settings | {"first_per_s": rate, "last_per_s": rate}
        K6_SCRIPTS[self.script].check(self.script, settings, self.generators)
        return self.model_copy(update={"settings": settings})

    def last_answer_within_s(self, duration: str) -> float:
        """Return how long k6 waits for what is under way when the load has ended, as in k6/lib/shapes.js."""
        if self.script != "visits.js":
            return LAST_ANSWER_WITHIN_S
        step_s, timeout_steps = (float(self.settings[name]) for name in ("step_s", "timeout_steps"))
        return VISIT_REQUESTS * timeout_steps * min(step_s, in_seconds(duration)) + SLACK_S

    @property
    def computes(self) -> bool:
        """Whether its requests compute."""
        return "cpu_ms" in self.settings

    def is_for(self, variant: str) -> bool:
        """Whether a variant is measured under this load."""
        return not self.variants or variant in self.variants


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


def _check_lock_file(server: str, release: str, package: str = "") -> None:
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
    memory_mib: int = Field(512, ge=64, description="Memory that each container may use.")
    somaxconn: int = Field(SOMAXCONN, ge=1, le=65535, description="The longest listen queue that the kernel allows.")
    cpuset: str = Field("", pattern=r"^([0-9]+([,-][0-9]+)*)?$", description="Cores that it may run on, e.g. 0 or 0-1.")

    service: ClassVar[str]

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
        module = self.environment()["LAB_APP"].partition(":")[0]
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
    def image(self) -> str:
        """The image that serves this variant."""

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

    def environment(self) -> dict[str, str]:
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


FIRST_WITH_REUSE_PORT = 24


class Gunicorn(Variant, ABC):
    """gunicorn, whatever its workers are."""

    release: Release = "27.0.1"
    reuse_port: bool = Field(False, description="One listening socket for each worker.")

    service: ClassVar[str] = "gunicorn"

    @model_validator(mode="after")
    def _release_is_locked(self) -> Self:
        _check_lock_file("gunicorn", self.release)
        if self.reuse_port and int(self.release.split(".")[0]) < FIRST_WITH_REUSE_PORT:
            raise ValueError(f"gunicorn {self.release} ignores reuse_port; it works from {FIRST_WITH_REUSE_PORT} on")
        return self

    @property
    def image(self) -> str:
        """The image that serves this variant."""
        return f"stampede/gunicorn:{self.release}"

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """reuse_port gives every worker a listening socket of its own."""
        return "per-worker" if self.reuse_port else "shared"

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {"LAB_RELEASE": self.release, "LAB_REUSE_PORT": str(self.reuse_port).lower()}


_WSGI = {"wsgi": "wsgi:app", "flask": "flask_app:app", "django": "django_app:app"}


class GunicornWsgi(Gunicorn, ABC):
    """gunicorn with a synchronous application: bare WSGI, Flask or Django."""

    app: Literal["wsgi", "flask", "django"] = Field("wsgi", description="What stands between the server and the work.")

    @model_validator(mode="after")
    def _release_has_the_framework(self) -> Self:
        if self.app != "wsgi":
            _check_lock_file("gunicorn", self.release, self.app)
        return self

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {"LAB_APP": _WSGI[self.app]}


class GunicornGthread(GunicornWsgi):
    """gunicorn with threads: the released worker, or one of ours on top of it."""

    server: Literal["gunicorn-gthread"]
    threads: int = Field(ge=1, description="Threads in each process.")
    worker_class: Literal[
        "gthread",
        "acceptors.RandomAccept",
        "acceptors.BusyAccept",
        "acceptors.CountedThreads",
        "acceptors.CountedRandomAccept",
    ] = "gthread"
    worker_connections: int = Field(1000, ge=1, le=65535, description="Connections that one worker holds at most.")
    keepalive_s: int = Field(
        0, ge=0, le=3600, description="How long an idle connection stays open; 0: one request each."
    )

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {
            "LAB_WORKER_CLASS": self.worker_class,
            "LAB_WORKER_CONNECTIONS": str(self.worker_connections),
            "LAB_KEEPALIVE_S": str(self.keepalive_s),
        }


class GunicornSync(GunicornWsgi):
    """gunicorn without threads: a worker accepts when it is free, and has one connection at a time."""

    server: Literal["gunicorn-sync"]
    worker_class: Literal["sync", "acceptors.CountedSync"] = "sync"
    threads: Literal[1] = 1

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {"LAB_WORKER_CLASS": self.worker_class}


class GunicornGreen(GunicornWsgi):
    """gunicorn on an event loop: with greenlets, which serve others while one waits, or Tornado's, which does not."""

    server: Literal["gunicorn-gevent", "gunicorn-eventlet", "gunicorn-tornado"]
    threads: None = None

    @model_validator(mode="after")
    def _release_has_the_loop(self) -> Self:
        _check_lock_file("gunicorn", self.release, self._loop)
        return self

    @property
    def _loop(self) -> str:
        return self.server.removeprefix("gunicorn-")

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        worker_class = "event_loops.CountedTornado" if self._loop == "tornado" else self._loop
        return super().environment() | {"LAB_WORKER_CLASS": worker_class}


_ASGI = {
    "fastapi-sync": "fastapi_app:sync",
    "fastapi-typed": "fastapi_app:typed",
    "fastapi-async": "fastapi_app:asynchronous",
    "django": "django_app:asgi",
}
_WITHOUT_A_POOL = {"fastapi-async": "none", "django": "one for each request"}


class Fastapi(Variant, ABC):
    """FastAPI, whatever serves it: its end points run in a pool of threads (``def``) or on the loop (``async def``)."""

    app: Literal["fastapi-sync", "fastapi-typed", "fastapi-async"] = Field(
        description="End points that are def, def with a response model, or async def."
    )
    loop: Literal["asyncio", "uvloop"] = "asyncio"

    @model_validator(mode="after")
    def _threads_fit(self) -> Self:
        if self.app in _WITHOUT_A_POOL and self.threads is not None:
            raise ValueError(f"threads: app: {self.app} has {_WITHOUT_A_POOL[self.app]}; leave it out")
        if self.app not in _WITHOUT_A_POOL and self.threads is None:
            raise ValueError(f"app: {self.app} runs in threads; say how many each process has (FastAPI's own: 40)")
        return self

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {"LAB_APP": _ASGI[self.app], "LAB_LOOP": self.loop}


class GunicornFastapi(Fastapi, Gunicorn):
    """FastAPI on gunicorn, with its own worker (asgi) or uvicorn's."""

    server: Literal["gunicorn-asgi", "gunicorn-uvicorn"]

    @model_validator(mode="after")
    def _release_has_fastapi(self) -> Self:
        _check_lock_file("gunicorn", self.release, "fastapi")
        return self

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        classes = {"gunicorn-asgi": "asgi", "gunicorn-uvicorn": "event_loops.Uvicorn"}
        return super().environment() | {"LAB_WORKER_CLASS": classes[self.server]}


class Asgi(Fastapi):
    """FastAPI, or Django, on a server of its own kind."""

    server: Literal["uvicorn", "granian", "hypercorn"]
    app: Literal["fastapi-sync", "fastapi-typed", "fastapi-async", "django"] = Field(  # type: ignore[assignment]
        description="FastAPI's end points are def, def with a response model, or async def; Django's views are def."
    )

    service: ClassVar[str] = "asgi"

    @property
    def image(self) -> str:
        """The image that serves this variant."""
        return "stampede/asgi:trixie"

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """Each of granian's workers has a listening socket of its own."""
        return "per-worker" if self.server == "granian" else "shared"

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {"LAB_SERVER": self.server}


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

    @model_validator(mode="after")
    def _balancer_speaks_it(self) -> Self:
        _check_lock_file("uwsgi", self.release)
        if self.balancer == "haproxy" and self.protocol != "http":
            raise ValueError(f"haproxy does not speak {self.protocol} here; choose protocol: http or balancer: nginx")
        if self.map_socket and self.workers > len(APP_PORTS):
            raise ValueError(
                f"map_socket: {self.workers} workers are more than the {len(APP_PORTS)} that may have ports"
            )
        return self

    @property
    def image(self) -> str:
        """The image that serves this variant."""
        return f"stampede/uwsgi:{self.release}"

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """map_socket gives every process a listening socket of its own."""
        return "per-worker" if self.map_socket else "shared"

    @property
    def ports(self) -> range:
        """Where each container listens: one port, or one for each process."""
        return APP_PORTS[: self.workers if self.map_socket else 1]

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {
            "LAB_RELEASE": self.release,
            "LAB_APP": _WSGI[self.app],
            "LAB_PROTOCOL": self.protocol,
            "LAB_THUNDER_LOCK": str(self.thunder_lock).lower(),
            "LAB_MAP_SOCKET": str(self.map_socket).lower(),
        }


class Flup(Variant):
    """flup, which Django's runfcgi was: FastCGI from processes, or threads, that are started and ended as needed.

    The settings that are not given are those of runfcgi.
    """

    server: Literal["flup-prefork", "flup-threaded"]
    workers: int = Field(ge=1, le=500, description="The most processes that it starts.")
    threads: int = Field(ge=1, le=500, description="The most threads that it starts in its process.")
    min_spare: int = Field(2, ge=1, description="Where fewer are idle it starts one.")
    max_spare: int = Field(5, ge=1, description="It begins with so many; where more are idle it ends one.")
    quick_exit: bool = Field(False, description="Whether a process ends without taking its interpreter down.")
    app: Literal["wsgi", "flask", "django"] = Field(
        "django", description="What stands between the server and the work."
    )
    balancer: Literal["nginx"] = "nginx"
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "flup"

    @model_validator(mode="after")
    def _has_processes_or_threads(self) -> Self:
        one, several = ("threads", "workers") if self.server == "flup-prefork" else ("workers", "threads")
        if self.quick_exit and self.server != "flup-prefork":
            raise ValueError(f"quick_exit: {self.server} ends no process")
        if getattr(self, one) != 1:
            raise ValueError(f"{one}: {self.server} has one; its number of {several} varies")
        most = getattr(self, several)
        if not self.min_spare <= self.max_spare <= most:
            raise ValueError(
                f"min_spare {self.min_spare} <= max_spare {self.max_spare} <= {several} {most} does not hold"
            )
        return self

    @property
    def image(self) -> str:
        """The image that serves this variant."""
        return "stampede/flup:1.1.1"

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """All processes wait at one listening socket."""
        return "shared"

    @property
    def elastic(self) -> bool:
        """Its processes come and go."""
        return self.server == "flup-prefork"

    def environment(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().environment() | {
            "LAB_SERVER": self.server,
            "LAB_APP": _WSGI[self.app],
            "LAB_PROTOCOL": "fastcgi",
            "LAB_MIN_SPARE": str(self.min_spare),
            "LAB_MAX_SPARE": str(self.max_spare),
            "LAB_QUICK_EXIT": str(self.quick_exit).lower(),
        }


Server = Annotated[
    GunicornGthread | GunicornSync | GunicornGreen | GunicornFastapi | Asgi | Uwsgi | Flup,
    Field(discriminator="server"),
]


class Experiment(Model):
    """A question with its variants, loads, claims and published figures."""

    title: str
    question: str
    source: Source | None = None
    load: Load | None = Field(None, description="The load, when there is one.")
    loads: dict[Name, Load] = Field({}, description="Several loads by name.")
    parallel: bool = Field(False, description="Requests only sleep: variants may be measured side by side.")
    variants: dict[Name, Server] = Field(min_length=1)
    published: list[Published] = Field([])
    claims: list[Claim] = Field([])
    curve: Curve | None = Field(None, description="What a setting does, as a picture in the report.")

    @model_validator(mode="after")
    def _curve_fits(self) -> Self:
        if self.curve:
            for name, variant in self.variants.items():
                if self.curve.over not in type(variant).model_fields:
                    known = nearest_first(self.curve.over, list(type(variant).model_fields))
                    raise ValueError(f"curve: {name} has no setting {self.curve.over}; it has {known}")
        return self

    @model_validator(mode="after")
    def _capacities_show(self) -> Self:
        if self.load and self.load.relative:
            raise ValueError("load: relative: there is no other load whose capacity it could follow")
        earlier: dict[str, Load] = {}
        for name, load in self.loads.items():
            if load.relative:
                self._check_relative(name, load.relative, earlier)
            earlier[name] = load
        return self

    def _check_relative(self, name: str, relative: Relative, earlier: dict[str, Load]) -> None:
        if relative.under not in earlier:
            there = f"there are {nearest_first(relative.under, list(earlier))}" if earlier else "it is the first"
            raise ValueError(f"load {name}: relative.under: there is no load {relative.under} before it; {there}")
        if not earlier[relative.under].climbs:
            raise ValueError(f"load {name}: relative.under: the rate of {relative.under} does not climb")
        if relative.of not in self.variants:
            known = nearest_first(relative.of, list(self.variants))
            raise ValueError(f"load {name}: relative.of: there is no variant {relative.of}; there are {known}")
        if not earlier[relative.under].is_for(relative.of):
            raise ValueError(f"load {name}: relative.of: {relative.of} is not measured under load {relative.under}")

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if bool(self.load) == bool(self.loads):
            raise ValueError("give either load or loads")
        loads = list(self.all_loads)
        for where, one in self._references():
            if one.variant not in self.variants:
                known = nearest_first(one.variant, list(self.variants))
                raise ValueError(f"{where}: there is no variant {one.variant}; there are {known}")
            if one.load is None and len(loads) > 1:
                raise ValueError(f"{where}: say which load; there are {', '.join(loads)}")
            if one.load is not None and one.load not in loads:
                raise ValueError(f"{where}: there is no load {one.load}; there are {nearest_first(one.load, loads)}")
            if not self.all_loads[one.load or loads[0]].is_for(one.variant):
                raise ValueError(f"{where}: {one.variant} is not measured under load {one.load or loads[0]}")
        for name, load in self.all_loads.items():
            if unknown := [one for one in load.variants if one not in self.variants]:
                known = nearest_first(unknown[0], list(self.variants))
                raise ValueError(f"load {name}: there is no variant {unknown[0]}; there are {known}")
        for variant in self.variants:
            if not any(load.is_for(variant) for load in self.all_loads.values()):
                raise ValueError(f"{variant} is measured under no load")
        return self

    @model_validator(mode="after")
    def _databases_are_asked(self) -> Self:
        for name, load in self.all_loads.items():
            for variant, one in self.variants.items():
                if not (load.database and load.is_for(variant)):
                    continue
                if one.app != "django":
                    raise ValueError(f"load {name}: {variant} has no use for a database; only app: django has")
                if one.server == "gunicorn-tornado":
                    raise ValueError(f"load {name}: {variant}: Django asks no database on the event loop of tornado")
        return self

    @property
    def all_loads(self) -> dict[str, Load]:
        """The loads by name; a single one bears the name of its script."""
        return {Path(self.load.script).stem: self.load} if self.load else dict(self.loads)

    @property
    def holds(self) -> bool:
        """Whether requests that compute hold the interpreter lock without using a core."""
        return any(load.settings.get("cpu") == "hold" for load in self.all_loads.values())

    def _references(self) -> list[tuple[str, Quantity | Published]]:
        claims = [
            (f"claims.{number}", quantity) for number, claim in enumerate(self.claims) for quantity in claim.quantities
        ]
        return [*((f"published.{number}", one) for number, one in enumerate(self.published)), *claims]


def computing(experiment: Experiment, cpu: str, variants: list[str] | None = None) -> Experiment:
    """Return an experiment whose requests compute as ``cpu`` says; where none computes it stays as it is.

    Empty is hold where this machine has fewer cores than the largest of ``variants`` (default: all) has workers, and
    OTHERS_CORES for the rest of the lab; else burn. Requests that burn are never measured side by side. Raise WrongUse
    for another word, and for any word where nothing computes.
    """
    if cpu not in ("", *get_args(Cpu)):
        raise WrongUse(f"CPU={cpu!r} is no way to compute.", hint=f"CPU=…, one of {', '.join(get_args(Cpu))}")
    if not any(load.computes for load in experiment.all_loads.values()):
        if cpu:
            raise WrongUse(f"CPU={cpu}: no request of this experiment computes.", hint="Leave CPU out.")
        return experiment
    chosen = [experiment.variants[name] for name in variants or experiment.variants if name in experiment.variants]
    enough = (psutil.cpu_count() or 1) >= max((one.workers * one.replicas for one in chosen), default=0) + OTHERS_CORES
    kind = cpu or ("burn" if enough else "hold")

    def told(load: Load) -> Load:
        return load.model_copy(update={"settings": load.settings | {"cpu": kind}}) if load.computes else load

    return experiment.model_copy(
        update={
            "load": experiment.load and told(experiment.load),
            "loads": {name: told(load) for name, load in experiment.loads.items()},
            "parallel": experiment.parallel and kind == "hold",
        }
    )


def against_itself(experiment: Experiment, variant: str) -> Experiment:
    """Return an experiment whose two variants, a and b, are both ``variant``. Raise WrongUse when there is none.

    A rate that is relative to a capacity follows from that of a.
    """
    if variant not in experiment.variants:
        raise unknown_variant(variant, experiment)
    one = experiment.variants[variant]
    loads: dict[str, Load] = {}
    for name, load in experiment.all_loads.items():
        relative = load.relative and load.relative.model_copy(update={"of": "a"})
        if load.is_for(variant) and (relative is None or relative.under in loads):
            loads[name] = load.model_copy(update={"variants": [], "relative": relative})
    return experiment.model_copy(
        update={
            "load": None,
            "loads": loads,
            "title": f"{variant} against itself",
            "question": "Which difference is more than chance on this machine?",
            "source": None,
            "variants": {"a": one, "b": one},
            "published": [],
            "claims": [],
            "curve": None,
        }
    )


def unknown_variant(name: str, experiment: Experiment) -> WrongUse:
    """Return the error that lists the variants there are."""
    return WrongUse(
        f"There is no variant {name!r}.", hint=f"VARIANTS=…, any of {nearest_first(name, list(experiment.variants))}"
    )


def names() -> list[str]:
    """Return the names of all experiments."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml") if re.fullmatch(NAME_PATTERN, path.stem))


def load_experiment(name: str) -> Experiment:
    """Read and check experiments/<name>.yaml. Raise WrongUse with the place of the first thing that is wrong."""
    path = EXPERIMENTS / f"{name}.yaml"
    if not name:
        raise WrongUse("No experiment was named.", hint=f"NAME=…, one of {nearest_first(name, names())}")
    if name not in names():
        raise WrongUse(
            f"There is no experiment {name!r}.", hint=f"make experiment NAME=…, one of {nearest_first(name, names())}"
        )
    return read_experiment(path)


def read_experiment(path: Path) -> Experiment:
    """Read and check one experiment file. Raise WrongUse with the place of the first thing that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_duplicates(document)
        values = yaml.load(text, Loader=_Loader)  # noqa: S506  # a safe loader that refuses more
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{path} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise WrongUse(f"{path.name}{line}: not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise WrongUse(f"{path.name}: not YAML: {error.reason} (#x{error.character:04x})") from None
    except RecursionError:
        raise WrongUse(f"{path.name}: not YAML: it is nested too deeply") from None
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise WrongUse(_explain(path, document, error)) from None


def schema() -> str:
    """Return the JSON schema of experiment files, for editors."""
    return json.dumps(Experiment.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def in_seconds(duration: str) -> int:
    """Return a duration such as 90s or 5m in seconds."""
    return int(duration[:-1]) * (60 if duration[-1] == "m" else 1)


def check_duration(duration: str) -> None:
    """Raise WrongUse when a duration is not like 90s or 5m, or is longer than a day."""
    try:
        _short_enough(duration)
    except ValueError as error:
        raise WrongUse(f"The duration {error}.", hint="DURATION=90s or DURATION=5m") from None


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which names the line of every value that it cannot read or that nothing could write again."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401  # whatever is written
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):
            kind = node.tag.rsplit(":", 1)[-1]
            raise _refused(f"{reprlib.repr(node.value)} cannot be read as {kind}", node) from None
        if isinstance(value, int) and value.bit_length() > BITS:
            raise _refused(f"the number has more than {BITS} bits", node)
        if isinstance(value, str) and (odd := _UNPRINTABLE.search(value)):
            raise _refused(f"the text has the character {odd[0]!r}", node)
        return value


BITS = 63
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def _refused(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _refuse_duplicates(node: yaml.Node | None, seen_nodes: set[int] | None = None) -> None:
    """Raise a YAML error when a key stands twice in one mapping: YAML's readers would keep the last one silently.

    Each node is looked at once, however many aliases name it.
    """
    seen_nodes = set() if seen_nodes is None else seen_nodes
    if id(node) in seen_nodes:
        return
    seen_nodes.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item, seen_nodes)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _refused(f"the key {key.value} stands twice", key)
                seen.add(key.value)
            _refuse_duplicates(value, seen_nodes)


def _explain(path: Path, document: yaml.Node | None, error: ValidationError) -> str:
    problems = error.errors()  # a misspelt key is both unknown and missing: say what was written
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place = getattr(first.get("ctx", {}).get("error"), "place", ())
    where, line = _locate(document, _without_tag((*first["loc"], *place)))
    match first["type"]:
        case "extra_forbidden":
            problem = "unknown key"
        case "missing":
            problem = "missing key"
        case "value_error":
            problem = str(first["ctx"]["error"])
        case "union_tag_not_found":
            problem = "missing key server"
        case "union_tag_invalid":
            known = first["ctx"]["expected_tags"].replace("'", "").split(", ")
            problem = f"there is no server {first['ctx']['tag']}; there are {nearest_first(first['ctx']['tag'], known)}"
        case _:
            problem = f"{first['msg']}; it is {_SHORT.repr(first['input'])}"
    return f"{path.name}:{line}: {where}: {problem}" if where else f"{path.name}: {problem}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def _without_tag(location: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a location without the kind of server that pydantic puts after a variant's name."""
    return (*location[:2], *location[3:]) if location[:1] == ("variants",) and _KINDS & {*location[2:3]} else location


_KINDS = {kind for one in get_args(get_args(Server)[0]) for kind in get_args(one.model_fields["server"].annotation)}


def _locate(node: yaml.Node | None, location: tuple[Any, ...]) -> tuple[str, int]:
    """Return the path in the file and the line of what pydantic located."""
    line = node.start_mark.line + 1 if node else 0
    for key in location:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == str(key)]
            if found:
                line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line + 1
    return ".".join(str(key) for key in location), line

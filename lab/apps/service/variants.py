"""Variants that serve somebody's own application instead of the lab's workload."""

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationError

from analysis.predict.options import MOST_REPLICAS, OptionKind, gthread
from lab.apps.service.description import ASGI_WORKERS, CALLABLE_PATTERN, Served, UserService, read_env_file
from lab.apps.service.kinds import KINDS
from lab.apps.service.layer import Layer
from lab.errors import WrongUse, reason_of
from lab.limits import SERVER_MIB
from lab.servers.asgi import Asgi
from lab.servers.base import Variant
from lab.servers.gunicorn import (
    FIRST_WITH_IDLE_THREAD,
    FIRST_WITH_REUSE_PORT,
    GunicornAsgi,
    GunicornGreen,
    GunicornGthread,
    GunicornSync,
)
from lab.servers.uwsgi import Uwsgi
from lab.serving.options import ServingOption

FIRST_WITH_LIMIT = 24
"""Before gunicorn 24, a worker at its limit of connections stopped answering (docs/connection-deadlock.md)."""
WITH_NEWER = {"limit": FIRST_WITH_LIMIT, "idle-thread": FIRST_WITH_IDLE_THREAD, "reuse-port": FIRST_WITH_REUSE_PORT}
TRIED = {
    "gthread": ("one-process", "limit", "idle-thread", "least-conn"),
    "sync": ("one-process", "limit", "idle-thread", "least-conn"),
    "uwsgi": ("one-process", "map-socket", "least-conn"),
}
"""The kinds of ways that are tried beside today's, by today's kind of workers; of all others, only least-conn."""
ONLY_IF_NAMED = ("reuse-port", "sync", "uwsgi")
"""The kinds of ways that are tried only if ``WAYS`` names them; only for applications that gunicorn serves."""
LIFTING = ("more-workers", "more-threads", "threads")
"""The kinds of ways that are tried if ``WAYS`` names them, or if they lift a limit that was found of today's way."""
_WORKERS = (("more-workers",),)
LIFTED: Mapping[str, Sequence[tuple[str, ...]]] = {
    "processors": _WORKERS,
    "interpreter-lock": _WORKERS,
    "threads": (("more-threads",), ("more-workers", "threads")),
    "event-loop": (("threads",), ("more-workers",)),
    "thread-pool": _WORKERS,
    "inside": _WORKERS,
}
"""Which kinds of ways may lift a limit: the first that the server allows. All other ways lift the avoidable wait."""
MOST_WORKERS, MOST_THREADS, LEAST_THREADS = 64, 256, 4
FOR_SINGLE = (*LIFTING, "sync", "uwsgi")
"""The kinds of ways that may be better for a single worker, too; all others are for several."""
ADVISED = "advised"
"""The way that theory advises (lab.apps.service.theory.py), if ``WAYS`` names it."""


class _UserApplication(Variant, ABC):
    """What all of these variants have: the callable, and the image with the application."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    app: Literal["own"] = "own"  # the lab's frameworks are no choice here
    callable: str = Field(pattern=CALLABLE_PATTERN)
    locked: ClassVar[bool] = False
    layer: Layer = Field(exclude=True, repr=False)
    left_out: list[str] = Field([], description="What the application has at home and lacks in the lab.")

    @property
    def workload(self) -> Layer:
        """The application."""
        return self.layer

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        factors = super().factors()
        release = {} if self.server == "uwsgi" else {"LAB_RELEASE": ""}  # the layer has its own release of the server
        return factors | {"LAB_CALLABLE": self.callable, "LAB_USER_SERVICE": f"-own-{self.layer.tag}"} | release


class UserGthread(_UserApplication, GunicornGthread):
    """A WSGI application on gunicorn's threads."""

    threads: int = Field(ge=1)  # here and below: pydantic takes the fields of _Own before those of the server's class


class UserSync(_UserApplication, GunicornSync):
    """A WSGI application on gunicorn's workers without threads."""

    threads: Literal[1] = 1


class UserGreen(_UserApplication, GunicornGreen):
    """A WSGI application on gunicorn's greenlets."""

    worker_connections: int = 1000

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_WORKER_CONNECTIONS": str(self.worker_connections)}


class UserUwsgi(_UserApplication, Uwsgi):
    """A WSGI application on uWSGI."""

    threads: int = Field(ge=1)
    upstream_keepalive: Literal[0] = 0


class UserAsgiWorker(_UserApplication, GunicornAsgi):
    """An ASGI application on gunicorn, with gunicorn's worker or with uvicorn's."""

    loop: Literal["auto"] = "auto"  # type: ignore[assignment]  # what the server finds, as at home
    worker_class: str
    worker_connections: int = 1000

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        own = {"LAB_WORKER_CLASS": self.worker_class, "LAB_WORKER_CONNECTIONS": str(self.worker_connections)}
        return super().factors() | own


class UserUvicorn(_UserApplication, Asgi):
    """An ASGI application on uvicorn."""

    loop: Literal["auto"] = "auto"  # type: ignore[assignment]
    release: str
    packages: ClassVar[tuple[str, ...]] = ("python/uvicorn",)


def candidates(service: UserService, layer: Layer, cores: int = 1) -> list[ServingOption]:
    """Return today's way to serve an application, and the other ways that its server and release allow.

    ``cores`` are those that containers may use. Raise WrongUse if today's workers do not fit into the memory.
    """
    served = service.served
    try:
        ways = [make_way(OptionKind("today", "today", "", gthread), service, layer)]
    except ValidationError as error:
        raise WrongUse(f"served: {reason_of(error)}.", hint="Give more memory_mib, or fewer workers.") from None
    for kind in KINDS:
        if kind.name not in _tried(service) or served.major < WITH_NEWER.get(kind.name, 0):
            continue
        if kind.name not in FOR_SINGLE and served.processes == 1:
            continue
        if kind.name == "least-conn" and served.processes > MOST_REPLICAS:
            continue
        try:
            way = make_way(kind, service, layer, cores)
        except ValidationError:
            continue  # its workers do not fit into the memory
        if way.variant.model_dump(exclude={"layer"}) != ways[0].variant.model_dump(exclude={"layer"}):
            ways.append(way)
    return ways


def kinds_that_lift(service: UserService, limits: Sequence[str], cores: int) -> list[str]:
    """Return the kinds of ways that may lift one of these limits, for a server on so many cores."""
    allowed = _lifting_of(service.served)
    useless = {"more-workers"} if "processors" in limits and service.served.processes >= cores else set()
    found = [next((kinds for kinds in LIFTED.get(limit, ()) if {*kinds} <= {*allowed}), ()) for limit in limits]
    return [kind for kind in allowed if kind in {*chain(*found)} - useless]


def untried_reasons(service: UserService) -> Sequence[str]:
    """Return a sentence for each way that is not tried, with the reason."""
    served = service.served
    if served.processes == 1:
        return ["ways against waits beside a free thread, because a single worker has no other worker beside it."]
    old = [f"{kind} needs gunicorn {first} or later." for kind, first in WITH_NEWER.items()
           if kind in TRIED.get(served.kind, ()) and served.major < first]  # fmt: skip
    many = [f"least-conn would need {served.processes} containers; the lab starts at most {MOST_REPLICAS}."]
    return old + (many if served.processes > MOST_REPLICAS else [])


def too_large_ways(service: UserService, layer: Layer, kinds: Iterable[str], cores: int) -> Iterator[str]:
    """Yield why ways of these kinds cannot be tried: their workers do not fit into the memory."""
    for kind in KINDS:
        if kind.name in kinds:
            try:
                make_way(kind, service, layer, cores)
            except ValidationError as error:
                yield f"{kind.name}: {reason_of(error)}. Give more memory_mib."


def _tried(service: UserService) -> tuple[str, ...]:
    served = service.served
    named = ONLY_IF_NAMED if served.kind == "gthread" else ONLY_IF_NAMED[:1] if served.server == "gunicorn" else ()
    further = tuple(kind for kind in named if kind != "uwsgi" or service.application.folder)
    return TRIED.get(served.kind, ("least-conn",)) + further + _lifting_of(served)


def _lifting_of(served: Served) -> tuple[str, ...]:
    """Return the kinds of ways that lift limits of such workers."""
    match served.kind:
        case "gthread" | "uwsgi":
            return LIFTING[:2]
        case "sync" | "gevent" | "eventlet":
            return ("more-workers", "threads")
        case _:
            return ("more-workers",)


def make_way(kind: OptionKind, service: UserService, layer: Layer, cores: int = 1) -> ServingOption:
    """Return a way of a kind for a service, with as many threads as today but for the kinds of LIFTING.

    ``cores`` are those that containers may use. Raise ValidationError if it cannot be.
    """
    served = service.served
    today = _today(served)
    whole_mib = served.memory_mib * served.replicas
    alone = today | {
        "workers": served.processes, "replicas": 1, "balance": "round_robin", "memory_mib": whole_mib
    }  # fmt: skip
    settings: dict[str, Any]
    match kind.name:
        case "today":
            settings = today
        case "least-conn":
            settings = today | {"workers": 1, "replicas": served.processes, "balance": "least_conn"}
            settings["memory_mib"] = max(256, whole_mib // served.processes)
        case "one-process" if served.server == "uwsgi":
            settings = alone | {"workers": 1, "threads": served.slots}
        case "more-workers":
            most = max(cores, 2 * served.processes)
            settings = today | {"workers": min(MOST_WORKERS, ceil(most / served.replicas))}
        case "more-threads":
            settings = today | {"threads": min(MOST_THREADS, 2 * served.threads)}
            if today.get("worker_connections", MOST_THREADS) < settings["threads"]:
                settings["worker_connections"] = settings["threads"]
        case "threads":
            settings = today | gthread(served.workers, _threads_for(service))
            settings["worker_connections"] = max(served.worker_connections, settings["threads"])
        case "map-socket":
            settings = alone | {"map_socket": True, "balance": "least_conn"}
        case "reuse-port":
            settings = alone | {"reuse_port": True}
        case "uwsgi":
            settings = kind.settings(served.processes, served.threads) | {"memory_mib": whole_mib}
        case _:
            of = (1, served.slots) if kind.for_single_worker else (served.processes, served.threads)
            settings = kind.settings(*of) | {"release": served.release, "memory_mib": whole_mib}
    shared = {
        "callable": service.application.callable,
        "layer": layer,
        "cpus": 0,
        "left_out": settings_not_in_force(service, layer),
    }
    variant = _CLASSES[str(settings["server"])].model_validate(dict(settings) | shared)
    says = replace(kind, reason=kind.reason.replace("A gunicorn", f"A {served.server}"))
    workers = variant.workers * variant.replicas
    memory = variant.replicas * SERVER_MIB
    return ServingOption(says, variant, workers, variant.threads or 1, memory, is_today=kind.name == "today")


def _threads_for(service: UserService) -> int:
    """Return how many threads each worker needs, so that each user of the description can have one."""
    users = sum(asked.users or 0 for asked in service.requests.values())
    return min(MOST_THREADS, max(LEAST_THREADS, ceil(users / service.served.processes)))


def settings_not_in_force(service: UserService, layer: Layer) -> list[str]:
    """Return what is there of a service and its Compose file, and is not in force in the lab, in words."""
    served, application = service.served, service.application
    found = [f"{layer.beside.file.name}: {key}" for key in layer.beside.left_out]
    file = {"gunicorn": "gunicorn.conf.py", "uwsgi": "uwsgi.ini"}.get(served.server, "")
    if file and application.folder and not served.settings and (application.folder / file).is_file():
        found.append(f"{file}, because served.settings does not name it")
    found += [f"{option} of the command line" for option in served.left_out]
    variables = read_env_file(application.env_file) if application.env_file else {}
    names = [name for name in _OF_SERVERS if name in variables | application.environment]
    return [*found, *(f"the variable {name}" for name in names)]


_OF_SERVERS = ("GUNICORN_CMD_ARGS", "WEB_CONCURRENCY", "UVICORN_WORKERS", "UVICORN_LIMIT_MAX_REQUESTS")
"""Variables that tell servers how to serve. The lab sets variables when its server has started already."""


def _today(served: Served) -> dict[str, Any]:
    """Return the settings of the variant that serves an application as it is served today."""
    shared: dict[str, Any] = {"release": served.release, "workers": served.workers, "memory_mib": served.memory_mib}
    shared |= {"replicas": served.replicas, "balance": served.balance}
    limit = {"worker_connections": served.worker_connections}
    match served.kind:
        case "gthread":
            return {"server": "gunicorn-gthread", "threads": served.threads} | limit | shared
        case "sync":
            return {"server": "gunicorn-sync"} | shared
        case "gevent" | "eventlet" as worker:
            return {"server": f"gunicorn-{worker}"} | limit | shared
        case "uwsgi":
            return {"server": "uwsgi", "threads": served.threads} | shared
        case "uvicorn":
            return {"server": "uvicorn"} | shared
        case worker:
            return {"server": f"gunicorn-{ASGI_WORKERS[worker]}", "worker_class": worker} | limit | shared


_CLASSES: dict[str, type[Variant]] = {
    "gunicorn-gthread": UserGthread, "gunicorn-sync": UserSync, "gunicorn-gevent": UserGreen,
    "gunicorn-eventlet": UserGreen, "gunicorn-asgi": UserAsgiWorker, "gunicorn-uvicorn": UserAsgiWorker,
    "uvicorn": UserUvicorn, "uwsgi": UserUwsgi,
}  # fmt: skip

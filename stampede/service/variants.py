"""Variants that serve somebody's own application instead of the lab's workload."""

import re
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationError

from stampede.advise.options import ServingOption
from stampede.errors import WrongUse
from stampede.predict.options import MOST_REPLICAS, OptionKind, gthread
from stampede.records.mistakes import reason_of
from stampede.servers.asgi import AsgiServer
from stampede.servers.base import Variant
from stampede.servers.daphne import Daphne
from stampede.servers.granian import GranianAsgi, GranianOfRelease, GranianWsgi
from stampede.servers.gunicorn import (
    FIRST_WITH_IDLE_THREAD,
    FIRST_WITH_REUSE_PORT,
    GunicornAsgi,
    GunicornGreen,
    GunicornGthread,
    GunicornSync,
)
from stampede.servers.limits import SERVER_MIB
from stampede.servers.replaced import COUNT_REQUESTS
from stampede.servers.uwsgi import Uwsgi
from stampede.service.description import (
    ASGI_WORKERS,
    CALLABLE_PATTERN,
    GRANIAN_BACKLOG,
    MOST_CONNECTIONS,
    MOST_THREADS,
    Served,
    UserService,
    read_env_files,
)
from stampede.service.kinds import KINDS, SILENT_S
from stampede.service.layer import Layer
from stampede.service.packages import pinned_release, required_lines

FIRST_WITH_LIMIT = 24
"""Before gunicorn 24, a worker at its limit of connections stopped answering (the experiment connection-deadlock)."""
WITH_NEWER = {"limit": FIRST_WITH_LIMIT, "idle-thread": FIRST_WITH_IDLE_THREAD, "reuse-port": FIRST_WITH_REUSE_PORT}
TRIED = {
    "gthread": ("one-process", "limit", "idle-thread", "least-conn"),
    "sync": ("one-process", "limit", "idle-thread", "least-conn"),
    "uwsgi": ("one-process", "map-socket", "least-conn"),
    "gevent": ("least-conn",),
    "eventlet": ("least-conn",),
}
"""The kinds of ways that are tried beside today's, by today's kind of workers; for all others, see OTHERWISE."""
OTHERWISE = ("one-process", "least-conn")
NEIGHBOURS = {"gunicorn": "27.0.1", "granian": "2.8.7", "uvicorn": "0.38.0"}
"""Other servers that are ways, each with the release that is taken if the application's requirements pin none."""
ONLY_IF_NAMED = ("reuse-port", "sync", "uwsgi", *NEIGHBOURS)
"""The kinds of ways that are tried only if ``--ways`` names them."""
LIFTING = (
    "more-workers", "more-threads", "gthread", "jitter", "never-replaced", "preload", "longer-timeout",
)  # fmt: skip
"""The kinds of ways that are tried if ``--ways`` names them, or if they lift a limit that was found of today's way."""
_WORKERS = (("more-workers",),)
LIFTED: Mapping[str, Sequence[tuple[str, ...]]] = {
    "processors": _WORKERS,
    "interpreter-lock": _WORKERS,
    "threads": (("more-threads",), ("more-workers", "gthread")),
    "event-loop": (("gthread",), ("more-workers",)),
    "thread-pool": _WORKERS,
    "inside": _WORKERS,
    "max-requests": (("jitter", "never-replaced", "preload"), ("jitter", "never-replaced"), ("never-replaced",)),
    "worker-timeout": (("longer-timeout",),),
}
"""Which kinds of ways may lift a limit: the first that the server allows. All other ways lift the avoidable wait."""
UVICORN_WITH = {"jitter": (0, 41), "longer-timeout": (0, 37)}
"""The first releases of uvicorn that have an option."""
LONGER = 10
"""How many times as long the way with a longer timeout waits."""
MOST_WORKERS, LEAST_THREADS = 64, 4
FOR_SINGLE = (*LIFTING, "sync", "uwsgi", *NEIGHBOURS)
"""The kinds of ways that may be better for a single worker, too; all others are for several."""
ADVISED = "advised"
"""The way that theory advises (stampede.service.theory.py), if ``WAYS`` names it."""


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
        program = self.server.partition("-")[0]
        image = {"LAB_CALLABLE": self.callable, "LAB_USER_SERVICE": f"-own-{self.layer.tag}"}
        if program == "uwsgi":
            return super().factors() | image
        if self.layer.server[0] not in ("", program):  # the layer has the server of today
            release = getattr(self, "release", "")
            image["LAB_USER_SERVICE"] += f"-{program}-{release}"
            image["LAB_FURTHER"] = f"{program}=={release}"
        return super().factors() | image | {"LAB_RELEASE": ""}  # the layer has its own release of the server


class _Supervised(_UserApplication, ABC):
    """Workers whose supervisor ends them if they give no sign of life."""

    timeout_s: int = Field(0, ge=0, description="How long a worker may be silent, in seconds; 0: the server's default.")

    passed_on: ClassVar[tuple[str, ...]] = ("timeout_s",)

    def configuration(self) -> list[str]:
        """Return the configuration with what ends workers."""
        lines = super().configuration()
        names = _OPTIONS[self.program]
        found = {option: getattr(self, name) for name, option in names.items() if getattr(self, name, 0)}
        if self.program == "gunicorn":
            return [*lines, *(f"{option} = {value}" for option, value in found.items())]
        return [" ".join([line, *(f"{option} {value}" for option, value in found.items())]) for line in lines]


_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "gunicorn": {"max_requests": "max_requests", "max_requests_jitter": "max_requests_jitter", "timeout_s": "timeout",
                 "preload": "preload_app"},
    "uvicorn": {"max_requests": "--limit-max-requests", "max_requests_jitter": "--limit-max-requests-jitter",
                "timeout_s": "--timeout-worker-healthcheck"},
    "hypercorn": {},
}  # fmt: skip
"""What ends workers, or starts them, by the names of its settings here and by those of each server."""


class _Gunicorn(_Supervised, ABC):
    """Workers of gunicorn."""

    preload: bool = Field(False, description="true: the application is loaded before the workers are forked.")

    passed_on: ClassVar[tuple[str, ...]] = ("preload",)


class UserGthread(_Gunicorn, GunicornGthread):
    """A WSGI application on gunicorn's threads."""

    threads: int = Field(ge=1)  # here and below: pydantic takes the fields of _Own before those of the server's class


class UserSync(_Gunicorn, GunicornSync):
    """A WSGI application on gunicorn's workers without threads."""

    threads: Literal[1] = 1


class UserGreen(_Gunicorn, GunicornGreen):
    """A WSGI application on gunicorn's greenlets."""

    worker_connections: int = 1000

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_WORKER_CONNECTIONS": str(self.worker_connections)}


class UserUwsgi(_UserApplication, Uwsgi):
    """A WSGI application on uWSGI."""

    threads: int = Field(ge=1)
    upstream_keepalive: Literal[0] = 0


class UserAsgiWorker(_Gunicorn, GunicornAsgi):
    """An ASGI application on gunicorn, with gunicorn's worker or with uvicorn's."""

    loop: Literal["auto"] = "auto"  # type: ignore[assignment]  # what the server finds, as at home
    worker_class: str
    worker_connections: int = 1000

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        own = {"LAB_WORKER_CLASS": self.worker_class, "LAB_WORKER_CONNECTIONS": str(self.worker_connections)}
        return super().factors() | own


class UserUvicorn(_Supervised, AsgiServer):
    """An ASGI application on uvicorn."""

    loop: Literal["auto"] = "auto"  # type: ignore[assignment]
    release: str
    packages: ClassVar[tuple[str, ...]] = ("python/uvicorn",)


class UserHypercorn(UserUvicorn):
    """An ASGI application on hypercorn."""

    packages: ClassVar[tuple[str, ...]] = ("python/hypercorn",)
    listens_with: ClassVar[str] = "--workers 1 --bind 127.0.0.1:"


class UserDaphne(_UserApplication, Daphne):
    """An ASGI application on daphne."""

    workers: Literal[1] = 1
    loop: Literal["auto"] = "auto"  # type: ignore[assignment]
    release: str


class UserGranian(_UserApplication, GranianOfRelease, GranianAsgi):
    """An ASGI application on granian."""

    loop: Literal["auto"] = "auto"  # type: ignore[assignment]


class UserGranianWsgi(_UserApplication, GranianOfRelease, GranianWsgi):
    """A WSGI application on granian's blocking threads."""

    threads: int = Field(ge=1)


def candidates(service: UserService, layer: Layer, cores: int = 1) -> list[ServingOption]:
    """Return today's way to serve an application, and the other ways that its server and release allow.

    ``cores`` are those that containers may use. Raise WrongUse if today's workers do not fit into the memory.
    """
    try:
        ways = [make_way(OptionKind("today", "today", "", gthread), service, layer)]
    except NotPossible as error:
        raise WrongUse(f"served: {error}.", hint="Give more memory_mib, or fewer workers.") from None
    for kind in KINDS:
        if not _is_possible(service, kind.name):
            continue
        try:
            way = make_way(kind, service, layer, cores)
        except NotPossible:
            continue  # its workers do not fit into the memory
        if way.variant.model_dump(exclude={"layer"}) != ways[0].variant.model_dump(exclude={"layer"}):
            ways.append(way)
    return ways


def kinds_that_lift(service: UserService, limits: Sequence[str], cores: int) -> list[str]:
    """Return the kinds of ways that may lift one of these limits, for a server on so many cores."""
    allowed = lifting_kinds(service.served)
    useless = {"more-workers"} if "processors" in limits and service.served.processes >= cores else set()
    found = [next((kinds for kinds in LIFTED.get(limit, ()) if {*kinds} <= {*allowed}), ()) for limit in limits]
    return [kind for kind in allowed if kind in {*chain(*found)} - useless]


def untried_reasons(service: UserService) -> Sequence[str]:
    """Return a sentence for each way that is not tried, with the reason."""
    served = service.served
    elsewhere = [] if service.application.folder else [kind for kind in kinds_if_named(served) if kind in _ELSEWHERE]
    no_server = [f"{' and '.join(elsewhere)}, because the image has only {served.server}."] if elsewhere else []
    if served.processes == 1:
        alone = "ways against waits beside a free thread, because a single worker has no other worker beside it."
        return [alone, *no_server]
    old = [f"{kind} needs gunicorn {first} or later." for kind, first in WITH_NEWER.items()
           if kind in default_kinds(served) and _needs_newer(served, kind)]  # fmt: skip
    without = [f"limit and idle-thread, because {why}." for why in [_without_limit(served)] if why]
    many = [f"least-conn would need {served.processes} containers; the lab starts at most {MOST_REPLICAS}."]
    return old + without + no_server + (many if served.processes > MOST_REPLICAS else [])


def _without_limit(served: Served) -> str:
    """Return why no way can keep a busy worker from accepting requests; empty: there are such ways."""
    match served.kind:
        case "gthread" | "sync":
            return ""
        case "uwsgi":
            return "a thread of uWSGI accepts a connection only when it is free, as it is served today"
        case "granian-wsgi":
            return "only gunicorn has them"
        case "gevent" | "eventlet":
            return "they count busy threads, and greenlets have no threads"
        case _:
            return "they count busy threads, and an event loop has no threads"


def _is_possible(service: UserService, kind: str) -> bool:
    """Return whether a way of a kind can be tried, if its workers fit into the memory."""
    served = service.served
    if kind not in _tried(service) or _needs_newer(served, kind):
        return False
    if kind == "least-conn" and served.processes > MOST_REPLICAS:
        return False
    return served.processes > 1 or kind in FOR_SINGLE


def _needs_newer(served: Served, kind: str) -> bool:
    return served.server == "gunicorn" and served.major < WITH_NEWER.get(kind, 0)


def too_large_ways(service: UserService, layer: Layer, kinds: Iterable[str], cores: int) -> Iterator[str]:
    """Yield why ways of these kinds cannot be tried: a container cannot hold their workers or threads."""
    for kind in KINDS:
        if kind.name in kinds and _is_possible(service, kind.name):
            try:
                make_way(kind, service, layer, cores)
            except NotPossible as error:
                yield f"{kind.name}: {error}.{' Give more memory_mib.' if 'memory_mib' in str(error) else ''}"


def default_kinds(served: Served) -> tuple[str, ...]:
    """Return the kinds of ways that need neither a limit nor ``WAYS``."""
    return TRIED.get(served.kind, OTHERWISE)


def _tried(service: UserService) -> tuple[str, ...]:
    served = service.served
    further = tuple(kind for kind in kinds_if_named(served) if kind not in _ELSEWHERE or service.application.folder)
    return default_kinds(served) + further + lifting_kinds(served)


_ELSEWHERE = ("uwsgi", *NEIGHBOURS)
"""Ways with another server, which an image that exists lacks."""


def kinds_if_named(served: Served) -> tuple[str, ...]:
    """Return the kinds of ways that are tried only if ``--ways`` names them."""
    if served.is_asgi:
        own = ("reuse-port",) if served.server == "gunicorn" else ()
        return own + tuple(server for server in ("granian", "uvicorn") if server != served.server)
    match served.kind:
        case "gthread":
            return ("reuse-port", "sync", "uwsgi", "granian")
        case "granian-wsgi":
            return ("gunicorn",)
        case "uwsgi":
            return ()
        case _:
            return ("reuse-port",)


def lifting_kinds(served: Served) -> tuple[str, ...]:
    """Return the kinds of ways that lift limits of such workers."""
    match served.kind:
        case "gthread" | "uwsgi" | "granian-wsgi":
            kinds: tuple[str, ...] = LIFTING[:2]
        case "sync" | "gevent" | "eventlet":
            kinds = ("more-workers", "gthread")
        case _:
            kinds = ("more-workers",)
    of_server = {
        "gunicorn": ("jitter", "never-replaced", "preload", "longer-timeout"),
        "uvicorn": ("jitter", "never-replaced", "longer-timeout"),
        "uwsgi": ("never-replaced",),
    }.get(served.server, ())
    first = UVICORN_WITH if served.server == "uvicorn" else {}
    numbers = tuple(map(int, re.findall(r"\d+", served.release)[:2]))
    return kinds + tuple(kind for kind in of_server if numbers >= first.get(kind, (0, 0)))


class NotPossible(ValueError):
    """A way to serve cannot be tried, such as one whose workers do not fit into the memory."""


def make_way(kind: OptionKind, service: UserService, layer: Layer, cores: int = 1) -> ServingOption:
    """Return a way of a kind for a service, with as many threads as today but for the kinds of LIFTING.

    ``cores`` are those that containers may use. Raise NotPossible if it cannot be tried.
    """
    served = service.served
    lifting = kind.name in LIFTING
    settings = _lifting_settings(kind, service, cores) if lifting else _settings(kind, service)
    shared = {
        "callable": service.application.callable,
        "layer": layer,
        "cpus": 0,
        "left_out": settings_not_in_force(service, layer),
    }
    shared |= _how_workers_end(served, str(settings["server"]))
    model, values = _CLASSES[str(settings["server"])], shared | dict(settings)
    try:
        variant = model.model_validate(values)
    except ValidationError as error:
        raise NotPossible(reason_of(error, model, values)) from None
    says = _in_words(kind, served)
    workers = variant.workers * variant.replicas
    memory = variant.replicas * SERVER_MIB
    return ServingOption(says, variant, workers, variant.threads or 1, memory, is_today=kind.name == "today")


def _how_workers_end(served: Served, server: str) -> dict[str, int]:
    """Return after how many requests, and after which silence, workers of a way end: as today, if its server can."""
    program = server.partition("-")[0]
    timeout = {"timeout_s": served.timeout_s} if served.timeout_s and program == served.server else {}
    limit = {"max_requests": served.max_requests} if served.max_requests and program in COUNT_REQUESTS else {}
    jitter = {"max_requests_jitter": served.max_requests_jitter} if limit and program != "uwsgi" else {}
    return timeout | limit | jitter


def _settings(kind: OptionKind, service: UserService) -> dict[str, Any]:
    """Return the settings of a way that has as many workers and threads as today, in all."""
    served, today = service.served, _today(service.served)
    whole_mib = served.memory_mib * served.replicas
    alone = today | {
        "workers": served.processes, "replicas": 1, "balance": "round_robin", "memory_mib": whole_mib
    }  # fmt: skip
    match kind.name:
        case "today":
            return today
        case "least-conn":
            each_mib = max(256, whole_mib // served.processes)
            return today | {
                "workers": 1, "replicas": served.processes, "balance": "least_conn", "memory_mib": each_mib
            }  # fmt: skip
        case "one-process" if served.server != "gunicorn" or served.is_asgi:
            most = {
                "threads": served.slots,
                "backpressure": min(MOST_CONNECTIONS, served.most_at_once * served.processes),
            }
            return alone | {name: value for name, value in most.items() if name in today} | {"workers": 1}
        case "map-socket":
            settings = alone | {"map_socket": True, "balance": "least_conn"}
        case "reuse-port":
            settings = alone | {"reuse_port": True}
        case "uwsgi":
            settings = kind.settings(served.processes, served.threads) | {"memory_mib": whole_mib}
        case "gunicorn" | "granian" | "uvicorn":
            settings = _neighbour(kind.name, service) | {"workers": served.processes, "memory_mib": whole_mib}
        case _:
            of = (1, served.slots) if kind.for_single_worker else (served.processes, served.threads)
            settings = kind.settings(*of) | {"release": served.release, "memory_mib": whole_mib}
    return settings


def _lifting_settings(kind: OptionKind, service: UserService, cores: int) -> dict[str, Any]:
    """Return the settings of a way that may lift a limit: with more workers or threads than today."""
    served, today = service.served, _today(service.served)
    most = max(cores, 2 * served.processes)
    match kind.name:
        case "jitter":
            settings = today | {"max_requests_jitter": served.max_requests}
        case "never-replaced":
            settings = today | {"max_requests": 0, "max_requests_jitter": 0}
        case "preload":
            settings = today | {"preload": True}
        case "longer-timeout":
            settings = today | {"timeout_s": LONGER * (served.timeout_s or SILENT_S[served.server])}
        case "more-workers" if served.server == "daphne":  # its only process is a container
            settings = today | {"replicas": min(MOST_REPLICAS, most), "balance": "least_conn"}
        case "more-workers":
            settings = today | {"workers": min(MOST_WORKERS, ceil(most / served.replicas))}
        case "more-threads":
            settings = today | {"threads": min(MOST_THREADS, 2 * served.threads)}
        case _:
            settings = today | gthread(served.workers, _threads_for(service))
    for limit in {"worker_connections", "backpressure"} & settings.keys():
        settings[limit] = max(settings[limit], settings.get("threads", 1))
    return settings


def _in_words(kind: OptionKind, served: Served) -> OptionKind:
    """Return a way with why it may be better, and what it costs, in words that fit the server."""
    if kind.name == "one-process" and served.is_asgi:
        serves = (f"{served.server}: one event loop serves all requests, so no request waits for a busy loop although "
                  "another loop is free.")  # fmt: skip
        return replace(kind, serves=serves, cost="one processor; if the process dies, all its requests fail")
    return kind


def _neighbour(server: str, service: UserService) -> dict[str, Any]:
    """Return the settings of another server with as many workers and threads as today."""
    served, file = service.served, service.application.requirements
    release = pinned_release(server, required_lines(file) if file else []) or NEIGHBOURS[server]
    most_at_once = max(served.threads, GRANIAN_BACKLOG // served.processes)
    match server:
        case "gunicorn":
            return {"server": "gunicorn-gthread", "threads": served.threads, "release": release}
        case "granian" if not served.is_asgi:
            own = {"server": "granian-wsgi", "threads": served.threads}
            return own | {"backpressure": most_at_once, "release": release}
        case "granian":
            return {"server": "granian", "backpressure": most_at_once, "release": release}
        case _:
            return {"server": "uvicorn", "release": release}


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
    found += [f"{each} of the command line" if each.startswith("-") else each for each in served.left_out]
    variables = read_env_files(application.env_file)
    names = [name for name in variables | application.environment if name in _OF_SERVERS or name.startswith("GRANIAN_")]
    return [*found, *(f"the variable {name}" for name in names)]


_OF_SERVERS = ("GUNICORN_CMD_ARGS", "WEB_CONCURRENCY", "UVICORN_WORKERS", "UVICORN_LIMIT_MAX_REQUESTS")
"""Variables that tell servers how to serve. The lab sets variables when its server has started already."""


def _today(served: Served) -> dict[str, Any]:
    """Return the settings of the variant that serves an application as it is served today."""
    shared: dict[str, Any] = {"release": served.release, "workers": served.workers, "memory_mib": served.memory_mib}
    shared |= {"replicas": served.replicas, "balance": served.balance}
    threads, limit = {"threads": served.threads}, {"worker_connections": served.worker_connections}
    most_at_once = {"backpressure": served.most_at_once}
    own: dict[str, Any]
    match served.kind:
        case "gthread":
            own = {"server": "gunicorn-gthread"} | threads | limit
        case "sync":
            own = {"server": "gunicorn-sync"}
        case "gevent" | "eventlet" as worker:
            own = {"server": f"gunicorn-{worker}"} | limit
        case "uwsgi":
            own = {"server": "uwsgi"} | threads
        case "granian-wsgi":
            own = {"server": "granian-wsgi"} | threads | most_at_once
        case "granian":
            own = {"server": "granian"} | most_at_once
        case "uvicorn" | "hypercorn" | "daphne" as server:
            own = {"server": server}
        case worker:
            own = {"server": f"gunicorn-{ASGI_WORKERS[worker]}", "worker_class": worker} | limit
    return own | shared


_CLASSES: dict[str, type[Variant]] = {
    "gunicorn-gthread": UserGthread, "gunicorn-sync": UserSync, "gunicorn-gevent": UserGreen,
    "gunicorn-eventlet": UserGreen, "gunicorn-asgi": UserAsgiWorker, "gunicorn-uvicorn": UserAsgiWorker,
    "uvicorn": UserUvicorn, "uwsgi": UserUwsgi, "granian": UserGranian, "granian-wsgi": UserGranianWsgi,
    "hypercorn": UserHypercorn, "daphne": UserDaphne,
}  # fmt: skip

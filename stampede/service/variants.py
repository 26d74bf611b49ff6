"""Variants that serve somebody's own application instead of the lab's workload: today's command, and changes of it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import ConfigDict, Field, SkipValidation, ValidationError

from stampede.advise.options import ServingOption
from stampede.errors import WrongUse
from stampede.predict.options import KINDS as KINDS_OF_WAYS
from stampede.predict.options import MOST_REPLICAS, OptionKind, gthread
from stampede.records.mistakes import reason_of
from stampede.records.run import GTHREAD_CONNECTIONS, Queueing
from stampede.servers import KINDS
from stampede.servers.asgi import Asgi
from stampede.servers.base import SERVER_MIB, Variant
from stampede.servers.program import GRANIAN, GRANIAN_BACKLOG, MOST_THREADS, PROGRAMS
from stampede.service.answers import Record
from stampede.service.description import MOST_CONNECTIONS, Served, UserService
from stampede.service.layer import OWN, Layer
from stampede.service.packages import pinned_release, required_lines

NEIGHBOURS = ("gunicorn", "granian", "uvicorn")
"""Other servers that are ways."""
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
LONGER = 10
"""How many times as long the way with a longer timeout waits."""
MOST_WORKERS, LEAST_THREADS = 64, 4
CALLED = "stampede_called:application"
"""A module of the container that calls a factory with its arguments, for servers that cannot."""
_ELSEWHERE = ("uwsgi", *NEIGHBOURS)
"""Ways with another server, which an image that exists lacks."""
_OF_BOX = ("server", "release", "workers", "threads", "replicas", "balance", "memory_mib", "upstream_keepalive")


class Own(Variant):
    """Somebody's own application, which its own command serves, with options added, or another server's command."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    server: str
    app: Literal["own"] = "own"
    callable: str = ""
    release: str
    worker_class: str = ""
    max_requests: int = 0
    max_requests_jitter: int = 0
    timeout_s: int = 0
    added: dict[str, str | int | bool] = Field({}, description="Options that differ from today's.")
    command: str = Field("", description="The command, unless it is the application's own.")
    like: SkipValidation[Variant] = Field(exclude=True, repr=False)
    layer: Layer = Field(exclude=True, repr=False)

    service: ClassVar[str] = OWN
    modules: ClassVar[dict[str, str]] = {"own": "own:app"}

    @property
    def packages(self) -> tuple[str, ...]:  # type: ignore[override]
        """The package of the server."""
        return (f"python/{self.program}",)

    @property
    def workload(self) -> Layer:
        """The application."""
        return self.layer

    @property
    def accept(self) -> Literal["shared", "per-worker"] | None:
        """Whether the workers share a listening socket."""
        if first := PROGRAMS[self.program].first.get("own sockets"):
            return "per-worker" if _numbers(self.release) >= first else "shared"
        return self.like.accept

    @property
    def queueing(self) -> Queueing:
        """As that of the lab's own variant with such workers."""
        known = self.like.queueing
        return known.model_copy(update={"keeps_idle": known.keeps_idle or self.upstream_keepalive > 0})

    @property
    def ports(self) -> range:
        """The ports on which each container listens."""
        return self.like.ports

    @property
    def elastic(self) -> bool:
        """Whether workers come and go during the load."""
        return self.max_requests > 0

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        further = self.layer.server[0] not in ("", self.program)  # the layer has the server of today
        tag = self.layer.tag + (f"-{self.program}-{self.release}" if further else "")
        way: dict[str, Any] = {}
        if self.command:
            called = {"STAMPEDE_CALLABLE": self.callable} if CALLED in self.command else {}
            way = {"words": shlex.split(self.command), "environment": called}
        elif self.added:
            way = {"options": {"server": self.program, "settings": self.added}}
        return super().factors() | {
            "LAB_WAY": quote(json.dumps(way, sort_keys=True)), "LAB_USER_SERVICE": tag,
            "LAB_FURTHER": f"{self.program}=={self.release}" if further and self.program != "uwsgi" else "",
        }  # fmt: skip

    def configuration(self) -> list[str]:
        """Return what to add to today's command, or the command of another server."""
        if self.command:
            return [self.command.replace(CALLED, shlex.quote(self.callable))]
        if self.added.get("map-socket"):  # each process needs its socket, and nginx all of them
            return self.like.configuration()
        return PROGRAMS[self.program].pasted(self.added)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


class NotPossible(ValueError):
    """A way to serve cannot be tried, such as one whose workers do not fit into the memory."""


def possible_ways(
    service: UserService, layer: Layer, told: Record, cores: int = 1
) -> tuple[list[ServingOption], dict[str, str]]:
    """Return today's way to serve an application and the other ways that its server and release allow.

    ``told`` is what the server of the start command said; ``cores`` are those that containers may use. Also return, by
    kind, why ways cannot be tried. Raise WrongUse if today's workers do not fit into the memory.
    """
    served, workers = service.served, service.served.kind
    ways: list[ServingOption] = []
    refused: dict[str, str] = {}
    of_server = [kind for kind in workers.named if kind not in _ELSEWHERE or service.application.folder]
    allowed = {"today", *workers.tried, *of_server, *lifting_kinds(served)}
    if served.processes > MOST_REPLICAS:
        allowed.discard("least-conn")
    if served.processes == 1:  # the other ways are for several workers
        allowed &= {"today", *LIFTING, "sync", *_ELSEWHERE}
    for kind in (OptionKind("today", "today", "", gthread), *KINDS_OF_WAYS):
        if kind.name in allowed and not _needs_newer(served, kind.name):
            try:
                way = make_way(kind, service, layer, told, cores)
            except NotPossible as error:
                more = " Give more memory_mib." if "memory_mib" in str(error) else ""
                if kind.name == "today":
                    raise WrongUse(f"served: {error}.", more and "Give more memory_mib, or fewer workers.") from None
                refused[kind.name] = f"{kind.name}: {error}.{more}"
            else:
                if not ways or way.variant != ways[0].variant:
                    ways.append(way)
    return ways, refused


def kinds_that_lift(service: UserService, limits: Sequence[str], cores: int) -> list[str]:
    """Return the kinds of ways that may lift one of these limits, for a server on so many cores."""
    allowed = lifting_kinds(service.served)
    useless = {"more-workers"} if "processors" in limits and service.served.processes >= cores else set()
    found = [next((kinds for kinds in LIFTED.get(limit, ()) if {*kinds} <= {*allowed}), ()) for limit in limits]
    return [kind for kind in allowed if kind in {*chain(*found)} - useless]


def untried_reasons(service: UserService) -> Sequence[str]:
    """Return a sentence for each way that is not tried, with the reason."""
    served = service.served
    elsewhere = [] if service.application.folder else [kind for kind in served.kind.named if kind in _ELSEWHERE]
    no_server = [f"{' and '.join(elsewhere)}, because the image has only {served.server}."] if elsewhere else []
    if served.processes == 1:
        alone = "ways against waits beside a free thread, because a single worker has no other worker beside it."
        return [alone, *no_server]
    old = [f"{kind} needs {served.server} {'.'.join(map(str, first))} or later."
           for kind, first in PROGRAMS[served.server].first.items()
           if kind in served.kind.tried and _needs_newer(served, kind)]  # fmt: skip
    without = [f"limit and idle-thread, because {why}." for why in [served.kind.no_limit] if why]
    many = [f"least-conn would need {served.processes} containers; the lab starts at most {MOST_REPLICAS}."]
    return old + without + no_server + (many if served.processes > MOST_REPLICAS else [])


def _needs_newer(served: Served, kind: str) -> bool:
    """Return whether the server of a service is too old for a kind of ways."""
    return _numbers(served.release) < PROGRAMS[served.server].first.get(kind, ())


def lifting_kinds(served: Served) -> tuple[str, ...]:
    """Return the kinds of ways that lift limits of such workers."""
    kinds = served.kind.lifting + PROGRAMS[served.server].lifts
    return tuple(kind for kind in kinds if not _needs_newer(served, kind))


def make_way(kind: OptionKind, service: UserService, layer: Layer, told: Record, cores: int = 1) -> ServingOption:
    """Return a way of a kind for a service, with as many threads as today but for the kinds of LIFTING.

    ``cores`` are those that containers may use. Raise NotPossible if it cannot be tried.
    """
    served = service.served
    names = (*_OF_BOX, *PROGRAMS[served.server].names)
    today: dict[str, Any] = {name: value for name in names if (value := getattr(served, name, None))}
    today["server"] = served.kind.server
    if not served.kind.threads:
        del today["threads"]
    if served.kind.threads == 1:  # it holds one connection
        del today["worker_connections"]
    if served.server == "granian":
        today["backpressure"] = served.most_at_once
    if served.server == "gunicorn" and told.settings.get("reuse_port"):
        today["reuse_port"] = True
    if served.server == "uwsgi" and {"http", "https"} & told.settings.keys():
        today["router"] = "tcp"
    settings = _settings(kind, service, today, cores)
    program = PROGRAMS[str(settings["server"]).partition("-")[0]]
    added: dict[str, Any] = {}
    command = ""
    if program.name == served.server:
        added = program.options({name: value for name, value in settings.items() if value != today.get(name)})
    elif not told.callable:
        raise NotPossible("the server of today's command names no application that can be imported")
    else:
        ends = {"timeout_s", *(() if program.name == "gunicorn" else ("max_requests_jitter",))}
        settings = {name: value for name, value in settings.items()
                    if name in _OF_BOX or (name in program.names and name not in ends)}  # fmt: skip
        cannot_call = "(" in told.callable and program.name not in ("gunicorn", "uwsgi")
        options = program.unusual_options(settings)
        command = shlex.join(program.command(CALLED if cannot_call else told.callable, options))
    like = KINDS.get(settings["server"], Asgi).model_construct(  # no experiment has daphne, which is like the others
        app="own", **{name: value for name, value in settings.items() if name not in ("replicas", "balance")}
    )
    values = {name: value for name, value in settings.items() if name in Own.model_fields} | {
        "callable": told.callable, "layer": layer, "like": like, "added": added, "command": command,
        "cpus": served.cpus * served.replicas / int(settings["replicas"]),  # the same in all
    }  # fmt: skip
    try:
        variant = Own.model_validate(values)
    except ValidationError as error:
        raise NotPossible(reason_of(error, Own, values)) from None
    if kind.name == "one-process" and served.kind.is_asgi:
        serves = (f"{served.server}: one event loop serves all requests, so no request waits for a busy loop although "
                  "another loop is free.")  # fmt: skip
        kind = replace(kind, serves=serves, cost="one processor; if the process dies, all its requests fail")
    workers = variant.workers * variant.replicas
    memory = variant.replicas * SERVER_MIB
    return ServingOption(kind, variant, workers, variant.threads or 1, memory, is_today=kind.name == "today")


def _settings(  # noqa: PLR0911, PLR0912  # a case for each kind
    kind: OptionKind, service: UserService, today: dict[str, Any], cores: int
) -> dict[str, Any]:
    """Return the settings of a way: with as many workers and threads as today, in all, but for the kinds of LIFTING."""
    served, processes, threads = service.served, service.served.processes, service.served.threads
    whole_mib, most = served.memory_mib * served.replicas, max(cores, 2 * processes)
    alone = today | {"workers": processes, "replicas": 1, "balance": "round_robin", "memory_mib": whole_mib}
    if kind.name in _ELSEWHERE:
        file = service.application.requirements
        pinned = pinned_release(kind.name, required_lines(file) if file else []) if kind.name != "uwsgi" else None
        alone["release"] = pinned or PROGRAMS[kind.name].release
    match kind.name:
        case "today":
            return today
        case "least-conn":
            memory_mib = max(256, whole_mib // processes)
            return today | {"workers": 1, "replicas": processes, "balance": "least_conn", "memory_mib": memory_mib}
        case "jitter":
            return today | ({"max_requests_jitter": served.max_requests} if served.max_requests else {})
        case "never-replaced":
            return today | ({"max_requests": 0, "max_requests_jitter": 0} if served.max_requests else {})
        case "preload":
            return today | {"preload": True}
        case "longer-timeout":
            return today | {"timeout_s": LONGER * (served.timeout_s or PROGRAMS[served.server].silent_s)}
        case "more-workers" if served.server == "daphne":  # its only process is a container
            return today | {"replicas": min(MOST_REPLICAS, most), "balance": "least_conn"}
        case "more-workers":
            return today | {"workers": min(MOST_WORKERS, ceil(most / served.replicas))}
        case "more-threads" | "gthread":
            users = sum(asked.users or 0 for asked in service.requests.values())
            more = 2 * threads if kind.name == "more-threads" else max(LEAST_THREADS, ceil(users / processes))
            found = today | {"threads": min(MOST_THREADS, more)}
            for limit in {"worker_connections", "backpressure"} & found.keys():
                found[limit] = max(found[limit], found["threads"])
            return found | ({"server": "gunicorn-gthread", "worker_class": "gthread"} if kind.name == "gthread" else {})
        case "one-process" if served.server != "gunicorn" or served.kind.is_asgi:
            whole = {"threads": served.slots, "backpressure": min(MOST_CONNECTIONS, served.most_at_once * processes)}
            return alone | {name: value for name, value in whole.items() if name in today} | {"workers": 1}
        case "map-socket":
            return alone | {"map_socket": True, "router": "none", "balance": "least_conn"}
        case "reuse-port":
            return alone | {"reuse_port": True}
        case "granian":
            interface = "asgi" if served.kind.is_asgi else "wsgi"
            return alone | {"server": GRANIAN.kinds[interface].server, "interface": interface,
                            "backpressure": max(threads, GRANIAN_BACKLOG // processes)}  # fmt: skip
        case "gunicorn" | "uvicorn" | "uwsgi":
            return alone | kind.settings(processes, threads) | {"worker_class": "gthread"}  # of gunicorn
        case "sync":
            return alone | kind.settings(processes, threads) | {"worker_class": "sync", "threads": 1}
        case _:
            of = (1, served.slots) if kind.for_single_worker else (processes, threads)
            return alone | {"worker_class": "gthread", "worker_connections": GTHREAD_CONNECTIONS} | kind.settings(*of)

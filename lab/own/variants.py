"""Variants that serve somebody's own application instead of the lab's workload."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationError

from analysis.ways import KINDS_OF_WAYS, MOST_REPLICAS, Kind, gthread
from lab.advice.ways import Way
from lab.errors import WrongUse
from lab.limits import SERVER_MIB
from lab.own.service import CALLABLE_PATTERN, OwnService
from lab.servers.base import Layer, Variant
from lab.servers.gunicorn import FIRST_WITH_IDLE_THREAD, GunicornGthread, GunicornSync

FIRST_WITH_LIMIT = 24
"""Before gunicorn 24, a worker at its limit of connections stopped answering (docs/connection-deadlock.md)."""
WITH_NEWER = {"limit": FIRST_WITH_LIMIT, "idle-thread": FIRST_WITH_IDLE_THREAD, "reuse-port": 24}
TRIED = ("limit", "idle-thread", "least-conn", "one-process")
"""The kinds of ways that are tried beside today's."""


class _Own(Variant):
    """What both kinds of variants have: the callable, and the image with the application."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    callable: str = Field(pattern=CALLABLE_PATTERN)
    locked: ClassVar[bool] = False
    own: Layer = Field(exclude=True, repr=False)

    @property
    def layer(self) -> Layer:
        """The application's layer on the server's image."""
        return self.own


class OwnGthread(_Own, GunicornGthread):
    """An own application on gunicorn's threads."""

    app: Literal["own"] = "own"  # type: ignore[assignment]  # the lab's frameworks are no choice here

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return _factors(super().factors(), self.callable, self.own)


class OwnSync(_Own, GunicornSync):
    """An own application on gunicorn's workers without threads."""

    app: Literal["own"] = "own"  # type: ignore[assignment]  # the lab's frameworks are no choice here

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return _factors(super().factors(), self.callable, self.own)


def _factors(factors: dict[str, str], of: str, layer: Layer) -> dict[str, str]:
    """Return the factors of an own application. Its image is built on the lab's default image of the server."""
    return factors | {"LAB_CALLABLE": of, "LAB_RELEASE": "", "LAB_OWN": f"-own-{layer.tag}"}


def candidates(service: OwnService, layer: Layer) -> list[Way]:
    """Return today's way to serve an application, and the other ways that its release of gunicorn allows.

    Raise WrongUse if today's workers do not fit into the memory.
    """
    served = service.served
    try:
        ways = [_way(Kind("today", "today", "", gthread), service, layer, today=True)]
    except ValidationError as error:
        problem = error.errors()[0].get("ctx", {}).get("error", error.errors()[0]["msg"])
        raise WrongUse(f"served: {problem}.", hint="Give more memory_mib, or fewer workers.") from None
    for kind in KINDS_OF_WAYS:
        if kind.name not in TRIED or served.major < WITH_NEWER.get(kind.name, 0):
            continue
        if served.workers == 1 or (kind.name == "least-conn" and served.workers > MOST_REPLICAS):
            continue
        try:
            way = _way(kind, service, layer)
        except ValidationError:
            continue  # its workers do not fit into the memory
        if way.variant.model_dump(exclude={"own"}) != ways[0].variant.model_dump(exclude={"own"}):
            ways.append(way)
    return ways


def left_out(service: OwnService) -> Sequence[str]:
    """Return a sentence for each way that is not tried, with the reason."""
    served = service.served
    if served.workers == 1:
        return ["With a single worker, no request can wait beside a free thread of another worker."]
    old = [f"{kind} needs gunicorn {first} or later." for kind, first in WITH_NEWER.items()
           if kind in TRIED and served.major < first]  # fmt: skip
    many = [f"least-conn would need {served.workers} containers; the lab starts at most {MOST_REPLICAS}."]
    return old + (many if served.workers > MOST_REPLICAS else [])


def _way(kind: Kind, service: OwnService, layer: Layer, *, today: bool = False) -> Way:
    served = service.served
    shared = {
        "release": served.gunicorn, "callable": service.application.callable, "own": layer, "cpus": 0,
        "memory_mib": served.memory_mib,
    }  # fmt: skip
    if today and served.worker_class == "sync":
        variant: Variant = OwnSync.model_validate({"server": "gunicorn-sync", "workers": served.workers} | shared)
    elif today:
        more = {"worker_connections": served.worker_connections, "worker_class": served.worker_class}
        variant = OwnGthread.model_validate(gthread(served.workers, served.threads) | shared | more)
    else:
        settings = kind.of(1, served.slots) if kind.alone else kind.of(served.workers, served.threads)
        if replicas := settings.get("replicas"):
            shared["memory_mib"] = max(256, served.memory_mib // replicas)
        variant = OwnGthread.model_validate(settings | shared)
    workers = variant.workers * variant.replicas
    memory = variant.replicas * SERVER_MIB
    return Way(kind, variant, workers, variant.threads or 1, memory, is_today=today)

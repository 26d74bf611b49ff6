"""gunicorn with each of its kinds of workers."""

from abc import ABC
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from stampede.records.run import EVEN, FORK_ORDER, GTHREAD_CONNECTIONS, Queueing
from stampede.servers.asgi import AsgiApplication
from stampede.servers.base import Release, Replaced, Threads, WsgiApp, lock_problems
from stampede.servers.program import GUNICORN, IDLE_THREAD
from stampede.servers.unreleased import Unreleased

FIRST_WITH = {"reuse_port": GUNICORN.first["reuse-port"][0], "dirty_workers": 25,
              IDLE_THREAD: GUNICORN.first["idle-thread"][0]}  # fmt: skip
"""The first release that has a setting or a class of workers."""
_IN_SOME_LOCKS = {"flask", "django", "fastapi", "gevent", "eventlet", "tornado"}
"""The frameworks and loops that only some releases' lock files have."""
_OF_THE_LAB = {"tornado": "event_loops.CountedTornado", "uvicorn_worker.UvicornWorker": "event_loops.Uvicorn"}
"""The lab's own classes (event_loops.py) for two of the classes that experiments name."""
WorkerConnections = Annotated[int, Field(ge=1, le=65535, description="The most connections that one worker holds.")]
KeepaliveS = Annotated[
    int, Field(ge=0, le=3600, description="How long an idle connection stays open; 0: it carries one request.")
]


class UnreleasedGunicorn(Unreleased):
    """A build of gunicorn that is not released."""

    of: Release = Field(GUNICORN.release, description="The release whose locked packages it has, and a patch changes.")
    like: Literal["gthread", "gunicorn_idle_thread.IdleThreadWorker"] | None = Field(
        None, description="The worker_class of gunicorn-gthread that it queues like; then theory predicts it."
    )


def _build_or_release(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Validate a mapping as a build, so that messages are about its keys alone."""
    return UnreleasedGunicorn.model_validate(value) if isinstance(value, dict) else validate(value)


class Gunicorn(Replaced, ABC):
    """gunicorn with any kind of worker. Each kind has a ``worker_class``, by gunicorn's name."""

    release: Annotated[Release | UnreleasedGunicorn, WrapValidator(_build_or_release)] = Field(
        GUNICORN.release, description="A release that has a file of locked packages, or a build that is not released "
        "(below).", examples=[GUNICORN.release],
    )  # fmt: skip
    reuse_port: bool = Field(False, description="true: each worker has its own listening socket.")

    service: ClassVar[str] = "gunicorn"
    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn",)

    @property
    def locked_release(self) -> str:
        """The release whose packages are locked: of a build that is not released, the release under it."""
        return self.release if isinstance(self.release, str) else self.release.of

    @property
    def _line(self) -> int:
        return int(self.locked_release.split(".")[0])

    def problems(self) -> Iterator[str]:
        """Yield also what the release cannot."""
        yield from super().problems()
        release = self.locked_release
        needed = self.app.partition("-")[0], self.server.removeprefix("gunicorn-")
        yield from lock_problems("gunicorn", release, *(name for name in needed if name in _IN_SOME_LOCKS))
        if getattr(self.release, "like", None) and self.server != "gunicorn-gthread":
            yield f"release.like: theory knows no classes of {self.server}; leave like out"
        for name, first in FIRST_WITH.items():
            asked = getattr(self, name, False) or getattr(self, "worker_class", "") == name
            if asked and self._line < first:
                yield f"{name} needs gunicorn {first} or later; the release is {release}"

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        own = super().factors() | {"LAB_RELEASE": self.locked_release}
        return own | {"LAB_WORKER_CLASS": _OF_THE_LAB.get(worker := getattr(self, "worker_class", ""), worker)}


class GunicornWsgi(Gunicorn, ABC):
    """gunicorn with a synchronous application: bare WSGI, Flask or Django."""

    app: WsgiApp = "wsgi"
    collector: Literal["none", "default", "freeze", "disable", "rare"] = Field(
        "none", description="How Python's garbage collector is set, beside a cache of two million objects: as by "
        "default, with gc.freeze, with gc.disable, or to start after 50,000 objects (rare); none: there is no cache.",
    )  # fmt: skip
    dirty_workers: int = Field(
        0, ge=0, le=64, description="Dirty workers, which compute for the others if a request asks for it, from 25 on."
    )


class GunicornGthread(GunicornWsgi):
    """gunicorn with threads: its gthread worker, or one of the lab's workers that extend gthread."""

    server: Literal["gunicorn-gthread"]
    threads: Threads
    worker_class: Literal[
        "gthread",
        "acceptors.RandomAccept",
        "acceptors.BusyAccept",
        "acceptors.CountedThreads",
        "acceptors.CountedRandomAccept",
        "gunicorn_idle_thread.IdleThreadWorker",
    ] = "gthread"
    worker_connections: WorkerConnections = GTHREAD_CONNECTIONS
    keepalive_s: KeepaliveS = 0

    @property
    def can_deadlock(self) -> bool:
        """Up to 23.0.0, a worker at its limit of connections does not notice that silent connections begin to speak."""
        return (self._line,) < GUNICORN.first["limit"] and self.worker_connections <= self.threads

    @property
    def queueing(self) -> Queueing:
        """A worker accepts up to ``worker_connections`` requests, though it is busy; the lab's workers differ."""
        closes_idle = self.worker_class == IDLE_THREAD
        return Queueing(
            threads=self.threads,
            max_connections=self.threads if closes_idle else self.worker_connections,
            race=EVEN if self.worker_class.endswith("RandomAccept") else FORK_ORDER,
            hesitates=self.worker_class == "acceptors.BusyAccept",
            keeps_idle=self.keepalive_s > 0,
            closes_idle_when_full=closes_idle,
        )


class GunicornSync(GunicornWsgi):
    """gunicorn without threads: a worker accepts a connection when it is free, and holds one connection at a time."""

    server: Literal["gunicorn-sync"]
    worker_class: Literal["sync", "acceptors.CountedSync"] = "sync"
    threads: Literal[1] = 1

    example: ClassVar[dict[str, Any]] = {"workers": 4}

    @property
    def queueing(self) -> Queueing:
        """A worker accepts a connection when it is free."""
        return Queueing(threads=1, max_connections=1)


class GunicornGreen(GunicornWsgi):
    """gunicorn on an event loop: while a request waits, greenlets serve other requests, but Tornado's loop does not."""

    server: Literal["gunicorn-gevent", "gunicorn-eventlet", "gunicorn-tornado"]
    threads: None = None
    worker_connections: WorkerConnections = GTHREAD_CONNECTIONS
    keepalive_s: KeepaliveS = 0

    example: ClassVar[dict[str, Any]] = {"workers": 4}

    @property
    def idle_limit(self) -> tuple[int, float]:
        """Idle connections count against ``worker_connections``."""
        return self.worker_connections, self.keepalive_s

    @property
    def queueing(self) -> Queueing:
        """A worker accepts everything; Tornado's handlers block its loop."""
        limited = self.worker_connections < GTHREAD_CONNECTIONS
        return Queueing(
            loop=True,
            blocks_loop=self.worker_class == "tornado",
            race=EVEN,
            missing="idle connections that count against a limit" if limited else None,
        )

    @property
    def worker_class(self) -> str:
        """The class of workers, by gunicorn's name."""
        return self.server.removeprefix("gunicorn-")


class GunicornAsgi(AsgiApplication, Gunicorn):
    """FastAPI on gunicorn, with gunicorn's own ASGI worker or uvicorn's worker."""

    server: Literal["gunicorn-asgi", "gunicorn-uvicorn"]
    app: Literal["fastapi-sync", "fastapi-typed", "fastapi-async"] = Field(
        description="FastAPI with endpoints that are def, def with a response model, or async def."
    )
    worker_connections: WorkerConnections = GTHREAD_CONNECTIONS
    keepalive_s: KeepaliveS = 0

    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn", "python/uvicorn")

    @property
    def worker_class(self) -> str:
        """The class of workers, by gunicorn's name."""
        return "asgi" if self.server == "gunicorn-asgi" else "uvicorn_worker.UvicornWorker"

"""gunicorn with each of its kinds of workers."""

from abc import ABC
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from stampede.records.run import EVEN, FORK_ORDER, GTHREAD_CONNECTIONS, Queueing
from stampede.servers.asgi import AsgiApplication
from stampede.servers.base import Release, Replaced, Threads, WorkerConnections, WsgiApp, check_lock_file
from stampede.servers.program import GUNICORN, IDLE_THREAD
from stampede.servers.unreleased import Unreleased

[FIRST_WITH_REUSE_PORT], [FIRST_WITH_IDLE_THREAD], [FIRST_THAT_STOPS_ACCEPTING] = (
    GUNICORN.first[kind] for kind in ("reuse-port", "idle-thread", "limit")
)
FIRST_WITH_DIRTY_WORKERS = 25
_OF_THE_LAB = {"tornado": "event_loops.CountedTornado", "uvicorn_worker.UvicornWorker": "event_loops.Uvicorn"}
"""The lab's own classes (event_loops.py) for two of the classes that experiments name."""
KeepaliveS = Annotated[
    int, Field(ge=0, le=3600, description="An idle connection stays open for so long; 0: it carries one request.")
]


class UnreleasedGunicorn(Unreleased):
    """A build of gunicorn that is not released."""

    of: Release = Field(
        GUNICORN.release, description="The release whose locked packages it has, and that a patch changes."
    )
    like: Literal["gthread", "gunicorn_idle_thread.IdleThreadWorker"] | None = Field(
        None,
        description="The worker_class that queues as the build should, of gunicorn-gthread; theory then predicts it.",
    )


def _build_or_release(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Validate a mapping as a build, so that messages are about its keys alone."""
    return UnreleasedGunicorn.model_validate(value) if isinstance(value, dict) else validate(value)


class Gunicorn(Replaced, ABC):
    """gunicorn with any kind of worker."""

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

    @model_validator(mode="after")
    def _release_is_locked(self) -> Self:
        check_lock_file("gunicorn", self.locked_release)
        if isinstance(self.release, UnreleasedGunicorn) and self.release.like and self.server != "gunicorn-gthread":
            raise ValueError(f"release.like: theory knows no classes of {self.server}; leave like out")
        if self.reuse_port and self._line < FIRST_WITH_REUSE_PORT:
            raise ValueError(
                f"gunicorn {self.locked_release} ignores reuse_port; choose a release from {FIRST_WITH_REUSE_PORT} on"
            )
        return self

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """per-worker with reuse_port, which gives each worker its own listening socket; otherwise shared."""
        return "per-worker" if self.reuse_port else "shared"

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        own = super().factors() | {"LAB_RELEASE": self.locked_release}
        return own | {"LAB_WORKER_CLASS": _OF_THE_LAB.get(worker := getattr(self, "worker_class", ""), worker)}


class GunicornWsgi(Gunicorn, ABC):
    """gunicorn with a synchronous application: bare WSGI, Flask or Django."""

    app: WsgiApp = "wsgi"
    collector: Literal["none", "default", "freeze", "disable", "rare"] = Field(
        "none",
        description="How Python's garbage collector is set, beside a cache of two million objects: as by default, with "
        "gc.freeze, with gc.disable, or to start after 50,000 new objects (rare); none: there is no cache.",
    )
    dirty_workers: int = Field(
        0, ge=0, le=64, description="Dirty workers, which compute for the others if a request asks for it, from 25 on."
    )

    @model_validator(mode="after")
    def _release_can(self) -> Self:
        if self.dirty_workers and self._line < FIRST_WITH_DIRTY_WORKERS:
            first = f"choose a release from {FIRST_WITH_DIRTY_WORKERS} on"
            raise ValueError(f"dirty_workers: gunicorn {self.locked_release} has none; {first}")
        if self.app != "wsgi":
            check_lock_file("gunicorn", self.locked_release, self.app)
        return self


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

    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2}

    @model_validator(mode="after")
    def _release_has_the_worker(self) -> Self:
        if self.worker_class == IDLE_THREAD and self._line < FIRST_WITH_IDLE_THREAD:
            raise ValueError(
                f"{IDLE_THREAD} needs gunicorn {FIRST_WITH_IDLE_THREAD} or later; the release is {self.locked_release}"
            )
        return self

    @property
    def can_deadlock(self) -> bool:
        """Up to 23.0.0, a worker at its limit of connections does not notice that silent connections begin to speak."""
        return self._line < FIRST_THAT_STOPS_ACCEPTING and self.worker_connections <= self.threads

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

    @property
    def queueing_of_build(self) -> Queueing:
        """As that of the class that the build should be like, if it names one."""
        like = self.release.like if isinstance(self.release, UnreleasedGunicorn) else None
        return self.model_copy(update={"worker_class": like}).queueing if like else super().queueing_of_build


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

    @model_validator(mode="after")
    def _release_has_the_loop(self) -> Self:
        check_lock_file("gunicorn", self.locked_release, self.worker_class)
        return self

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

    @property
    def worker_class(self) -> str:
        """The class of workers, by gunicorn's name."""
        return "asgi" if self.server == "gunicorn-asgi" else "uvicorn_worker.UvicornWorker"

    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn", "python/uvicorn")
    example: ClassVar[dict[str, Any]] = {"workers": 4, "app": "fastapi-async"}

    @model_validator(mode="after")
    def _release_has_fastapi(self) -> Self:
        check_lock_file("gunicorn", self.locked_release, "fastapi")
        return self

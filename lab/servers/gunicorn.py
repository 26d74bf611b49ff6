"""gunicorn with each of its kinds of workers."""

from abc import ABC
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lab.servers.asgi import AsgiApplication
from lab.servers.base import WSGI, Release, Variant, check_lock_file

FIRST_WITH_REUSE_PORT = 24
IDLE_THREAD, FIRST_WITH_IDLE_THREAD = "idle_thread.IdleThreadWorker", 24


class Gunicorn(Variant, ABC):
    """gunicorn with any kind of worker."""

    release: Release = "27.0.1"
    reuse_port: bool = Field(False, description="true: each worker has its own listening socket.")

    service: ClassVar[str] = "gunicorn"
    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn",)
    locked: ClassVar[bool] = True
    """Whether the lab has lock files of the releases; somebody's own application brings its own requirements."""

    @model_validator(mode="after")
    def _release_is_locked(self) -> Self:
        if self.locked:
            check_lock_file("gunicorn", self.release)
        if self.reuse_port and int(self.release.split(".")[0]) < FIRST_WITH_REUSE_PORT:
            raise ValueError(
                f"gunicorn {self.release} ignores reuse_port; choose a release from {FIRST_WITH_REUSE_PORT} on"
            )
        return self

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """per-worker with reuse_port, which gives each worker its own listening socket; otherwise shared."""
        return "per-worker" if self.reuse_port else "shared"

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_RELEASE": self.release, "LAB_REUSE_PORT": str(self.reuse_port).lower()}


class GunicornWsgi(Gunicorn, ABC):
    """gunicorn with a synchronous application: bare WSGI, Flask or Django."""

    app: Literal["wsgi", "flask", "django"] = Field(
        "wsgi", description="The framework of the application; wsgi: no framework."
    )

    @model_validator(mode="after")
    def _release_has_the_framework(self) -> Self:
        if self.locked and self.app != "wsgi":
            check_lock_file("gunicorn", self.release, self.app)
        return self

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_APP": WSGI[self.app]}


class GunicornGthread(GunicornWsgi):
    """gunicorn with threads: its gthread worker, or one of the lab's workers that extend gthread."""

    server: Literal["gunicorn-gthread"]
    threads: int = Field(ge=1, description="Threads in each process.")
    worker_class: Literal[
        "gthread",
        "acceptors.RandomAccept",
        "acceptors.BusyAccept",
        "acceptors.CountedThreads",
        "acceptors.CountedRandomAccept",
        "idle_thread.IdleThreadWorker",
    ] = "gthread"
    worker_connections: int = Field(1000, ge=1, le=65535, description="The most connections that one worker holds.")
    keepalive_s: int = Field(
        0,
        ge=0,
        le=3600,
        description="How long an idle connection stays open, in seconds; 0: each connection carries one request.",
    )

    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2}

    @model_validator(mode="after")
    def _release_has_the_worker(self) -> Self:
        if self.worker_class == IDLE_THREAD and int(self.release.split(".")[0]) < FIRST_WITH_IDLE_THREAD:
            raise ValueError(
                f"{IDLE_THREAD} needs gunicorn {FIRST_WITH_IDLE_THREAD} or later; the release is {self.release}"
            )
        return self

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {
            "LAB_WORKER_CLASS": self.worker_class,
            "LAB_WORKER_CONNECTIONS": str(self.worker_connections),
            "LAB_KEEPALIVE_S": str(self.keepalive_s),
        }


class GunicornSync(GunicornWsgi):
    """gunicorn without threads: a worker accepts a connection when it is free, and holds one connection at a time."""

    server: Literal["gunicorn-sync"]
    worker_class: Literal["sync", "acceptors.CountedSync"] = "sync"
    threads: Literal[1] = 1

    example: ClassVar[dict[str, Any]] = {"workers": 4}

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_WORKER_CLASS": self.worker_class}


class GunicornGreen(GunicornWsgi):
    """gunicorn on an event loop: while a request waits, greenlets serve other requests, but Tornado's loop does not."""

    server: Literal["gunicorn-gevent", "gunicorn-eventlet", "gunicorn-tornado"]
    threads: None = None

    example: ClassVar[dict[str, Any]] = {"workers": 4}

    @model_validator(mode="after")
    def _release_has_the_loop(self) -> Self:
        if self.locked:
            check_lock_file("gunicorn", self.release, self._loop)
        return self

    @property
    def _loop(self) -> str:
        return self.server.removeprefix("gunicorn-")

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        worker_class = "event_loops.CountedTornado" if self._loop == "tornado" else self._loop
        return super().factors() | {"LAB_WORKER_CLASS": worker_class}


class GunicornAsgi(AsgiApplication, Gunicorn):
    """FastAPI on gunicorn, with gunicorn's own ASGI worker or uvicorn's worker."""

    server: Literal["gunicorn-asgi", "gunicorn-uvicorn"]
    app: Literal["fastapi-sync", "fastapi-typed", "fastapi-async"] = Field(
        description="FastAPI with endpoints that are def, def with a response model, or async def."
    )

    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn", "python/uvicorn")
    example: ClassVar[dict[str, Any]] = {"workers": 4, "app": "fastapi-async"}

    @model_validator(mode="after")
    def _release_has_fastapi(self) -> Self:
        if self.locked:
            check_lock_file("gunicorn", self.release, "fastapi")
        return self

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        classes = {"gunicorn-asgi": "asgi", "gunicorn-uvicorn": "event_loops.Uvicorn"}
        return super().factors() | {"LAB_WORKER_CLASS": classes[self.server]}

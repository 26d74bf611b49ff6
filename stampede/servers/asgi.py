"""Applications on an event loop, and the servers for such applications; granian also serves WSGI applications."""

from abc import ABC
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from stampede.records.run import EVEN, Queueing
from stampede.servers.base import Replaced, Variant
from stampede.servers.unreleased import Unreleased

_ASGI = {
    "fastapi-sync": "fastapi_app:sync",
    "fastapi-typed": "fastapi_app:typed",
    "fastapi-depends": "fastapi_app:depends",
    "fastapi-async": "fastapi_app:asynchronous",
    "fastapi-blocking": "fastapi_app:blocking",
    "fastapi-to-thread": "fastapi_app:in_threads",
    "django": "django_app:asgi",
    "django-async": "django_app:asynchronous",
}
_WITHOUT_A_POOL = {
    "fastapi-async": "no threads",
    "fastapi-blocking": "no threads",
    "django": "one thread for each request",
    "django-async": "no threads",
}
HEALTH_URL = "http://app:9000"
"""The port of its own on which servers/app/fastapi_app.py answers ``/health``."""
GRANIAN_IDLE_S = 30
"""How long granian keeps an idle connection open."""
_OTHER_WAY = "probes that need no thread, beside requests that do"
_REFUSES = "a server that answers 503 at a limit of connections"
_Program = Literal["uvicorn", "granian", "hypercorn"]


class AsgiApplication(Variant, ABC):
    """An application on an event loop. Endpoints run in a pool of threads (``def``) or on the loop (``async def``)."""

    loop: Literal["asyncio", "uvloop"] = Field("asyncio", description="The event loop.")

    modules: ClassVar[dict[str, str]] = _ASGI
    interface: ClassVar[Literal["wsgi", "asgi"]] = "asgi"
    threads_of_server: ClassVar[bool] = False

    @property
    def queueing(self) -> Queueing:
        """A worker accepts everything; endpoints run in its pool of threads, or on its event loop."""
        return Queueing(
            threads=self.threads,
            loop=self.threads is None,
            blocks_loop=self.app == "fastapi-blocking",
            sweeps_backlog=self.server != "granian",  # all others are on asyncio
            keeps_idle=getattr(self, "keepalive_s", 0) > 0,
            missing="Django on an event loop" if self.app.startswith("django") else None,
        )

    @model_validator(mode="after")
    def _threads_fit(self) -> Self:
        if self.app in _WITHOUT_A_POOL and self.threads is not None:
            raise ValueError(f"threads: app: {self.app} has {_WITHOUT_A_POOL[self.app]}; leave threads out")
        if self.app not in _WITHOUT_A_POOL and self.threads is None:
            raise ValueError(f"app: {self.app} runs in threads; give threads for each process (FastAPI's default: 40)")
        return self


class Asgi(AsgiApplication, Replaced):
    """FastAPI or Django on a server that was made for ASGI."""

    server: _Program
    app: Literal[
        "fastapi-sync",
        "fastapi-typed",
        "fastapi-depends",
        "fastapi-async",
        "fastapi-blocking",
        "fastapi-to-thread",
        "django",
        "django-async",
    ] = Field(
        description="FastAPI with endpoints that are def, def with a response model, def with a dependency that takes "
        "the connection to the database, async def, async def that sleeps without await, or async def that calls "
        "to_thread; or Django with views that are def, or async def."
    )
    release: Unreleased | None = Field(
        None, description="A build that is not released (below); left out: the locked release."
    )
    pool_size: int = Field(5, ge=1, le=1000, description="Connections to the database that FastAPI's pool keeps.")
    max_overflow: int = Field(10, ge=0, le=1000, description="Connections that the pool opens beyond pool_size.")
    pool_timeout_s: float = Field(
        30, gt=0, le=3600, description="How long a request waits for a connection of the pool before it fails."
    )
    middleware: Literal["none", "sync", "async", "asgi", "base"] = Field(
        "none", description="Three middlewares before Django's views, which are def (sync) or async def (async); or "
        "six before FastAPI's endpoints, in plain ASGI (asgi) or on Starlette's BaseHTTPMiddleware (base).",
    )  # fmt: skip
    health: Literal["endpoint", "loop", "port"] = Field(
        "endpoint", description="Who answers /health: an endpoint like the others (with to_thread, one on the loop), "
        "an async def on the loop, or a thread that listens on a port of its own.",
    )  # fmt: skip
    keepalive_s: int = Field(5, ge=1, le=3600, description="How many seconds uvicorn keeps an idle connection open.")
    limit_concurrency: int = Field(
        0, ge=0, le=65535, description="At so many open connections, uvicorn answers 503 to every request; 0: no limit."
    )
    backpressure: int | None = Field(
        None, ge=1, le=65535, description="Most connections that a worker of granian holds; left out: its default."
    )

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = tuple(f"python/{program}" for program in get_args(_Program))
    asks_database: ClassVar[tuple[str, ...]] = ("django", "fastapi-sync", "fastapi-depends")
    example: ClassVar[dict[str, Any]] = {"workers": 4, "app": "fastapi-async"}

    @model_validator(mode="after")
    def _settings_belong_together(self) -> Self:
        of_server = {"keepalive_s": "uvicorn", "limit_concurrency": "uvicorn", "backpressure": "granian"}
        for name, server in of_server.items():
            if self.server != server and name in self.model_fields_set:
                raise ValueError(f"{name}: {self.server} has settings of its own; choose server: {server}")
        of = ("none", "sync", "async") if self.app.startswith("django") else ("none", "asgi", "base")
        if self.middleware not in of:
            raise ValueError(f"middleware: {self.middleware} is not for app: {self.app}; choose {', '.join(of)}")
        if self.health == "loop" and self.app not in ("fastapi-sync", "fastapi-typed"):
            raise ValueError(f"health: app: {self.app} has no endpoints in a pool of threads; leave health out")
        if self.health == "port" and (self.app.startswith("django") or self.workers > 1 or self.balancer != "none"):
            raise ValueError("health: port needs app: fastapi-…, workers: 1 and balancer: none")
        return self

    @property
    def queueing(self) -> Queueing:
        """As of every application on an event loop; theory lacks probes that need no thread, and answers of 503."""
        beside = self.health != "endpoint" or self.app == "fastapi-to-thread"
        missing = _OTHER_WAY if beside else _REFUSES if self.limit_concurrency else None
        own: dict[str, Any] = {"missing": missing} if missing else {}
        own |= {"race": EVEN, "max_connections": self.backpressure} if self.server == "granian" else {}
        return super().queueing.model_copy(update=own)

    @property
    def idle_limit(self) -> tuple[int, float] | None:
        """Idle connections count against granian's ``backpressure``; at uvicorn's limit, requests are refused."""
        return (self.backpressure, GRANIAN_IDLE_S) if self.backpressure else None

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_HEALTH_URL": HEALTH_URL if self.health == "port" else ""}


class GranianWsgi(Variant):
    """granian with a WSGI application, whose blocking threads take requests from their worker's queue."""

    server: Literal["granian-wsgi"]
    threads: int = Field(ge=1, description="Blocking threads in each process.")
    app: Literal["wsgi"] = "wsgi"
    backpressure: int = Field(
        ge=1, le=65535, description="The most connections that one worker holds, those without a request included."
    )

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = ("python/granian",)
    modules: ClassVar[dict[str, str]] = {"wsgi": "counted:app"}
    interface: ClassVar[Literal["wsgi", "asgi"]] = "wsgi"
    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2, "backpressure": 256}

    @property
    def queueing(self) -> Queueing:
        """A worker accepts up to ``backpressure`` connections, although its blocking threads are busy."""
        return Queueing(threads=self.threads, max_connections=self.backpressure, race=EVEN, keeps_idle=True)

    @property
    def idle_limit(self) -> tuple[int, float]:
        """Idle connections count against ``backpressure``."""
        return self.backpressure, GRANIAN_IDLE_S

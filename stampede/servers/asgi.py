"""Applications on an event loop, and the servers for such applications; granian also serves WSGI applications."""

from abc import ABC
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

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
_WITHOUT_A_POOL = {"fastapi-async", "fastapi-blocking", "django", "django-async"}
"""The applications that have no pool of threads: they have none, or, Django with def, one for each request."""


class AsgiApplication(Variant, ABC):
    """An application on an event loop. Endpoints run in a pool of threads (``def``) or on the loop (``async def``)."""

    loop: Literal["asyncio", "uvloop"] = Field("asyncio", description="The event loop.")

    modules: ClassVar[dict[str, str]] = _ASGI
    interface: ClassVar[Literal["wsgi", "asgi"]] = "asgi"
    example: ClassVar[dict[str, Any]] = {"workers": 4, "app": "fastapi-async"}

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

    def problems(self) -> Iterator[str]:
        """Yield also whether the application needs threads, or has none."""
        yield from super().problems()
        if self.app in _WITHOUT_A_POOL and self.threads is not None:
            yield f"threads: app: {self.app} has no pool of threads; leave threads out"
        if self.app not in _WITHOUT_A_POOL and self.threads is None:
            yield f"app: {self.app} runs in threads; give threads for each process (FastAPI's default: 40)"


class Asgi(AsgiApplication, Replaced):
    """FastAPI or Django on a server that was made for ASGI."""

    server: Literal["uvicorn", "granian", "hypercorn"]
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
    pool_timeout_s: float = Field(30, gt=0, le=3600, description="A request that waits longer for a connection fails.")
    middleware: Literal["none", "sync", "async", "asgi", "base"] = Field(
        "none", description="Three middlewares before Django's views, which are def (sync) or async def (async); or "
        "six before FastAPI's endpoints, in plain ASGI (asgi) or on Starlette's BaseHTTPMiddleware (base).",
    )  # fmt: skip
    health: Literal["endpoint", "loop", "port"] = Field(
        "endpoint", description="Who answers /health: an endpoint like the others (with to_thread, one on the loop), "
        "an async def on the loop, or a thread that listens on a port of its own.",
    )  # fmt: skip
    keepalive_s: int = Field(5, ge=1, le=3600, description="How many seconds uvicorn keeps an idle connection open.")
    limit_concurrency: int = Field(0, ge=0, le=65535, description="Connections at which uvicorn answers 503; 0: never.")
    backpressure: int | None = Field(
        None, ge=1, le=65535, description="Most connections of one worker of granian; left out: its default."
    )

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = ("python/uvicorn", "python/granian", "python/hypercorn")

    def problems(self) -> Iterator[str]:
        """Yield also which settings belong to another server or application."""
        yield from super().problems()
        of_server = {"keepalive_s": "uvicorn", "limit_concurrency": "uvicorn", "backpressure": "granian"}
        for name, server in of_server.items():
            if self.server != server and name in self.model_fields_set:
                yield f"{name}: {self.server} has settings of its own; choose server: {server}"
        of = ("none", "sync", "async") if self.app.startswith("django") else ("none", "asgi", "base")
        if self.middleware not in of:
            yield f"middleware: {self.middleware} is not for app: {self.app}; choose {', '.join(of)}"
        if self.health == "loop" and self.app not in ("fastapi-sync", "fastapi-typed"):
            yield f"health: app: {self.app} has no endpoints in a pool of threads; leave health out"
        if self.health == "port" and (self.app.startswith("django") or self.workers > 1 or self.balancer != "none"):
            yield "health: port needs app: fastapi-…, workers: 1 and balancer: none"

    @property
    def queueing(self) -> Queueing:
        """As of every application on an event loop; theory lacks probes that need no thread, and answers of 503."""
        own: dict[str, Any] = {}
        if self.health != "endpoint" or self.app == "fastapi-to-thread":
            own["missing"] = "probes that need no thread, beside requests that do"
        elif self.limit_concurrency:
            own["missing"] = "a server that answers 503 at a limit of connections"
        if self.server == "granian":
            own |= {"race": EVEN, "max_connections": self.backpressure}
        return super().queueing.model_copy(update=own)

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        own_port = "http://app:9000" if self.health == "port" else ""  # servers/app/fastapi_app.py answers there
        return super().factors() | {"LAB_HEALTH_URL": own_port}

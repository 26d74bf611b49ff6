"""Applications on an event loop, and the servers for such applications."""

from abc import ABC
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from analysis.records.queueing import Queueing
from lab.servers.base import Variant

_ASGI = {
    "fastapi-sync": "fastapi_app:sync",
    "fastapi-typed": "fastapi_app:typed",
    "fastapi-async": "fastapi_app:asynchronous",
    "django": "django_app:asgi",
    "own": "own:asgi",
}
_WITHOUT_A_POOL = {
    "fastapi-async": "no threads",
    "django": "one thread for each request",
    "own": "threads that nobody else knows",
}


class AsgiApplication(Variant, ABC):
    """An application on an event loop. Endpoints run in a pool of threads (``def``) or on the loop (``async def``)."""

    loop: Literal["asyncio", "uvloop"] = Field("asyncio", description="The event loop.")

    modules: ClassVar[dict[str, str]] = _ASGI
    passed_on: ClassVar[tuple[str, ...]] = ("loop",)

    @property
    def queueing(self) -> Queueing:
        """A worker accepts everything; endpoints run in its pool of threads, or on its event loop."""
        return Queueing(
            threads=self.threads,
            loop=self.threads is None,
            sweeps_backlog=self.server != "granian",  # all others are on asyncio
            missing="Django on an event loop" if self.app == "django" else None,
        )

    @model_validator(mode="after")
    def _threads_fit(self) -> Self:
        if self.app in _WITHOUT_A_POOL and self.threads is not None:
            raise ValueError(f"threads: app: {self.app} has {_WITHOUT_A_POOL[self.app]}; leave threads out")
        if self.app not in _WITHOUT_A_POOL and self.threads is None:
            raise ValueError(f"app: {self.app} runs in threads; give threads for each process (FastAPI's default: 40)")
        return self


_Program = Literal["uvicorn", "granian", "hypercorn"]


class Asgi(AsgiApplication):
    """FastAPI or Django on a server that was made for ASGI."""

    server: _Program
    app: Literal["fastapi-sync", "fastapi-typed", "fastapi-async", "django"] = Field(
        description="FastAPI with endpoints that are def, def with a response model, or async def; or Django."
    )

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = tuple(f"python/{program}" for program in get_args(_Program))
    passed_on: ClassVar[tuple[str, ...]] = ("server",)
    listens_with: ClassVar[str] = "--workers 1 --host 127.0.0.1 --port "
    example: ClassVar[dict[str, Any]] = {"workers": 4, "app": "fastapi-async"}

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """per-worker for granian, whose workers each have their own listening socket; otherwise shared."""
        return "per-worker" if self.server == "granian" else "shared"

    def configuration(self) -> list[str]:
        """Return the command of the server."""
        interface = "--interface asgi " if self.server == "granian" else ""
        return [f"{self.server} {interface}--workers {self.workers}"] if self.replicas == 1 else []

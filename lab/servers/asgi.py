"""Applications on an event loop, and the servers that are made for them."""

from abc import ABC
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lab.servers.base import Variant

_ASGI = {
    "fastapi-sync": "fastapi_app:sync",
    "fastapi-typed": "fastapi_app:typed",
    "fastapi-async": "fastapi_app:asynchronous",
    "django": "django_app:asgi",
}
_WITHOUT_A_POOL = {"fastapi-async": "none", "django": "one for each request"}


class AsgiApplication(Variant, ABC):
    """An application on an event loop: end points run in a pool of threads (``def``) or on the loop (``async def``)."""

    loop: Literal["asyncio", "uvloop"] = "asyncio"

    @model_validator(mode="after")
    def _threads_fit(self) -> Self:
        if self.app in _WITHOUT_A_POOL and self.threads is not None:
            raise ValueError(f"threads: app: {self.app} has {_WITHOUT_A_POOL[self.app]}; leave it out")
        if self.app not in _WITHOUT_A_POOL and self.threads is None:
            raise ValueError(f"app: {self.app} runs in threads; say how many each process has (FastAPI's own: 40)")
        return self

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_APP": _ASGI[self.app], "LAB_LOOP": self.loop}


class Asgi(AsgiApplication):
    """FastAPI, or Django, on a server of its own kind."""

    server: Literal["uvicorn", "granian", "hypercorn"]
    app: Literal["fastapi-sync", "fastapi-typed", "fastapi-async", "django"] = Field(
        description="FastAPI's end points are def, def with a response model, or async def; Django's views are def."
    )

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = ("python/uvicorn", "python/granian", "python/hypercorn")
    example: ClassVar[dict[str, Any]] = {"workers": 4, "app": "fastapi-async"}

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """Each of granian's workers has a listening socket of its own."""
        return "per-worker" if self.server == "granian" else "shared"

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_SERVER": self.server}

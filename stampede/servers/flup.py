"""flup, the FastCGI server behind Django's former command runfcgi."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stampede.records.run import Queueing
from stampede.servers.base import Variant, WsgiApp


class Flup(Variant):
    """flup, the FastCGI server of Django's runfcgi, which starts and ends processes or threads as needed.

    The defaults are those of runfcgi.
    """

    server: Literal["flup-prefork", "flup-threaded"]
    workers: int = Field(ge=1, le=500, description="The most processes that flup starts; 1 for flup-threaded.")
    threads: int = Field(ge=1, le=500, description="The most threads that flup starts; 1 for flup-prefork.")
    min_spare: int = Field(
        2, ge=1, description="If fewer processes (or threads) than this are idle, flup starts another."
    )
    max_spare: int = Field(
        5,
        ge=1,
        description="The number of processes (or threads) at the start; if more are idle, flup ends one of them.",
    )
    quick_exit: bool = Field(False, description="true: a process ends without shutting down its interpreter.")
    app: WsgiApp = "django"
    balancer: Literal["nginx"] = "nginx"
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "flup"
    packages: ClassVar[tuple[str, ...]] = ("python/flup6",)
    example: ClassVar[dict[str, Any]] = {"workers": 10, "threads": 1}

    @model_validator(mode="after")
    def _has_processes_or_threads(self) -> Self:
        single, several = ("threads", "workers") if self.server == "flup-prefork" else ("workers", "threads")
        if self.quick_exit and self.server != "flup-prefork":
            raise ValueError(f"quick_exit: {self.server} ends no processes; choose server: flup-prefork")
        if getattr(self, single) != 1:
            raise ValueError(f"{single}: must be 1 with {self.server}, which varies its {several}")
        most = getattr(self, several)
        if not self.min_spare <= self.max_spare <= most:
            raise ValueError(
                f"min_spare {self.min_spare}, max_spare {self.max_spare} and {several} {most} must be in rising order"
            )
        return self

    @property
    def queueing(self) -> Queueing:
        """Theory lacks servers that start and end processes or threads as needed."""
        return Queueing(threads=self.threads, missing=f"how {self.server} serves")

    @property
    def elastic(self) -> bool:
        """Whether flup starts and ends processes as needed."""
        return self.server == "flup-prefork"

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_PROTOCOL": "fastcgi"}

"""flup, which Django's runfcgi was."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lab.servers.base import WSGI, Variant


class Flup(Variant):
    """flup, which Django's runfcgi was: FastCGI from processes, or threads, that are started and ended as needed.

    The settings that are not given are those of runfcgi.
    """

    server: Literal["flup-prefork", "flup-threaded"]
    workers: int = Field(ge=1, le=500, description="The most processes that it starts.")
    threads: int = Field(ge=1, le=500, description="The most threads that it starts in its process.")
    min_spare: int = Field(2, ge=1, description="Where fewer are idle it starts one.")
    max_spare: int = Field(5, ge=1, description="It begins with so many; where more are idle it ends one.")
    quick_exit: bool = Field(False, description="Whether a process ends without taking its interpreter down.")
    app: Literal["wsgi", "flask", "django"] = Field(
        "django", description="What stands between the server and the work."
    )
    balancer: Literal["nginx"] = "nginx"
    upstream_keepalive: Literal[0] = 0

    service: ClassVar[str] = "flup"
    packages: ClassVar[tuple[str, ...]] = ("python/flup6",)
    example: ClassVar[dict[str, Any]] = {"workers": 10, "threads": 1}

    @model_validator(mode="after")
    def _has_processes_or_threads(self) -> Self:
        one, several = ("threads", "workers") if self.server == "flup-prefork" else ("workers", "threads")
        if self.quick_exit and self.server != "flup-prefork":
            raise ValueError(f"quick_exit: {self.server} ends no process")
        if getattr(self, one) != 1:
            raise ValueError(f"{one}: {self.server} has one; its number of {several} varies")
        most = getattr(self, several)
        if not self.min_spare <= self.max_spare <= most:
            raise ValueError(
                f"min_spare {self.min_spare} <= max_spare {self.max_spare} <= {several} {most} does not hold"
            )
        return self

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """All processes wait at one listening socket."""
        return "shared"

    @property
    def elastic(self) -> bool:
        """Its processes come and go."""
        return self.server == "flup-prefork"

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {
            "LAB_SERVER": self.server,
            "LAB_APP": WSGI[self.app],
            "LAB_PROTOCOL": "fastcgi",
            "LAB_MIN_SPARE": str(self.min_spare),
            "LAB_MAX_SPARE": str(self.max_spare),
            "LAB_QUICK_EXIT": str(self.quick_exit).lower(),
        }

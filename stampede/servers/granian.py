"""granian with a WSGI application. asgi.py has granian with an ASGI application, and python314.py on Python 3.14."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from stampede.records.queueing import EVEN, Queueing
from stampede.servers.base import Variant

GRANIAN_IDLE_S = 30
"""How long granian keeps an idle connection open."""


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

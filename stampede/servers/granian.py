"""granian: an application on its event loop, or a WSGI application in its blocking threads.

asgi.py, beside this module, serves the lab's ASGI workload with granian, and python314.py the WSGI workload on
Python 3.14.
"""

from abc import ABC
from typing import Any, ClassVar, Literal

from pydantic import Field

from stampede.records.queueing import EVEN, Queueing
from stampede.servers.asgi import AsgiApplication
from stampede.servers.base import Variant


class Granian(Variant, ABC):
    """granian, which accepts up to ``backpressure`` connections in each worker, although the worker is busy."""

    backpressure: int = Field(
        ge=1, le=65535, description="The most connections that one worker holds, those without a request included."
    )

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = ("python/granian",)

    @property
    def accept(self) -> Literal["shared", "per-worker"]:
        """per-worker: each worker has its own listening socket."""
        return "per-worker"


class GranianWsgi(Granian):
    """granian with a WSGI application, whose blocking threads take requests from their worker's queue."""

    server: Literal["granian-wsgi"]
    threads: int = Field(ge=1, description="Blocking threads in each process.")
    app: Literal["wsgi"] = "wsgi"

    modules: ClassVar[dict[str, str]] = {"wsgi": "counted:app"}
    interface: ClassVar[Literal["wsgi", "asgi"]] = "wsgi"
    example: ClassVar[dict[str, Any]] = {"workers": 4, "threads": 2, "backpressure": 256}

    @property
    def queueing(self) -> Queueing:
        """A worker accepts up to ``backpressure`` connections, and its blocking threads serve their requests."""
        return Queueing(threads=self.threads, max_connections=self.backpressure, race=EVEN, keeps_idle=True)


class GranianAsgi(Granian, AsgiApplication, ABC):
    """An ASGI application on the event loops of granian's workers."""

    server: Literal["granian"]

    @property
    def queueing(self) -> Queueing:
        """A worker accepts up to ``backpressure`` requests, and they run on its event loop."""
        return Queueing(loop=True, max_connections=self.backpressure, race=EVEN)

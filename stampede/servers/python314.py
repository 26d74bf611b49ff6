"""Python 3.14 with and without its interpreter lock, both compiled from the same source."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stampede.records.run import EVEN, GTHREAD_CONNECTIONS, Queueing
from stampede.servers.base import Threads, Variant


class Python314(Variant):
    """gunicorn's gthread worker, granian or uWSGI on a Python 3.14 with or without an interpreter lock."""

    server: Literal["python314-gunicorn", "python314-granian", "python314-uwsgi"]
    gil: bool = Field(description="Whether the interpreter has its lock (the GIL). false: the free-threaded build.")
    threads: Threads
    app: Literal["wsgi", "flask"] = Field("wsgi", description="The framework of the application; wsgi: no framework.")

    service: ClassVar[str] = "python314"
    packages: ClassVar[tuple[str, ...]] = ("python/gunicorn", "python/granian", "python/uwsgi")
    build_minutes: ClassVar[int] = 4
    worker_class: ClassVar[str] = "gthread"
    interface: ClassVar[str] = "wsgi"
    example: ClassVar[dict[str, Any]] = {"workers": 1, "threads": 8, "gil": False}

    @model_validator(mode="after")
    def _workers_are_processes(self) -> Self:
        if self.server == "python314-granian" and not self.gil and self.workers > 1:
            raise ValueError("workers: without the interpreter lock, granian's workers are threads; use 1")
        return self

    @property
    def program(self) -> str:
        """The package of the server."""
        return self.server.removeprefix("python314-")

    @property
    def queueing(self) -> Queueing:
        """How gunicorn's gthread worker queues requests, granian's, which get them from the kernel, or uWSGI's."""
        if self.server == "python314-granian":
            return Queueing(threads=self.threads, race=EVEN)
        accepts = self.threads if self.server == "python314-uwsgi" else GTHREAD_CONNECTIONS
        return Queueing(threads=self.threads, max_connections=accepts)

    def configuration(self) -> list[str]:
        """Return the configuration, for uWSGI with the setting without which only its first thread answers."""
        holy = ["master = true", "wsgi-env-behaviour = holy"] if self.server == "python314-uwsgi" else []
        return [*super().configuration(), *holy]

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return super().factors() | {"LAB_SERVER": self.program, "LAB_RELEASE": "gil" if self.gil else "free"}

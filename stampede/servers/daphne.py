"""daphne, the server of Django Channels."""

from abc import ABC
from typing import ClassVar, Literal

from stampede.servers.asgi import AsgiApplication


class Daphne(AsgiApplication, ABC):
    """An ASGI application on daphne, which has one process with one event loop."""

    server: Literal["daphne"]
    workers: Literal[1] = 1

    service: ClassVar[str] = "asgi"
    packages: ClassVar[tuple[str, ...]] = ("python/daphne",)
    passed_on: ClassVar[tuple[str, ...]] = ("server",)
    listens_with: ClassVar[str] = "--bind 127.0.0.1 --port "

    def configuration(self) -> list[str]:
        """Return the command of daphne."""
        return ["daphne"]

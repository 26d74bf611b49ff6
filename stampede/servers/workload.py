"""What servers serve in the place of the lab's own workload, such as somebody's application."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

BESIDE = "beside-"
"""How the names of services begin that a workload has beside its server."""
BEFORE = f"{BESIDE}before"
"""The service that runs a command before the server starts, and ends."""


class Workload(ABC):
    """An application with its image, and with services beside its server. Only its own app knows what is in it."""

    secrets: Mapping[str, str]
    """The values that requests need, by name. No file of a run may have them."""

    @abstractmethod
    def build(
        self, service: str, packages: Sequence[str], factors: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        """Build the image of a server with the application, and check it. Raise LabError if this fails."""

    @property
    @abstractmethod
    def variables(self) -> dict[str, str]:
        """The variables that Compose needs for the services. They are in no record of a run."""

    @abstractmethod
    def extend(self, resolved: dict[str, Any], server: str) -> None:
        """Add the services to a resolved Compose file, and let the service ``server`` start after them."""

    @property
    @abstractmethod
    def memory_mib(self) -> dict[str, int]:
        """The memory limits of the services, in MiB."""

    @property
    @abstractmethod
    def load_files(self) -> Path | None:
        """The folder with the files that the load script reads; None: it reads none."""

    @property
    @abstractmethod
    def application(self) -> Path | None:
        """The folder with the application; None: an image has it."""

    @abstractmethod
    def masked(self, said: bytes) -> bytes:
        """Return what a program said, with the names of secrets in the place of their values."""

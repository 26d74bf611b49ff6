"""A machine whose engine only notes what it is told, and answers what a test says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stampede.docker.client import Machine


@dataclass(frozen=True)
class Told(Machine):
    """A machine without an engine. ``answers`` is called with the words of each call, and may raise DockerError."""

    calls: list[tuple[str, ...]] = field(default_factory=list, compare=False)
    answers: Callable[[tuple[str, ...]], bytes | None] = field(default=lambda _: None, compare=False)

    def run(self, *words: str, **_: Any) -> str:
        """Note a call."""
        self.calls.append(words)
        return (self.answers(words) or b"").decode()

    async def both(self, *words: str, **_: Any) -> tuple[bytes, bytes]:
        """Note a call of a trial."""
        self.calls.append(words)
        return self.answers(words) or b"", b""

"""The sessions of users who log in to somebody's own application before the load, as k6/lib/login.js keeps them."""

import re
from collections.abc import Sequence

from pydantic import Field, TypeAdapter

from stampede.docker.containers import ContainerInfo
from stampede.docker.redaction import mask
from stampede.records.model import Model

LOGGED_IN_WITHIN_S = 600
"""How long all users together may take to log in."""
_READ = "until [ -e /tmp/logged-in ]; do sleep 0.1; done; cat /tmp/sessions.json"


class Session(Model):
    """What a user who has logged in sends: cookies, and the token of a bearer."""

    cookies: dict[str, str] = Field({})
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a single request of this user."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        found = {"Cookie": cookies, "Authorization": f"Bearer {self.token}" if self.token else ""}
        return {name: value for name, value in found.items() if value}

    @property
    def by_word(self) -> dict[str, str]:
        """The cookies by the words that requests have for them."""
        return {f"cookie.{name}": value for name, value in self.cookies.items()}


class Refusal(Model):
    """Why a user is not logged in, as the end of a sentence about the request, and what the application said."""

    problem: str
    said: str


def without_sessions(said: bytes, sessions: Sequence[Session]) -> bytes:
    """Return what a program said without cookies and tokens, and without later values of the same cookies."""
    secrets = [(name, value) for session in sessions for name, value in session.cookies.items()]
    said = mask(said, [*secrets, *(("token", session.token) for session in sessions)])
    for name in dict.fromkeys(name.encode() for name, _ in secrets):
        said = re.sub(rb"\b" + re.escape(name) + rb"=[^\s;,'\"]+", name + b"=$" + name, said)
    return said


async def wait_for_sessions(generator: ContainerInfo) -> Sequence[Refusal | Session]:
    """Return the sessions of the users of a load generator that has started, as soon as they have logged in.

    If a user is not logged in, return why. Raise DockerError if the load generator ends before.
    """
    return _TOLD.validate_json(await generator.execute("sh", "-c", _READ, within_s=LOGGED_IN_WITHIN_S))


_TOLD: TypeAdapter[list[Refusal | Session]] = TypeAdapter(list[Refusal | Session])

"""Before any load of somebody's own application: single requests to it, and the sessions of users who log in."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pydantic import Field, TypeAdapter

from stampede.docker.client import DockerError
from stampede.docker.containers import ContainerInfo
from stampede.docker.redaction import mask
from stampede.records.classes import OwnRequestClass, fill
from stampede.records.model import Model

REQUESTS = 3
"""How many requests of each class are sent; the first one is not counted, because applications load modules late."""
WITHIN_S = 20
FIRST_WITHIN_S = 60
"""How long the first request of a class may take: as long as k6 waits for an answer."""
MOST_S = 60
"""After this time, no further class is asked."""
BODY_BYTES = 4096
"""How much of an answer's body is kept."""
LOGGED_IN_WITHIN_S = 600
"""How long all users together may take to log in."""
_READ = "until [ -e /tmp/logged-in ]; do sleep 0.1; done; cat /tmp/sessions.json"
_HARMLESS = ("GET", "HEAD")
_BROKEN_OFF = re.compile(r"^curl: \((?!23\))", re.MULTILINE)
"""What curl says if an answer is not complete; with 23, only nobody reads the rest of the body any more."""
_SHELL = f"curl --config - | head --bytes {BODY_BYTES}"
_TOLD = "lab-told"
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
"""What curl reads between double quotes in a file of options."""


@dataclass(frozen=True)
class Front:
    """The container that k6 connects to, in which single requests are sent, and its name and port in k6's requests."""

    container: ContainerInfo
    host: str
    port: int

    @property
    def origin(self) -> str:
        """The beginning of all URLs in this container."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Answer:
    """The answer to a single request. ``status`` is 0 if it was not complete in time; ``problem`` then says why."""

    status: int
    took_ms: float
    location: str
    body: str
    problem: str
    origin: str = ""
    """The beginning of all URLs of the application, as curl was told it."""

    def without_secrets(self, masked: Callable[[bytes], bytes]) -> "Answer":
        """Return the answer with its texts as ``masked`` makes them."""
        body, problem, location = (
            masked(said.encode()).decode(errors="replace") for said in (self.body, self.problem, self.location)
        )
        return replace(self, body=body, problem=problem, location=location)

    def is_meant(self, described: OwnRequestClass) -> bool:
        """Whether a request of a class should be answered so."""
        return self.status == described.expected_status if described.expected_status else 0 < self.status < 400


async def alone_ms(
    front: Front, asked: Mapping[str, OwnRequestClass], of_user: Mapping[str, str] | None = None
) -> dict[str, list[float]]:
    """Return the response times of single requests by class, in ms, measured in the container of the balancer.

    ``asked`` is as a setting of the load has it, with percent-encoded headers. Classes that may change data, that need
    a secret or a body, or that are not answered as they should be in time are left out. ``of_user`` are the headers of
    a user who has logged in.
    Raise DockerError if the engine fails.
    """
    found: dict[str, list[float]] = {}
    began_s = time.monotonic()
    for name, described in asked.items():
        if time.monotonic() - began_s > MOST_S:
            break
        if described.method not in _HARMLESS or described.names_of_secrets or described.body:
            continue
        answers = [
            await ask(front, described, of_user=of_user, within_s=WITHIN_S, whole=True) for _ in range(REQUESTS)
        ][1:]
        if all(answer.is_meant(described) for answer in answers):
            found[name] = [answer.took_ms for answer in answers]
    return found


async def ask(
    front: Front,
    described: OwnRequestClass,
    secrets: Mapping[str, str] | None = None,
    *,
    of_user: Mapping[str, str] | None = None,
    within_s: int = FIRST_WITHIN_S,
    whole: bool = False,
) -> Answer:
    """Send one request of a class as k6 will. Raise DockerError if the engine fails.

    curl reads the request from its standard input, because the words of a command are visible to all users of a
    machine, and a request may have secrets. ``of_user`` are the headers of a user who has logged in. ``whole``: receive
    the whole body, and keep nothing of it.
    """
    secrets, container = secrets or {}, front.container
    headers = {"Host": f"{front.host}:{front.port}"} | ({"Content-Type": ""} if described.body else {})
    given = {name.title(): fill(unquote(value), secrets) for name, value in described.headers.items()}
    lines = [
        ("url", f"{front.origin}{fill(described.path, secrets)}"),
        ("max-time", str(within_s)),
        ("write-out", f"%{{stderr}}\n{_TOLD} %{{http_code}} %{{time_total}} %{{redirect_url}}\n"),
        *(("header", f"{name}: {value}".strip()) for name, value in {**headers, **(of_user or {}), **given}.items()),
        *([("data-raw", fill(unquote(described.body), secrets))] if described.body else []),
        *([("request", described.method)] if described.method not in _HARMLESS or described.body else []),
        *([("output", "/dev/null")] if whole else []),
    ]
    flags = ["silent", "show-error", "globoff", "path-as-is", *(["head"] if described.method == "HEAD" else [])]
    config = "".join(f"{flag}\n" for flag in flags)
    for name, value in lines:
        config += f'{name} = "{value.translate(_ESCAPED)}"\n'
    body, said = await container.machine.both("exec", "--interactive", container.id, "sh", "-c", _SHELL,
                                              stdin=config.encode(), within_s=2 * within_s)  # fmt: skip
    problem, found, told = said.decode(errors="replace").rpartition(f"\n{_TOLD} ")
    if not found:
        raise DockerError(said.decode(errors="replace"))
    status, took_s, location = f"{told.strip()} ".split(" ", 2)
    complete = not _BROKEN_OFF.search(problem)
    return Answer(int(status) * complete, 1000 * float(took_s), location.strip(), body.decode(errors="replace"),
                  problem.strip(), front.origin)  # fmt: skip


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
    return _SESSIONS.validate_json(await generator.execute("sh", "-c", _READ, within_s=LOGGED_IN_WITHIN_S))


_SESSIONS: TypeAdapter[list[Refusal | Session]] = TypeAdapter(list[Refusal | Session])

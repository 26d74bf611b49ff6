"""What a start command, the server that it starts, and the application that is loaded say of themselves."""

import shlex
from typing import Any

from pydantic import Field, ValidationError

from stampede.errors import LabError
from stampede.records.mistakes import reason_of
from stampede.records.model import Model
from stampede.servers.program import GRANIAN_BACKLOG, GUNICORN, PROGRAMS, SERVED_BY
from stampede.service.description import IN_FILE, OF_COMMAND, Served, UserService

CALLABLE_PATTERN = r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*(\(.*\))?$"
"""A module and a callable, or a factory with its arguments."""


class AnsweredRoute(Model):
    """A route that an application has. ``aside``: it is for the developers of the service, or serves files."""

    methods: list[str]
    path: str
    aside: bool = False


class Record(Model):
    """What one program of a start wrote down. ``what``: a server, a command before it, or a missing server.

    Paths are those of the container; ``differ`` are the settings that have not the server's default. ``kind`` is
    gunicorn's own class of workers that serves, or wsgi on hypercorn. ``aside`` are settings that the lab cannot keep,
    each with its value and the reason.
    """

    what: str
    folder: str
    words: list[str]
    server: str = ""
    release: str = ""
    program: str = ""
    callable: str = ""
    kind: str = ""
    settings: dict[str, int | float | str | bool | None] = Field({})
    differ: list[str] = Field([])
    given: dict[str, str] = Field({})
    env: dict[str, str] = Field({})
    chdir: str = ""
    imports: list[str] = Field([])
    processes: str = "1"
    aside: dict[str, str] = Field({})

    @property
    def replicas(self) -> int:
        """How many processes of this server supervisord starts; 1 if it says no number."""
        return int(self.processes) if self.processes.isdecimal() else 1


class Followed(Model):
    """What servers/user-service/start.py tells of a start command. ``ended``: its exit code; None: it does not end."""

    records: list[Record]
    said: str = ""
    ended: int | None = None
    without_entrypoint: str = ""
    cores: int | None = None
    """How many cores the start has counted; None: it has counted none."""
    assumed: list[str] = Field([])
    """The variables without a value that were taken as 1, because the command needs them."""

    @property
    def server(self) -> Record | None:
        """What the first server that the command starts said; None: it starts none."""
        return next((record for record in self.records if record.what == "server"), None)

    @property
    def why(self) -> str:
        """Why no server was reached."""
        return "does not end" if self.ended is None else "starts no server that the lab knows"

    @property
    def missing(self) -> str:
        """The server that the command starts, and the image lacks; empty: it lacks none."""
        return "" if self.server else next((record.program for record in self.records if record.what == "missing"), "")


class Answers(Model):
    """What the start command has told, and what the application, when it is loaded, tells of its routes."""

    framework: str = ""
    routes: list[AnsweredRoute] = Field([])
    problem: str = ""
    followed: Followed | None = None

    @property
    def worth_measuring(self) -> list[tuple[str, str]]:
        """The routes that visitors ask for: a method in small letters, and the path."""
        found = [route for route in self.routes if not route.aside] or self.routes
        return [(method.lower(), route.path) for route in found for method in
                [name for name in ("GET", "POST") if name in route.methods] or route.methods[:1]]  # fmt: skip


def numbers_of(told: Record) -> dict[str, Any]:
    """Return the class of workers and the numbers that a server said, by the names of Served.

    What stands in for a server that cannot be measured has the numbers of that server.
    """
    server = SERVED_BY.get(told.server, told.server)
    program = PROGRAMS[server]
    found: dict[str, Any] = {}
    if server == "gunicorn":
        named = str(told.settings.get("worker_class") or "sync") if told.server == "gunicorn" else "gthread"
        found["worker_class"] = next((each for each in (named, told.kind) if each in program.kinds), named)
    if server == "granian":
        found["interface"] = str(told.settings.get("interface") or "").removesuffix("nl")  # without a lifespan
    for key in (key for key in OF_COMMAND if key not in ("worker_class", "interface")):
        value = str(told.settings.get(program.names.get(key, "")))
        if value.isdecimal() and int(value):
            found[key] = int(value)
    found.setdefault("workers", 1)
    kind = program.kinds.get(found.get(program.kind_by, ""))
    if not kind or kind.threads <= 1:
        found.pop("threads", None)
    elif server in ("gunicorn", "uwsgi"):
        found.setdefault("threads", 1)
    if found.get("backpressure") == max(1, GRANIAN_BACKLOG // found["workers"]):
        del found["backpressure"]
    if "max_requests" not in found:
        found.pop("max_requests_jitter", None)
    return found


def not_served(told: Record) -> str:
    """Return what a server said of its workers that the lab cannot serve, and a way out; empty: it can serve them."""
    if told.server in ("granian", "gunicorn"):
        program = PROGRAMS[told.server]
        kind = numbers_of(told)[program.kind_by]
        way = "; if the application has another, add --interface asgi or --interface wsgi" if kind == "rsgi" else ""
        return "" if kind in program.kinds else f"{told.server}'s {program.kind_by} {kind}{way}"
    loops = ("gevent", "async", "asyncio", "ugreen", "greenlet", "tornado", "fiber", "pypy-home")
    named = next((name for name in loops if told.server == "uwsgi" and name in told.settings), "")
    return f"uwsgi's {named} {told.settings[named]}, only its processes and threads" if named else ""


def stand_in(told: Record) -> str:
    """Return a command of gunicorn in the place of a server for development, or one that the lab does not measure."""
    return shlex.join(GUNICORN.command(told.callable, GUNICORN.options(numbers_of(told))))


def as_told(service: UserService, told: Record) -> UserService:
    """Return a service with the numbers that its server said. Raise LabError if the lab cannot measure it.

    If another server has to stand in for that of the command, the service has another command.
    """
    server, is_own = SERVED_BY.get(told.server, told.server), told.server in PROGRAMS
    if unknown := not_served(told):
        raise LabError(f"The lab does not serve {unknown}.")
    if not (is_own or told.callable):
        raise LabError(f"{told.server} names no application that can be imported.",
                       hint="Write a command that names it: gunicorn 'shop:create_app()'.")  # fmt: skip
    kept = {name: getattr(service.served, name) for name in IN_FILE & service.served.model_fields_set
            if name == server or name not in PROGRAMS}  # fmt: skip
    kept[server] = (told.release if is_own else "") or kept.get(server) or PROGRAMS[server].release
    kept.setdefault("replicas", max(1, told.replicas))
    values = numbers_of(told) | kept
    try:
        served = Served.model_validate(values)
    except ValidationError as error:
        raise LabError(f"{told.server} says what cannot be measured: {reason_of(error, Served, values)}.") from None
    command = {} if is_own else {"command": stand_in(told)}
    application = service.application.model_copy(update=command)
    return service.model_copy(update={"served": served, "application": application})

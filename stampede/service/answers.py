"""What a start command, the server that it starts, and the application that is loaded say of themselves."""

from collections.abc import Iterable

from pydantic import Field

from stampede.records.model import Model

Route = tuple[str, str]
"""The method of a route, in small letters, and its path."""
MOST_NAMED = 4


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
    def worth_measuring(self) -> list[Route]:
        """The routes that visitors ask for, each with GET if it answers GET, and else with its first method."""
        found = [route for route in self.routes if not route.aside] or self.routes
        return [("get" if "GET" in route.methods else route.methods[0].lower(), route.path) for route in found]


def first_of(routes: Iterable[Route]) -> str:
    """Return the first few routes as people write them, and how many more there are."""
    texts = [f"{method.upper()} {path}" for method, path in routes]
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more

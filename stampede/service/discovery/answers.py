"""What an application that is loaded says of itself, and its routes beside those that its source has."""

import re
from collections.abc import Iterable, Sequence

from pydantic import Field

from stampede.records.model import Model

Route = tuple[str, str]
"""The method of a route, in small letters, and its path."""
MOST_NAMED = 4
_PARAMETER = re.compile(r"<[^<>]*>|\{[^{}]*\}|(?<=/):\w+")
_UNKNOWN = re.compile(r"<\^|\{[^{}:]*[.(\[]")
"""What routes_of writes for a pattern of Django that has groups, and for what only the application knows of a path."""


class AnsweredRoute(Model):
    """A route that an application has. ``aside``: it is for the developers of the service, or serves files."""

    methods: list[str]
    path: str
    aside: bool = False


class Answers(Model):
    """What servers/user-service/ask.py was told: by the application, and by gunicorn of its settings file."""

    framework: str = ""
    routes: list[AnsweredRoute] = Field([])
    problem: str = ""
    settings: dict[str, int | float | str | bool | None] = Field({})
    settings_problem: str = ""
    cores: int = 1

    @property
    def worth_measuring(self) -> list[Route]:
        """The routes that visitors ask for, each with GET if it answers GET, and else with its first method."""
        found = [route for route in self.routes if not route.aside] or self.routes
        return [("get" if "GET" in route.methods else route.methods[0].lower(), route.path) for route in found]

    def compared(self, source: Sequence[Route]) -> list[str]:
        """Return what to know of routes that only the application knows, or that only its source has."""
        known = {(method.lower(), _shape(route.path)) for route in self.routes for method in route.methods}
        read = {(method, _shape(path)) for method, path in source}
        told = [(method, path) for method, path in self.worth_measuring if (method, _shape(path)) not in read]
        gone = [(method, path) for method, path in source if not _UNKNOWN.search(path)
                and not any(method == other and _matches(path, there) for other, there in known)]  # fmt: skip
        return [
            *([f"Only the application knew {first_of(told)}."] if told else []),
            *([f"Only the source had {first_of(gone)}; the application does not answer there."] if gone else []),
        ]


def _matches(path: str, shape: str) -> bool:
    """Return whether a path from the source is that of a route, if it may have anything in the place of its names."""
    return bool(re.fullmatch(re.escape(_shape(path)).replace(r"\*", "[^/]+"), shape))


def first_of(routes: Iterable[Route]) -> str:
    """Return the first few routes as people write them, and how many more there are."""
    texts = [f"{method.upper()} {path}" for method, path in routes]
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def _shape(path: str) -> str:
    """Return a path without its query, without the names of its parameters, and without the slash at its end."""
    return _PARAMETER.sub("*", path.partition("?")[0]).rstrip("/")

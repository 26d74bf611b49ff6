"""The folder of an application, and a command that starts a server there."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from stampede.errors import WrongUse
from stampede.experiment.yaml_file import foreign_yaml
from stampede.foreign import read_text
from stampede.service.discovery.installs import Installs
from stampede.service.image import LEFT_OUT

SERVERS = ("gunicorn", "uvicorn", "uwsgi", "granian", "hypercorn", "daphne", "fastapi", "flask", "litestar",
           "waitress-serve", "django-admin")  # fmt: skip
_VERBS = {"fastapi": ("run", "dev"), "flask": ("run",), "litestar": ("run",)}
"""Programs that start a server only if one of these words follows."""
NO_SERVERS = re.compile(
    r"^(echo|printf|p?kill|killall|which|type|test|touch|mkdir|rm|cp|mv|ln|cat|cd|chmod|chown|apt|apt-get|apk|pip3?|"
    r"supervisorctl|systemctl|service|celery|rq|huey|\[|\[\[)$"
)
"""Programs whose arguments may have the name of a server, which they do not start."""
_MODULES = {"waitress": "waitress-serve", "gunicorn.app.wsgiapp": "gunicorn"}
"""Modules that start a server whose command has another name."""
_APPLICATION = re.compile(r"[\w.]+:[\w.]+(\(.*\))?|[\w.]+\.[aw]sgi")
"""What only the command of a server has: its application."""
_DEEPEST = 4
"""How deep in a repository the files are that say how it starts."""
_MOST_WORDS = 40
MOST_CHARACTERS = 160
"""How much of a command is shown."""
OF_SERVER = re.compile(r"^(WEB_CONCURRENCY|GUNICORN_.*|UVICORN_.*|GRANIAN_.*|UWSGI_.*|.*(WORKERS|THREADS)\w*)$")
"""Variables that may say how a server serves."""
NOT_OF_THE_SERVICE = re.compile(
    r"^(PATH|PORT|HOME|USER|LANG|LC_.*|PYTHON.*|PIP_.*|UV_.*|POETRY_.*|PIPENV_.*|VIRTUAL_ENV|DEBIAN_.*|GUNICORN_CMD_ARGS|"
    r"WEB_CONCURRENCY|UVICORN_.*|GRANIAN_.*|UWSGI_.*)$"
)
"""Variables that are for the tools of an image, or that say what the description says in its own keys."""


PREPARES = re.compile(
    r"(?:python[\d.]*\s+)?(?:[^\s=]*/)?manage\.py\s+(?:migrate|collectstatic|compress|createcachetable)\b|"
    r"\balembic\b.*\bupgrade\b|\bflask\b.*\b(?:db upgrade|init-?db)\b|\blitestar\b.*\bdatabase upgrade\b|"
    r"\bdjango-admin (?:migrate|collectstatic)\b"
)
"""A command that prepares an application before it is served, without what stands ahead, such as ``uv run``."""


def preparing(text: str) -> str:
    """Return the part of a command that prepares an application; empty: it prepares none."""
    found = PREPARES.search(text)
    return text[found.start() :] if found else ""


@dataclass(frozen=True)
class Image:
    """What an image has of the repository: ``context`` is the folder that it was built from."""

    context: Path | None = None
    file: Path | None = None
    """The Dockerfile."""
    folder: str = "/"
    copies: tuple[tuple[str, str], ...] = ()
    """What was copied from the repository, and where it lies in the image."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The texts that the Dockerfile itself has, by their paths in the image."""
    entrypoint: tuple[str, ...] = ()
    installs: Installs = field(default_factory=Installs)


@dataclass(frozen=True)
class Start:
    """A command that starts a server. ``folder`` is its working folder in the repository, ``place`` where it stands.

    ``given`` are the variables of the environment that the file gives to the service.
    """

    words: list[str]
    folder: Path
    place: str
    environment: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    replicas: int | None = None
    beside: tuple[str, ...] = ()
    compose: str = ""
    env_files: tuple[Path, ...] = ()
    image: Image = field(default_factory=Image)
    before: tuple[tuple[str, str], ...] = ()
    """The commands that prepare the application before it is served, and where each stands."""
    unread: str = ""
    """Where a variable of the server stands whose value nobody knows."""
    problems: tuple[str, ...] = ()
    """What the file says of the service and the lab cannot read, each with its place."""

    @property
    def server(self) -> tuple[str, list[str]] | None:
        """The server that the command starts, and the server's arguments; None: the command starts none."""
        is_other = self.words and NO_SERVERS.match(self.words[0].rpartition("/")[2])
        for place, word in enumerate([] if is_other else self.words[:_MOST_WORDS]):
            name, rest = word.rpartition("/")[2], self.words[place + 1 :]
            before = self.words[place - 1] if place else ""
            if word in ("install", "add", "celery"):
                return None
            if name == "manage.py" or (name == "django-admin" and rest[:1] == ["runserver"]):
                return ("runserver", rest) if rest[:1] == ["runserver"] else None
            if name in _VERBS:
                return (name, rest) if any(verb in rest for verb in _VERBS[name]) else None
            if before == "-m" and word in _MODULES:
                return _MODULES[word], rest
            is_value = before.startswith("-") and "=" not in before and before not in ("-m", "--")
            if name in SERVERS and (not is_value or any(_APPLICATION.fullmatch(word) for word in rest)):
                return name, rest
        return None

    @property
    def command(self) -> str:
        """The command as a text for people, not longer than MOST_CHARACTERS."""
        text = shlex.join(self.words)
        return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"

    @property
    def is_for_development(self) -> bool:
        """Whether the command is for somebody who edits the source."""
        server, arguments = self.server or ("", [])
        return (
            server in ("runserver", "flask") or "--reload" in arguments or (server == "fastapi" and "dev" in arguments)
        )


@dataclass
class Repository:
    """The folder of an application. ``problems`` are commands that were not understood, each with its place.

    ``settings`` are those of gunicorn's settings file, if gunicorn has run it.
    """

    folder: Path
    cores: int = 1
    problems: list[str] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    followed: int = 0
    """How many commands have been followed to what they start."""
    _documents: dict[Path, list[Any]] = field(default_factory=dict)

    def text(self, path: Path | str) -> str:
        """Return the text of a file of the repository; empty: there is none, or it cannot be read, which is noted."""
        there = self.folder / path
        with suppress(OSError, ValueError):
            if there.exists() and not there.is_dir():
                try:
                    return read_text(there)
                except WrongUse as error:
                    self.note_unread(there, f"it {error.message.removeprefix(f'{there} ').rstrip('.')}")
        return ""

    def note_unread(self, path: Path, why: str) -> None:
        """Note once why a file cannot be read."""
        problem = f"{os.path.relpath(path, self.folder)}: {why}"
        if problem not in self.problems:
            self.problems.append(problem)

    def documents(self, path: Path) -> list[Any]:
        """Return the documents of a YAML file; none: there is none, or it cannot be read, which is noted."""
        if path not in self._documents:
            self._documents[path] = []
            try:
                self._documents[path] = foreign_yaml(self.text(path))
            except yaml.YAMLError as error:
                problem = getattr(error, "problem", None) or "it has a character that YAML does not allow"
                self.note_unread(path, f"this file cannot be read: it is not valid YAML: {problem}")
        return self._documents[path]

    def modules(self, beside: Path) -> Callable[[str], str]:
        """Return what finds the text of a module that a file imports: empty if the repository has none."""

        def text(module: str) -> str:
            parts = module.lstrip(".").split(".")
            bases = (beside.parent, *beside.parents, self.folder / "src")
            found = (base.joinpath(*parts).with_suffix(".py") for base in bases if base.is_relative_to(self.folder))
            return next((self.text(path) for path in found if parts[0] and path.is_file()), "")

        return text

    def files(self, *patterns: str) -> list[Path]:
        """Return the files with names such as these, those at the top first; folders of tools are left out."""
        named = [path for path in self._all if any(fnmatchcase(path.name, pattern) for pattern in patterns)]
        return sorted(named, key=lambda path: (len(path.parts), path))

    @cached_property
    def _all(self) -> list[Path]:
        """The files of the repository that are not too deep in it."""
        found: list[Path] = []
        for folder, inner, names in os.walk(self.folder):
            here = Path(folder)
            depth = len(here.relative_to(self.folder).parts)
            inner[:] = [name for name in inner if name not in LEFT_OUT and depth + 1 < _DEEPEST]
            found += [path for name in names if (path := here / name).exists()]
        return found

    def folder_of(self, folder: str, image: Image | None = None) -> Path:
        """Return the folder of the repository that a folder of the image was copied from.

        If no COPY tells, it is the folder with the same name: that of /app/src is src.
        """
        image = image or Image()
        context = image.context or self.folder
        for there in self._sources_of(folder, image):
            if there.is_dir():
                return there.resolve()
        parts = [part for part in PurePosixPath(folder).parts if part not in ("/", "..", ".")]
        for base in dict.fromkeys((context, self.folder)):
            for start in range(len(parts)):
                if (there := base.joinpath(*parts[start:])).is_dir():
                    return there
        return context

    def script(self, name: str, start: Start) -> str:
        """Return the text of a script for a shell that the command runs; empty: the repository has no such script."""
        text = self.program(name, start)
        is_script = re.match(r"#!.*\b(?:sh|bash|ash|dash)\b", text) or (name.endswith(".sh") and text)
        return text if is_script else ""

    def program(self, name: str, start: Start) -> str:
        """Return the text of a program that the command runs; empty: the repository has none."""
        there = str(PurePosixPath(start.image.folder) / name)
        if there in start.image.written:
            return start.image.written[there]
        path = self.program_path(name, start)
        return self.text(path) if path else ""

    def program_path(self, name: str, start: Start) -> Path | None:
        """Return the file of a program that the command runs; None: the repository has none."""
        there = str(PurePosixPath(start.image.folder) / name)
        plain = (start.folder / name.lstrip("/"), self.folder / name.lstrip("/"))
        named = self.files(PurePosixPath(name).name) if "/" in name or name.endswith(".sh") else []
        candidates = [*plain[: not name.startswith("/")], *self._sources_of(there, start.image), *plain, *named]
        inside = (
            path for path in candidates if _is_file(path) and path.resolve().is_relative_to(self.folder.resolve())
        )
        return next(inside, None)

    def has(self, name: str, start: Start) -> bool | None:
        """Return whether the image has a file or folder; None: it may have one that is not from the repository."""
        there = str(PurePosixPath(start.image.folder) / name)
        if there in start.image.written or any(path.exists() for path in self._sources_of(there, start.image)):
            return True
        base = start.image.context or self.folder
        copied = [target for source, target in start.image.copies if (base / source.lstrip("/")).is_dir()]
        return False if any(PurePosixPath(there).is_relative_to(target) for target in copied) else None

    def _sources_of(self, path: str, image: Image) -> Iterator[Path]:
        """Yield what a path of the image may have been copied from, the last COPY first."""
        base = image.context or self.folder
        for source, target in reversed(image.copies):
            ours = base / source.lstrip("/")
            whole = PurePosixPath(path)
            if whole == PurePosixPath(target) / ours.name:
                yield ours
            if whole.is_relative_to(target):
                yield ours / whole.relative_to(target)


def _is_file(path: Path) -> bool:
    """Return whether there is a file; what is part of a command may be too long for the name of a file."""
    with suppress(OSError, ValueError):
        return path.is_file()
    return False

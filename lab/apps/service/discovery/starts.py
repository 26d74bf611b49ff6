"""How a repository starts its service: the command of a Procfile, a Dockerfile or a Compose file, with its environment.

Wrappers and entrypoint scripts are followed to the server that they start.
"""

import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from dockerfile_parse import DockerfileParser

from lab.apps.service.discovery.shell import Shell

SERVERS = ("gunicorn", "uvicorn", "uwsgi", "granian", "hypercorn", "daphne", "fastapi", "flask", "django-admin")
_SHELLS = ("sh", "bash", "ash", "dash")
COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_DEEPEST = 6
"""How many scripts may call each other."""
_NOT_OF_THE_SERVICE = re.compile(
    r"^(PATH|PORT|HOME|LANG|LC_.*|PYTHON.*|PIP_.*|UV_.*|POETRY_.*|PIPENV_.*|VIRTUAL_ENV|DEBIAN_.*|GUNICORN_CMD_ARGS|"
    r"WEB_CONCURRENCY|UVICORN_.*|GRANIAN_.*|UWSGI_.*)$"
)
"""Variables that are for the tools of an image, or that say what the description says in its own keys."""


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

    @property
    def server(self) -> tuple[str, list[str]] | None:
        """The server that the command starts, and the server's arguments; None: the command starts none."""
        for place, word in enumerate(self.words[:16]):
            name, rest = word.rpartition("/")[2], self.words[place + 1 :]
            if name == "manage.py" or (name == "django-admin" and rest[:1] == ["runserver"]):
                return ("runserver", rest) if rest[:1] == ["runserver"] else None
            if name in ("fastapi", "flask"):
                verbs = {"fastapi": ("run", "dev"), "flask": ("run",)}[name]
                return (name, rest) if any(verb in rest for verb in verbs) else None
            before = self.words[place - 1] if place else ""
            if name in SERVERS and (before in ("", "-m", "--") or not before.startswith("-")):
                return name, rest
        return None

    @property
    def is_for_development(self) -> bool:
        """Whether the command is for somebody who edits the source."""
        server, arguments = self.server or ("", [])
        return (
            server in ("runserver", "flask") or "--reload" in arguments or (server == "fastapi" and "dev" in arguments)
        )


@dataclass
class Repository:
    """The folder of an application. ``problems`` are commands that were not understood, each with its place."""

    folder: Path
    cores: int = 1
    problems: list[str] = field(default_factory=list)

    def starts(self) -> list[Start]:
        """Return the commands that start servers, the one that counts most first, those for development last."""
        found = [*self._procfile(), *self._dockerfiles(), *self._compose()]
        known = [start for start in found if start.server]
        self.problems += [f"{start.place}: command not understood: {shlex.join(start.words)}"
                          for start in found if not start.server and not known]  # fmt: skip
        return sorted(known, key=lambda start: start.is_for_development)

    def text(self, path: Path | str) -> str:
        """Return the text of a file of the repository; empty: it cannot be read."""
        try:
            return (self.folder / path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def _procfile(self) -> Iterator[Start]:
        for number, line in enumerate(self.text("Procfile").splitlines(), start=1):
            if found := re.match(r"web\s*:\s*(.+)", line):
                place = f"Procfile:{number}"
                yield from self._followed(Start(["sh", "-c", found[1]], self.folder, place))

    def _dockerfiles(self) -> Iterator[Start]:
        for name in ("Dockerfile", "Containerfile", "docker/Dockerfile", "Dockerfile.prod"):
            if text := self.text(name):
                yield from self._followed(self.image(text, name))
                return

    def image(self, text: str, name: str, target: str = "") -> Start:
        """Return what the last stage of a Dockerfile, or the stage that is named, starts."""
        stages: dict[str, _Stage] = {}
        stage = _Stage()
        for step in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:  # type: ignore[arg-type]  # it takes bytes
            if step["instruction"] == "FROM":
                source, _, alias = re.sub(r"--platform=\S+\s+", "", step["value"]).partition(" ")
                base = stages.get(source, _Stage())
                stage = replace(base, environment=dict(base.environment), copies=[*base.copies])
                stages[alias.split()[-1] if alias else str(len(stages))] = stage
                continue
            if step["instruction"] in ("COPY", "ADD"):
                stage.copy(step["value"], stages)
            else:
                stage.take(step["instruction"], step["value"], f"{name}:{step['startline'] + 1}", self)
        if target in stages:
            stage = stages[target]
        folder = self._in_repository(stage.folder, stage.copies)
        given = {key: value for key, value in stage.given.items() if not _NOT_OF_THE_SERVICE.match(key)}
        return Start(stage.words, folder, stage.place or name, stage.environment, given)

    def _in_repository(self, folder: str, copies: Sequence[tuple[str, str]] = ()) -> Path:
        """Return the folder of the repository that a folder of the image was copied from.

        If no COPY tells, it is the folder with the same name: that of /app/src is src.
        """
        for source, target in reversed(copies):
            if PurePosixPath(folder).is_relative_to(target):
                there = self.folder / source.lstrip("/") / PurePosixPath(folder).relative_to(target)
                if there.is_dir():
                    return there.resolve()
        parts = [part for part in PurePosixPath(folder).parts if part != "/"]
        for start in range(len(parts)):
            if parts[start:] and (there := self.folder.joinpath(*parts[start:])).is_dir():
                return there
        return self.folder

    def _compose(self) -> Iterator[Start]:
        name = next((name for name in COMPOSE_FILES if (self.folder / name).is_file()), "")
        with suppress(yaml.YAMLError, AttributeError):
            services = (yaml.safe_load(self.text(name)) or {}).get("services") or {}
            for service, said in services.items():
                if isinstance(said, dict) and (said.get("build") or said.get("command")):
                    yield from self._compose_service(name, service, said, services)

    def _compose_service(
        self, name: str, service: str, said: Mapping[str, Any], services: Mapping[str, Any]
    ) -> Iterator[Start]:
        build = said.get("build")
        build = {"context": build} if isinstance(build, str) else build or {}
        file = str(PurePosixPath(str(build.get("context", "."))) / str(build.get("dockerfile", "Dockerfile")))
        text = self.text(file) if said.get("build") else ""
        image = self.image(text, file, str(build.get("target", ""))) if text else Start([], self.folder, name)
        environment = {**self._env_files(said), **_variables(said.get("environment"))}
        words, place = image.words, image.place
        shell = Shell({}, cores=self.cores)
        if (command := said.get("command")) is not None:
            words = [_interpolated(word, shell) for word in _listed(command)]
            words = [*(_listed(said["entrypoint"]) if said.get("entrypoint") else _entrypoint(image, text)), *words]
            place = f"{name}:{self._line(name, service, 'command')}"
        if not words:
            return
        if said.get("working_dir"):
            image = replace(image, folder=self._in_repository(str(said["working_dir"])))
        needed = said.get("depends_on") or []
        beside = tuple(
            other for other in needed if "build" not in services.get(other, {}) and services.get(other, {}).get("image")
        )
        replicas = (said.get("deploy") or {}).get("replicas") or said.get("scale")
        given = {key: value for key, value in environment.items() if not _NOT_OF_THE_SERVICE.match(key)}
        yield from self._followed(replace(
            image, words=words, place=place, environment={**image.environment, **environment},
            given={**image.given, **given}, replicas=replicas if isinstance(replicas, int) else None,
            beside=beside, compose=name,
        ))  # fmt: skip

    def _env_files(self, said: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        listed = said.get("env_file") or []
        for each in [listed] if isinstance(listed, str) else listed:
            path = each.get("path", "") if isinstance(each, dict) else each
            for line in self.text(str(path)).splitlines():
                name, equals, value = line.strip().removeprefix("export ").partition("=")
                if equals and not name.startswith("#"):
                    found[name.strip()] = value.strip().strip("'\"")
        return {name: value for name, value in found.items() if name in ("GUNICORN_CMD_ARGS", "WEB_CONCURRENCY")}

    def _line(self, name: str, service: str, key: str) -> int:
        """Return the line of a key of a service in a Compose file."""
        inside = False
        for number, line in enumerate(self.text(name).splitlines(), start=1):
            if re.match(rf"  ?(?:  )?{re.escape(service)}\s*:", line):
                inside = True
            elif inside and re.match(rf"\s+{key}\s*:", line):
                return number
        return 1

    def _followed(self, start: Start, depth: int = 0) -> Iterator[Start]:
        """Yield the commands that a command starts in the end: those of its script, or the command itself."""
        words, shell = start.words, Shell(start.environment, cores=self.cores)
        program = words[0].rpartition("/")[2] if words else ""
        script, arguments = "", words[1:]
        if program in _SHELLS and any(re.fullmatch(r"-[a-z]*c", word) for word in words[1:3]):
            place = next(place for place, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word))
            script, arguments = " ".join(words[place + 1 : place + 2]), words[place + 3 :]
        elif program in _SHELLS and words[1:] and not words[1].startswith("-"):
            script, arguments = self._script(words[1], start), words[2:]
        elif words and program not in SERVERS and (text := self._script(words[0], start)):
            script = text
        elif start.server or not words:
            if words:
                yield start
            return
        else:
            yield from self._behind_wrapper(start, depth)
            return
        if not script or depth == _DEEPEST:
            if words:
                yield start
            return
        shell = Shell(start.environment, arguments, self.cores)
        found: list[Start] = []
        for begun in shell.run(script):
            folder = start.folder / begun.folder if begun.folder else start.folder
            inner = replace(start, words=begun.words, environment=begun.environment, folder=folder)
            found += self._followed(inner, depth + 1)
        servers = [each for each in found if each.server]
        yield from servers or found[-1:] or [start]

    def _behind_wrapper(self, start: Start, depth: int) -> Iterator[Start]:
        """Yield what a wrapper such as ``tini -- ./entrypoint.sh`` starts."""
        for place, word in enumerate(start.words[1:8], start=1):
            if word.rpartition("/")[2] in _SHELLS or word.endswith(".sh"):
                yield from self._followed(replace(start, words=start.words[place:]), depth + 1)
                return
        yield start

    def _script(self, name: str, start: Start) -> str:
        """Return the text of a script that the image has, if the repository has a file of this name."""
        base = PurePosixPath(name).name
        for path in (
            start.folder / name.lstrip("/"),
            self.folder / name.lstrip("/"),
            *sorted(self.folder.rglob(base))[:1],
        ):
            if path.is_file() and path.is_relative_to(self.folder):
                text = self.text(path)
                return text if re.match(r"#!.*\b(?:sh|bash|ash|dash)\b", text) or base.endswith(".sh") else ""
        return ""


@dataclass
class _Stage:
    """A stage of a Dockerfile, as far as it was read."""

    environment: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    copies: list[tuple[str, str]] = field(default_factory=list)
    """What was copied from the repository, and where it lies in the image."""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    place: str = ""

    @property
    def words(self) -> list[str]:
        """The words of the command that a container starts."""
        return [*self.entrypoint, *self.command]

    def copy(self, value: str, stages: Mapping[str, "_Stage"]) -> None:
        """Take a COPY: from the repository, or of what another stage has copied."""
        with suppress(ValueError):
            words = _listed_or_split(value)
            source = next((word.partition("=")[2] for word in words if word.startswith("--from=")), "")
            *paths, target = [word for word in words if not word.startswith("--")]
            there = str(PurePosixPath(self.folder) / target)
            if not source:
                self.copies += [(path, there) for path in paths]
            elif source in stages:
                same = {str(PurePosixPath(path)) for path in paths}
                theirs = stages[source].copies
                self.copies += [(ours, there) for ours, target in theirs if str(PurePosixPath(target)) in same]

    def take(self, instruction: str, value: str, place: str, repository: Repository) -> None:
        """Take one instruction of the Dockerfile."""
        shell = Shell(self.environment, cores=repository.cores)
        match instruction:
            case "ENV":
                pairs = _pairs(value, shell)
                self.environment |= pairs
                self.given = {**self.given, **pairs}
            case "ARG":
                for name, otherwise in _pairs(value, shell).items():
                    self.environment.setdefault(name, otherwise)
            case "WORKDIR":
                self.folder = str(PurePosixPath(self.folder) / _interpolated(value, shell))
            case "ENTRYPOINT":
                self.entrypoint, self.command, self.place = _form(value), [], place
            case "CMD":
                self.command, self.place = _form(value), place


def _listed_or_split(value: str) -> list[str]:
    """Return the words of a COPY in either of its forms."""
    words = _form(value)
    return shlex.split(value) if words[:1] == ["/bin/sh"] else words


def _form(value: str) -> list[str]:
    """Return the words of a CMD in its exec form, or the shell that its shell form starts."""
    with suppress(ValueError):
        listed = json.loads(value)
        if isinstance(listed, list):
            return [str(word) for word in listed]
    return ["/bin/sh", "-c", value]


def _pairs(value: str, shell: Shell) -> dict[str, str]:
    """Return the variables of ENV or ARG: ``A=1 B="two words"``, or ``A two words``."""
    name, _, rest = value.partition(" ")
    if "=" not in name:
        return {name: _interpolated(rest.strip(), shell)} if rest else {}
    with suppress(ValueError):
        return {name: _interpolated(text, shell) for name, _, text in
                (word.partition("=") for word in shlex.split(value)) if name}  # fmt: skip
    return {}


def _interpolated(text: str, shell: Shell) -> str:
    """Return a text with variables in their place, as Docker and Compose put them there."""
    text = re.sub(r"\$\{[^{}]*\}|\$\w+", lambda found: shell.expand(found[0]), text.replace("$$", "\0"))
    return text.replace("\0", "$")


def _listed(command: object) -> list[str]:
    if isinstance(command, list):
        return [str(word) for word in command]
    with suppress(ValueError):
        return shlex.split(str(command))
    return []


def _entrypoint(image: Start, text: str) -> list[str]:
    """Return the entrypoint of an image whose command a Compose file replaces."""
    stated = re.findall(r"^ENTRYPOINT\s+(.+)$", text, re.MULTILINE)
    return _form(stated[-1]) if stated and image.words else []


def _variables(said: object) -> dict[str, str]:
    if isinstance(said, list):
        return {name: value for name, _, value in (str(each).partition("=") for each in said)}
    if isinstance(said, dict):
        return {str(name): str(value) for name, value in said.items() if value is not None}
    return {}

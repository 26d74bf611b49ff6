"""How a Compose file starts a service, as ``docker compose config`` resolves it."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from stampede.docker.compose_config import config
from stampede.resources import OTHERS, of_compose_service
from stampede.service.description import variables_of_env_file
from stampede.service.discovery.dockerfile import (
    FOR_DEVELOPMENT,
    FOR_PRODUCTION,
    as_text,
    by_purpose,
    docker_images,
    image_of,
    preparing,
)
from stampede.service.discovery.repository import NO_APPLICATION, UNKNOWN, Image, Repository, Start

_ENV_FILE = re.compile(r"env file (\S+) not found")


def compose_starts(repository: Repository) -> list[Start]:
    """Return what the Compose files of a repository start, those for production first."""
    paths = repository.files("*compose*.y*ml", "*stack*.y*ml")
    paths = [path for path in paths if "override" not in path.name and (
        re.match("(docker[-_.])?compose", path.name) or re.search("^services:", repository.text(path), re.MULTILINE)
    )]  # fmt: skip
    paths = [path for path in paths if not FOR_DEVELOPMENT.search(repository.name(path))] or paths
    found: list[Start] = []
    alone: list[str] = []
    for path in sorted(by_purpose(paths, repository), key=lambda path: not FOR_PRODUCTION.search(path.name)):
        if repository.text(path) and repository.documents(path):
            files, resolved, raw, unset = _resolved(repository, path, paths)
            for name in resolved:
                if starts := [*_service(repository, files, name, resolved, raw, unset)]:
                    found += starts
                elif (image := resolved[name].get("image")) and not NO_APPLICATION.search(image):
                    alone.append(f"{repository.name(path)}: {name} starts with the command of {image}; if it is the "
                                 f"service, write image: {image} in the place of folder")  # fmt: skip
    repository.problems += [] if any(not OTHERS.search(start.name) for start in found) else alone
    return found


def _resolved(
    repository: Repository, path: Path, paths: Sequence[Path]
) -> tuple[list[Path], dict[str, Any], dict[str, Any], list[str]]:
    """Return the files, their services with and without variables in their places, and the variables that are not set.

    A file for production may add to one beside it.
    """
    beside = [other for other in paths if other.parent == path.parent and not FOR_PRODUCTION.search(other.name)]
    bases = beside[:1] if FOR_PRODUCTION.search(path.name) else []
    problem = ""
    for files in ([path], [*bases, path])[: 1 + len(bases)]:
        try:
            said, unset = config(files)
            raw, _ = config(files, "--no-interpolate")
        except ValueError as error:
            problem = problem or str(error).replace(f"{repository.folder}/", "")
        else:
            return files, said.get("services") or {}, raw.get("services") or {}, unset
    absent = _ENV_FILE.search(problem)
    examples = (
        sorted((repository.folder / absent[1]).parent.glob(f"{PurePosixPath(absent[1]).name}*")) if absent else []
    )
    shown = f"; {examples[0].name} may show what is in it" if examples else ""
    repository.problems.append(f"{repository.name(path)}: Compose cannot read it: {problem}{shown}")
    return [path], {}, {}, []


def _service(
    repository: Repository, files: Sequence[Path], name: str, services: Mapping[str, Any], raw: Mapping[str, Any],
    unset: Sequence[str],
) -> Iterator[Start]:  # fmt: skip
    """Yield what a service of a Compose file starts."""
    said, plain, path = services[name], raw.get(name, {}), files[-1]
    place = repository.name(path)
    image = _image_of_service(repository, said, services)
    in_files, env_files, problems = _of_env_files(repository, place, plain)
    of_compose = variables_of_env_file(repository.text(files[0].parent / ".env"))
    written = plain.get("environment") or {}
    if isinstance(written, list):  # as Compose leaves it if it merges files
        pairs = [str(each).partition("=") for each in written]
        written = {key: value if equals else None for key, equals, value in pairs}
    environment = {key: _undoubled(value) for key, value in (said.get("environment") or {}).items()
                   if value is not None and key in written}  # fmt: skip
    given: dict[str, str] = {}
    for key in written:
        if written[key] is None and key not in environment:
            problems.append(f"{place}: {key}: {UNKNOWN}")
        elif lacking := [each for each in unset if re.search(rf"\$\{{?{each}\b", str(written[key]))]:
            problems.append(f"{place}: {key} is {written[key]}: {UNKNOWN}")
            environment.pop(key, None) if environment.get(key) == "" else lacking
        else:
            named = re.sub(
                r"\$\{?(\w+)(?::?[-?+][^}]*)?\}?",
                lambda each: f"${{{each[1]}}}" if of_compose.get(each[1]) else each[0],
                f"${key}" if written[key] is None else str(written[key]),
            )
            given[key] = _undoubled(
                named
                if "${" in named and named.count("${") and any(f"${{{other}}}" in named for other in of_compose)
                else environment.get(key, "")
            )
            if given[key] != environment.get(key):  # values of .env may be secrets, which stay there
                env_files = [files[0].parent / ".env", *(each for each in env_files if each.name != ".env")]
    command = [_undoubled(word) for word in said.get("command") or []]
    entrypoint = said.get("entrypoint")
    if entrypoint is None:
        entrypoint, command = [*image.entrypoint], command or [*image.command]
    own = bool(said.get("command") or said.get("entrypoint"))
    at = f"{place}:{_line(repository.text(path), name, 'command' if said.get('command') else 'entrypoint')}"
    for each in unset:
        if re.search(rf"\$\{{?{each}\b", json.dumps([plain.get("command"), plain.get("entrypoint")])):
            problems.append(f"{place}: ${each} of the command: {UNKNOWN}")
    replicas = (said.get("deploy") or {}).get("replicas") or said.get("scale")
    mounts = [(repository.name(Path(each["source"])), each["target"]) for each in said.get("volumes") or []
              if each.get("type") == "bind" and Path(each["source"]).is_relative_to(repository.folder)]  # fmt: skip
    folders = [str(each["target"]) for each in said.get("volumes") or [] if each.get("type") in ("volume", "tmpfs")]
    if command or entrypoint:
        yield Start(
            tuple(command), at if own else image.place, tuple(entrypoint), str(said.get("working_dir") or image.folder),
            environment={**image.environment, **in_files, **environment}, given={**image.environment, **given},
            replicas=replicas if isinstance(replicas, int) else None, compose=repository.name(files[0]), image=image,
            mounts=tuple(mounts), folders=tuple(folders), beside=tuple(_beside(repository, said, services)),
            env_files=tuple(dict.fromkeys(env_files)), before=(*image.before, *_jobs(said, services, place)),
            problems=tuple(problems), name=name, resources=of_compose_service(said, f"{place}, {name}"),
        )  # fmt: skip


def _undoubled(value: object) -> str:
    """Return a value as the container gets it: what Compose prints doubles each dollar."""
    return str(value).replace("$$", "$")


def _of_env_files(
    repository: Repository, place: str, said: Mapping[str, Any]
) -> tuple[dict[str, str], list[Path], list[str]]:
    """Return the variables of a service's env files, the files, and what is to be said of them."""
    values: dict[str, str] = {}
    files, problems = [], []
    for each in said.get("env_file") or []:
        path = Path(each["path"] if isinstance(each, dict) else each)
        if not path.resolve().is_relative_to(repository.folder.resolve()):
            problems.append(f"{place}: the env_file {os.path.relpath(path, repository.folder)} is outside the folder, "
                            "so it is left out")  # fmt: skip
        elif path.is_file():
            files.append(path)
            values |= variables_of_env_file(repository.text(path))
    return values, files, problems


def _beside(repository: Repository, said: Mapping[str, Any], services: Mapping[str, Any]) -> Iterator[str]:
    """Yield the services that a service needs, such as a database: images, or builds that start no Python."""
    for name in said.get("depends_on") or {}:
        other = services.get(name, {})
        if _is_other(other, said) and (
            not other.get("build") or not _serves(_image_of_service(repository, other, services))
        ):
            yield name


def _serves(image: Image) -> bool:
    """Return whether the image of a Dockerfile has packages of Python."""
    return bool(image.installs.python or (image.command and "python" in image.place))


def _is_other(other: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Return whether a service has another image than a service."""
    pairs = [(other.get(key), said.get(key)) for key in ("build", "image") if other.get(key)]
    return bool(pairs) and all(own != theirs for own, theirs in pairs)


def _jobs(said: Mapping[str, Any], services: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of services that run in the image of a service, and end before it starts."""
    for name, how in (said.get("depends_on") or {}).items():
        other = services.get(name, {})
        ends = how.get("condition") == "service_completed_successfully" or str(other.get("restart")) in ("no", "False")
        command = as_text(other.get("command") or [])
        if command and not _is_other(other, said) and (ends or preparing(command)):
            yield preparing(command) or command, f"{place}, {name}"


def _image_of_service(repository: Repository, said: Mapping[str, Any], services: Mapping[str, Any]) -> Image:
    """Return the image of a service, which it builds, another service builds, or the repository of its name."""
    named = str(said.get("image", ""))
    same = [other for other in (said, *services.values()) if other.get("image") == said.get("image") or other is said]
    build: Mapping[str, Any] = next((other["build"] for other in same if other.get("build")), {})
    if not build and named.rpartition("/")[2].partition(":")[0] == repository.folder.name.lower():
        return next(iter(docker_images(repository)), Image())
    context = Path(build.get("context", "/nowhere")).resolve()
    file = context / str(build.get("dockerfile", "Dockerfile"))
    root = repository.folder.resolve()
    if not (context.is_relative_to(root) and file.resolve().is_relative_to(root)):
        return Image()
    if not file.is_file():
        return Image(context=context)
    return image_of(repository, file.resolve(), context, str(build.get("target", "")), build.get("args") or {})


def _line(text: str, service: str, key: str) -> int:
    """Return the line of a key of a service in a Compose file; of the service, if it inherits the key."""
    with suppress(yaml.YAMLError, AttributeError, ValueError, TypeError, RecursionError, StopIteration):
        services = next(value for name, value in getattr(yaml.compose(text), "value", ()) if name.value == "services")
        name, said = next(pair for pair in services.value if pair[0].value == service)
        inside = (each for each, _ in said.value if each.value == key)
        return int(next(inside, name).start_mark.line) + 1
    return 1


def merged(start: Start, other: Start) -> Start:
    """Return a start with what a Compose file gives to the same application and has beside it."""
    its_own = start.image.place == start.place or not other.image.file
    return replace(
        start, environment={**other.environment, **start.environment}, given={**other.given, **start.given},
        env_files=other.env_files, beside=other.beside, compose=other.compose,
        image=start.image if its_own else other.image, mounts=other.mounts, folders=other.folders,
        resources=other.resources, problems=(*start.problems, *other.problems), before=(*start.before, *other.before),
    )  # fmt: skip

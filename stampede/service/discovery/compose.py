"""How a Compose file starts a service, as ``docker compose config`` resolves it."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

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
from stampede.service.discovery.repository import NO_APPLICATION, UNKNOWN, Image, Repository, Start, is_file
from stampede.service.discovery.requirements import installs_python


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
                if start := _service(repository, files, name, resolved, raw, unset):
                    found.append(start)
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
    if absent := re.search(r"env file (\S+) not found", problem):
        lacking = repository.folder / absent[1]
        examples = sorted(lacking.parent.glob(f"{PurePosixPath(absent[1]).name}*"))
        problem += f"; {examples[0].name} may show what is in it" if examples else ""
    repository.problems.append(f"{repository.name(path)}: Compose cannot read it: {problem}")
    return [path], {}, {}, []


def _service(
    repository: Repository, files: Sequence[Path], name: str, services: Mapping[str, Any], raw: Mapping[str, Any],
    unset: Sequence[str],
) -> Start | None:  # fmt: skip
    """Return what a service of a Compose file starts; None: that which its image starts, which nobody knows."""
    said, plain, place = services[name], raw.get(name, {}), repository.name(files[-1])
    image = _image_of_service(repository, said, services)
    command, entrypoint = [_undoubled(word) for word in said.get("command") or []], said.get("entrypoint")
    if entrypoint is None:
        entrypoint, command = image.entrypoint, command or [*image.command]
    if not (command or entrypoint):
        return None
    problems = [f"{place}: ${each} of the command: {UNKNOWN}" for each in unset
                if _names(each, json.dumps([plain.get("command"), plain.get("entrypoint")]))]  # fmt: skip
    env_files: list[Path] = []
    for each in plain.get("env_file") or []:
        file = Path(each["path"] if isinstance(each, dict) else each)
        if not file.resolve().is_relative_to(repository.folder.resolve()):
            problems.append(f"{place}: the env_file {os.path.relpath(file, repository.folder)} is outside the folder, "
                            "so it is left out")  # fmt: skip
        elif is_file(file):
            env_files.append(file)
    of_compose = files[0].parent / ".env"
    given, unknown, has_secrets = _environment(said, plain, unset, variables_of_env_file(repository.text(of_compose)))
    problems += [f"{place}: {each}: {UNKNOWN}" for each in unknown]
    if has_secrets:
        env_files = [of_compose, *(each for each in env_files if each.name != ".env")]
    before, beside = _depends_on(repository, said, services)
    is_its_own = said.get("command") or said.get("entrypoint")
    replicas = (said.get("deploy") or {}).get("replicas") or said.get("scale")
    volumes = said.get("volumes") or []
    mounts = [(repository.name(Path(each["source"])), each["target"]) for each in volumes
              if each.get("type") == "bind" and Path(each["source"]).is_relative_to(repository.folder)]  # fmt: skip
    return replace(
        image, command=command, entrypoint=entrypoint, file=place if is_its_own else image.file,
        place=f"{place}, {name}" if is_its_own else image.place,
        folder=str(said.get("working_dir") or image.folder), given={**image.given, **given}, mounts=mounts,
        volumes=[str(each["target"]) for each in volumes if each.get("type") in ("volume", "tmpfs")],
        replicas=replicas if isinstance(replicas, int) else None, name=name,
        compose=repository.name(files[0]), beside=beside, env_files=[*dict.fromkeys(env_files)],
        before=[*image.before, *((command, f"{place}, {other}") for other, command in before.items())],
        problems=problems, resources=of_compose_service(said, f"{place}, {name}"),
    )  # fmt: skip


def _depends_on(
    repository: Repository, said: Mapping[str, Any], services: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Return the services that prepare a service, with their commands, and those that it needs beside it."""
    before: dict[str, str] = {}
    beside: list[str] = []
    for name, how in (said.get("depends_on") or {}).items():
        other = services.get(name, {})
        command = as_text(other.get("command") or [])
        ends = how.get("condition") == "service_completed_successfully" or str(other.get("restart")) in ("no", "False")
        keys = [key for key in ("build", "image") if other.get(key)]
        if not keys or any(other[key] == said.get(key) for key in keys):  # it runs in the same image
            if command and (ends or preparing(command)):
                before[name] = preparing(command) or command
        else:  # a database, unless it is built for Python
            built = _image_of_service(repository, other, services) if other.get("build") else Start()
            is_python = any(installs_python(words) for _, words in built.image.runs)
            beside += [] if is_python or (built.command and "python" in built.place) else [name]
    return before, beside


def _environment(
    said: Mapping[str, Any], plain: Mapping[str, Any], unset: Sequence[str], of_compose: Mapping[str, str]
) -> tuple[dict[str, str], list[str], bool]:
    """Return the variables that a service gets, those of which a value is not known, and whether any is in .env.

    Those of the file .env (``of_compose``), whose values may be secrets, stand there as ``${NAME}``.
    """
    written = plain.get("environment") or {}
    if isinstance(written, list):  # as Compose leaves it if it merges files
        pairs = [str(each).partition("=") for each in written]
        written = {key: value if equals else None for key, equals, value in pairs}
    given: dict[str, str] = {}
    unknown: list[str] = []
    has_secrets = False
    for key, text in written.items():
        value = (said.get("environment") or {}).get(key)
        if text is None and value is None:
            unknown.append(key)
        elif any(_names(each, str(text)) for each in unset):
            unknown.append(f"{key} is {text}")
        else:
            named = re.sub(r"\$\{?(\w+)(?::?[-?+][^}]*)?\}?", lambda each: f"${{{each[1]}}}" if of_compose.get(each[1])
                           else each[0], f"${key}" if text is None else str(text))  # fmt: skip
            is_secret = any(f"${{{other}}}" in named for other in of_compose)
            has_secrets = has_secrets or is_secret
            given[key] = _undoubled(named if is_secret else "" if value is None else value)
    return given, unknown, has_secrets


def _names(variable: str, text: str) -> bool:
    return bool(re.search(rf"\$\{{?{variable}\b", text))


def _undoubled(value: object) -> str:
    """Return a value as the container gets it: what Compose prints doubles each dollar."""
    return str(value).replace("$$", "$")


def _image_of_service(repository: Repository, said: Mapping[str, Any], services: Mapping[str, Any]) -> Start:
    """Return the image of a service, which it builds, another service builds, or the repository of its name."""
    named = str(said.get("image", ""))
    same = [other for other in (said, *services.values()) if other.get("image") == said.get("image") or other is said]
    build: Mapping[str, Any] = next((other["build"] for other in same if other.get("build")), {})
    if not build and named.rpartition("/")[2].partition(":")[0] == repository.folder.name.lower():
        return next(iter(docker_images(repository)), Start())
    context = Path(build.get("context", "/nowhere")).resolve()
    file = context / str(build.get("dockerfile", "Dockerfile"))
    root = repository.folder.resolve()
    if not (context.is_relative_to(root) and file.resolve().is_relative_to(root)):
        return Start()
    if not is_file(file):
        return Start(Image(context=context))
    return image_of(repository, file.resolve(), context, str(build.get("target", "")), build.get("args") or {})


def merged(start: Start, other: Start) -> Start:
    """Return a start with what a Compose file gives to the same application and has beside it."""
    keeps_image = start.is_of_dockerfile or not other.image.dockerfile
    return replace(
        start, image=start.image if keeps_image else other.image, given={**other.given, **start.given},
        env_files=other.env_files, before=(*start.before, *other.before), mounts=other.mounts, volumes=other.volumes,
        compose=other.compose, beside=other.beside, resources=other.resources,
        problems=(*start.problems, *other.problems),
    )  # fmt: skip

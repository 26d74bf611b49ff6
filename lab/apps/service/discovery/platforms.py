"""How the files of a platform start a service: Heroku, Render, Fly and others, systemd, supervisord and Kubernetes."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lab.apps.service.discovery.containers import FOR_DEVELOPMENT, docker_images
from lab.apps.service.discovery.follow import follow, supervisor_starts
from lab.apps.service.discovery.programs import scripts_of
from lab.apps.service.discovery.repository import NOT_OF_THE_SERVICE, SERVERS, Repository, Start, preparing
from lab.apps.service.discovery.shell import variables_of

_SERVES = ("web", "app", "api", "server")
"""What the process that answers requests is usually called."""


def platform_starts(repository: Repository) -> list[Start]:
    """Return what the files of platforms start, each with its place."""
    readers = {"Procfile or app.json": _procfile, "heroku.yml": _heroku, "render.yaml": _render, "fly.toml": _fly,
               "railway.json, railway.toml or nixpacks.toml": _railway, "app.yaml": _app_engine,
               ".do/app.yaml": _app_platform, ".ebextensions": _beanstalk, "Kubernetes": _kubernetes}  # fmt: skip
    found: list[Start] = []
    for name, reader in readers.items():
        try:
            found += [each for start in reader(repository) for each in follow(start, repository)]
        except (AttributeError, TypeError):  # what the file says has another form
            repository.problems.append(f"{name}: the lab does not know this form")
    return found


def machine_starts(repository: Repository) -> list[Start]:
    """Return what the units of systemd and the programs of supervisord start."""
    units = [each for start in _systemd(repository) for each in follow(start, repository) if each.server]
    return [*supervisor_starts(Start(["supervisord"], repository.folder, ""), repository), *units]


def last_resorts(repository: Repository) -> list[Start]:
    """Return what the first command of a server in a README starts, or else the first script of the project."""
    scripts = [name for name, said in scripts_of(repository, repository.folder).items() if isinstance(said, list)]
    started = (follow(_start(repository, f"the script {name}", [name]), repository) for name in scripts)
    served = (starts for starts in started if any(start.server for start in starts))
    return _readme_starts(repository) or next(served, [])


def _readme_starts(repository: Repository) -> list[Start]:
    for path in sorted(repository.folder.glob("README*")):
        for number, line in enumerate(repository.text(path).splitlines(), start=1):
            command = re.sub(r"^\s*(?:\$ )?", "", line)
            if re.match(rf"(?:uv run |poetry run |python3? -m )?(?:{'|'.join(SERVERS)})\s", command):
                found = follow(_start(repository, f"{path.name}:{number}", command), repository)
                if any(start.server and not start.is_for_development for start in found):
                    return found
    return []


def _start(
    repository: Repository,
    place: str,
    command: object,
    given: object = None,
    *,
    folder: str = "",
    replicas: object = None,
) -> Start:
    """Return the start that a command of a platform stands for, in the image of the repository if it has one."""
    image = next(iter(docker_images(repository)), None)
    at = repository.folder_of(folder) if folder and folder != "." else image.folder if image else repository.folder
    said = _variables(given)
    own = {name: value for name, value in said.items() if not NOT_OF_THE_SERVICE.match(name)}
    words = [str(word) for word in command] if isinstance(command, list) else ["sh", "-c", str(command)]
    start = image or Start([], at, place)
    return replace(start, words=words, folder=at, place=place, environment={**start.environment, **said},
                   given={**start.given, **own}, replicas=replicas if isinstance(replicas, int) else None)  # fmt: skip


def _variables(said: object) -> dict[str, str]:
    """Return variables that a platform gives: a mapping, or a list of names with values."""
    if isinstance(said, list):
        named = ((each.get("key") or each.get("name"), each.get("value")) for each in said if isinstance(each, dict))
        return {str(name): str(value) for name, value in named if name and value is not None}
    if isinstance(said, dict):
        values = {name: value.get("value") if isinstance(value, dict) else value for name, value in said.items()}
        return {str(name): str(value) for name, value in values.items() if value is not None}
    return {}


def _yaml(repository: Repository, name: Path | str) -> Mapping[str, Any]:
    with suppress(yaml.YAMLError):
        said = yaml.safe_load(repository.text(name))
        return said if isinstance(said, dict) else {}
    return {}


def _toml(repository: Repository, name: str) -> Mapping[str, Any]:
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(repository.text(name))
    return {}


def _json(repository: Repository, name: str) -> Mapping[str, Any]:
    with suppress(ValueError):
        said = json.loads(repository.text(name))
        return said if isinstance(said, dict) else {}
    return {}


def _place_of(repository: Repository, name: str, command: object) -> str:
    """Return the place of a command in a file."""
    part = str(command[0] if isinstance(command, list) and command else command).splitlines()[:1]
    lines = enumerate(repository.text(name).splitlines(), start=1)
    return f"{name}:{next((number for number, line in lines if part and part[0] in line), 1)}"


def _procfile(repository: Repository) -> Iterator[Start]:
    app = _json(repository, "app.json")
    formation = app.get("formation") or {}
    lines = [*enumerate(repository.text("Procfile").splitlines(), start=1)]
    before = [(preparing(line), f"Procfile:{number}") for number, line in lines if re.match(r"release\s*:", line)]
    for number, line in lines:
        if found := re.match(r"web\s*:\s*(.+)", line):
            start = _start(repository, f"Procfile:{number}", found[1], app.get("env"),
                           replicas=(formation.get("web") or {}).get("quantity"))  # fmt: skip
            ahead = (command for command in before if command[0])
            yield replace(start, folder=repository.folder, before=(*start.before, *ahead))


def _heroku(repository: Repository) -> Iterator[Start]:
    command = (_yaml(repository, "heroku.yml").get("run") or {}).get("web")
    command = command.get("command") if isinstance(command, dict) else command
    if command:
        yield _start(repository, _place_of(repository, "heroku.yml", command), command)


def _render(repository: Repository) -> Iterator[Start]:
    for service in _yaml(repository, "render.yaml").get("services") or []:
        command = service.get("startCommand") or service.get("dockerCommand")
        if service.get("type") in ("web", "pserv") and command:
            yield _start(repository, _place_of(repository, "render.yaml", command), command, service.get("envVars"),
                         folder=str(service.get("rootDir", "")), replicas=service.get("numInstances"))  # fmt: skip


def _fly(repository: Repository) -> Iterator[Start]:
    said = _toml(repository, "fly.toml")
    processes = said.get("processes") or {}
    names = (said.get("http_service") or {}).get("processes") or [name for name in _SERVES if name in processes]
    for name in names:
        if command := processes.get(name):
            yield _start(repository, _place_of(repository, "fly.toml", command), command, said.get("env"))


def _railway(repository: Repository) -> Iterator[Start]:
    for name, said in (
        ("railway.json", _json(repository, "railway.json")),
        ("railway.toml", _toml(repository, "railway.toml")),
    ):
        if command := (said.get("deploy") or {}).get("startCommand"):
            yield _start(repository, _place_of(repository, name, command), command)
    if command := (_toml(repository, "nixpacks.toml").get("start") or {}).get("cmd"):
        yield _start(repository, _place_of(repository, "nixpacks.toml", command), command)


def _app_engine(repository: Repository) -> Iterator[Start]:
    for name in ("app.yaml", "app.yml"):
        said = _yaml(repository, name)
        if isinstance(command := said.get("entrypoint"), str):
            yield _start(repository, _place_of(repository, name, command), command, said.get("env_variables"))


def _app_platform(repository: Repository) -> Iterator[Start]:
    for service in _yaml(repository, ".do/app.yaml").get("services") or []:
        if command := service.get("run_command"):
            yield _start(repository, _place_of(repository, ".do/app.yaml", command), command, service.get("envs"),
                         folder=str(service.get("source_dir", "")).strip("/"),
                         replicas=service.get("instance_count"))  # fmt: skip


def _beanstalk(repository: Repository) -> Iterator[Start]:
    """Yield gunicorn as Elastic Beanstalk starts it, if there is no Procfile."""
    for path in sorted((repository.folder / ".ebextensions").glob("*.config")):
        options = _yaml(repository, path).get("option_settings") or {}
        said = options.get("aws:elasticbeanstalk:container:python") if isinstance(options, dict) else None
        if isinstance(said, dict) and said.get("WSGIPath") and not repository.text("Procfile"):
            app = re.sub(r"\.py$", "", str(said["WSGIPath"])).replace("/", ".")
            words = [
                "gunicorn",
                "--workers",
                str(said.get("NumProcesses", 1)),
                "--threads",
                str(said.get("NumThreads", 15)),
                app,
            ]
            place = str(path.relative_to(repository.folder))
            given = options.get("aws:elasticbeanstalk:application:environment")
            yield _start(repository, _place_of(repository, place, "WSGIPath"), words, given)


def _kubernetes(repository: Repository) -> Iterator[Start]:
    for path in repository.files("*.yaml", "*.yml"):
        text = repository.text(path)
        if FOR_DEVELOPMENT.search(str(path.relative_to(repository.folder))) or not re.search(
            r"^kind:\s*(Deployment|StatefulSet)\b", text, re.MULTILINE
        ):
            continue
        with suppress(yaml.YAMLError, AttributeError):
            for said in yaml.safe_load_all(text):
                if isinstance(said, dict) and said.get("kind") in ("Deployment", "StatefulSet"):
                    yield from _containers(repository, str(path.relative_to(repository.folder)), said.get("spec") or {})


def _containers(repository: Repository, name: str, spec: Mapping[str, Any]) -> Iterator[Start]:
    """Yield the containers of a deployment that start a server."""
    pods = (spec.get("template") or {}).get("spec") or {}
    for container in pods.get("containers") or []:
        command = [*(container.get("command") or []), *(container.get("args") or [])]
        start = _start(
            repository,
            _place_of(repository, name, "command:"),
            command,
            container.get("env"),
            replicas=spec.get("replicas"),
        )
        if not container.get("command"):
            start = replace(
                start, words=[*start.image.entrypoint, *command], place=_place_of(repository, name, "args:")
            )
        if command and any(each.server for each in follow(start, repository)):
            yield start


def _systemd(repository: Repository) -> Iterator[Start]:
    for path in repository.files("*.service"):
        text, name = re.sub(r"\\\n\s*", " ", repository.text(path)), str(path.relative_to(repository.folder))
        said = re.findall(r"^(\w+)\s*=\s*(.*)$", text, re.MULTILINE)
        command = next((re.sub(r"^[@:+!-]+", "", value) for key, value in said if key == "ExecStart"), "")
        given = {
            name: value for key, line in said if key == "Environment" for name, value in variables_of(line).items()
        }
        folder = next((value for key, value in said if key == "WorkingDirectory"), "")
        if command:
            start = _start(repository, _place_of(repository, name, "ExecStart"), command, given, folder=folder)
            yield start if folder else replace(start, folder=repository.folder)

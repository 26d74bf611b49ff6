"""How the files of a platform start a service: Heroku, Render, Fly and others, systemd, supervisord and Kubernetes."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stampede.service.discovery.containers import FOR_DEVELOPMENT, docker_images
from stampede.service.discovery.follow import follow, supervisor_starts
from stampede.service.discovery.programs import scripts_of
from stampede.service.discovery.repository import NOT_OF_THE_SERVICE, SERVERS, Repository, Start, preparing
from stampede.service.discovery.shell import variables_of

_SERVES = ("web", "app", "api", "server")
"""What the process that answers requests is usually called."""


def platform_starts(repository: Repository) -> list[Start]:
    """Return what the files of platforms start, each with its place."""
    readers = {"Procfile or app.json": _procfile, "heroku.yml": _heroku, "render.yaml": _render, "fly.toml": _fly,
               ", ".join(form.file for form in _FORMS): _of_forms, ".ebextensions": _beanstalk,
               "Kubernetes": _kubernetes}  # fmt: skip
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
    dockerfile: str = "",
) -> Start:
    """Return the start that a command of a platform stands for, in the image of the repository if it has one.

    If there is no command, that of the image counts.
    """
    images = docker_images(repository)
    named = (image for image in images if dockerfile and image.image.file == (repository.folder / dockerfile).resolve())
    image = next(named, next(iter(images), None))
    at = repository.folder_of(folder) if folder and folder != "." else image.folder if image else repository.folder
    said = _variables(given)
    own = {name: value for name, value in said.items() if not NOT_OF_THE_SERVICE.match(name)}
    words = [str(word) for word in command] if isinstance(command, list) else ["sh", "-c", str(command)]
    start = image or Start([], at, place)
    if not command:
        words, place = start.words, start.place
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
    return next((said for said in repository.documents(repository.folder / name)[:1] if isinstance(said, dict)), {})


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
        if service.get("type") in ("web", "pserv"):
            yield _start(repository, _place_of(repository, "render.yaml", command), command, service.get("envVars"),
                         folder=str(service.get("rootDir", "")), replicas=service.get("numInstances"),
                         dockerfile=str(service.get("dockerfilePath", "")))  # fmt: skip


def _fly(repository: Repository) -> Iterator[Start]:
    said = _toml(repository, "fly.toml")
    processes = said.get("processes") or {}
    names = (said.get("http_service") or {}).get("processes") or [name for name in _SERVES if name in processes]
    commands = [processes[name] for name in names if name in processes] if processes else [None]
    for command in commands if said else ():
        yield _start(repository, _place_of(repository, "fly.toml", command), command, said.get("env"),
                     dockerfile=str((said.get("build") or {}).get("dockerfile", "")))  # fmt: skip


class _Form(NamedTuple):
    """Where a file has commands, and what belongs to each: the names of keys, of which those of ``within`` are nested.

    ``within`` leads to one mapping, or to a list of them.
    """

    file: str
    within: str
    command: str
    given: str = ""
    folder: str = ""
    replicas: str = ""


_FORMS = (
    _Form("railway.json", "deploy", "startCommand", replicas="numReplicas"),
    _Form("railway.toml", "deploy", "startCommand", replicas="numReplicas"),
    _Form("nixpacks.toml", "start", "cmd"),
    _Form("app.yaml", "", "entrypoint", "env_variables"),
    _Form("app.yml", "", "entrypoint", "env_variables"),
    _Form(".do/app.yaml", "services", "run_command", "envs", "source_dir", "instance_count"),
    _Form("apprunner.yaml", "run", "command", "env"),
    _Form("manifest.yml", "applications", "command", "env", replicas="instances"),
    _Form(".platform.app.yaml", "web.commands", "start"),
)
"""The files of Railway, Nixpacks, App Engine, App Platform, App Runner, Cloud Foundry and Platform.sh."""


def _of_forms(repository: Repository) -> Iterator[Start]:
    for form in _FORMS:
        reader = {".toml": _toml, ".json": _json}.get(Path(form.file).suffix, _yaml)
        said: Any = reader(repository, form.file)
        for key in filter(None, form.within.split(".")):
            said = said.get(key) or {}
        for each in said if isinstance(said, list) else [said]:
            if isinstance(command := each.get(form.command), str):
                yield _start(repository, _place_of(repository, form.file, command), command, each.get(form.given),
                             folder=str(each.get(form.folder) or "").strip("/"),
                             replicas=each.get(form.replicas))  # fmt: skip


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


_KINDS = re.compile(r"^kind:\s*(Deployment|StatefulSet|Service|ConfigMap)\b", re.MULTILINE)
_NO_APPLICATION = re.compile(
    r"(^|[/-])(nginx|redis|valkey|postgres|mysql|mariadb|mongo|rabbitmq|memcached|elastic|kafka|traefik|envoy|haproxy|"
    r"caddy|minio|busybox|alpine|prometheus|grafana|pgbouncer|statsd|otel|fluent)"
)
"""The images of databases and of other servers, whose commands are their own."""


def _kubernetes(repository: Repository) -> Iterator[Start]:
    documents = [*_documents(repository)]
    maps = {
        str((said.get("metadata") or {}).get("name")): said.get("data") or {}
        for _, said in documents if said.get("kind") == "ConfigMap"
    }  # fmt: skip
    for name, said in documents:
        if said.get("kind") in ("Deployment", "StatefulSet") or "knative" in str(said.get("apiVersion")):
            yield from _containers(repository, name, said.get("spec") or {}, maps)


def _documents(repository: Repository) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the documents of Kubernetes, each with the name of its file."""
    for path in repository.files("*.yaml", "*.yml"):
        text, name = repository.text(path), str(path.relative_to(repository.folder))
        if FOR_DEVELOPMENT.search(name) or not (kind := _KINDS.search(text)):
            continue
        if "{{" in text and kind[1] in ("Deployment", "StatefulSet"):
            repository.problems.append(f"{name}: a template of Helm, which the lab does not read")
            continue
        yield from ((name, said) for said in repository.documents(path) if isinstance(said, dict))


def _containers(
    repository: Repository, name: str, spec: Mapping[str, Any], maps: Mapping[str, Mapping[str, Any]]
) -> Iterator[Start]:
    """Yield the containers of a deployment that start a server. ``maps`` are the ConfigMaps of the repository."""
    pods = (spec.get("template") or {}).get("spec") or {}
    for container in pods.get("containers") or []:
        if _NO_APPLICATION.search(str(container.get("image", ""))):
            continue
        given = _environment(container, maps)
        command = [_filled(str(word), given) for key in ("command", "args") for word in container.get(key) or []]
        start = _start(repository, _place_of(repository, name, "command:"), command or None, given,
                       replicas=spec.get("replicas"))  # fmt: skip
        if command and not container.get("command"):
            start = replace(
                start, words=[*start.image.entrypoint, *command], place=_place_of(repository, name, "args:")
            )
        if any(each.server for each in follow(start, repository)):
            yield start


def _environment(container: Mapping[str, Any], maps: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the variables of a container, also those of ConfigMaps."""
    given: dict[str, str] = {}
    for each in container.get("envFrom") or []:
        data = maps.get(str((each.get("configMapRef") or {}).get("name")), {})
        given |= {str(key): str(value) for key, value in data.items()}
    for each in container.get("env") or []:
        source = (each.get("valueFrom") or {}).get("configMapKeyRef") or {}
        value = each.get("value", maps.get(str(source.get("name")), {}).get(str(source.get("key"))))
        given |= {str(each.get("name")): str(value)} if value is not None else {}
    return given


def _filled(text: str, given: Mapping[str, str]) -> str:
    """Return a word of a command with the variables that Kubernetes puts there: ``$(NAME)``."""
    return re.sub(r"\$\((\w+)\)", lambda name: given.get(name[1], name[0]), text)


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
            absent = (f"{name}: the EnvironmentFile {value} is not in the repository"
                      for key, value in said if key == "EnvironmentFile")  # fmt: skip
            yield replace(start, folder=start.folder if folder else repository.folder, problems=tuple(absent))

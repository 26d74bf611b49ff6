"""Where a start command stands: the files of a repository, the one that counts most first."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from stampede.resources import OTHERS, WEB
from stampede.servers.program import PROGRAMS, SERVES
from stampede.service.discovery.compose import compose_starts, merged
from stampede.service.discovery.dockerfile import FOR_DEVELOPMENT, as_text, docker_images, preparing
from stampede.service.discovery.repository import NO_APPLICATION, UNKNOWN, Repository, Start
from stampede.service.packages import read_document, scripts_of

_DEVELOPS = re.compile(
    r"--reload\b|\brunserver\b|\bfastapi dev\b|\bflask\b.* run\b|runserver_plus|\.run\([^)]*debug\s*=\s*True"
)
_UNREAD = ("*.nomad*", "*.hcl", "*.tf", "*.tpl", "*.j2", "*.tmpl", "ecosystem.config.*", "[Jj]ustfile", "Taskfile.y*ml",
           "*task*.json")  # fmt: skip
"""Files that may start a service: of Nomad, Terraform, Ansible, PM2, just, Task and Amazon ECS."""
_STARTED = re.compile(rf"\b({'|'.join((*PROGRAMS, 'waitress-serve', 'containerDefinitions'))})\b")
"""Fewer names than in SERVES: words such as flask stand in many files that start no server."""
MOST_NAMED = 3
_MANAGERS = ("/init", "/sbin/my_init", "runsvdir", "runsvdir-start", "s6-svscan")
"""What starts the services of a container that stand in files of their own: s6 and runit."""
_KINDS = re.compile(r"^[ -]*kind:\s*(Deployment\w*|Rollout|\w+Set|Service|ConfigMap)\b", re.MULTILINE)
_OF_SYSTEMD = {"h": "/root", "t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc"}
"""The folders that a unit names with % (systemd.unit(5), of the system)."""


class _Form(NamedTuple):
    """Where a file has commands, and what belongs to each: the names of keys, of which those of ``within`` are nested.

    ``within`` leads to one mapping, or to a list of them, of which those with ``only`` count.
    """

    file: str
    within: str
    command: str
    given: str = ""
    folder: str = ""
    replicas: str = ""
    only: tuple[str, tuple[str, ...]] = ("", ())


_FORMS = (
    _Form("heroku.yml", "run", "web"),
    _Form("render.yaml", "services", "startCommand", "envVars", "rootDir", "numInstances", ("type", ("web", "pserv"))),
    _Form("fly.toml", "processes", "app"),
    _Form("fly.toml", "processes", "web"),
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
"""The files of Heroku, Render, Fly, Railway, Nixpacks, App Engine, App Platform, App Runner, Cloud Foundry and
Platform.sh."""


def starts_of(repository: Repository, command: str = "") -> list[Start]:
    """Return the commands that may start the service, the one that counts most first, those for development last.

    ``command`` is that of the option, which counts more than all files.
    """
    images = docker_images(repository)
    compose = sorted(compose_starts(repository), key=lambda start: _unlikely(repository, start))
    if command:
        found = [_start(repository, images, "--command", command)]
    else:
        plain = [image for image in images if image.words]
        for start in [start for start in plain if {*_MANAGERS} & {*start.words[:2]}][:1]:
            for path in sorted({*repository.files("run"), *repository.folder.glob("**/s6-rc.d/*/run")}, reverse=True):
                if SERVES.search(text := repository.text(path)) and not OTHERS.search(path.parent.name.lower()):
                    shell = "bash" if "bash" in text.partition("\n")[0] else "sh"
                    own = replace(start, command=(shell, "-c", text), entrypoint=())
                    plain.insert(0, replace(own, file=repository.name(path), place=repository.name(path)))
        platforms = [*_platform_starts(repository, images), *_kubernetes(repository, images)]
        if any("honcho" in start.words for start in plain):  # which reads the Procfile itself
            platforms = [start for start in platforms if not start.place.startswith("Procfile")]
        replaces = [start for start in compose if not FOR_DEVELOPMENT.search(start.compose)]
        found = [*platforms, *replaces, *plain, *(start for start in compose if start not in replaces)]
        found = sorted(found, key=lambda start: _unlikely(repository, start)[: 1 if start in platforms else 2])
        found = [*found, *_machine_starts(repository, images)]
        for name, (module, _) in scripts_of(repository.folder).items() if not found else ():
            file = f"{module.replace('.', '/')}.py"
            text = f"{name} {repository.text(file)}{repository.text(f'src/{file}')}"
            if SERVES.search(text) or re.search(r"serve|start|web", name):
                found.append(_start(repository, [], f"the script {name}", [name], None, str(repository.folder)))
        found = [start for start in found if SERVES.search(text_of(repository, start))
                 or not OTHERS.search((start.name or start.place.rpartition("/")[2]).lower())]  # fmt: skip
    if found and not found[0].compose:
        dockerfile = found[0].image.dockerfile
        belong = [start for start in compose if WEB.search(start.name) or start.image.dockerfile == dockerfile]
        if belong := belong or [start for start in compose if start.image.dockerfile and start.beside]:
            found[0] = merged(found[0], belong[0])
    unread = [repository.name(path) for path in repository.files(*_UNREAD) if _STARTED.search(repository.text(path))]
    if unread:
        more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
        files = f"{', '.join(unread[:MOST_NAMED])}{more}"
        repository.problems.append(f"{files} may start the service, too, but the lab does not read files of this kind; "
                                   "if so, give the command with --command")  # fmt: skip
    known: dict[tuple[str, str], Start] = {}
    for start in found:
        known.setdefault((start.place, shlex.join(start.command)), start)
    return [*known.values()]


def _unlikely(repository: Repository, start: Start) -> tuple[bool, ...]:
    """Return what speaks against a command: it is for development, or it, its scripts or its service name no server."""
    text = text_of(repository, start)
    named = SERVES.search(shlex.join(start.words))
    return bool(_DEVELOPS.search(text)), not SERVES.search(text), not named, not WEB.search(start.name or start.place)


def text_of(repository: Repository, start: Start) -> str:
    """Return a command with the scripts of the repository that it runs, and those that they run."""
    texts = [*map(repository.text, repository.scripts_of(start))]
    inner = [path for text in texts if text.startswith("#!")
             for path in repository.scripts_of(replace(start, entrypoint=(), command=(text,)))]  # fmt: skip
    return "\n".join([shlex.join(start.words), *texts, *map(repository.text, inner)])


def named_server(repository: Repository, start: Start) -> str:
    """Return the server that a command, one of its scripts or its Procfile names; empty: none is named."""
    further = repository.text("Procfile") if "honcho" in start.words else ""
    found = SERVES.search(text_of(repository, start) + further)
    return found[1] if found else ""


def _start(
    repository: Repository, images: Sequence[Start], file: str, command: str | Sequence[str], given: object = None,
    folder: str = "", replicas: object = None,
) -> Start:  # fmt: skip
    """Return the start that a command of a file stands for, in the image of the repository if it has one.

    ``given`` are variables, as a mapping or a list of names with values.
    """
    image = next(iter(images), Start())
    pairs: list[tuple[object, object]] = []
    if isinstance(given, list):
        pairs = [(each.get("key") or each.get("name"), each.get("value")) for each in given if isinstance(each, dict)]
    elif isinstance(given, dict):
        pairs = [(name, each.get("value") if isinstance(each, dict) else each) for name, each in given.items()]
    said = {str(name): str(value) for name, value in pairs if name and value is not None and "${" not in str(value)}
    return replace(
        image, command=("sh", "-c", command) if isinstance(command, str) else command, entrypoint=(),
        folder=folder if folder.startswith("/") else str(repository.folder / folder) if folder else image.folder,
        file=file, place=file, given={**image.given, **said}, replicas=replicas if isinstance(replicas, int) else None,
        problems=sorted(f"{file}: {name}: {UNKNOWN}" for name, _ in pairs if name and str(name) not in said),
    )  # fmt: skip


def _platform_starts(repository: Repository, images: Sequence[Start]) -> Iterator[Start]:
    """Yield what a Procfile and the files of platforms start."""

    def read(name: str) -> Any:  # noqa: ANN401  # any document
        if name.endswith((".toml", ".json")):
            return read_document(Path(name), repository.text(name))
        return next(iter(repository.documents(repository.folder / name)), None) or {}

    lines = [(found[1], found[2], f"Procfile:{number}")
            for number, line in enumerate(repository.text("Procfile").splitlines(), start=1)
            if (found := re.match(r"(web|release)\s*:\s*(.+)", line))]  # fmt: skip
    given = quantity = None
    with suppress(AttributeError, TypeError):
        app = read("app.json")
        given, quantity = app.get("env"), ((app.get("formation") or {}).get("web") or {}).get("quantity")
    release = [(command, place) for kind, command, place in lines if kind == "release"]
    for kind, command, place in lines:
        if kind == "web":
            start = _start(repository, images, "Procfile", command, given, str(repository.folder), quantity)
            yield replace(start, place=place, before=(*start.before, *release))
    for form in _FORMS:
        try:
            said = read(form.file)
            whole = said if form.file in ("fly.toml", "heroku.yml") else {}  # variables and Dockerfile stand beside
            for key in filter(None, form.within.split(".")):
                said = said.get(key) or {}
            for each in said if isinstance(said, list) else [said]:
                command = each.get(form.command)
                command = command.get("command") if isinstance(command, dict) else command
                build = whole.get("build") or {}
                file = each.get("dockerfilePath") or build.get("dockerfile") or (build.get("docker") or {}).get("web")
                path = (repository.folder / str(file)).resolve()
                own = [start for start in images if file and start.image.dockerfile == path]
                given, replicas = whole.get("env") or each.get(form.given), each.get(form.replicas)
                if form.only[0] and each.get(form.only[0]) not in form.only[1]:
                    continue
                if isinstance(command, str):
                    folder = str(each.get(form.folder) or "")
                    yield _start(repository, own or images, form.file, command, given, folder, replicas)
                elif given and images and not whole.get("processes"):  # the command of the image
                    image = (own or images)[0]
                    start = _start(repository, [image], image.file, image.command, given, "", replicas)
                    yield replace(start, place=image.place, entrypoint=image.entrypoint)
        except (AttributeError, TypeError):  # what the file says has another form
            repository.problems.append(f"{form.file}: the lab does not know this form")


def _objects_of_kubernetes(repository: Repository) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of Kubernetes, also those of lists, with the names of their files. Note what templates hide."""
    for path in repository.files("*.yaml", "*.yml"):
        text, name = repository.text(path), repository.name(path)
        if "{{" in text and re.search(r"^kind:\s*Deployment", text, re.MULTILINE):
            if not any("what Helm makes" in problem for problem in repository.problems):
                repository.problems.append(f"{name}: what Helm makes of this template may start the service in another "
                                           "way; describe the folder with what helm template prints")  # fmt: skip
        elif "{{" not in text and _KINDS.search(text) and not FOR_DEVELOPMENT.search(name):
            for each in repository.documents(path):
                items = each.get("items") if isinstance(each, dict) else None
                listed = items if isinstance(items, list) else [each]
                yield from ((name, one) for one in listed if isinstance(one, dict))


def _kubernetes(repository: Repository, images: Sequence[Start]) -> Iterator[Start]:
    """Yield the containers of Kubernetes whose commands name a server."""
    objects = [*_objects_of_kubernetes(repository)]
    changed = [f"{repository.name(path)}: Kustomize may change what {path.parent.name} says; describe the folder with "
               "what kubectl kustomize prints" for path in repository.files("kustomization.y*ml")[:1]]  # fmt: skip
    with suppress(AttributeError, TypeError, KeyError):
        maps = {
            said["metadata"]["name"]: said.get("data") or {} for _, said in objects if said.get("kind") == "ConfigMap"
        }
        for name, said in objects:
            spec = said.get("spec") or {}
            pod = (spec.get("template") or {}).get("spec") or {}
            first = [(each, as_text([*map(str, each.get("command") or []), *map(str, each.get("args") or [])]))
                     for each in pod.get("initContainers") or []]  # fmt: skip
            volumes = {each.get("name"): (each.get("configMap") or {}) for each in pod.get("volumes") or []}
            for each in pod.get("containers") or []:
                if NO_APPLICATION.search(str(each.get("image"))):
                    continue
                given, unknown = _environment_of_container(each, maps)
                elsewhere = [f"{name}: envFrom {source}: its values are not in the repository" for source in unknown]
                before = [preparing(text) or (text if other.get("image") == each.get("image") else "")
                          for other, text in first]  # fmt: skip
                elsewhere += [f"{name}: the init container {other.get('name')} is not run: {text or 'no command'}"
                              for (other, text), command in zip(first, before, strict=True) if not command]  # fmt: skip
                words = [re.sub(r"\$\((\w+)\)", lambda found: str(given.get(found[1]) or found[0]), str(word))  # noqa: B023
                         for key in ("command", "args") for word in each.get(key) or []]  # fmt: skip
                built = re.split("[:@]", str(each.get("image")).rpartition("/")[2])[0]
                named = [own for own in images if (path := own.image.dockerfile) and path.parent.name == built]
                image = next(iter(named), None)
                if not words and (OTHERS.search(str(each.get("name")).lower()) or (not image and len(images) > 1)):
                    continue
                image = image or next(iter(images), Start())
                folder = str(each.get("workingDir") or "")
                start = _start(repository, [image], name, words or image.command, given, folder, spec.get("replicas"))
                entrypoint = () if each.get("command") else image.entrypoint
                start = replace(
                    start, place=f"{name}, {each.get('name')}", entrypoint=entrypoint,
                    before=(*start.before, *((command, name) for command in before if command)),
                    image=replace(start.image, written={**start.image.written, **_files_mounted(each, volumes, maps)}),
                    problems=(*start.problems, *elsewhere, *changed),
                )  # fmt: skip
                if SERVES.search(text_of(repository, start)):
                    yield start


def _files_mounted(
    container: Mapping[str, Any], volumes: Mapping[Any, Any], maps: Mapping[Any, Mapping[str, object]]
) -> dict[str, str]:
    """Return the texts of ConfigMaps that are mounted in a container of Kubernetes as files, by their paths."""
    found: dict[str, str] = {}
    for mount in container.get("volumeMounts") or []:
        source, there = volumes.get(mount.get("name")) or {}, PurePosixPath(str(mount.get("mountPath")))
        texts = maps.get(source.get("name"), {})
        names = {each["path"]: each["key"] for each in source.get("items") or []} or {key: key for key in texts}
        for path, key in names.items():
            if key in texts and mount.get("subPath", path) == path:
                found[str(there if "subPath" in mount else there / path)] = str(texts[key])
    return found


def _environment_of_container(
    container: Mapping[str, Any], maps: Mapping[Any, Mapping[Any, object]]
) -> tuple[dict[str, object], list[object]]:
    """Return the variables of a container of Kubernetes, and the sources of others that are none of the ConfigMaps."""
    sources = [(each.get("configMapRef") or each.get("secretRef") or {}).get("name")
               for each in container.get("envFrom") or []]  # fmt: skip
    given = {name: value for source in sources for name, value in maps.get(source, {}).items()}
    for each in container.get("env") or []:
        of = (each.get("valueFrom") or {}).get("configMapKeyRef") or {}
        given[each["name"]] = each.get("value", maps.get(of.get("name"), {}).get(of.get("key")))
    return given, [source for source in sources if source not in maps]


def _machine_starts(repository: Repository, images: Sequence[Start]) -> Iterator[Start]:
    """Yield what the units of systemd start, and uWSGI and supervisord if they have a file."""
    for path in sorted(repository.files("*.service"), key=lambda each: not SERVES.search(repository.text(each))):
        text, name = re.sub(r"\\\n\s*", " ", repository.text(path)), repository.name(path)
        text = re.sub(r"(?<!%)%([htSCLE])", lambda each: _OF_SYSTEMD[each[1]], text)
        said = re.findall(r"^(\w+)[ \t]*=[ \t]*(.*)$", text, re.MULTILINE)
        of = dict(said)  # of which the last counts
        command = re.sub(r"^[@:+!-]+", "", of.get("ExecStart", ""))
        first = [(each, name) for key, value in said if key == "ExecStartPre" and (each := preparing(value))]
        with suppress(ValueError):
            given = dict(word.partition("=")[::2] for key, line in said if key == "Environment"
                         for word in shlex.split(line))  # fmt: skip
            files: list[Path] = []
            problems = [f"{name}: {each} of the command: {UNKNOWN}" for each in re.findall(r"(?<!%)%[A-Za-z]", command)]
            for each in (value.lstrip("-") for key, value in said if key == "EnvironmentFile"):
                there = repository.files(PurePosixPath(each).name)[:1]
                files += there
                problems += [] if there else [f"{name}: the EnvironmentFile {each} is not in the repository"]
            if command:
                words = command if "$" in command else shlex.split(command)
                folder = of.get("WorkingDirectory") or str(repository.folder)
                start = _start(repository, images, name, words, given, folder)
                yield replace(start, env_files=files, problems=problems, before=(*start.before, *first))
    for path in [each for each in repository.files("uwsgi.ini", "wsgi.ini") if repository.text(each)][:1]:
        yield _start(repository, images, repository.name(path), ["uwsgi", "--ini", path.name], None, str(path.parent))
    for path in repository.files("supervisor*.conf", "supervisor*.ini")[:1]:
        words = ["supervisord", "-c", f"/opt/application/{repository.name(path)}"]
        yield _start(repository, images, repository.name(path), words, None, str(repository.folder))

"""Write the description of a service from what the folder of its application says.

The start command is found in a Procfile, Dockerfile or Compose file and followed through scripts and variables; what
could not be read is said at its place, and never replaced by a guess that looks like a finding.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import yaml

from stampede.logs.access_log import MOST_CLASSES, AccessLog
from stampede.records.classes import PATH_PATTERN
from stampede.records.model import name_from
from stampede.service.description import UWSGI
from stampede.service.discovery.answers import Answers, Route, first_of
from stampede.service.discovery.containers import docker_images
from stampede.service.discovery.preparation import note_preparation
from stampede.service.discovery.repository import Image, Repository, Start
from stampede.service.discovery.requirements import find_requirements
from stampede.service.discovery.routes import routes_of
from stampede.service.discovery.servers import (
    Discovery,
    importable_from,
    json_text,
    lines_of,
    note_settings,
    note_uwsgi,
    read_start,
)
from stampede.service.discovery.starts import starts_of
from stampede.service.discovery.uwsgi import ini_settings
from stampede.service.image import LEFT_OUT
from stampede.service.packages import locked_release, pinned_release

MOST_FILES = 500
MOST_ROUTES = 10
SOMETHING = '  page: {path: "/", users: 10, pause_s: 0.1}  # guessed: what people ask for'
_WSGI = r"Flask|Bottle|Falcon|falcon\.App|get_wsgi_application"
_ASGI = r"FastAPI|Starlette|Litestar|Quart|falcon\.asgi\.App|get_asgi_application"
_APPLICATION = re.compile(rf"^(\w+)(?:\s*:\s*[\w.]+)?\s*=\s*(?:\w+\.)*({_WSGI}|{_ASGI})\(", re.MULTILINE)
_FACTORY = re.compile(r"^def (create_app|make_app)\(([^)]*)\)", re.MULTILINE)
FROM_APPLICATION = "from the application: its URL map"
"""Where a class of requests comes from, if the application was asked."""
OTHERWISE = {
    "gunicorn": "27.0.1", "uvicorn": "0.38.0", "uwsgi": UWSGI, "granian": "2.8.7", "hypercorn": "0.18.0",
    "daphne": "4.2.3",
}  # fmt: skip
"""The release of each server that is taken if no file names one."""


class Description(NamedTuple):
    """The description of a service as YAML, and what is worth a word on the terminal.

    ``settings`` is gunicorn's settings file, as seen from the application's folder; empty: there is none. ``variables``
    are those that the start command gives to this file.
    """

    text: str
    remarks: Sequence[str] = ()
    settings: str = ""
    variables: Mapping[str, str] = {}


def describe_folder(
    folder: Path, log: AccessLog | None = None, cores: int = 1, answers: Answers | None = None
) -> Description:
    """Return the description of the service in a folder. A comment says where each line comes from.

    With the log of the service, the requests are those of the log; else they are the routes of the application, if it
    was asked and gave ``answers``, or those in its source. ``cores``: how many cores a settings file that computes its
    workers would see.
    """
    repository = Repository(folder, cores, settings=answers.settings if answers else {})
    found = Discovery(folder)
    try:
        starts = starts_of(repository)
    except RecursionError:
        starts = []
        repository.problems.append("what says how the service starts is nested too deeply to be read")
    start = _with_compose(starts) if starts else None
    if start:
        read_start(found, start, repository)
        found.problems += _other_services(starts, repository)
    found.problems += repository.problems
    if not starts and not found.problems:
        found.problems.append("no command that starts a server was found, so the lab guesses how the service is served")
    _note_settings_files(found, repository)
    _from_nginx(found, repository)
    _note_source(found, repository)
    for name in found.values.keys() & {"settings of gunicorn", "settings of uwsgi"}:
        found.values[name] = os.path.relpath(found.values[name], found.folder)
    note_preparation(found, start, repository)
    bases = [base for base in (found.folder, *found.folder.parents) if base.is_relative_to(repository.folder)]
    image = next(
        (each.image for each in [*([start] if start else []), *docker_images(repository)] if each.image.file), Image()
    )
    _note_installs(found, image, repository)
    dockerfile = image.file
    required = find_requirements(found, repository, bases, dockerfile or Path("Dockerfile"))
    found.note("server", "gunicorn", "")
    server = found.values["server"]
    found.note(server, pinned_release(server, required.lines), required.file or "Dockerfile")
    packages = [each for each in required.packages if not re.match(rf"{server}\b", each, re.IGNORECASE)]
    for key, listed in (("extras", required.extras), ("packages", packages)):
        found.note(key, listed or None, os.path.relpath(dockerfile, repository.folder) if dockerfile else "Dockerfile")
    if server not in found.values and (locked := locked_release(server, bases)):
        found.note(server, locked[0], f"the lock file in {os.path.relpath(locked[1], found.folder)}")
    if found.values.get("uwsgi", UWSGI) != UWSGI:
        _replace_uwsgi(found)
    if server == "gunicorn" and "worker_class" not in found.values:
        found.guess("worker_class", "gthread" if found.values.get("threads", 1) > 1 else "sync", "gunicorn's default")
    if found.values.get("worker_class") == "sync" and found.values.get("threads", 1) > 1:
        found.values["worker_class"] = "gthread"  # gunicorn does the same
    requests = classes_of_log(log) if log else _classes_of_routes(found, repository, answers)
    found.problems += repository.problems  # what could not be read since then
    settings = found.values.get("settings of gunicorn", "") if server == "gunicorn" else ""
    return Description(
        _yaml(found, repository.folder, required.file, requests), found.remarks, settings, found.variables
    )


def _classes_of_routes(found: Discovery, repository: Repository, answers: Answers | None) -> list[str]:
    """Return the routes of the application as classes, or those in its source if it was not asked, or told none."""
    source = [*dict.fromkeys(routes_of([*_route_sources(repository, found.folder)], found.folder))]
    if not answers or not answers.routes:
        return [*_guessed(source, "guessed: the path, and how many users")]
    found.remarks += answers.compared(source)
    return ["  # guessed: how many users", *_guessed(answers.worth_measuring, FROM_APPLICATION)]


def _with_compose(starts: Sequence[Start]) -> Start:
    """Return the first start, and what a Compose file that starts the same folder gives to it and has beside it."""
    start = starts[0]
    of_compose = (other for other in starts if other.compose and other.folder == start.folder)
    other = next(iter(sorted(of_compose, key=lambda other: not other.beside)), None)
    if other is None or start.beside:
        return start
    return replace(
        start, environment={**other.environment, **start.environment}, given={**other.given, **start.given},
        env_files=other.env_files, beside=other.beside,
        compose=other.compose, image=other.image if other.image.file else start.image,
        problems=(*start.problems, *other.problems), before=(*start.before, *other.before),
    )  # fmt: skip


def _note_installs(found: Discovery, image: Image, repository: Repository) -> None:
    """Note Debian's packages that a Dockerfile installs, and what else it does that the lab does not follow."""
    installs, packages = image.installs, dict[str, str]()
    for name, place in installs.packages:
        packages.setdefault(name, place)
    found.note("system_packages", [*packages] or None, ", ".join(dict.fromkeys(packages.values())))
    for place, command in installs.foreign:
        found.problems.append(f"{place}: {command}: write Debian's names in application.system_packages")
    found.problems += [f"{place}: the lab does not follow {command}" for place, command in installs.unknown]
    if installs.unknown:
        found.problems.append(f"if the application needs these steps: {_way_to_image(image, repository)}")


def _way_to_image(image: Image, repository: Repository) -> str:
    """Return the command that builds the image of a Dockerfile, and the key that names the image."""
    context = image.context or repository.folder
    name = re.sub(r"[^a-z0-9]+", "-", context.name.lower()).strip("-") or "app"
    file = f" -f {image.file}" if image.file and image.file != context / "Dockerfile" else ""
    return f"docker build -t {name}{file} {context}, and image: {name} in the place of folder and requirements"


def _replace_uwsgi(found: Discovery) -> None:
    """Note the only release of uWSGI that the lab has, and that the service has another."""
    there, place = found.values["uwsgi"], found.places["uwsgi"]
    found.values["uwsgi"], found.places["uwsgi"] = UWSGI, f"guessed: {place} has {there}, which the lab lacks"
    found.values["left_out"] = [*found.values.get("left_out", []), f"uWSGI {there}: {UWSGI} is measured instead"]
    found.places.setdefault("left_out", place)


def _other_services(starts: Sequence[Start], repository: Repository) -> Iterator[str]:
    """Yield what else the repository starts, and that it was not taken."""
    for other in starts[1:]:
        is_service = any(other.folder.glob("*.py"))
        if other.folder != starts[0].folder and other.words != starts[0].words and is_service:
            folder = other.folder.relative_to(repository.folder)
            yield f"{other.place} starts another service, which was not taken; stampede init {folder} describes it"
        elif other.words != starts[0].words:
            yield f"{other.place} starts the service in another way, which was not taken: {other.command}"


def _route_sources(repository: Repository, folder: Path) -> Iterator[Path]:
    """Yield the sources in the folder of the service, without what only shows how something is used."""
    for path in _sources(repository):
        if path.is_relative_to(folder) and not {"docs", "examples", "scripts"} & {*path.relative_to(folder).parts}:
            yield path


def _note_settings_files(found: Discovery, repository: Repository) -> None:
    """Note settings files that no command names, if no command was found."""
    if "server" in found.values:
        return
    for name in ("gunicorn.conf.py", "gunicorn_conf.py", "gunicorn.py"):
        if (path := repository.folder / name).exists() and "server" not in found.values:
            found.note("server", "gunicorn", name)
            note_settings(found, path, {}, repository)
    for name in ("uwsgi.ini", "wsgi.ini"):
        if (repository.folder / name).is_file() and "server" not in found.values:
            found.note("settings of uwsgi", repository.folder / name, name)
            said = {key: (value, name) for key, value in ini_settings(repository.text(name), repository.cores)}
            note_uwsgi(found, said, name, repository)


def _note_source(found: Discovery, repository: Repository) -> None:
    """Note the application that the source has, if no command names it, and from which folder it can be imported."""
    for path in [] if "callable" in found.values else _sources(repository):
        text = repository.text(path)
        named, factory = _APPLICATION.search(text), _FACTORY.search(text)
        if not named and not factory:
            continue
        root = _root(path, repository.folder)
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        place = f"guessed from {path.relative_to(repository.folder)}"
        is_asgi = bool(named and re.fullmatch(_ASGI, named[2]))
        if path.name == "asgi.py" and (path.parent / "wsgi.py").is_file() and not _has_channels(path, repository):
            continue  # Django's startproject writes both
        if (
            is_asgi
            and found.values.get("server") in ("gunicorn", "uwsgi")
            and not str(found.values.get("worker_class")).endswith(("asgi", "Worker"))
        ):
            continue  # gunicorn's other workers and uWSGI serve WSGI
        found.note("callable", f"{module}:{named[1] if named else f'{factory[1]}()' if factory else ''}", place)
        if is_asgi:
            found.note("server", "uvicorn", place)
        break
    if "callable" in found.values:
        module = found.values["callable"].partition(":")[0]
        if there := importable_from(repository, found.folder, module):
            found.folder = there
            return
    if not found.folder.is_relative_to(repository.folder):
        found.folder = repository.folder


def _has_channels(path: Path, repository: Repository) -> bool:
    """Return whether the settings beside Django's asgi.py name it."""
    return any("ASGI_APPLICATION" in repository.text(each) for each in path.parent.rglob("settings*/*.py")) or any(
        "ASGI_APPLICATION" in repository.text(each) for each in path.parent.glob("settings*.py")
    )


def _root(path: Path, folder: Path) -> Path:
    """Return the folder from which a source is imported: the one that has its package, or the repository."""
    root = path.parent
    while (root / "__init__.py").is_file() and root != folder:
        root = root.parent
    return root if root != path.parent else folder


def _guessed(routes: Sequence[Route], origin: str) -> Iterator[str]:
    """Yield a class for each route, short paths first.

    Routes with ids come later, then those that change data; both are comments.
    """
    names: Counter[str] = Counter()
    ordered = sorted(dict.fromkeys(routes), key=lambda of: (of[0] != "get", not _is_plain(of[1]), _depth(of[1])))
    for method, path in ordered[:MOST_ROUTES]:
        names[name := re.sub(r"^(?=\d)", "page-", name_from(path, "home"))] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        verb = "" if method == "get" else f", method: {method.upper()}"
        line = f"{name}: {{path: {json_text(path)}{verb}, users: 10, pause_s: 0.1}}"
        if _is_plain(path) and not verb:
            yield f"  {line}  # {origin}"
        else:
            yield f"  # {line}  # {'it changes data' if _is_plain(path) else 'write a real path'}"
    if further := ordered[MOST_ROUTES:]:
        yield f"  # not here: {first_of(further)}"


def _depth(path: str) -> int:
    return len(list(filter(None, path.split("/"))))


def _is_plain(path: str) -> bool:
    """Return whether a path can be asked for as it is."""
    return bool(re.fullmatch(PATH_PATTERN, path)) and not re.search(r"[<>{}]|/:", path)


def classes_of_log(log: AccessLog) -> list[str]:
    """Return the most frequent routes of a log as classes. A route with ids is a comment, because no id is known."""
    lasts_s = max(log.last - log.first, 1.0)
    names: Counter[str] = Counter()
    lines = []
    most_frequent = sorted(log.routes.items(), key=lambda item: (-item[1].requests, item[0]))
    for (method, path), route in most_frequent[:MOST_CLASSES]:
        names[name := name_from(f"{method} {path}", "home")] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        told = f"{{path: {json_text(path)}, method: {method}, per_second: {route.requests / lasts_s:.4g}}}"
        share = f"# from the log: {route.requests / log.requests:.1%} of the requests"
        unknown = "{" in path or not re.fullmatch(PATH_PATTERN, path)
        lines.append(f"  # {name}: {told}  {share}; write a real path" if unknown else f"  {name}: {told}  {share}")
    return lines


def _yaml(found: Discovery, root: Path, requirements: str, requests: list[str]) -> str:
    def line(name: str, otherwise: object, key: str = "") -> str:
        value, place = found.values.get(name, otherwise), found.places.get(name, "guessed")
        is_finding = not place.startswith("guessed") and not place.endswith(" default")
        comment = " ".join(f"from {place}".split() if is_finding else place.split())
        return f"  {key or name}: {json_text(value)}  # {comment}"

    def known(*names: str) -> list[str]:
        return [line(name, None) for name in names if name in found.values]

    server = found.values["server"]
    worker = found.values.get("worker_class", "gthread") if server == "gunicorn" else server
    has_threads = worker in ("gthread", "sync", "uwsgi") or found.values.get("interface") == "wsgi"
    given = [f"    {_key(name.partition(' ')[2])}: {json_text(value)}" for name, value in found.values.items()
             if name.startswith("environment ")]  # fmt: skip
    settings = f"settings of {server}"
    return "\n".join([
        "# A service for make try SERVICE=<this file>. docs/reference/service-file.md explains each key.",
        *lines_of(found.problems),
        "application:",
        f"  folder: {json_text(str(found.folder))}",
        line("callable", "app:app"),
        *([f"  requirements: {requirements}"] if requirements else []),
        *known("extras", "packages", "system_packages", "env_file"),
        *(["  environment:", *given] if given else []),
        *known("before"),
        "served:",
        line(server, OTHERWISE[server]),
        *([line("worker_class", "gthread")] if server == "gunicorn" else []),
        *known("interface"),
        line("workers", 1),
        *([line("threads", 1)] if has_threads else []),
        *known("backpressure"),
        *(known("worker_connections") if server == "gunicorn" else []),
        *(known("max_requests", "max_requests_jitter") if found.values.get("max_requests") else []),
        *known("timeout_s"),
        *known("replicas", "balance"),
        *([line(settings, "", "settings")] if settings in found.values else []),
        *known("left_out"),
        *(["beside:", f"  compose: {json_text(str((root / found.places['beside']).resolve()))}",
           f"  services: {json_text(found.values['beside'])}  # from {found.places['beside']}: depends_on"]
          if "beside" in found.values else []),
        "requests:",
        *requests,
        *([] if any(not line.startswith("  #") for line in requests) else [SOMETHING]),
        "",
    ])  # fmt: skip


def _key(name: str) -> str:
    """Return a name as a key of YAML, in which NO is no name but a truth value."""
    return name if yaml.safe_load(name) == name else json_text(name)


def _from_nginx(found: Discovery, repository: Repository) -> None:
    """Note how many servers nginx passes requests to, and how it chooses among them, if there are several."""
    for place in ("nginx.conf", "nginx/nginx.conf", "nginx/default.conf"):
        for upstream in re.findall(r"^\s*upstream\s+\S+\s*\{([^}]*)\}", repository.text(place), re.MULTILINE):
            servers = re.findall(r"^\s*server\s+[^;]+;", upstream, re.MULTILINE)
            if len(servers) > 1:
                found.note("replicas", len(servers), place)
                found.note("balance", "least_conn" if "least_conn" in upstream else "round_robin", place)


def _sources(repository: Repository) -> list[Path]:
    """Return the Python files of the application, those at the top first, and not more than MOST_FILES."""
    skipped = {*LEFT_OUT, "tests", "test", "migrations"}
    folder = repository.folder
    files = [path for path in folder.rglob("*.py") if not skipped & set(path.relative_to(folder).parts)]
    return sorted(files, key=lambda path: (len(path.parts), path))[:MOST_FILES]

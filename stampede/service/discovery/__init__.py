"""Write the description of a service from what its folder and its programs say.

The files of the folder say where the start command stands. The description keeps it as it is. What it starts, with
which numbers, and which routes there are, the programs themselves say when they are asked
(stampede.service.build.ask_application); that stands beside the command as comments. What could not be read is said at
its place, and never replaced by a guess that looks like a finding.
"""

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stampede.logs.access_log import MOST_CLASSES, AccessLog, class_name
from stampede.predict.options import MOST_REPLICAS
from stampede.records.classes import PATH_PATTERN
from stampede.records.model import name_from
from stampede.records.words import plural
from stampede.resources import Found, choose_container, containers_in
from stampede.servers.program import PROGRAMS, SERVED_BY, UWSGI
from stampede.service.answers import CALLABLE_PATTERN, Answers, Followed, not_served, numbers_of, stand_in
from stampede.service.description import HEAD, OF_COMMAND, SERVERS, variables_of_env_file
from stampede.service.discovery.dockerfile import as_text, docker_images, preparing
from stampede.service.discovery.repository import UNKNOWN, Repository, Start
from stampede.service.discovery.requirements import find_requirements, system_packages
from stampede.service.discovery.starts import named_server, starts_of, text_of
from stampede.service.packages import locked_releases, pinned_release

MOST_ROUTES = 10
MOST_CHARACTERS = 160
"""How much of a command is shown."""
SOMETHING = '  page: {path: "/", users: 10, pause_s: 0.1}  # guessed: what people ask for'
NO_COMMAND = "no start command found; give it with --command"
ALONE = "if another command starts the server itself, such as gunicorn app:app, give it with --command"
NOT_ASKED = "  # workers, threads and the application: stampede init --check asks the server"
FROM_APPLICATION = "from the application: its URL map"
"""Where a class of requests comes from, if the application was asked."""
_STANDS_IN = {
    "waitress": "stampede try cannot serve waitress yet; gunicorn with as many workers and threads stands in for it",
    "werkzeug": "flask run is for development, so its speed says nothing; name your server",
    "runserver": "runserver is for development, so its speed says nothing; name your server",
}
_FOR_TOOLS = re.compile(
    r"^(PATH|PORT|HOME|USER|LANG|LC_.*|PYTHON(?!PATH$).*|PIP_.*|UV_.*|POETRY_.*|PIPENV_.*|VIRTUAL_ENV|DEBIAN_.*|"
    r"STAMPEDE_.*)$"
)
"""Variables for the tools of an image."""
_OF_SHELL = {"PORT", "PWD", "HOME", "HOSTNAME", "PATH", "USER", "BASH_SOURCE", "RANDOM", "SECONDS", "LINENO", "OPTARG",
             "UID", "EUID", "IFS", "CLI"}  # fmt: skip
"""Variables that a shell has by itself, or the lab gives."""
_MIGRATIONS = {"manage.py": ("django", "python manage.py migrate"), "alembic.ini": ("", "alembic upgrade head")}
"""What prepares an empty database, by the file that its tool has in the application's folder, and a word in it."""


class Description(NamedTuple):
    """The description of a service as YAML.

    ``fallbacks`` are what start.py may try if the command reaches no server; None: there is no command.
    """

    text: str
    fallbacks: Mapping[str, Any] | None = None


@dataclass
class Discovery:
    """What was found: values, and for each value where it comes from. ``folder`` is the working folder."""

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unknown: str = ""
    """What may say what a server takes its default for; empty: everything is known."""

    def note(self, name: str, value: object, place: str) -> None:
        """Keep a value, unless there is none, or a place that counts more has already said it."""
        if value and name not in self.values:
            self.values[name], self.places[name] = value, place


def describe_folder(
    folder: Path, log: AccessLog | None = None, answers: Answers | None = None, command: str = "",
    resources: Found | None = None,
) -> Description:  # fmt: skip
    """Return the description of the service in a folder. A comment says where each line comes from.

    With the log of the service, the requests are those of the log; else they are the routes that the application told.
    ``command`` is the start command, and ``resources`` what the container may use, if somebody gives them.
    """
    repository = Repository(folder)
    starts = starts_of(repository, command)
    start = starts[0] if starts else Start()
    found = Discovery(repository.folder_of(start) if starts else folder)
    followed = answers.followed if answers else None
    fallbacks = None
    if starts:
        unknown = _unknown_variables(repository, start)
        fallbacks = {"command": [*start.command], "unknown": unknown}
        found.problems += [*start.problems, *(f"{start.place}: ${name}: {UNKNOWN}" for name in unknown)]
        found.unknown = next((problem for problem in found.problems if UNKNOWN in problem), "")
        found.problems += _other_starts(repository, starts)
        if (folder / ".env").is_file() and (folder / ".env").resolve() not in map(Path.resolve, start.env_files):
            found.problems.append(".env is no part of the image; if the service reads it, name it in env_file")
        if followed:
            _note_followed(found, start, followed)
        of_entrypoint = () if followed and followed.without_entrypoint else start.entrypoint
        found.note("command", as_text([*of_entrypoint, *start.command]), start.place)
        here = os.path.relpath(found.folder, folder)
        found.note("working_folder", here if here != "." else "", start.place)
        found.note("paths", repository.paths_of(start), start.place)
        found.note("written", dict(start.image.written), start.place)
        given = {name: value for name, value in start.given.items()
                 if re.fullmatch(r"[A-Za-z_]\w*", name) and not _FOR_TOOLS.match(name)}  # fmt: skip
        found.environment = given | dict.fromkeys(followed.assumed if followed else (), "1")
        files = [str(path) for path in start.env_files]
        found.note("env_file", files if files[1:] else "".join(files), start.compose or start.place)
        found.note("replicas", start.replicas if (start.replicas or 0) > 1 else None, start.compose or start.place)
        found.note("beside", [*start.beside], start.compose)
    else:
        found.problems += [
            f"{image.place}: states no command, so that of its base image counts: build the image, and write its name "
            "as image in the place of folder" for image in docker_images(repository)[:1]
        ]  # fmt: skip
        found.problems.append(NO_COMMAND)
    _note_before(found, start, repository, followed)
    _note_resources(found, start, repository, resources or {})
    _note_server(found, start, repository)
    requests = classes_of_log(log) if log else [*_classes_of_routes(answers)]
    found.problems += repository.problems
    return Description(_yaml(found, repository, requests), fallbacks)


def _unknown_variables(repository: Repository, start: Start) -> list[str]:
    """Return the variables that a command or its scripts need and that nothing in the repository gives."""
    text = text_of(repository, start)
    given = {*start.given, *_OF_SHELL, *re.findall(r"\bread\s+(?:-\w+\s+)*(\w+)", text)}
    given |= {*re.findall(r"(?:^|[\s;(&'\"])(?:export\s+|local\s+|for\s+)?(\w+)(?:=| in )", text)}
    for path in start.env_files:
        given |= variables_of_env_file(repository.text(path)).keys()
    needed = dict.fromkeys(re.findall(r"(?<![\\$])\$\{?([A-Za-z_]\w*)(?![\w:+=#%/-])", text))
    return [name for name in needed if name not in given]


def _other_starts(repository: Repository, starts: Sequence[Start]) -> Iterator[str]:
    """Yield what else the repository starts, and that it was not taken."""
    first = starts[0]
    named: set[Path] = set()
    for other in starts[1:]:
        there = repository.folder_of(other)
        same = other.words == first.words or other.place in shlex.join(first.words)  # such as the file that it names
        if same or there in named or preparing(shlex.join(other.words)) or not named_server(repository, other):
            continue
        if there != repository.folder_of(first) and any(there.glob("*.py")):
            named.add(there)
            folder = os.path.relpath(there, repository.folder)
            yield f"{other.place} starts another service, which was not taken; stampede init {folder} describes it"
        else:
            command = shlex.join(other.words)
            shown = command if len(command) <= MOST_CHARACTERS else f"{command[:MOST_CHARACTERS]} …"
            yield f"{other.place} starts the service in another way, which was not taken: {shown}"


def _note_followed(found: Discovery, start: Start, followed: Followed) -> None:
    """Note what the start command would have started, as its server says."""
    place = start.place
    if followed.without_entrypoint:
        found.problems.append(f"{place}: the entrypoint does not end here, so the command was followed without it; its "
                              f"last words: {followed.without_entrypoint}")  # fmt: skip
    if followed.assumed:
        found.problems.append(f"{place}: the command needs these variables, so it was followed with 1 as each value")
    told = followed.server
    if not told:
        lacks = f"starts {followed.missing}, which the image lacks: name its package in application.packages"
        why = lacks if followed.missing else followed.why
        found.problems.append(f"{place}: the command {why}; its last words: {followed.said or 'none'}")
        found.problems += [] if followed.missing else [ALONE]
        return
    others = [each for each in followed.records if each.what == "server"][1:]
    different = [each for each in others if (each.server, each.callable) != (told.server, told.callable)]
    found.problems += [f"{place} starts {each.server} {each.callable}, too, which was not taken" for each in different]
    if others and not different:
        found.problems.append(f"{place} starts {len(others) + 1} servers with this application; one is taken")
    found.problems += [f"{place}: not kept: {name} {value}" for name, value in told.aside.items()]
    found.problems += [f"{place}: {_STANDS_IN[told.server]}"] if told.server in _STANDS_IN else []
    server = SERVED_BY.get(told.server, told.server)
    stands_in = "" if server == told.server else f"guessed: {server} stands in for {told.server}"
    found.note("server", server, stands_in or f"{told.server} says")
    if not re.fullmatch(CALLABLE_PATTERN, told.callable):
        found.problems.append(f"{place}: {told.server} names no application that can be imported"
                              + (f": {told.callable}" if told.callable else ""))  # fmt: skip
    else:
        found.note("callable", told.callable, f"{told.server} says, of {place}")
        found.note("command", stands_in and stand_in(told), stands_in)
    by_heroku = place.startswith("Procfile") and told.server in ("gunicorn", "uvicorn") and not found.unknown
    if by_heroku and "WEB_CONCURRENCY" not in start.given and (
        "workers" not in told.differ or "WEB_CONCURRENCY" in shlex.join(start.command)
    ):  # fmt: skip
        who = f"{told.server} says, but" if "workers" in told.differ else "guessed:"
        by_itself = f"{who} Heroku sets WEB_CONCURRENCY by itself; ask it, and name it in environment"
        found.note("workers", numbers_of(told)["workers"], by_itself)

    def place_of(key: str) -> str:
        develops = told.server in ("werkzeug", "runserver")  # which have a thread for each request
        if stands_in and (develops or key == "worker_class"):
            return stands_in
        differs = PROGRAMS[server].names.get(key, key) in told.differ and not followed.assumed
        if differs or (server == "uwsgi" and key in told.differ):
            return f"{told.server} says" + (f", on {followed.cores} cores" if followed.cores else "")
        return f"guessed: {found.unknown}" if found.unknown else f"{told.server}'s default"

    for key, value in numbers_of(told).items():
        found.note(key, value, place_of(key))
    found.problems += [f"{place}: the lab does not serve {unknown}"] if (unknown := not_served(told)) else []
    found.note("replicas", told.replicas if told.replicas > 1 else None, f"{place}: numprocs")


def _note_before(found: Discovery, start: Start, repository: Repository, followed: Followed | None) -> None:
    """Note what runs before the server, as the files and the start say, or what makes an empty database ready."""
    said = [*start.before]
    if followed and followed.server:
        said += [(shlex.join(each.words), start.place) for each in followed.records if each.what == "before"]
    before = {re.sub(r"(?:python[\d.]*\s+|(?<!\S))(?:\./)?manage\.py", "python manage.py", command, count=1): place
              for command, place in said}  # fmt: skip
    for name, (word, command) in _MIGRATIONS.items():
        has_tool = (found.folder / name).is_file() and word in repository.text(found.folder / name).lower()
        if has_tool and not re.search(r"\bmigrat|\bupgrade\b|prestart", " ".join(before)):
            before[command] = "guessed: a database is empty when a trial begins"
    found.note("before", " && ".join(before), ", ".join(dict.fromkeys(before.values())))


def _note_resources(found: Discovery, start: Start, repository: Repository, given: Found) -> None:
    """Note what the container may use, as given or as the files that deploy it say, and how requests are shared."""
    for path in ("nginx.conf", "nginx/nginx.conf", "nginx/default.conf"):
        for upstream in re.findall(r"^\s*upstream\s+\S+\s*\{([^}]*)\}", repository.text(path), re.MULTILINE):
            if len(servers := re.findall(r"^\s*server\s+[^;]+;", upstream, re.MULTILINE)) > 1:
                found.note("replicas", len(servers), path)
                found.note("balance", "least_conn" if "least_conn" in upstream else "round_robin", path)
    names = repository.files("*.yaml", "*.yml", "*.service", "*.conf")
    files = [(repository.name(path), repository.text(path)) for path in names
             if path.suffix != ".conf" or path.parent.name.endswith(".service.d")]  # fmt: skip
    kinds = [{*re.findall(r"^kind:\s*(\w+)", text, re.MULTILINE)} for _, text in files]
    files = [each for each, has in zip(files, kinds, strict=True) if has != {"Pod"}]  # which people start by hand
    resources = given or start.resources
    if not {"cpus", "memory_mib"} & resources.keys():
        resources, problem = choose_container(containers_in(files), start.file, repository.folder.resolve().name)
        found.problems += [problem] if problem else []
    for key, (value, place) in resources.items():
        if key != "replicas" or int(value) <= MOST_REPLICAS:
            found.note(key, value, place)


def _note_server(found: Discovery, start: Start, repository: Repository) -> None:
    """Note the server and its release, and what the application requires."""
    image = start.image
    context = image.context or repository.folder
    name = name_from(context.name, "app")
    file = f" -f {image.dockerfile}" if image.dockerfile not in (None, context / "Dockerfile") else ""
    build = f"docker build -t {name}{file} {context}, and image: {name} in the place of folder and requirements"
    packages = system_packages(found.problems, image.runs, build)
    found.note("system_packages", [*packages], ", ".join(dict.fromkeys(packages.values())))
    built = next((each.image for each in (start, *docker_images(repository)) if each.image.dockerfile), image)
    beside = [built.dockerfile.parent] if built.dockerfile else []
    bases = [base for base in (found.folder, *found.folder.parents, *beside)
             if base.is_relative_to(repository.folder)]  # fmt: skip
    required = find_requirements(found.problems, repository, bases, built)
    found.note("requirements", required.file, required.file)
    named = named_server(repository, start)
    listed = next((server for server in SERVERS if any(re.match(rf"{server}\b", line.strip(), re.IGNORECASE)
                                                       for line in required.lines)), "")  # fmt: skip
    if server := SERVED_BY.get(named, named) or listed:
        found.note("server", server, start.place if named else required.file)
    server = found.values.get("server", "gunicorn")
    found.note(server, pinned_release(server, required.lines), required.file or "Dockerfile")
    further = [each for each in required.packages if not re.match(rf"{server}\b", each, re.IGNORECASE)]
    place = repository.name(image.dockerfile) if image.dockerfile else "Dockerfile"
    found.note("extras", required.extras, place)
    found.note("packages", further, place)
    for base in bases:
        locked = os.path.relpath(base, repository.folder)
        found.note(server, locked_releases(base).get(server), f"the lock file in {locked}")
    if (there := found.values.get("uwsgi", UWSGI.release)) != UWSGI.release:
        place = found.places["uwsgi"]
        found.values["uwsgi"] = UWSGI.release
        found.places["uwsgi"] = f"guessed: {place} has {there}, which the lab lacks"
        found.problems.append(f"{place}: uWSGI {there}: {UWSGI.release} is measured instead")


def _classes_of_routes(answers: Answers | None) -> Iterator[str]:
    """Yield a class for each route that the application told, short paths first.

    Routes with ids come later, then those that change data; both are comments.
    """
    if not answers:
        yield "  # the routes: stampede init --check asks the application"
        return
    names: Counter[str] = Counter()
    ordered = sorted(dict.fromkeys(answers.worth_measuring), key=lambda of: (
        of[0] != "get", not _is_plain(of[1]), len([*filter(None, of[1].split("/"))])))  # fmt: skip
    if ordered:
        yield "  # guessed: how many users"
    for method, path in ordered[:MOST_ROUTES]:
        names[name := re.sub(r"^(?=\d)", "page-", name_from(path, "home"))] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        verb = "" if method == "get" else f", method: {method.upper()}"
        line = f"{name}: {{path: {json_text(path)}{verb}, users: 10, pause_s: 0.1}}"
        if _is_plain(path) and not verb:
            yield f"  {line}  # {FROM_APPLICATION}"
        else:
            yield f"  # {line}  # {'it changes data' if _is_plain(path) else 'write a real path'}"
    if further := ordered[MOST_ROUTES:]:
        yield f"  # not here: {plural(len(further), 'further route')}"


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
        name = class_name(method, path, names)
        told = f"{{path: {json_text(path)}, method: {method}, per_second: {route.requests / lasts_s:.4g}}}"
        share = f"# from the log: {route.requests / log.requests:.1%} of the requests"
        unknown = "{" in path or not re.fullmatch(PATH_PATTERN, path)
        lines.append(f"  # {name}: {told}  {share}; write a real path" if unknown else f"  {name}: {told}  {share}")
    return lines


def _yaml(found: Discovery, repository: Repository, requests: list[str]) -> str:
    def line(name: str, otherwise: object = None) -> str:
        value, place = found.values.get(name, otherwise), found.places.get(name, "guessed: no file names its release")
        is_plain = place.startswith("guessed") or re.search(r"'s default$| says\b", place)
        return f"  {name}: {json_text(value)}  # {' '.join((place if is_plain else f'from {place}').split())}"

    def known(*names: str) -> list[str]:
        return [line(name) for name in names if name in found.values]

    def comments(*names: str) -> list[str]:
        return [f"  # {each.strip()}" for each in known(*names)]

    server = found.values.get("server", "gunicorn")
    given = [f"    {name if yaml.safe_load(name) == name else json_text(name)}: {json_text(value)}"
             for name, value in found.environment.items()]  # fmt: skip  # NO is no name in YAML, but a truth value
    return "\n".join([
        *HEAD,
        *(f"# {each}" for each in dict.fromkeys(map(_on_one_line, found.problems))),
        "application:",
        f"  folder: {json_text(str(repository.folder))}",
        *known("command"),
        *comments("callable"),
        *known("working_folder", "paths", "written"),
        *([f"  requirements: {found.values['requirements']}"] if "requirements" in found.values else []),
        *known("extras", "packages", "system_packages", "env_file"),
        *(["  environment:", *given] if given else []),
        *known("before"),
        "served:",
        line(server, PROGRAMS[server].release),
        *(comments(*OF_COMMAND) or [NOT_ASKED]),
        *known("replicas", "balance", "cpus", "memory_mib"),
        *(["beside:",
           f"  compose: {json_text(str((repository.folder / found.places['beside']).resolve()))}",
           f"  services: {json_text(found.values['beside'])}  # from {found.places['beside']}: depends_on"]
          if "beside" in found.values else []),
        "requests:",
        *requests,
        *([] if any(not line.startswith("  #") for line in requests) else [SOMETHING]),
        "",
    ])  # fmt: skip


def json_text(value: object) -> str:
    """Return a value as YAML takes it: texts and lists as JSON."""
    return json.dumps(value) if isinstance(value, (str, list, dict)) else str(value)


def _on_one_line(text: str) -> str:
    """Return a text in which what a terminal may obey is written as an escape."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in " ".join(text.split()))

"""What the command of a server says: the application, and how it is served. One reader for each server."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stampede.servers.replaced import COUNT_REQUESTS
from stampede.service.description import (
    CALLABLE_PATTERN,
    GRANIAN_BACKLOG,
    GUNICORN_CLASSES,
    MOST_THREADS,
)
from stampede.service.discovery.repository import Repository, Start
from stampede.service.discovery.settings import ANY, Setting, settings_of
from stampede.service.discovery.uwsgi import uwsgi_settings, variables_of_uwsgi

LEFT_OUT = {
    "--backlog", "--keep-alive", "--limit-concurrency", "--limit-max-requests", "--max-requests",
    "--max-requests-jitter", "--timeout", "--timeout-keep-alive", "--harakiri",
}  # fmt: skip
"""Options of commands that change how long requests wait, and that only a settings file can hand to the lab."""
_RESTARTS = {
    "--max-requests": "max_requests", "--limit-max-requests": "max_requests",
    "--max-requests-jitter": "max_requests_jitter", "--limit-max-requests-jitter": "max_requests_jitter",
}  # fmt: skip
_SILENCE = {"gunicorn": "--timeout", "uvicorn": "--timeout-worker-healthcheck"}
"""Options that the lab applies for some servers: those that replace workers with the keys of the description, and for
each server the one that is ``timeout_s``."""
_LEFT_OUT_OF_GRANIAN = (
    "--http", "--loop", "--runtime-mode", "--runtime-threads", "--task-impl", "--workers-lifetime", "--workers-max-rss",
)  # fmt: skip
_FLAGS = {
    "--reload", "--preload", "--preload-app", "--daemon", "-D", "--spew", "--check-config", "--print-config",
    "--capture-output", "--log-syslog", "--no-sendfile", "--reuse-port", "-R", "--enable-stdio-inheritance",
    "--initgroups", "--factory", "--proxy-headers", "--no-proxy-headers", "--access-log", "--no-access-log",
    "--use-colors", "--no-use-colors", "--server-header", "--no-server-header", "--date-header",
    "--no-date-header", "--respawn-failed-workers", "--no-respawn-failed-workers",
    "--master", "-M", "--enable-threads", "--lazy-apps", "--lazy", "--vacuum", "--die-on-term", "--need-app",
    "--strict", "--single-interpreter", "--disable-logging", "--thunder-lock", "--debug", "--with-threads",
    "--without-threads", "--no-reload", "--no-debugger", "--call", "--proxy-protocol", "--http-keepalive",
    "--do-handshake-on-connect", "--disable-redirect-access-to-syslog", "--no-default-wsgi-script-alias", "--pdb",
    "--no-ws", "--no-factory", "--log", "--no-log", "--metrics", "--no-metrics", "--http1-keep-alive",
    "--no-http1-keep-alive",
}  # fmt: skip
"""Options without a value."""
_SHORT = {
    "-w": "--workers", "-k": "--worker-class", "-c": "--config", "-b": "--bind", "-t": "--timeout", "-p": "--processes",
    "-A": "--app", "-n": "--name", "-u": "--user",
}  # fmt: skip
_OWN_SHORT = {
    "gunicorn": {"-e": "--env"}, "fastapi": {"-e": "--entrypoint"},
    "litestar": {"-W": "--workers", "--wc": "--workers", "--web-concurrency": "--workers"},
    "uwsgi": {"-w": "--module", "-p": "--processes", "-s": "--socket", "-H": "--home", "-x": "--xml", "-y": "--yaml",
              "-j": "--json", "-b": "--buffer-size", "-t": "--harakiri", "-c": "--cache", "-l": "--listen"},
}  # fmt: skip
"""Short options that mean something else for a server, and options with two names."""
_VALUE = re.compile(r"^[A-Za-z_]\w*(\.\w+)*$")


@dataclass
class Discovery:
    """What was found: values, and for each value where it comes from; a value without a place was guessed.

    ``problems`` are what was not understood, each with its place; ``remarks`` are worth a word on the terminal.
    """

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """What the start command gives to a settings file, and the description does not say."""
    unread: str = ""
    """Where the command has a part that could not be read, which may say what the lab takes for a default."""

    def default(self, name: str, value: object, whose: str) -> None:
        """Keep a server's default, which is a guess if a part of the command could not be read."""
        self.note(name, value, f"guessed: {self.unread}" if self.unread else f"{whose}'s default")

    def note(self, name: str, value: object, place: str) -> None:
        """Keep a value, unless a place that counts more has already said it."""
        if value is not None and name not in self.values:
            self.values[name], self.places[name] = value, place

    def guess(self, name: str, value: object, why: str) -> None:
        """Keep a value that nothing says, with the reason for it."""
        self.note(name, value, f"guessed: {why}")

    def note_count(self, name: str, said: str | None, place: str, what: str) -> None:
        """Keep a number; a text that is none, such as a variable that only the service's machine has, is a problem."""
        if said is None or name in self.values:
            return
        if said.isdecimal() and int(said):
            self.note(name, int(said), place)
        else:
            self.problems.append(f"{place}: {what} {said}: the value is not in the repository")
            self.guess(name, 2 if name == "workers" else 1, f"{place} says {said}")

    def note_callable(self, said: str | None, place: str, *, otherwise: str = "", factory: bool = False) -> None:
        """Keep the application, with the server's usual name if the command names only the module."""
        if said is None:
            return
        text = said if ":" in said else f"{said}:{otherwise}" if otherwise else said
        text += "()" if factory and not text.endswith(")") else ""
        if re.fullmatch(CALLABLE_PATTERN, text):
            self.note("callable", text, place)
        else:
            self.problems.append(f"{place}: {said} names no module and callable")


def options_of(words: Sequence[str], server: str = "") -> tuple[dict[str, str], list[str]]:
    """Return the options of a command with their values (a flag has an empty value), and its other words."""
    pairs, others = pairs_of(words, server)
    return dict(pairs), others


def pairs_of(words: Sequence[str], server: str = "") -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options of a command, each as often as it stands there, and its other words."""
    short = _SHORT | _OWN_SHORT.get(server, {})
    options: list[tuple[str, str]] = []
    others: list[str] = []
    rest = [*words]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        joined = short.get(word[:2]) if not word.startswith("--") else None
        is_bare = not rest or (re.match(r"-\D", rest[0]) and word not in ("-e", "--env"))
        if not word.startswith("-") or word == "-":
            others.append(word)
        elif equals and word.startswith("--"):
            options.append((short.get(name, name), value))
        elif joined and len(word) > 2:  # -w4
            options.append((joined, word[2:].removeprefix("=")))
        elif word in _FLAGS or is_bare:
            options.append((short.get(word, word), ""))
        else:
            options.append((short.get(word, word), rest.pop(0)))
    if not others and words and re.fullmatch(CALLABLE_PATTERN, words[-1]):  # behind an option without a value
        others = [words[-1]]
    return options, others


def read_start(found: Discovery, start: Start, repository: Repository) -> None:
    """Note what the command of a server says."""
    server, arguments = start.server or ("", [])
    found.folder = start.folder
    found.problems += start.problems
    found.unread = start.unread
    if "--reload" in arguments or (server == "fastapi" and "dev" in arguments):
        found.problems.append(f"{start.place}: the command is for development; make try serves without reloading")
    known = [*_readable(found, server, arguments, start.place)]
    _READERS[server](found, known, start, repository)
    if "callable" not in found.values and server not in ("runserver", "django-admin"):
        found.problems.append(f"{start.place}: the command names no application that the lab can read: {start.command}")
    for name, value in start.given.items():
        if re.fullmatch(r"[A-Za-z_]\w*", name):
            found.note(f"environment {name}", value, start.place)
    if start.env_files:
        files = [str(path) for path in start.env_files]
        found.note("env_file", files[0] if len(files) == 1 else files, start.compose)
    if start.replicas and start.replicas > 1:
        found.note("replicas", start.replicas, start.compose or start.place)
    if start.beside:
        found.note("beside", [*start.beside], start.compose)


def _readable(found: Discovery, server: str, arguments: Sequence[str], place: str) -> Iterator[str]:
    """Yield the arguments of a server without those that only a running shell knows, which are said."""
    unknown = {word for word in pairs_of(arguments, server)[1] if re.match(r"\$\{?\w|\$\(|`|\*\*", word)}
    for word in arguments:
        if word in unknown:
            found.problems.append(f"{place}: {word}: the value is not in the repository")
            found.unread = f"{place} says {word}"
        else:
            yield word


def _gunicorn(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    pairs, others = pairs_of(arguments, "gunicorn")
    options, further = dict(pairs), dict[str, str]()
    with suppress(ValueError):
        further, apps = options_of(shlex.split(start.environment.get("GUNICORN_CMD_ARGS", "")), "gunicorn")
        others += apps
    for name, _, value in (value.partition("=") for option, value in pairs if option == "--env"):
        found.note(f"environment {name}", value, start.place)
    found.note("server", "gunicorn", start.place)
    if chdir := options.get("--chdir", further.get("--chdir")):
        found.folder = _folder(repository, found.folder, chdir)
    for said, place in ((options, start.place), (further, f"{start.place}, GUNICORN_CMD_ARGS")):
        _note_gunicorn(found, said, place)
    config = (further | options).get("--config", "./gunicorn.conf.py").removeprefix("file:")
    if config.startswith("python:"):
        config = f"{config.removeprefix('python:').replace('.', '/')}.py"
    if path := _file(repository, start.folder, config) or _file(repository, found.folder, config):
        note_settings(found, path, start.environment, repository)
    elif "--config" in further | options:
        found.problems.append(f"{start.place}: the settings file {config} is not in the repository")
    _note_left_out(found, further | options, start.place)
    found.note_callable(others[0] if others else None, start.place, otherwise="application")
    found.note_count("workers", start.environment.get("WEB_CONCURRENCY"), f"{start.place}, WEB_CONCURRENCY", "workers")
    found.default("workers", 1, "gunicorn")
    found.default("threads", 1, "gunicorn")
    if found.values["threads"] > 1:
        found.default("worker_class", "gthread", "with threads, gunicorn")
    found.default("worker_class", "sync", "gunicorn")


def _note_gunicorn(found: Discovery, options: Mapping[str, str], place: str) -> None:
    for name in ("workers", "threads"):
        found.note_count(name, options.get(f"--{name}"), place, f"--{name}")
    if (worker_class := options.get("--worker-class")) is not None:
        _note_class(found, worker_class, place)
    limit = options.get("--worker-connections")
    if limit is not None and limit.isdecimal():
        found.note("worker_connections", int(limit), place)


def _note_class(found: Discovery, worker_class: str, place: str) -> None:
    if worker_class in GUNICORN_CLASSES:
        found.note("worker_class", worker_class, place)
    elif "worker_class" not in found.values:
        found.problems.append(f"{place}: the lab does not serve gunicorn's worker class {worker_class}")
        nearest = "uvicorn.workers.UvicornWorker" if "uvicorn" in worker_class.lower() else "gthread"
        found.guess("worker_class", nearest, f"{place} says {worker_class}, which the lab does not serve")


def note_settings(found: Discovery, path: Path, environment: Mapping[str, str], repository: Repository) -> None:
    """Note gunicorn's settings file, and its settings: as gunicorn has run it, or else computed without running it."""
    place = os.path.relpath(path, repository.folder)
    found.note("settings of gunicorn", path, place)
    found.variables = {name: environment[name] for name in ("PORT", "WEB_CONCURRENCY") if name in environment}
    text, modules = repository.text(path), repository.modules(path)
    known: Mapping[str, Setting | None] = settings_of(text, environment, repository.cores, modules)
    if repository.settings:
        known = _run_settings(found, known, place, repository)
    if (chdir := known.get("chdir")) and isinstance(chdir.value, str):
        found.folder = _folder(repository, found.folder, chdir.value)
    for name in ("workers", "threads", "worker_connections"):
        setting = known.get(name)
        if (name in known or (ANY in known and name != "worker_connections")) and (
            setting is None or not isinstance(setting.value, int | float | str)
        ):
            found.guess(name, {"workers": 2, "threads": 1}.get(name, 1000), f"the lab cannot compute it from {place}")
        elif setting:
            with suppress(ValueError):
                found.note(name, int(setting.value), _place_of(setting, place, repository.cores))
    for name in ("max_requests", "max_requests_jitter"):
        if (setting := known.get(name)) and str(setting.value).isdecimal():
            found.note(name, int(str(setting.value)), _place_of(setting, place, repository.cores))
    worker_class = known.get("worker_class")
    if worker_class and isinstance(worker_class.value, str):
        _note_class(found, worker_class.value, _place_of(worker_class, place, repository.cores))
    elif not worker_class and {"worker_class", ANY} & known.keys():
        found.unread = f"the lab cannot compute it from {place}"
    if (app := known.get("wsgi_app")) and isinstance(app.value, str):
        found.note_callable(app.value, place, otherwise="application")


def _run_settings(
    found: Discovery, computed: Mapping[str, Setting | None], place: str, repository: Repository
) -> dict[str, Setting]:
    """Return the settings of a file that gunicorn has run, and remark where they differ from what was computed."""
    run = {name: Setting(value, run=True) for name, value in repository.settings.items()}
    for name, setting in list(run.items()):
        before = computed.get(name)
        if before and str(before.value) == str(setting.value):
            run[name] = setting if before.of_cores else before
        elif name not in found.values:
            otherwise = f"not {before.value}, as the lab had computed" if before else "which the lab could not compute"
            cores = f"run with {repository.cores} cores"
            found.remarks.append(f"{place}, {cores}, says {name} = {setting.value}, {otherwise}.")
    return run


def _place_of(setting: Setting, place: str, cores: int) -> str:
    how = "run" if setting.run else "computed" if setting.of_cores else ""
    return f"{place}, {how} with {cores} cores" if how else place


def _uvicorn(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    options, others = options_of(arguments)
    for name, value in start.environment.items():  # the command counts more
        if name.startswith("UVICORN_") and name not in ("UVICORN_WORKERS", "UVICORN_APP"):
            options.setdefault("--" + name.removeprefix("UVICORN_").lower().replace("_", "-"), value)
    others = others or [value for name, value in start.environment.items() if name == "UVICORN_APP"]
    found.note("server", "uvicorn", start.place)
    if folder := options.get("--app-dir"):
        found.folder = _folder(repository, found.folder, folder)
    for said in (
        options.get("--workers"),
        start.environment.get("UVICORN_WORKERS"),
        start.environment.get("WEB_CONCURRENCY"),
    ):
        found.note_count("workers", said, start.place, "--workers")
    found.default("workers", 1, "uvicorn")
    _note_left_out(found, options, start.place)
    found.note_callable(
        others[0] if others else None, start.place, otherwise="app", factory=_is_on(options, "--factory")
    )


def _is_on(options: Mapping[str, str], name: str) -> bool:
    """Return whether a flag is set, by the command or by a variable."""
    return options.get(name, "false").lower() in ("", "1", "true", "yes", "on")


def _fastapi(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    options, others = options_of(arguments, "fastapi")
    paths = [word for word in others if word not in ("run", "dev")]
    entrypoint = options.get("--entrypoint") or _fastapi_entrypoint(repository)
    found.note("server", "uvicorn", start.place)
    found.note_count("workers", options.get("--workers"), start.place, "--workers")
    found.default("workers", 1, "fastapi")
    usual = ("main.py", "app.py", "api.py", "app/main.py", "app/app.py", "app/api.py")
    path = next((there for name in (paths or usual) if (there := start.folder / name).is_file()), None)
    if entrypoint and not paths:
        found.note_callable(entrypoint, start.place)
    elif path:
        folder = path.parent
        while (folder / "__init__.py").is_file() and folder != repository.folder:
            folder = folder.parent
        found.folder = folder
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        name = options.get("--app") or _variable(repository.text(path), "FastAPI") or "app"
        found.note_callable(f"{module}:{name}", start.place)
    elif paths:
        found.problems.append(f"{start.place}: there is no file {paths[0]} for fastapi")


def _fastapi_entrypoint(repository: Repository) -> str:
    with suppress(tomllib.TOMLDecodeError):
        said = tomllib.loads(repository.text("pyproject.toml"))
        return str(said.get("tool", {}).get("fastapi", {}).get("entrypoint", ""))
    return ""


def _variable(text: str, kind: str) -> str:
    made = re.findall(rf"^(\w+)(?:\s*:\s*[\w.]+)?\s*=\s*(?:\w+\.)*{kind}\(", text, re.MULTILINE)
    return next((name for name in ("app", "api") if name in made), made[0] if made else "")


def _uwsgi(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    pairs, _ = pairs_of(arguments, "uwsgi")
    options = dict(pairs)
    variables = variables_of_uwsgi(start.environment)
    said = {name.lstrip("-"): (value, start.place) for name, value in options.items()}
    written = [*options.items(), *((f"--{name}", value) for name, value in variables.items())]
    files = [value for name, value in written if name in ("--ini", "--yaml", "--yml", "--json", "--xml")]
    for name in (*files, *(word for word in arguments if _SETTINGS_OF_UWSGI.search(word) and word not in files)):
        for key, value, place in _settings_of_uwsgi(found, name, start, repository):
            said.setdefault(key, (value, place))
    said |= {name: (value, start.place) for name, value in variables.items() if name not in said}
    if "emperor" in said:
        found.problems.append(f"{said['emperor'][1]}: emperor {said['emperor'][0]}: the lab does not read its vassals")
        found.unread = f"{said['emperor'][1]} says emperor"
    for name, _, value in (value.partition("=") for option, value in pairs if option == "--env"):
        found.note(f"environment {name}", value, start.place)
    note_uwsgi(found, said, start.place, repository)
    _note_left_out(found, options, start.place, ("--listen", "--http-timeout"))


_SETTINGS_OF_UWSGI = re.compile(r"^[^-].*\.(ini|yaml|yml|json|xml)(:\w+)?$")


def _settings_of_uwsgi(
    found: Discovery, name: str, start: Start, repository: Repository
) -> Iterator[tuple[str, str, str]]:
    """Yield the options of a settings file of uWSGI, the last of equal ones first, each with its place."""
    file, _, section = name.partition(":")
    path = _file(repository, start.folder, file)
    if not path or path.suffix == ".xml":
        why = "cannot be read" if path else "is not in the repository"
        found.problems.append(f"{start.place}: the settings file {name} {why}")
        found.unread = f"{start.place} says {name}"
        return
    place = os.path.relpath(path, repository.folder)
    found.note("settings of uwsgi", path, place)

    def read(further: str) -> str:
        there = _file(repository, path.parent, further)
        return repository.text(there) if there else ""

    settings = uwsgi_settings(
        repository.text(path), path.suffix, repository.cores, start.environment, section, read)  # fmt: skip
    for key, value in reversed([*settings]):
        if key == "unread":
            found.problems.append(f"{place}: it includes {value}, which is not in the repository")
            found.unread = f"{place} includes {value}"
        yield key, value, place


def note_uwsgi(found: Discovery, said: Mapping[str, tuple[str, str]], place: str, repository: Repository) -> None:
    """Note uWSGI's options, each with its value and its place."""
    found.note("server", "uwsgi", place)
    if "chdir" in said:
        found.folder = _folder(repository, found.folder, said["chdir"][0])
    for name, keys in (("workers", ("processes", "workers", "p")), ("threads", ("threads",))):
        for key in keys:
            if key in said:
                found.note_count(name, said[key][0], said[key][1], key)
    most, place_of_most = said.get("max-requests", ("", place))
    if most.isdecimal():
        found.note("max_requests", int(most), place_of_most)
    found.default("workers", 1, "uWSGI")
    found.default("threads", 1, "uWSGI")
    otherwise = said.get("callable", ("application", ""))[0]
    for key in ("module", "wsgi", "w"):
        if key in said:
            found.note_callable(said[key][0], said[key][1], otherwise=otherwise)
    for key in ("wsgi-file", "file"):
        if key in said:
            path = _file(repository, found.folder, said[key][0])
            inside = path and path.is_relative_to(found.folder.resolve())
            if path and not inside:
                found.folder = path.parent
            module = os.path.relpath(path, found.folder.resolve()) if path else said[key][0].lstrip("/")
            found.note_callable(f"{module.removesuffix('.py').replace('/', '.')}:{otherwise}", said[key][1])
    if "mount" in said:
        found.note_callable(
            said["mount"][0].partition("=")[2].removesuffix(".py"), said["mount"][1], otherwise=otherwise
        )


def _litestar(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    options, _ = options_of(arguments, "litestar")
    found.note("server", "uvicorn", start.place)
    if folder := options.get("--app-dir"):
        found.folder = _folder(repository, found.folder, folder)
    for said in (options.get("--workers"), start.environment.get("WEB_CONCURRENCY")):
        found.note_count("workers", said, start.place, "--workers")
    found.default("workers", 1, "litestar")
    app = options.get("--app") or start.environment.get("LITESTAR_APP")
    found.note_callable(
        app, start.place, otherwise="app", factory=bool(app and app.endswith(("create_app", "make_app")))
    )


def _waitress(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:  # noqa: ARG001
    options, others = options_of(arguments)
    stands_in = "guessed: gunicorn stands in for waitress"
    found.problems.append(
        f"{start.place}: make try cannot serve waitress yet; gunicorn with as many workers and threads stands in for it"
    )
    found.note("server", "gunicorn", stands_in)
    found.default("workers", 1, "waitress")
    found.note("worker_class", "gthread", stands_in)
    found.note_count("threads", options.get("--threads"), start.place, "--threads")
    found.default("threads", 4, "waitress")
    found.note_callable(others[0] if others else None, start.place, otherwise="app", factory="--call" in options)


def _granian(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    options, others = options_of(arguments)
    variables = {name: value for name, value in start.environment.items() if name.startswith("GRANIAN_")}
    for name, value in variables.items():  # the command counts more
        options.setdefault("--" + name.removeprefix("GRANIAN_").lower().replace("_", "-"), value)
    found.note("server", "granian", start.place)
    if folder := options.get("--working-dir"):
        found.folder = _folder(repository, found.folder, folder)
    interface = options.get("--interface", "rsgi").removesuffix("nl")  # asginl is asgi without lifespan
    if interface in ("wsgi", "asgi"):
        found.note("interface", interface, start.place)
    else:
        found.problems.append(f"{start.place}: the lab does not serve granian's interface {interface}")
        found.guess("interface", "asgi", f"{start.place} says {interface}, which the lab does not serve")
    found.note_count("workers", options.get("--workers"), start.place, "--workers")
    found.default("workers", 1, "granian")
    found.note_count("backpressure", options.get("--backpressure"), start.place, "--backpressure")
    if found.values["interface"] == "wsgi":
        found.note_count("threads", options.get("--blocking-threads"), start.place, "--blocking-threads")
        most = found.values.get("backpressure", GRANIAN_BACKLOG // found.values["workers"])
        found.default("threads", min(MOST_THREADS, max(1, most // 2)), "granian")
    _note_left_out(found, options, start.place, _LEFT_OUT_OF_GRANIAN)
    found.note_callable(others[0] if others else None, start.place, otherwise="app",
                        factory=_is_on(options, "--factory"))  # fmt: skip


def _hypercorn(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    options, others = options_of(arguments)
    app = others[0] if others else None
    is_wsgi = bool(app and app.startswith("wsgi:"))
    if is_wsgi:
        found.problems.append(
            f"{start.place}: the lab serves ASGI on hypercorn, but not WSGI; gunicorn with as many workers stands in"
        )
        found.note("server", "gunicorn", "guessed: gunicorn stands in for hypercorn")
        found.note("worker_class", "gthread", "guessed: gunicorn stands in for hypercorn")
    found.note("server", "hypercorn", start.place)
    found.note_count("workers", options.get("--workers"), start.place, "--workers")
    if config := options.get("--config", ""):
        _note_hypercorn(found, config, start, repository)
    found.default("workers", 1, "hypercorn")
    _note_left_out(found, options, start.place, ("--config", "--worker-class"))
    app = re.sub(r"^(?:wsgi|asgi):", "", app) if app else None
    found.note_callable(app, start.place, otherwise="app")


def _note_hypercorn(found: Discovery, config: str, start: Start, repository: Repository) -> None:
    """Note the workers of hypercorn's settings, which are TOML or Python."""
    if config.startswith("python:"):
        config = f"{config.removeprefix('python:').replace('.', '/')}.py"
    path = _file(repository, start.folder, config.removeprefix("file:"))
    if path is None:
        found.problems.append(f"{start.place}: the settings file {config} is not in the repository")
        return
    workers: object = None
    if path.suffix == ".py":
        setting = settings_of(repository.text(path), start.environment, repository.cores,
                              repository.modules(path)).get("workers")  # fmt: skip
        workers = setting.value if setting else None
    else:
        with suppress(tomllib.TOMLDecodeError):
            workers = tomllib.loads(repository.text(path)).get("workers")
    found.note_count("workers", str(workers) if workers else None, os.path.relpath(path, repository.folder), "workers")


def _daphne(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:  # noqa: ARG001
    options, others = options_of(arguments)
    found.note("server", "daphne", start.place)
    found.note("workers", 1, "daphne's only process")
    _note_left_out(found, options, start.place)
    found.note_callable(others[0] if others else None, start.place)


def _note_left_out(found: Discovery, options: Mapping[str, str], place: str, further: Sequence[str] = ()) -> None:
    """Note the options that change how long requests wait: those that the lab applies, and those that it does not."""
    server = found.values["server"]
    keys = (_RESTARTS if server in COUNT_REQUESTS else {}) | {_SILENCE.get(server, ""): "timeout_s"}
    applied = {name for name in keys if options.get(name, "").isdecimal() and (name in _RESTARTS or int(options[name]))}
    for name in applied:
        found.note(keys[name], int(options[name]), place)
    names = (LEFT_OUT | {*further}) - applied
    found.note("left_out", [f"{name} {value}" for name, value in options.items() if name in names] or None, place)


def _flask(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:
    options, _ = options_of(arguments)
    found.problems.append(f"{start.place}: flask run is for development, so its speed says nothing; name your server")
    app = options.get("--app") or start.environment.get("FLASK_APP") or ""
    app = re.sub(r"\.py(?=:|$)", "", app)
    path = start.folder / f"{app}.py"
    if app and ":" not in app:
        text = repository.text(path) or repository.text(start.folder / app / "__init__.py")
        factory = re.search(r"^def (create_app|make_app)\(", text, re.MULTILINE)
        app = f"{app}:{_variable(text, 'Flask') or (f'{factory[1]}()' if factory else 'app')}"
    found.note_callable(app or None, start.place)


def _runserver(found: Discovery, arguments: Sequence[str], start: Start, repository: Repository) -> None:  # noqa: ARG001
    found.problems.append(f"{start.place}: runserver is for development, so its speed says nothing; name your server")


_READERS: dict[str, Callable[[Discovery, Sequence[str], Start, Repository], None]] = {
    "gunicorn": _gunicorn, "uvicorn": _uvicorn, "fastapi": _fastapi, "uwsgi": _uwsgi, "flask": _flask,
    "litestar": _litestar, "waitress-serve": _waitress,
    "granian": _granian, "hypercorn": _hypercorn, "daphne": _daphne,
    "runserver": _runserver, "django-admin": _runserver,
}  # fmt: skip


def _folder(repository: Repository, at: Path, said: str) -> Path:
    """Return the folder that ``--chdir`` or ``--app-dir`` leads to, in the repository."""
    there = (at / said).resolve()
    if not said.startswith("/") and there.is_dir():
        return there
    parts = [part for part in said.split("/") if part]
    for start in range(len(parts)):
        if (inside := repository.folder.joinpath(*parts[start:])).is_dir():
            return inside
    return at


def _file(repository: Repository, at: Path, said: str) -> Path | None:
    """Return the file of the repository that an option names by its path in the image; None: there is none."""
    name = said.rpartition("/")[2]
    candidates: Iterable[Path] = (at / said, repository.folder / said.lstrip("/"), repository.folder / name)
    if said.startswith("/"):
        parts = [part for part in said.split("/") if part]
        candidates = [repository.folder.joinpath(*parts[start:]) for start in range(len(parts))]
    elsewhere = [
        path for path in repository.files(name) if str(path).endswith(f"/{said.removeprefix('./').lstrip('/')}")
    ]
    found = next((path for path in (*candidates, *elsewhere) if path.exists() and not path.is_dir()), None)
    return found.resolve() if found and found.is_file() else found


def importable_from(repository: Repository, folder: Path, module: str) -> Path | None:
    """Return the folder from which a module can be imported; None: the repository has no such module."""
    parts = module.split(".")

    def has(there: Path) -> bool:
        path = there.joinpath(*parts)
        return (
            path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() or (len(parts) > 1 and path.is_dir())
        )

    named = [path.parent for path in repository.folder.rglob(f"{parts[0]}*") if path.stem == parts[0]]
    return next(
        (there for there in (folder, repository.folder, repository.folder / "src", *sorted(named)) if has(there)), None
    )


def json_text(value: object) -> str:
    """Return a value as YAML takes it: texts and lists as JSON."""
    return json.dumps(value) if isinstance(value, (str, list)) else str(value)


def lines_of(problems: Iterable[str]) -> Iterator[str]:
    """Yield each problem once, as a comment; what a terminal may obey is written as an escape."""
    for problem in dict.fromkeys(problems):
        line = " ".join(problem.split())
        yield "# " + "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)

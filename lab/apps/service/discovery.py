"""Write the description of a service from what the folder of its application says."""

import argparse
import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.records.classes import PATH_PATTERN
from analysis.records.model import name_from
from lab.apps.service.description import CALLABLE_PATTERN
from lab.apps.service.image import LEFT_OUT
from lab.logs.access_log import MOST_CLASSES, AccessLog

SETTINGS = ("workers", "threads", "worker_class", "worker_connections")
OPTIONS_LEFT_OUT = ("--backlog", "--keep-alive", "--limit-concurrency", "--limit-max-requests", "--max-requests",
                    "--max-requests-jitter", "--timeout", "--timeout-keep-alive")  # fmt: skip
"""Options of commands that change how long requests wait, and that only a settings file can hand to the lab."""
MOST_FILES = 500
MOST_ROUTES = 10
SOMETHING = '  page: {path: "/", users: 10, pause_s: 0.1}  # guessed: what people ask for'
_ROUTE = re.compile(r"""\.(route|get|post|put|patch|delete)\(\s*["'](/[^"']*)["']""")
_PREFIX = re.compile(r"""(?:APIRouter|Blueprint)\([^)]*prefix\s*=\s*["'](/[^"']*)["']""")
_WSGI = "Flask|Bottle|Falcon|get_wsgi_application"
_ASGI = "FastAPI|Starlette|Litestar|Quart|get_asgi_application"
_APPLICATION = re.compile(rf"^(\w+)(?:\s*:\s*[\w.]+)?\s*=\s*(?:\w+\.)*({_WSGI}|{_ASGI})\(", re.MULTILINE)
_FACTORY = re.compile(r"^def (create_app|make_app)\(\s*\)", re.MULTILINE)
_RELEASES = {
    name: re.compile(rf"^{name}\s*(?:\[[^\]]*\])?\s*==\s*([0-9.]+)", re.MULTILINE | re.IGNORECASE)
    for name in ("gunicorn", "uvicorn", "uwsgi")
}
OTHERWISE = {"gunicorn": "27.0.1", "uvicorn": "0.38.0", "uwsgi": "2.0.31"}
"""The release of each server that is taken if no file names one."""


@dataclass
class Discovery:
    """What was found: values, and for each value where it comes from; a value without a place was guessed."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, value: object, place: str) -> None:
        """Keep a value, unless a place that counts more has already said it."""
        if value is not None and name not in self.values:
            self.values[name], self.places[name] = value, place


def describe_folder(folder: Path, log: AccessLog | None = None) -> str:
    """Return the description of the service in a folder as YAML. A comment says where each line comes from.

    With the log of the service, the requests are those of the log; else they are the routes in the source.
    """
    found = Discovery()
    for place, server, command in _commands(folder):
        found.note("server", server, place)
        _from_command(found, command, place, folder)
    _from_settings(found, folder / "gunicorn.conf.py", "gunicorn.conf.py")
    _from_ini(found, folder / "uwsgi.ini", "uwsgi.ini")
    _from_nginx(found, folder)
    requirements = next(
        (name for name in ("requirements.txt", "requirements/base.txt") if (folder / name).is_file()), ""
    )
    for server, pattern in _RELEASES.items():
        if requirements and (pinned := pattern.search(_text(folder / requirements))):
            found.note(server, pinned[1], requirements)
    routes: list[tuple[str, str]] = []
    for path in _sources(folder):
        text = _text(path)
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        if named := _APPLICATION.search(text) or _FACTORY.search(text):
            what = named[1] + ("()" if named.re is _FACTORY else "")
            place = f"guessed from {path.relative_to(folder)}"
            found.note("callable", f"{module}:{what}", place)
            if named.re is _APPLICATION and named[2] in _ASGI.split("|"):
                found.note("server", "uvicorn", place)
        prefix = found_prefix[1].rstrip("/") if (found_prefix := _PREFIX.search(text)) else ""
        routes += [("get" if method == "route" else method, prefix + path) for method, path in _ROUTE.findall(text)]
    found.note("server", "gunicorn", "")
    if found.values.get("worker_class") == "sync" and found.values.get("threads", 1) > 1:
        found.values["worker_class"] = "gthread"  # gunicorn does the same
    if found.values["server"] == "gunicorn" and not {"worker_class", "threads"} & found.values.keys():
        found.values.setdefault("worker_class", "sync")
        found.places.setdefault("worker_class", "guessed: gunicorn's default")
    requests = classes_of_log(log) if log else list(_guessed(dict.fromkeys(routes)))
    return _yaml(folder, found, requirements, requests)


def _guessed(routes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a class for each route in the source; routes with ids, and those that change data, are comments."""
    names: Counter[str] = Counter()
    for place, (method, path) in enumerate(routes):
        if place == MOST_ROUTES:
            return
        names[name := name_from(path, "home")] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        plain = re.fullmatch(PATH_PATTERN, path) and not set("<>{}") & set(path)
        verb = "" if method == "get" else f", method: {method.upper()}"
        line = f"{name}: {{path: {json.dumps(path)}{verb}, users: 10, pause_s: 0.1}}"
        if plain and not verb:
            yield f"  {line}  # guessed: the path, and how many users"
        else:
            yield f"  # {line}  # {'it changes data' if plain else 'write a real path'}"


def classes_of_log(log: AccessLog) -> list[str]:
    """Return the most frequent routes of a log as classes. A route with ids is a comment, because no id is known."""
    lasts_s = max(log.last - log.first, 1.0)
    names: Counter[str] = Counter()
    lines = []
    most_frequent = sorted(log.routes.items(), key=lambda item: (-item[1].requests, item[0]))
    for (method, path), route in most_frequent[:MOST_CLASSES]:
        names[name := name_from(f"{method} {path}", "home")] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        told = f"{{path: {json.dumps(path)}, method: {method}, per_second: {route.requests / lasts_s:.4g}}}"
        share = f"# from the log: {route.requests / log.requests:.1%} of the requests"
        unknown = "{" in path or not re.fullmatch(PATH_PATTERN, path)
        lines.append(f"  # {name}: {told}  {share}; write a real path" if unknown else f"  {name}: {told}  {share}")
    return lines


def _yaml(folder: Path, found: Discovery, requirements: str, requests: list[str]) -> str:
    def line(name: str, otherwise: object, key: str = "") -> str:
        value = found.values.get(name, otherwise)
        place = found.places.get(name, "guessed")
        text = json.dumps(value) if isinstance(value, (str, list)) else str(value)
        return f"  {key or name}: {text}  # {place if place.startswith('guessed') else f'from {place}'}"

    server = found.values["server"]
    worker = found.values.get("worker_class", "gthread") if server == "gunicorn" else server
    return "\n".join([
        "# A service, as the lab tries it: make try SERVICE=<this file>. docs/your-service.md explains each line.",
        "application:",
        f"  folder: {json.dumps(str(folder))}",
        line("callable", "app:app"),
        *([f"  requirements: {requirements}"] if requirements else []),
        "served:",
        line(server, OTHERWISE[server]),
        *([line("worker_class", "gthread")] if server == "gunicorn" else []),
        line("workers", 1),
        *([line("threads", 1)] if worker in ("gthread", "sync", "uwsgi") else []),
        *([line("worker_connections", 1000)] if server == "gunicorn" and "worker_connections" in found.values else []),
        *(line(name, 1) for name in ("replicas", "balance") if name in found.values),
        *([line(settings, "", "settings")] if (settings := f"settings of {server}") in found.values else []),
        *([line("left_out", [])] if "left_out" in found.values else []),
        "requests:",
        *requests,
        *([] if any(not line.startswith("  #") for line in requests) else [SOMETHING]),
        "",
    ])  # fmt: skip


def _commands(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the commands that start a server: the name of the file that states it, the server, and its arguments."""
    for name, pattern in (
        ("Procfile", r"^web:\s*(.+)$"),
        ("Dockerfile", r"^(?:CMD|ENTRYPOINT)\s+(.+)$"),
        *((name, r"^\s+command:\s*(.+)$") for name in ("compose.yml", "compose.yaml", "docker-compose.yml")),
    ):
        text = _text(folder / name).replace("\\\n", " ")
        for stated in re.findall(pattern, text, re.MULTILINE):
            words = _words(stated)
            programs = [word.rpartition("/")[2] for word in words]
            starts = [place for place, program in enumerate(programs) if program in ("gunicorn", "uvicorn")]
            if starts:
                yield name, programs[starts[0]], words[starts[0] + 1 :]


def _words(stated: str) -> list[str]:
    with suppress(ValueError):
        listed = json.loads(stated)
        if isinstance(listed, list):
            return [str(word) for word in listed]
    with suppress(ValueError):
        return shlex.split(stated)
    return []


def _from_command(found: Discovery, words: list[str], place: str, folder: Path) -> None:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("-w", "--workers", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("-k", "--worker-class")
    parser.add_argument("--worker-connections", type=int)
    parser.add_argument("-c", "--config")
    for option in OPTIONS_LEFT_OUT:
        parser.add_argument(option, dest=option)
    with suppress(argparse.ArgumentError, ValueError):
        known, rest = parser.parse_known_args(words)
        for name in SETTINGS:
            found.note(name, getattr(known, name), place)
        stated = [f"{option} {value}" for option in OPTIONS_LEFT_OUT if (value := getattr(known, option)) is not None]
        found.note("left_out", stated or None, place)
        if known.config:
            config = known.config.removeprefix("file:")
            _from_settings(found, folder / config, config)
        called = next((word for word in rest if re.fullmatch(CALLABLE_PATTERN, word)), None)
        is_factory = called is not None and "--factory" in rest and not called.endswith("()")
        found.note("callable", f"{called}()" if is_factory else called, place)


def _from_settings(found: Discovery, path: Path, place: str) -> None:
    """Note gunicorn's own settings file, and its settings that are plain values. The file is not executed."""
    if path.is_file():
        found.note("settings of gunicorn", place, place)
        found.note("server", "gunicorn", place)
    with suppress(SyntaxError):
        for node in ast.parse(_text(path)).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = {"wsgi_app": "callable"}.get(node.targets[0].id, node.targets[0].id)
                if name not in (*SETTINGS, "callable"):
                    continue
                with suppress(ValueError):
                    value = _value(node.value)
                    is_count = name in ("workers", "threads", "worker_connections")
                    found.note(name, int(str(value)) if is_count else str(value), place)
                found.places.setdefault(name, f"guessed, because {place} computes it")


def _value(node: ast.expr) -> object:
    """Return a plain value, or what is taken if a variable of the environment is missing. Raise ValueError."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and ast.unparse(node.func) in ("int", "str"):
        return {"int": int, "str": str}[ast.unparse(node.func)](str(_value(node.args[0])))
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _READS_ENVIRONMENT:
        if len(node.args) > 1:
            return _value(node.args[1])
        raise ValueError
    return ast.literal_eval(node)


_READS_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")


def _from_ini(found: Discovery, path: Path, place: str) -> None:
    """Note the settings of uWSGI that this lab knows, too."""
    text = _text(path)
    if text:
        found.note("settings of uwsgi", place, place)
        found.note("server", "uwsgi", place)
    for name, pattern in (("workers", r"processes|workers"), ("threads", "threads"), ("callable", "module|wsgi")):
        if stated := re.search(rf"^\s*(?:{pattern})\s*=\s*([\w.:]+)\s*$", text, re.MULTILINE):
            value = stated[1]
            if name == "callable":
                found.note(name, value if ":" in value else f"{value}:application", place)
            elif value.isdecimal():
                found.note(name, int(value), place)


def _from_nginx(found: Discovery, folder: Path) -> None:
    """Note how many servers nginx passes requests to, and how it chooses among them, if there are several."""
    for place in ("nginx.conf", "nginx/nginx.conf", "nginx/default.conf"):
        for upstream in re.findall(r"^\s*upstream\s+\S+\s*\{([^}]*)\}", _text(folder / place), re.MULTILINE):
            servers = re.findall(r"^\s*server\s+[^;]+;", upstream, re.MULTILINE)
            if len(servers) > 1:
                found.note("replicas", len(servers), place)
                found.note("balance", "least_conn" if "least_conn" in upstream else "round_robin", place)


def _sources(folder: Path) -> list[Path]:
    """Return the Python files of the application, those at the top first, and not more than MOST_FILES."""
    skipped = {*LEFT_OUT, "tests", "test", "migrations"}
    files = [path for path in folder.rglob("*.py") if not skipped & set(path.relative_to(folder).parts)]
    return sorted(files, key=lambda path: (len(path.parts), path))[:MOST_FILES]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""

"""Follow a start command to the server that it starts, with the real shell, Python and servers, and start nothing.

``python start.py lay-out START [ROOT]`` links what the image of a Dockerfile has at its places to the application's
folder. ``python start.py follow START`` runs the command of START with a folder of stand-ins first on PATH. A stand-in
of a server runs the real server, which reads its options, its variables and its settings file by itself, up to the
moment at which it would listen: then it writes down what it would serve, and ends. Commands that prepare a database
write themselves down and succeed. Standard output gets one JSON object: ``records``, ``said`` (the last line that was
written), ``ended`` (the exit code; null: it did not end by itself) and ``cores`` (how many the start has counted; null:
it has not).

START is a file with JSON: ``words``, ``command`` (without an entrypoint; it is tried if ``words`` reach no server),
``folder``, ``environment``, ``copies`` (pairs of a path in the application's folder and a path of the image),
``written`` (texts by their paths), ``scripts`` (of the project: a text for a shell, or ``[module, function]``),
``unknown`` (variables that nothing gives a value; if the command reaches no server without them, each is 1).
"""

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from configparser import RawConfigParser
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

WITHIN_S = 30
APPLICATION = Path(os.environ.get("LAB_FOLDER", "/opt/application"))
SERVERS = {
    "gunicorn": "gunicorn.app.wsgiapp", "uvicorn": "uvicorn", "granian": "granian", "hypercorn": "hypercorn",
    "daphne": "daphne", "waitress-serve": "waitress", "fastapi": "fastapi", "litestar": "litestar", "flask": "flask",
    "django-admin": "django", "uwsgi": "",
}  # fmt: skip
"""The module of each server's command; uWSGI is no module."""
SERVES = {"fastapi": ("run", "dev"), "litestar": ("run",), "flask": ("run",), "django-admin": ("runserver",)}
"""Commands that start a server only with one of these words; with others, they prepare the application."""
PREPARES = ("alembic", "aerich", "yoyo", "piccolo", "dbmate", "atlas")
MANAGE = "manage.py"
HANDS_ON = (
    "tini", "dumb-init", "gosu", "su-exec", "setpriv", "sudo", "nice", "ionice", "timeout", "stdbuf", "catatonit",
    "poetry", "uv", "uvx", "pipenv", "pdm", "hatch", "rye", "pixi", "poe", "task", "ddtrace-run", "newrelic-admin",
    "opentelemetry-instrument", "sentry-run", "honeycomb", "wait-for-it", "wait-for-it.sh", "wait-for", "wait4ports",
    "dockerize", "doppler", "chamber", "envconsul", "infisical", "aws-vault", "sops", "op", "coverage", "scalene",
)  # fmt: skip
"""Programs that start another command, which stands among their words."""
SUCCEED = (
    "sleep", "pg_isready", "nc", "ncat", "mysqladmin", "redis-cli", "mc", "pip", "pip3", "apt-get", "apt", "apk",
    "chown", "chmod", "usermod", "groupmod", "useradd", "groupadd", "service", "nginx", "celery", "cron", "crond", "rq",
    "redis-server", "rsyslogd", "crontab", "supervisorctl", "systemctl", "npm", "yarn", "node", "pybabel",
)  # fmt: skip
"""Programs that do nothing here: they wait for others, change the image, or are other processes of it."""
COUNTS_ANYWAY = ("concurrent", "granian", "asyncio", "anyio", "uvloop", "random")
"""Packages that count cores for purposes of their own."""
TOLERANT = ("mkdir", "touch", "cp", "mv", "ln", "rm")
"""Programs that are run, and whose failure is no failure: the image may be read only."""
MOST_BYTES = 100_000
"""The size of a file that may be a script."""
TOLD = "STAMPEDE_TOLD"


# What is laid out when the image is built.


def lay_out(start: dict[str, Any], root: Path) -> None:
    """Make the paths of an image, as links into the application's folder, or as the texts that a Dockerfile has."""
    for source, target in start["copies"]:
        ours = APPLICATION / source.strip("/")
        matches = sorted(APPLICATION.glob(source.strip("/"))) if re.search(r"[*?[]", source) else [ours]
        for each in (path for path in matches if path.exists()):
            into = target.endswith("/") or len(matches) > 1
            link(each, root / target.strip("/") / (each.name if into and each.is_file() else ""))
    for target, text in start["written"].items():
        there = root / target.strip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, encoding="utf-8")
        there.chmod(0o755)
    usual = (f"/usr/local/bin/{name}" for name in (*SERVERS, "python"))  # for a script that sets PATH anew
    for path in sorted({root / each[1:] for each in (*programs_of(start), *usual)}):
        with suppress(OSError):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f'#!/bin/sh\nexec "${TOLD}/bin/{path.name}" "$@"\n', encoding="utf-8")
                path.chmod(0o755)
    (root / start["folder"].strip("/")).mkdir(parents=True, exist_ok=True)
    for path in APPLICATION.rglob("*"):  # Git keeps the mode, archives and Windows may not
        with suppress(OSError):
            if path.is_file() and not path.is_symlink() and path.open("rb").read(2) == b"#!":
                path.chmod(path.stat().st_mode | 0o111)


def programs_of(start: dict[str, Any]) -> Iterator[str]:
    """Yield the paths of servers and of other known programs that the command and the scripts name."""
    texts = [*start["words"], *start["written"].values(), json.dumps(start["scripts"])]
    for path in APPLICATION.rglob("*"):
        with suppress(OSError, UnicodeDecodeError):
            if path.is_file() and path.stat().st_size < MOST_BYTES:
                text = path.read_text(encoding="utf-8")
                texts += [text] if text.startswith("#!") or path.suffix in (".sh", ".conf", ".ini") else []
    known = "|".join(map(re.escape, (*SERVERS, *PREPARES, *HANDS_ON, *SUCCEED, "python3?")))
    for text in texts:
        yield from re.findall(rf"(?<![\w.$}}-])(?:/[\w.-]+)+/(?:{known})(?![\w./-])", text)


def link(source: Path, target: Path) -> None:
    """Link a path of the image to what it was copied from. A folder that exists gets what it lacks."""
    with suppress(OSError):
        if source.is_dir() and target.is_dir() and target.resolve() != source.resolve():
            for each in source.iterdir():
                link(each, target / each.name)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


# What runs the command.


def follow(start: dict[str, Any]) -> dict[str, Any]:
    """Run the command, and return what its stand-ins wrote down. If it reaches no server, run it without entrypoint."""
    told = run(start, start["words"])
    if start.get("command") and start["command"] != start["words"] and not reached(told):
        again = run(start, start["command"])
        if reached(again):
            return again | {"without_entrypoint": told["said"]}
    if start.get("unknown") and not reached(told):
        environment = {**dict.fromkeys(start["unknown"], "1"), **start["environment"]}
        again = run(start | {"environment": environment}, start["words"])
        if reached(again):
            return again | {"assumed": start["unknown"]}
    return told


def reached(told: dict[str, Any]) -> bool:
    """Return whether a server would have been started."""
    return any(record["what"] in ("server", "missing") for record in told["records"])


def run(start: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Run a command with stand-ins, for WITHIN_S seconds at most."""
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary).resolve()
        text = Path(__file__).read_text(encoding="utf-8") if "__file__" in globals() else sys.orig_argv[2]
        (here / "bin").mkdir()
        (here / "hooks").mkdir()
        (here / "hooks" / "sitecustomize.py").write_text(text + "\nhook()\n", encoding="utf-8")
        (here / "stand_in").write_text(f"#!{sys.executable} -S\n{text}\nstand_in()\n", encoding="utf-8")
        (here / "stand_in").chmod(0o755)
        names = {*SERVERS, *PREPARES, *HANDS_ON, *SUCCEED, *TOLERANT, *start["scripts"], "su", "runuser", "nproc",
                 "supervisord", "honcho", "foreman", "python", "python3", f"python3.{sys.version_info[1]}"}  # fmt: skip
        for name in names:
            if "/" not in name:
                (here / "bin" / name).symlink_to(here / "stand_in")
        state = {"scripts": start["scripts"], "python": sys.executable, "before": os.environ["PATH"]}
        (here / "state.json").write_text(json.dumps(state), encoding="utf-8")
        environment = {**os.environ, **start["environment"], "PATH": f"{here / 'bin'}:{os.environ['PATH']}"}
        imports = [str(here / "hooks"), *filter(None, [start["environment"].get("PYTHONPATH", "")])]
        environment |= {"PYTHONPATH": ":".join(imports), TOLD: str(here), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.setdefault("PORT", "8000")
        folder = Path(start["folder"]) if Path(start["folder"]).is_dir() else APPLICATION
        words = [stood_in(word, here) if place == 0 else word for place, word in enumerate(words)]
        if words and not words[0].startswith("/") and not shutil.which(words[0], path=environment["PATH"]):
            if (folder / words[0]).is_file():
                words[0] = str(folder / words[0])
            else:
                words = [str(here / "bin" / "tini"), *words]  # a program that is not here may hand on
        ended: int | None = None
        with (here / "said").open("wb") as said:
            try:
                process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said,
                                           stderr=said, start_new_session=True)  # fmt: skip
            except OSError as error:
                return {"records": [], "said": str(error), "ended": 127}
            with suppress(subprocess.TimeoutExpired):
                ended = process.wait(start.get("within_s", WITHIN_S))
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = (here / "said").read_text(encoding="utf-8", errors="replace").splitlines()
        log = here / "records"
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
        given = {name: value for name, value in environment.items()
                 if name in start["environment"] or name not in os.environ}  # fmt: skip
        for record in records:
            changed = {name: value for name, value in record.pop("environment").items()
                       if os.environ.get(name, given.get(name)) != value}  # fmt: skip
            record["given"] = {name: value for name, value in changed.items() if name not in OF_THE_START}
        return {"records": records, "said": next((line.strip() for line in reversed(lines) if line.strip()), ""),
                "ended": ended, "cores": os.cpu_count() if (here / "cores").exists() else None}  # fmt: skip


OF_THE_START = (TOLD, "PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PORT", "PWD", "OLDPWD", "SHLVL", "_", "HOME",
                "STAMPEDE_ARGV", "SERVER_SOFTWARE", "FLASK_RUN_FROM_CLI")  # fmt: skip


def stood_in(word: str, here: Path) -> str:
    """Return the stand-in of a program that is named by a path which is not here."""
    name = word.rpartition("/")[2]
    is_known = "/" in word and (here / "bin" / name).exists()
    return str(here / "bin" / name) if is_known and not Path(word).is_relative_to(APPLICATION) else word


def tell(what: str, **told: Any) -> None:
    """Write down one record."""
    folder = os.environ[TOLD]
    record = {"what": what, "folder": str(Path.cwd()), "environment": dict(os.environ), **told}
    with open(f"{folder}/records", "a", encoding="utf-8") as log:
        log.write(json.dumps(record, default=str) + "\n")


# The stand-ins on PATH. Each is this file under another name.


def stand_in() -> NoReturn:  # noqa: PLR0912  # a case for each kind of program
    """Do what the program of this name does here."""
    name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    state = json.loads(Path(os.environ[TOLD], "state.json").read_text(encoding="utf-8"))
    python, scripts = state["python"], state["scripts"]
    hooks = f"{os.environ[TOLD]}/hooks"
    if hooks not in os.environ.get("PYTHONPATH", "").split(":"):  # a script has set it anew
        os.environ["PYTHONPATH"] = ":".join(filter(None, [hooks, os.environ.get("PYTHONPATH", "")]))
    os.environ["STAMPEDE_ARGV"] = json.dumps([name, *arguments])
    if name in scripts and name not in SERVERS:
        run_script(scripts[name], arguments, python)
    if name.startswith("python"):
        if arguments and os.path.basename(arguments[0]) == MANAGE and arguments[1:2] != ["runserver"]:
            prepare(["python", *arguments])
        if arguments[:1] == ["-m"] and arguments[1:] and arguments[1] in PREPARES:
            prepare(arguments[1:])
        if arguments[:1] == ["-m"] and arguments[1:2] == ["flask"] and "run" not in arguments:
            prepare(arguments[1:])
        if arguments[:1] == ["-m"] and arguments[1:] and arguments[1] in SERVERS and not has(arguments[1], python):
            tell("missing", program=arguments[1], words=arguments[1:])
            sys.exit(0)
        os.execv(python, [python, *arguments])
    if name in PREPARES or (name in SERVES and not {*SERVES[name]} & {*arguments}):
        prepare([name, *arguments])
    if name == "uwsgi":
        ask_uwsgi(arguments, state["before"])
    if name in SERVERS:
        if not has(SERVERS[name].partition(".")[0], python):
            tell("missing", program=name, words=[name, *arguments])
            sys.exit(0)
        os.execv(python, [python, "-m", SERVERS[name], *arguments])
    if name == "nproc":
        Path(os.environ[TOLD], "cores").touch()
        print(os.cpu_count())
    if name in TOLERANT:
        program = shutil.which(name, path=state["before"])
        if program:
            subprocess.run([program, *arguments], stderr=subprocess.DEVNULL, check=False)
        sys.exit(0)
    if name in ("su", "runuser"):
        for place, word in enumerate(arguments):
            if re.fullmatch(r"-[a-z]*c", word):
                os.execvp("sh", ["sh", *arguments[place:]])
    if name == "supervisord":
        supervise(arguments)
    if name in ("honcho", "foreman"):
        start_procfile(arguments)
    if name in HANDS_ON:
        hand_on(arguments, scripts, python)
    sys.exit(0)


def prepare(words: Sequence[str]) -> NoReturn:
    """Write a command down that prepares the application, and succeed."""
    inside = [os.path.relpath(os.path.realpath(word), os.getcwd()) if "/" in word and os.path.exists(word) else word
              for word in words]  # fmt: skip
    tell("before", words=inside)
    sys.exit(0)


def has(module: str, python: str) -> bool:
    """Return whether Python finds a module."""
    words = [python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"]
    return subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode == 0


def run_script(script: Any, arguments: Sequence[str], python: str) -> NoReturn:
    """Run a script that the project names: a text for a shell, or a function."""
    if isinstance(script, str):
        os.execvp("sh", ["sh", "-c", f'{script} "$@"', "sh", *arguments])
    module, function = script
    code = f"import sys; from {module} import {function} as f; sys.argv[0] = {function!r}; sys.exit(f())"
    os.execv(python, [python, "-c", code, *arguments])


def hand_on(arguments: Sequence[str], scripts: dict[str, Any], python: str) -> None:
    """Run the command among the words of a program that starts other commands."""
    after = [*arguments[arguments.index("--") + 1 :]] if "--" in arguments else []
    for words in (after, *([*arguments[place:]] for place in range(len(arguments)))):
        if not words or words[0].startswith("-"):
            if words and words[0] == "-m":  # uv run -m
                os.execvp("python", ["python", *words])
            continue
        name = words[0].rpartition(":")[2] if words[0].rpartition(":")[2] in scripts else words[0]
        if name in scripts and name not in SERVERS:
            run_script(scripts[name], words[1:], python)
        if words[0] in ("run", "exec", "sync", "install", "lock"):
            if words[0] in ("sync", "install", "lock"):
                sys.exit(0)
            continue
        if words[0].endswith(".py") and Path(words[0]).is_file():
            os.execvp("python", ["python", *words])
        if " " in words[0] and len(words) == 1:
            os.execvp("sh", ["sh", "-c", words[0]])
        known = Path(os.environ[TOLD], "bin", os.path.basename(words[0]))
        if known.exists():
            os.execv(known, [str(known), *words[1:]])
        if shutil.which(words[0]):
            os.execvp(words[0], words)


def supervise(arguments: Sequence[str]) -> NoReturn:
    """Start the programs of supervisord's file one after the other."""
    named = [after for before, after in pairwise(arguments) if before in ("-c", "--configuration")]
    usual = ("supervisord.conf", "etc/supervisord.conf", "/etc/supervisord.conf", "/etc/supervisor/supervisord.conf")
    parser = RawConfigParser(strict=False, inline_comment_prefixes=(" ;", "\t;"))
    parser.read([named[0] if named else next((name for name in usual if Path(name).is_file()), "")])
    for section in parser.sections():
        if section.startswith(("program:", "fcgi-program:")) and parser[section].get("command"):
            said = parser[section]
            command = re.sub(r"%\(ENV_(\w+)\)[sd]", r"${\1}", said["command"].replace("\n", " ")).replace("%%", "%")
            pairs = re.findall(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^,]*)""", said.get("environment", ""))
            given = {name: value.strip("\"' ").replace("%%", "%") for name, value in pairs}
            folder = said.get("directory", ".")
            share = section.startswith("fcgi-")  # its processes share a socket, as workers do
            given["STAMPEDE_WORKERS" if share else "STAMPEDE_PROCESSES"] = said.get("numprocs", "1")
            words = shlex.split(command)
            program = Path(os.environ[TOLD], "bin", os.path.basename(words[0]))
            if program.exists():
                command = shlex.join([str(program), *words[1:]])
            subprocess.run(["sh", "-c", command], env={**os.environ, **given}, check=False,
                           cwd=folder if Path(folder).is_dir() else None)  # fmt: skip
    sys.exit(0)


def start_procfile(arguments: Sequence[str]) -> NoReturn:
    """Start a process of a Procfile: the one that is named, or web."""
    file = next((after for before, after in pairwise(arguments) if before in ("-f", "--procfile")), "Procfile")
    named = {word for word in arguments if not word.startswith("-")} - {"start", file} or {"web"}
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        name, _, command = line.partition(":")
        if name.strip() in named:
            subprocess.run(["sh", "-c", command], check=False)
    sys.exit(0)


FILES_OF_UWSGI = ("ini", "yaml", "yml", "json")
"""Options that name a settings file, of which the first counts: it may include the others."""


def ask_uwsgi(arguments: Sequence[str], path: str) -> NoReturn:
    """Let uWSGI print its options, from its command, its variables and its files, and write them down."""
    words = ["uwsgi", *arguments]
    program = shutil.which("uwsgi", path=path)
    if not program:
        tell("missing", program="uwsgi", words=words)
        sys.exit(0)
    process = subprocess.Popen([program, "--show-config", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace")  # fmt: skip
    said: dict[str, str] = {}
    given: dict[str, str] = {}
    inside = False
    assert process.stdout
    for line in process.stdout:
        inside = inside or line.startswith("[uwsgi]")
        if inside and line.startswith(";end"):
            break
        if inside and (found := re.match(r"([\w-]+) = (.*)$", line)):
            said[found[1]] = said.get(found[1], found[2]) if found[1] in FILES_OF_UWSGI else found[2]
            if found[1] == "env":
                given[found[2].partition("=")[0]] = found[2].partition("=")[2]
        elif not inside:
            sys.stderr.write(line)
    process.kill()
    if inside:
        files = [said[kind].partition(":")[0] for kind in FILES_OF_UWSGI if kind in said]
        tell("server", server="uwsgi", words=words, settings=said, callable=callable_of_uwsgi(said), differ=[*said],
             env=given, file=os.path.realpath(files[0]) if files else "",
             chdir=os.path.realpath(said.get("chdir", ".")))  # fmt: skip
    sys.exit(0)


def callable_of_uwsgi(said: dict[str, str]) -> str:
    """Return the application that uWSGI's options name."""
    named = said.get("module") or said.get("wsgi") or said.get("w") or ""
    otherwise = said.get("callable", "application")
    file = said.get("wsgi-file") or said.get("file") or ""
    if "mount" in said and not (named or file):
        named = said["mount"].partition("=")[2].removesuffix(".py")
    if file:
        folder = Path(said.get("chdir", "."))
        named = os.path.relpath((folder / file).resolve(), folder.resolve()).removesuffix(".py").replace("/", ".")
    return named if not named or ":" in named else f"{named}:{otherwise}"


# The hooks in the real servers. Each module is changed when it has been imported.


def hook() -> None:
    """Be told when one of the modules of HOOKS is imported."""
    globals()["__name__"] = "stampede_start"
    sys.meta_path.insert(0, Hooks())
    count = os.cpu_count

    def counted() -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] not in COUNTS_ANYWAY:
            Path(os.environ[TOLD], "cores").touch()
        return count()

    os.cpu_count = counted


class Hooks(importlib.abc.MetaPathFinder):
    """Finds modules as Python does, and changes those of HOOKS."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        """Return the spec of a module, whose loader changes the module when it is loaded."""
        if name not in HOOKS:
            return None
        finders = (each for each in sys.meta_path if each is not self and hasattr(each, "find_spec"))
        spec = next((found for each in finders if (found := each.find_spec(name, path))), None)
        if spec and spec.loader and hasattr(spec.loader, "exec_module"):
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                HOOKS[name](module)

            spec.loader.exec_module = exec_module
        return spec


def serve(server: str, app: Any, settings: dict[str, Any], differ: Sequence[str], **further: Any) -> NoReturn:
    """Write down what a server would serve, and leave."""
    words = json.loads(os.environ.get("STAMPEDE_ARGV", "null")) or sys.argv
    named = app if isinstance(app, str) else name_of(app)
    settings = {name: each for name, each in settings.items() if isinstance(each, int | float | str | None)}
    processes = os.environ.get("STAMPEDE_PROCESSES", "1")
    settings["workers"] = settings.get("workers") or 1
    if workers := os.environ.get("STAMPEDE_WORKERS"):
        settings["workers"], differ = int(workers) * int(settings["workers"]), [*differ, "workers"]
    tell("server", server=server, words=words, callable=named, settings=settings, processes=processes,
         differ=[name for name in differ if name in settings],
         imports=[os.path.realpath(each) for each in sys.path if "site-packages" not in each], **further)  # fmt: skip
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def name_of(app: Any) -> str:
    """Return the module and the name of an object; empty: no module has it."""
    found: list[str] = []
    for module, there in [*sys.modules.items()]:
        for name, value in [*getattr(there, "__dict__", {}).items()]:
            if value is app and not module.startswith(("stampede_", "sitecustomize", "__mp_")):
                found.append(f"{main_module() if module == '__main__' else module}:{name}")
    made_in = f"{type(app).__module__}:"
    found = [each for each in found if not each.startswith(":")]
    main = f"{main_module()}:"  # to import it again may start the server again
    return min(
        found, key=lambda each: (each.startswith(made_in), each.startswith(main), "._" in each, len(each)), default=""
    )


def main_module() -> str:
    """Return by which name the program that is run can be imported."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return str(spec.name).removesuffix(".__main__") if spec.name.endswith(".__init__") else str(spec.name)
    if not (file := getattr(main, "__file__", "")):
        return ""
    path = Path(file).resolve()
    parts = [path.stem]
    while (path.parent / "__init__.py").is_file():
        path = path.parent
        parts.insert(0, path.name)
    return ".".join(parts)


def hook_gunicorn(module: Any) -> None:
    """Gunicorn reads its options, GUNICORN_CMD_ARGS and its settings file, then makes an arbiter."""

    def init(_self: Any, app: Any) -> NoReturn:
        known = app.cfg.settings
        values = {name: each.get() for name, each in known.items()}
        if inspect.isclass(kind := values.get("worker_class")):
            values["worker_class"] = f"{kind.__module__}.{kind.__qualname__}"
        values["worker_class"] = (
            app.cfg.worker_class_str if values["worker_class"] == "sync" else values["worker_class"]
        )
        differ = [name for name, each in known.items() if each.get() != each.default]
        differ += ["workers"] if "WEB_CONCURRENCY" in os.environ else []  # it changes the default
        file = str(values.get("config") or "").removeprefix("file:")
        if file.startswith("python:"):
            with suppress(Exception):
                file = str(importlib.util.find_spec(file.removeprefix("python:")).origin)  # type: ignore[union-attr]
        named = getattr(app, "app_uri", None) or values.get("wsgi_app")
        if named:
            named = named if ":" in named else f"{named}:application"
        else:  # an application of gunicorn of somebody's own, which has been given an object
            objects = [each for each in vars(app).values() if callable(each) and not inspect.isclass(each)]
            named = next((found for each in objects if (found := name_of(each))), "")
        given = dict(each.partition("=")[::2] for each in values.get("raw_env") or [])
        serve("gunicorn", named, values, differ, chdir=os.path.realpath(str(values.get("chdir") or "")), env=given,
              file=str(Path(file).resolve()) if file and Path(file).is_file() else "")  # fmt: skip

    module.Arbiter.__init__ = init


def hook_daemon(module: Any) -> None:
    """Gunicorn may be told to go into the background."""
    module.daemonize = lambda *_, **__: None


def hook_uvicorn(module: Any) -> None:
    """Uvicorn makes a Config, which reads variables, too, and then a Server."""

    def init(_self: Any, config: Any, *_: Any, **__: Any) -> NoReturn:
        defaults = {name: each.default for name, each in inspect.signature(type(config).__init__).parameters.items()}
        values = {name: getattr(config, name, None) for name in defaults if name not in ("self", "app")}
        app = config.app
        if isinstance(app, str) and config.factory:
            app += "()"
        differ = [name for name, value in values.items() if value != defaults[name]]
        if not isinstance(app, str) and not name_of(app) and inspect.isfunction(app):
            app = f"{app.__module__}:{app.__qualname__}" + ("()" if config.factory else "")
        serve("uvicorn", app, values | {"workers": config.workers or 1}, differ)

    module.Server.__init__ = init


def hook_granian(module: Any) -> None:
    """Granian makes a server of its options, and then lets it serve."""

    def act(self: Any, *_: Any, **__: Any) -> NoReturn:
        values = {name: getattr(each, "value", each) for name, each in vars(self).items()}
        signature = inspect.signature(module.AbstractServer.__init__).parameters
        differ = [name for name, each in signature.items() if name in values and values[name] not in (
            each.default, getattr(each.default, "value", each.default))]  # fmt: skip
        named = self.target if ":" in self.target else f"{self.target}:app"
        serve("granian", named + ("()" if self.factory else ""), values, differ)

    module.AbstractServer.serve = act


def hook_hypercorn(module: Any) -> None:
    """Hypercorn makes a Config of its options and its settings file, and runs it."""

    def act(config: Any, *_: Any, **__: Any) -> NoReturn:
        of_class = type(config)
        values = {
            name: getattr(config, name)
            for name in dir(of_class)
            if isinstance(getattr(of_class, name, ...), int | float | str | None) and not name.startswith("_")
        }
        differ = [name for name, value in values.items() if getattr(of_class, name) != value]
        app = config.application_path
        kind, plain = (
            (app.partition(":")[0], app.partition(":")[2]) if app.startswith(("wsgi:", "asgi:")) else ("", app)
        )
        serve("hypercorn", plain if ":" in plain else f"{plain}:app", values, differ, kind=kind)

    module.run = act


def hook_hypercorn_serve(module: Any) -> None:
    """A program may hand an application to hypercorn."""

    def serve_app(app: Any, *_: Any, **__: Any) -> NoReturn:
        serve("hypercorn", app, {"workers": 1}, [])

    module.serve = serve_app


def hook_daphne(module: Any) -> None:
    """Daphne imports the application, and makes a server of its options."""
    named: list[str] = []

    def imported(path: str) -> Callable[..., Any]:
        named.append(path)

        async def app(scope: Any, receive: Any, send: Any) -> None: ...

        return app

    def act(self: Any) -> NoReturn:
        values = {"workers": 1, **vars(self)}
        serve("daphne", named[0] if named else "", values, ["http_timeout"] * (values["http_timeout"] is not None))

    module.import_by_path = imported
    server = module.CommandLineInterface.server_class
    server.run = act


def hook_waitress(module: Any) -> None:
    """Waitress makes a server of an application and its options."""

    def act(application: Any, *_: Any, **options: Any) -> NoReturn:
        from waitress.adjustments import Adjustments  # noqa: PLC0415

        words = json.loads(os.environ.get("STAMPEDE_ARGV", "[]"))
        if not name_of(application) and words and re.fullmatch(r"[\w.]+:[\w.]+", words[-1]):  # a factory has made it
            application = words[-1] + "()" * ("--call" in words)
        known = Adjustments(**{name: each for name, each in options.items() if not name.startswith("_")})
        serve("waitress", application, {"workers": 1, "threads": known.threads}, ["threads"] * ("threads" in options))

    module.create_server = act


def hook_werkzeug(module: Any) -> None:
    """The server for development of Flask and others."""

    def act(_hostname: Any, _port: Any, application: Any, *_: Any, **__: Any) -> NoReturn:
        app = name_of(application)
        source = sys.modules.get(getattr(application, "import_name", ""))
        names = [name for name in ("create_app", "make_app") if hasattr(source, name)]
        if not app and source and names:  # where flask itself looks
            app = f"{source.__name__}:{names[0]}()"
        serve("werkzeug", app, {"workers": 1}, [])

    module.run_simple = act


def hook_django(module: Any) -> None:
    """The server for development of Django. Its settings say where its application is."""
    run = module.ManagementUtility.execute

    def execute(self: Any) -> None:
        if self.argv[1:2] != ["runserver"]:
            return run(self)
        from django.conf import settings  # noqa: PLC0415

        app = ""
        with suppress(Exception):
            app = str(settings.WSGI_APPLICATION or settings.ASGI_APPLICATION)
        serve("runserver", ":".join(app.rsplit(".", 1)) if app else "", {"workers": 1}, [])

    module.ManagementUtility.execute = execute


HOOKS: dict[str, Callable[[Any], None]] = {
    "gunicorn.arbiter": hook_gunicorn, "gunicorn.util": hook_daemon, "uvicorn.server": hook_uvicorn,
    "granian.server.common": hook_granian, "hypercorn.run": hook_hypercorn, "hypercorn.asyncio": hook_hypercorn_serve,
    "hypercorn.trio": hook_hypercorn_serve, "daphne.cli": hook_daphne, "waitress": hook_waitress,
    "werkzeug.serving": hook_werkzeug, "django.core.management": hook_django,
}  # fmt: skip


def main() -> None:
    """Lay an image out, or follow a command."""
    what, path, *root = sys.argv[1:]
    start = json.loads(Path(path).read_text(encoding="utf-8"))
    if what == "lay-out":
        lay_out(start, Path(*root or ["/"]))
    else:
        json.dump(follow(start), sys.stdout)


if __name__ == "__main__" and sys.argv[1:2] in (["lay-out"], ["follow"]) and TOLD not in os.environ:
    main()

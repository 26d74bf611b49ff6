"""Follow a start command to the server that it starts, or serve it under the probe, with the real programs.

``python start.py lay-out START [ROOT]`` links what an image has at its places to the application's folder, and makes
the stand-ins. ``python start.py follow START [FALLBACKS]`` runs the command of START with the folder of stand-ins first
on PATH. A stand-in of a server runs the real server with hooks.py, which reads its options, its variables and its
settings file by itself, up to the moment at which it would listen: then it writes down what it would serve, and ends.
Commands that prepare a database write themselves down and succeed. Standard output gets one JSON object: ``records``,
``said`` (the last line that was written), ``ended`` (the exit code; null: it did not end by itself) and ``cores`` (how
many the start has counted; null: it has not). ``python start.py serve START`` becomes the command, and the server
listens on port 8000. The variable LAB_WAY may change it: ``options`` are settings that are added, by the names of the
server, and ``words`` another command, which gets the variables, the folder and the imports that the own command gives
its server. ``python start.py before START COMMAND`` runs a command before that, such as a migration, in its folder and
with its variables.

START is a file with JSON: ``words``, ``folder``, ``environment``, ``paths`` (what the application's folder has, by its
path in the image), ``written`` (texts by their paths), ``scripts`` (of the project, each
``[module, function]``), ``prepared`` (whether somebody has prepared the database) and ``ready`` (the path that tells
that the application is ready). FALLBACKS is JSON: ``command`` (without an entrypoint; it is tried if ``words`` reach no
server) and ``unknown`` (variables that nothing gives a value; if no server is reached without them, each is 1).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from configparser import RawConfigParser
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

WITHIN_S = 30
CONNECTS_WITHIN_S, AGAIN_AFTER_S = 60, 1
REFUSED = re.compile(rb"connection refused|can't connect to|could not connect|is starting up", re.IGNORECASE)
"""What a command says if a database does not take connections yet."""
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
    "with-contenv", "s6-setuidgid", "s6-envdir", "chpst",
)  # fmt: skip
"""Programs that start another command, which stands among their words."""
TASKS = ("poe", "task", "pipenv", "pdm", "hatch", "rye", "pixi")
"""Those of them that run the tasks of a project, which are not followed; the first two run nothing else."""
OF_PDM = (
    "add", "build", "cache", "completion", "config", "export", "fix", "import", "info", "init", "install", "list",
    "lock", "new", "outdated", "plugin", "publish", "py", "python", "remove", "search", "self", "show", "sync",
    "update", "use", "venv",
)  # fmt: skip
"""PDM's own commands: another word is a task, as after ``pdm run``."""
OF_NAMES = ("--with", "--from", "--extra", "--group", "--only-group", "--package", "--service_name")
"""Options of these programs whose value may be the name of a server."""
MEASURES = (
    "ddtrace-run", "newrelic-admin", "opentelemetry-instrument", "sentry-run", "honeycomb", "coverage", "scalene",
)  # fmt: skip
"""Those of them that look into the application as the probe does, and are passed over."""
SUCCEED = (
    "sleep", "pg_isready", "nc", "ncat", "mysqladmin", "redis-cli", "mc", "pip", "pip3", "apt-get", "apt", "apk",
    "chown", "chmod", "usermod", "groupmod", "useradd", "groupadd", "service", "nginx", "celery", "cron", "crond", "rq",
    "redis-server", "rsyslogd", "crontab", "supervisorctl", "systemctl", "npm", "yarn", "node", "pybabel",
)  # fmt: skip
"""Programs that do nothing here: they wait for others, change the image, or are other processes of it."""
STAY = ("celery", "rq")
"""Those of them that stay in the foreground."""
TOLERANT = ("mkdir", "touch", "cp", "mv", "ln", "rm")
"""Programs that are run, and whose failure is no failure: the image may be read only."""
ENVIRONMENTS = ("venv", ".venv", "env", ".env", "virtualenv")
"""Folders of virtual environments in a project."""
MOST_BYTES = 100_000
"""The size of a file that may be a script."""
OURS = Path(__file__).resolve().parent
STAND_INS = OURS / "stand-ins"
TOLD, PYTHON, BEFORE, IMPORTS = "STAMPEDE_TOLD", "STAMPEDE_PYTHON", "STAMPEDE_PATH", "STAMPEDE_IMPORTS"
"""Variables: the folder for records, the interpreter, PATH and PYTHONPATH without and with what is added."""
SERVED = Path("/tmp/start")


# What is laid out when the image is built.


def lay_out(start: dict[str, Any], root: Path) -> None:
    """Make the paths of an image, as links into the application's folder, or as the texts that a Dockerfile has."""
    for target, source in start["paths"].items():
        if not (APPLICATION / source).exists():  # a folder that the application writes
            (APPLICATION / source).mkdir(parents=True)
            (APPLICATION / source).chmod(0o777)
        link(APPLICATION / source, root / target.strip("/"))
    for target, text in start["written"].items():
        there = root / target.strip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, encoding="utf-8")
        there.chmod(0o755)
    make_stand_ins(start)
    usual = (f"/usr/local/bin/{name}" for name in (*SERVERS, "python"))  # for a script that sets PATH anew
    for path in sorted({root / each.lstrip("/") for each in (*programs_of(start), *usual)}):
        with suppress(OSError):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                handed = f'#!/bin/sh\nexec "{STAND_INS}/bin/{path.name}" "$@"\n'
                path.write_text("" if path.name.startswith("activate") else handed, encoding="utf-8")
                path.chmod(0o755)
    for path in APPLICATION.rglob("*"):  # Git keeps the mode, archives and Windows may not
        with suppress(OSError):
            if path.is_file() and not path.is_symlink() and path.open("rb").read(2) == b"#!":
                path.chmod(path.stat().st_mode | 0o111)


def make_stand_ins(start: dict[str, Any]) -> None:
    """Make the stand-ins, each of which is this program under another name, and sitecustomize.py with the hooks."""
    for name in ("bin", "hooks"):
        (STAND_INS / name).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(OURS / "hooks.py", STAND_INS / "hooks" / "sitecustomize.py")
    program = STAND_INS / "stand-in"
    program.write_text(f"#!{sys.executable} -S\nimport sys\nsys.path.insert(0, {str(OURS)!r})\nimport start\n"
                       "start.stand_in()\n", encoding="utf-8")  # fmt: skip
    program.chmod(0o755)
    names = {*SERVERS, *PREPARES, *HANDS_ON, *SUCCEED, *TOLERANT, *start["scripts"], "su", "runuser", "nproc",
             "supervisord", "honcho", "foreman", "python", "python3", f"python3.{sys.version_info[1]}"}  # fmt: skip
    for name in names:
        if "/" not in name and not (STAND_INS / "bin" / name).exists():
            (STAND_INS / "bin" / name).symlink_to(program)


def programs_of(start: dict[str, Any]) -> Iterator[str]:
    """Yield the paths of servers and of other known programs that the command and the scripts name.

    Those of a virtual environment in the application's folder, which is no part of the image, are there, too.
    """
    texts = [*start["words"], *start["written"].values(), json.dumps(start["scripts"])]
    for path in APPLICATION.rglob("*"):
        with suppress(OSError, UnicodeDecodeError):
            if path.is_file() and path.stat().st_size < MOST_BYTES:
                text = path.read_text(encoding="utf-8")
                is_script = text.startswith("#!") or path.suffix in (".sh", ".conf", ".ini") or path.name == "Makefile"
                texts += [text] if is_script else []
    known = "|".join(map(re.escape, (*SERVERS, *PREPARES, *HANDS_ON, *SUCCEED, "python3?")))
    for text in texts:
        yield from re.findall(rf"(?<![\w.$}}-])(?:/[\w.-]+)+/(?:{known})(?![\w./-])", text)
        for path, name in re.findall(r"(?<![\w.-])((?:[\w.-]+/)?bin/)([\w.-]+)", text):
            if path.rpartition("bin/")[0].strip("/") in ENVIRONMENTS:
                yield f"{APPLICATION}/{start['folder']}/{path}{name}"


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
        told = Path(temporary).resolve()
        environment = with_stand_ins(start, told)
        folder = folder_of(start)
        ended: int | None = None
        log = told / "records"
        with (told / "said").open("wb") as said:
            try:
                process = subprocess.Popen(runnable(words, folder), cwd=folder, env=environment, stdout=said,
                                           stdin=subprocess.DEVNULL, stderr=said, start_new_session=True)  # fmt: skip
            except OSError as error:
                return {"records": [], "said": str(error), "ended": 127}
            deadline = time.monotonic() + start.get("within_s", WITHIN_S)
            with suppress(subprocess.TimeoutExpired):
                ended = process.wait(start.get("within_s", WITHIN_S))
            with suppress(OSError):
                while ended is not None and time.monotonic() < deadline:
                    os.killpg(process.pid, 0)  # what the command left in the background
                    if log.exists() and '"what": "server"' in log.read_text(encoding="utf-8"):
                        break
                    time.sleep(0.05)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = (told / "said").read_text(encoding="utf-8", errors="replace").splitlines()
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
        given = {name: value for name, value in environment.items()
                 if name in start["environment"] or name not in os.environ}  # fmt: skip
        for record in records:
            changed = {name: value for name, value in record.pop("environment").items()
                       if given.get(name, os.environ.get(name)) != value}  # fmt: skip
            record["given"] = {name: value for name, value in changed.items() if not OF_THE_START.match(name)}
        said = next((line.strip(" │") for line in reversed(lines) if re.search(r"\w", line)), "")  # not a frame
        return {"records": records, "said": said,
                "ended": ended, "cores": os.cpu_count() if (told / "cores").exists() else None}  # fmt: skip


def with_stand_ins(start: dict[str, Any], told: Path, *before: Path) -> dict[str, str]:
    """Return the environment of a command: that of START, with the stand-ins and the hooks ahead."""
    imports = ":".join(map(str, (*before, STAND_INS / "hooks")))
    environment = {**os.environ, **start["environment"], TOLD: str(told), PYTHON: sys.executable, IMPORTS: imports}
    environment[BEFORE] = os.environ["PATH"]
    environment["PATH"] = f"{STAND_INS / 'bin'}:{os.environ['PATH']}"
    own = start["environment"].get("PYTHONPATH") or os.environ.get("PYTHONPATH")
    environment["PYTHONPATH"] = ":".join(filter(None, [imports, own]))
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment.setdefault("PORT", "8000")
    environment.setdefault("PYTHON_VERSION", sys.version.split()[0])  # as in images of Python
    if not os.access(environment.get("HOME") or "/", os.W_OK):  # a user of the lab has none
        environment["HOME"] = "/tmp"
    if environment["HOME"] == "/tmp":
        link(STAND_INS / "bin", Path("/tmp/.local/bin"))  # the programs of a user's own packages
    return environment


def folder_of(start: dict[str, Any]) -> Path:
    """Return the working folder of the command."""
    folder = APPLICATION / start["folder"]
    return folder if folder.is_dir() else APPLICATION


def runnable(words: Sequence[str], folder: Path) -> list[str]:
    """Return a command whose program is a stand-in, a file of the folder, or one that hands on what is not here."""
    words, name = [*words], words[0].rpartition("/")[2] if words else ""
    is_known = bool(words) and "/" in words[0] and (STAND_INS / "bin" / name).exists()
    if is_known and not Path(words[0]).is_relative_to(APPLICATION):  # a program at a path which is not here
        words[0] = str(STAND_INS / "bin" / name)
    path = f"{STAND_INS / 'bin'}:{os.environ['PATH']}"
    if words and not words[0].startswith("/") and not shutil.which(words[0], path=path):
        if (folder / words[0]).is_file():
            return [str(folder / words[0]), *words[1:]]
        return [str(STAND_INS / "bin" / "tini"), *words]  # a program that is not here may hand on
    return words


def serve(start: dict[str, Any]) -> NoReturn:
    """Become the command, or that of LAB_WAY, under the probe, and let its server listen on port 8000."""
    way = json.loads(unquote(os.environ.pop("LAB_WAY", "")) or "{}")
    SERVED.mkdir(exist_ok=True)
    folder, words = folder_of(start), start["words"]
    if way.get("words"):
        at_home = next((each for each in follow(start)["records"] if each["what"] == "server"), None)
        words = way["words"]
        start["environment"].update(way.get("environment", {}))
        if at_home:  # the variables, the folder and the imports that today's command gives to its server
            start["environment"].update({**at_home["given"], **at_home.get("env", {})})
            folder = Path(at_home.get("chdir") or at_home["folder"])
            imports = [*(each for each in at_home.get("imports", []) if Path(each).is_relative_to(APPLICATION)),
                       *start["environment"].get("PYTHONPATH", "").split(":")]  # fmt: skip
            start["environment"]["PYTHONPATH"] = ":".join(dict.fromkeys([str(folder), *filter(None, imports)]))
    environment = with_stand_ins(start, SERVED, OURS / "stampede_probe" / "site")
    environment.update(STAMPEDE_SERVES="1", STAMPEDE_OPTIONS=json.dumps(way.get("options", {})),
                       STAMPEDE_READY=start.get("ready", ""), STAMPEDE_PROBE_ID="Lab-Id",
                       STAMPEDE_PROBE_PART=str(OURS))  # fmt: skip
    words = runnable(words, folder)
    os.environ.update(environment)
    os.chdir(folder)
    from stampede_probe.__main__ import main as probe  # noqa: PLC0415  # which has read the variables

    sys.exit(probe(["run", "--rows", "/tmp/served", "--segments", "--", *words]))


def run_before(start: dict[str, Any], command: str) -> int:
    """Run a command until it is not refused a connection, print what it said at last, and return its exit code."""
    folder = folder_of(start)
    environment = {**os.environ, **start["environment"]}
    imports = [str(folder), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(imports)
    deadline = time.monotonic() + CONNECTS_WITHIN_S
    while True:
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, stderr=subprocess.PIPE, check=False)
        if done.returncode == 0 or not REFUSED.search(done.stderr) or time.monotonic() > deadline:
            sys.stderr.buffer.write(done.stderr)
            return done.returncode if done.returncode >= 0 else 128 - done.returncode
        time.sleep(AGAIN_AFTER_S)


OF_THE_START = re.compile(r"(STAMPEDE_.*|PATH|PYTHONPATH|PYTHONDONTWRITEBYTECODE|PORT|PWD|OLDPWD|SHLVL|_|HOME|"
                          r"SERVER_SOFTWARE|FLASK_RUN_FROM_CLI)$")  # fmt: skip


def tell(what: str, **told: Any) -> None:
    """Write down one record."""
    folder = os.environ[TOLD]
    record = {"what": what, "folder": str(Path.cwd()), "environment": dict(os.environ), **told}
    with open(f"{folder}/records", "a", encoding="utf-8") as log:
        log.write(json.dumps(record, default=str) + "\n")


# The stand-ins on PATH. Each is this file under another name.


def stand_in() -> NoReturn:  # noqa: PLR0912, PLR0915  # a case for each kind of program
    """Do what the program of this name does here."""
    name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    start = json.loads((OURS / "start.json").read_text(encoding="utf-8"))
    python, scripts = os.environ[PYTHON], start["scripts"]
    if os.environ[IMPORTS] not in os.environ.get("PYTHONPATH", ""):  # a script has set it anew
        os.environ["PYTHONPATH"] = ":".join(filter(None, [os.environ[IMPORTS], os.environ.get("PYTHONPATH", "")]))
    really = bool(os.environ.get("STAMPEDE_SERVES")) and not start.get("prepared")
    os.environ["STAMPEDE_ARGV"] = json.dumps([name, *arguments])
    if name in scripts and name not in SERVERS:
        run_script(scripts[name], arguments, python)
    if name.startswith("python"):
        of_module = arguments[1:] if arguments[:1] == ["-m"] else []
        if not really and arguments and Path(arguments[0]).name == MANAGE and not serves_as(arguments[1:2]):
            prepare(["python", *arguments])
        if not really and of_module and (of_module[0] in PREPARES or prepares_in(of_module)):
            prepare(of_module)
        if arguments[:1] == ["-m"] and arguments[1:] and arguments[1] in SERVERS and not has(arguments[1], python):
            tell("missing", program=arguments[1], words=arguments[1:])
            sys.exit(0)
        os.execv(python, [python, *arguments])
    if name in PREPARES or prepares_in([name, *arguments]):
        if really and (program := real(name)):
            os.execv(program, [program, *arguments])
        prepare([name, *arguments])
    if name == "uwsgi":
        ask_uwsgi(arguments)
    if name in SERVERS:
        if not has(SERVERS[name].partition(".")[0], python):
            tell("missing", program=name, words=[name, *arguments])
            sys.exit(0)
        os.execv(python, [python, "-m", SERVERS[name], *arguments])
    if name == "nproc":
        Path(os.environ[TOLD], "cores").touch()
        print(os.cpu_count())
    if name in TOLERANT:
        program = real(name)
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
        if program := real(name) or real("honcho"):
            os.execv(program, [program, *arguments])
        tell("missing", program=name, words=[name, *arguments])
    if name in MEASURES and real(name):
        os.environ["STAMPEDE_PASSED"] = f"{os.environ.get('STAMPEDE_PASSED', '')} {name}"
    first = next((each for each in arguments if not each.startswith("-")), "")
    if name == "pdm" and first in OF_PDM:
        sys.exit(0)
    if name in HANDS_ON:
        hand_on(arguments, scripts, python)
    if name in TASKS[:2] or (name in TASKS and "run" in arguments) or (name == "pdm" and first):
        tasks = f"{name} {shlex.join(arguments)}: the lab does not follow the tasks of {name}"
        sys.exit(f"{tasks}; give the command that serves with --command")
    if name == "tini":
        sys.exit(f"{first or name}: not found")
    if name in STAY and os.environ.get("STAMPEDE_SERVES") and not {"--detach", "-D", "multi"} & {*arguments}:
        signal.pause()  # a script may wait until the first of its programs ends
    sys.exit(0)


def real(name: str) -> str:
    """Return the path of a program that is no stand-in; empty: there is none."""
    for folder in os.environ[BEFORE].split(":"):
        path = Path(folder, name)
        with suppress(OSError):
            if os.access(path, os.X_OK) and path.is_file() and str(STAND_INS).encode() not in path.read_bytes()[:200]:
                return str(path)
    return ""


def prepares_in(words: Sequence[str]) -> bool:
    """Return whether a command of a framework prepares the application, and does not serve it."""
    return words[0] in SERVES and not {*SERVES[words[0]]} & {*words[1:]}


def serves_as(command: Sequence[str]) -> bool:
    """Return whether a command of Django serves: its name or, in the project, its text says so."""
    if re.match(r"run_?(server|gunicorn|uwsgi|uvicorn|granian|daphne|web)|serve|gunicorn|granian", "".join(command)):
        return True
    files = [path for name in command for path in APPLICATION.glob(f"**/management/commands/{name}.py")]
    return any(re.search(rf"\b({'|'.join(SERVERS)})\b", path.read_text(errors="replace")) for path in files)


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


def run_script(script: Sequence[str], arguments: Sequence[str], python: str) -> NoReturn:
    """Run a script that the project names, which is a function."""
    module, function = script
    inside = [str(folder / "src") for folder in (Path.cwd(), APPLICATION) if (folder / "src").is_dir()]
    code = (f"import sys; sys.path += {inside}; from {module} import {function} as f; "
            f"sys.argv[0] = {function!r}; sys.exit(f())")  # fmt: skip
    os.execv(python, [python, "-c", code, *arguments])


def hand_on(arguments: Sequence[str], scripts: dict[str, Any], python: str) -> None:
    """Run the command among the words of a program that starts other commands."""
    after = [*arguments[arguments.index("--") + 1 :]] if "--" in arguments else []
    for words in (after, *([*arguments[place:]] for place in range(len(arguments)))):
        if not words or words[0].startswith("-"):
            if words and words[0] == "-m":  # uv run -m
                os.execvp("python", ["python", *words])
            continue
        if (ahead := arguments[: -len(words)]) and ahead[-1] in OF_NAMES:
            continue
        if words[0] in scripts and words[0] not in SERVERS:
            run_script(scripts[words[0]], words[1:], python)
        if words[0] in ("run", "exec", "sync", "install", "lock"):
            if words[0] in ("sync", "install", "lock"):
                sys.exit(0)
            continue
        if words[0].endswith(".py") and Path(words[0]).is_file():
            os.execvp("python", ["python", *words])
        if " " in words[0] and len(words) == 1:
            os.execvp("sh", ["sh", "-c", words[0]])
        known = STAND_INS / "bin" / os.path.basename(words[0]).partition("@")[0]
        if known.exists():
            os.execv(known, [str(known), *words[1:]])
        if shutil.which(words[0]):
            os.execvp(words[0], words)


def supervise(arguments: Sequence[str]) -> NoReturn:
    """Start the programs of supervisord's file, each when the one before has ended, serves, or has had some seconds."""
    named = next((arguments[place + 1] for place, word in enumerate(arguments[:-1])
                  if word in ("-c", "--configuration")), "")  # fmt: skip
    usual = ("supervisord.conf", "etc/supervisord.conf", "/etc/supervisord.conf", "/etc/supervisor/supervisord.conf")
    file = Path(named or next((name for name in usual if Path(name).is_file()), ""))
    parser = RawConfigParser(strict=False, inline_comment_prefixes=(" ;", "\t;"))
    if not parser.read([file]):  # as in Debian, whose own file includes these
        parser.read(sorted(glob("/etc/supervisor/conf.d/*.conf")))
    for pattern in parser.get("include", "files", fallback="").replace("%(here)s", str(file.parent)).split():
        parser.read(sorted(glob(str(file.parent / pattern))))
    of_all = parser.get("supervisord", "environment", fallback="")
    programs = [(name, parser[name]) for name in parser.sections()
                if name.startswith(("program:", "fcgi-program:")) and parser[name].get("command")
                and parser[name].get("autostart", "true").lower() != "false"]  # fmt: skip
    serves, running = bool(os.environ.get("STAMPEDE_SERVES")), []
    for name, said in sorted(programs, key=lambda each: int(each[1].get("priority", "999"))):
        known = {
            "here": str(file.parent),
            "program_name": name.partition(":")[2],
            "process_num": 0,
            "numprocs": 1,
            "group_name": name.partition(":")[2],
            "host_node_name": os.uname().nodename,
            **{f"ENV_{key}": value for key, value in os.environ.items()},
        }
        try:
            command, own, folder = (said.get(key, "") % known for key in ("command", "environment", "directory"))
            pairs = re.findall(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^,]*)""", f"{of_all % known},{own}")
        except (KeyError, TypeError, ValueError) as error:
            print(f"{name}: the expression {error} of {file} is not followed", file=sys.stderr)
            continue
        given = {key: value.strip("\"' ") for key, value in pairs}
        share = name.startswith("fcgi-")  # its processes share a socket, as workers do
        given["STAMPEDE_WORKERS" if share else "STAMPEDE_PROCESSES"] = said.get("numprocs", "1")
        words = shlex.split(command.replace("\n", " "))
        program = STAND_INS / "bin" / os.path.basename(words[0])
        if program.exists():
            command = shlex.join([str(program), *words[1:]])
        running.append(subprocess.Popen(["sh", "-c", command], env={**os.environ, **given},
                                        cwd=folder if folder and Path(folder).is_dir() else None))  # fmt: skip
        until = time.monotonic() + (0 if os.path.basename(words[0]) in SUCCEED else 5)
        while running[-1].poll() is None and not (serves and (SERVED / "taken").exists()) and time.monotonic() < until:
            time.sleep(0.05)
    stay = [each for each in running if each.poll() is None]
    while serves and stay and all(each.poll() is None for each in stay):
        time.sleep(0.2)
    sys.exit(0)


_OF_UWSGI = re.compile(
    r"(?P<address>(?:uwsgi-|http-|https-|fastcgi-|scgi-|http11-)?socket|https?2?|shared-socket|http-to|https?-socket.*)$|"
    r"(?P<protocol>protocol|socket-protocol)$|(?P<tls>https2?|ssl-.*)$|(?P<rights>uid|gid|chroot|chown-socket|chmod-socket)$|"
    r"(?P<disk>pidfile2?|safe-pidfile2?|logto2?|logger|req-logger|touch-.*|vacuum)$|(?P<ends>daemonize2?)$|"
    r"(?P<application>module|wsgi|w|wsgi-file|file|callable|mount|manage-script-name)$|(?P<file>ini|yaml|yml|json|xml|show-config)$|"
    r"(?P<develops>py-auto-?reload.*)$|(?P<varies>cheaper.*)$"
)
"""Options of uWSGI that are not kept, each with the kind of its reason."""
_REASONS = {
    "address": "the balancer stands in another container, and speaks plain HTTP to port 8000",
    "rights": "the container runs as a user without rights",
    "disk": "the container is read-only, and its log is its output",
    "ends": "the container ends with the first process", "develops": "it is for development",
    "varies": "the number of workers would change while it is measured",
}  # fmt: skip
_REASONS["protocol"] = _REASONS["tls"] = _REASONS["address"]
_TO_OUTPUT = r"exec://printf '[uwsgi]\nlog-master=false\n'"
"""A file for uWSGI with which ``logger`` takes nothing from its output; to logto and daemonize, a reload is known."""
_HOMES = ("virtualenv", "venv", "home", "H", "pyhome")


def ask_uwsgi(arguments: Sequence[str]) -> NoReturn:
    """Let uWSGI print its options, from its command, its variables and its files. Write them down, or serve with them.

    As uWSGI itself says its options one by one, those of the address, of the application (which gets the wrapper) and
    of the machine can be left aside.
    """
    words = ["uwsgi", *arguments]
    program = real("uwsgi")
    if not program:
        tell("missing", program="uwsgi", words=words)
        sys.exit(0)
    plugin: list[str] = []
    if "--wsgi-file" not in said_by_uwsgi(program):  # as in Debian, where the plugin for Python is a file of its own
        plugins = (["--plugin", name] for name in ("python3", "python"))
        plugin = next((each for each in plugins if "--wsgi-file" in said_by_uwsgi(program, *each)), [])
    asked = [program, *plugin, "--show-config", *arguments, "--ini", _TO_OUTPUT]
    process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               env={**os.environ, "UWSGI_RELOADS": "0"})  # fmt: skip
    told: list[tuple[str, str]] = []
    inside = False
    assert process.stdout
    for line in process.stdout:
        inside = inside or line.startswith("[uwsgi]")
        if inside and line.startswith(";end"):
            break
        if inside and (found := re.match(r"([\w-]+) = (.*)$", line)):
            told.append((found[1], found[2]))
        elif not inside and _TO_OUTPUT not in line:
            sys.stderr.write(line)
    process.kill()
    told = [("processes" if name in ("workers", "p") else name, value) for name, value in told
            if (name, value) not in (("ini", _TO_OUTPUT), ("log-master", "false"))]  # fmt: skip
    said = dict(told)
    given = dict(value.partition("=")[::2] for name, value in told if name == "env")
    kinds = [(name, value, found.lastgroup or "" if (found := _OF_UWSGI.match(name)) else "") for name, value in told]
    aside = {name: f"{value}: {_REASONS[kind]}" for name, value, kind in kinds
             if kind in _REASONS and (kind != "address" or "/" in value)}  # fmt: skip
    release = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    served = {"server": "uwsgi", "settings": said, "callable": callable_of_uwsgi(said), "aside": aside,
              "release": "".join(re.findall(r"^[0-9]+(?:\.[0-9]+)*", release))}  # fmt: skip
    if inside and not os.environ.get("STAMPEDE_SERVES"):
        tell("server", **served, words=words, differ=[*said], env=given,
             chdir=os.path.realpath(said.get("chdir", ".")))  # fmt: skip
    elif inside and not (SERVED / "taken").exists():
        (SERVED / "taken").touch()
        serve_uwsgi(program, [(name, value) for name, value, kind in kinds if not kind], served)
    sys.exit(0)


def serve_uwsgi(program: str, kept: Sequence[tuple[str, str]], served: dict[str, Any]) -> NoReturn:
    """Become uWSGI with what is kept of its options, those of the way, its address and the wrapped application."""
    way = json.loads(os.environ["STAMPEDE_OPTIONS"] or "{}")
    stated = way.get("settings", {}).items() if way.get("server") == "uwsgi" else ()
    added = {name: str(value).lower() if isinstance(value, bool) else value for name, value in stated}
    said = served["settings"]
    lines = [(name, value) for name, value in kept  # but for an environment of Python that is not here
             if name not in added and (name not in _HOMES or Path(value).is_dir())]  # fmt: skip
    lines += added.items()
    if "LAB_FOLDER" in os.environ and sys.prefix != sys.base_prefix and not {*_HOMES} & {name for name, _ in lines}:
        lines = [("virtualenv", sys.prefix), *lines]  # of an image that exists
    map_socket = ("map-socket", "true") in lines
    lines = [pair for pair in lines if pair != ("map-socket", "true")]
    if map_socket:  # sockets count from 0, workers from 1
        counts = [int(value) for name, value in lines if name in ("processes", "workers") and str(value).isdecimal()]
        count = counts[-1] if counts else 1
        for place in range(count):
            lines += [("socket", f"0.0.0.0:{8000 + place}"), ("map-socket", f"{place}:{place + 1}")]
        lines += [("protocol", "http")]
    else:
        lines += [("http" if said.get("http") or said.get("https") else "http-socket", "0.0.0.0:8000")]
    lines += [("enable-threads", "true"), ("die-on-term", "true"), ("need-app", "true"),
              ("module", "stampede_uwsgi:application")]  # fmt: skip
    file = Path("/tmp/uwsgi.ini")
    file.write_text("[uwsgi]\n" + "".join(f"{name} = {value}\n" for name, value in lines), encoding="utf-8")
    in_force = {**dict(lines), "server": "uwsgi", "release": served["release"], "aside": served["aside"]}
    Path("/tmp/settings").write_text(json.dumps(in_force, indent=1) + "\n", encoding="utf-8")
    os.environ["STAMPEDE_CALLABLE"] = served["callable"]
    os.execv(program, [program, "--ini", str(file)])


def said_by_uwsgi(program: str, *options: str) -> str:
    """Return the help that uWSGI prints."""
    return subprocess.run([program, *options, "--help"], capture_output=True, text=True, check=False).stdout


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


def main() -> None:
    """Lay an image out, follow a command, serve it, or run another before it."""
    what, path, *further = sys.argv[1:]
    start = json.loads(Path(path).read_text(encoding="utf-8"))
    if what == "lay-out":
        lay_out(start, Path(*further or ["/"]))
    elif what == "follow":
        json.dump(follow({**start, **json.loads("".join(further) or "{}")}), sys.stdout)
    elif what == "before":
        sys.exit(run_before(start, further[0]))
    else:
        serve(start)


if __name__ == "__main__":
    main()

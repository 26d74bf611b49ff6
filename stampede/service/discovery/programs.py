"""Python programs that start a server themselves, and the scripts that a project names, as commands."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stampede.foreign import parse_python
from stampede.service.discovery.repository import SERVERS, Repository, Start
from stampede.service.discovery.settings import Known, Returned, Run

_RUNNERS = ("uv", "poetry", "pdm", "pipenv", "hatch", "rye", "poe", "task", "make", "pixi")
_ENTRY_POINT = re.compile(r"""["'\s]([\w-]+)\s*=\s*([A-Za-z_][\w.]*):([A-Za-z_]\w*)\s*["'\n]""")
"""A script of setup.py or setup.cfg: ``serve = shop.cli:main``."""
_RUNS = ("os.system", "system", "run", "call", "check_call", "Popen", "execvp", "execv", "execlp")


def command_of_project(
    words: Sequence[str], repository: Repository, folder: Path
) -> tuple[str | list[str], list[str]] | None:
    """Return what a script that the project names starts, and its arguments.

    It is a text for a shell, or the function ``[module, name]``.

    ``words`` are those of the command, such as ``poetry run serve``. None: the project names no such script.
    """
    runner = words[0].rpartition("/")[2]
    rest = [word for word in words[1:] if not word.startswith("-") and word not in ("run", "exec")]
    name = rest[0] if runner in _RUNNERS and rest else runner if runner not in _RUNNERS else ""
    for base in dict.fromkeys((folder, *folder.parents)):
        if name and base.is_relative_to(repository.folder):
            if runner == "make" and (recipe := _recipe(repository.text(base / "Makefile"), name)):
                return recipe, []
            if found := scripts_of(repository, base).get(name.rpartition(":")[2] if runner == "hatch" else name):
                return found, rest[1:] if runner in _RUNNERS else [*words[1:]]
    return None


def scripts_of(repository: Repository, base: Path) -> dict[str, str | list[str]]:
    """Return the scripts of a project by name: texts for a shell, or the function ``[module, name]``."""
    found: dict[str, str | list[str]] = {}
    for text in (repository.text(base / "setup.py"), repository.text(base / "setup.cfg")):
        found |= {name: [module, function] for name, module, function in _ENTRY_POINT.findall(text)}
    with suppress(tomllib.TOMLDecodeError, AttributeError):
        said = tomllib.loads(repository.text(base / "pyproject.toml"))
        tool = said.get("tool", {})
        for name, target in [*tool.get("poetry", {}).get("scripts", {}).items(),
                             *said.get("project", {}).get("scripts", {}).items()]:  # fmt: skip
            if isinstance(target, str):
                found[name] = [target.partition(":")[0], target.partition(":")[2].partition(".")[0]]
        tables = [tool.get("pdm", {}).get("scripts", {}), tool.get("rye", {}).get("scripts", {}),
                  tool.get("poe", {}).get("tasks", {}), tool.get("taskipy", {}).get("tasks", {}),
                  *(each.get("scripts", {}) for each in tool.get("hatch", {}).get("envs", {}).values())]  # fmt: skip
        for table in tables:
            found |= {name: text for name, each in table.items() if (text := _command(each))}
    for file, key in (("Pipfile", "scripts"), ("pixi.toml", "tasks")):
        with suppress(tomllib.TOMLDecodeError, AttributeError):
            scripts = tomllib.loads(repository.text(base / file)).get(key, {})
            found |= {name: text for name, each in scripts.items() if (text := _command(each))}
    return found


def _command(said: object) -> str:
    """Return a script of a project as a text for a shell: it may be a text, a list, or a table with one of them."""
    if isinstance(said, dict):
        said = said.get("cmd") or said.get("shell")
    return "\n".join(map(str, said)) if isinstance(said, list) else said if isinstance(said, str) else ""


def _recipe(makefile: str, target: str) -> str:
    values = dict(re.findall(r"^(\w+)\s*[:?]{0,2}=[ \t]*(.*?)[ \t]*$", makefile, re.MULTILINE))
    makefile = re.sub(r"\$[({](\w+)[)}]", lambda name: values.get(name[1], name[0]), makefile)
    found = re.search(rf"^{re.escape(target)}\s*:[^=\n]*\n((?:\t.*\n?|\s*\n)+)", makefile, re.MULTILINE)
    return re.sub(r"^\t[@-]*", "", found[1], flags=re.MULTILINE).replace("$$", "$") if found else ""


def start_of_program(start: Start, repository: Repository) -> Start | None:
    """Return the server that a command such as ``python main.py`` or ``python -m shop`` starts; None: not known."""
    words = [word for word in start.words if not re.fullmatch(r"-[uOBEIs]+", word)]
    if words[0].endswith(".py") or words[0] == "-m":  # as uv run takes them
        words = ["python", *words]
    if not re.fullmatch(r"(?:.*/)?python[\d.]*", words[0]) or len(words) == 1:
        return None
    if words[1] == "-m" and len(words) > 2:
        return start_of_module(start, words[2], "", repository, words[3:])
    if words[1] == "-c" and len(words) > 2:
        return _start(start, words[2], start.folder / "-c", "__main__", "", repository, ())
    path = repository.program_path(words[1], start)
    if not path:
        return None
    in_package = (path.parent / "__init__.py").is_file() or not path.is_relative_to(start.folder)
    parts = path.relative_to(start.folder if path.is_relative_to(start.folder) else repository.folder).parts
    folder, module = (start.folder, ".".join(parts)) if in_package else (path.parent, path.name)
    module = module.removesuffix(".py")
    return _start(replace(start, folder=folder), repository.text(path), path, module, "", repository, words[2:])


def start_of_module(
    start: Start, module: str, function: str, repository: Repository, arguments: Sequence[str]
) -> Start | None:
    """Return the server that a module starts, or a function of it, with arguments; None: not known."""
    parts = module.split(".")
    for base in dict.fromkeys((start.folder, repository.folder, start.folder / "src", repository.folder / "src")):
        for path in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__main__.py"),
                     base.joinpath(*parts, "__init__.py")):  # fmt: skip
            package = module if path.stem in ("__main__", "__init__") else module.rpartition(".")[0]
            text = repository.text(path) if path.is_file() else ""
            if found := _start(start, text, path, module, function, repository, arguments, package):
                return found
    return None


def _start(
    start: Start,
    text: str,
    path: Path,
    module: str,
    function: str,
    repository: Repository,
    arguments: Sequence[str],
    package: str = "",
) -> Start | None:
    """Return the server that a program starts: in the function, in one that an argument names, or anywhere.

    A server for development counts only if there is no other. If there are arguments such as ``server start``, a server
    elsewhere in the program is perhaps another one.
    """
    try:
        tree = parse_python(text)
    except SyntaxError:
        return None
    run = Run(start.environment, repository.cores, repository.modules(path))
    program = _Program(tree, run, module, package)
    plain = [word for word in arguments if not word.startswith("-")]
    names = {function, *(word.replace("-", "_") for word in plain)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in (*functions, *([] if plain else [tree])):
        if commands := sorted(program.commands(node), key=lambda words: "--reload" in words):
            return replace(start, words=commands[0])
        for source, name in program.further(node):
            if source != module and (found := start_of_module(start, source, name, repository, ())):
                return found
    return None


class _Program:
    """A Python program that was parsed, and is not run."""

    def __init__(self, tree: ast.Module, run: Run, module: str, package: str) -> None:
        self._module, self._run = module, run
        self._known: Known = {}
        with suppress(Returned):
            run.statements(tree.body, self._known)
        self._uses = {alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import)
                      for alias in node.names}  # fmt: skip
        self._imported: dict[str, str] = {}
        self._no_flask = {
            target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets if isinstance(target, ast.Name)
            if ast.unparse(node.value.func).rpartition(".")[2].endswith(("SocketIO", "Application", "Manager"))
        }  # fmt: skip
        self._own_gunicorns = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
            if any(re.search(r"\b(BaseApplication|WSGIApplication)$", ast.unparse(base)) for base in node.bases)
        }  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or node.level):
                parts = package.split(".") if package else []
                base = [*parts[: len(parts) - node.level + 1], node.module or ""] if node.level else [node.module or ""]
                source = ".".join(part for part in base if part)
                self._uses.add(source.partition(".")[0])
                self._imported |= {each.asname or each.name: f"{source}:{each.name}" for each in node.names}

    def commands(self, within: ast.AST) -> Iterator[list[str]]:
        """Yield the words of the commands that the calls of a program stand for."""
        local = _locals(within)
        for node in ast.walk(within):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                full = self._imported.get(called, called).replace(":", ".")
                if full in ("uvicorn.run", "uvicorn.Config"):
                    yield self._uvicorn(node, local)
                elif full == "waitress.serve":
                    yield self._waitress(node, local)
                elif full in ("granian.Granian", "granian.server.Granian"):
                    yield self._granian(node, local)
                elif full in ("hypercorn.asyncio.serve", "hypercorn.trio.serve"):
                    yield ["hypercorn", self._app(node.args[0], local)]
                elif called in self._own_gunicorns and len(node.args) > 1:
                    yield self._own_gunicorn(node.args[0], node.args[1], local)
                elif full == "werkzeug.serving.run_simple":
                    app = next((word.value for word in node.keywords if word.arg == "application"), None)
                    yield ["flask", "--app", self._app(app or node.args[2], local), "run"]
                elif full.rpartition(".")[2] in _RUNS and (words := self._words(node, local)):
                    yield words
                elif called.endswith(".run") and self._is_flask(called):
                    yield ["flask", "--app", self._app(node.func.value, local), "run"]  # type: ignore[attr-defined]

    def further(self, within: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield the functions of other modules that a program calls and whose names say that they start something."""
        for node in ast.walk(within):
            called = self._imported.get(ast.unparse(node.func), "") if isinstance(node, ast.Call) else ""
            source, _, name = called.partition(":")
            if re.search(r"run|main|serve|start|launch|cli", name):
                yield source, name

    def _is_flask(self, called: str) -> bool:
        name = called.partition(".")[0]
        return "flask" in self._uses and called.count(".") == 1 and name not in self._uses | self._no_flask

    def _uvicorn(self, node: ast.Call, local: Mapping[str, ast.expr]) -> list[str]:
        said, unread = self._keywords(node, local)
        app = node.args[0] if node.args else said.get("app")
        words = ["uvicorn", self._app(app, local)] if app else ["uvicorn"]
        for name in ("workers", "limit_concurrency", "limit_max_requests", "backlog", "timeout_keep_alive"):
            if name in said and not (isinstance(said[name], ast.Constant) and said[name].value is None):  # type: ignore[attr-defined]
                words += [f"--{name.replace('_', '-')}", self._value(said[name], local)]
        for name in ("factory", "reload"):
            if name in said and self._value(said[name], local) not in ("False", "None"):
                words.append(f"--{name}")
        return words + unread

    def _keywords(self, node: ast.Call, local: Mapping[str, ast.expr]) -> tuple[dict[str, ast.expr], list[str]]:
        """Return the keywords of a call, also of a ``**dict`` in the file, and those that cannot be read."""
        said: dict[str, ast.expr] = {}
        unread: list[str] = []
        for word in node.keywords:
            of = local.get(word.value.id, word.value) if isinstance(word.value, ast.Name) else word.value
            found = self._run.value(of, self._known)
            if word.arg:
                said[word.arg] = word.value
            elif isinstance(of, ast.Dict):
                said |= {str(key.value): each for key, each in zip(of.keys, of.values, strict=True)
                         if isinstance(key, ast.Constant)}  # fmt: skip
            elif found and isinstance(found.value, dict):
                said |= {name: ast.Constant(each) for name, each in found.value.items()}
            else:
                unread.append(f"**{ast.unparse(word.value)}")
        return said, unread

    def _granian(self, node: ast.Call, local: Mapping[str, ast.expr]) -> list[str]:
        said, unread = self._keywords(node, local)
        words = ["granian"]
        for name in ("workers", "blocking_threads", "backpressure"):
            words += [f"--{name.replace('_', '-')}", self._value(said[name], local)] if name in said else []
        if "interface" in said:  # a text, or Interfaces.ASGI
            words += ["--interface", self._value(said["interface"], local).rpartition(".")[2].lower()]
        words += ["--factory"] if "factory" in said and self._value(said["factory"], local) != "False" else []
        app = node.args[0] if node.args else said.get("target")
        return [*words, *([self._app(app, local)] if app else []), *unread]

    def _own_gunicorn(self, app: ast.expr, options: ast.expr, local: Mapping[str, ast.expr]) -> list[str]:
        """Return the command that an application of gunicorn in the program stands for, which is given settings."""
        said, unread = self._keywords(ast.Call(options, [], [ast.keyword(None, options)]), local)
        names = ("workers", "threads", "worker_class", "worker_connections", "timeout", "max_requests")
        words = [(f"--{name.replace('_', '-')}", self._value(said[name], local)) for name in names if name in said]
        return ["gunicorn", *(word for pair in words for word in pair), self._app(app, local), *unread]

    def _waitress(self, node: ast.Call, local: Mapping[str, ast.expr]) -> list[str]:
        threads = next((word.value for word in node.keywords if word.arg == "threads"), None)
        app = [self._app(node.args[0], local)] if node.args else []
        return ["waitress-serve", *(["--threads", self._value(threads, local)] if threads else []), *app]

    def _words(self, node: ast.Call, local: Mapping[str, ast.expr]) -> list[str]:
        """Return the command that a call such as ``os.execvp`` or ``subprocess.run`` starts, if it starts a server."""
        for each in node.args:
            each = local.get(each.id, each) if isinstance(each, ast.Name) else each  # noqa: PLW2901
            if isinstance(each, ast.List):
                words = [self._value(word, local) for word in each.elts]
                if {word.rpartition("/")[2] for word in words} & {*SERVERS}:
                    return words
            elif isinstance(each, ast.Constant | ast.JoinedStr) and re.search(
                r"\b(gunicorn|uvicorn|uwsgi) ", text := self._value(each, local)
            ):
                return ["sh", "-c", text]
        return []

    def _value(self, node: ast.expr, local: Mapping[str, ast.expr]) -> str:
        """Return the value of an expression as a text; if it cannot be computed, the expression."""
        known = dict(self._known)
        for name, value in local.items():
            known[name] = self._run.value(value, known)
        found = self._run.value(node, known)
        return ast.unparse(node) if found is None else str(found.value)

    def _app(self, node: ast.expr, local: Mapping[str, ast.expr]) -> str:
        """Return a module and a callable for the application that a call is given."""
        if isinstance(node, ast.Name):
            if node.id in self._imported:
                return self._imported[node.id]
            if node.id in local:
                return self._app(local[node.id], {})
            is_text = (text := self._known.get(node.id)) and isinstance(text.value, str)
            return str(text.value) if text and is_text else f"{self._module}:{node.id}"
        if isinstance(node, ast.Call) and any(isinstance(each, ast.Name) for each in node.args):
            return f"{self._module}:{ast.unparse(node)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return f"{self._app(node.func, {})}({', '.join(map(ast.unparse, [*node.args, *node.keywords]))})"
        return self._value(node, local)


def _locals(within: ast.AST) -> dict[str, ast.expr]:
    """Return what the names that are local to a function are assigned."""
    if isinstance(within, ast.Module):
        bodies: list[Any] = [node for node in within.body if isinstance(node, ast.If)]
        bodies += [node for node in within.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    else:
        bodies = [within]
    return {
        node.targets[0].id: node.value
        for body in bodies for node in ast.walk(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }  # fmt: skip

"""The settings of a Python settings file, computed without running it, and those of uWSGI's ini file."""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int, "str": str, "float": float, "min": min, "max": max, "round": round, "bool": bool,
}  # fmt: skip
_CORES = ("multiprocessing.cpu_count()", "cpu_count()", "os.cpu_count()", "len(os.sched_getaffinity(0))",
          "os.process_cpu_count()", "mp.cpu_count()")  # fmt: skip
_VARIABLES = ("os.environ.get", "os.getenv", "environ.get", "getenv", "env.get", "env")


class Setting(NamedTuple):
    """The value of a setting; ``of_cores``: it was computed from the number of cores. None: it is not known."""

    value: Any
    of_cores: bool = False


def settings_of(text: str, environment: Mapping[str, str], cores: int) -> dict[str, Setting | None]:
    """Return the settings at the top of a Python file, by name. A setting that cannot be computed has no value."""
    found: dict[str, Setting | None] = {}
    with suppress(SyntaxError):
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1:
                found[node.targets[0].id] = _setting(node.value, found, environment, cores)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found[node.target.id] = _setting(node.value, found, environment, cores)
    return found


def _setting(
    node: ast.expr, known: Mapping[str, Setting | None], environment: Mapping[str, str], cores: int
) -> Setting | None:
    of_cores = False

    def value(node: ast.expr) -> Any:  # noqa: ANN401, PLR0911  # a setting may be anything; a case for each kind
        nonlocal of_cores
        text = ast.unparse(node)
        if text in _CORES:
            of_cores = True
            return cores
        if isinstance(node, ast.Name):
            if (found := known.get(node.id)) is None:
                raise ValueError(text)
            of_cores = of_cores or found.of_cores
            return found.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return next((found for part in node.values if (found := value(part))), None)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
            return environment[ast.literal_eval(node.slice)]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _VARIABLES and node.args:
            name = ast.literal_eval(node.args[0])
            return environment[name] if name in environment else value(node.args[1]) if node.args[1:] else None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _FUNCTIONS and not node.keywords:
            return _FUNCTIONS[ast.unparse(node.func)](*map(value, node.args))
        return ast.literal_eval(node)

    try:
        return Setting(value(node), of_cores)
    except (ValueError, TypeError, KeyError, ZeroDivisionError, ArithmeticError):
        return None


def ini_settings(text: str, cores: int) -> Iterator[tuple[str, str]]:
    """Yield the options of uWSGI's ini file, with ``%k`` (cores) and ``%(name)`` (an earlier option) in their place."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        stated = re.match(r"\s*([\w-]+)\s*(?:=\s*(.*?))?\s*$", line)
        if line.lstrip().startswith(("#", ";", "[")) or not stated:
            continue
        value = re.sub(
            r"%\((\w+)\)", lambda name: found.get(name[1], name[0]), (stated[2] or "true").replace("%k", str(cores))
        )
        found[stated[1]] = value
        yield stated[1], value

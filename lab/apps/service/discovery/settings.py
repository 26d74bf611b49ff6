"""The settings of a Python settings file, computed without running it, and those of uWSGI's ini file."""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int, "str": str, "float": float, "min": min, "max": max, "round": round, "bool": bool,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right, ast.NotIn: lambda left, right: left not in right,
}  # fmt: skip
_FROM_VARIABLES = re.compile(r"os\.environ\.items\(\)(?:.|\n){0,200}GUNICORN_")
"""A loop that takes each variable such as GUNICORN_WORKERS as a setting."""
_CORES = ("multiprocessing.cpu_count()", "cpu_count()", "os.cpu_count()", "len(os.sched_getaffinity(0))",
          "os.process_cpu_count()", "mp.cpu_count()", "m.cpu_count()")  # fmt: skip
_ENVIRONMENTS = ("os.environ", "environ", "env")
_VARIABLES = ("os.environ.get", "os.getenv", "environ.get", "getenv", "env.get", "env")


class Setting(NamedTuple):
    """The value of a setting; ``of_cores``: it was computed from the number of cores. None: it is not known.

    ``run``: gunicorn has run the file.
    """

    value: Any
    of_cores: bool = False
    run: bool = False


def settings_of(text: str, environment: Mapping[str, str], cores: int) -> dict[str, Setting | None]:
    """Return the settings at the top of a Python file, by name. A setting that cannot be computed has no value."""
    found: dict[str, Setting | None] = {}
    with suppress(SyntaxError, ValueError):
        _note_all(ast.parse(text).body, found, environment, cores)
    if _FROM_VARIABLES.search(text):
        found |= {name.removeprefix("GUNICORN_").lower(): Setting(value) for name, value in environment.items()
                  if name.startswith("GUNICORN_") and name != "GUNICORN_CMD_ARGS"}  # fmt: skip
    return found


def _note_all(
    nodes: Iterable[ast.stmt], found: dict[str, Setting | None], environment: Mapping[str, str], cores: int
) -> None:
    """Note what statements assign; if nobody knows which branch is taken, what the branches assign is not known."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1:
            found[node.targets[0].id] = setting_of(node.value, found, environment, cores)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = setting_of(node.value, found, environment, cores)
        elif isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return) and node.body[-1].value:
            inner = dict(found)
            _note_all(node.body[:-1], inner, environment, cores)
            found[f"{node.name}()"] = setting_of(node.body[-1].value, inner, environment, cores)
        elif isinstance(node, ast.If):
            is_true = setting_of(node.test, found, environment, cores)
            if is_true is not None:
                _note_all(node.body if is_true.value else node.orelse, found, environment, cores)
            else:
                found |= dict.fromkeys(_names_in([*node.body, *node.orelse]))
        elif isinstance(node, ast.Try):
            _note_all(node.body, found, environment, cores)
            if any(found.get(name) is None for name in _names_in(node.body)):
                for handler in node.handlers[:1]:
                    _note_all(handler.body, found, environment, cores)
        elif isinstance(node, ast.AugAssign | ast.For | ast.While | ast.With):
            found |= dict.fromkeys(_names_in([node]))


def _names_in(nodes: Iterable[ast.stmt]) -> list[str]:
    """Return the names that statements assign."""
    return [each.id for node in nodes for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]  # fmt: skip


def setting_of(
    node: ast.expr, known: Mapping[str, Setting | None], environment: Mapping[str, str], cores: int
) -> Setting | None:
    """Return the value of an expression; None: it cannot be computed without running the file."""
    of_cores = False

    def value(node: ast.expr) -> Any:  # noqa: ANN401, PLR0911, PLR0912  # a case for each kind of expression
        nonlocal of_cores
        text = ast.unparse(node)
        if text in _CORES:
            of_cores = True
            return cores
        is_name = isinstance(node, ast.Name) and text not in _ENVIRONMENTS
        if is_name or (isinstance(node, ast.Call) and text in known):
            if (found := known.get(text)) is None:
                raise ValueError(text)
            of_cores = of_cores or found.of_cores
            return found.value
        match node:
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return _OPERATORS[type(node.op)](value(node.left), value(node.right))
            case ast.BoolOp():
                is_or, last = isinstance(node.op, ast.Or), None
                for part in node.values:
                    last = value(part)
                    if bool(last) == is_or:
                        break
                return last
            case ast.UnaryOp(op=ast.Not()):
                return not value(node.operand)
            case ast.IfExp():
                return value(node.body if value(node.test) else node.orelse)
            case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
                return _COMPARISONS[type(node.ops[0])](value(node.left), value(node.comparators[0]))
            case ast.JoinedStr():
                return "".join(str(value(part)) for part in node.values)
            case ast.FormattedValue():
                return str(value(node.value))
            case ast.Tuple() | ast.List():
                return [value(part) for part in node.elts]
            case ast.Subscript() if ast.unparse(node.value) in _ENVIRONMENTS:
                return environment[ast.literal_eval(node.slice)]
            case ast.Name() | ast.Attribute() if text in _ENVIRONMENTS:
                return dict(environment)
            case ast.Call() if ast.unparse(node.func) in _VARIABLES and node.args:
                name = ast.literal_eval(node.args[0])
                otherwise = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "default")]
                return environment[name] if name in environment else value(otherwise[0]) if otherwise else None
            case ast.Call() if ast.unparse(node.func) in _FUNCTIONS and not node.keywords:
                return _FUNCTIONS[ast.unparse(node.func)](*map(value, node.args))
            case ast.Call(func=ast.Attribute(attr="lower" | "upper" | "strip" as name), args=[]):
                return getattr(str(value(node.func.value)), name)()  # type: ignore[attr-defined]
            case _:
                return ast.literal_eval(node)

    try:
        return Setting(value(node), of_cores)
    except (ValueError, TypeError, KeyError, ZeroDivisionError, ArithmeticError):
        return None


def uwsgi_settings(text: str, suffix: str, cores: int) -> Iterator[tuple[str, str]]:
    """Yield the options of uWSGI's settings file, whose suffix says whether it is an ini file, YAML or JSON."""
    if suffix == ".ini":
        yield from ini_settings(text, cores)
        return
    with suppress(yaml.YAMLError, AttributeError):  # JSON is YAML
        for name, value in (yaml.safe_load(text) or {}).get("uwsgi", {}).items():
            yield str(name), str(value).lower() if isinstance(value, bool) else str(value)


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

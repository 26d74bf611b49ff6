"""The settings of a Python settings file, computed without running it."""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stampede.foreign import parse_json, parse_python

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int, "str": str, "float": float, "min": min, "max": max, "round": round, "bool": bool, "len": len,
    "math.ceil": math.ceil, "math.floor": math.floor, "json.loads": parse_json, "abs": abs,
    "pow": lambda base, power: _bounded(base) ** power if abs(power) < _LARGEST_POWER else _bounded(math.inf),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right, ast.NotIn: lambda left, right: left not in right,
}  # fmt: skip
_METHODS = ("lower", "upper", "strip", "split", "startswith", "endswith", "isdigit", "isdecimal", "get")
_FROM_VARIABLES = re.compile(r"os\.environ\.items\(\)(?:.|\n){0,200}GUNICORN_")
"""A loop that takes each variable such as GUNICORN_WORKERS as a setting."""
_SETS_ANY = re.compile(r"^(?:exec|globals|locals|vars)\(|\((?:globals|locals|vars)\(\)")
"""A statement that may set any name."""
ANY = "*"
"""The name under which is noted that what was not read may set any name."""
_CORES = ("multiprocessing.cpu_count()", "cpu_count()", "os.cpu_count()", "len(os.sched_getaffinity(0))",
          "os.process_cpu_count()", "psutil.cpu_count()")  # fmt: skip
_ENVIRONMENTS = ("os.environ", "environ", "env")
_VARIABLES = re.compile(
    r"(?:(?:os\.)?environ|env)\.get|(?:os\.)?getenv|env(?:\.(?P<type>int|str|bool|float))?|(?:decouple\.)?config"
)
"""What returns a variable of the environment: of Python itself, environs, django-environ, decouple and Starlette."""
_LARGEST_POWER = 64
_MOST, _LONGEST = 1 << 63, 1 << 14
"""How large a number and how long a text or a list may be that a settings file computes."""
_FALSE = ("", "0", "false", "no", "off", "n", "f")


class Setting(NamedTuple):
    """The value of a setting; ``of_cores``: it was computed from the number of cores. None: it is not known.

    ``run``: gunicorn has run the file.
    """

    value: Any
    of_cores: bool = False
    run: bool = False


Known = dict[str, Setting | None]


def _unknown(*_: object) -> None:
    """Return nothing: no function is known."""


class Returned(Exception):  # a function returns
    """A function returns a value, which may not be known."""

    def __init__(self, setting: Setting | None) -> None:
        super().__init__()
        self.setting = setting


def settings_of(
    text: str, environment: Mapping[str, str], cores: int, modules: Callable[[str], str] = lambda _: ""
) -> Known:
    """Return the settings at the top of a Python file, by name. A setting that cannot be computed has no value.

    ``modules`` returns the text of a module that the file imports. If something that was not read may set any name,
    the name ANY is there.
    """
    found: Known = {}
    with suppress(SyntaxError, ValueError, RecursionError, Returned):
        Run(environment, cores, modules).statements(parse_python(text).body, found)
    if _FROM_VARIABLES.search(text):
        found.pop(ANY, None)
        found |= {name.removeprefix("GUNICORN_").lower(): Setting(value) for name, value in environment.items()
                  if name.startswith("GUNICORN_") and name != "GUNICORN_CMD_ARGS"}  # fmt: skip
    return found


@dataclass
class Run:
    """The statements of a file, as far as their effects are known."""

    environment: Mapping[str, str]
    cores: int
    modules: Callable[[str], str]
    aliases: dict[str, str] = field(default_factory=dict)

    def statements(self, nodes: Iterable[ast.stmt], found: Known) -> None:
        """Note what statements assign; if nobody knows which branch is taken, what the branches assign is not known."""
        for node in nodes:
            self._statement(node, found)

    def _statement(self, node: ast.stmt, found: Known) -> None:  # noqa: PLR0912  # a case for each kind of statement
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, found)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                left = ast.Name(name, ast.Load())
                found[name] = self.value(ast.BinOp(left, op, value), found)
            case ast.Import() | ast.ImportFrom():
                self._import(node, found)
            case ast.FunctionDef(name=name):
                found[f"{name}()"] = Setting(node)
            case ast.ClassDef(name=name, body=body):
                self._class(node, found)
            case ast.Return(value=said):
                raise Returned(self.value(said, found) if said else Setting(None))
            case ast.If(test=test, body=body, orelse=otherwise):
                self._if(self.value(test, found), body, otherwise, found)
            case ast.Try(body=body, handlers=handlers):
                self.statements(body, found)
                if any(found.get(name) is None for name in _names_in(body)):
                    self.statements([each for handler in handlers[:1] for each in handler.body], found)
            case ast.For() | ast.While() | ast.With() | ast.Match():
                self._unknown([node], found)
            case ast.Delete(targets=targets):
                for target in targets:
                    found.pop(ast.unparse(target), None)
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if function := found.get(f"{name}()"):
                found |= dict.fromkeys(
                    name for each in ast.walk(function.value) if isinstance(each, ast.Global) for name in each.names
                )
            case ast.Expr(value=value) if _SETS_ANY.search(self._named(value)):
                self._unknown([node], found)

    def _if(self, is_true: Setting | None, body: list[ast.stmt], otherwise: list[ast.stmt], found: Known) -> None:
        if is_true is not None:
            return self.statements(body if is_true.value else otherwise, found)
        if any(isinstance(each, ast.Return) for node in [*body, *otherwise] for each in ast.walk(node)):
            raise Returned(None)
        self._unknown([*body, *otherwise], found)
        return None

    def _unknown(self, nodes: list[ast.stmt], found: Known) -> None:
        """Note that nobody knows what statements assign."""
        found |= dict.fromkeys(_names_in(nodes))
        if any(_SETS_ANY.search(ast.unparse(each)) for node in nodes for each in ast.walk(node)
               if isinstance(each, ast.Expr | ast.Subscript)):  # fmt: skip
            found.clear()
            found[ANY] = None

    def _assign(self, target: ast.expr, value: ast.expr, found: Known) -> None:
        match target:
            case ast.Name(id=name):
                found[name] = self.value(value, found)
                made = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
                found |= {name + key.removeprefix(made): found[key] for key in [*found]
                          if made and key.startswith(f"{made}.")}  # fmt: skip
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, ast.Tuple | ast.List):
                for part, each in zip(parts, value.elts, strict=False):
                    self._assign(part, each, found)
            case ast.Tuple() | ast.List():
                found |= {each.id: None for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.Subscript(value=ast.Call(), slice=ast.Constant(value=str(name))) if _SETS_ANY.search(
                ast.unparse(target)
            ):
                found[name] = self.value(value, found)
            case ast.Subscript() if _SETS_ANY.search(ast.unparse(target)):
                found[ANY] = None

    def _import(self, node: ast.Import | ast.ImportFrom, found: Known) -> None:
        """Note the names of modules and, if the repository has a module, the values of its names."""
        module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for each in node.names:
            source = module or each.name
            name = each.asname or each.name
            if not (text := self.modules(source)):
                self.aliases[name] = f"{module}.{each.name}" if module else each.name
                if each.name == "*" and source not in ("multiprocessing", "os"):
                    found[ANY] = None
                continue
            inner = settings_of(text, self.environment, self.cores, lambda _: "")
            if each.name == "*":
                found |= inner
            elif not module:
                found |= {f"{name}.{key}": value for key, value in inner.items()}
            else:
                found[name] = inner.get(each.name)
                found |= {name + key.removeprefix(each.name): value for key, value in inner.items()
                          if key.startswith((f"{each.name}.", f"{each.name}("))}  # fmt: skip

    def _class(self, node: ast.ClassDef, found: Known) -> None:
        """Note the values of a class. Those of pydantic's settings may come from the environment."""
        inner: Known = {}
        with suppress(Returned):
            self.statements([each for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)], inner)
        if any("BaseSettings" in ast.unparse(base) for base in node.bases):
            said = {name.lower(): value for name, value in self.environment.items()}
            inner |= {name: Setting(said[name.lower()]) for name in inner if name.lower() in said}
        found |= {f"{node.name}.{name}": value for name, value in inner.items()}

    def _named(self, node: ast.expr) -> str:
        """Return the text of an expression with the full names of what was imported."""
        return ast.unparse(_Renamed(self.aliases).visit(ast.parse(ast.unparse(node), mode="eval")))

    def value(self, node: ast.expr, known: Mapping[str, Setting | None]) -> Setting | None:
        """Return the value of an expression; None: it is not known."""
        renamed = ast.parse(self._named(node), mode="eval").body
        return setting_of(renamed, known, self.environment, self.cores, self._called)

    def _called(
        self, function: ast.FunctionDef, arguments: Mapping[str, Any], known: Mapping[str, Setting | None]
    ) -> Setting | None:
        inner = dict(known)
        names = [each.arg for each in function.args.args]
        for name, each in zip(reversed(names), reversed(function.args.defaults), strict=False):
            inner[name] = self.value(each, inner)
        inner |= {names[int(key)] if key.isdecimal() else key: Setting(value) for key, value in arguments.items()}
        try:
            self.statements(function.body, inner)
        except Returned as returned:
            return returned.setting
        return Setting(None)


class _Renamed(ast.NodeTransformer):
    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases

    def visit_Name(self, node: ast.Name) -> ast.expr:
        full = self._aliases.get(node.id)
        return ast.parse(full, mode="eval").body if full and not full.startswith(".") else node


def _names_in(nodes: Iterable[ast.stmt]) -> list[str]:
    """Return the names that statements assign."""
    return [each.id for node in nodes for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]  # fmt: skip


def setting_of(
    node: ast.expr, known: Mapping[str, Setting | None], environment: Mapping[str, str], cores: int,
    called: "Callable[[ast.FunctionDef, Mapping[str, Any], Mapping[str, Setting | None]], Setting | None]" = _unknown,
) -> Setting | None:  # fmt: skip
    """Return the value of an expression; None: it cannot be computed without running the file.

    ``called`` returns what a function of the file returns for its arguments.
    """
    expression = _Expression(known, environment, cores, called)
    try:
        return Setting(_bounded(expression.value(node)), expression.of_cores)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError):
        return None


def _bounded(value: Any) -> Any:  # noqa: ANN401  # of any type
    """Return a value. Raise ValueError if it is larger than a setting is: no file shall take all memory."""
    if isinstance(value, int | float) and not -_MOST < value < _MOST:
        raise ValueError("too large a number")
    if hasattr(value, "__len__") and len(value) > _LONGEST:
        raise ValueError("too long")
    return value


def _operated(operation: ast.operator, left: Any, right: Any) -> Any:  # noqa: ANN401  # of any type
    """Return the result of an operation. Raise ValueError if it may be larger than a setting is."""
    of_numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(operation, ast.LShift) and right > _LARGEST_POWER:
        raise ValueError("too large a number")
    is_formatted = isinstance(operation, ast.Mod) and isinstance(left, str) and not re.search(r"%\W*(\d{4}|\*)", left)
    if isinstance(operation, ast.Mult | ast.Mod) and not of_numbers and not is_formatted:
        raise ValueError("a text or a list that is repeated")
    return _bounded(_OPERATORS[type(operation)](left, right))


@dataclass
class _Expression:
    """An expression and what it may name. A value that cannot be computed raises one of several errors."""

    known: Mapping[str, Setting | None]
    environment: Mapping[str, str]
    cores: int
    called: Callable[[ast.FunctionDef, Mapping[str, Any], Mapping[str, Setting | None]], Setting | None]
    of_cores: bool = False

    def _settled(self, found: Setting | None, text: str) -> Any:  # noqa: ANN401  # a setting may have any value
        if found is None:
            raise ValueError(text)
        self.of_cores = self.of_cores or found.of_cores
        return found.value

    def _variable(self, node: ast.Call, kind: str) -> Any:  # noqa: ANN401
        """Return a variable of the environment, or what the call says for its absence, in the type of the call."""
        name, function = str(self.value(node.args[0])), ast.unparse(node.func)
        words = {word.arg: word.value for word in node.keywords}
        otherwise = node.args[1] if node.args[1:] else words.get("default")
        said = node.args[2] if node.args[2:] else words.get("cast")
        cast = kind or (ast.unparse(said) if said else "")
        if name not in self.environment and otherwise is None:
            if cast or not function.endswith(("get", "getenv")):
                raise ValueError(name)
            return None
        found = self.environment[name] if name in self.environment or otherwise is None else self.value(otherwise)
        if cast == "bool":
            return str(found).lower() not in _FALSE
        return _FUNCTIONS[cast](found) if cast else found

    def _call(self, node: ast.Call) -> Any:  # noqa: ANN401
        function = ast.unparse(node.func)
        if own := self.known.get(f"{function}()"):
            arguments = {str(place): self.value(each) for place, each in enumerate(node.args)}
            arguments |= {word.arg: self.value(word.value) for word in node.keywords if word.arg}
            return self._settled(self.called(own.value, arguments, self.known), function)
        if node.args and (found := _VARIABLES.fullmatch(function)):
            return self._variable(node, found["type"] or "")
        if function == "Field":  # pydantic's
            return self.value([*node.args, *(word.value for word in node.keywords if word.arg == "default")][0])
        if function in _FUNCTIONS and not node.keywords:
            return _FUNCTIONS[function](*map(self.value, node.args))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            return getattr(self.value(node.func.value), node.func.attr)(*map(self.value, node.args))
        raise ValueError(function)

    def value(self, node: ast.expr) -> Any:  # noqa: ANN401, PLR0911, PLR0912  # a case for each kind of expression
        """Return the value of an expression, which may be of any type."""
        text, value = ast.unparse(node), self.value
        if text in _CORES:
            self.of_cores = True
            return self.cores
        if text in _ENVIRONMENTS:
            return dict(self.environment)
        if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and text in self.known):
            return self._settled(self.known.get(text), text)
        match node:
            case ast.Call():
                return self._call(node)
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int(power))) if power < _LARGEST_POWER:
                return _bounded(_bounded(value(node.left)) ** power)
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return _operated(node.op, value(node.left), value(node.right))
            case ast.BoolOp():
                is_or, last = isinstance(node.op, ast.Or), None
                for part in node.values:
                    last = value(part)
                    if bool(last) == is_or:
                        break
                return last
            case ast.UnaryOp(op=ast.Not()):
                return not value(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -value(node.operand)
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
            case ast.Dict():
                return {value(key): value(each) for key, each in zip(node.keys, node.values, strict=True) if key}
            case ast.Subscript():
                return value(node.value)[value(node.slice)]
            case _:
                return ast.literal_eval(node)

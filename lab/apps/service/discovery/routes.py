"""The routes in the source of an application: decorators, routers, blueprints, Starlette's lists and Django's URLs."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_METHODS = ("route", "get", "post", "put", "patch", "delete")
_PREFIXED = {"APIRouter": "prefix", "Blueprint": "url_prefix", "Router": "path"}
_INCLUDES = {"include_router": "prefix", "register_blueprint": "url_prefix"}


@dataclass
class _Module:
    """What a file says of routes. ``prefixes`` are those of its routers, by their names."""

    name: str
    routes: list[tuple[str, str, str]] = field(default_factory=list)
    """The name of the router, the method and the path of each route."""
    prefixes: dict[str, str] = field(default_factory=dict)
    urls: list[tuple[str, str]] = field(default_factory=list)
    """The path of each of Django's URLs, and the module that it includes; empty: it is a view."""


def routes_of(sources: Sequence[Path], folder: Path) -> list[tuple[str, str]]:
    """Return the method and the path of each route in source files, in their order."""
    modules: list[_Module] = []
    included: dict[str, str] = {}
    for path in sources:
        with suppress(OSError, SyntaxError, ValueError, RecursionError):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            modules.append(_read(tree, _Module(name), included))
    found = [
        (method, included.get(_tail(module, router), included.get(router, "")) + module.prefixes.get(router, "") + path)
        for module in modules
        for router, method, path in module.routes
    ]
    found += [("get", path) for module in modules if module.urls and not _is_included(module, modules)
              for path in _urls(module, modules, "/", 0)]  # fmt: skip
    return [*dict.fromkeys((method, path or "/") for method, path in found)]


def _tail(module: _Module, router: str) -> str:
    return f"{module.name.rpartition('.')[2]}.{router}"


def _read(tree: ast.Module, module: _Module, included: dict[str, str]) -> _Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            module.routes += [route for each in node.decorator_list for route in _decorated(each)]
        elif (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
        ):
            if (key := _PREFIXED.get(_called(node.value))) and (prefix := _keyword(node.value, key)):
                module.prefixes[node.targets[0].id] = prefix.rstrip("/")
        elif isinstance(node, ast.Call):
            _read_call(node, module, included)
    return module


def _read_call(node: ast.Call, module: _Module, included: dict[str, str]) -> None:
    called, first = _called(node), _text(node.args[0]) if node.args else None
    if called in _INCLUDES and node.args:
        if prefix := _keyword(node, _INCLUDES[called]):
            included[".".join(ast.unparse(node.args[0]).split(".")[-2:])] = prefix.rstrip("/")
    elif called == "Route" and first and first.startswith("/"):
        module.routes.append(("", "get", first))
    elif called in ("path", "re_path", "url") and first is not None and len(node.args) > 1:
        target = node.args[1]
        includes = isinstance(target, ast.Call) and _called(target) == "include" and target.args
        inner = _text(target.args[0]) if includes and isinstance(target, ast.Call) else None
        if not includes or inner:
            module.urls.append((first if called == "path" else f"<{first}>", inner or ""))


def _decorated(node: ast.expr) -> Iterator[tuple[str, str, str]]:
    """Yield the route of a decorator such as ``@router.get("/items")``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and node.args:
        path = _text(node.args[0])
        if path is not None and (path.startswith("/") or not path):
            method = "get" if node.func.attr == "route" else node.func.attr
            stated = next((word.value for word in node.keywords if word.arg == "methods"), None)
            with suppress(ValueError):
                methods = [str(each).lower() for each in ast.literal_eval(stated)] if stated else []
                method = method if not methods or "get" in methods else methods[0]
            yield ast.unparse(node.func.value), method, path


def _urls(module: _Module, modules: Sequence[_Module], before: str, depth: int) -> Iterator[str]:
    """Yield the paths of Django's URLs, with those of the modules that they include."""
    for path, inner in module.urls:
        if not inner:
            yield before + path
        elif depth < 5:  # so that modules that include each other end
            for other in modules:
                if other.urls and (other.name == inner or other.name.endswith(f".{inner}")):
                    yield from _urls(other, modules, before + path, depth + 1)


def _is_included(module: _Module, modules: Sequence[_Module]) -> bool:
    return any(inner and (module.name == inner or module.name.endswith(f".{inner}"))
               for other in modules for _, inner in other.urls)  # fmt: skip


def _called(node: ast.Call) -> str:
    return (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )


def _keyword(node: ast.Call, name: str) -> str | None:
    return next((_text(word.value) for word in node.keywords if word.arg == name), None)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

"""The routes in the source of an application: what its routers, blueprints, controllers, mounts and URLs answer.

An owner is what routes belong to: a router, an application, a list of routes, or a class, as ``module:name``. An owner
that is included by another has the paths of the other before its own.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stampede.errors import WrongUse
from stampede.foreign import parse_python, read_text

_METHODS = ("get", "post", "put", "patch", "delete")
_OWN = {"APIRouter": "prefix", "Blueprint": "url_prefix", "Router": "path", "Litestar": "path", "Namespace": "path",
        "Api": "prefix", "namespace": "path", "NinjaAPI": "", "FastAPI": ""}  # fmt: skip
"""What has routes, and the argument that says the path before all of them."""
_INCLUDES = {"include_router": "prefix", "register_blueprint": "url_prefix", "add_namespace": "path",
             "add_router": "prefix"}  # fmt: skip
_ADDS = ("add_route", "add_api_route", "add_url_rule")
_FUNCTIONS_FROM = ("litestar", "starlite", "bottle")
"""Packages whose decorators stand without a router: ``@get("/items")``."""
_URLS = ("path", "re_path", "url")
_DEEPEST = 6
"""How often routers may include each other."""


@dataclass
class _Module:
    """A file that was parsed. ``imports`` are the absolute names of what it imports, with the line of each."""

    name: str
    tree: ast.Module
    is_package: bool
    imports: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    assigned: dict[str, ast.expr | None] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)


def routes_of(sources: Sequence[Path], folder: Path) -> list[tuple[str, str]]:
    """Return the method and the path of each route in source files, in their order.

    What only the running application knows of a path stands in braces, such as ``{settings.prefix}``.
    """
    modules = []
    for path in sources:
        with suppress(WrongUse, SyntaxError, ValueError, RecursionError):
            tree = parse_python(read_text(path))
            name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            modules.append(_module(name, tree, is_package=path.name == "__init__.py"))
    found = _Routes(modules)
    with suppress(RecursionError):
        for module in modules:
            found.read(module)
    return found.all()


def _module(name: str, tree: ast.Module, *, is_package: bool) -> _Module:
    module = _Module(name, tree, is_package)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = name.split(".") if is_package else name.split(".")[:-1]
            base = ".".join(
                [*package[: len(package) - node.level + 1], node.module or ""] if node.level else [node.module or ""]
            )
            for each in node.names:
                module.imports[each.asname or each.name].append(
                    (node.lineno, f"{base.strip('.')}.{each.name}".strip("."))
                )
        elif isinstance(node, ast.Import):
            for each in node.names:
                target = each.name if each.asname else each.name.partition(".")[0]
                module.imports[each.asname or target].append((node.lineno, target))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            module.assigned[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            module.assigned[node.target.id] = node.value
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            module.assigned.setdefault(node.name, None)
    return module


class _Routes:
    """The routes of all modules, by their owners."""

    def __init__(self, modules: Sequence[_Module]) -> None:
        self._modules = {module.name: module for module in modules}
        self._routes: list[tuple[str, str, str]] = []
        """The owner, the method and the path of each route."""
        self._own: dict[str, str] = {}
        self._within: dict[str, list[tuple[str, str | None, bool]]] = defaultdict(list)
        """What an owner is included by, the path there, and whether that path takes the place of the owner's own."""
        self._constants: dict[str, set[str]] = defaultdict(set)
        for module in modules:
            for name, value in module.assigned.items():
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    self._constants[name].add(value.value)

    def all(self) -> list[tuple[str, str]]:
        """Return the method and the path of each route."""
        found: dict[tuple[str, str], None] = {}
        for owner, method, path in self._routes:
            for before in self._before(owner, 0):
                whole = f"{before}{path}".replace("//", "/")
                found[method, whole if whole.startswith(("/", "<", "{")) else f"/{whole}"] = None
        return [*found]

    def _before(self, owner: str, depth: int) -> Iterator[str]:
        own = self._own.get(owner, "")
        parents = self._within.get(owner, []) if depth < _DEEPEST else []
        for parent, path, replaces in parents:
            inner = path if replaces and path is not None else (path or "") + own
            yield from (before + inner for before in self._before(parent, depth + 1) if parent != owner)
        if not parents and self._is_served(owner):
            yield own

    def _is_served(self, owner: str) -> bool:
        """Return whether Django serves an owner that nothing includes: no URLs but those of its ROOT_URLCONF."""
        roots = {self._module_name(name) for name in self._constants["ROOT_URLCONF"]} & {*self._modules}
        module, _, name = owner.rpartition(":")
        return name != "urlpatterns" or not roots or module in roots

    def read(self, module: _Module) -> None:
        """Take what a module says of routes."""
        branches = [node for node in ast.walk(module.tree) if isinstance(node, ast.If)]
        debugs = [node for node in branches if "DEBUG" in ast.unparse(node.test)]
        left_out = {id(inner) for node in debugs for each in node.body for inner in ast.walk(each)}
        nodes = [node for node in ast.walk(module.tree) if hasattr(node, "lineno") and id(node) not in left_out]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):  # type: ignore[attr-defined]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._take_decorators(module, node)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name):
                    self._take_assignment(module, f"{module.name}:{target.id}", node.value)
            elif isinstance(node, ast.Call):
                self._take_call(module, node)

    def _take_decorators(self, module: _Module, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """Take the decorators of a function or a class, such as ``@router.get("/items")``."""
        if isinstance(node, ast.ClassDef):
            owner = f"{module.name}:{node.name}"
            for inner in node.body:
                if isinstance(inner, ast.Assign | ast.AnnAssign) and inner.value and _assigns(inner, "path"):
                    self._own[owner] = self._text(module, inner.value)
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    for each in inner.decorator_list:
                        self._take_plain(module, each, owner)
        for each in node.decorator_list:
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                self._take_router(module, each, each.func, node)
            elif not any(node in other.body for other in module.classes.values()):
                self._take_plain(module, each, f"{module.name}:{node.name}")

    def _take_router(self, module: _Module, call: ast.Call, called: ast.Attribute, node: ast.AST) -> None:
        if called.attr not in ("route", "api_route", *_METHODS):
            return
        path = call.args[0] if call.args else _argument(call, "path") or _argument(call, "rule")
        text = "" if path is None else self._text(module, path)
        if path is None or not (text.startswith(("/", "{")) or not text):
            return
        methods = [called.attr] if called.attr in _METHODS else _methods(call)
        if isinstance(node, ast.ClassDef):
            methods = _methods_of(node)
        for method in methods:
            self._routes.append((self._id(module, called.value), method, text))

    def _take_plain(self, module: _Module, node: ast.expr, owner: str) -> None:
        """Take a decorator without a router, such as Litestar's ``@get("/items")``."""
        name = _name(node.func) if isinstance(node, ast.Call) else ""
        target = self._import_of(module, name, getattr(node, "lineno", 0))
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or name not in ("route", *_METHODS):
            return
        if target and target.partition(".")[0] in _FUNCTIONS_FROM:
            said = node.args[0] if node.args else _argument(node, "path")
            for path in said.elts if isinstance(said, ast.List) else [said]:
                text = self._text(module, path) if path else ""
                self._routes.append(
                    (owner, _methods(node)[0] if name == "route" else name, f"/{text.strip('/')}".rstrip("/"))
                )

    def _take_assignment(self, module: _Module, owner: str, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and (kind := _name(value.func)) in _OWN:
            path = _argument(value, _OWN[kind])
            if path is not None:
                self._own[owner] = self._text(module, path).rstrip("/")
            elif kind in ("Namespace", "namespace") and value.args:
                self._own[owner] = f"/{self._text(module, value.args[0])}"
            elif kind == "Router" and value.args:
                self._own[owner] = self._text(module, value.args[0]).rstrip("/")
            if kind == "Api" and value.args:
                self._within[owner].append((self._id(module, value.args[0]), "", False))
            if kind == "namespace" and isinstance(value.func, ast.Attribute):
                self._within[owner].append((self._id(module, value.func.value), "", False))
        if isinstance(value, ast.Call):
            for name in ("routes", "route_handlers"):
                if listed := _argument(value, name):
                    self._take_list(module, listed, owner, "")
        else:
            self._take_list(module, value, owner, "")
        if owner.endswith(":urlpatterns") and isinstance(value, ast.Call):
            before = "<language>/" if _name(value.func) == "i18n_patterns" else ""
            for each in value.args:
                self._take_list(module, each, owner, before)

    def _take_call(self, module: _Module, node: ast.Call) -> None:
        """Take a call such as ``app.include_router(items.router, prefix="/items")``."""
        name = _name(node.func)
        if not isinstance(node.func, ast.Attribute):
            return
        owner = self._id(module, node.func.value)
        first = node.args[0] if node.args else _argument(node, "path") or _argument(node, "rule")
        if name in _INCLUDES and (child := node.args[-1] if name == "add_router" and node.args else first):
            path = _argument(node, _INCLUDES[name]) or (first if name == "add_router" else None)
            text = None if path is None else self._text(module, path).rstrip("/")
            self._within[self._id(module, child)].append((owner, text, name == "register_blueprint"))
        elif first is None:
            return
        elif name == "mount" and len(node.args) > 1 and not isinstance(node.args[1], ast.Call):
            self._within[self._id(module, node.args[1])].append((owner, self._text(module, first).rstrip("/"), False))
        elif name in _ADDS:
            texts = [self._text(module, each) for each in (first, *node.args[1:2])]  # Pyramid's has a name before it
            paths = [text for text in texts if text.startswith("/")]
            self._routes += [(owner, method, paths[0]) for method in self._methods_of_view(module, node) if paths]
        elif name == "add_resource":
            methods = self._methods_of_class(module, node.args[0])
            self._routes += [(owner, method, self._text(module, each)) for each in node.args[1:] for method in methods]
        elif name == "register" and len(node.args) > 1 and self._is_router(module, node.func.value):
            text = self._text(module, first).strip("/^$")
            self._routes += [(owner, "get", f"{text}/"), (owner, "get", f"{text}/<pk>/")]

    def _is_router(self, module: _Module, node: ast.expr) -> bool:
        """Return whether a name is a router of Django REST framework."""
        made = module.assigned.get(node.id) if isinstance(node, ast.Name) else None
        return "router" in ast.unparse(node).lower() or (
            isinstance(made, ast.Call) and _name(made.func).endswith("Router")
        )

    def _methods_of_view(self, module: _Module, node: ast.Call) -> list[str]:
        view = _argument(node, "view_func") or next(
            (each for each in node.args[1:] if isinstance(each, ast.Call)), None
        )
        if _argument(node, "methods") is None and isinstance(view, ast.Call) and isinstance(view.func, ast.Attribute):
            return self._methods_of_class(module, view.func.value)
        return _methods(node)

    def _methods_of_class(self, module: _Module, node: ast.expr) -> list[str]:
        where, _, name = self._id(module, node).rpartition(":")
        found = self._modules[where].classes.get(name) if where in self._modules else None
        return _methods_of(found) if found else ["get"]

    def _take_list(self, module: _Module, node: ast.expr, owner: str, before: str) -> None:
        """Take a list of routes, of handlers or of URLs, whose paths begin with ``before``."""
        match node:
            case ast.List() | ast.Tuple():
                for each in node.elts:
                    self._take_list(module, each, owner, before)
            case ast.Starred():
                self._take_list(module, node.value, owner, before)
            case ast.BinOp():
                self._take_list(module, node.left, owner, before)
                self._take_list(module, node.right, owner, before)
            case ast.Attribute(attr="urls"):  # of a router of Django REST framework
                self._take_list(module, node.value, owner, before)
            case ast.Name() | ast.Attribute():
                if (child := self._id(module, node)) != owner:
                    self._within[child].append((owner, before, False))
            case ast.Call():
                self._take_item(module, node, owner, before)

    def _take_item(self, module: _Module, node: ast.Call, owner: str, before: str) -> None:
        """Take an item of a list: Starlette's Route or Mount, Django's path or include, Litestar's Router."""
        name = _name(node.func)
        first = node.args[0] if node.args else _argument(node, "path")
        text = self._text(module, first) if first else ""
        if name in ("Route", "APIRoute"):
            self._routes.append((owner, _methods(node)[0], before + text))
        elif name == "Mount":
            inner = _argument(node, "routes")
            app = _argument(node, "app") or next(iter(node.args[1:]), None)
            if inner:
                self._take_list(module, inner, owner, before + text.rstrip("/"))
            elif isinstance(app, ast.Name | ast.Attribute):
                self._within[self._id(module, app)].append((owner, before + text.rstrip("/"), False))
        elif name == "Router":
            handlers = _argument(node, "route_handlers") or next(iter(node.args[1:]), None)
            if handlers:
                self._take_list(module, handlers, owner, before + text.rstrip("/"))
        elif name in _URLS and (view := _argument(node, "view") or next(iter(node.args[1:]), None)):
            self._take_url(module, view, owner, before + (text if name == "path" else _path_of_pattern(text)))
        elif name == "include" and first:
            self._take_include(module, first, owner, before)

    def _take_url(self, module: _Module, view: ast.expr, owner: str, path: str) -> None:
        if isinstance(view, ast.Call) and _name(view.func) == "include" and view.args:
            self._take_include(module, view.args[0], owner, path)
        elif not ast.unparse(view).endswith((".site.urls", ".urls")):
            self._routes.append((owner, "get", path))
        elif not ast.unparse(view).endswith(".site.urls"):
            self._within[self._id(module, view)].append((owner, path, False))

    def _take_include(self, module: _Module, target: ast.expr, owner: str, path: str) -> None:
        """Take what Django's ``include`` names: a module, a list, or a tuple of either with a namespace."""
        if isinstance(target, ast.Tuple) and target.elts:
            target = target.elts[0]
        if isinstance(target, ast.Constant):
            self._within[f"{self._module_name(str(target.value))}:urlpatterns"].append((owner, path, False))
        elif isinstance(target, ast.Name | ast.Attribute) and self._known_module(module, target):
            self._within[f"{self._known_module(module, target)}:urlpatterns"].append((owner, path, False))
        else:
            self._take_list(module, target, owner, path)

    def _known_module(self, module: _Module, node: ast.expr) -> str:
        """Return the module that a name stands for; empty: it stands for something else."""
        target = self._import_of(module, ast.unparse(node), node.lineno)
        return self._module_name(target) if target and self._module_name(target) in self._modules else ""

    def _module_name(self, name: str) -> str:
        """Return the name of a module as the sources have it, which may lie in a further folder."""
        ends = (each for each in self._modules if each.endswith(f".{name}") or name.endswith(f".{each}"))
        return name if name in self._modules else next(ends, name)

    def _import_of(self, module: _Module, name: str, line: int) -> str | None:
        head, dot, rest = name.partition(".")
        found = module.imports.get(head)
        before = [target for at, target in found or [] if at <= line] or [target for _, target in found or []]
        return f"{before[-1]}{dot}{rest}" if before else None

    def _id(self, module: _Module, node: ast.expr, depth: int = 0) -> str:
        """Return the owner that an expression names: ``items.router`` is that of the module items."""
        if isinstance(node, ast.Call):
            node = node.func
        name = ast.unparse(node)
        target = self._import_of(module, name, node.lineno)
        if target is None or depth == _DEEPEST:
            return f"{module.name}:{name.partition('.')[0]}"
        parts = target.split(".")
        for end in range(len(parts), 0, -1):
            known = self._module_name(".".join(parts[:end]))
            if known in self._modules and parts[end:]:
                other = self._modules[known]
                if parts[end] in other.imports and parts[end] not in other.assigned and other is not module:
                    return self._id(other, _expression(".".join(parts[end:])), depth + 1)
                return f"{known}:{parts[end]}"
        return target

    def _text(self, module: _Module, node: ast.expr) -> str:  # noqa: PLR0911  # a case for each kind of expression
        """Return a text; what only the running application knows stands in braces."""
        match node:
            case ast.Constant():
                return str(node.value) if isinstance(node.value, str) else ""
            case ast.JoinedStr():
                return "".join(self._text(module, part) for part in node.values)
            case ast.FormattedValue():
                return self._text(module, node.value)
            case ast.BinOp(op=ast.Add()):
                return self._text(module, node.left) + self._text(module, node.right)
            case ast.Name() if isinstance(said := module.assigned.get(node.id), ast.Constant) and isinstance(
                said.value, str
            ):
                return said.value
            case ast.Name() | ast.Attribute():
                known = self._constants.get(node.id if isinstance(node, ast.Name) else node.attr, set())
                return next(iter(known)) if len(known) == 1 else f"{{{ast.unparse(node)}}}"
            case _:
                return f"{{{ast.unparse(node)}}}"


def _assigns(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return isinstance(target, ast.Name) and target.id == name


def _expression(text: str) -> ast.expr:
    found = ast.parse(text, mode="eval").body
    found.lineno = 1_000_000  # behind every import
    return found


def _path_of_pattern(pattern: str) -> str:
    """Return the path that a regular expression of Django stands for; if it has groups, the expression in ``<>``."""
    plain = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".").replace("\\-", "-").removesuffix("/?")
    return f"<{pattern}>" if set(plain) & set("()[]{}*+?|\\^$") else plain


def _methods(node: ast.Call) -> list[str]:
    """Return the method that a route answers, get if it answers get."""
    stated = _argument(node, "methods") or _argument(node, "http_method") or _argument(node, "method")
    with suppress(ValueError):
        said = ast.literal_eval(stated) if stated else []
        methods = [str(each).lower() for each in ([said] if isinstance(said, str) else said)]
        return ["get"] if not methods or "get" in methods else [methods[0]]
    return ["get"]


def _methods_of(node: ast.ClassDef) -> list[str]:
    """Return the methods that a class of views answers."""
    names = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [method for method in _METHODS if method in names] or ["get"]


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _argument(node: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in node.keywords if word.arg == name), None) if name else None

"""Ask an application that is loaded for its routes.

load.py runs this text before it loads the application, and calls ``tell`` then. What the application writes to standard
output goes to standard error instead. The real standard output gets one JSON object: ``framework``, ``routes`` (each
with its ``methods``, its ``path``, and ``aside`` if a visitor asks for it seldom) and ``problem``.
"""

import contextlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Route = tuple[Iterable[str], str, bool]
"""The methods of a route, its path, and whether it is aside: of an admin, of the API's documentation, or static."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MOST_ROUTES = 2000
INNER = ("app", "application", "wsgi_app", "asgi_app", "_app", "_application", "wsgi_application", "other_asgi_app",
         "__wrapped__", "__self__")  # fmt: skip
"""Where the wrappers of an application keep it."""
MOST_WRAPPERS = 100
ASIDE = ("django.contrib.admin", "django.contrib.staticfiles", "django.views.static", "drf_", "silk", "litestar",
         "rest_framework.schemas", "ninja.openapi", "fastapi.applications", "fastapi.openapi", "flasgger",
         "flask_restx", "flask_smorest")  # fmt: skip
"""Modules whose views are for the developers of a service, or serve files."""
ASIDE_PATH = re.compile(r"/(_+debug|admin/|favicon\.ico/)")


def of_module(view: Any) -> bool:
    return str(getattr(getattr(view, "func", view), "__module__", "")).startswith(ASIDE)


def ask_werkzeug(app: Any, before: str) -> Iterator[Route]:
    for rule in app.url_map.iter_rules():
        if rule.build_only or getattr(rule, "websocket", False):
            continue
        static = rule.endpoint.rpartition(".")[2] == "static"
        yield rule.methods or METHODS, before + rule.rule, static or of_module(app.view_functions.get(rule.endpoint))


def ask_starlette(app: Any, before: str) -> Iterator[Route]:
    contexts = getattr(sys.modules.get("fastapi.routing"), "iter_route_contexts", iter)  # routers are included late
    queries = queries_of(app)
    for route in contexts(app.routes):
        path, view = getattr(route, "path", None) or "", getattr(route, "endpoint", None)
        methods = getattr(route, "methods", None)
        if view is None and getattr(route, "app", None) and not hasattr(route, "host"):
            yield from ask(route.app, before + path)
        elif methods or (inspect.isclass(view) and not hasattr(view, "on_receive")):
            methods = methods or [name for name in METHODS if hasattr(view, name.lower())]
            yield methods, before + path + queries.get(path, ""), of_module(view)


def queries_of(app: Any) -> "dict[str, str]":
    """Return the query that GET needs by path, with the names of its parameters in braces, as the API's schema says."""
    with contextlib.suppress(Exception):  # only FastAPI has a schema, and not of each application
        schema = app.openapi()["paths"]
        asked = {path: schema[path].get("get", {}).get("parameters", []) for path in schema}
        named = {path: [each["name"] for each in all_ if each["in"] == "query" and each.get("required")]
                 for path, all_ in asked.items()}  # fmt: skip
        return {path: "?" + "&".join(f"{name}={{{name}}}" for name in names) for path, names in named.items() if names}
    return {}


def ask_litestar(app: Any, before: str) -> Iterator[Route]:
    for route in app.routes:
        if type(route).__name__ == "HTTPRoute":
            views = [getattr(handler.fn, "value", handler.fn) for handler in route.route_handlers]
            yield route.methods, before + route.path, all(map(of_module, views))


def ask_django(app: Any, before: str) -> Iterator[Route]:  # noqa: ARG001
    from django.urls import get_resolver  # noqa: PLC0415  # here and below: the application's packages

    yield from ask_resolver(get_resolver(), f"{before}/", aside=False)


def ask_resolver(resolver: Any, before: str, *, aside: bool) -> Iterator[Route]:
    for each in resolver.url_patterns:
        path = before + sample_of(each.pattern)
        if hasattr(each, "url_patterns"):
            yield from ask_resolver(each, path, aside=aside or each.app_name == "admin")
        elif not re.search(r"[.]<\w*:?format>|<drf_format_suffix", path):
            yield methods_of(each.callback), path, aside or of_module(each.callback)


def sample_of(pattern: Any) -> str:
    """Return a path that a pattern of Django matches, with the names of its parameters in ``<>``."""
    from django.urls.resolvers import RegexPattern  # noqa: PLC0415
    from django.utils.regex_helper import normalize  # noqa: PLC0415

    if not isinstance(pattern, RegexPattern):
        return str(pattern)
    try:
        [(text, names), *_] = normalize(str(pattern))
        return str(text % {name: f"<{name}>" for name in names})
    except (ValueError, TypeError, KeyError):
        return f"<{pattern}>"


def methods_of(view: Any) -> Iterable[str]:
    """Return the methods that a view of Django answers, as its class, its decorators or its framework say."""
    if actions := getattr(view, "actions", None):
        return [name.upper() for name in actions]
    if of_class := getattr(view, "view_class", getattr(view, "cls", None)):
        return [name.upper() for name in of_class.http_method_names if hasattr(of_class, name)]
    while inspect.isfunction(view):
        known = inspect.getclosurevars(view).nonlocals
        if "request_method_list" in known:  # of require_http_methods
            return list(known["request_method_list"])
        if operations := getattr(known.get("self"), "operations", None):  # of Django Ninja
            return [method for operation in operations for method in operation.methods]
        view = getattr(view, "__wrapped__", None)
    return ["GET"]


def ask_dispatcher(app: Any, before: str) -> Iterator[Route]:
    for path, inner in app.mounts.items():
        yield from ask(inner, before + path)
    yield from ask(app.app, before)


def ask_falcon(app: Any, before: str) -> Iterator[Route]:
    from falcon.inspect import inspect_routes  # noqa: PLC0415

    for route in inspect_routes(app):
        yield [method.method for method in route.methods if not method.internal], before + route.path, False


def ask_pyramid(app: Any, before: str) -> Iterator[Route]:
    for told in app.registry.introspector.get_category("routes") or []:
        route, views = told["introspectable"], told["related"]
        methods = route["request_methods"] or [view["request_methods"] for view in views if view["request_methods"]]
        named = [name for each in methods for name in ([each] if isinstance(each, str) else each)]
        path = re.sub(r"\*(\w+)", r"{\1}", route["pattern"])
        yield named or ["GET"], f"{before}/{path}", route["name"].startswith("__")


def ask_bottle(app: Any, before: str) -> Iterator[Route]:
    for route in app.routes:
        if mounted := route.config.get("mountpoint.target"):
            yield from ask(mounted, before + route.config["mountpoint.prefix"])
        else:
            yield METHODS if route.method == "ANY" else [route.method], before + route.rule, False


ASKS: dict[str, tuple[str, Callable[[Any, str], Iterator[Route]]]] = {
    "flask.": ("url_map", ask_werkzeug),
    "quart.": ("url_map", ask_werkzeug),
    "werkzeug.middleware.dispatcher.": ("mounts", ask_dispatcher),
    "django.core.handlers.": ("get_response", ask_django),
    "litestar.": ("routes", ask_litestar),
    "fastapi.": ("routes", ask_starlette),
    "starlette.": ("routes", ask_starlette),
    "falcon.": ("add_route", ask_falcon),
    "pyramid.": ("registry", ask_pyramid),
    "bottle.": ("routes", ask_bottle),
}
"""For a part of the names of a framework's modules: what only its applications have, and who asks them."""


def kind_of(app: Any) -> str:
    """Return the key of ASKS for an application; empty: no framework made it."""
    modules = [f".{each.__module__}." for each in type(app).__mro__]
    kinds = (kind for kind, (has, _) in ASKS.items() if hasattr(app, has))
    return next((kind for kind in kinds if any(f".{kind}" in module for module in modules)), "")


def ask(app: Any, before: str = "") -> Iterator[Route]:
    """Yield the routes of an application and of what it mounts, with the path before all of them."""
    app = unwrapped(app)
    if kind := kind_of(app):
        yield from ASKS[kind][1](app, before.rstrip("/"))


def unwrapped(app: Any) -> Any:
    """Return the application that a framework made in what wraps it, the nearest if there are more; else the same."""
    wrappers = [app]
    for each in wrappers:
        if kind_of(each):
            return each
        if len(wrappers) < MOST_WRAPPERS:
            wrappers += [inner for inner in wrapped_by(each) if not any(inner is known for known in wrappers)]
    return app


def wrapped_by(app: Any) -> Iterator[Any]:
    if callable(http := getattr(app, "application_mapping", {}).get("http")):  # of Channels
        yield http
    yield from (inner for name in INNER if callable(inner := getattr(app, name, None)))
    if inspect.isfunction(app):
        known = inspect.getclosurevars(app)
        yield from (inner for inner in (*known.nonlocals.values(), *known.globals.values()) if callable(inner))


def routes_of(app: Any) -> dict[str, Any]:
    found = unwrapped(app)
    if not (kind := kind_of(found)):
        return {"problem": f"the lab cannot ask {type(found).__module__}.{type(found).__name__} for its routes"}
    told: dict[str, Any] = {"framework": kind.partition(".")[0], "routes": []}
    for methods, named, aside in ask(found):
        answered = [name for name in METHODS if name in {method.upper() for method in methods}]
        path = re.sub("/+", "/", f"/{named}")
        route = {"methods": answered, "path": path, "aside": aside or bool(ASIDE_PATH.search(f"{path}/"))}
        if answered and route not in told["routes"] and len(told["routes"]) < MOST_ROUTES:
            told["routes"].append(route)
    return told


def tell(app: Any) -> None:
    """Write the answers to the real standard output."""
    try:
        told = routes_of(app)
    except Exception as error:
        told = {"problem": f"asking for its routes failed: {type(error).__name__}: {error}"}
    with os.fdopen(answers, "w") as out:
        json.dump(told, out)


answers = os.dup(1)
os.dup2(2, 1)

"""What is changed in the real servers, so that a start command can be followed, or served under the probe.

Python runs this file as ``sitecustomize`` in each process of a start command (see start.py). To follow a command, the
server writes down what it would serve when it is about to listen, and ends. To serve, it listens on ADDRESS instead of
its own address, and goes on with everything else as it stands; what the container cannot give it is in ``aside``.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

ADDRESS, HOST, PORT = "0.0.0.0:8000", "0.0.0.0", 8000
TOLD, TAKEN, OPTIONS, SERVES = "STAMPEDE_TOLD", "STAMPEDE_TAKEN", "STAMPEDE_OPTIONS", "STAMPEDE_SERVES"
"""Variables: the folder for records; set in a server that serves and in its workers; the settings that a way adds; and
set if the server is to serve."""
COUNTS_ANYWAY = ("concurrent", "granian", "asyncio", "anyio", "uvloop", "random")
"""Packages that count cores for purposes of their own."""
_OURS = str(Path(__file__).resolve().parents[2])
aside: dict[str, str] = {}
"""What cannot be kept here: the setting, its value, and the reason."""
BALANCED = "the balancer stands in another container, and speaks plain HTTP to port 8000"
RIGHTS = "the container runs as a user without rights"
DISK = "the container is read-only, and its log is its output"
ENDS = "the container ends with the first process"
DEVELOPS = "it is for development"


def serves() -> bool:
    """Return whether the server is to serve, and not only to be asked."""
    return bool(os.environ.get(SERVES))


def is_worker() -> bool:
    """Return whether this is a process of a server that serves already."""
    return TAKEN in os.environ


def put_aside(name: str, value: Any, reason: str) -> None:
    """Note a setting that cannot be kept, if it has a value."""
    if value not in (None, False, "", 0, [], ()):
        aside[name] = f"{value if isinstance(value, (str, int)) else str(value)}: {reason}"


def options_of(server: str) -> dict[str, Any]:
    """Return the settings that the way adds to those of the command, if it serves with this server."""
    given = json.loads(os.environ.get(OPTIONS) or "{}")
    return dict(given.get("settings", {})) if given.get("server") == server and not is_worker() else {}


# What each process does.


def hook() -> None:
    """Be told when one of the modules of HOOKS is imported. Where the probe stands, let the lab's wrapper stand."""
    sys.path.append(_OURS)
    from stampede_probe import hooks as of_probe  # noqa: PLC0415  # the path is known only now

    sys.meta_path.insert(0, of_probe.Finder(HOOKS, lambda change, module: change(module)))
    count = os.cpu_count

    def counted() -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] not in COUNTS_ANYWAY:
            with suppress(OSError):
                Path(os.environ[TOLD], "cores").touch()
        return count()

    os.cpu_count = counted
    if serves():
        import stampede_own  # noqa: PLC0415  # it notes when this process began

        of_probe.wsgi, of_probe.asgi = stampede_own.wsgi, stampede_own.asgi


def ready_if_loaded(owner: Any, name: str, has_no_lifespan: Callable[[Any], bool]) -> None:
    """Note that a worker is ready when a method has loaded its application, if nothing tells of the lifespan."""
    load = getattr(owner, name)

    @wraps(load)
    def loaded(self: Any, *arguments: Any, **named: Any) -> None:
        load(self, *arguments, **named)
        if is_worker() and has_no_lifespan(self):
            from stampede_own import counters  # noqa: PLC0415  # only where a server serves

            counters()

    setattr(owner, name, loaded)


def before(kind: Any, change: Callable[[dict[str, Any]], None]) -> inspect.Signature:
    """Call ``change`` with the arguments by name before an object of a class is made. Return the signature."""
    make, signature = kind.__init__, inspect.signature(kind.__init__)

    @wraps(make)
    def init(*arguments: Any, **named: Any) -> None:
        bound = signature.bind(*arguments, **named)
        change(bound.arguments)
        make(*bound.args, **bound.kwargs)

    kind.__init__ = init
    return signature


def tell(what: str, **told: Any) -> None:
    """Write down one record."""
    folder = os.environ[TOLD]
    record = {"what": what, "folder": str(Path.cwd()), "environment": dict(os.environ), **told}
    with Path(folder, "records").open("a", encoding="utf-8") as log:
        log.write(json.dumps(record, default=str) + "\n")


def take(server: str, app: Any, settings: dict[str, Any], differ: Sequence[str], **further: Any) -> None:
    """Write down what a server serves. Return if it is to serve; else leave.

    If another server of the same command serves already, leave: the lab measures one.
    """
    words = json.loads(os.environ.get("STAMPEDE_ARGV", "null")) or sys.argv
    settings = {name: each for name, each in settings.items() if each is None or isinstance(each, (int, float, str))}
    processes = os.environ.get("STAMPEDE_PROCESSES", "1")
    settings["workers"] = settings.get("workers") or 1
    for name in os.environ.get("STAMPEDE_PASSED", "").split():
        put_aside(name, "command", "stampede-probe stands in its place")
    with suppress(Exception):
        from importlib.metadata import version  # noqa: PLC0415

        further["release"] = version(server)
    if (workers := os.environ.get("STAMPEDE_WORKERS")) and not serves():
        settings["workers"], differ = int(workers) * int(settings["workers"]), [*differ, "workers"]
    if serves():
        try:
            os.close(os.open(f"{os.environ[TOLD]}/taken", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            leave()
        in_force = {**settings, "server": server, "release": further.get("release", ""), "aside": aside}
        Path("/tmp/settings").write_text(json.dumps(in_force, indent=1, default=str) + "\n", encoding="utf-8")
        os.environ[TAKEN] = server
        return
    named = app if isinstance(app, str) else name_of(app)
    tell("server", server=server, words=words, callable=named, settings=settings, processes=processes, aside=aside,
         differ=[name for name in differ if name in settings],
         imports=[os.path.realpath(each) for each in sys.path if "site-packages" not in each], **further)  # fmt: skip
    leave()


def leave() -> None:
    """End at once."""
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


# gunicorn


_OF_GUNICORN: dict[str, tuple[Any, str]] = {
    "certfile": (None, BALANCED), "keyfile": (None, BALANCED), "ca_certs": (None, BALANCED),
    "proxy_protocol": (False, BALANCED), "initgroups": (False, RIGHTS), "chroot": (None, RIGHTS),
    "pidfile": (None, DISK), "syslog": (False, DISK), "reload": (False, DEVELOPS),
}  # fmt: skip
"""What gunicorn's settings are here, and why."""
_CLASSES = {
    "ThreadWorker": "gthread", "GeventWorker": "gevent", "EventletWorker": "eventlet", "SyncWorker": "sync",
    "ASGIWorker": "asgi", "UvicornWorker": "uvicorn_worker.UvicornWorker", "TornadoWorker": "tornado",
}  # fmt: skip
"""gunicorn's own classes of workers, from which others are derived, and their words."""


def hook_gunicorn(module: Any) -> None:
    """Gunicorn reads its options, GUNICORN_CMD_ARGS and its settings file, then makes an arbiter."""
    make = module.Arbiter.__init__

    def init(self: Any, app: Any) -> None:
        known = app.cfg.settings
        for name, value in options_of("gunicorn").items():
            app.cfg.set(name, value)
        differ = [name for name, each in known.items() if each.get() != each.default]
        differ += ["workers"] if "WEB_CONCURRENCY" in os.environ else []  # it changes the default
        if bind := [each for each in app.cfg.bind if str(each).startswith(("unix:", "fd:"))]:
            put_aside("bind", bind[0], BALANCED)
        for name, (value, reason) in _OF_GUNICORN.items():
            if name in known and name in differ:
                put_aside(name, known[name].get(), reason)
                app.cfg.set(name, value)
        for name, otherwise in (("errorlog", "-"), ("accesslog", "/dev/null")):
            if known[name].get() not in (None, "-"):
                put_aside(name, known[name].get(), DISK)
                app.cfg.set(name, otherwise)
        values = {name: each.get() for name, each in known.items()}
        if inspect.isclass(kind := values.get("worker_class")):
            values["worker_class"] = f"{kind.__module__}.{kind.__qualname__}"
        if values["worker_class"] == "sync":
            values["worker_class"] = app.cfg.worker_class_str
        app.cfg.set("bind", [ADDRESS])
        of_class = {each.__name__ for each in app.cfg.worker_class.__mro__}
        kind = next((word for name, word in _CLASSES.items() if name in of_class), "")
        named = getattr(app, "app_uri", None) or values.get("wsgi_app")
        if named:
            named = named if ":" in named else f"{named}:application"
        elif not serves():  # an application of gunicorn of somebody's own, which has been given an object
            objects = [each for each in vars(app).values() if callable(each) and not inspect.isclass(each)]
            named = next((found for each in objects if (found := name_of(each))), "")
        given = dict(each.partition("=")[::2] for each in values.get("raw_env") or [])
        take("gunicorn", named or "", values, differ, kind=kind, env=given,
             chdir=os.path.realpath(str(values.get("chdir") or "")))  # fmt: skip
        make(self, app)

    module.Arbiter.__init__ = init


def hook_gunicorn_users(module: Any) -> None:
    """Gunicorn looks the user and the group up, which this container may not have."""

    def ours(name: str, otherwise: int) -> Any:
        def validate(value: Any) -> int:
            put_aside(name, value if value != otherwise else None, RIGHTS)
            return otherwise

        return staticmethod(validate)

    module.User.validator, module.Group.validator = ours("user", os.geteuid()), ours("group", os.getegid())


def hook_daemon(module: Any) -> None:
    """Gunicorn may be told to go into the background."""

    def stay(*_: Any, **__: Any) -> None:
        put_aside("daemon", "True", ENDS)

    module.daemonize = stay


def hook_gunicorn_asgi(module: Any) -> None:
    """The workers of its class for ASGI load the application."""
    ready_if_loaded(module.ASGIWorker, "load_wsgi", lambda worker: worker.cfg.asgi_lifespan == "off")


# uvicorn


_OF_UVICORN: dict[str, tuple[Any, str]] = {
    "uds": (None, BALANCED), "fd": (None, BALANCED), "ssl_keyfile": (None, BALANCED), "ssl_certfile": (None, BALANCED),
    "ssl_ca_certs": (None, BALANCED), "reload": (False, DEVELOPS),
}  # fmt: skip


def hook_uvicorn_config(module: Any) -> None:
    """Uvicorn makes a Config of its options and its variables."""

    def change(arguments: dict[str, Any]) -> None:
        if serves() and not is_worker():
            values = {"host": HOST, "port": PORT, **{name: value for name, (value, _) in _OF_UVICORN.items()}}
            arguments.update({name: value for name, value in values.items() if name in signature.parameters})
            count = int(os.environ.get("STAMPEDE_WORKERS", "1"))
            if count > 1:
                arguments["workers"] = count * (arguments.get("workers") or 1)
            arguments.update(options_of("uvicorn"))

    signature = before(module.Config, change)
    ready_if_loaded(module.Config, "load", lambda config: config.lifespan == "off")


def hook_uvicorn(module: Any) -> None:
    """Uvicorn makes a Server of a Config."""
    make = module.Server.__init__

    @wraps(make)
    def init(self: Any, config: Any, *arguments: Any, **named: Any) -> None:
        if not is_worker():
            defaults = {
                name: each.default for name, each in inspect.signature(type(config).__init__).parameters.items()
            }
            values = {name: getattr(config, name, None) for name in defaults if name not in ("self", "app")}
            for name, (_, reason) in _OF_UVICORN.items():
                if values.get(name) != defaults.get(name):
                    put_aside(name, values.get(name), reason)
            app = config.app
            if isinstance(app, str) and config.factory:
                app += "()"
            if not isinstance(app, str) and not name_of(app) and inspect.isfunction(app):
                app = f"{app.__module__}:{app.__qualname__}" + ("()" if config.factory else "")
            by_run = sys._getframe(1).f_globals.get("__name__") == "uvicorn.main"  # a Server alone has one process
            values["workers"] = config.workers or 1 if by_run else 1
            differ = [name for name, value in values.items() if value != defaults[name]]
            take("uvicorn", app, values, differ)
        make(self, config, *arguments, **named)

    module.Server.__init__ = init


# granian


_OF_GRANIAN: dict[str, tuple[Any, str]] = {
    "uds": (None, BALANCED), "ssl_cert": (None, BALANCED), "ssl_key": (None, BALANCED), "pid_file": (None, DISK),
    "reload": (False, DEVELOPS),
}  # fmt: skip


def hook_granian(module: Any) -> None:
    """Granian makes a server of its options, and then lets it serve."""

    def change(arguments: dict[str, Any]) -> None:
        for name, (value, reason) in _OF_GRANIAN.items():
            if name in arguments:
                put_aside(name, arguments[name], reason)
                if serves():
                    arguments[name] = value
        if serves():
            arguments.update({"address": HOST, "port": PORT}, **options_of("granian"))

    def act(self: Any, *arguments: Any, **named: Any) -> Any:
        values = {name: getattr(each, "value", each) for name, each in vars(self).items()}
        differ = [name for name, each in signature.parameters.items() if name in values and values[name] not in (
            each.default, getattr(each.default, "value", each.default))]  # fmt: skip
        target = self.target if ":" in self.target else f"{self.target}:app"
        take("granian", target + ("()" if self.factory else ""), values, differ)
        return serve(self, *arguments, **named)

    signature = before(module.AbstractServer, change)
    serve = module.AbstractServer.serve
    module.AbstractServer.serve = act


# hypercorn


_OF_HYPERCORN: dict[str, tuple[Any, str]] = {
    "insecure_bind": ([], BALANCED), "quic_bind": ([], BALANCED), "certfile": (None, BALANCED),
    "keyfile": (None, BALANCED), "ca_certs": (None, BALANCED), "user": (None, RIGHTS), "group": (None, RIGHTS),
    "pid_path": (None, DISK), "use_reloader": (False, DEVELOPS),
}  # fmt: skip


def take_hypercorn(config: Any, app: Any) -> None:
    """Write down what hypercorn serves, and let it listen on ADDRESS."""
    kinds = {each: getattr(type(config), each) for each in dir(type(config)) if not each.startswith("__")}
    names = [name.lstrip("_") if name in ("_bind", "_insecure_bind", "_quic_bind") else name
             for name, value in kinds.items()
             if value is None or isinstance(value, (int, float, str, list))]  # fmt: skip
    values = {name: getattr(config, name) for name in names if not name.startswith("_")}
    differ = [name for name, value in values.items() if kinds.get(name, kinds.get(f"_{name}")) != value]
    for bind in values.get("bind", []):
        if str(bind).startswith(("unix:", "fd:")):
            put_aside("bind", bind, BALANCED)
    for name, (value, reason) in _OF_HYPERCORN.items():
        put_aside(name, values.get(name), reason)
        if serves() and hasattr(config, name):
            setattr(config, name, value)
    for name, value in options_of("hypercorn").items():
        setattr(config, name, value)
        values[name] = value
    kind, plain = "", app
    if isinstance(app, str):
        kind, plain = app.split(":", 1) if app.startswith(("wsgi:", "asgi:")) else ("", app)
        plain = plain if ":" in plain else f"{plain}:app"
    config.bind = [ADDRESS]
    take("hypercorn", plain, {name: value for name, value in values.items() if not isinstance(value, list)},
         differ, kind=kind)  # fmt: skip


def hook_hypercorn(module: Any) -> None:
    """Hypercorn makes a Config of its options and its settings file, and runs it."""
    run = module.run

    def act(config: Any, *arguments: Any, **named: Any) -> Any:
        take_hypercorn(config, config.application_path)
        return run(config, *arguments, **named)

    module.run = act


def hook_hypercorn_serve(module: Any) -> None:
    """A program may hand an application to hypercorn, which then has one process."""
    serve = module.serve

    def serve_app(app: Any, config: Any, *arguments: Any, **named: Any) -> Any:
        if not is_worker():
            config.workers = 1
            take_hypercorn(config, app)
        return serve(app, config, *arguments, **named)

    module.serve = serve_app


# daphne


def hook_daphne(module: Any) -> None:
    """Daphne imports the application, and makes a server of its options."""
    named: list[str] = []
    load = module.import_by_path

    def imported(path: str) -> Callable[..., Any]:
        named.append(path)
        if serves():
            return load(path)  # type: ignore[no-any-return]

        async def app(scope: Any, receive: Any, send: Any) -> None: ...

        return app

    module.import_by_path = imported
    server = module.CommandLineInterface.server_class
    run = server.run

    def act(self: Any) -> Any:
        values = {**vars(self), "workers": 1}
        if own := [each for each in self.endpoints if not str(each).startswith("tcp:")]:
            put_aside("endpoint", own[0], BALANCED)
        length = next((found[0] for each in self.endpoints if (found := re.findall(r":backlog=\d+", str(each)))), "")
        take("daphne", named[0] if named else "", values, ["http_timeout"] * (values["http_timeout"] is not None))
        self.endpoints = [f"tcp:port={PORT}:interface={HOST}{length}"]
        return run(self)

    server.run = act


# servers that the lab asks, and in whose place another server serves


def hook_waitress(module: Any) -> None:
    """Waitress makes a server of an application and its options."""

    def act(application: Any, *_: Any, **options: Any) -> None:
        from waitress.adjustments import Adjustments  # noqa: PLC0415

        words = json.loads(os.environ.get("STAMPEDE_ARGV", "[]"))
        if not name_of(application) and words and re.fullmatch(r"[\w.]+:[\w.]+", words[-1]):  # a factory has made it
            application = words[-1] + "()" * ("--call" in words)
        known = Adjustments(**{name: each for name, each in options.items() if not name.startswith("_")})
        take("waitress", application, {"workers": 1, "threads": known.threads}, ["threads"] * ("threads" in options))

    module.create_server = act


def hook_werkzeug(module: Any) -> None:
    """The server for development of Flask and others."""

    def act(_hostname: Any, _port: Any, application: Any, *_: Any, **__: Any) -> None:
        app = name_of(application)
        source = sys.modules.get(getattr(application, "import_name", ""))
        names = [name for name in ("create_app", "make_app") if hasattr(source, name)]
        if not app and source and names:  # where flask itself looks
            app = f"{source.__name__}:{names[0]}()"
        take("werkzeug", app, {"workers": 1}, [])

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
        return take("runserver", ":".join(app.rsplit(".", 1)) if app else "", {"workers": 1}, [])

    module.ManagementUtility.execute = execute


HOOKS: dict[str, Callable[[Any], None]] = {
    "gunicorn.arbiter": hook_gunicorn, "gunicorn.config": hook_gunicorn_users, "gunicorn.util": hook_daemon,
    "gunicorn.workers.gasgi": hook_gunicorn_asgi,
    "uvicorn.config": hook_uvicorn_config, "uvicorn.server": hook_uvicorn,
    "granian.server.common": hook_granian,
    "hypercorn.run": hook_hypercorn, "hypercorn.asyncio": hook_hypercorn_serve, "hypercorn.trio": hook_hypercorn_serve,
    "daphne.cli": hook_daphne, "waitress": hook_waitress,
    "werkzeug.serving": hook_werkzeug, "django.core.management": hook_django,
}  # fmt: skip
hook()

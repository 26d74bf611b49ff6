"""What the lab knows of each server as a program: the names of its options, and what a command of it is made of.

A start command itself is never taken apart: the server reads it (servers/user-service/hooks.py). These names say how
settings that the server told, or that are added, are called here and there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stampede.records.run import GTHREAD_CONNECTIONS

Setting = str | int | bool
MOST_THREADS = 512
GRANIAN_BACKLOG = 1024
"""granian shares so many requests among its workers, unless a backpressure is given."""


@dataclass(frozen=True)
class Workers:
    """A kind of a server's workers, and the other ways to serve that are tried in their place.

    ``server`` is the word of experiments for workers that accept and queue like these. ``tried`` are tried if there are
    several workers, ``named`` only if ``--ways`` names them, and ``lifting`` against a limit that was found.
    ``no_limit`` says why no way can keep a busy worker from accepting requests; empty: one can. Each worker may have so
    many ``threads``; 0: the server gives it none.
    """

    server: str
    tried: tuple[str, ...]
    named: tuple[str, ...] = ()
    lifting: tuple[str, ...] = ("more-workers",)
    no_limit: str = "they count busy threads, and an event loop has no threads"
    threads: int = 0
    is_asgi: bool = False


@dataclass(frozen=True)
class Program:
    """A server. ``names`` has, by the name of a setting here, that of the server's own option.

    ``kinds`` are those of its workers, by the value of the setting ``kind_by``; if that is empty, there is one kind.
    ``usual`` has its defaults, by its own names. ``release`` is taken if nobody names one. ``flags`` are words of a
    command that the lab makes itself, and ``flag_names`` the options whose flag is not ``--`` and the name;
    ``names_application`` is the option before the application, and ``listens_with`` what stands before the port.
    ``lifts`` are the kinds of ways that only change how its workers end, and ``first`` has the first release, as
    numbers, that knows a kind of ways. ``file`` is the settings file that options can be pasted into; empty: they are
    pasted as a command. ``notes`` has a comment for an option.
    """

    name: str
    release: str
    names: Mapping[str, str]
    listens_with: str
    kinds: Mapping[str, Workers]
    kind_by: str = ""
    flags: tuple[str, ...] = ()
    flag_names: Mapping[str, str] = field(default_factory=dict)
    names_application: str = ""
    usual: Mapping[str, Setting] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    lifts: tuple[str, ...] = ()
    first: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    file: str = ""

    @property
    def silent_s(self) -> int:
        """After how long without a sign of life a worker is ended by default, in seconds; 0: never."""
        return int(self.usual.get(self.names.get("timeout_s", ""), 0))

    def options(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return settings by the server's own names, without those that it does not have."""
        return {own: settings[name] for name, own in self.names.items() if name in settings}

    def unusual_options(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return the same without the server's defaults."""
        return {name: value for name, value in self.options(settings).items() if self.usual.get(name) != value}

    def words(self, options: Mapping[str, Setting]) -> list[str]:
        """Return options as words of a command."""
        found = []
        for name, value in options.items():
            flag = self.flag_names.get(name, f"--{name.replace('_', '-')}")
            found += [flag] if value is True else [] if value is False else [flag, str(value)]
        return found

    def command(self, application: str, options: Mapping[str, Setting]) -> list[str]:
        """Return the words of a command that serves an application with these options."""
        of_application = [self.names_application, application] if self.names_application else [application]
        return [self.name, *self.flags, *self.words(options), *of_application]

    def pasted(self, options: Mapping[str, Setting]) -> list[str]:
        """Return the lines to paste: of the settings file, or options of the command."""
        if not options:
            return []
        if not self.file:
            return [" ".join([self.name, *self.words(options)])]
        if self.file.endswith(".ini"):
            return [f"# {self.file}", "[uwsgi]", *(f"{name} = {str(value).lower()}" for name, value in options.items())]
        lines = [f"# {self.file}"]
        for name, value in options.items():
            lines += [f"# {self.notes[name]}:"] if name in self.notes else []
            lines += [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"]
            lines += [f"# {self.notes[value]}"] if isinstance(value, str) and value in self.notes else []
        return lines


IDLE_THREAD = "gunicorn_idle_thread.IdleThreadWorker"
IDLE_THREAD_INSTALL = "pip install gunicorn-idle-thread"
_LIMITED, _LOOPS = ("one-process", "limit", "idle-thread", "least-conn"), ("one-process", "least-conn")
_THREADS, _NO_THREADS = ("more-workers", "more-threads"), ("more-workers", "gthread")
_OTHERS = ("granian", "uvicorn")
GUNICORN = Program(
    "gunicorn", "27.0.1", {
        "worker_class": "worker_class", "workers": "workers", "threads": "threads", "keepalive_s": "keepalive",
        "worker_connections": "worker_connections", "max_requests": "max_requests",
        "max_requests_jitter": "max_requests_jitter", "timeout_s": "timeout", "preload": "preload_app",
        "reuse_port": "reuse_port",
    }, "--bind 127.0.0.1:", {
        "gthread": Workers("gunicorn-gthread", _LIMITED, ("reuse-port", "sync", "uwsgi", "granian"), _THREADS, "",
                           MOST_THREADS),
        "sync": Workers("gunicorn-sync", _LIMITED, ("reuse-port",), _NO_THREADS, "", threads=1),
        **{name: Workers(f"gunicorn-{name}", ("least-conn",), ("reuse-port",), _NO_THREADS,
                         "they count busy threads, and greenlets have no threads")
           for name in ("gevent", "eventlet", "tornado")},
        "asgi": Workers("gunicorn-asgi", _LOOPS, ("reuse-port", *_OTHERS), is_asgi=True),
        **dict.fromkeys(("uvicorn_worker.UvicornWorker", "uvicorn.workers.UvicornWorker"),
                        Workers("gunicorn-uvicorn", _LOOPS, ("reuse-port", *_OTHERS), is_asgi=True)),
    }, "worker_class", flag_names={"preload_app": "--preload", "keepalive": "--keep-alive"},
    usual={"keepalive": 2, "worker_connections": GTHREAD_CONNECTIONS,
           "max_requests": 0, "max_requests_jitter": 0, "timeout": 30, "preload_app": False, "reuse_port": False},
    notes={"worker_connections": "with gunicorn 24 or later", "reuse_port": "with gunicorn 24 or later",
           IDLE_THREAD: f"{IDLE_THREAD_INSTALL}, which needs gunicorn 24 or later"},
    lifts=("jitter", "never-replaced", "preload", "longer-timeout"),
    first={"limit": (24,), "idle-thread": (24,), "reuse-port": (24,)}, file="gunicorn.conf.py",
)  # fmt: skip
UVICORN = Program(
    "uvicorn", "0.38.0", {
        "workers": "workers", "max_requests": "limit_max_requests", "max_requests_jitter": "limit_max_requests_jitter",
        "timeout_s": "timeout_worker_healthcheck", "keepalive_s": "timeout_keep_alive",
    }, "--host 127.0.0.1 --port ", {"": Workers("uvicorn", _LOOPS, ("granian",), is_asgi=True)},
    flags=("--no-access-log", "--backlog", "4096"),
    usual={"limit_max_requests": 0, "limit_max_requests_jitter": 0, "timeout_worker_healthcheck": 5,
           "timeout_keep_alive": 5},
    lifts=("jitter", "never-replaced", "longer-timeout"), first={"jitter": (0, 41), "longer-timeout": (0, 37)},
)  # fmt: skip
GRANIAN = Program(
    "granian", "2.8.7", {
        "interface": "interface", "workers": "workers", "threads": "blocking_threads", "backpressure": "backpressure",
    }, "--host 127.0.0.1 --port ", {  # granian 1 has other options
        "asgi": Workers("granian", _LOOPS, ("uvicorn",), is_asgi=True),
        "wsgi": Workers("granian-wsgi", _LOOPS, ("gunicorn",), _THREADS, "only gunicorn has them", MOST_THREADS),
    }, "interface", ("--backlog", "4096"), first={"own sockets": (2, 8)},
)  # fmt: skip
HYPERCORN = Program(
    "hypercorn", "0.18.0", {"workers": "workers"}, "--bind 127.0.0.1:",
    {"": Workers("hypercorn", _LOOPS, _OTHERS, is_asgi=True)}, flags=("--backlog", "4096"),
)  # fmt: skip
DAPHNE = Program(
    "daphne", "4.2.3", {}, "--bind 127.0.0.1 --port ", {"": Workers("daphne", _LOOPS, _OTHERS, is_asgi=True)},
    flags=("--verbosity", "0"),
)  # fmt: skip
UWSGI = Program(
    "uwsgi", "2.0.31", {
        "workers": "processes", "threads": "threads", "max_requests": "max-requests", "map_socket": "map-socket",
    }, "--http-socket 127.0.0.1:", {
        "": Workers("uwsgi", ("one-process", "map-socket", "least-conn"), (), _THREADS,
                    "a thread of uWSGI accepts a connection only when it is free, as it is served today", MOST_THREADS),
    }, flags=("--master", "--lazy-apps", "--disable-logging", "--need-app"),
    names_application="--module", usual={"max-requests": 0, "map-socket": False}, lifts=("never-replaced",),
    file="uwsgi.ini",
)  # fmt: skip
PROGRAMS = {each.name: each for each in (GUNICORN, UVICORN, UWSGI, GRANIAN, HYPERCORN, DAPHNE)}
"""The servers that can serve somebody's own application, by the names of their packages."""
SERVED_BY = {"fastapi": "uvicorn", "litestar": "uvicorn", "waitress-serve": "gunicorn", "waitress": "gunicorn",
             "flask": "gunicorn", "werkzeug": "gunicorn", "runserver": "gunicorn"}  # fmt: skip
"""The server that another command starts, or that stands in for the server that it starts."""
SERVES = re.compile(rf"\b({'|'.join(name for name in (*PROGRAMS, *SERVED_BY) if name != 'werkzeug')})\b")
"""The name of a server in a command."""

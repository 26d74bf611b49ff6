"""What the lab knows of each server as a program: the names of its options, and what a command of it is made of.

A start command itself is never taken apart: the server reads it (servers/user-service/hooks.py). These names say how
settings that the server told, or that are added, are called here and there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Setting = str | int | bool


@dataclass(frozen=True)
class Program:
    """A server. ``names`` has, by the name of a setting here, that of the server's own option.

    ``release`` is taken if nobody names one. ``flags`` are words of a command that the lab makes itself, and
    ``flag_names`` the options whose flag is not ``--`` and the name. ``silent_s`` is after how long without a sign of
    life a worker is ended by default; 0: never. ``first`` is the first release, as numbers, that has an option.
    """

    name: str
    release: str
    names: Mapping[str, str]
    flags: tuple[str, ...] = ()
    flag_names: Mapping[str, str] = field(default_factory=dict)
    silent_s: int = 0
    first: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    counts_requests: bool = False
    file: str = ""
    """The settings file that its options can be pasted into; empty: they are pasted as a command."""
    names_application: str = ""
    """The option that names the application; empty: the last word does."""

    def options(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return settings by the server's own names, without those that it does not have."""
        return {own: settings[name] for name, own in self.names.items() if name in settings}

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
        quoted = {name: f'"{value}"' if isinstance(value, str) else value for name, value in options.items()}
        return [f"# {self.file}", *(f"{name} = {value}" for name, value in quoted.items())]


GUNICORN = Program(
    "gunicorn", "27.0.1", {
        "worker_class": "worker_class", "workers": "workers", "threads": "threads", "keepalive_s": "keepalive",
        "worker_connections": "worker_connections", "max_requests": "max_requests",
        "max_requests_jitter": "max_requests_jitter", "timeout_s": "timeout", "preload": "preload_app",
        "reuse_port": "reuse_port", "settings": "config",
    }, flag_names={"preload_app": "--preload", "keepalive": "--keep-alive"}, silent_s=30, counts_requests=True,
    first={"limit": (24,), "idle-thread": (24,), "reuse-port": (24,)}, file="gunicorn.conf.py",
)  # fmt: skip
UVICORN = Program(
    "uvicorn", "0.38.0", {
        "workers": "workers", "max_requests": "limit_max_requests", "max_requests_jitter": "limit_max_requests_jitter",
        "timeout_s": "timeout_worker_healthcheck", "keepalive_s": "timeout_keep_alive",
    }, ("--no-access-log", "--backlog", "4096"), silent_s=5, counts_requests=True,
    first={"jitter": (0, 41), "longer-timeout": (0, 37)},
)  # fmt: skip
GRANIAN = Program(
    "granian", "2.8.7", {
        "interface": "interface", "workers": "workers", "threads": "blocking_threads", "backpressure": "backpressure",
    }, ("--backlog", "4096"),
)  # fmt: skip
HYPERCORN = Program("hypercorn", "0.18.0", {"workers": "workers"}, ("--backlog", "4096"))
DAPHNE = Program("daphne", "4.2.3", {}, ("--verbosity", "0"))
UWSGI = Program(
    "uwsgi", "2.0.31", {
        "workers": "processes", "threads": "threads", "max_requests": "max-requests", "map_socket": "map-socket",
        "settings": "ini",
    }, ("--master", "--lazy-apps", "--disable-logging", "--need-app"), counts_requests=True, file="uwsgi.ini",
    names_application="--module",
)  # fmt: skip
PROGRAMS = {each.name: each for each in (GUNICORN, UVICORN, UWSGI, GRANIAN, HYPERCORN, DAPHNE)}
"""The servers that can serve somebody's own application, by the names of their packages."""

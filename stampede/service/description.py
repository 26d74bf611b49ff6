"""The file that describes somebody's own service: the application, how it is served, and what people ask of it."""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from stampede.errors import WrongUse
from stampede.experiment.yaml_file import YamlFile
from stampede.foreign import read_text
from stampede.predict.options import MOST_REPLICAS
from stampede.records.classes import (
    METHOD_PATTERN,
    PATH_PATTERN,
    Login,
    OwnRequestClasses,
    own_as_json,
)
from stampede.records.mistakes import Wording
from stampede.records.model import Model
from stampede.records.nearest import nearest_first
from stampede.records.queueing import GTHREAD_CONNECTIONS
from stampede.servers.base import (
    RELEASE_PATTERN,
    Balance,
    Cpus,
    MaxRequests,
    MaxRequestsJitter,
    MemoryMib,
    Release,
    UpstreamKeepalive,
    WorkerConnections,
)
from stampede.servers.program import GRANIAN_BACKLOG, MOST_THREADS, PROGRAMS, UWSGI, Workers
from stampede.typed import typed

CALLABLE_PATTERN = r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*(\(.*\))?$"
"""A module and a callable, or a factory with its arguments, which are literals or names of the module."""
REQUIREMENT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*([=<>!~;@].*)?$"
"""A package of Python with its extras and its releases (PEP 508)."""
HOST_PATTERN = r"^([A-Za-z0-9-]+\.)+[A-Za-z][A-Za-z0-9-]*(:[0-9]{1,5})?$"
"""The name of a host outside, perhaps with a port; no address, because only names lead to a host."""
PACKAGE_PATTERN = r"^[a-z0-9][a-z0-9.+-]*[a-z0-9.+]$"
"""The name of a package (Debian Policy 5.6.1), but not with a minus at its end, which tells apt-get to remove it."""
READY_PATTERN = rf"{PATH_PATTERN}|^$"
MOST_PORT = 65535
MOST_ASKED = 100_000
"""How long the description of all requests may be; Linux allows 128 KiB for one variable."""
NEEDS_A_FILE = f"{typed('try', 'my-service.yaml')}; stampede init path/of/the/application writes such a file"


def _listed(said: object) -> object:
    return said if isinstance(said, list) else [said]


class Application(Model):
    """The application: its folder, or the image that has it; its callable, and what it needs."""

    folder: Path | None = Field(
        None,
        description="Where the application is; or give `image`. A relative path starts at the folder of this file.",
    )
    image: str | None = Field(None, min_length=1, description="An image that has the application and its server.")
    command: str = Field(
        "", description="The command that starts the service today, as it was found. It runs as it is; the server "
        "itself says its workers, threads and application. Or give `callable`; without both, an image has its own.",
    )  # fmt: skip
    working_folder: str = Field(
        "", description="Where the command runs, seen from the folder; left out: the folder itself."
    )
    paths: dict[str, str] = Field(
        {}, description="Paths of the image at home, and what is there, seen from the folder, "
        "such as `{/app: ., /start.sh: docker/start.sh}`. What is missing is made as a folder to write.",
    )  # fmt: skip
    written: dict[str, str] = Field(
        {}, description="The texts of files that a Dockerfile itself writes, by their paths in the image."
    )
    callable: str = Field(
        "", description="In the place of a command: the module and the callable, such as `shop.wsgi:application`, or a "
        'factory, perhaps with literals: `app:create_app("prod")`. `served` then says the numbers.',
    )  # fmt: skip
    requirements: Path | None = Field(
        None, description="The file with the required packages, seen from the folder: of pip, or pyproject.toml, "
        "Pipfile or setup.cfg. Without it, only the server is installed.",
    )  # fmt: skip
    extras: list[str] = Field(
        [], max_length=16, description="Extras of the project, or groups of dependencies, that the file of "
        "`requirements` has, such as `server`.",
    )  # fmt: skip
    packages: list[Annotated[str, Field(pattern=REQUIREMENT_PATTERN)]] = Field(
        [], max_length=100, description="Further packages of Python, as pip names them, such as `psycopg[binary]`.",
    )  # fmt: skip
    system_packages: list[Annotated[str, Field(pattern=PACKAGE_PATTERN)]] = Field(
        [], max_length=100, description="Debian's packages that the application or the building of its requirements "
        "needs, such as `libmagic1`, or `gcc` and `libpq-dev`.",
    )  # fmt: skip
    environment: dict[str, str] = Field(
        {}, description="Environment variables; a run does not record them. In a value, `${NAME}` is a variable of "
        "`env_file`. A relative path in `PYTHONPATH` starts at the folder.",
    )  # fmt: skip
    env_file: Annotated[list[Path], BeforeValidator(_listed, json_schema_input_type=str | list[str])] = Field(
        [], max_length=8, description="A file with further variables, such as secrets, or a list of files, of which "
        "the last counts most. A relative path starts at the folder of this file.",
    )  # fmt: skip
    before: str = Field(
        "", description="A command that runs in the application's folder before it is served, such as `python "
        "manage.py migrate`.",
    )  # fmt: skip
    ready: str = Field(
        "", pattern=READY_PATTERN, description="The path that answers with 200 when the application is ready. Without "
        "it, the application is ready when it is loaded.",
    )  # fmt: skip
    hosts: list[Annotated[str, Field(pattern=HOST_PATTERN)]] = Field(
        [], max_length=8, description="Hosts outside that the application may reach, such as `api.example.com` or "
        "`db.example.com:5432`.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if (self.folder is None) == (self.image is None):
            raise ValueError("give either folder or image: where the application is")
        for name in ("requirements", "extras", "packages", "system_packages"):
            if self.image and getattr(self, name):
                raise ValueError(f"{name} are for a folder; an image has all that the application requires")
        return self

    @field_validator("hosts")
    @classmethod
    def _have_ports(cls, value: list[str]) -> list[str]:
        for host in value:
            port = host.partition(":")[2]
            if port and not 1 <= int(port) <= MOST_PORT:
                raise ValueError(f"the port of {host} must be from 1 to {MOST_PORT}")
        return value

    @model_validator(mode="after")
    def _is_started(self) -> Self:
        if not (self.callable or self.command or self.image):
            raise ValueError("give command, which starts the service, or callable")
        return self

    @field_validator("callable")
    @classmethod
    def _names_a_callable(cls, value: str) -> str:
        if not value:
            return value
        if not re.fullmatch(CALLABLE_PATTERN, value):
            raise ValueError(f"{value!r} must name a module and a callable, such as app:app or shop.wsgi:application")
        if "(" in value:
            _check_arguments(value)
        return value


def _check_arguments(value: str) -> None:
    """Raise ValueError unless all arguments of a factory are literals, as gunicorn takes them, or plain names."""
    try:
        call = ast.parse(value.partition(":")[2], mode="eval").body
        assert isinstance(call, ast.Call)
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            if not isinstance(argument, ast.Name):
                ast.literal_eval(argument)
    except (SyntaxError, ValueError, AssertionError):
        raise ValueError(
            f"{value!r}: the arguments of a factory must be literals or names, such as app:create_app('prod')"
        ) from None


_OF_SOME_SERVERS = ("worker_class", "worker_connections", "interface", "backpressure", "max_requests",
                    "max_requests_jitter", "timeout_s", "settings")  # fmt: skip
"""The keys that only some servers know."""
SERVERS = tuple(PROGRAMS)
BESIDE_COMMAND = {*SERVERS, "replicas", "balance", "cpus", "memory_mib", "upstream_keepalive"}
"""The keys of ``served`` that a command does not say."""
MOST_CONNECTIONS = 65535


if TYPE_CHECKING:
    _Releases = Model
else:
    _Releases = create_model("_Releases", __base__=Model, **{
        name: (Release | None, Field(None, description=f"The release of {name}, in the place of that in the "
                                                       f"requirements, such as `{each.release}`. Name one server."))
        for name, each in PROGRAMS.items()
    })  # fmt: skip


class Served(_Releases):
    """How the application is served today: by one of SERVERS, in the named release; by gunicorn, if none is named."""

    worker_class: Literal[
        "gthread", "sync", "gevent", "eventlet", "tornado", "asgi", "uvicorn_worker.UvicornWorker",
        "uvicorn.workers.UvicornWorker",
    ] = Field(
        "gthread", description="gunicorn's class of workers. The last three serve ASGI applications. Like the keys up "
        "to `settings`, it is for a `callable`; a command says it itself.",
    )  # fmt: skip
    interface: Literal["wsgi", "asgi"] | None = Field(None, description="granian's interface, which it must name.")
    workers: int = Field(ge=1, le=64, description="How many processes there are. daphne always has one.")
    threads: int = Field(
        1, ge=1, le=MOST_THREADS, description="How many threads each worker has: of `gthread`, of uWSGI, and of "
        "granian with `interface: wsgi` (its blocking threads, by default not 1, but half of the backpressure).",
    )  # fmt: skip
    backpressure: int | None = Field(
        None, ge=1, le=MOST_CONNECTIONS, description="The most requests that each worker of granian takes. Without it, "
        "1024 / workers.",
    )  # fmt: skip
    worker_connections: WorkerConnections = GTHREAD_CONNECTIONS
    max_requests: MaxRequests = 0
    max_requests_jitter: MaxRequestsJitter = 0
    timeout_s: int = Field(
        0, ge=0, le=100_000, description="How many seconds a worker may give no sign of life before its server kills "
        "it: gunicorn's `timeout`, uvicorn's `--timeout-worker-healthcheck`; 0: the server's default, or that of "
        "`settings`.",
    )  # fmt: skip
    settings: Path | None = Field(
        None, description="Your own settings file of gunicorn or uWSGI, seen from the application's folder."
    )
    replicas: int = Field(1, ge=1, le=MOST_REPLICAS, description="How many containers have these workers each.")
    balance: Balance = Field("round_robin", description="How nginx chooses a container.")
    cpus: Cpus = 0
    memory_mib: MemoryMib = 512
    upstream_keepalive: UpstreamKeepalive = 0

    @model_validator(mode="before")
    @classmethod
    def _with_the_defaults_of_servers(cls, said: object) -> object:
        """Give daphne its only process, and granian the blocking threads that it has by itself."""
        if not isinstance(said, dict):
            return said
        if said.get("daphne"):
            return {"workers": 1} | said
        workers, most = said.get("workers"), said.get("backpressure")
        if said.get("granian") and said.get("interface") == "wsgi" and isinstance(workers, int) and workers > 0:
            most = most if isinstance(most, int) else GRANIAN_BACKLOG // workers
            return {"threads": min(MOST_THREADS, max(1, most // 2))} | said
        return said

    @model_validator(mode="after")
    def _one_server(self) -> Self:
        named = [name for name in SERVERS if name in self.model_fields_set]
        if len(named) > 1:
            raise ValueError(f"give one server, not {' and '.join(named)}")
        for key in _OF_SOME_SERVERS:
            owners = [each.name for each in PROGRAMS.values() if key in each.names]
            if key in self.model_fields_set and getattr(self, key) and self.server not in owners:
                raise ValueError(f"{key} is a setting of {' and '.join(owners)}; leave it out for {self.server}")
        if self.max_requests_jitter and not self.max_requests:
            raise ValueError("max_requests_jitter needs max_requests; give both, or leave it out")
        return self

    @model_validator(mode="after")
    def _release_has_such_workers(self) -> Self:
        if self.server == "granian" and self.interface is None:
            raise ValueError("granian needs interface: wsgi or interface: asgi")
        first, last = self.kind.majors
        if not first <= self.major <= last:
            what = f"has no class {self.worker_class}" if self.server == "gunicorn" else "is too old"
            way_out = f"from {first} on" if self.major < first else f"up to {last}, or another class"
            raise ValueError(f"{self.server} {self.release} {what}; choose a release {way_out}")
        if self.server == "daphne" and self.workers > 1:
            raise ValueError(f"daphne has one process, not {self.workers} workers; write replicas: {self.workers}")
        return self

    @model_validator(mode="after")
    def _only_some_have_threads(self) -> Self:
        if self.threads > max(1, self.kind.threads):
            of_gunicorn = self.server == "gunicorn"
            what = f"workers of the class {self.worker_class}" if of_gunicorn else self.server
            verb = "have" if of_gunicorn else "has"
            instead = "choose interface: wsgi, or leave threads out" if self.interface else "leave threads out"
            way_out = instead if self.kind.is_asgi else "choose worker_class: gthread, or threads: 1"
            where = " with interface: asgi" if self.interface else ""
            raise ValueError(f"{what} {verb} no threads{where}; {way_out}")
        return self

    @property
    def server(self) -> str:
        """The server."""
        return next((name for name in SERVERS[1:] if getattr(self, name)), "gunicorn")

    @property
    def release(self) -> str:
        """The release of the server."""
        return str(getattr(self, self.server) or PROGRAMS[self.server].release)

    @property
    def kind(self) -> Workers:
        """The kind of workers."""
        program = PROGRAMS[self.server]
        return program.kinds[getattr(self, program.kind_by) if program.kind_by else ""]

    @property
    def most_at_once(self) -> int:
        """How many requests each worker of granian takes at the same time: the backpressure, given or by default."""
        return self.backpressure or max(1, GRANIAN_BACKLOG // self.workers)

    @property
    def major(self) -> int:
        """The first number of the server's release."""
        return int(self.release.split(".")[0])

    @property
    def processes(self) -> int:
        """How many workers all replicas have together."""
        return self.workers * self.replicas

    @property
    def slots(self) -> int:
        """How many requests all workers together serve at the same time, if they have threads."""
        return self.processes * self.threads


class Beside(Model):
    """What the application needs beside it: services of a Compose file."""

    compose: Path = Field(description="Your Compose file.")
    services: list[str] = Field(
        min_length=1, max_length=8, description="The services in it that the application needs, such as a database."
    )

    @field_validator("services")
    @classmethod
    def _are_no_words_of_the_lab(cls, value: list[str]) -> list[str]:
        if taken := sorted({"app", "balancer", "before"} & set(value)):
            raise ValueError(f"the lab has a service {taken[0]} of its own; name services that the application uses")
        return value


class LogToReplay(Model):
    """An access log, whose requests with these methods are sent again at the times at which they came."""

    log: Path = Field(description="An access log whose requests are sent again, in the place of `requests`.")
    methods: list[Annotated[str, Field(pattern=METHOD_PATTERN)]] = Field(
        ["GET", "HEAD"], min_length=1, description="The methods of these requests."
    )


SCHEMA = "my-service.schema.json"
HEAD = (
    f"# yaml-language-server: $schema={SCHEMA}",
    "# A service for stampede try <this file>. docs/reference/service-file.md explains each key.",
)
"""The first lines of a file that ``stampede init`` writes; the schema stands beside it."""


class UserService(Model):
    """The whole file."""

    application: Application
    served: Served
    beside: Beside | None = None
    login: Login | None = None
    requests: OwnRequestClasses = Field({}, min_length=0)
    replay: LogToReplay | None = None

    @model_validator(mode="before")
    @classmethod
    def _says_each_thing_once(cls, said: object) -> object:
        """Refuse what a command says itself, and files of an earlier version, which say everything twice."""
        parts = [said.get(name) for name in ("application", "served")] if isinstance(said, dict) else []
        if not (isinstance(said, dict) and isinstance(parts[0], dict)):
            return said
        served = parts[1] if isinstance(parts[1], dict) else {}
        if "left_out" in served or all(isinstance(parts[0].get(name), str) for name in ("command", "callable")):
            again = f"stampede init {parts[0].get('folder', 'path/of/the/application')} --to another.yaml"
            raise ValueError(f"this file was written by an earlier version; write another: {again}")
        if parts[0].get("callable") or not (parts[0].get("command") or parts[0].get("image")):
            return said
        if others := [str(name) for name in served if name not in BESIDE_COMMAND]:
            raise ValueError(f"served.{others[0]}: the command says this; change it there")
        usual = {"workers": 1} | ({"interface": "asgi"} if "granian" in served else {})
        return said | {"served": usual | served}

    @model_validator(mode="after")
    def _something_is_asked(self) -> Self:
        if bool(self.requests) == bool(self.replay):
            raise ValueError("give either requests or replay: what people ask for")
        if (length := len(own_as_json(self.requests))) > MOST_ASKED:
            raise ValueError(f"requests have {length:,} characters in all, but k6 can be told only {MOST_ASKED:,}")
        return self

    @model_validator(mode="after")
    def _has_a_release_of_uwsgi(self) -> Self:
        there = self.served.release
        if self.application.folder and self.served.server == "uwsgi" and there != UWSGI.release:
            raise ValueError(
                f"served.uwsgi: the lab compiles uWSGI {UWSGI.release}, and not {there}; write {UWSGI.release}, or "
                f"give an image that has {there}"
            )
        return self


_PATHS = {
    "application": ("folder", "env_file", "requirements"), "served": ("settings",), "beside": ("compose",),
    "replay": ("log",),
}  # fmt: skip
"""The keys that hold paths, in each part of the file."""


def read_user_service(path: Path) -> UserService:
    """Read and check the description of a service. Raise WrongUse with the place of the first mistake.

    Relative paths start at the folder of the file; those of requirements and settings, at the application's folder.
    """
    file = YamlFile(path, WORDING)
    service = file.read_as(UserService)
    base = path.resolve().parent
    in_application = base / (service.application.folder or "")
    for part, name in [(part, name) for part, names in _PATHS.items() for name in names]:
        if stated := getattr(getattr(service, part), name, None):
            start = in_application if name in ("requirements", "settings") else base
            paths = [start / each for each in (stated if isinstance(stated, list) else [stated])]
            for there in paths:
                if not (there.is_dir() if name == "folder" else there.is_file()):
                    what = "folder" if name == "folder" else "file"
                    raise file.mistake(f"there is no {what} {there}", part, name)
            changed = {name: paths if isinstance(stated, list) else paths[0]}
            service = service.model_copy(update={part: getattr(service, part).model_copy(update=changed)})
    _check_secrets(file, service)
    return service


def _check_secrets(file: YamlFile, service: UserService) -> None:
    """Raise WrongUse if a request needs a variable that the file of variables lacks."""
    secrets = read_env_files(service.application.env_file)
    asked_for = {("requests", name): asked for name, asked in service.requests.items()}
    for place, asked in [*asked_for.items(), *([(("login",), service.login)] if service.login else [])]:
        named = [name for name in asked.names_of_secrets if not (service.login and name.startswith("cookie."))]
        if unknown := [name for name in named if name not in secrets]:
            there = nearest_first(unknown[0], list(secrets)) if secrets else "none"
            problem = f"${{{unknown[0]}}} is no variable of env_file; there are {there}"
            raise file.mistake(problem, *place)


def read_env_files(paths: Iterable[Path]) -> dict[str, str]:
    """Read env files. A variable has the value of the last file that has it. Raise WrongUse as read_env_file does."""
    return {name: value for path in paths for name, value in read_env_file(path).items()}


def read_env_file(path: Path) -> dict[str, str]:
    """Read an env file. Raise WrongUse if it cannot be read, or for a line that is not NAME=value."""
    text = read_text(path)
    if wrong := [number for number, stated in _lines_of_env_file(text) if not stated]:
        raise WrongUse(f"{path.name}:{wrong[0]}: not NAME=value")  # the line itself may be a secret
    return variables_of_env_file(text)


def variables_of_env_file(text: str) -> dict[str, str]:
    """Return the variables of an env file, as Compose reads it: a comment may follow a value and a space."""
    return {
        stated[1]: stated["quoted"] if stated["quoted"] is not None else re.sub(r"(^|\s+)#.*", "", stated["plain"])
        for _, stated in _lines_of_env_file(text) if stated
    }  # fmt: skip


_IN_ENV_FILE = re.compile(
    r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(?:(?P<quote>['\"])(?P<quoted>.*)(?P=quote)(?:\s*|\s+#.*)|(?P<plain>.*))"
)


def _lines_of_env_file(text: str) -> Iterator[tuple[int, re.Match[str] | None]]:
    """Yield the number of each line that is neither blank nor a comment, and its name and value; None: it has none."""
    for number, line in enumerate(text.splitlines(), start=1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield number, _IN_ENV_FILE.fullmatch(stripped)


WORDING = Wording(
    patterns={
        RELEASE_PATTERN: ("a release", "27.0.1"),
        READY_PATTERN: ("the path of a request", "/items?page=2"),
        REQUIREMENT_PATTERN: ("a package of Python", "psycopg[binary]"),
        PACKAGE_PATTERN: ("the name of a package of Debian", "libpq5"),
        HOST_PATTERN: ("the name of a host outside, perhaps with a port", "db.example.com:5432"),
    },
    hint="docs/how-to/your-service.md has an example of such a file.",
)


def editor_schema() -> str:
    """Return the JSON schema of files that describe services, for editors; a command says its workers itself."""
    schema = UserService.model_json_schema()
    schema["$defs"]["Served"]["required"].remove("workers")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"

"""The file that describes somebody's own service: the application, how it is served, and what people ask of it."""

import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from stampede.errors import WrongUse
from stampede.experiment.yaml_file import YamlFile
from stampede.foreign import read_text
from stampede.predict.options import MOST_REPLICAS
from stampede.records.classes import METHOD_PATTERN, PATH_PATTERN, Login, OwnRequestClasses, as_json
from stampede.records.mistakes import Wording
from stampede.records.model import Model
from stampede.records.run import GTHREAD_CONNECTIONS
from stampede.records.words import nearest_first
from stampede.servers.base import RELEASE_PATTERN, Balance, Cpus, MemoryMib, Release, UpstreamKeepalive
from stampede.servers.program import GRANIAN_BACKLOG, MOST_THREADS, PROGRAMS, UWSGI, Workers
from stampede.typed import typed

REQUIREMENT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*([=<>!~;@].*)?$"
"""A package of Python with its extras and its releases (PEP 508)."""
PACKAGE_PATTERN = r"^[a-z0-9][a-z0-9.+-]*[a-z0-9.+]$"
"""The name of a package (Debian Policy 5.6.1), but not with a minus at its end, which tells apt-get to remove it."""
NO_REQUIREMENTS = ("setup.cfg", "setup.py")
"""Files that may say what an application requires, and that the lab does not read."""
READY_PATTERN = rf"{PATH_PATTERN}|^$"
MOST_ASKED = 100_000
"""How long the description of all requests may be; Linux allows 128 KiB for one variable."""
NEEDS_A_FILE = f"{typed('try', 'my-service.yaml')}; stampede init path/of/the/application writes such a file"


def _listed(said: object) -> object:
    return said if isinstance(said, list) else [said]


class Application(Model):
    """The application: its folder, or the image that has it; its command, and what it needs."""

    folder: Path | None = Field(None, description="Where the application is, seen from this file; or give `image`.")
    image: str | None = Field(None, min_length=1, description="An image that has the application and its server.")
    command: str = Field(
        "", description="The command that starts the service today, as it was found. It runs as it is; the server "
        "itself says its workers, threads and application. Without it, an image starts with its own.",
    )  # fmt: skip
    working_folder: str = Field("", description="Where the command runs, seen from the folder.")
    paths: dict[str, str] = Field(
        {}, description="Paths of the image at home, and what is there, seen from the folder, such as `{/app: ., "
        "/start.sh: docker/start.sh}`. What is missing is made as a folder to write.",
    )  # fmt: skip
    written: dict[str, str] = Field({}, description="Texts that a Dockerfile writes, by their paths in the image.")
    requirements: Path | None = Field(
        None, description="The file with the required packages, seen from the folder: of pip, pyproject.toml or such."
    )
    extras: list[str] = Field(
        [], max_length=16, description="Extras, or groups of dependencies, in the file `requirements`, such as `web`."
    )
    packages: list[Annotated[str, Field(pattern=REQUIREMENT_PATTERN)]] = Field(
        [], max_length=100, description="Further packages of Python, as pip names them, such as `psycopg[binary]`."
    )
    system_packages: list[Annotated[str, Field(pattern=PACKAGE_PATTERN)]] = Field(
        [],
        max_length=100,
        description="Debian's packages, such as `libmagic1`, or those that building the others needs: `gcc`.",
    )
    environment: dict[str, str] = Field(
        {}, description="Environment variables; a run does not record them. In a value, `${NAME}` is a variable of "
        "`env_file`. A relative path in `PYTHONPATH` starts at the folder.",
    )  # fmt: skip
    env_file: Annotated[list[Path], BeforeValidator(_listed, json_schema_input_type=str | list[str])] = Field(
        [], max_length=8, description="A file with further variables, such as secrets, seen from this file; or a list "
        "of files, of which the last counts most.",
    )  # fmt: skip
    before: str = Field(
        "",
        description="A command that runs in the working folder before the application is served: `python manage.py "
        "migrate`.",
    )
    ready: str = Field(
        "", pattern=READY_PATTERN, description="The path that answers 200 when the application is ready; else it is "
        "ready when it is loaded.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if (self.folder is None) == (self.image is None):
            raise ValueError("give either folder or image: where the application is")
        if not (self.command or self.image):
            raise ValueError("give command, which starts the service")
        for name in ("requirements", "extras", "packages", "system_packages"):
            if self.image and getattr(self, name):
                raise ValueError(f"{name} are for a folder; an image has all that the application requires")
        if self.requirements and self.requirements.name in NO_REQUIREMENTS:
            raise ValueError(f"requirements: the lab does not read {self.requirements.name}; write its "
                             "install_requires into a requirements.txt, and name that")  # fmt: skip
        return self


SERVERS = tuple(PROGRAMS)
IN_FILE = {*SERVERS, "replicas", "balance", "cpus", "memory_mib", "upstream_keepalive"}
"""The keys of ``served`` in a file; the rest, its command says."""
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
    """How the application is served today: by one of SERVERS, in the named release; by gunicorn, if none is named.

    A file has the keys of IN_FILE. All others are what the server said when its command was followed.
    """

    replicas: int = Field(1, ge=1, le=MOST_REPLICAS, description="How many containers serve like that.")
    balance: Balance = Field("round_robin", description="How nginx chooses a container.")
    cpus: Cpus = 0
    memory_mib: MemoryMib = 512
    upstream_keepalive: UpstreamKeepalive = 0
    worker_class: SkipJsonSchema[str] = "gthread"
    interface: SkipJsonSchema[str] = "asgi"
    workers: SkipJsonSchema[int] = Field(1, ge=1, le=64)
    threads: SkipJsonSchema[int] = Field(1, ge=1, le=MOST_THREADS)
    backpressure: SkipJsonSchema[int | None] = Field(None, ge=1, le=MOST_CONNECTIONS)
    worker_connections: SkipJsonSchema[int] = Field(GTHREAD_CONNECTIONS, ge=1, le=MOST_CONNECTIONS)
    max_requests: SkipJsonSchema[int] = 0
    max_requests_jitter: SkipJsonSchema[int] = 0
    timeout_s: SkipJsonSchema[int] = 0

    @model_validator(mode="after")
    def _one_server(self) -> Self:
        named = [name for name in SERVERS if getattr(self, name)]
        if len(named) > 1:
            raise ValueError(f"give one server, not {' and '.join(named)}")
        return self

    @property
    def server(self) -> str:
        """The server."""
        return next((name for name in SERVERS if getattr(self, name)), "gunicorn")

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
    def processes(self) -> int:
        """How many workers all replicas have together."""
        return self.workers * self.replicas

    @property
    def slots(self) -> int:
        """How many requests all workers together serve at the same time, if they have threads."""
        return self.processes * self.threads


OF_COMMAND = tuple(name for name in Served.model_fields if name not in IN_FILE)
"""What the server says of its command: the class of workers or the interface, then numbers."""


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
    def _has_no_keys_of_an_earlier_version(cls, said: object) -> object:
        """Refuse those keys with what to write in their place, and what the command says itself."""
        parts = [said.get(name) if isinstance(said, dict) else None for name in ("application", "served")]
        application, served = (part if isinstance(part, dict) else {} for part in parts)
        if "callable" in application:
            program = PROGRAMS[next((name for name in SERVERS if served.get(name)), "gunicorn")]
            command = shlex.join(program.command(str(application["callable"]), program.options(served)))
            raise ValueError(f"application.callable: write a command in its place, such as command: {command}")
        if "hosts" in application:
            raise ValueError("application.hosts: nothing in the lab reaches a host outside; in its place, name in "
                             "beside.services a service of a Compose file that answers as it does, and has its name; "
                             "or let a variable in application.environment name the service")  # fmt: skip
        for name in (name for name in served if name in OF_COMMAND):
            raise ValueError(f"served.{name}: the command says this; change it there")
        return said

    @model_validator(mode="after")
    def _can_be_measured(self) -> Self:
        if bool(self.requests) == bool(self.replay):
            raise ValueError("give either requests or replay: what people ask for")
        if (length := len(as_json(self.requests))) > MOST_ASKED:
            raise ValueError(f"requests have {length:,} characters in all, but k6 can be told only {MOST_ASKED:,}")
        there = self.served.release
        if self.application.folder and self.served.server == "uwsgi" and there != UWSGI.release:
            raise ValueError(
                f"served.uwsgi: the lab compiles uWSGI {UWSGI.release}, and not {there}; write {UWSGI.release}, or "
                f"give an image that has {there}"
            )
        return self


_PATHS = {"application": ("folder", "env_file", "requirements"), "beside": ("compose",), "replay": ("log",)}
"""The keys that hold paths, in each part of the file."""


def read_user_service(path: Path) -> UserService:
    """Read and check the description of a service. Raise WrongUse with the place of the first mistake.

    Relative paths start at the folder of the file; that of requirements, at the application's folder.
    """
    file = YamlFile(path, WORDING)
    service = file.read_as(UserService)
    base = path.resolve().parent
    for part, name in [(part, name) for part, names in _PATHS.items() for name in names]:
        if stated := getattr(getattr(service, part), name, None):
            start = base / (service.application.folder or "") if name == "requirements" else base
            paths = [start / each for each in (stated if isinstance(stated, list) else [stated])]
            for there in paths:
                if not (there.is_dir() if name == "folder" else there.is_file()):
                    what = "folder" if name == "folder" else "file"
                    raise file.mistake(f"there is no {what} {there}", part, name)
            changed = {name: paths if isinstance(stated, list) else paths[0]}
            service = service.model_copy(update={part: getattr(service, part).model_copy(update=changed)})
    secrets = read_env_files(service.application.env_file)
    asked_for = {("requests", name): asked for name, asked in service.requests.items()}
    for place, asked in [*asked_for.items(), *([(("login",), service.login)] if service.login else [])]:
        named = [name for name in asked.names_of_secrets if not (service.login and name.startswith("cookie."))]
        if unknown := [name for name in named if name not in secrets]:
            there = nearest_first(unknown[0], list(secrets)) if secrets else "none"
            raise file.mistake(f"${{{unknown[0]}}} is no variable of env_file; there are {there}", *place)
    return service


def read_env_files(paths: Iterable[Path]) -> dict[str, str]:
    """Read env files, of which the last that has a variable counts. Raise WrongUse for a line without NAME=value."""
    found: dict[str, str] = {}
    for path in paths:
        text = read_text(path)
        for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
            if line and not line.startswith("#") and not _IN_ENV_FILE.fullmatch(line):
                raise WrongUse(f"{path.name}:{number}: not NAME=value")  # the line itself may be a secret
        found |= variables_of_env_file(text)
    return found


def variables_of_env_file(text: str) -> dict[str, str]:
    """Return the variables of an env file, as Compose reads it: a comment may follow a value and a space."""
    lines = (found for line in text.splitlines() if (found := _IN_ENV_FILE.fullmatch(line.strip())))
    return {
        line[1]: line["quoted"] if line["quoted"] is not None else re.sub(r"(^|\s+)#.*", "", line["plain"])
        for line in lines
    }


_IN_ENV_FILE = re.compile(
    r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(?:(?P<quote>['\"])(?P<quoted>.*)(?P=quote)(?:\s*|\s+#.*)|(?P<plain>.*))"
)
WORDING = Wording(
    patterns={
        RELEASE_PATTERN: ("a release", "27.0.1"),
        READY_PATTERN: ("the path of a request", "/items?page=2"),
        REQUIREMENT_PATTERN: ("a package of Python", "psycopg[binary]"),
        PACKAGE_PATTERN: ("the name of a package of Debian", "libpq5"),
    },
    hint="docs/how-to/your-service.md has an example of such a file.",
)


def editor_schema() -> str:
    """Return the JSON schema of files that describe services, for editors."""
    return json.dumps(UserService.model_json_schema(), indent=2, ensure_ascii=False) + "\n"

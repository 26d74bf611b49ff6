"""Somebody's application as a workload: a layer on a server's image, and the services beside it."""

import hashlib
import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stampede.docker.client import HERE, MISSING, DockerError
from stampede.docker.commands import Say
from stampede.docker.redaction import mask
from stampede.errors import WrongUse
from stampede.paths import SERVERS
from stampede.records.classes import fill
from stampede.servers.base import BEFORE, BESIDE
from stampede.service.description import Application, Served, UserService, read_env_files
from stampede.service.packages import required_lines, scripts_of
from stampede.typed import typed

FOLDER = "/opt/application"
"""Where the application's folder is in its image. The application may write there, in a volume of its trial."""
OWN = "own"
"""The service of docker-compose.yml that serves somebody's own application."""
LEFT_OUT = (".git", "__pycache__", ".venv", "venv", "node_modules", ".env", ".pytest_cache", ".mypy_cache", "*.pyc")
"""Files and folders that are no part of an application."""
MOST_MIB = 500
_PROGRAMS = {
    "wait-until-ready": "wait-until-ready", "observe": "observe", "observe-counted": "observe-own",
    "user-service/image/workers-ready": "workers-ready",
}  # fmt: skip
"""What asks and observes the server of a layer, and its name there."""
_SRV = {
    **{f"user-service/{name}.py": f"{name}.py"
       for name in ("start", "hooks", "stampede_own", "stampede_uwsgi", "stampede_called")},
    "app/counters.py": "stampede_counters.py", "../idle-thread/gunicorn_idle_thread.py": "gunicorn_idle_thread.py",
}  # fmt: skip
"""What serves the application, and its name in /opt/stampede."""
_OF_SHELL = re.compile(r"^\w+=|[$`;&|<>()*?~{}\[\]\\#!\n]")
"""What makes a command one for a shell."""
BESIDE_PROJECT = "stampede-beside"
"""The Compose project that builds the images of the services beside an application."""
MIB = 512
"""The memory of a service that states no limit."""
_KEPT = ("command", "entrypoint", "healthcheck", "user", "working_dir", "tmpfs", "shm_size", "init", "stop_signal")
"""What a service keeps of its description. Its ports and networks are the lab's; its data lasts for one trial."""
_READ = (*_KEPT, "image", "build", "environment", "volumes", "secrets", "configs", "mem_limit", "deploy", "depends_on")
_OF_NO_MATTER = ("container_name", "expose", "hostname", "labels", "logging", "networks", "ports", "profiles",
                 "pull_policy", "restart", "stop_grace_period")  # fmt: skip
_TIMES = ("interval", "timeout", "start_period", "start_interval")
_DATA = ("/var/lib", "/data")
"""Where images have their data, which is new in each trial, so nothing is mounted there."""
_SECRET = re.compile(r"PASS|SECRET|TOKEN|KEY", re.IGNORECASE)


@dataclass(frozen=True)
class ServicesBeside:
    """Services beside the application: as Compose takes them, with variables in the place of ``values``.

    ``secrets`` are those of the values that no file of a run may have. ``builds`` has the images that ``file``, the
    Compose file of the application, says how to build, by their names in this file. ``left_out`` is what the file says
    and the lab does not do, such as ``db: cap_add``.
    """

    services: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    file: Path = Path()
    builds: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()


def read_beside(file: Path, names: Sequence[str]) -> ServicesBeside:
    """Read services from a Compose file. Raise WrongUse if Compose cannot read the file, or if a service is missing."""
    file = file.resolve()
    try:
        said = HERE.run("compose", "--file", str(file), "--project-name", BESIDE_PROJECT, "--project-directory",
                        str(file.parent), "--profile", "*", "config", "--format", "json")  # fmt: skip
    except DockerError as error:
        if error.exit_code == MISSING:
            raise WrongUse("beside.compose: Docker's client is missing on this machine.", hint=typed("setup")) from None
        raise WrongUse(f"beside.compose: {file.name} cannot be read: {error}") from None
    resolved: Mapping[str, Any] = json.loads(said)
    described: Mapping[str, Mapping[str, Any]] = resolved["services"]
    values: dict[str, str] = {}
    services, builds = {}, {}
    secrets: dict[str, str] = {}
    for name in names:
        if name not in described:
            there = ", ".join(sorted(described))
            raise WrongUse(f"beside.services: {file.name} has no service {name}; it has {there}.")
        says = described[name]
        image = says.get("image") or f"{BESIDE_PROJECT}-{name}"
        if "build" in says:
            builds[name] = image
        kept = {key: says[key] for key in _KEPT if says.get(key) is not None}
        check = kept.get("healthcheck") or {}
        if check.get("disable") or not check.get("test", True) or check.get("test") in ("NONE", ["NONE"]):
            kept.pop("healthcheck", None)
        environment = {key: str(value) for key, value in (says.get("environment") or {}).items() if value}
        secrets |= {key: value.replace("$$", "$") for key, value in environment.items() if _SECRET.search(key)}
        limits = (says.get("deploy") or {}).get("resources", {}).get("limits", {})
        size = str(max(6 * 2**20, int(says.get("mem_limit") or limits.get("memory") or MIB * 2**20)))
        after = {other: condition for other, condition in (says.get("depends_on") or {}).items() if other in names}
        services[f"{BESIDE}{name}"] = {
            **hidden(kept, values),
            "image": image,
            "environment": {key: hidden(value, values) for key, value in environment.items()},
            "volumes": [
                {"type": "bind", "source": hidden(source, values), "target": target, "read_only": True}
                for source, target in _files(says, resolved, file.parent)
            ],
            "depends_on": {f"{BESIDE}{other}": condition for other, condition in after.items()},
            "mem_limit": size, "memswap_limit": size, "pids_limit": 2048,
            "networks": {"lab": {"aliases": [name]}},
        }  # fmt: skip
    left_out = [f"{name}: {key}" for name in names for key, value in sorted(described[name].items())
                if value and key not in (*_READ, *_OF_NO_MATTER)]  # fmt: skip
    return ServicesBeside(services, values, secrets, file, builds, left_out)


def hidden(value: Any, by_variable: dict[str, str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value in which variables stand for all texts that may have been made with a secret."""
    if isinstance(value, dict):
        return {key: item if key in _TIMES else hidden(item, by_variable) for key, item in value.items()}
    if isinstance(value, list):
        return [hidden(item, by_variable) for item in value]
    if not isinstance(value, str):
        return value
    name = f"LAB_BESIDE_{len(by_variable)}"
    by_variable[name] = value.replace("$$", "$")  # Compose doubles each $ in what it prints
    return f"${{{name}:-}}"


def _files(described: Mapping[str, Any], resolved: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the files of the application's folder that a service mounts, to be read only, and where. No volumes."""
    for mount in described.get("volumes") or ():
        target = str(mount["target"])
        inside = mount.get("type") == "bind" and Path(mount["source"]).is_relative_to(folder)
        if inside and not target.startswith(_DATA):
            yield mount["source"], target
    for kind, place in (("secrets", "/run/secrets/"), ("configs", "/")):
        for used in described.get(kind) or ():
            if source := resolved.get(kind, {}).get(used["source"], {}).get("file"):
                target = str(used.get("target") or used["source"])
                yield source, target if target.startswith("/") else place + target


@dataclass(frozen=True)
class Layer:
    """An application as a layer on an image: the folder to build, and the tag of the result.

    ``image`` is the image that exists, if the application is in an image; ``server`` is the server that this image must
    have, and its release. ``before`` is a command to run before the application is served; empty: there is none.
    ``loaded`` says how the application is loaded alone (servers/user-service/load.py); empty: nobody knows its name.
    """

    folder: Path
    tag: str
    secrets: Mapping[str, str] = field(default_factory=dict)
    beside: ServicesBeside = field(default_factory=ServicesBeside)
    before: str = ""
    image: str = ""
    server: tuple[str, str] = ("", "")
    loaded: Mapping[str, Any] = field(default_factory=dict)

    def build(self, service: str, factors: Mapping[str, str], say: Say) -> None:
        """Build the image with the application and the programs that serve it."""
        from stampede.service.build import build_layer  # noqa: PLC0415  # which needs this class

        build_layer(self, service, factors, say)

    @property
    def needs_others(self) -> bool:
        """Whether the application may need services or a command before to be loaded."""
        return bool(self.beside.services or self.before)

    @property
    def load_files(self) -> Path | None:
        """The folder with the requests of a log; None: no log is sent again."""
        return replay if (replay := self.folder / "replay").exists() else None

    @property
    def memory_mib(self) -> dict[str, int]:
        """The memory limits of the services beside the application, in MiB."""
        return {name: int(service["mem_limit"]) // 2**20 for name, service in self.beside.services.items()}

    @property
    def application(self) -> Path | None:
        """The copy of the application's folder; None: an image has the application."""
        return None if self.image else self.folder / "application"

    def masked(self, said: bytes) -> bytes:
        """Return what a program said, with the names of secrets in the place of their values."""
        return mask(said, [*self.secrets.items(), *self.beside.secrets.items()])

    def masked_text(self, said: str) -> str:
        """Return a text with the names of secrets in the place of their values."""
        return self.masked(said.encode()).decode()

    @property
    def variables(self) -> dict[str, str]:
        """The secrets, the values of the services beside, and the folder of a replay."""
        secrets = {"LAB_SECRETS": quote(json.dumps(dict(self.secrets)))} if self.secrets else {}
        replay = {"LAB_REPLAY_FOLDER": str(self.load_files)} if self.load_files else {}
        return secrets | dict(self.beside.values) | replay

    def extend(self, resolved: dict[str, Any], server: str) -> None:
        """Add the services beside and the command before; replay a log, if there is one."""
        services = resolved["services"]
        own = services[server]
        box = {key: own[key] for key in ("dns", "labels", "logging", "oom_score_adj", "security_opt")}
        added = {name: dict(box | dict(service)) for name, service in self.beside.services.items()}
        ready = {name: _after("healthy" if "healthcheck" in service else "started") for name, service in added.items()}
        if not self.image:
            own = own | {"volumes": [{"type": "volume", "target": FOLDER}]}
        if self.before:
            added[BEFORE] = own | {
                "entrypoint": ["python3", "/opt/stampede/start.py", "before", "/opt/stampede/start.json"],
                "command": [self.before.replace("$", "$$")], "depends_on": dict(ready),
                "healthcheck": {"disable": True}, "scale": 1, "networks": {"lab": {}},
            }  # fmt: skip
            ready[BEFORE] = _after("completed_successfully")
            own = {key: value for key, value in own.items() if key != "volumes"}
            own["volumes_from"] = [BEFORE]  # so that it has what that wrote
        services |= {**added, server: own | {"depends_on": own.get("depends_on", {}) | ready}}
        if self.load_files:  # outside of the results, because a log has what no record may have
            k6 = services["k6"]
            replay = {"type": "bind", "source": "${LAB_REPLAY_FOLDER:-}", "target": "/replay", "read_only": True}
            environment = k6["environment"] | {"LAB_REPLAY": "/replay/requests.json"}
            services["k6"] = k6 | {"volumes": [*k6["volumes"], replay], "environment": environment}


def _after(condition: str) -> dict[str, Any]:
    return {"condition": f"service_{condition}", "required": True}


@contextmanager
def lay_out_layer(service: UserService) -> Iterator[Layer]:
    """Lay out the application, the programs that serve it, and what its layer needs in a temporary folder.

    Values of ``env_file`` go into the image, and nowhere else. Raise WrongUse if the application is too large.
    """
    application, served = service.application, service.served
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        secrets = read_env_files(application.env_file)
        lay_out_programs(folder / "srv")
        start = start_of(application, secrets)
        (folder / "srv" / "start.json").write_text(json.dumps(start, sort_keys=True), encoding="utf-8")
        (folder / "programs").mkdir()
        for source, target in _PROGRAMS.items():
            shutil.copyfile(SERVERS / source, folder / "programs" / target)
        if application.folder:
            ignored = shutil.ignore_patterns(*LEFT_OUT)
            shutil.copytree(application.folder, folder / "application", symlinks=True, ignore=ignored)
            size = sum(path.lstat().st_size for path in folder.rglob("*"))
            if size > MOST_MIB * 2**20:
                raise WrongUse(
                    f"{application.folder} has {size / 2**20:,.0f} MiB, but an application may have {MOST_MIB}.",
                    hint=f"Move data elsewhere. The lab leaves out {', '.join(LEFT_OUT)}.",
                )
            file, extras = application.requirements, application.extras
            required = [*(required_lines(file, extras) if file else []), *application.packages]
            lines = "".join(f"{line}\n" for line in requirements_with_server(required, served))
            (folder / "requirements.txt").write_text(lines, encoding="utf-8")
            compiles = {"build-essential", "clang", "g++", "gcc"} & {*application.system_packages}
            headers = ["python3-dev"] if compiles else []  # images of Python have them
            packages = "".join(f"{name}\n" for name in [*application.system_packages, *headers])
            (folder / "system-packages").write_text(packages, encoding="utf-8")
        else:
            (folder / "release").write_text(f"{served.server} {served.release}", encoding="utf-8")  # for the digest
        dockerfile = "Dockerfile" if application.folder else "image/Dockerfile"
        shutil.copyfile(SERVERS / "user-service" / dockerfile, folder / "Dockerfile")
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            if path.is_symlink():
                digest.update(str(path.readlink()).encode())
            elif path.is_file():
                digest.update(path.read_bytes())
            digest.update(b"\0")
        beside = service.beside and read_beside(service.beside.compose, service.beside.services)
        yield Layer(folder, digest.hexdigest()[:12], secrets, beside or ServicesBeside(), application.before,
                    application.image or "", (served.server, served.release))  # fmt: skip


def start_of(application: Application, secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return what servers/user-service/start.py is to lay out and to run."""
    folder, command = application.folder, application.command
    words = ["sh", "-c", command]
    if not _OF_SHELL.search(command):
        with suppress(ValueError):  # a quote that is not closed
            words = shlex.split(command)
    return {
        "words": words,
        "folder": application.working_folder, "paths": application.paths, "written": application.written,
        "environment": {**secrets} | {name: fill(value, secrets) for name, value in application.environment.items()},
        "scripts": scripts_of(folder / application.working_folder, folder) if folder else {},
        "prepared": bool(application.before), "ready": application.ready,
    }  # fmt: skip


def lay_out_programs(srv: Path) -> None:
    """Copy what is in /opt/stampede of a layer: what follows and serves a command, and the probe."""
    srv.mkdir(exist_ok=True)
    for source, target in _SRV.items():
        shutil.copyfile(SERVERS / source, srv / target)
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SERVERS.parent / "probe" / "stampede_probe", srv / "stampede_probe", ignore=compiled)


def requirements_with_server(required: Iterable[str], served: Served) -> list[str]:
    """Return the lines of requirements with the release of the server that is named, and no other. Extras stay.

    Hashes are left out, because with hashes pip would want the hash of the server, too. uWSGI is in its image already.
    """
    lines = [re.sub(r"\s*--hash=\S+", "", line) for line in required]
    server = re.compile(rf"\s*{served.server}\s*(\[[^\]]*\])?\s*([<>=!~;@#].*)?$", re.IGNORECASE)
    extras = next((found[1] or "" for line in lines if (found := server.match(line))), "")
    others = [line for line in lines if not server.match(line)]
    return others if served.server == "uwsgi" else [*others, f"{served.server}{extras}=={served.release}"]

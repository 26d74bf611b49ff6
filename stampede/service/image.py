"""The folder from which the image of an own application is built."""

import hashlib
import json
import re
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from stampede.errors import WrongUse
from stampede.paths import SERVERS
from stampede.records.classes import fill
from stampede.service.compose_file import read_beside
from stampede.service.description import Application, Served, UserService, read_env_files
from stampede.service.layer import Layer, ServicesBeside
from stampede.service.packages import required_lines
from stampede.service.scripts import scripts_of

LEFT_OUT = (".git", "__pycache__", ".venv", "venv", "node_modules", ".env", ".pytest_cache", ".mypy_cache", "*.pyc")
"""Files and folders that are no part of an application."""
_COMPILED = shutil.ignore_patterns("__pycache__")
MOST_MIB = 500
PORTS = [80, 443]
"""The ports of a host outside, if none is named."""


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
        if served.settings:
            shutil.copyfile(served.settings, folder / "srv" / f"own_settings{served.settings.suffix}")
        (folder / "programs").mkdir()
        for source, target in _PROGRAMS.items():
            shutil.copyfile(SERVERS / source, folder / "programs" / target)
        if application.folder:
            _lay_out_folder(application.folder, folder)
            file, extras = application.requirements, application.extras
            required = [*(required_lines(file, extras) if file else []), *application.packages]
            lines = "".join(f"{line}\n" for line in requirements_with_server(required, served))
            (folder / "requirements.txt").write_text(lines, encoding="utf-8")
            compiles = {"build-essential", "clang", "g++", "gcc"} & {*application.system_packages}
            headers = ["python3-dev"] if compiles else []  # images of Python have them
            packages = "".join(f"{name}\n" for name in [*application.system_packages, *headers])
            (folder / "system-packages").write_text(packages, encoding="utf-8")
        else:
            shutil.copyfile(SERVERS / "user-service" / "image" / "Dockerfile", folder / "Dockerfile")
            (folder / "release").write_text(f"{served.server} {served.release}", encoding="utf-8")  # for the digest
        yield Layer(
            folder,
            _digest(folder),
            secrets,
            read_beside(service.beside.compose, service.beside.services) if service.beside else ServicesBeside(),
            application.before,
            application.image or "",
            (served.server, served.release),
            resolve_hosts(application.hosts),
        )


def start_of(application: Application, secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return what servers/user-service/start.py is to lay out and to run."""
    folder, command = application.folder, application.command
    own = folder / application.working_folder if folder else None
    scripts = scripts_of(*dict.fromkeys((own, folder))) if folder and own else {}
    words = ["sh", "-c", command]
    if not _OF_SHELL.search(command):
        with suppress(ValueError):  # a quote that is not closed
            words = shlex.split(command)
    return {
        "words": words,
        "folder": application.working_folder, "paths": application.paths, "written": application.written,
        "environment": {**secrets} | {name: fill(value, secrets) for name, value in application.environment.items()},
        "scripts": scripts, "prepared": bool(application.before), "ready": application.ready,
    }  # fmt: skip


_OF_SHELL = re.compile(r"^\w+=|[$`;&|<>()*?~{}\[\]\\#!\n]")
"""What makes a command one for a shell."""
_PROGRAMS = {
    "wait-until-ready": "wait-until-ready", "observe": "observe", "observe-counted": "observe-own",
    "user-service/image/workers-ready": "workers-ready",
}  # fmt: skip
"""What asks and observes the server of a layer, and its name there."""
_SRV = {
    "user-service/start.py": "start.py", "user-service/hooks.py": "hooks.py", "user-service/before.py": "before.py",
    "user-service/stampede_own.py": "stampede_own.py", "user-service/stampede_uwsgi.py": "stampede_uwsgi.py",
    "user-service/stampede_called.py": "stampede_called.py", "user-service/forward.py": "forward.py",
    "app/counters.py": "stampede_counters.py", "../idle-thread/gunicorn_idle_thread.py": "gunicorn_idle_thread.py",
}  # fmt: skip
"""What serves the application, and its name in /opt/stampede."""


def lay_out_programs(srv: Path) -> None:
    """Copy what is in /opt/stampede of a layer: what follows and serves a command, and the probe."""
    srv.mkdir(exist_ok=True)
    for source, target in _SRV.items():
        shutil.copyfile(SERVERS / source, srv / target)
    shutil.copytree(SERVERS.parent / "probe" / "stampede_probe", srv / "stampede_probe", ignore=_COMPILED)


def resolve_hosts(hosts: Iterable[str]) -> dict[str, dict[int, str]]:
    """Return the address of each host by its name and its ports. Raise WrongUse if a name has no address."""
    found: dict[str, dict[int, str]] = {}
    for named in hosts:
        name, _, port = named.partition(":")
        try:
            [address, *_] = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise WrongUse(f"application.hosts: {name} has no address: {error.strerror or error}.") from None
        if ip_address(address[4][0]).is_loopback or ip_address(address[4][0]).is_unspecified:
            raise WrongUse(
                f"application.hosts: {name} is this machine itself, which the lab's containers cannot reach."
            )
        ports = [int(port)] if port else PORTS
        found.setdefault(name, {}).update(dict.fromkeys(ports, str(address[4][0])))
    return found


def _lay_out_folder(application: Path, folder: Path) -> None:
    """Copy an application. Raise WrongUse if it is too large."""
    shutil.copytree(application, folder / "application", symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    if size > MOST_MIB * 2**20:
        raise WrongUse(
            f"{application} has {size / 2**20:,.0f} MiB, but an application may have {MOST_MIB}.",
            hint=f"Move data elsewhere. The lab leaves out {', '.join(LEFT_OUT)}.",
        )
    shutil.copyfile(SERVERS / "user-service" / "Dockerfile", folder / "Dockerfile")


def requirements_with_server(required: Iterable[str], served: Served) -> list[str]:
    """Return the lines of requirements with the release of the server that is named, and no other. Extras stay.

    Hashes are left out, because with hashes pip would want the hash of the server, too. uWSGI is in its image already.
    """
    lines = [re.sub(r"\s*--hash=\S+", "", line) for line in required]
    server = re.compile(rf"\s*{served.server}\s*(\[[^\]]*\])?\s*([<>=!~;@#].*)?$", re.IGNORECASE)
    extras = next((found[1] or "" for line in lines if (found := server.match(line))), "")
    others = [line for line in lines if not server.match(line)]
    return others if served.server == "uwsgi" else [*others, f"{served.server}{extras}=={served.release}"]


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        if path.is_symlink():
            digest.update(str(path.readlink()).encode())
        elif path.is_file():
            digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()[:12]

"""The folder from which the image of an own application is built."""

import hashlib
import json
import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from stampede.errors import WrongUse
from stampede.paths import SERVERS
from stampede.records.classes import fill
from stampede.service.compose_file import read_beside
from stampede.service.description import Served, UserService, read_env_files
from stampede.service.layer import Layer, ServicesBeside
from stampede.service.packages import required_lines

LEFT_OUT = (".git", "__pycache__", ".venv", "venv", "node_modules", ".env", ".pytest_cache", ".mypy_cache", "*.pyc")
"""Files and folders that are no part of an application."""
_COMPILED = shutil.ignore_patterns("__pycache__")
MOST_MIB = 500
PORTS = [80, 443]
"""The ports of a host outside, if none is named."""


@contextmanager
def lay_out_layer(service: UserService, start: Mapping[str, Any] | None = None) -> Iterator[Layer]:
    """Lay out the application, or the programs for its image, and what its layer needs in a temporary folder.

    ``start`` is the start command that is to be followed there, if there is one. Values of ``env_file`` go into the
    image, and nowhere else. Raise WrongUse if the application is too large.
    """
    application, served = service.application, service.served
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        secrets = read_env_files(application.env_file)
        given = {name: fill(value, secrets) for name, value in application.environment.items()}
        environment = secrets | given | ({"LAB_READY": application.ready} if application.ready else {})
        srv = folder / "srv"
        srv.mkdir()
        (srv / "environment.json").write_text(json.dumps(environment, sort_keys=True), encoding="utf-8")
        for name, server in (("own_settings.py", "gunicorn"), ("own_settings.ini", "uwsgi")):
            settings = served.settings if served.server == server else None
            (srv / name).write_bytes(settings.read_bytes() if settings else b"")
        programs = ("own.py", "before.py", "forward.py", *(["start.py"] if start else []))
        for name in programs:
            shutil.copyfile(SERVERS / "user-service" / name, srv / name)
        if start:
            (srv / "start.json").write_text(json.dumps(start, sort_keys=True), encoding="utf-8")
        shutil.copytree(SERVERS.parent / "probe" / "stampede_probe", srv / "stampede_probe", ignore=_COMPILED)
        if application.folder:
            _lay_out_folder(application.folder, folder)
            file, extras = application.requirements, application.extras
            required = [*(required_lines(file, extras) if file else []), *application.packages]
            lines = "".join(f"{line}\n" for line in requirements_with_server(required, served))
            (folder / "requirements.txt").write_text(lines, encoding="utf-8")
            packages = "".join(f"{name}\n" for name in packages_with_headers(application.system_packages))
            (folder / "system-packages").write_text(packages, encoding="utf-8")
        else:
            _lay_out_programs(served, folder)
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


def _lay_out_programs(served: Served, folder: Path) -> None:
    """Copy what the lab's images of servers have, and an image that exists lacks."""
    (folder / "programs").mkdir()
    of_server = _OF_SERVERS.get(served.server, _OF_SERVERS["asgi"])
    for source, target in {**_OF_IMAGES, **of_server}.items():
        shutil.copyfile(SERVERS / source, folder / target)
    (folder / "release").write_text(f"{served.server} {served.release}", encoding="utf-8")  # a part of the digest


_OF_IMAGES = {
    "wait-until-ready": "programs/wait-until-ready", "observe": "programs/observe",
    "app/counters.py": "srv/counters.py", "user-service/image/Dockerfile": "Dockerfile",
}  # fmt: skip
"""What the layer on any image that exists has, and where it lies in the folder that is built."""
_COUNTED = {"observe-counted": "programs/observe-own", "user-service/image/workers-ready": "programs/workers-ready"}
_OF_SERVERS: Mapping[str, Mapping[str, str]] = {
    "gunicorn": _COUNTED | {
        "user-service/image/gunicorn": "programs/serve", "gunicorn/gunicorn.conf.py": "srv/gunicorn.conf.py",
        "../idle-thread/gunicorn_idle_thread.py": "srv/gunicorn_idle_thread.py",
    },
    "uwsgi": {
        "uwsgi/observe-own": "programs/observe-own", "uwsgi/start": "programs/serve", "uwsgi/stats.py": "srv/stats.py",
        "uwsgi/uwsgi.ini": "srv/uwsgi.ini",
    },
    "asgi": _COUNTED | {"asgi/start": "programs/serve"},
}  # fmt: skip
"""What the layer has besides, by the server; ``asgi`` are all others."""


_COMPILERS = {"build-essential", "clang", "g++", "gcc"}


def packages_with_headers(packages: Sequence[str]) -> list[str]:
    """Return Debian's packages, with the headers of Python if there is a compiler: images of Python have headers."""
    return [*packages, *(["python3-dev"] if _COMPILERS & {*packages} else [])]


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

"""The folder from which the image of an own application is built."""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import WrongUse
from lab.own.service import OwnService
from lab.paths import SERVERS
from lab.servers.base import Layer

LEFT_OUT = (".git", "__pycache__", ".venv", "venv", "node_modules", ".env", ".pytest_cache", ".mypy_cache", "*.pyc")
"""Files and folders that are no part of an application."""
MOST_MIB = 500
_GUNICORN = re.compile(r"^\s*gunicorn\b(?!-)", re.IGNORECASE)


@contextmanager
def layer_of(service: OwnService) -> Iterator[Layer]:
    """Lay out the application and what its image needs in a temporary folder.

    Values of ``env_file`` go into the image, and nowhere else. Raise WrongUse if the application is too large.
    """
    application = service.application
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(
            application.folder, folder / "application", symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT)
        )
        size = sum(one.lstat().st_size for one in folder.rglob("*"))
        if size > MOST_MIB * 2**20:
            raise WrongUse(
                f"{application.folder} has {size / 2**20:,.0f} MiB, but an application may have {MOST_MIB}.",
                hint=f"Move data elsewhere. The lab leaves out {', '.join(LEFT_OUT)}.",
            )
        for name in ("Dockerfile", "own.py"):
            shutil.copyfile(SERVERS / "own" / name, folder / name)
        secrets = env_of(application.env_file) if application.env_file else {}
        environment = secrets | application.environment
        (folder / "environment.json").write_text(json.dumps(environment, sort_keys=True), encoding="utf-8")
        required = application.requirements.read_text(encoding="utf-8") if application.requirements else ""
        lines = [line for line in required.splitlines() if not _GUNICORN.match(line)]
        lines.append(f"gunicorn=={service.served.gunicorn}")
        (folder / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield Layer(folder, _digest(folder), secrets)


def env_of(path: Path) -> dict[str, str]:
    """Read an env file: lines of NAME=value; blank lines and comments do not count. Raise WrongUse for another line."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
            raise WrongUse(f"{path.name}:{number}: not NAME=value")  # the line itself may be a secret
        found[name.strip()] = value.strip().strip("'\"")
    return found


def _digest(folder: Path) -> str:
    """Return a digest of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        if path.is_symlink():
            digest.update(str(path.readlink()).encode())
        elif path.is_file():
            digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()[:12]

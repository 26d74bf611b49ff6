"""A start command is followed, or served, as in a container, with the paths of its image, but without an engine.

Linux's namespaces give a process a root of its own. Where they are not allowed, nothing can be followed so.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from stampede.service.answers import Followed
from stampede.service.layer import lay_out_programs
from tests.conftest import wait_until

_OF_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "etc", "dev", "proc")
_IN_ROOT = """
set -e
root=$1 venv=$2 base=$3 application=$4 programs=$5 what=$6 out=$7
mount -t tmpfs none "$root"
for name in {names}; do
  if [ -e "/$name" ]; then mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"; fi
done
mkdir "$root/usr" "$root/over" "$root/work"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$root/over,workdir=$root/work" "$root/usr"
for name in "$venv" "$base"; do
  if [ ! -e "$root$name" ]; then mkdir -p "$root$name"; mount --rbind "$name" "$root$name"; fi
done
mkdir -p "$root/opt/application" "$root/tmp"
mount --bind "$out" "$root/tmp"
cp -a "$application/." "$root/opt/application"
cp -a "$programs" "$root/opt/stampede"
exec chroot "$root" sh -c '"$0" /opt/stampede/start.py lay-out /opt/stampede/start.json
exec "$0" /opt/stampede/start.py "$1" /opt/stampede/start.json' "$venv/bin/python" "$what"
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


@cache
def is_possible() -> bool:
    """Return whether this machine allows a process its own root."""
    try:
        return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _command(folder: Path, start: Mapping[str, Any], temporary: Path, venv: Path, what: str) -> list[str]:
    programs, root, out = (temporary / name for name in ("programs", "root", "out"))
    for each in (programs, root, out):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    lay_out_programs(programs)
    (programs / "start.json").write_text(json.dumps(start), encoding="utf-8")
    script = _IN_ROOT.format(names=" ".join(_OF_SYSTEM))
    return [*UNSHARE, "sh", "-c", script, "sh", *map(str, (root, venv, sys.base_prefix, folder, programs, what, out))]


def _environment(venv: Path) -> dict[str, str]:
    path = f"{venv}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"PATH": path, "HOME": "/tmp", "LANG": os.environ.get("LANG", "C")}


def followed(folder: Path, start: Mapping[str, Any], temporary: Path, venv: Path = Path(sys.prefix)) -> Followed:
    """Follow a start command with the Python and the servers of a virtual environment."""
    command = _command(folder, start, temporary, venv, "follow")
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=_environment(venv),
                          stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Followed.model_validate_json(done.stdout)


@contextmanager
def served(
    folder: Path, start: Mapping[str, Any], temporary: Path, way: str = "", venv: Path = Path(sys.prefix)
) -> Iterator[tuple[Path, int]]:
    """Serve with a start command in a network of its own, as in a trial, until the block ends.

    Return the folder that is /tmp there, with what the server wrote to its output in ``said``, and a process there.
    """
    command = _command(folder, start, temporary, venv, "serve")
    command[len(UNSHARE) : len(UNSHARE)] = ["--net"]
    with (temporary / "out" / "said").open("wb") as said:
        process = subprocess.Popen(command, env=_environment(venv) | {"LAB_WAY": way}, stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=said, start_new_session=True)  # fmt: skip
        try:
            wait_until((temporary / "out" / "start").exists)
            yield temporary / "out", process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

"""A start command is followed as in a container, with the paths of its image, but without a container engine.

Linux's namespaces give a process a root of its own. Where they are not allowed, nothing can be followed so.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stampede.paths import SERVERS
from stampede.service.discovery.answers import Followed

_OF_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "etc", "dev", "proc")
_IN_ROOT = """
set -e
root=$1 venv=$2 base=$3 application=$4 programs=$5
mount -t tmpfs none "$root"
for name in {names}; do
  if [ -e "/$name" ]; then mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"; fi
done
mkdir "$root/usr" "$root/over" "$root/work"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$root/over,workdir=$root/work" "$root/usr"
for name in "$venv" "$base"; do
  if [ ! -e "$root$name" ]; then mkdir -p "$root$name"; mount --rbind "$name" "$root$name"; fi
done
mkdir -p "$root/opt/application" "$root/srv" "$root/tmp"
cp -a "$application/." "$root/opt/application"
cp "$programs"/* "$root/srv"
exec chroot "$root" "$venv/bin/python" -c 'import subprocess as s, sys; p = [sys.executable, "/srv/start.py"]
s.run([*p, "lay-out", "/srv/start.json"], check=True); s.run([*p, "follow", "/srv/start.json"], check=True)'
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


@cache
def is_possible() -> bool:
    """Return whether this machine allows a process its own root."""
    try:
        return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def followed(folder: Path, laid_out: Mapping[str, Any], temporary: Path, venv: Path = Path(sys.prefix)) -> Followed:
    """Follow a start command with the Python and the servers of a virtual environment."""
    programs, root = temporary / "programs", temporary / "root"
    programs.mkdir()
    root.mkdir()
    (programs / "start.py").write_bytes((SERVERS / "user-service" / "start.py").read_bytes())
    (programs / "start.json").write_text(json.dumps(laid_out), encoding="utf-8")
    script = _IN_ROOT.format(names=" ".join(_OF_SYSTEM))
    words = [*map(str, (root, venv, sys.base_prefix, folder, programs))]
    path = f"{venv}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    environment = {"PATH": path, "HOME": "/tmp", "LANG": os.environ.get("LANG", "C")}
    done = subprocess.run([*UNSHARE, "sh", "-c", script, "sh", *words], check=False, capture_output=True, text=True,
                          env=environment, stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Followed.model_validate_json(done.stdout)

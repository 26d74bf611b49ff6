"""Describe what a run was measured with: the lab's own files, and the programs in each image."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from stampede.docker.client import HERE
from stampede.docker.commands import output
from stampede.docker.containers import BOX, digest
from stampede.docker.images import BASE_IMAGES, stand_in_of
from stampede.interruption import uninterrupted
from stampede.paths import IN_CLONE, ROOT
from stampede.records.folder import write_whole
from stampede.records.run import Git, Image

MOST_KEPT = 200
"""How many answers about images are kept; the oldest go first."""
_VERSIONS = TypeAdapter(dict[str, str])

# Print a line with name and version for each package of Debian or Alpine, each package of Python, and k6.
_PACKAGES = """\
set -e
if command -v dpkg-query > /dev/null; then dpkg-query --show --showformat='${Package} ${Version}\\n'
else apk info -v 2> /dev/null | sed 's/-\\([0-9]\\)/ \\1/'
fi
if command -v python3 > /dev/null; then python3 -c '
from importlib.metadata import distributions
import platform, sys
for one in distributions(): print("python/" + str(one.metadata["Name"]).lower(), one.version)
if sys.base_prefix == "/opt/python": print("python3", platform.python_version() + sys.abiflags)'
fi
if command -v k6 > /dev/null; then k6 version | sed -n 's/^k6 v\\([^ ]*\\).*/k6 \\1/p'; fi
"""


def git_state() -> Git | None:
    """Return the commit of the checkout, and whether files differ from the commit; None outside a git checkout."""
    if not IN_CLONE:  # another project's checkout may have the environment that the lab is installed in
        return None
    commit = output(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    if not commit:
        return None
    return Git(commit=commit, dirty=bool(output(["git", "-C", str(ROOT), "status", "--porcelain"])))


def image_records(named: Mapping[str, Sequence[str]]) -> list[Image]:
    """Return the ids of images, what stand-ins were built from, and the packages in each image.

    ``named`` lists the main packages of each image. The record repeats the versions of the main packages separately.
    """
    found = HERE.inspect("image", *named)
    with uninterrupted(), ThreadPoolExecutor() as pool:
        packages = list(pool.map(packages_of, [image["Id"] for image in found]))
    return [
        Image(
            name=name,
            id=image["Id"],
            stand_in=stand_in_of(image) if name in BASE_IMAGES else None,
            digests=image["RepoDigests"] or [] if name in BASE_IMAGES and not stand_in_of(image) else [],
            packages=inside,
            programs={package.removeprefix("python/"): inside[package] for package in for_what if package in inside},
        )
        for (name, for_what), image, inside in zip(named.items(), found, packages, strict=True)
    ]


def packages_of(identity: str) -> dict[str, str]:
    """Return the version of each package in an image by the package's name (``python/…`` for Python's packages).

    Finding the versions takes a container, so the answer is kept in the user's cache folder by the image's id, which
    changes with its contents. An empty answer is not kept, and an answer that cannot be read is found again.
    """
    file: Path | None = None
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home folder
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stampede" / "packages"
        file = folder / f"{identity.removeprefix('sha256:')}-{digest(_PACKAGES.encode())}.json"
        return _VERSIONS.validate_json(file.read_bytes())
    said = HERE.told("run", "--rm", "--network", "none", *BOX, "--entrypoint", "sh", identity, "-c", _PACKAGES)
    packages = dict(line.split(maxsplit=1) for line in said.splitlines() if len(line.split()) == 2)
    if packages and file:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, _VERSIONS.dump_json(packages).decode())
            for _, path in sorted((path.stat().st_mtime_ns, path) for path in file.parent.glob("*.json"))[:-MOST_KEPT]:
                path.unlink(missing_ok=True)
    return packages

"""The files of a load generator: bring them to a machine that shares no folders with the lab, and fetch its points.

Such a container has volumes in the place of the lab's folders. The engine copies files to and from the volumes.
"""

import gzip
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stampede.docker.containers import ContainerInfo
from stampede.paths import CLIENTS, K6

VOLUME, OWN = "/results", "own"
RESULTS_THERE = f"{VOLUME}/{OWN}"
"""The folder of results in the container, which LAB_FOLDER names: the volume itself would belong to root."""
COPIED_WITHIN_S = 600
"""How long it may take to fetch the points of a load."""


async def bring_scripts(container: ContainerInfo, replay: Path | None) -> None:
    """Bring the scripts of a load generator, and make its folder of results its own. Raise DockerError.

    ``replay`` is the folder with the requests of a log, if k6 sends the requests of a log.
    """
    is_client = container.service == "client"
    folders = {"/clients": CLIENTS} if is_client else {"/k6": K6} | ({"/replay": replay} if replay else {})
    for target, folder in folders.items():
        await bring(container, target, {path.name: path for path in sorted(folder.iterdir())})
    with tempfile.TemporaryDirectory() as empty:
        await bring(container, VOLUME, {OWN: Path(empty)})


async def bring(container: ContainerInfo, target: str, files: Mapping[str, Path | bytes]) -> None:
    """Put files and folders into a folder of a container. They belong to the lab's user, who runs it, too."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        return None if "__pycache__" in member.name else member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for name, source in files.items():
            if isinstance(source, Path):
                archive.add(source, name, filter=owned)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(source)
                archive.addfile(owned(member) or member, io.BytesIO(source))
    await container.machine.call("cp", "-", f"{container.id}:{target}", stdin=packed.getvalue())


async def fetch_results(container: ContainerInfo, folder: Path) -> None:
    """Copy to a folder what a load generator wrote. Raise DockerError if that fails."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetched.") as fetched:
        await container.machine.call("cp", f"{container.id}:{RESULTS_THERE}/.", fetched, within_s=COPIED_WITHIN_S)
        for path in sorted(Path(fetched).iterdir()):
            if path.suffix != ".env":  # the lab brought these files
                path.rename(folder / path.name)


def compress_points(part: Path) -> None:
    """Compress the points that k6 wrote so that they could be read while the load ran."""
    for points in part.glob("points*.json"):
        compressed = points.with_name(f"{points.name}.gz")
        try:
            with points.open("rb") as source, gzip.open(compressed, "wb", 1) as target:
                shutil.copyfileobj(source, target)
        except OSError:
            compressed.unlink(missing_ok=True)
            raise
        points.unlink()


def points_of(service: str) -> str:
    """Return the name of the points of a load generator, without the suffix of the file, e.g. points-2 for k6-2."""
    return "points" + service.removeprefix("k6") if service.startswith("k6") else f"points-{service}"

"""The files of a load generator: bring them to a machine that shares no folders with the lab, and fetch its points.

Such a container has volumes in the place of the lab's folders. The engine copies files to and from the volumes.
"""

import gzip
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
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
    await _bring_folder(container, *((CLIENTS, "/clients") if container.service == "client" else (K6, "/k6")))
    if replay and container.service != "client":
        await _bring_folder(container, replay, "/replay")
    await bring(container, VOLUME, {}, [OWN])


async def _bring_folder(container: ContainerInfo, source: Path, target: str) -> None:
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    await bring(container, target, {str(path.relative_to(source)): path.read_bytes() for path in files})


async def fetch_results(container: ContainerInfo, folder: Path) -> None:
    """Copy to a folder what a load generator wrote. Raise DockerError if that fails."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetched.") as fetched:
        await container.machine.call("cp", f"{container.id}:{RESULTS_THERE}/.", fetched, within_s=COPIED_WITHIN_S)
        for path in sorted(Path(fetched).iterdir()):
            if path.suffix != ".env":  # the lab brought these files
                path.rename(folder / path.name)


async def bring(container: ContainerInfo, folder: str, files: Mapping[str, bytes], folders: Sequence[str] = ()) -> None:
    """Write files and empty folders into a folder of a container. They belong to the lab's user, who runs it, too."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        parents = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
        for name in (*folders, *sorted(parents)):
            member = _owned(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        for name, content in files.items():
            member = _owned(name)
            member.size = len(content)
            member.mode = 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(member, io.BytesIO(content))
    await container.machine.call("cp", "-", f"{container.id}:{folder}", stdin=packed.getvalue())


def _owned(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.uid, member.gid = os.getuid(), os.getgid()
    return member


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

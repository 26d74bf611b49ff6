"""Pack runs into one file to hand on. The bytes of the file do not depend on the user or the time of packing."""

import gzip
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import IO

from stampede.errors import LabError, WrongUse
from stampede.records.checksums import files
from stampede.records.folder import read_run
from stampede.records.run import Run

_OTHER_NAME = "stampede export … --to /path/name.tar.gz"


def archive_path(run_folder: Path, to: Path | None) -> Path:
    """Return the path of a run's archive: ``to``, or ``<experiment>-<run time>.tar.gz`` in the current folder.

    Raise WrongUse when the path exists already or lies in the run's folder, and BadRun when the folder is no run.
    """
    return checked(to or Path(f"{_top(run_folder, read_run(run_folder))}.tar.gz"), run_folder)


def checked(target: Path, folder: Path) -> Path:
    """Return the path of an archive. Raise WrongUse if it exists already or lies in the folder that is packed."""
    if target.is_dir():
        raise WrongUse(f"{target} is a folder, but an archive is a file.", hint=_OTHER_NAME)
    if os.path.lexists(target):
        raise WrongUse(f"{target} exists already.", hint=f"Remove the file, or choose another name: {_OTHER_NAME}")
    if folder.resolve() in target.resolve().parents:
        problem = f"{target} would lie in the run's own folder, among the measured files."
        raise WrongUse(problem, hint=f"Choose another place: {_OTHER_NAME}")
    return target


def pack(run_folders: Sequence[Path], target: Path, further: Mapping[str, bytes] | None = None) -> None:
    """Write the folders of runs to an archive, completely or not at all, and never over an existing file.

    ``further`` are further files by their names in the archive. Verify the runs first. Raise BadRun when a folder is no
    run, and LabError when the archive cannot be written.
    """
    runs = [read_run(folder) for folder in run_folders]
    with (
        whole_archive(target, _OTHER_NAME) as part,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=part, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for folder, run in zip(run_folders, runs, strict=True):
            began = 0
            with suppress(ValueError):
                began = max(0, int(datetime.fromisoformat(run.began).timestamp()))
            for name in files(folder):
                with (folder / name).open("rb") as file:
                    size = (folder / name).stat().st_size
                    _add(archive, file, size, f"{_top(folder, run)}/{name}", began)
        for name, content in (further or {}).items():
            _add(archive, BytesIO(content), len(content), name, 0)


@contextmanager
def whole_archive(target: Path, other_name: str) -> Iterator[IO[bytes]]:
    """Yield a file that gets the name ``target`` after the block, unless another program has made such a file.

    Raise LabError if it cannot be written; ``other_name`` is an option that names another place.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
            try:
                yield part
                part.flush()
                os.fchmod(part.fileno(), 0o644)
                try:
                    target.hardlink_to(part.name)
                except OSError:  # the file is there, or the file system has no hard links
                    if os.path.lexists(target):
                        raise
                    Path(part.name).rename(target)
            finally:
                Path(part.name).unlink(missing_ok=True)
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}."
        raise LabError(problem, hint=f"Free some space, or choose another place: {other_name}") from None


def _add(archive: tarfile.TarFile, file: IO[bytes], size: int, name: str, mtime: int) -> None:
    """Add the content of a file, without its owner and its mode on this machine."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = mtime
    archive.addfile(entry, file)


def _top(run_folder: Path, run: Run) -> str:
    """Return ``<experiment>-<run time>``, the folder in the archive. A run that was unpacked has this name already."""
    experiment, folder = re.sub(r"[^\w.-]", "-", run.experiment), run_folder.resolve().name
    return folder if folder.startswith(f"{experiment}-") else f"{experiment}-{folder}"

"""Pack runs into one file to hand on. The bytes of the file do not depend on the user or the time of packing."""

import gzip
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
            try:
                with _archive(part) as archive:
                    for folder, run in zip(run_folders, runs, strict=True):
                        for name in files(folder):
                            with (folder / name).open("rb") as file:
                                size = (folder / name).stat().st_size
                                _add(archive, file, size, f"{_top(folder, run)}/{name}", _began(run))
                    for name, content in (further or {}).items():
                        _add(archive, BytesIO(content), len(content), name, 0)
                part.flush()
                os.fchmod(part.fileno(), 0o644)
                _name(Path(part.name), target)
            finally:
                Path(part.name).unlink(missing_ok=True)
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}."
        raise LabError(problem, hint=f"Free some space, or choose another place: {_OTHER_NAME}") from None


@contextmanager
def _archive(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        yield archive


def _add(archive: tarfile.TarFile, file: IO[bytes], size: int, name: str, mtime: int) -> None:
    """Add the content of a file, without its owner and its mode on this machine."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = mtime
    archive.addfile(entry, file)


def _name(part: Path, target: Path) -> None:
    """Give a finished file its name. Raise FileExistsError when another program has made a file of this name."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise
        part.rename(target)


def _top(run_folder: Path, run: Run) -> str:
    """Return ``<experiment>-<run time>``, the folder in the archive. A run that was unpacked has this name already."""
    experiment, folder = re.sub(r"[^\w.-]", "-", run.experiment), run_folder.resolve().name
    return folder if folder.startswith(f"{experiment}-") else f"{experiment}-{folder}"


def _began(run: Run) -> int:
    try:
        return max(0, int(datetime.fromisoformat(run.began).timestamp()))
    except ValueError:
        return 0

"""A run as one file that can be handed on: the same bytes whoever packs it, and when."""

import gzip
import os
import re
import tarfile
import tempfile
from datetime import datetime
from pathlib import Path
from typing import IO

from analysis.manifest import files
from analysis.run_folder import Run, read_run
from lab.errors import LabError, WrongUse

_OTHER_NAME = "make export RUN=… TO=/path/name.tar.gz"


def archive_path(run_folder: Path, to: Path | None) -> Path:
    """Return where an archive of a run belongs: ``to``, or ``<experiment>-<run time>.tar.gz`` in this folder.

    Raise WrongUse when something is there already, or when the archive would become part of the run; BadRun when the
    folder is no run.
    """
    target = to or Path(f"{_top(run_folder, read_run(run_folder))}.tar.gz")
    if target.is_dir():
        raise WrongUse(f"{target} is a folder.", hint=_OTHER_NAME)
    if os.path.lexists(target):
        raise WrongUse(f"{target} is already there.", hint=f"Remove it, or choose another name: {_OTHER_NAME}")
    if run_folder.resolve() in target.resolve().parents:
        problem = f"{target} would lie in the run's own folder, among what was measured."
        raise WrongUse(problem, hint=f"Choose another place: {_OTHER_NAME}")
    return target


def export(run_folder: Path, target: Path) -> None:
    """Write a run's whole folder to an archive, whole or not at all, and never over something else.

    Raise BadRun when the folder is no run, and LabError when the archive cannot be written.
    """
    run = read_run(run_folder)
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
            try:
                _pack(run_folder, run, part)
                part.flush()
                os.fchmod(part.fileno(), 0o644)
                _name(Path(part.name), target)
            finally:
                Path(part.name).unlink(missing_ok=True)
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}."
        raise LabError(problem, hint=f"Free some space, or choose another place: {_OTHER_NAME}") from None


def _pack(run_folder: Path, run: Run, file: IO[bytes]) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in files(run_folder):
            _add(archive, run_folder / name, f"{_top(run_folder, run)}/{name}", _began(run))


def _add(archive: tarfile.TarFile, path: Path, name: str, mtime: int) -> None:
    """Add the content of a file, and nothing of who has it here."""
    with path.open("rb") as file:
        entry = tarfile.TarInfo(name)
        entry.size = os.fstat(file.fileno()).st_size
        entry.mtime = mtime
        archive.addfile(entry, file)


def _name(part: Path, target: Path) -> None:
    """Give a finished file its name. Raise FileExistsError when somebody was quicker."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise
        part.rename(target)


def _top(run_folder: Path, run: Run) -> str:
    """Return ``<experiment>-<run time>``, which is also what the folder is called once it was unpacked."""
    experiment, folder = re.sub(r"[^\w.-]", "-", run.experiment), run_folder.resolve().name
    return folder if folder.startswith(f"{experiment}-") else f"{experiment}-{folder}"


def _began(run: Run) -> int:
    try:
        return max(0, int(datetime.fromisoformat(run.began).timestamp()))
    except ValueError:
        return 0

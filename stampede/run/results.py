"""The folder of results: its room on the disk, a new run's folder, and the end of a run."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from stampede.docker import leftovers
from stampede.docker.client import Machine
from stampede.docker.commands import Say
from stampede.errors import LabError, WrongUse
from stampede.finished import OTHER_PLACE, no_room
from stampede.records.checksums import seal
from stampede.records.folder import BadRun, NoTemporaryRoom, read_run, write_record
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.run.record import now
from stampede.run.trial.files import compress_points

ROOM_NEEDED = 256 * 2**20
"""The free bytes that a run needs to start. A minute at k6's full rate writes all of them, a light load 1 %."""
UNCOMPRESSED = 16
"""How many times as much room points take before they are compressed."""


def check_room(results: Path, *, live: bool = False) -> None:
    """Raise LabError when results cannot be written or the disk has too little room, WrongUse for a bad path.

    ``live``: the points are only compressed after the load, so they need more room meanwhile.
    """
    if found := set(str(results)) & set("'\n\r"):
        raise WrongUse(f"The path of results {str(results)!r} contains {found.pop()!r}, which Compose cannot read.",
                       hint=OTHER_PLACE)  # fmt: skip
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as error:
        raise no_room(error, results) from None
    free = shutil.disk_usage(results).free
    needed = ROOM_NEEDED * (UNCOMPRESSED if live else 1)
    if free < needed:
        raise LabError(
            f"There is no room for results: {free // 2**20} MiB are free in {results}, but "
            f"{'a run that is watched' if live else 'a run'} needs {needed // 2**20} MiB.",
            hint=OTHER_PLACE,
        )


@contextmanager
def writing(results: Path) -> Iterator[None]:
    """Turn an OSError of a full, read-only, forbidden or failing disk into LabError with a hint."""
    try:
        yield
    except OSError as error:
        of_disks = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)
        if isinstance(error, NoTemporaryRoom) or error.errno in of_disks or str(results) in str(error.filename):
            raise no_room(error, results) from error
        raise


def new_folder(parent: Path) -> Path:
    """Make the folder of a run that begins now."""
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = parent / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        with suppress(FileExistsError):  # of a run that began in this second
            folder.mkdir()
            return folder
        time.sleep(0.1)


def close_run(folder: Path, record: Run) -> Summary:
    """Close and seal the record, point ``latest`` to the run, and compute all results from the raw points."""
    from stampede.pipeline import derive  # noqa: PLC0415  # loading the drawing libraries takes as long as a set-up

    write_record(folder / "run.json", record.model_copy(update={"ended": record.ended or now()}))
    seal(folder)
    link = folder.parent / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(folder.parent / "latest")
    return derive(folder)


def clean_up(results: Path, say: Say, machines: Sequence[Machine]) -> None:
    """Remove the containers and networks of killed runs, and close their records. Hold the lock meanwhile."""
    if projects := leftovers.remove_leftovers(machines):
        say(f"Removed what a killed run left behind: {', '.join(projects)}.")
    for path in sorted(results.glob("*/*/run.json")):
        folder = path.parent
        with suppress(BadRun, PermissionError):  # leave runs of another user or another version of the lab as they are
            # a report alone proves nothing: any run can have it
            ended = (folder / "report.html").exists() and b'"outcome": "running"' not in path.read_bytes()
            if folder.is_symlink() or ended:
                continue
            record = read_run(folder)
            for part in folder.glob("*/*/.*.part"):
                with suppress(OSError):  # they stay as they are on a full disk
                    compress_points(part)
                number = part.name.removeprefix(".").removesuffix(".part")
                if (part / "trial.json").exists():  # the trial is complete, only its folder has no name yet
                    part.rename(part.with_name(number))
                elif any(part.glob("points*.json*")):  # the points are incomplete: keep them, but never count them
                    part.rename(part.with_name(f"killed-{number}"))
                else:
                    shutil.rmtree(part)
            for temporary in folder.rglob(".*.*"):
                if temporary.is_file():
                    temporary.unlink()
            if record.outcome == "running":
                record = record.model_copy(update={"outcome": "failed", "reason": "the lab was killed"})
            close_run(folder, record)
            say(f"Closed the record of a killed run: {folder}.")

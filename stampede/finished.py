"""Find, check and verify a finished run for a command."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from stampede.errors import LabError, WrongUse
from stampede.interruption import uninterrupted
from stampede.paths import RESULTS
from stampede.records.checksums import MANIFEST
from stampede.records.folder import BadRun, NoTemporaryRoom, read_run
from stampede.records.summary import Summary
from stampede.terminal import report_path
from stampede.typed import typed

if TYPE_CHECKING:
    from stampede.verification import Verification

OTHER_PLACE = "Free some space, or choose another place: --results /path"
_READABLE = "The folder must be readable, and TMPDIR needs room for the results."


def latest(results: Path) -> Path:
    """Return the folder of the latest run of all experiments. Raise WrongUse when there is no run."""
    return max(latest_of_each(results), key=lambda folder: folder.name)


def tables_command(folder: Path) -> str:
    """Return the command that prints all tables of a run: it names the run's folder unless it is the latest run."""
    links = [link.resolve() for link in RESULTS.glob("*/latest")]
    newest = max(links, key=lambda each: each.name, default=None)
    named = [] if newest == folder.resolve() else [Path(report_path(folder)).parent]
    return typed("report", *named, "--tables")


def latest_of_each(results: Path) -> list[Path]:
    """Return the folder of the latest run of each experiment. Raise WrongUse when there is no run."""
    links = sorted(results.glob("*/latest"))
    if not links:
        raise WrongUse(f"There is no run in {results}.", hint=typed("run", "heavy-mix"))
    return [link.resolve() for link in links]


@contextmanager
def run_for(command: str) -> Iterator[None]:
    """Turn BadRun into WrongUse with a hint that shows how to give ``command`` the folder of a run."""
    try:
        yield
    except BadRun as error:
        raise WrongUse(f"{error}.", hint=f"stampede {command} results/<experiment>/<time>, or …/latest") from None


@contextmanager
def _disk_errors(problem: str, hint: str, results: Path) -> Iterator[None]:
    """Turn an error of the file system into LabError: ``problem`` with its reason, or TMPDIR has no room."""
    try:
        yield
    except NoTemporaryRoom as error:
        raise no_room(error, results) from None
    except OSError as error:
        raise LabError(f"{problem}: {error.strerror or error}.", hint) from None


def no_room(error: OSError, results: Path) -> LabError:
    """Return the LabError for a failure to write results."""
    if isinstance(error, NoTemporaryRoom):
        hint = "Free some space, or choose another TMPDIR; then compute the results: " + typed("report")
        return LabError(f"There is no room left in {error.filename}.", hint=hint)
    if error.errno == errno.ENOSPC:
        return LabError(f"There is no room left for results in {results}.", hint=OTHER_PLACE)
    return LabError(f"Results cannot be written to {results}: {error.strerror or error}.", hint=OTHER_PLACE)


def reported(folder: Path, results: Path, *, recompute: bool = False) -> Summary:
    """Return all results of a run. Compute them, and write them with the report into its folder, if they are not there.

    ``recompute``: compute them in any case.
    """
    from stampede.pipeline import derive, stored_summary  # noqa: PLC0415
    from stampede.predict.prediction import PREDICTED  # noqa: PLC0415
    from stampede.theory import COMPILED  # noqa: PLC0415

    writing = _disk_errors(f"{folder} cannot be written", "Copy the run to a folder that you can write to.", results)
    with run_for("report"), uninterrupted(), writing:  # DuckDB would turn an interrupt into an error of its own
        if not recompute and (summary := stored_summary(folder)):
            return summary
        if COMPILED:  # predict again, too
            (folder / PREDICTED).unlink(missing_ok=True)
        return derive(folder)


def summary_of(command: str, folder: Path, results: Path) -> Summary:
    """Return the summary of a run. Compute it if its folder has none of this version, without writing there."""
    from stampede.pipeline import stored_summary  # noqa: PLC0415
    from stampede.verification import derived_elsewhere  # noqa: PLC0415

    reading = _disk_errors(f"The results of {folder} cannot be computed", _READABLE, results)
    with run_for(command):
        if summary := stored_summary(folder):
            return summary
        read_run(folder)
        with uninterrupted(), reading, derived_elsewhere(folder) as (_, summary):
            return summary


def verification_of(folder: Path) -> "Verification":
    """Compare a run with its manifest and its results with its raw points. Raise LabError if it cannot be read."""
    from stampede.verification import verify_run  # noqa: PLC0415

    try:
        with uninterrupted():
            return verify_run(folder)
    except OSError as error:
        raise LabError(f"{folder} cannot be verified: {error.strerror or error}.", _READABLE) from None


def verified(folder: Path, console: Console) -> list[str]:
    """Return what to say of a run that was not changed. If the run was changed, print how and raise LabError."""
    from stampede.report.spread import word_list  # noqa: PLC0415

    found = verification_of(folder)
    for difference in found.differences:
        console.print(str(difference), markup=False, soft_wrap=True)
    if found.differences and found.is_as_measured:
        hint = f"This also happens after an update of the lab. To compute the results again: {typed('report', folder)}"
        raise LabError(f"The measured files in {folder} are unchanged, but its results do not follow from them.", hint)
    if found.derived is None:
        problem = f"{folder} was changed since it was measured. Its records were changed, so no results were checked."
        raise LabError(problem)
    if found.differences:
        raise LabError(f"{folder} was changed since it was measured.")
    order = ["predicted.json", "summary.json", "diagnosis.json", "report.html", "requests.parquet"]
    derived = word_list(sorted({Path(path).name for path in found.derived}, key=order.index))
    recorded = f"{found.recorded} measured files are" if found.recorded != 1 else "1 measured file is"
    return [f"{recorded} unchanged; {derived} follow from these files.", f"{MANIFEST}: {found.manifest}"]

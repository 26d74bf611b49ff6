"""Whether a run's files are unchanged since they were measured, and whether the results follow from these files."""

import filecmp
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from stampede.pipeline import derive, derive_summary
from stampede.predict.prediction import PREDICTED, predictions_of
from stampede.records.checksums import (
    DERIVED_FROM,
    MANIFEST,
    FileDifference,
    changed_files,
    files,
    is_derived,
    read_manifest,
    sha256,
)
from stampede.records.folder import BadRun
from stampede.records.summary import Summary

_RECORDS = {"run.json", "trial.json"}


@dataclass(frozen=True)
class Verification:
    """The result of verifying a run.

    ``manifest`` is the hash of the manifest, ``recorded`` the number of files that the manifest lists. ``derived``
    names the derived files that were checked; None: none was checked, because run.json or a trial.json was changed.
    """

    manifest: str
    recorded: int
    derived: list[str] | None
    differences: list[FileDifference]

    @property
    def is_as_measured(self) -> bool:
        """Whether all measured and recorded files are unchanged; derived files may differ."""
        return all(is_derived(difference.path) for difference in self.differences)


def verify_run(run_folder: Path) -> Verification:
    """Compare a run with its manifest, compute its results again, and compare the results byte by byte.

    Write nothing into the run's folder. Raise BadRun if the folder is not a run, has no manifest or cannot be
    understood.
    """
    if not (run_folder / MANIFEST).exists() and not (run_folder / "run.json").exists():
        what = f"is an archive, not a folder; unpack it with tar xzf {run_folder}"
        raise BadRun(f"{run_folder} {what if run_folder.is_file() else 'has no run.json'}")
    recorded = len(read_manifest(run_folder))
    found = Verification(sha256(run_folder / MANIFEST), recorded, None, changed_files(run_folder))
    if any(PurePosixPath(difference.path).name in _RECORDS for difference in found.differences):
        return found
    with derived_elsewhere(run_folder, derive, keep=()) as (again, _):
        new, old, differences = _derived(again), _derived(run_folder), []
        for name in sorted(new | old):
            if name not in old:
                differences.append(FileDifference(name, "missing, although it follows from the raw points"))
            elif name not in new or not filecmp.cmp(again / name, run_folder / name, shallow=False):
                differences.append(FileDifference(name, "does not follow from the raw points"))
    return replace(found, derived=sorted(new), differences=[*found.differences, *differences])


def compute_summary(run_folder: Path) -> Summary:
    """Compute the summary of a run, with what theory predicts of it."""
    return derive_summary(run_folder, predictions_of(run_folder))


@contextmanager
def derived_elsewhere(
    run_folder: Path, compute: Callable[[Path], Summary] = compute_summary, *, keep: Sequence[str] = (PREDICTED,)
) -> Iterator[tuple[Path, Summary]]:
    """Compute a run's results in a temporary folder of links to its files, and yield this folder and the summary.

    The links are to the measured and recorded files, to the manifest, and to those derived files that ``keep`` names.
    Write nothing into the run's folder. Raise BadRun if the run cannot be understood.
    """
    with tempfile.TemporaryDirectory(prefix="stampede-derived-") as folder:
        again = Path(folder)
        for name in files(run_folder):
            if (name in (MANIFEST, *keep) or not is_derived(name)) and (run_folder / name).is_file():
                (again / name).parent.mkdir(parents=True, exist_ok=True)
                (again / name).symlink_to((run_folder / name).resolve())
        try:
            summary = compute(again)
        except BadRun as error:
            raise BadRun(str(error).replace(folder, str(run_folder))) from None
        yield again, summary


def _derived(run_folder: Path) -> set[str]:
    return {name for name in files(run_folder) if is_derived(name) and name not in (DERIVED_FROM, MANIFEST)}

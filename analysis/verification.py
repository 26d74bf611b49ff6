"""Whether a run's files are unchanged since they were measured, and whether the results follow from these files."""

import filecmp
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from analysis.folder import BadRun
from analysis.manifest import MANIFEST, Difference, changes, files, is_derived, read_manifest, sha256
from analysis.pipeline import derive

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
    differences: list[Difference]

    @property
    def is_as_measured(self) -> bool:
        """Whether all measured and recorded files are unchanged; derived files may differ."""
        return all(is_derived(one.path) for one in self.differences)


def verify(run_folder: Path) -> Verification:
    """Compare a run with its manifest, compute its results again, and compare the results byte by byte.

    Write nothing into the run's folder. Raise BadRun if the folder is not a run, has no manifest or cannot be
    understood.
    """
    if not (run_folder / MANIFEST).exists() and not (run_folder / "run.json").exists():
        raise BadRun(f"{run_folder} has no run.json")
    recorded = len(read_manifest(run_folder))
    differences = changes(run_folder)
    derived = None
    if not any(PurePosixPath(one.path).name in _RECORDS for one in differences):
        derived, more = _compare_derived(run_folder)
        differences += more
    return Verification(sha256(run_folder / MANIFEST), recorded, derived, differences)


def _compare_derived(run_folder: Path) -> tuple[list[str], list[Difference]]:
    """Derive all results again, in a folder of links to the recorded files, and compare them with the run's results."""
    with tempfile.TemporaryDirectory(prefix="stampede-verify-") as folder:
        again = Path(folder)
        link_recorded(run_folder.resolve(), again)
        try:
            derive(again)
        except BadRun as error:
            raise BadRun(str(error).replace(folder, str(run_folder))) from None
        new, old = _derived(again), _derived(run_folder)
        differences = []
        for name in sorted(new | old):
            if name not in old:
                differences.append(Difference(name, "missing, although it follows from the raw points"))
            elif name not in new or not filecmp.cmp(again / name, run_folder / name, shallow=False):
                differences.append(Difference(name, "does not follow from the raw points"))
    return sorted(new), differences


def link_recorded(run_folder: Path, again: Path) -> None:
    """Make a folder of links to the measured and recorded files of a run, and to its manifest."""
    for name in files(run_folder):
        if (name == MANIFEST or not is_derived(name)) and (run_folder / name).is_file():
            (again / name).parent.mkdir(parents=True, exist_ok=True)
            (again / name).symlink_to(run_folder / name)


def _derived(run_folder: Path) -> set[str]:
    return {name for name in files(run_folder) if is_derived(name) and name != MANIFEST}

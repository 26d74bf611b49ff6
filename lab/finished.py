"""Runs that were measured, as commands name them: the latest, one that may be no run, one that is to be verified."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from lab.errors import LabError, WrongUse
from lab.interruption import uninterrupted


def latest(results: Path) -> Path:
    """Return the folder of the latest run of all experiments. Raise WrongUse when there is no run."""
    links = sorted(results.glob("*/latest"), key=lambda link: link.resolve().name)
    if not links:
        raise WrongUse(f"There is no run in {results}.", hint="make experiment NAME=heavy-mix")
    return links[-1].resolve()


@contextmanager
def run_for(command: str) -> Iterator[None]:
    """Turn a folder that is no run into wrong use of a command, with a way out."""
    from analysis.folder import BadRun  # noqa: PLC0415

    try:
        yield
    except BadRun as error:
        raise WrongUse(f"{error}.", hint=f"make {command} RUN=results/<experiment>/<time>, or …/latest") from None


def verified(folder: Path, console: Console) -> list[str]:
    """Return what can be said of a run that is what was measured; print how another differs and raise LabError."""
    from analysis.manifest import MANIFEST  # noqa: PLC0415
    from analysis.verification import verify as verify_run  # noqa: PLC0415

    try:
        with uninterrupted():
            found = verify_run(folder)
    except OSError as error:
        problem = f"{folder} cannot be verified: {error.strerror or error}."
        raise LabError(problem, hint="It must be readable, and TMPDIR needs room for what is derived again.") from None
    for one in found.differences:
        console.print(str(one), markup=False, soft_wrap=True)
    if found.differences and found.is_as_measured:
        hint = f"So it is after an update of the lab, too. Derive it again: make report RUN={folder}"
        raise LabError(f"What was measured in {folder} is as it was; what is derived does not follow from it.", hint)
    if found.derived is None:
        problem = f"{folder} is not what was measured. Its records were changed, so what is derived was not checked."
        raise LabError(problem)
    if found.differences:
        raise LabError(f"{folder} is not what was measured.")
    recorded = f"{found.recorded} files are" if found.recorded != 1 else "1 file is"
    return [
        f"{recorded} what was measured; {_derived(found.derived)} follow from them.",
        f"{MANIFEST}: {found.manifest}",
    ]


def _derived(paths: list[str]) -> str:
    """Return the names of derived files as part of a sentence, those of the whole run first."""
    names = sorted({Path(path).name for path in paths}, key=["summary.json", "report.html", "requests.parquet"].index)
    return ", ".join(names[:-1]) + " and " + names[-1]

"""One page from everybody's exports: ``stampede class`` reads them all, and leaves out what cannot be trusted."""

import hashlib
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from stampede.evaluate.statistics.estimates import check_names
from stampede.experiment.file import names, read_experiment
from stampede.experiment.model import Experiment
from stampede.paths import EXPERIMENTS
from stampede.records.checksums import MANIFEST, changed_files, read_manifest, sha256
from stampede.records.folder import MOST_BYTES as FILE_BYTES
from stampede.records.folder import POINTS, BadRun, read_run, read_summary
from stampede.records.mistakes import reason_in_json
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.teach.lesson.model import read_lesson, step_experiment
from stampede.teach.lesson.notes import NOTES, Bar, Notes
from stampede.verification import compute_summary, derived_elsewhere

MOST_BYTES = 4 * 2**30
"""How much all files of an archive together may have at most."""


class BadArchive(Exception):
    """A file is not an archive that can be used. The message goes on after the file's name."""


def unpack(path: Path, folder: Path) -> None:
    """Write the files of an archive into a folder, without hidden files.

    Raise BadArchive if the archive is damaged, too large, or has entries that no export has, such as links. Raise
    OSError if the archive cannot be read, or if the folder has no room.
    """
    left = MOST_BYTES
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if member.isdir():
                    continue
                name, left = member.name.removeprefix("./"), left - member.size
                parts = name.split("/")
                if not member.isfile() or name.startswith("/") or "" in parts or ".." in parts:
                    raise BadArchive(f"has an entry that no export has: {member.name!a}")
                if left < 0:
                    raise BadArchive(f"has more than {MOST_BYTES // 2**30} GiB of files")
                if name.endswith(".json") and member.size > FILE_BYTES:
                    raise BadArchive(f"has {name} of {member.size / 2**20:,.0f} MiB; at most "
                                     f"{FILE_BYTES // 2**20} MiB are read")  # fmt: skip
                file = archive.extractfile(member)
                if file and not any(part.startswith(".") for part in parts):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / name).open("wb") as target:
                        shutil.copyfileobj(file, target)
    except (EOFError, OSError, TypeError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        if isinstance(error, OSError) and error.errno:  # else it comes from damaged data
            raise
        raise BadArchive("is damaged, or not an archive of stampede export") from None


class SubmittedRun(NamedTuple):
    """A run that somebody handed in, with its results. ``manifest`` is the hash of its manifest."""

    run: Run
    summary: Summary
    manifest: str


@dataclass
class Submission:
    """What one file or folder has: its runs, each with a text that is the same for the same run, and predictions.

    ``predictions`` are numbers with their steps. ``problems`` says what could not be used, each as a sentence that
    names the file.
    """

    runs: list[tuple[str, SubmittedRun]] = field(default_factory=list)
    predictions: list[tuple[str, Bar]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_all(paths: Sequence[Path], known: set[str]) -> list[Submission]:
    """Read everything that was handed in, as much at once as there are cores.

    ``known``: the experiments that the page can show. A run that was handed in twice counts once.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            submissions = [*pool.map(lambda path: _read(path, known), paths)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    first: dict[str, Path] = {}
    for path, found in zip(paths, submissions, strict=True):
        for key, handed in [*found.runs]:
            if key in first:
                name = handed.run.experiment
                found.runs.remove((key, handed))
                found.problems.append(f"{path}: this run of {name} is also in {first[key]}, and counts once.")
            first.setdefault(key, path)
    return submissions


def _read(path: Path, known: set[str]) -> Submission:
    found = Submission()
    try:
        if path.is_dir():
            _add_runs(found, path, path.resolve(), path.resolve().parent)
        else:
            with tempfile.TemporaryDirectory(prefix="stampede-class-") as temporary:
                folder = Path(temporary).resolve()
                unpack(path, folder)
                _add_runs(found, path, folder, folder)
    except BadArchive as error:
        return Submission(problems=[f"{path} {error}."])
    except OSError as error:
        return Submission(problems=[f"{path} cannot be read: {error.strerror or error}."])
    if not found.runs and not found.problems:
        archives = path.is_dir() and any(path.glob("*.tar.gz"))
        found.problems.append(f"{path} has no run{f'; name its archives: {path}/*.tar.gz' if archives else ''}.")
        return found
    exercises = {f"{name}-exercise" for name in known}  # they may lie beside the runs of the steps
    for name in sorted({handed.run.experiment for _, handed in found.runs} - known - exercises):
        found.problems.append(f"{path}: {name} is not an experiment of this lab, so it is not on the page.")
    found.runs = [(key, handed) for key, handed in found.runs if handed.run.experiment in known]
    if not (found.runs or found.problems):
        hint = "to hand in the lesson: stampede export results/lesson"
        found.problems.append(f"{path} has only runs of exercises; {hint}.")
    return found


def _add_runs(found: Submission, path: Path, top: Path, base: Path) -> None:
    """Add the runs in the folder ``top`` of ``path``, or say why they cannot be used. Messages name them from ``base``.

    ``path`` is what was handed in.
    """
    for notes in sorted(top.rglob(NOTES))[:1]:
        try:
            steps = Notes.model_validate_json(content := notes.read_bytes()).steps
        except ValidationError as error:
            wrong = reason_in_json(error, Notes, content)
            found.problems.append(f"{path}: the predictions of {NOTES} are left out: {wrong}.")
        else:
            found.predictions += [(name, bar) for name, of in steps.items() if of.result for bar in of.result.bars]
    for folder in sorted({record.parent.resolve() for record in top.rglob("run.json")}):
        try:
            found.runs.append(_checked(folder))
        except BadRun as error:
            found.problems.append(f"{path}: {str(error).replace(f'{base}/', '')}.")


def _checked(folder: Path) -> tuple[str, SubmittedRun]:
    """Return a run, and a text that is the same for the same run. Raise BadRun if it cannot be used."""
    run = read_run(folder)
    if wrong := changed_files(folder):
        some = "; ".join(map(str, wrong[:3])) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        raise BadRun(f"the run of {run.experiment} was changed since it was measured: {some}")
    manifest = sha256(folder / MANIFEST)
    points = sorted(digits for name, digits in read_manifest(folder).items() if Path(name).match(POINTS))
    key = hashlib.sha256("".join(points).encode()).hexdigest() if points else manifest
    try:
        summary = read_summary(folder)
        check_names(folder, run, summary)
    except BadRun:  # there is none, or another version of the lab wrote it
        try:
            with derived_elsewhere(folder, compute_summary, keep=()) as (_, summary):
                pass
        except OSError as error:
            raise BadRun(f"the results cannot be computed again: {error.strerror or error}") from None
    if len(summary.claims) != len(run.claims):
        raise BadRun(f"the results of {run.experiment} belong to another run")
    return key, SubmittedRun(run, summary, manifest)


def own_experiments() -> dict[str, Experiment]:
    """Return the lab's own experiments by the name that runs have. Runs of the lesson are named after its steps."""
    lesson = read_lesson()
    found = {name: read_experiment(EXPERIMENTS / f"{name}.yaml") for name in names()}
    return found | {step.run: step_experiment(lesson, step) for step in lesson.steps}

"""One page from everybody's exports: ``stampede class`` reads them all, and leaves out what cannot be trusted."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from stampede.evaluate.metrics.asked import check_names
from stampede.experiment.file import names, read_experiment
from stampede.experiment.model import Experiment
from stampede.paths import EXPERIMENTS, LESSONS
from stampede.records.checksums import (
    MANIFEST,
    changed_files,
    read_manifest,
    sha256,
)
from stampede.records.files import POINTS
from stampede.records.folder import BadRun, read_run, read_summary
from stampede.records.summary import Summary
from stampede.teach.classroom.archive import BadArchive, unpack
from stampede.teach.classroom.predictions import NumberPrediction, read_predictions
from stampede.teach.classroom.strips import OwnExperiment, SubmittedRun, claim_key
from stampede.verification import compute_summary, derived_elsewhere

LESSON = "lesson.json"
"""The notes of a lesson, which may lie beside its runs."""
_NAMED = 3
"""How many changed files a message names."""


@dataclass(frozen=True)
class Submission:
    """What one file or folder has: its runs, each with a text that is the same for the same run, and predictions.

    ``problems`` says what could not be used, each as a sentence that names the file.
    """

    runs: list[tuple[str, SubmittedRun]] = field(default_factory=list)
    predictions: list[NumberPrediction] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_all(paths: Sequence[Path], known: set[str], *, check: bool) -> list[Submission]:
    """Read everything that was handed in, as much at once as there are cores.

    ``known``: the experiments that the page can show. ``check``: compute all results again. A run that was handed in
    twice counts once.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            found = [*pool.map(lambda path: _read(path, known, check=check), paths)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    first: dict[str, Path] = {}
    once = []
    for path, submission in zip(paths, found, strict=True):
        runs, again = [], []
        for key, handed in submission.runs:
            if key in first:
                again.append(f"{path}: this run of {handed.run.experiment} is also in {first[key]}, and counts once.")
            else:
                first[key] = path
                runs.append((key, handed))
        once.append(Submission(runs, submission.predictions, [*submission.problems, *again]))
    return once


def _read(path: Path, known: set[str], *, check: bool) -> Submission:
    try:
        if path.is_dir():
            found = _read_runs(path, path, lambda run: run.name, check=check)
        else:
            with tempfile.TemporaryDirectory(prefix="stampede-class-") as temporary:
                folder = Path(temporary).resolve()
                unpack(path, folder)
                found = _read_runs(path, folder, lambda run: str(run.relative_to(folder)), check=check)
    except BadArchive as error:
        return Submission(problems=[f"{path} {error}."])
    except OSError as error:
        return Submission(problems=[f"{path} cannot be read: {error.strerror or error}."])
    if not found.runs and not found.problems:
        archives = path.is_dir() and any(path.glob("*.tar.gz"))
        return Submission(problems=[f"{path} has no run{f'; name its archives: {path}/*.tar.gz' if archives else ''}."])
    exercises = {f"lesson-{step}-exercise" for step in _lesson_steps()}  # they may lie beside the runs of the steps
    foreign = sorted({handed.run.experiment for _, handed in found.runs} - known - exercises)
    more = [f"{path}: {name} is not an experiment of this lab, so it is not on the page." for name in foreign]
    runs = [(key, handed) for key, handed in found.runs if handed.run.experiment in known]
    if not (runs or found.problems or more):
        more = [f"{path} has only runs of exercises; to hand in the lesson: stampede export results/lesson."]
    return Submission(runs, found.predictions, found.problems + more)


def _read_runs(path: Path, top: Path, called: Callable[[Path], str], *, check: bool) -> Submission:
    """Read the runs in a folder. ``called`` returns how whoever handed in ``path`` knows the folder of a run."""
    found = Submission()
    for lesson in sorted(top.rglob(LESSON))[:1]:
        try:
            found.predictions.extend(read_predictions(lesson.read_bytes()))
        except ValueError as error:
            found.problems.append(f"{path}: the predictions of {LESSON} are left out: {error}.")
    for folder in sorted({record.parent.resolve() for record in top.rglob("run.json")}):
        _add(found, path, folder, called(folder), check=check)
    return found


def _add(found: Submission, path: Path, folder: Path, called: str, *, check: bool) -> None:
    """Add one run of ``path`` to what was found, or say why it cannot be used."""
    try:
        run = read_run(folder)
        if wrong := changed_files(folder):
            some = "; ".join(map(str, wrong[:_NAMED]))
            some += f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            found.problems.append(f"{path}: the run of {run.experiment} was changed since it was measured: {some}.")
            return
        manifest = sha256(folder / MANIFEST)
        points = sorted(digits for name, digits in read_manifest(folder).items() if Path(name).match(POINTS))
        key = hashlib.sha256("".join(points).encode()).hexdigest() if points else manifest
        try:
            summary = read_summary(folder)
            check_names(folder, run, summary)
        except BadRun:  # there is none, or another version of the lab wrote it
            summary = _again(folder)
        if check and _again(folder) != summary:
            found.problems.append(
                f"{path}: the results of {run.experiment} do not follow from its measured files, or another version of "
                "the lab computed them."
            )
            return
    except BadRun as error:
        found.problems.append(f"{path}: {str(error).replace(str(folder), called)}.")
        return
    if len(summary.claims) != len(run.claims):
        found.problems.append(f"{path}: the results of {run.experiment} belong to another run.")
        return
    found.runs.append((key, SubmittedRun(run, summary, manifest)))


def _again(folder: Path) -> Summary:
    """Compute the results of a run again, in a folder of links to its files. Raise BadRun if it is not possible."""
    try:
        with derived_elsewhere(folder, compute_summary, keep=()) as (again, _):
            return read_summary(again)
    except OSError as error:
        raise BadRun(f"the results cannot be computed again: {error.strerror or error}") from None


@cache
def own_experiments() -> dict[str, OwnExperiment]:
    """Return what the lab's own files say, by the name that runs have. Runs of the lesson are named after its steps."""
    known = {name: _known(read_experiment(EXPERIMENTS / f"{name}.yaml")) for name in names()}
    return known | {
        f"lesson-{step}": _known(read_experiment(LESSONS / "experiments" / f"{step}.yaml"), step)
        for step in _lesson_steps()
    }


@cache
def _lesson_steps() -> list[str]:
    """Return the names of the lesson's steps in their order. Each step measures the experiment of its name."""
    return [step["name"] for step in yaml.safe_load((LESSONS / "lesson.yaml").read_text(encoding="utf-8"))["steps"]]


def _known(experiment: Experiment, step: str = "") -> OwnExperiment:
    load = next(iter(experiment.all_loads))
    claims = {claim_key(claim.with_load(load)): claim.says for claim in experiment.claims}
    return OwnExperiment(experiment.title, experiment.question, claims, frozenset(experiment.variants), step)

"""A lesson without containers: what a step would measure is made up from the variants' settings."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.pipeline import derive_summary
from analysis.predict.stored import predictions_of
from analysis.records.folder import read_run
from analysis.records.run import LoadRecord
from analysis.records.summary import Summary
from lab.apps.lesson import notes, teaching
from lab.apps.lesson.model import read_lesson
from lab.apps.lesson.teaching import Student
from lab.options import RunRequest
from lab.servers.base import Variant
from tests.synthetic import Request, make_run, write_points

HEAVY_MIX = 2
"""The step whose results are made up: its variants are ``four-processes`` and ``one-process``."""
DONE = notes.StepNotes(
    prediction=notes.StudentPrediction(values=[1, 1], at=""),
    result=notes.Result(run="", at="", bars=[], claims=[]),
    explanation="",
    solution_at="now",
)
"""A step of which nothing is left to do."""


def requests_of(variant: Variant) -> list[Request]:
    """Return what a variant serves: if a process has fewer than seven threads, every other light request waits.

    It waits for a worker both of whose threads serve heavy requests for 8 s, while another worker has a free thread.
    """
    if (variant.threads or 0) >= 7:
        return [Request(sent_s=n / 10, worker="box:7", user=n) for n in range(40)]
    busy = [
        Request(service_time_ms=8000, request_class="heavy", sent_s=n / 1000, user=100 + n)
        for n in range(variant.threads or 1)
    ]
    waiting = [
        Request(overhead_ms=8050 - 200 * n, waits_ms=8049 - 200 * n, sent_s=n / 5, user=n) for n in range(0, 40, 2)
    ]
    return [*busy, *waiting, *(Request(sent_s=n / 5, worker="box:8", user=n) for n in range(1, 40, 2))]


class Measuring:
    """Takes the place of measuring. ``started`` holds the names and commands of the runs in ``folders``."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.folders: list[Path] = []
        self.before: Callable[[], object] = lambda: None
        self.invalid = False
        self.busy = False

    def __call__(self, request: RunRequest, _: object = None) -> tuple[Path, Summary]:
        """Make up a run, and return its folder and summary as measuring would."""
        self.before()
        name, experiment = request.name, request.experiment
        self.started.append((name, request.command))
        assert request.options.jobs == 3
        requests = {name: requests_of(variant) for name, variant in experiment.variants.items()}
        folder = request.results / name / f"20260102T0304{len(self.started):02}Z"
        self.folders.append(folder)
        make_run(
            folder,
            requests,
            claims=experiment.claims,
            times=experiment.trials,
            experiment=name,
            variants=[variant.record(name) for name, variant in experiment.variants.items()],
            loads=[LoadRecord(name="mix", script="heavy-mix.js", duration="60s", settings={"LIGHT_VUS": "5"})],
        )
        if self.invalid:
            write_points(folder / "one-process" / "mix" / "1" / "points.json.gz", [Request()] * 7)
        if self.busy:
            for record in folder.glob("*/*/*/trial.json"):
                record.write_text(re.sub(r'("busy_before": ?)[\d.]+', r"\g<1>0.9", record.read_text()))
        return folder, derive_summary(folder, predictions_of(folder))


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    """Let made-up runs take the place of containers."""
    one = Measuring()
    monkeypatch.setattr(teaching, "measure_quietly", one)
    return one


@pytest.fixture
def student(tmp_path: Path) -> Student:
    """Somebody who begins the lesson."""
    return Student(read_lesson(), tmp_path / "results")


def experiment_of_run(student: Student, run: str) -> str:
    """Return the experiment that a run records."""
    return read_run(student.results / run).experiment

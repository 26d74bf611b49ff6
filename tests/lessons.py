"""A lesson without containers: what a step would measure is made up from the variants' settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.folder import read_run
from analysis.pipeline import derive_summary
from analysis.result import Summary
from lab.experiment.model import Experiment
from lab.lesson import teaching
from lab.lesson.model import read_lesson
from lab.lesson.teaching import Student
from tests.synthetic import Request, make_run, write_points

HEAVY_MIX = 2
"""The step whose results are made up: its variants are ``four-processes`` and ``one-process``."""


def overhead_ms(experiment: Experiment, variant: str) -> float:
    """Return what a light request loses: nothing if one process has a thread for each of the seven users."""
    return 2 if (experiment.variants[variant].threads or 0) >= 7 else 600


class Measuring:
    """Takes the place of measuring. ``started`` holds the names and commands of the runs."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self.before: Callable[[], object] = lambda: None
        self.invalid = False

    def __call__(
        self, name: str, experiment: Experiment, plan_for: Any, *, results: Path, command: str, **_: Any
    ) -> tuple[Path, Summary]:
        """Make up a run of two trials, and return its folder and summary as measuring would."""
        self.before()
        self.started.append((name, command))
        plan = plan_for(None)
        assert plan.jobs == 3
        requests = {
            variant: [Request(overhead_ms=overhead_ms(experiment, variant), sent_s=n / 10) for n in range(40)]
            for variant in experiment.variants
        }
        folder = results / name / f"20260102T0304{len(self.started):02}Z"
        make_run(folder, requests, claims=experiment.claims, times=2, experiment=name)
        if self.invalid:
            write_points(folder / "one-process" / "mix" / "1" / "points.json.gz", [Request()] * 7)
        return folder, derive_summary(folder)


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

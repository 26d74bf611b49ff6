"""A lesson without containers: what a step would measure is made up from the variants' settings."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from stampede.experiment.model import Experiment
from stampede.pipeline import derive_summary
from stampede.predict.prediction import predictions_of
from stampede.records.folder import read_summary
from stampede.records.run import LoadRecord
from stampede.records.summary import Summary, Validity
from stampede.run.options import RunRequest
from stampede.servers.base import Variant
from stampede.teach.lesson import notes, teaching
from stampede.teach.lesson.model import read_lesson
from stampede.teach.lesson.teaching import Student
from tests.synthetic import Request, make_run

lesson = cache(read_lesson)
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
    """Takes the place of measuring. ``started`` holds the names and commands of the runs in ``folders``.

    A run that was made up before, for any test, is copied from ``store``, which the workers of pytest share.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self.started: list[tuple[str, str]] = []
        self.folders: list[Path] = []
        self.before: Callable[[], object] = lambda: None
        self.invalid = False
        self.busy = False

    def __call__(self, request: RunRequest, _: object = None) -> tuple[Path, Summary]:
        """Make up a run, and return its folder and summary as measuring would."""
        self.before()
        self.started.append((request.name, request.command))
        assert request.options.jobs == 3
        folder = request.results / request.name / f"20260102T0304{len(self.started):02}Z"
        self.folders.append(folder)
        what = request.name, request.experiment.model_dump_json()
        stored = self.store / sha256(repr(what).encode()).hexdigest()
        if not stored.exists():
            _make_up(stored, request.name, request.experiment)
        shutil.copytree(stored, folder)
        summary = read_summary(folder)
        if self.invalid:
            validity = Validity(verdict="invalid", reasons=["a worker ended"])
            return folder, summary.model_copy(update={"validity": validity})
        claims = [claim.model_copy(update={"suspect": self.busy}) for claim in summary.claims]
        return folder, summary.model_copy(update={"claims": claims})


def _make_up(stored: Path, name: str, experiment: Experiment) -> None:
    """Make up a run elsewhere, and store it unless another process has stored it meanwhile."""
    folder = stored.with_name(f"{stored.name}.{os.getpid()}")
    make_run(
        folder,
        {name: requests_of(variant) for name, variant in experiment.variants.items()},
        claims=experiment.claims,
        times=experiment.trials,
        experiment=name,
        variants=[variant.record(name) for name, variant in experiment.variants.items()],
        loads=[LoadRecord(name="mix", script="heavy-mix.js", duration="60s", settings={"LIGHT_VUS": "5"})],
    )
    derive_summary(folder, predictions_of(folder))
    with suppress(OSError):
        folder.rename(stored)


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Measuring:
    """Let made-up runs take the place of containers."""
    own = tmp_path_factory.getbasetemp()
    one = Measuring((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "lessons")
    monkeypatch.setattr(teaching, "measure_quietly", one)
    return one


@pytest.fixture
def student(tmp_path: Path) -> Student:
    """Somebody who begins the lesson."""
    return Student(lesson(), tmp_path / "results")

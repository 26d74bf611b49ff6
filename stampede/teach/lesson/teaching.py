"""What a student can do in a step. Each act reads the notes, does its work, and writes the notes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stampede.errors import LabError, WrongUse
from stampede.evaluate.statistics.stopping import has_interval
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest
from stampede.run.record import now
from stampede.teach.lesson import notes
from stampede.teach.lesson.model import Lesson, LessonStep, Question, experiment_with_change, step_experiment
from stampede.teach.lesson.notes import Attempt, Bar, Notes, Result, StepNotes, StudentPrediction, Verdict
from stampede.typed import option, typed

if TYPE_CHECKING:
    from stampede.docker.machine_usage import Progress
    from stampede.experiment.model import Experiment
    from stampede.records.summary import Summary

    Follow = Callable[[Progress], Progress]


@dataclass(frozen=True)
class Student:
    """Who takes which lesson: the folder of results holds what the student has done."""

    lesson: Lesson
    results: Path

    @property
    def notes(self) -> Notes:
        """What was done so far."""
        return notes.read_notes(self.results)

    @property
    def left(self) -> list[LessonStep]:
        """The steps that are not done."""
        return self.notes.left(self.lesson)

    def step(self, number: int) -> LessonStep:
        """Return a step by its number from 1; 0: the next step. Raise WrongUse if there is no such step."""
        if not number:
            return next(iter(self.left), self.lesson.steps[-1])
        if not 1 <= number <= len(self.lesson.steps):
            raise WrongUse(
                f"There is no step {number}.", hint=f"{typed('lesson', '…')}, from 1 to {len(self.lesson.steps)}"
            )
        return self.lesson.steps[number - 1]

    def number(self, step: LessonStep) -> int:
        """Return the number of a step."""
        return self.lesson.steps.index(step) + 1

    def command(self, step: LessonStep) -> str:
        """Return the command that goes on with a step."""
        return typed("lesson", self.number(step))

    def expected_s(self, step: LessonStep) -> int:
        """Return about how long the measuring of a step takes."""
        experiment = step_experiment(self.lesson, step)
        return expected_s(lay_out(experiment, trials=experiment.trials, jobs=self.lesson.jobs))

    def predict(self, step: LessonStep, values: list[float]) -> None:
        """Record a prediction before anything is measured."""
        notes.write_notes(self.results, notes.with_prediction(self.notes, step, values, now()))

    def measure(self, step: LessonStep, follow: "Follow | None" = None) -> Result:
        """Measure a step whose prediction is recorded, and record the result. Raise LabError if the run is invalid."""
        prediction = self.check_measure(step)
        experiment = step_experiment(self.lesson, step)
        folder, summary = self._measured(step, experiment, step.run, follow, "")
        again = self.command(step)
        bars = [
            _bar(asked, yours, summary, again) for asked, yours in zip(step.predict, prediction.values, strict=True)
        ]
        found = Result(run=folder, at=now(), bars=bars, claims=_verdicts(summary))
        notes.write_notes(self.results, self.notes.with_step(step, result=found))
        return found

    def check_measure(self, step: LessonStep) -> StudentPrediction:
        """Return the prediction of a step that can be measured now. Raise WrongUse if there is none, or a result."""
        done = self.notes.step(step)
        if not done.prediction:
            problem = f"Predict first: nothing of {step.name} is measured before."
            raise WrongUse(problem, hint=f"{self.command(step)} {option('predict', '…')}")
        if done.result:
            problem = f"The result of {step.name} is known already."
            raise WrongUse(problem, hint=f"To begin the whole lesson again: {typed('lesson', '--restart')}")
        return done.prediction

    def explain(self, step: LessonStep, sentence: str) -> None:
        """Record the student's explanation of a result."""
        self._require(step, "The explanation")
        readable = sentence.encode(errors="replace").decode().strip()
        notes.write_notes(self.results, self.notes.with_step(step, explanation=readable))

    def try_change(self, step: LessonStep, change: str, follow: "Follow | None" = None) -> Attempt:
        """Measure the exercise with one changed setting, e.g. ``threads=5``, and record whether it passed the check."""
        experiment = self.check_change(step, change)
        folder, summary = self._measured(step, experiment, step.exercise_run, follow, change)
        attempt = Attempt(change=change, run=folder, at=now(), check=_verdicts(summary)[0])
        before = self.notes
        notes.write_notes(self.results, before.with_step(step, attempts=[*before.step(step).attempts, attempt]))
        return attempt

    def check_change(self, step: LessonStep, change: str) -> "Experiment":
        """Return what the exercise measures after a change. Raise WrongUse if the change is not possible."""
        self._require(step, "The exercise")
        return experiment_with_change(step_experiment(self.lesson, step), step.exercise, *read_change(change, step))

    def show_solution(self, step: LessonStep) -> None:
        """Record that the student asked for the solution."""
        done = self._require(step, "The solution")
        notes.write_notes(self.results, self.notes.with_step(step, solution_at=done.solution_at or now()))

    def _require(self, step: LessonStep, what: str) -> StepNotes:
        """Return what was done in a step whose result is known. Raise WrongUse if it is not known yet."""
        done = self.notes.step(step)
        if not done.result:
            problem = f"{what} comes after the result of {step.name}, which was not measured yet."
            raise WrongUse(problem, hint=self.command(step))
        return done

    def _measured(
        self, step: LessonStep, experiment: "Experiment", name: str, follow: "Follow | None", change: str
    ) -> "tuple[str, Summary]":
        """Measure an experiment of the lesson with the lesson's own budget. Return the run's place in results."""
        options = MeasureOptions(trials=experiment.trials, jobs=self.lesson.jobs)
        command = self.command(step) + (f" {option('set', change)}" if change else "")
        folder, summary = measure_quietly(RunRequest(name, experiment, options, self.results, command), follow)
        if summary.validity.verdict == "invalid":
            raise LabError(
                f"The run is invalid, so it does not count: {summary.validity.reasons[0]}",
                hint=f"Measure again: {command}",
            )
        return str(folder.relative_to(self.results)), summary


def read_change(change: str, step: LessonStep) -> tuple[str, str]:
    """Return the setting and the value of a change. Raise WrongUse if it is not written like ``threads=5``."""
    setting, _, value = (part.strip() for part in change.strip().removeprefix("SET=").partition("="))
    if not setting or not value:
        example = f"{step.exercise.settings[0]}=…"
        raise WrongUse(
            f"The change {change!r} must be a setting and its value.",
            hint=f"{example} (as an option: {option('set', example)})",
        )
    return setting, value


def _bar(asked: Question, yours: float, summary: "Summary", again: str) -> Bar:
    """Return what was predicted and measured of one number. Raise LabError if a trusted trial has no such number."""
    value = asked.value
    row = summary.row(value.variant, value.load, value.request_class, value.metric, value.stat)
    if row is None or row.measured is None:
        raise LabError(f"The run has too few requests: {asked.says} … is unknown.", hint=f"Measure again: {again}")
    known = has_interval([*row.values.values()], row.low, row.high)
    return Bar(
        says=asked.says, unit=asked.unit, yours=yours, theory=row.predicted, measured=row.measured,
        low=row.low if known else None, high=row.high if known else None,
    )  # fmt: skip


def _verdicts(summary: "Summary") -> list[Verdict]:
    trusted = Counter(trial.variant for trial in summary.trials if trial.is_trusted)
    trials = min(trusted.values(), default=0)
    known = [has_interval([row.measured or 0.0] * trials, row.low, row.high) for row in summary.claims]
    return [
        Verdict(
            says=row.says, verdict=row.verdict, suspect=row.suspect, measured=row.measured,
            low=row.low if shown else None, high=row.high if shown else None, bound=row.bound, unit=row.unit,
        )
        for row, shown in zip(summary.claims, known, strict=True)
    ]  # fmt: skip

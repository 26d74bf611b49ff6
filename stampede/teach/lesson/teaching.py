"""What a student can do in a step. Each act reads the notes, does its work, and writes the notes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stampede.errors import LabError, WrongUse
from stampede.evaluate.statistics.stopping import has_interval
from stampede.experiment.model import Experiment
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.records.summary import Summary
from stampede.run.measuring import Follow, measure_quietly
from stampede.run.options import MeasureOptions, RunRequest
from stampede.run.record import now
from stampede.teach.lesson.model import Lesson, LessonStep, experiment_with_change, step_experiment
from stampede.teach.lesson.notes import Attempt, Bar, Notes, Result, StepNotes, StudentPrediction, Verdict
from stampede.typed import option, typed


@dataclass(frozen=True)
class Student:
    """Who takes which lesson: the folder of results holds what the student has done."""

    lesson: Lesson
    results: Path

    @property
    def folder(self) -> Path:
        """The folder of the notes."""
        return self.results / "lesson"

    @property
    def notes(self) -> Notes:
        """What was done so far."""
        return Notes.read(self.folder)

    @property
    def left(self) -> list[LessonStep]:
        """The steps that are not done."""
        return self.notes.left(self.lesson)

    @property
    def hand_in(self) -> str:
        """The command that packs the lesson into one file."""
        return f"stampede export {self.folder} --to your-name.tar.gz"

    def step(self, number: int) -> LessonStep:
        """Return a step by its number from 1; 0: the next step. Raise WrongUse if there is no such step."""
        if not number:
            return next(iter(self.left), self.lesson.steps[-1])
        last = len(self.lesson.steps)
        if not 1 <= number <= last:
            raise WrongUse(f"There is no step {number}.", hint=f"{typed('lesson', '…')}, from 1 to {last}")
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

    def predict(self, step: LessonStep, said: Sequence[str | float]) -> None:
        """Record the numbers that the student said before anything is measured. Raise WrongUse for a wrong number."""
        if self.notes.step(step).result:
            raise WrongUse("The prediction cannot be changed any more, because the result is known.", _restart())
        asked = step.predict
        examples = ",".join((["300", "2.5"] * len(asked))[: len(asked)])
        hint = f"Write a number such as 300 or 2.5 (as an option: {option('predict', examples)})."
        if len(said) != len(asked):
            raise WrongUse(f"This step asks for {len(asked)} predictions, not {len(said)}.", hint)
        values = []
        for word, question in zip(said, asked, strict=True):
            try:
                value = float(word)
            except ValueError:
                raise WrongUse(f"The prediction {str(word).strip()!r} is no number.", hint) from None
            if not 0 <= value <= question.at_most:
                problem = f"The prediction {value:.15g} must be from 0 to {question.at_most:.15g}"
                raise WrongUse(f"{problem}: {question.says} … {question.unit}.", hint)
            values.append(value)
        self._note(step, prediction=StudentPrediction(values=values, at=now()))

    def measure(self, step: LessonStep, follow: Follow | None = None) -> Result:
        """Measure a step whose prediction is recorded, and record the result. Raise LabError if the run is invalid."""
        prediction = self.check_measure(step)
        run, summary = self._measured(step, step_experiment(self.lesson, step), step.run, follow)
        bars = []
        for asked, yours in zip(step.predict, prediction.values, strict=True):
            value = asked.value
            row = summary.row(value.variant, value.load, value.request_class, value.metric, value.stat)
            if row is None or row.measured is None:
                problem = f"The run has too few requests: {asked.says} … is unknown."
                raise LabError(problem, hint=f"Measure again: {self.command(step)}")
            shown = has_interval([*row.values.values()], row.low, row.high)
            interval = {"low": row.low if shown else None, "high": row.high if shown else None}
            bars.append(Bar(says=asked.says, unit=asked.unit, yours=yours, theory=row.predicted,
                            measured=row.measured, **interval))  # fmt: skip
        result = Result(run=run, at=now(), bars=bars, claims=_verdicts(summary))
        self._note(step, result=result)
        return result

    def check_measure(self, step: LessonStep) -> StudentPrediction:
        """Return the prediction of a step that can be measured now. Raise WrongUse if there is none, or a result."""
        done = self.notes.step(step)
        if not done.prediction:
            problem = f"Predict first: nothing of {step.name} is measured before."
            raise WrongUse(problem, hint=f"{self.command(step)} {option('predict', '…')}")
        if done.result:
            raise WrongUse(f"The result of {step.name} is known already.", _restart())
        return done.prediction

    def explain(self, step: LessonStep, sentence: str) -> None:
        """Record the student's explanation of a result."""
        self._require(step, "The explanation")
        self._note(step, explanation=sentence.encode(errors="replace").decode().strip())

    def try_change(self, step: LessonStep, change: str, follow: Follow | None = None) -> Attempt:
        """Measure the exercise with one changed setting, e.g. ``threads=5``, and record whether it passed the check."""
        experiment = self.check_change(step, change)
        run, summary = self._measured(step, experiment, f"{step.run}-exercise", follow, f" {option('set', change)}")
        attempt = Attempt(change=change, run=run, at=now(), check=_verdicts(summary)[0])
        self._note(step, attempts=[*self.notes.step(step).attempts, attempt])
        return attempt

    def check_change(self, step: LessonStep, change: str) -> Experiment:
        """Return what the exercise measures after a change. Raise WrongUse if the change is not possible."""
        self._require(step, "The exercise")
        setting, _, value = (part.strip() for part in change.strip().removeprefix("SET=").partition("="))
        if not setting or not value:
            example = f"{step.exercise.settings[0]}=…"
            raise WrongUse(
                f"The change {change!r} must be a setting and its value.",
                hint=f"{example} (as an option: {option('set', example)})",
            )
        return experiment_with_change(step_experiment(self.lesson, step), step.exercise, setting, value)

    def show_solution(self, step: LessonStep) -> None:
        """Record that the student asked for the solution."""
        done = self._require(step, "The solution")
        self._note(step, solution_at=done.solution_at or now())

    def _require(self, step: LessonStep, what: str) -> StepNotes:
        """Return what was done in a step whose result is known. Raise WrongUse if it is not known yet."""
        done = self.notes.step(step)
        if not done.result:
            problem = f"{what} comes after the result of {step.name}, which was not measured yet."
            raise WrongUse(problem, hint=self.command(step))
        return done

    def _note(self, step: LessonStep, **done: object) -> None:
        self.notes.with_step(step, **done).write(self.folder)

    def _measured(
        self, step: LessonStep, experiment: Experiment, name: str, follow: Follow | None, change: str = ""
    ) -> tuple[str, Summary]:
        """Measure an experiment of the lesson with the lesson's own budget. Return the run's place in results."""
        options = MeasureOptions(trials=experiment.trials, jobs=self.lesson.jobs)
        command = self.command(step) + change
        folder, summary = measure_quietly(RunRequest(name, experiment, options, self.results, command), follow)
        if summary.validity.verdict == "invalid":
            problem = f"The run is invalid, so it does not count: {summary.validity.reasons[0]}"
            raise LabError(problem, hint=f"Measure again: {command}")
        return str(folder.relative_to(self.results)), summary


def _restart() -> str:
    return f"To begin the whole lesson again: {typed('lesson', '--restart')}"


def _verdicts(summary: Summary) -> list[Verdict]:
    """Return the claims of a run. An interval of few trials is left out, because it tells a reader nothing."""
    trusted = Counter(trial.variant for trial in summary.trials if trial.is_trusted)
    found = []
    for row in summary.claims:
        shown = has_interval([row.measured or 0.0] * min(trusted.values(), default=0), row.low, row.high)
        kept = Verdict.model_fields.keys() - (set() if shown else {"low", "high"})
        found.append(Verdict(**{"low": None, "high": None, **row.model_dump(include=kept)}))
    return found

"""What a student has done so far: results/lesson/lesson.json. Each change of it is a function from notes to notes."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from stampede.errors import WrongUse
from stampede.records.folder import write_whole
from stampede.records.mistakes import reason_in_json
from stampede.records.model import Model
from stampede.run.results import writing
from stampede.teach.lesson.model import Lesson, LessonStep
from stampede.typed import option, typed

Stage = Literal["predict", "measure", "explain", "exercise", "done"]
"""What comes next in a step."""


class StudentPrediction(Model):
    """The numbers that the student expects, in the order in which the step asks for them, and when they were given."""

    values: list[float]
    at: str


class Bar(Model):
    """One number as predicted by the student, by theory, and as measured; ``low`` and ``high`` are its interval."""

    says: str
    unit: str
    yours: float
    theory: float | None
    measured: float
    low: float | None
    high: float | None


class Verdict(Model):
    """A claim and what the run says of it. ``suspect``: the verdict rests on a suspect trial."""

    says: str
    verdict: str
    suspect: bool = False
    measured: float | None
    low: float | None
    high: float | None
    bound: str
    unit: str


class Result(Model):
    """The result of a step: the folder of its run, the numbers that were predicted, and the claims."""

    run: str
    at: str
    bars: list[Bar]
    claims: list[Verdict]


class Attempt(Model):
    """One change that the student measured in an exercise."""

    change: str
    run: str
    at: str
    check: Verdict

    @property
    def passed(self) -> bool:
        """Whether the change did what it should."""
        return self.check.verdict == "reproduced"

    @property
    def found(self) -> str:
        """Whether the change did what it should, in words."""
        if self.passed:
            return "it did what it should"
        if self.check.verdict == "not reproduced":
            return "it did not do what it should"
        return "this decides nothing; measure it again"


class StepNotes(Model):
    """What a student has done in one step."""

    prediction: StudentPrediction | None = None
    result: Result | None = None
    explanation: str | None = None
    attempts: list[Attempt] = Field([])
    solution_at: str | None = None

    @property
    def passed(self) -> bool:
        """Whether a change passed the check of the exercise."""
        return any(attempt.passed for attempt in self.attempts)

    @property
    def shows_solution(self) -> bool:
        """Whether the solution is no longer hidden."""
        return self.passed or self.solution_at is not None

    @property
    def stage(self) -> Stage:
        """What comes next."""
        if self.prediction is None:
            return "predict"
        if self.result is None:
            return "measure"
        if self.explanation is None:
            return "explain"
        return "done" if self.shows_solution else "exercise"


class Notes(Model):
    """What a student has done, by step."""

    schema_: Literal[1] = Field(1, alias="schema")
    steps: dict[str, StepNotes] = Field({})

    def step(self, step: LessonStep) -> StepNotes:
        """Return what was done in a step."""
        return self.steps.get(step.name, StepNotes())

    def with_step(self, step: LessonStep, **done: object) -> "Notes":
        """Return notes with something more done in a step."""
        return Notes(steps=self.steps | {step.name: self.step(step).model_copy(update=done)})

    def left(self, lesson: Lesson) -> list[LessonStep]:
        """Return the steps that are not done."""
        return [step for step in lesson.steps if self.step(step).stage != "done"]


def with_prediction(notes: Notes, step: LessonStep, values: list[float], at: str) -> Notes:
    """Return notes with a prediction. Raise WrongUse if it is not possible, or if a result is already known."""
    if notes.step(step).result:
        raise WrongUse(
            "The prediction cannot be changed any more, because the result is known.",
            hint=f"To begin the whole lesson again: {typed('lesson', '--restart')}",
        )
    if len(values) != len(step.predict):
        raise WrongUse(f"This step asks for {len(step.predict)} predictions, not {len(values)}.", hint=_example(step))
    for value, asked in zip(values, step.predict, strict=True):
        if not 0 <= value <= asked.at_most:
            problem = f"The prediction {value:.15g} must be from 0 to {asked.at_most:.15g}"
            raise WrongUse(f"{problem}: {asked.says} … {asked.unit}.", hint=_example(step))
    return notes.with_step(step, prediction=StudentPrediction(values=values, at=at))


def read_number(word: str, step: LessonStep) -> float:
    """Return the number that a student wrote. Raise WrongUse if it is no number."""
    try:
        return float(word)
    except ValueError:
        raise WrongUse(f"The prediction {word.strip()!r} is no number.", hint=_example(step)) from None


def read_numbers(text: str, step: LessonStep) -> list[float]:
    """Return the numbers of a prediction such as ``10000,1000``. Raise WrongUse if one is no number."""
    return [read_number(word, step) for word in text.split(",")]


def _example(step: LessonStep) -> str:
    examples = (["300", "2.5"] * len(step.predict))[: len(step.predict)]
    return f"Write a number such as 300 or 2.5 (as an option: {option('predict', ','.join(examples))})."


def notes_file(results: Path) -> Path:
    """Return the file of the notes."""
    return results / "lesson" / "lesson.json"


_AGAIN = f"To begin again: {typed('lesson', '--restart')}"


def read_notes(results: Path) -> Notes:
    """Read the notes; there are none before the lesson begins. Raise WrongUse if the file cannot be understood."""
    path = notes_file(results)
    try:
        content = path.read_bytes()
        return Notes.model_validate_json(content)
    except FileNotFoundError:
        return Notes()
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror}.", hint=_AGAIN) from None
    except ValidationError as error:
        problem = f"{path} cannot be understood: {reason_in_json(error, Notes, content)}."
        raise WrongUse(problem, hint=_AGAIN) from None


def write_notes(results: Path, notes: Notes) -> None:
    """Write the notes, whole or not at all."""
    path = notes_file(results)
    with writing(results):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, notes.model_dump_json(indent=1, by_alias=True) + "\n")


def forget(results: Path) -> bool:
    """Delete the notes, and keep the runs. Return whether there were notes."""
    path = notes_file(results)
    there = path.exists()
    with writing(results):
        path.unlink(missing_ok=True)
    return there

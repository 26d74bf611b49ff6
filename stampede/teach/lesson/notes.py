"""What a student has done so far: results/lesson/lesson.json. The page of a class reads the file, too."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from stampede.errors import WrongUse
from stampede.records.folder import write_whole
from stampede.records.mistakes import reason_in_json
from stampede.records.model import Model
from stampede.run.results import writing
from stampede.teach.lesson.model import Lesson, LessonStep
from stampede.typed import typed

NOTES = "lesson.json"
Stage = Literal["predict", "measure", "explain", "exercise", "done"]
"""What comes next in a step."""
Amount = Annotated[float, Field(ge=0, le=1e12)]
"""A number of the lesson. No step accepts a prediction that is larger, and the page of a class could not draw it."""


class StudentPrediction(Model):
    """The numbers that the student expects, in the order in which the step asks for them, and when they were given."""

    values: list[float]
    at: str


class Bar(Model):
    """One number as predicted by the student, by theory, and as measured; ``low`` and ``high`` are its interval."""

    says: str
    unit: str
    yours: Amount
    theory: Amount | None
    measured: Amount
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
    def shows_solution(self) -> bool:
        """Whether the solution is no longer hidden: the student asked for it, or a change passed the check."""
        return self.solution_at is not None or any(attempt.passed for attempt in self.attempts)

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

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the notes in a folder; there are none before the lesson begins. Raise WrongUse if this is impossible."""
        path, again = folder / NOTES, f"To begin again: {typed('lesson', '--restart')}"
        try:
            content = path.read_bytes()
            return cls.model_validate_json(content)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise WrongUse(f"{path} cannot be read: {error.strerror}.", hint=again) from None
        except ValidationError as error:
            problem = f"{path} cannot be understood: {reason_in_json(error, cls, content)}."
            raise WrongUse(problem, hint=again) from None

    def write(self, folder: Path) -> None:
        """Write the notes, whole or not at all."""
        with writing(folder.parent):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / NOTES, self.model_dump_json(indent=1, by_alias=True) + "\n")

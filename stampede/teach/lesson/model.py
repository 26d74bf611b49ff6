"""The model of lessons/lesson.yaml: the steps of the lesson."""

from typing import Literal, get_args, get_origin

from pydantic import Field, FiniteFloat, ValidationError

from stampede.errors import Misplaced, WrongUse
from stampede.evaluate.metrics import unit
from stampede.experiment.entries import ClaimEntry, QuantityEntry
from stampede.experiment.file import WORDING, read_experiment
from stampede.experiment.model import Cpu, Experiment
from stampede.experiment.variations import computing
from stampede.experiment.yaml_file import YamlFile
from stampede.paths import LESSONS
from stampede.records.mistakes import explain
from stampede.records.model import Model, Name
from stampede.records.words import nearest_first
from stampede.servers import KINDS
from stampede.servers.base import Variant, setting_text

Setting = int | float | bool | str
"""The value of one setting of a variant."""


class Question(Model):
    """One number that the student predicts."""

    says: str = Field(min_length=1, description="What the number is, so that the number can follow it.")
    value: QuantityEntry
    at_most: FiniteFloat = Field(gt=0, description="The largest prediction that is accepted.")

    @property
    def unit(self) -> str:
        """The unit of the number."""
        return unit(self.value.metric, self.value.stat)


class Exercise(Model):
    """A task that changes one setting of a variant. A claim on the measured result says whether the change worked."""

    task: str = Field(min_length=1)
    variant: Name
    settings: list[str] = Field(min_length=1, description="The settings of which the student may change one.")
    check: ClaimEntry
    trials: int = Field(3, ge=2, le=10, description="How often the changed variant is measured.")
    answer: dict[str, Setting] = Field(min_length=1, max_length=1, description="A change that passes the check.")
    solution: str = Field(min_length=1)


class LessonStep(Model):
    """One step. Its experiment, with the question and why it is so, is lessons/experiments/<name>.yaml."""

    name: Name
    predict: list[Question] = Field(min_length=1, max_length=4)
    explain: str = Field(min_length=1, description="What the student explains in a sentence.")
    exercise: Exercise

    @property
    def run(self) -> str:
        """The name of the step's runs, in the folder of results and in their records."""
        return f"lesson-{self.name}"


class Lesson(Model):
    """lesson.yaml: the steps in their order, and how all of them are measured."""

    jobs: int = Field(ge=1, le=16, description="The most variants side by side.")
    cpu: Cpu = Field(description="How requests compute.")
    steps: list[LessonStep] = Field(min_length=1)


def read_lesson() -> Lesson:
    """Read the lesson. Raise WrongUse with the place of the first name that does not fit."""
    file = YamlFile(LESSONS / "lesson.yaml", WORDING)
    lesson = file.read_as(Lesson)
    try:
        for number in range(len(lesson.steps)):
            _check(lesson, number)
    except Misplaced as error:
        raise file.mistake(str(error), *error.place) from None
    return lesson


def _check(lesson: Lesson, number: int) -> None:
    """Raise Misplaced if a step has the name of an earlier one, or names what its experiment does not have."""
    step, place = lesson.steps[number], ("steps", number)
    if step.name in [earlier.name for earlier in lesson.steps[:number]]:
        raise Misplaced(f"there are two steps {step.name}", *place, "name")
    experiment, exercise, inside = step_experiment(lesson, step), step.exercise, (*place, "exercise")
    for asking, asked in enumerate(step.predict):
        experiment.check_entry(asked.value, *place, "predict", asking, "value")
    experiment.check_variant(exercise.variant, *inside, "variant")
    known_settings = list(type(experiment.variants[exercise.variant]).model_fields)
    for setting, name in enumerate(exercise.settings):
        if name not in known_settings:
            known = nearest_first(name, known_settings)
            raise Misplaced(f"{exercise.variant} has no setting {name}; it has {known}", *inside, "settings", setting)
    experiment.check_entry(exercise.check.value, *inside, "check", "value")


def step_experiment(lesson: Lesson, step: LessonStep) -> Experiment:
    """Return the experiment that a step measures, with requests that compute as the lesson says."""
    experiment = read_experiment(LESSONS / "experiments" / f"{step.name}.yaml")
    computes = any(load.computes for load in experiment.all_loads.values())
    return computing(experiment, lesson.cpu if computes else "")


def experiment_with_change(experiment: Experiment, exercise: Exercise, setting: str, value: Setting) -> Experiment:
    """Return the experiment of an exercise: the changed variant alone, with the check as its only claim.

    Raise WrongUse if the setting may not be changed, or if the variant does not allow the value.
    """
    if setting not in exercise.settings:
        problem = f"This exercise does not change {setting!r}."
        raise WrongUse(problem, hint=f"Change one of {nearest_first(setting, exercise.settings)}")
    before = experiment.variants[exercise.variant]
    values = before.model_dump(exclude_unset=True) | {setting: value}
    model = KINDS.get(str(values["server"]), type(before))
    try:
        variant = model.model_validate(values)
    except ValidationError as error:
        problem = f"{setting}={setting_text(value)} is not possible: {explain(error, model, values, WORDING)[1]}."
        raise WrongUse(problem, hint="Choose another value.") from None
    if getattr(before, setting) == getattr(variant, setting):
        raise WrongUse(f"{exercise.variant} already has {setting}={setting_text(value)}.", hint="Choose another value.")
    asked = exercise.check.value.load
    loads = {name: load for name, load in experiment.loads.items() if asked in (None, name)}
    changed = {"variants": {exercise.variant: variant}, "loads": loads, "claims": [exercise.check], "because": None}
    return experiment.model_copy(update=changed | {"trials": exercise.trials})


def choices(variant: Variant, setting: str) -> list[Setting]:
    """Return the other values that a setting can have, if there are few of them; otherwise nothing."""
    kind = type(variant).model_fields[setting].annotation
    values = [True, False] if kind is bool else get_args(kind) if get_origin(kind) is Literal else []
    return [value for value in values if value != getattr(variant, setting)]

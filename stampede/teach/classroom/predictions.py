"""What the students of a class predicted before they measured, as their lessons recorded it."""

from collections.abc import Mapping
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from stampede.records.mistakes import reason_in_json

WITHIN = 2.0
"""A prediction is near if it differs from the measured number by at most this factor."""
LEAST = 0.01
"""Numbers below this count as this, so that a predicted 0 is near a measured 0."""
MOST = 1e12
"""Larger numbers are not shown. No step of the lesson accepts a prediction that is so large."""
Amount = Annotated[float, Field(ge=0, le=MOST)]


class NumberPrediction(NamedTuple):
    """One number that a student predicted, beside the number of theory (None: it has none) and the measured number."""

    step: str
    says: str
    unit: str
    predicted_value: float
    theory: float | None
    measured: float

    @property
    def is_near(self) -> bool:
        """Whether the prediction was within a factor of two."""
        low, high = sorted(max(value, LEAST) for value in (self.predicted_value, self.measured))
        return high / low <= WITHIN


class ClassPrediction(NamedTuple):
    """What a class predicted of one number."""

    step: str
    says: str
    unit: str
    predictions: list[float]
    theory: float | None
    measured: list[float]
    near: int


class _Bar(BaseModel):
    """One number of a step. What else the lesson writes is not read."""

    says: str
    unit: str
    yours: Amount
    theory: Amount | None = None
    measured: Amount


class _Result(BaseModel):
    bars: list[_Bar] = []


class _Step(BaseModel):
    result: _Result | None = None


class Answers(BaseModel):
    """What is read of a lesson.json. What a student explained in words is never read."""

    steps: dict[str, _Step]


def read_predictions(lesson: bytes) -> list[NumberPrediction]:
    """Return the predictions in a lesson.json. Raise ValueError with the place of the first mistake."""
    try:
        steps = Answers.model_validate_json(lesson).steps.items()
    except ValidationError as error:
        raise ValueError(reason_in_json(error, Answers, lesson)) from None
    return [
        NumberPrediction(name, bar.says, bar.unit, bar.yours, bar.theory, bar.measured)
        for name, step in steps
        for bar in (step.result.bars if step.result else [])
    ]


def collect_predictions(predictions: Mapping[int, list[NumberPrediction]]) -> list[ClassPrediction]:
    """Return what a class predicted, question by question, of the questions that at least two laptops were asked.

    A question that only one laptop has may have been changed by its owner.
    """
    asked: dict[tuple[str, str, str], dict[int, NumberPrediction]] = {}
    for laptop, of_one in predictions.items():
        for guess in of_one:
            asked.setdefault((guess.step, guess.says, guess.unit), {})[laptop] = guess
    return [
        ClassPrediction(
            *key,
            predictions=sorted(prediction.predicted_value for prediction in all_of),
            theory=median(theory)
            if (theory := [prediction.theory for prediction in all_of if prediction.theory is not None])
            else None,
            measured=sorted(prediction.measured for prediction in all_of),
            near=sum(prediction.is_near for prediction in all_of),
        )
        for key, all_of in ((key, [*by_laptop.values()]) for key, by_laptop in asked.items())
        if len(all_of) > 1
    ]

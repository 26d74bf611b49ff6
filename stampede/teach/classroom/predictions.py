"""What the students of a class predicted before they measured, as their lessons recorded it."""

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from pydantic import ValidationError

from stampede.records.mistakes import reason_in_json
from stampede.teach.lesson.notes import Bar, Notes

WITHIN = 2.0
"""A prediction is near if it differs from the measured number by at most this factor."""
LEAST = 0.01
"""Numbers below this count as this, so that a predicted 0 is near a measured 0."""


class ClassPrediction(NamedTuple):
    """What a class predicted of one number, which theory predicts, too, unless it is None."""

    step: str
    says: str
    unit: str
    predictions: list[float]
    theory: float | None
    measured: list[float]
    near: int


def read_predictions(lesson: bytes) -> list[tuple[str, Bar]]:
    """Return the numbers in a lesson.json, each with its step. Raise ValueError with the place of the first mistake."""
    try:
        steps = Notes.model_validate_json(lesson).steps
    except ValidationError as error:
        raise ValueError(reason_in_json(error, Notes, lesson)) from None
    return [(name, bar) for name, step in steps.items() if step.result for bar in step.result.bars]


def collect_predictions(predictions: Mapping[int, list[tuple[str, Bar]]]) -> list[ClassPrediction]:
    """Return what a class predicted, question by question, of the questions that at least two laptops were asked.

    A question that only one laptop has may have been changed by its owner.
    """
    asked: dict[tuple[str, str, str], dict[int, Bar]] = {}
    for laptop, of_one in predictions.items():
        for step, bar in of_one:
            asked.setdefault((step, bar.says, bar.unit), {})[laptop] = bar
    found = []
    for key, by_laptop in asked.items():
        if len(by_laptop) > 1:
            yours, measured = zip(*((bar.yours, bar.measured) for bar in by_laptop.values()), strict=True)
            theory = [bar.theory for bar in by_laptop.values() if bar.theory is not None]
            ends = [sorted(max(value, LEAST) for value in pair) for pair in zip(yours, measured, strict=True)]
            near = sum(high / low <= WITHIN for low, high in ends)
            middle = median(theory) if theory else None
            found.append(ClassPrediction(*key, sorted(yours), middle, sorted(measured), near))
    return found

"""What the students of a class predicted before they measured, as their lessons recorded it."""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from stampede.report.wording import number, unit_suffix
from stampede.teach.classroom.strips import Laptop
from stampede.teach.lesson.notes import Bar

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

    @property
    def summary(self) -> str:
        """What was predicted and measured, in numbers."""
        of_unit = unit_suffix(self.unit)
        theory = "" if self.theory is None else f"; theory: {number(self.theory)}{of_unit}"
        return (
            f"Predicted: {', '.join(map(number, self.predictions))}{of_unit}{theory}; measured: "
            f"{number(median(self.measured))}{of_unit} ({number(self.measured[0])} to {number(self.measured[-1])}). "
            f"{self.near} of {len(self.predictions)} predictions were within a factor of two."
        )


def collect_predictions(laptops: Iterable[Laptop]) -> list[ClassPrediction]:
    """Return what a class predicted, question by question, of the questions that at least two laptops were asked.

    A question that only one laptop has may have been changed by its owner.
    """
    asked: dict[tuple[str, str, str], dict[int, Bar]] = {}
    for laptop in laptops:
        for step, bar in laptop.predictions:
            asked.setdefault((step, bar.says, bar.unit), {})[laptop.number] = bar
    found = []
    for key, by_laptop in asked.items():
        if len(by_laptop) > 1:
            pairs = [(bar.yours, bar.measured) for bar in by_laptop.values()]
            yours, measured = map(sorted, zip(*pairs, strict=True))
            theory = [bar.theory for bar in by_laptop.values() if bar.theory is not None]
            near = sum(max(*pair, LEAST) <= WITHIN * max(min(pair), LEAST) for pair in pairs)
            found.append(ClassPrediction(*key, yours, median(theory) if theory else None, measured, near))
    return found

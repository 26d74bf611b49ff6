"""Which laptops of a class differ from the others: by a verdict, or by a value far from the median."""

from collections.abc import Mapping
from math import log
from statistics import median
from typing import NamedTuple

from stampede.teach.classroom.strips import Dot, Strip

FEW = 5
"""With fewer values than this, no value is called far from the others."""
FAR = 3.5
"""A value is far from the median from this many robust standard deviations on (Iglewicz and Hoaglin 1993)."""
NEAR = {"ms": 20.0, "share": 0.02, "index": 0.02}
"""Differences up to this, in the unit of the value, are not called far, however close the other values are."""
NEAR_RATIO = 1.25
"""Nor are values that differ from the median by less than this factor."""


class Outlier(NamedTuple):
    """How a laptop differs from the class in a strip: by its verdict, by its value, or by both."""

    strip: Strip
    dot: Dot
    by_verdict: bool
    by_value: bool


def outliers(strip: Strip) -> list[Outlier]:
    """Return the laptops whose verdict is not the verdict of most, or whose value is far from the median."""
    far = far_from_median(strip.values, strip.unit)
    return [
        Outlier(strip, dot, dot.verdict != strip.most, dot.laptop in far)
        for dot in strip.dots
        if dot.verdict != strip.most or dot.laptop in far
    ]


def far_from_median(values: Mapping[int, float], unit: str) -> set[int]:
    """Return whose value is far from the median, on logarithms if all values are positive."""
    if len(values) < FEW:
        return set()
    scaled = all(value > 0 for value in values.values())
    places = {laptop: log(value) if scaled else value for laptop, value in values.items()}
    middle, plain = median(places.values()), median(values.values())
    spread = 1.4826 * median(abs(place - middle) for place in places.values())
    far = set()
    for laptop, place in places.items():
        low, high = sorted((abs(values[laptop]), abs(plain)))
        is_near = values[laptop] * plain >= 0 and high <= NEAR_RATIO * low
        if abs(place - middle) > FAR * spread and not is_near and abs(values[laptop] - plain) > NEAR.get(unit, 0.0):
            far.add(laptop)
    return far

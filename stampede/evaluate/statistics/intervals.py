"""How precise a statistic is: 95 % intervals from the requests of one trial, and from several trials.

Chance decides after every start of the servers which worker gets which connection. So the requests of one trial depend
on each other, but the statistics of different trials do not. Each trial is therefore one draw, and a draw has two
sources of chance: how this start of the servers went, and which requests fell into the trial. Intervals combine both.
docs/explain/measures.md shows how often they hold the true value.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, hypot, log, sqrt
from statistics import fmean, geometric_mean, median, pstdev, variance
from typing import NamedTuple

import numpy as np

from stampede.evaluate.metrics.likely import CONFIDENCE, Places, Times
from stampede.evaluate.statistics.stopping import LEAST, RESAMPLED_FROM, STUDENT, Interval

_RESAMPLES = 9999


class Draw(NamedTuple):
    """The value of a statistic in one trial.

    ``likely`` has values that the trial could have had about as likely, had other requests fallen into it; empty: not
    known. They say nothing about another start of the servers.
    """

    value: float
    likely: tuple[float, ...] = ()


def of_median(draws: Sequence[Draw]) -> Interval | None:
    """Return the interval of the median over trials; None: a single trial, of which no likely values are known.

    The interval of a single trial says nothing about another start of the servers.
    """
    return _of_median((*draws,))


@lru_cache(maxsize=128)  # a load of one class of request has each statistic twice
def _of_median(draws: tuple[Draw, ...]) -> Interval | None:
    if len(draws) < LEAST:
        likely = draws[0].likely if draws else ()
        return (min(likely), max(likely)) if likely else None
    if len(draws) < RESAMPLED_FROM:
        return _student(draws)
    return _ends(_medians(draws))


def of_ratio(draws: Sequence[Draw], divisors: Sequence[Draw]) -> Interval | None:
    """Return the interval of the ratio of two medians; None: a side has one trial, or ``divisors`` may as well be 0."""
    few = min(len(draws), len(divisors))
    if few < LEAST or any(draw.value <= 0 for draw in divisors):
        return None
    if few >= RESAMPLED_FROM:
        return _ends(_medians(draws) / _medians(divisors, seed=1))
    if not (_positive(draws) and _positive(divisors)):
        (low, high), (least, most) = _student(draws), _student(divisors)
        return (low / most, high / least) if least > 0 else None
    reach = _reach(few, hypot(_error_of_mean(draws, logs=True), _error_of_mean(divisors, logs=True)))
    ratio = median(draw.value for draw in draws) / median(draw.value for draw in divisors)
    return ratio / exp(reach), ratio * exp(reach)


def _student(draws: Sequence[Draw]) -> Interval:
    """Return Student's interval for two to four trials, on the scale of logarithms if all values are positive.

    It is at least as wide as the range of the values, so that it contains their median.
    """
    values = [draw.value for draw in draws]
    if not _error_of_mean(draws):
        return min(values), max(values)
    if _positive(draws):
        centre, reach = geometric_mean(values), _reach(len(draws), _error_of_mean(draws, logs=True))
        low, high = centre / exp(reach), centre * exp(reach)
    else:
        reach = STUDENT[len(draws) - 1] * _error_of_mean(draws)
        low, high = fmean(values) - reach, fmean(values) + reach
        low = low if min(values) < 0 else max(low, 0.0)
    return min(low, *values), max(high, *values)


def _error_of_mean(draws: Sequence[Draw], *, logs: bool = False) -> float:
    """Return the standard error of the mean (or mean of ``logs``): how far trials differ, and how sure each is."""
    scale = log if logs else float
    values = [scale(draw.value) for draw in draws]
    within = [pstdev(map(scale, draw.likely)) if draw.likely else 0.0 for draw in draws]
    return sqrt((variance(values) + fmean(each**2 for each in within)) / len(draws))


def _reach(trials: int, error: float) -> float:
    """Return how far Student's interval reaches on the scale of logarithms; at most to a million times the value."""
    return min(STUDENT[trials - 1] * error, log(1e6))


def _positive(draws: Sequence[Draw]) -> bool:
    return all(value > 0 for draw in draws for value in (draw.value, *draw.likely))


def _medians(draws: Sequence[Draw], seed: int = 0) -> Times:
    """Return the medians of many resamples (Efron 1979): of trials, and in each trial of one of its likely values."""
    most = max(len(draw.likely) for draw in draws) or 1
    values = np.array([draw.likely or [draw.value] * most for draw in draws], dtype=np.float64)
    drawn = values.ravel()[_places(len(draws), most, seed)]
    middle = (len(draws) - 1) // 2, len(draws) // 2
    drawn.partition(middle, axis=1)  # np.median takes four times as long
    return np.asarray(drawn[:, middle].mean(axis=1))


@lru_cache(maxsize=8)
def _places(trials: int, most: int, seed: int) -> Places:
    """Return resamples as places in a flat table of ``trials`` rows with ``most`` values each."""
    chance = np.random.default_rng(seed)
    drawn = chance.integers(trials, size=(_RESAMPLES, trials))
    return drawn * most + chance.integers(most, size=drawn.shape)


def _ends(resampled: Times) -> Interval:
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)

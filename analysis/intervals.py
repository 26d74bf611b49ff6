"""How sure a median over trials is: bootstrap intervals with the trial as the unit.

Which connection meets which worker is drawn once per start, so the requests of one trial are not independent of each
other; its statistics are. Percentile bootstrap (Efron 1979): with five trials or fewer it is the range of what was
measured, which holds the true median in 1 - 2 / 2^n of all cases.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.95
NOMINAL_FROM = 5
"""Trials from which on the interval holds the true median about as often as its name says."""
_RESAMPLES = 9999

Interval = tuple[float, float]


def coverage(trials: int) -> float:
    """Return how often the range of ``trials`` independent values holds the median that they were drawn from."""
    return float(1 - 2 * 0.5**trials)


def of_medians(rows: Sequence[Sequence[float]]) -> list[Interval]:
    """Return the interval of each row's median; all rows have a value from each of the same two or more trials."""
    result = _bootstrap((np.asarray(rows),), np.median)
    return list(zip(result.low.tolist(), result.high.tolist(), strict=True))


def of_ratio(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the interval of the ratio of two medians, each over two or more trials; ``others`` are not zero."""
    result = _bootstrap((np.asarray(values), np.asarray(others)), _ratio_of_medians)
    return float(result.low), float(result.high)


def of_difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the interval of the difference of two medians, each over two or more trials."""
    result = _bootstrap((np.asarray(values), np.asarray(others)), _difference_of_medians)
    return float(result.low), float(result.high)


def _ratio_of_medians(values: Any, others: Any, axis: int) -> Any:  # noqa: ANN401  # arrays of any shape
    return np.median(values, axis=axis) / np.median(others, axis=axis)


def _difference_of_medians(values: Any, others: Any, axis: int) -> Any:  # noqa: ANN401  # arrays of any shape
    return np.median(values, axis=axis) - np.median(others, axis=axis)


def _bootstrap(samples: tuple[Any, ...], statistic: Any) -> Any:  # noqa: ANN401  # as scipy takes them
    """Resample trials; the same samples give the same interval every time."""
    from scipy import stats  # noqa: PLC0415  # loading it takes as long as deriving a small run, which may have no interval

    done = stats.bootstrap(
        samples,
        statistic,
        n_resamples=_RESAMPLES,
        vectorized=True,
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return done.confidence_interval

"""How precise a median over trials is: bootstrap intervals with the trial as the unit.

Chance decides after every start of the servers which worker gets which connection. So the requests of one trial depend
on each other, but the statistics of different trials do not. With the percentile bootstrap (Efron 1979) and up to five
trials, the interval is the range of the measured values, which contains the true median in 1 - 2 / 2^n of all cases.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.95
NOMINAL_FROM = 5
"""The number of trials from which on the interval contains the true median in about 95 % of all cases."""
_RESAMPLES = 9999

Interval = tuple[float, float]


def coverage(trials: int) -> float:
    """Return how often, as a share, the range of ``trials`` independent values contains the true median."""
    return float(1 - 2 * 0.5**trials)


def of_medians(rows: Sequence[Sequence[float]]) -> list[Interval]:
    """Return the interval of each row's median; all rows have one value for each of the same two or more trials."""
    result = _bootstrap((np.asarray(rows),), np.median)
    return list(zip(result.low.tolist(), result.high.tolist(), strict=True))


def of_ratio(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the interval of the ratio of two medians, each over two or more trials; no value of ``others`` is zero."""
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
    """Resample trials. The same samples always give the same interval."""
    from scipy import stats  # noqa: PLC0415  # SciPy loads slowly, and a small run may need no interval

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

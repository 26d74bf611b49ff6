"""Values that a statistic of one trial could have had about as likely, had other requests fallen into the trial."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

CONFIDENCE = 0.95
BLOCKS = 10
"""Into how many blocks of equal length a trial is divided, to see how much its requests depend on each other."""
_STUDENT = 2.262
"""Student's t at 97.5 % with nine degrees of freedom: one fewer than there are blocks."""
_PLACES = 21
_DEVIATIONS = np.array([NormalDist().inv_cdf((place + 0.5) / _PLACES) for place in range(_PLACES)]) * (
    _STUDENT / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
)
"""Deviations in standard errors that are about equally likely; 95 % lie between the first and the last."""

Times = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.intp]]


def blocks(sent_s: Times) -> Places:
    """Return for each request in which block of time it was sent, from 0 to BLOCKS - 1."""
    if not sent_s.size:
        return sent_s.astype(np.intp)
    first, last = float(sent_s.min()), float(sent_s.max())
    return np.minimum(((sent_s - first) / max(last - first, 1e-9) * BLOCKS).astype(np.intp), BLOCKS - 1)


def likely_percentiles(values: Times, block: Places, levels: Sequence[float]) -> list[tuple[float, ...]]:
    """Return the likely values of each percentile of one trial; ``levels`` lie between 0 and 1.

    The share of requests below a percentile, to which a request at the percentile counts half, varies from block to
    block. The standard error of this share, carried over
    to the values (Woodruff 1952), allows for requests that depend on each other for less than a block.
    """
    if not (values.size and levels):
        return []
    ordered = np.sort(values)
    ends = np.quantile(ordered, levels).tolist()
    errors = [_error((values < at) + 0.5 * (values == at), block) for at in ends]
    places = np.clip(np.array(levels)[:, None] + np.outer(errors, _DEVIATIONS), 0, 1)
    return [*map(tuple, np.quantile(ordered, places).tolist())]


def likely_share(counted: np.ndarray[Any, np.dtype[np.bool_]], block: Places) -> tuple[float, ...]:
    """Return the likely values of the share of requests that were counted in one trial."""
    if not counted.size:
        return ()
    return tuple(np.clip(counted.mean() + _error(counted.astype(np.float64), block) * _DEVIATIONS, 0, 1).tolist())


def _error(counted: Times, block: Places) -> float:
    """Return the standard error of a share, from how much the share differs between blocks of time."""
    in_block = np.bincount(block, minlength=BLOCKS)
    beyond = np.bincount(block, weights=counted, minlength=BLOCKS) - counted.mean() * in_block
    return float(np.sqrt(BLOCKS / (BLOCKS - 1) * (beyond**2).sum()) / counted.size)

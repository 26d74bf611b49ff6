"""Percentiles of the requests of all trials together, where single trials have too few requests for them.

Requests of one trial depend on each other, so the interval resamples whole trials (Davison and Hinkley 1997, *Bootstrap
Methods and their Application*, 3.8; Field and Welsh 2007, *Bootstrapping clustered data*). The ends of the resamples
would lie too near to each other if there are few trials: a bootstrap of few trials has too small a variance, and no
resample reaches beyond what was measured. So the resamples give only the standard error, on the scale of logarithms,
and Student's t gives the interval. docs/explain/measures.md shows how often it holds the true value.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log, sqrt

import numpy as np

from stampede.evaluate.metrics import METRICS
from stampede.evaluate.metrics.likely import CONFIDENCE, Places, Times
from stampede.evaluate.metrics.metric import Sample, percentile, rows_needed
from stampede.evaluate.statistics.compare import student
from stampede.evaluate.statistics.estimates import Cells
from stampede.evaluate.statistics.stopping import ENOUGH, Interval
from stampede.records.claims import Quantity
from stampede.records.summary import Estimate

_RESAMPLES = 1999


def pool_cells(cells: Cells) -> dict[Quantity, Estimate]:
    """Return the percentiles for which a single trial of a cell is too small, and all its trials together are not.

    Fewer than ENOUGH trials are not pooled, because they do not show how far trials differ. Neither is a small trial
    beside one whose times were not kept, because it has ten times as many.
    """
    found: dict[Quantity, Estimate] = {}
    for (variant, load, request_class), trials in cells.items():
        for metric in {name: None for each in trials for name in each.samples} if len(trials) >= ENOUGH else ():
            counts = [each.carrying(metric) for each in trials]
            kept = [each.samples.get(metric, Sample(np.empty(0), 0)) for each in trials]
            samples = [sample for sample in kept if sample]
            if len(samples) < len(trials):
                continue
            together = Sample(np.concatenate([each.times_ms for each in samples]), sum(each.made for each in samples))
            for stat in METRICS[metric].units:
                q = percentile(stat)
                if q is not None and min(counts) < rows_needed(stat) <= sum(counts) and together.carries(stat):
                    measured, (low, high) = pooled_percentile([each.times_ms for each in samples], q / 100)
                    of = Quantity(variant=variant, load=load, request_class=request_class, metric=metric, stat=stat)
                    found[of] = Estimate(
                        **dict(of), unit="ms", published=None, predicted=None, measured=measured, low=low, high=high,
                        n=together.times_ms.size, trials=len(samples), pooled=True,
                    )  # fmt: skip
    return found


def pooled_percentile(times_ms: Sequence[Times], level: float) -> tuple[float, Interval]:
    """Return a percentile of the times of two or more trials together, and its interval; ``level`` is from 0 to 1.

    Six digits of the ends: the last bits of logarithms differ between processors, and a run is verified on any machine.
    """
    together = np.concatenate(times_ms)
    value = float(np.quantile(together, level))
    resampled, counts = _percentiles_of_resamples(times_ms, level)
    use_logs = value > 0 and resampled.min() > 0
    values = np.log(resampled) if use_logs else resampled
    mean = np.average(values, weights=counts)
    error = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    reach = student(CONFIDENCE, len(times_ms) - 1) * sqrt(len(times_ms) / (len(times_ms) - 1)) * error
    if use_logs:
        factor = exp(min(reach, log(1e6)))
        low, high = value / factor, value * factor
    else:
        low, high = value - reach, value + reach
        low = low if together.min() < 0 else max(low, 0.0)
    return value, (float(f"{low:.6g}"), float(f"{high:.6g}"))


def _percentiles_of_resamples(times_ms: Sequence[Times], level: float) -> tuple[Times, Places]:
    """Return the percentile of each resample of whole trials that has any times, and how many resamples are the same.

    A resample has each time as often as its trial, so sums of these counts tell which times stand beside it.
    """
    drawn, counts = _resamples(len(times_ms))
    lengths = [*map(len, times_ms)]
    together = np.concatenate(times_ms)
    order = np.argsort(together, kind="stable")
    together, trial = together[order], np.repeat(np.arange(len(times_ms)), lengths)[order]
    sizes = drawn @ np.array(lengths)
    drawn, counts, sizes = drawn[sizes > 0], counts[sizes > 0], sizes[sizes > 0]
    places = (sizes - 1) * level
    below = np.floor(places).astype(np.int64)
    beside = np.stack([below, np.minimum(below + 1, sizes - 1)], axis=1)
    found = [np.cumsum(row[trial]).searchsorted(pair, side="right") for row, pair in zip(drawn, beside, strict=True)]
    low, high = together[np.array(found)].T
    part, apart = places - below, high - low
    return np.where(part >= 0.5, high - apart * (1 - part), low + apart * part), counts


@lru_cache(maxsize=8)
def _resamples(trials: int) -> tuple[Places, Places]:
    """Return how many times each resample has each trial, and how many resamples are the same."""
    drawn = np.random.default_rng(0).multinomial(trials, [1 / trials] * trials, size=_RESAMPLES)
    different, counts = np.unique(drawn, axis=0, return_counts=True)
    return different, counts

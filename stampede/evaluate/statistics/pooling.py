"""Percentiles of the requests of all trials together, where single trials have too few requests for them.

Requests of one trial depend on each other, so the interval resamples whole trials (Davison and Hinkley 1997, *Bootstrap
Methods and their Application*, 3.8; Field and Welsh 2007, *Bootstrapping clustered data*). The ends of the resamples
would lie too near to each other if there are few trials: a bootstrap of few trials has too small a variance, and no
resample reaches beyond what was measured. So the resamples give only the standard error, on the scale of logarithms,
and Student's t gives the interval. docs/explain/measures.md shows how often it holds the true value.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import exp, log, sqrt

import duckdb
import numpy as np

from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.metrics.likely import CONFIDENCE, Places, Times
from stampede.evaluate.metrics.metric import failures_allowed, percentile, rows_needed
from stampede.evaluate.read.trial_data import TrialData
from stampede.evaluate.statistics.compare import student
from stampede.evaluate.statistics.estimates import Cells
from stampede.evaluate.statistics.stopping import ENOUGH, Interval
from stampede.records.claims import Quantity
from stampede.records.summary import Estimate

_RESAMPLES = 1999


def pool_cells(
    database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData], cells: Cells
) -> dict[Quantity, Estimate]:
    """Return the percentiles for which a single trial of a cell is too small, and all its trials together are not.

    Fewer than ENOUGH trials are not pooled, because they do not show how far trials differ.
    """
    found: dict[Quantity, Estimate] = {}
    by_key = {trial.key: trial for trial in trials}
    for (variant, load, request_class), values in cells.items():
        for family in FAMILIES if len(values) >= ENOUGH else ():
            lacking = [
                Quantity(variant=variant, load=load, request_class=request_class, metric=metric.name, stat=stat)
                for metric in family.metrics
                if metric.is_of_times
                for counts in [[trial.carrying(metric.name) for trial in values]]
                for stat in metric.units
                if percentile(stat) is not None and min(counts) < rows_needed(stat) <= sum(counts)
            ]
            if not lacking:
                continue
            of_cell = [by_key[variant, load, each.trial] for each in values]
            every = [family.sample(database, trial, request_class) for trial in of_cell]
            samples = [sample for sample in every if sample is not None]
            made = sum(sample.made for sample in samples)
            for of in lacking:
                times_ms = [sample.times_ms[of.metric] for sample in samples if of.metric in sample.times_ms]
                answered, q = sum(map(len, times_ms)), percentile(of.stat)
                if times_ms and q is not None and 1 - answered / made < failures_allowed(of.stat):
                    measured, (low, high) = pooled_percentile(times_ms, q / 100)
                    found[of] = Estimate(
                        **dict(of), unit="ms", published=None, predicted=None, measured=measured, low=low, high=high,
                        n=answered, trials=len(times_ms), pooled=True,
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

"""Percentiles of the requests of all trials together, where single trials have too few requests for them.

Requests of one trial depend on each other, so the interval resamples whole trials (Davison and Hinkley 1997, *Bootstrap
Methods and their Application*, 3.8; Field and Welsh 2007, *Bootstrapping clustered data*). The ends of the resamples
would lie too near to each other if there are few trials: a bootstrap of few trials has too small a variance, and no
resample reaches beyond what was measured. So the resamples give only the standard error, on the scale of logarithms,
and Student's t gives the interval. docs/explain/measures.md shows how often it holds the true value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, log, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stampede.evaluate.metrics import FAMILIES
from stampede.evaluate.metrics.likely import CONFIDENCE, Places, Times
from stampede.evaluate.metrics.metric import failures_allowed, percentile, rows_needed
from stampede.evaluate.metrics.simulated import Cell
from stampede.evaluate.statistics.compare import student
from stampede.evaluate.statistics.stopping import ENOUGH

if TYPE_CHECKING:
    import duckdb

    from stampede.evaluate.metrics.metric import Family, Metric, Sample
    from stampede.evaluate.read.trial_data import TrialData
    from stampede.evaluate.statistics.results import Cells, TrialValues

_RESAMPLES = 1999


class Pooled(NamedTuple):
    """A percentile of the times of several trials together, with its interval, in ms: these keys of a ``Row``.

    ``n`` is how many times there are, in so many ``trials``.
    """

    measured: float
    low: float
    high: float
    n: int
    trials: int


Pools = Mapping[tuple[Cell, str, str], Pooled]
"""Pooled percentiles by cell, metric and statistic."""


def pool_cells(database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData], cells: Cells) -> Pools:
    """Return the percentiles for which a single trial of a cell is too small, and all its trials together are not.

    The rules for a single trial hold for all trials together: enough requests, and not too many that failed. Fewer
    than ENOUGH trials are not pooled, because they do not show how far trials differ.
    """
    found: dict[tuple[Cell, str, str], Pooled] = {}
    by_key = {trial.key: trial for trial in trials}
    for cell, values in cells.items():
        variant, load, request_class = cell
        for family in FAMILIES if len(values) >= ENOUGH else ():
            if any(_statistics_to_pool(metric, values) for metric in family.metrics):
                of_cell = [by_key[variant, load, each.trial] for each in values]
                samples = [family.sample(database, trial, request_class) for trial in of_cell]
                known = [sample for sample in samples if sample is not None]
                found |= {(cell, *key): pooled for key, pooled in _pooled(family, values, known).items()}
    return found


def _statistics_to_pool(metric: Metric, values: Sequence[TrialValues]) -> list[str]:
    """Return the percentiles for which a single trial has too few requests, or visits, and all together have enough."""
    if not metric.is_of_times:
        return []
    counts = [trial.carrying(metric.name) for trial in values]
    of_percentile = (stat for stat in metric.units if percentile(stat) is not None)
    return [stat for stat in of_percentile if min(counts) < rows_needed(stat) <= sum(counts)]


def _pooled(family: Family, values: Sequence[TrialValues], samples: Sequence[Sample]) -> dict[tuple[str, str], Pooled]:
    found = {}
    made = sum(sample.made for sample in samples)
    for metric in family.metrics:
        times_ms = [sample.times_ms[metric.name] for sample in samples if metric.name in sample.times_ms]
        for stat in _statistics_to_pool(metric, values) if times_ms else ():
            q = percentile(stat)
            if q is not None and 1 - sum(map(len, times_ms)) / made < failures_allowed(stat):
                found[metric.name, stat] = pooled_percentile(times_ms, q / 100)
    return found


def pooled_percentile(times_ms: Sequence[Times], level: float) -> Pooled:
    """Return a percentile of the times of two or more trials together; ``level`` lies between 0 and 1.

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
    return Pooled(value, float(f"{low:.6g}"), float(f"{high:.6g}"), together.size, len(times_ms))


def _percentiles_of_resamples(times_ms: Sequence[Times], level: float) -> tuple[Times, Places]:
    """Return the percentile of each resample of whole trials that has any times, and how many resamples are the same.

    The times are sorted once. A resample has each time as often as its trial; so sums of these counts tell which times
    stand beside the percentile, between which this interpolates as ``np.quantile`` does.
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

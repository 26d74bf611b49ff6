"""How long requests took, and how much of this time was overhead."""

from collections.abc import Iterator

import duckdb
import numpy as np

from stampede.evaluate.metrics import OVERHEAD, RESPONSE_TIME
from stampede.evaluate.metrics.likely import Times, blocks, likely_percentiles
from stampede.evaluate.metrics.metric import (
    TIME_STATISTICS,
    Family,
    Likely,
    MetricValues,
    Sample,
    Stats,
    is_printed,
    percentile,
)
from stampede.evaluate.read.requests import Requests, read_requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord


def time_statistics(times_ms: Times, made: int, failed: int) -> dict[str, float]:
    """Return the statistics of the times of requests or visits, of which so many were made and failed.

    Percentiles are interpolated. Leave out statistics that ``rows_needed`` or ``failures_allowed`` rule out.
    """
    times_ms = np.ma.compressed(times_ms)  # without times that nobody knows
    there = [stat for stat in TIME_STATISTICS if times_ms.size and is_printed(stat, made, failed)]
    levels = {stat: q / 100 for stat in there if (q := percentile(stat)) is not None}
    found = dict(zip(levels, np.quantile(times_ms, [*levels.values()]).tolist() if levels else (), strict=True))
    if there:
        found |= {"min": float(times_ms.min()), "max": float(times_ms.max()), "avg": float(times_ms.mean())}
    if "stdev" in there:
        found["stdev"] = float(times_ms.std(ddof=1))
    return {stat: found[stat] for stat in there}


def _measure(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield the times of each class, and likely values of their measured percentiles.

    The requests of a burst are sent at one moment, so blocks of time say nothing about how they depend on each other.
    """
    in_blocks = not (requests.simulated or load.burst)
    for request_class, mine in requests.each_class():
        answered = mine & requests.answered
        made, stats, likely = int(mine.sum()), Stats(), Likely()
        block = blocks(requests.sent_us[answered] / 1e6) if in_blocks else None
        for metric, column in ((OVERHEAD, requests.overhead_ms), (RESPONSE_TIME, requests.duration_ms)):
            times_ms = column[answered]
            found = time_statistics(times_ms, made, made - times_ms.size)
            stats |= metric.keyed(found)
            if block is not None:
                levels = {stat: q / 100 for stat in found if (q := percentile(stat)) is not None}
                values = likely_percentiles(times_ms, block, [*levels.values()])
                likely |= {(metric.name, stat): of_stat for stat, of_stat in zip(levels, values, strict=True)}
        yield MetricValues(request_class, stats, likely=likely)


def _sample(database: duckdb.DuckDBPyConnection, trial: TrialData, request_class: str | None) -> Sample:
    requests = read_requests(database, trial.key)
    mine = dict(requests.each_class())[request_class]
    answered = mine & requests.answered
    times_ms = {OVERHEAD.name: requests.overhead_ms[answered], RESPONSE_TIME.name: requests.duration_ms[answered]}
    return Sample(times_ms, int(mine.sum()))


FAMILY = Family((OVERHEAD, RESPONSE_TIME), _measure, sample=_sample)

"""How long requests took, and how much of this time was overhead."""

from collections.abc import Iterator

import duckdb
import numpy as np

from stampede.evaluate.metrics import OVERHEAD, RESPONSE_TIME
from stampede.evaluate.metrics.likely import Times, blocks, likely_percentiles
from stampede.evaluate.metrics.metric import TIME_STATISTICS, Family, MetricValues, Sample, is_printed, percentile
from stampede.evaluate.metrics.simulated import SimulatedTrial
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.trial_data import TrialData

Columns = dict[str, Times]
_COLUMNS = ((OVERHEAD, "overhead_ms"), (RESPONSE_TIME, "duration_ms"))


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


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    """Yield the times of each class, and likely values of their percentiles.

    The requests of a burst are sent at one moment, so blocks of time say nothing about how they depend on each other.
    """
    columns = _columns(database, trial)
    for request_class in trial.requests.names:
        count, mine = trial.requests.of_class(request_class), _of_class(columns, trial, request_class)
        block = blocks(mine["sent_s"])
        stats: dict[tuple[str, str], float] = {}
        likely: dict[tuple[str, str], tuple[float, ...]] = {}
        for metric, column in _COLUMNS:
            found = time_statistics(mine[column], count.sent, count.failed)
            stats |= metric.keyed(found)
            levels = {stat: q / 100 for stat in found if (q := percentile(stat)) is not None and not trial.load.burst}
            values = likely_percentiles(mine[column], block, [*levels.values()])
            likely |= {(metric.name, stat): of_stat for stat, of_stat in zip(levels, values, strict=True)}
        yield MetricValues(request_class, stats, likely=likely)


def _sample(database: duckdb.DuckDBPyConnection, trial: TrialData, request_class: str | None) -> Sample:
    columns = _of_class(_columns(database, trial), trial, request_class)
    times_ms = {metric.name: columns[column] for metric, column in _COLUMNS}
    return Sample(times_ms, trial.requests.of_class(request_class).sent)


def _columns(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Columns:
    """Return when the answered requests of a trial were sent, their times, and the place of their class."""
    query = f"""
        SELECT epoch(sent) AS sent_s, {", ".join(column for _, column in _COLUMNS)},
            list_position($names::VARCHAR[], request_class) - 1 AS place
        FROM requests WHERE {OF_TRIAL} AND error IS NULL
    """  # noqa: S608  # made of constants
    columns: Columns = database.execute(query, of_trial(trial.key) | {"names": trial.requests.names[:-1]}).fetchnumpy()
    return columns


def _of_class(columns: Columns, trial: TrialData, request_class: str | None) -> Columns:
    if request_class is None:
        return columns
    mine = columns["place"] == trial.requests.names.index(request_class)
    return {name: column[mine] for name, column in columns.items()}


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    durations_ms = 1000 * (trial.rows.ended - trial.rows.sent)
    overheads_ms = durations_ms - 1000 * trial.rows.asked
    for request_class, mine in trial.each_class():
        answered = mine & trial.answered
        counts = int(mine.sum()), int((mine & ~trial.answered).sum())
        stats = OVERHEAD.keyed(time_statistics(overheads_ms[answered], *counts))
        yield MetricValues(request_class, stats | RESPONSE_TIME.keyed(time_statistics(durations_ms[answered], *counts)))


FAMILY = Family((OVERHEAD, RESPONSE_TIME), _measure, measure_simulated=_measure_simulated, sample=_sample)

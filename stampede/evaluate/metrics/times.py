"""How long requests took, and how much of this time was overhead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stampede.evaluate.metrics.metric import (
    TIMES,
    Family,
    Likely,
    Metric,
    MetricValues,
    Sample,
    Stats,
    aggregate_times,
    by_statistic,
    is_printed,
    percentile,
)
from stampede.evaluate.read import OF_TRIAL, of_trial

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import numpy.typing as npt

    from stampede.evaluate.metrics.simulated import SimulatedTrial
    from stampede.evaluate.read.trial_data import TrialData

    Columns = dict[str, npt.NDArray[np.float64]]

OVERHEAD = Metric("overhead", TIMES, "response time minus service time of each answered request", shown="always")
RESPONSE_TIME = Metric("response_time", TIMES, "k6's `http_req_duration` of each answered request")
_COLUMNS = ((OVERHEAD, "overhead_ms"), (RESPONSE_TIME, "duration_ms"))


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    """Yield the times of each class. Leave out statistics that ``rows_needed`` or ``failures_allowed`` rule out."""
    columns = {} if trial.load.burst else _columns(database, trial)
    for request_class, *lists in database.execute(_STATISTICS, of_trial(trial.key)).fetchall():
        count = trial.requests.of_class(request_class)
        stats = {
            (metric.name, stat): time_ms
            for (metric, _), times_ms in zip(_COLUMNS, lists, strict=True)
            for stat, time_ms in by_statistic(times_ms).items()
            if is_printed(stat, count.sent, count.failed)
        }
        yield MetricValues(
            request_class, stats, likely=_likely(_of_class(columns, trial, request_class), stats) if columns else {}
        )


_STATISTICS = f"""
SELECT request_class, {", ".join(aggregate_times(column) for _, column in _COLUMNS)}
FROM requests WHERE {OF_TRIAL} AND error IS NULL GROUP BY GROUPING SETS ((request_class), ())
"""  # noqa: S608  # made of constants


def _likely(columns: Columns, stats: Stats) -> Likely:
    """Return the likely values of the percentiles among ``stats``, of one class of request.

    The requests of a burst are sent at one moment, so blocks of time say nothing about how they depend on each other.
    """
    from stampede.evaluate.metrics.likely import blocks, likely_percentiles  # noqa: PLC0415  # loads NumPy, which would double the time of short commands

    block = blocks(columns["sent_s"])
    likely: Likely = {}
    for metric, column in _COLUMNS:
        levels = {stat: q / 100 for name, stat in stats if name == metric.name and (q := percentile(stat)) is not None}
        found = likely_percentiles(columns[column], block, [*levels.values()])
        likely |= {(metric.name, stat): values for stat, values in zip(levels, found, strict=True)}
    return likely


def _sample(database: duckdb.DuckDBPyConnection, trial: TrialData, request_class: str | None) -> Sample:
    """Return the times of the answered requests of a class."""
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
    """Yield the times of each class of a simulated trial, by the same rules as ``measure``."""
    import numpy as np  # noqa: PLC0415  # would double the time of short commands

    durations_ms = 1000 * (trial.ended_s - trial.sent_s)
    overheads_ms = durations_ms - 1000 * trial.asked_s
    for request_class, mine in trial.each_class():
        answered = mine & trial.answered
        made, failed = int(mine.sum()), int((mine & ~trial.answered).sum())
        stats: Stats = {}
        for metric, times_ms in ((OVERHEAD, overheads_ms[answered]), (RESPONSE_TIME, durations_ms[answered])):
            there = [stat for stat in metric.units if made and is_printed(stat, made, failed)]
            levels = [q / 100 for stat in there if (q := percentile(stat)) is not None]
            percentiles = iter(np.quantile(times_ms, levels).tolist() if levels else [])
            for stat in there:
                stats[metric.name, stat] = (
                    next(percentiles) if percentile(stat) is not None else _of_all(stat, times_ms)
                )
        yield MetricValues(request_class, stats)


def _of_all(stat: str, times_ms: npt.NDArray[np.float64]) -> float:
    match stat:
        case "min":
            return float(times_ms.min())
        case "max":
            return float(times_ms.max())
        case "avg":
            return float(times_ms.mean())
    return float(times_ms.std(ddof=1))


FAMILY = Family((OVERHEAD, RESPONSE_TIME), _measure, measure_simulated=_measure_simulated, sample=_sample)

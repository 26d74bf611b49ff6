"""Everything that is measured: one module a family, each of which declares its metrics and computes them.

To add a metric, declare it in the module of its family, or in a new module whose FAMILY is added here. Tables, units,
the schema of experiment files and docs/method.md follow.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from analysis.metrics import (
    beside_free_thread,
    bursts,
    failures,
    servers,
    spread,
    throughput,
    times,
    visits,
)
from analysis.metrics.metric import (
    PRINTED,
    TIME_STATISTICS,
    Metric,
    aggregate,
    failures_allowed,
    percentile,
    rows_needed,
)
from analysis.nearest import nearest_first

__all__ = [
    "COUNTED", "FAMILIES", "METRICS", "OF_ALL_REQUESTS", "PRINTED", "STATISTICS", "TIME_STATISTICS", "Metric",
    "MetricName", "Statistic", "aggregate", "failures_allowed", "percentile", "rows_needed", "statistics_of", "table",
    "unit",
]  # fmt: skip

FAMILIES = (
    times.FAMILY,
    throughput.FAMILY,
    spread.FAMILY,
    servers.FAMILY,
    failures.FAMILY,
    beside_free_thread.FAMILY,
    bursts.FAMILY,
    visits.FAMILY,
)
"""The families in the order of tables."""

METRICS = {metric.name: metric for family in FAMILIES for metric in family.metrics}
STATISTICS = {name: tuple(metric.units) for name, metric in METRICS.items()}
OF_ALL_REQUESTS = tuple(name for name, metric in METRICS.items() if metric.of_all)
"""The metrics of a trial as a whole, which classes of request have none of."""
COUNTED = frozenset(
    unit
    for metric in METRICS.values()
    for stat, unit in metric.units.items()
    if stat == "count" or (stat == "max" and unit != "ms")
)
"""The units of what is counted, in whole numbers."""


def unit(metric: str, stat: str) -> str:
    """Return the unit of a statistic."""
    return METRICS[metric].units[stat]


def statistics_of(request: str | None) -> Iterator[tuple[str, str]]:
    """Yield every metric and statistic that one class of request can have; None: all classes together."""
    for metric in METRICS.values():
        if request is None or not metric.of_all:
            for stat in metric.units:
                yield metric.name, stat


def table() -> str:
    """Return the table of metrics for docs/method.md, in Markdown."""
    lines = ["| metric | statistics | of | how it is counted |", "| --- | --- | --- | --- |"]
    for metric in METRICS.values():
        of = "a trial" if metric.of_all else "a class of request, and all"
        lines.append(f"| `{metric.name}` | {_statistics(metric)} | {of} | {metric.counted} |")
    return "".join(f"{line}\n" for line in lines)


def _statistics(metric: Metric) -> str:
    """Return the statistics of a metric with their units, statistics of the same unit together."""
    if tuple(metric.units) == TIME_STATISTICS:
        return "percentiles, `min`, `avg`, `stdev`, `max` (ms)"
    by_unit: dict[str, list[str]] = {}
    for stat, of_unit in metric.units.items():
        by_unit.setdefault(of_unit, []).append(f"`{stat}`")
    return ", ".join(
        f"{', '.join(stats)} ({of_unit})" if [of_unit] != [stat.strip("`") for stat in stats] else stats[0]
        for of_unit, stats in by_unit.items()
    )


def _known_metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"there is no metric {name}; there are {nearest_first(name, METRICS)}")
    return name


_STATISTICS = list(dict.fromkeys(stat for metric in METRICS.values() for stat in metric.units))


def _known_statistic(name: str) -> str:
    if name not in _STATISTICS:
        raise ValueError(f"there is no stat {name}; there are {nearest_first(name, _STATISTICS)}")
    return name


MetricName = Annotated[str, AfterValidator(_known_metric), Field(json_schema_extra={"enum": [*METRICS]})]
Statistic = Annotated[str, AfterValidator(_known_statistic), Field(json_schema_extra={"enum": [*_STATISTICS]})]

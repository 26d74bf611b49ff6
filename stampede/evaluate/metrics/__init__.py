"""All metrics by name. To add a metric, declare it in ``declared``, and compute it in a family (``families``)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from stampede.evaluate.metrics.declared import METRICS
from stampede.records.nearest import nearest_first

STATISTICS = {name: tuple(metric.units) for name, metric in METRICS.items()}
OF_ALL_REQUESTS = tuple(name for name, metric in METRICS.items() if metric.of_all)
"""The metrics that exist for a trial as a whole, but not for each class of request."""
WHOLE_UNITS = frozenset(
    unit
    for metric in METRICS.values()
    for stat, unit in metric.units.items()
    if stat == "count" or (stat == "max" and unit != "ms")
)
"""The units of counts, whose values are whole numbers."""


def unit(metric: str, stat: str) -> str:
    """Return the unit of a statistic."""
    return METRICS[metric].units[stat]


def statistics_of(request_class: str | None) -> Iterator[tuple[str, str]]:
    """Yield every metric and statistic that a class of request can have; None: all classes together."""
    for metric in METRICS.values():
        if request_class is None or not metric.of_all:
            for stat in metric.units:
                yield metric.name, stat


_STATISTICS = dict.fromkeys(stat for metric in METRICS.values() for stat in metric.units)


def _known(what: str, known: Iterable[str]) -> Callable[[str], str]:
    """Return a validator of names."""

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"there is no {what} {name}; there are {nearest_first(name, [*known])}")
        return name

    return check


MetricName = Annotated[str, AfterValidator(_known("metric", METRICS)), Field(json_schema_extra={"enum": [*METRICS]})]
Statistic = Annotated[
    str, AfterValidator(_known("stat", _STATISTICS)), Field(json_schema_extra={"enum": [*_STATISTICS]})
]

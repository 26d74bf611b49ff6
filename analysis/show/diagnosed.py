"""What is shown of the ways in which somebody's own service was served."""

from collections.abc import Iterator

from analysis.diagnosis import Figures
from analysis.record import TODAY, Run, VariantRecord
from analysis.result import Summary
from analysis.show.grids import TextGrid
from analysis.show.words import number, percent
from analysis.ways import says

ENOUGH = 3
"""From so many trials on, the interval of a median is shown; of fewer, the least and the most of the trials."""
_CLASSES = 2
"""How many classes of requests one table has, so that it fits a terminal."""


def tried_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield what requests lose with each way to serve; nothing if only one way was measured."""
    if summary.diagnosis is None or len(run.variants) < 2:
        return
    figures = Figures(summary)
    names = [variant.name for variant in run.variants]
    statistics = [(one, stat) for one in figures.classes(TODAY) if (stat := figures.statistic(one, names))]
    beside = {one: figures.value(one, None, "beside_free_thread", "share") for one in names}
    known = any(share is not None for share in beside.values())  # event loops have no threads that could be free
    yield TextGrid(
        "Ways to serve, workers x threads",
        ("way", "w x t", *(("beside",) if known else ()), "MiB"),
        [(says(one.name), _size(one), *((_share(beside[one.name]),) if known else ()),
          number(figures.value(one.name, None, "memory", "total"))) for one in run.variants],
    )  # fmt: skip
    what = "Response time" if figures.waits_within_work else "Lost outside the application"
    intervals = "95 % interval" if run.trials >= ENOUGH else "least and most of the trials"
    for start in range(0, len(statistics), _CLASSES):
        part = statistics[start : start + _CLASSES]
        yield TextGrid(
            f"{what}, in ms ({intervals})",
            ("way", *(f"{request} {stat}" for request, stat in part)),
            [(says(name), *(_lost(figures, name, *of) for of in part)) for name in names],
        )


def _size(variant: VariantRecord) -> str:
    threads = variant.settings.get("threads")
    return f"{variant.workers} x {threads}" if threads else str(variant.workers)


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _lost(figures: Figures, name: str, request: str, stat: str) -> str:
    lost = figures.lost(name, request, stat)
    if lost is None:
        return "–"
    few = len(lost.values) < ENOUGH  # the interval of so few trials has no meaning for a reader
    low, high = (min(lost.values), max(lost.values)) if few else (lost.low, lost.high)
    return f"{number(lost.ms)} ({number(low)} to {number(high)})"

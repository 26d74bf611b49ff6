"""What is shown of the ways in which somebody's own service was served."""

from collections.abc import Iterator

from analysis.diagnosis import TODAY, Figures
from analysis.record import Run, VariantRecord
from analysis.result import Summary
from analysis.show.grids import TextGrid
from analysis.show.words import number, percent
from analysis.ways import says

_CLASSES = 2
"""How many classes of requests one table has, so that it fits a terminal."""


def tried_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield what requests lose with each way to serve; nothing if only one way was measured."""
    if summary.diagnosis is None or len(run.variants) < 2:
        return
    figures = Figures(summary)
    names = [variant.name for variant in run.variants]
    statistics = [(one, stat) for one in figures.classes(TODAY) if (stat := figures.statistic(one, names))]
    yield TextGrid(
        "Ways to serve, workers x threads",
        ("way", "w x t", "beside", "MiB"),
        [(says(variant.name), _size(variant),
          _share(figures.value(variant.name, None, "beside_free_thread", "share")),
          number(figures.value(variant.name, None, "memory", "total"))) for variant in run.variants],
    )  # fmt: skip
    for start in range(0, len(statistics), _CLASSES):
        part = statistics[start : start + _CLASSES]
        yield TextGrid(
            "Lost outside the application, in ms (95 % interval)",
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
    return f"{number(lost.ms)} ({number(lost.low)} to {number(lost.high)})" if lost else "–"

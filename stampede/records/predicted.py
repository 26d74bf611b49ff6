"""predicted.json: what theory predicts of a run."""

from functools import cached_property

from pydantic import Field

from stampede.records.model import Model
from stampede.records.run import THEORY
from stampede.records.summary import NotPredicted


class PredictedFigure(Model):
    """One statistic of a variant under a load; ``request_class`` None: of all classes together.

    In 95 of 100 simulated runs, the median of the run's trials lies between ``low`` and ``high``.
    """

    request_class: str | None
    metric: str
    stat: str
    median: float
    low: float
    high: float


class PredictedCell(Model):
    """What theory predicts of a variant under a load.

    ``completion_times`` has the median, low and high of when each request of a burst is answered, in ms.
    """

    variant: str
    load: str
    missing: str | None = None
    figures: list[PredictedFigure] = Field([])
    completion_times: list[tuple[float, float, float]] = Field([])


class PredictedRun(Model):
    """predicted.json. ``theory``: the version that predicted; ``settings``: a hash of all that it follows from."""

    theory: int = THEORY
    settings: str
    cells: list[PredictedCell]

    @cached_property
    def figures(self) -> dict[tuple[tuple[str, str, str | None], str, str], PredictedFigure]:
        """The figures by variant, load and class of request together, and by metric and statistic."""
        return {
            ((cell.variant, cell.load, figure.request_class), figure.metric, figure.stat): figure
            for cell in self.cells
            for figure in cell.figures
        }

    @property
    def completion_times(self) -> dict[tuple[str, str], list[tuple[float, float, float]]]:
        """By variant and load, when each request of a burst is answered."""
        return {(cell.variant, cell.load): cell.completion_times for cell in self.cells}

    @property
    def not_predicted(self) -> list[NotPredicted]:
        """Which variants theory cannot predict under which loads, and why."""
        return [
            NotPredicted(variant=cell.variant, load=cell.load, missing=cell.missing)
            for cell in self.cells
            if cell.missing is not None
        ]


NOTHING = PredictedRun(settings="", cells=[])

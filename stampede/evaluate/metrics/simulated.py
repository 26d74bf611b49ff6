"""What theory predicts of a run: the requests of a simulated trial, and statistics of many simulated trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from stampede.records.run import LoadRecord, VariantRecord
    from stampede.theory.events import Rows

Cell = tuple[str, str, str | None]
"""A variant, a load and a class of request; None: all classes."""


@dataclass(frozen=True)
class SimulatedTrial:
    """The requests of one simulated trial, in the order of sending; times are in seconds since the load began.

    ``request_class`` is an index into ``classes``. ``worker`` counts from 0; -1: the request was refused, and has no
    ``began_s``. ``asked_s`` is the service time.
    """

    variant: VariantRecord
    load: LoadRecord
    classes: Sequence[str]
    request_class: npt.NDArray[np.int64]
    user: npt.NDArray[np.int64]
    worker: npt.NDArray[np.int64]
    sent_s: npt.NDArray[np.float64]
    began_s: npt.NDArray[np.float64]
    ended_s: npt.NDArray[np.float64]
    asked_s: npt.NDArray[np.float64]

    @classmethod
    def from_rows(cls, variant: VariantRecord, load: LoadRecord, classes: Sequence[str], rows: Rows) -> Self:
        """Return the trial that a simulation of a variant under a load has made."""
        return cls(
            variant, load, classes, rows.of_class, rows.user, rows.worker, rows.sent, rows.began, rows.ended, rows.asked
        )

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which requests were answered before their senders gave up."""
        asked = self.load.traffic.classes if self.load.traffic else {}
        in_time = self.worker >= 0
        for place, name in enumerate(self.classes):
            if name in asked and (patience_s := asked[name].patience_s) is not None:
                in_time &= (self.request_class != place) | (self.ended_s - self.sent_s <= patience_s)
        return in_time

    def each_class(self) -> list[tuple[str | None, npt.NDArray[np.bool_]]]:
        """Return each class, and None for all classes, with which requests are of the class."""
        of_class = [(name, self.request_class == place) for place, name in enumerate(self.classes)]
        return [*of_class, (None, self.request_class >= 0)]


class Prediction(NamedTuple):
    """The median of a statistic over simulated trials, and where the median over as many trials as were measured falls.

    In 95 of 100 simulated runs, the median of the run's trials lies between ``low`` and ``high``.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Predictions:
    """What theory predicts of a run. ``missing`` says for a variant and a load which mechanism theory lacks."""

    values: dict[tuple[Cell, str, str], Prediction]
    completion_times: dict[tuple[str, str], list[Prediction]]
    missing: dict[tuple[str, str], str]


NOTHING = Predictions({}, {}, {})

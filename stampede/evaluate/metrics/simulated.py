"""The requests of a simulated trial, of which theory predicts statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from stampede.records.run import LoadRecord, VariantRecord
    from stampede.theory.events import Rows


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

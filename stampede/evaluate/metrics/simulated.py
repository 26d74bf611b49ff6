"""The requests of a simulated trial, of which theory predicts statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from stampede.records.run import LoadRecord, VariantRecord

if TYPE_CHECKING:  # loading Numba takes half a second
    from stampede.theory.events import Rows


class SimulatedTrial(NamedTuple):
    """The requests of one simulated trial, in the order of sending; their classes are places in ``classes``."""

    variant: VariantRecord
    load: LoadRecord
    classes: Sequence[str]
    rows: Rows

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which requests were answered before their senders gave up."""
        asked = self.load.traffic.classes if self.load.traffic else {}
        in_time = self.rows.worker >= 0
        for place, name in enumerate(self.classes):
            if name in asked and (patience_s := asked[name].patience_s) is not None:
                in_time &= (self.rows.of_class != place) | (self.rows.ended - self.rows.sent <= patience_s)
        return in_time

    def each_class(self) -> list[tuple[str | None, npt.NDArray[np.bool_]]]:
        """Return each class, and None for all classes, with which requests are of the class."""
        of_class = [(name, self.rows.of_class == place) for place, name in enumerate(self.classes)]
        return [*of_class, (None, self.rows.of_class >= 0)]

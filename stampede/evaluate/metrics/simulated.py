"""The requests of a simulated trial, of which theory predicts the statistics that are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stampede.evaluate.read.requests import Requests
from stampede.records.run import LoadRecord

if TYPE_CHECKING:  # loading Numba takes half a second
    from stampede.theory.events import Rows


def simulated_requests(load: LoadRecord, classes: Sequence[str], rows: Rows) -> Requests:
    """Return the requests of one simulated trial, whose rows are in the order of sending.

    A request fails if it is refused, or if its sender gives up before the answer.
    """
    asked, answered = load.traffic.classes if load.traffic else {}, rows.worker >= 0
    for place, name in enumerate(classes):
        if name in asked and (patience_s := asked[name].patience_s) is not None:
            answered &= (rows.of_class != place) | (rows.ended - rows.sent <= patience_s)
    duration_ms, over_us = 1000 * (rows.ended - rows.sent), 1e6 * rows.ended
    return Requests(
        classes=[*classes],
        workers=[str(place) for place in range(rows.worker.max(initial=-1) + 1)],
        of_class=rows.of_class,
        user=rows.of_class * (1 + rows.user.max(initial=0)) + rows.user,
        worker=rows.worker,
        answered=answered,
        of_client=np.zeros_like(answered),
        sent_us=1e6 * rows.sent,
        answered_us=np.where(answered, over_us, np.nan),
        over_us=over_us,
        began_s=rows.began,
        ended_s=rows.ended,
        duration_ms=duration_ms,
        overhead_ms=np.where(answered, duration_ms - 1000 * rows.asked, np.nan),
        simulated=True,
    )

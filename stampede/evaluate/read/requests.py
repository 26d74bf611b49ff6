"""The requests of a trial as columns, from which most metrics are computed, whether they were measured or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from stampede.evaluate.read import CLIENT, OF_TRIAL, Key, of_trial
from stampede.records.run import LoadRecord

if TYPE_CHECKING:  # loading Numba takes half a second
    from stampede.theory.events import Rows

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Requests(NamedTuple):
    """The requests of one trial in the order of sending: an element of each column is a request.

    ``of_class`` and ``worker`` are places in ``classes`` and ``workers``; worker -1: nobody answered. ``answered``: the
    request did not fail. ``of_client``: a client that misbehaves sent it, and not k6. ``answered_us`` is when the
    answer came, ``over_us`` the same by k6's response time; a worker was at work from ``began_s`` to ``ended_s``. Times
    are since 1970, of ``simulated`` requests since the load began. What nobody knows is NaN.
    """

    classes: list[str]
    workers: list[str]
    of_class: Ints
    user: Ints
    worker: Ints
    answered: Bools
    of_client: Bools
    sent_us: Reals
    answered_us: Reals
    over_us: Reals
    began_s: Reals
    ended_s: Reals
    duration_ms: Reals
    overhead_ms: Reals
    simulated: bool = False

    def each_class(self) -> list[tuple[str | None, Bools]]:
        """Return each class, and None for all classes together, with which requests are of the class."""
        of_each = [(name, self.of_class == place) for place, name in enumerate(self.classes)]
        return [*of_each, (None, self.of_class >= 0)]


def read_requests(database: duckdb.DuckDBPyConnection, key: Key) -> Requests:
    """Read the requests of a trial from the view ``requests``."""
    [names] = database.execute(_NAMES, of_trial(key)).fetchall()
    classes, workers = (found or [] for found in names)
    asked = of_trial(key) | {"classes": classes, "workers": workers}
    columns = database.execute(_COLUMNS, asked).fetchnumpy()
    filled: dict[str, Any] = {
        name: np.ma.filled(column, np.nan) if column.dtype == np.float64 else np.asarray(column)
        for name, column in columns.items()
    }
    return Requests(classes, workers, **filled)


_NAMES = f"""
SELECT list_sort(list(DISTINCT request_class)), list_sort(list(DISTINCT worker) FILTER (WHERE error IS NULL))
FROM requests WHERE {OF_TRIAL}
"""  # noqa: S608  # made of constants

_COLUMNS = f"""
SELECT list_position($classes::VARCHAR[], request_class)::BIGINT - 1 AS of_class,
    dense_rank() OVER (ORDER BY generator, split_part(id, '-', 1)) AS "user",
    CASE WHEN error IS NULL THEN coalesce(list_position($workers::VARCHAR[], worker), 0)::BIGINT - 1 ELSE -1 END
        AS worker,
    error IS NULL AS answered, generator = '{CLIENT}' AS of_client, epoch_us(sent)::DOUBLE AS sent_us,
    epoch_us(answered)::DOUBLE AS answered_us,
    epoch_us(sent + to_milliseconds(coalesce(duration_ms, 0)))::DOUBLE AS over_us,
    began AS began_s, ended AS ended_s, duration_ms, overhead_ms
FROM requests WHERE {OF_TRIAL} ORDER BY sent, id, generator
"""  # noqa: S608


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

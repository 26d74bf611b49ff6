"""Requests that are sent at once: whether they were, when each was answered, who served them, in which waves."""

from typing import Any, NamedTuple

import duckdb

from analysis.quantities import Metric, Statistic
from analysis.read import CLIENT

WAVES = 60
"""A burst of more waves than this is a stream."""
WAVE_FROM_MS = 100
"""Waves of shorter requests are blurred by how long a request takes to get from here to there."""

Key = tuple[str, str, int]
"""A variant, a load and the number of a trial."""

# k6 numbers the requests of each virtual user, so only the order of sending tells which belong together.
_BURSTS = f"""
WITH numbered AS (
    SELECT *, ((row_number() OVER (ORDER BY sent, id, generator) - 1) // $size + 1)::INTEGER AS burst
    FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial) AND generator <> '{CLIENT}'),
bursts AS (SELECT *, count(*) OVER (PARTITION BY burst) = $size AS whole FROM numbered)
"""  # noqa: S608  # made of this module's own constants


class Sending(NamedTuple):
    """How the bursts of a trial were sent.

    In ``early`` of the ``bursts`` a request was answered before the last one was sent; the last burst has ``in_last``
    requests.
    """

    bursts: int
    early: int
    in_last: int


class Step(NamedTuple):
    """One request of a burst, with times in seconds since the burst was sent; None: it did not get that far."""

    sent_s: float
    began_s: float | None
    ended_s: float | None
    answered_s: float | None
    worker: str | None
    failed: bool


def sending(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> Sending:
    """Return how the bursts of a trial were sent; a connection that was refused is no answer."""
    query = """
        SELECT count(*), count(*) FILTER (WHERE first_answered <= last_sent), coalesce(arg_max(requests, burst), 0)
        FROM (SELECT burst, count(*) AS requests, max(sent) AS last_sent,
                  min(answered) FILTER (WHERE status > 0) AS first_answered FROM bursts GROUP BY burst)
    """
    [row] = _rows(database, query, key, size)
    return Sending(*row)


def statistics(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> dict[tuple[Metric, Statistic], float]:
    """Return how long a trial's whole bursts took and which share of one the busiest worker got: medians over them."""
    query = """
        SELECT median(total_ms), median(largest_share)
        FROM (SELECT burst, (epoch_us(max(answered) FILTER (WHERE error IS NULL)) - epoch_us(min(sent))) / 1000
                  AS total_ms FROM bursts WHERE whole GROUP BY burst)
        JOIN (SELECT burst, max(requests) / sum(requests) AS largest_share
              FROM (SELECT burst, worker, count(*) AS requests FROM bursts WHERE whole AND error IS NULL GROUP BY ALL)
              GROUP BY burst) USING (burst)
    """
    [(total_ms, largest_share)] = _rows(database, query, key, size)
    return {} if total_ms is None else {("burst", "total"): total_ms, ("burst", "largest_share"): largest_share}


def steps_ms(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> list[float]:
    """Return the response times of a burst, the quickest first, each the median over a trial's whole bursts.

    Where a request failed its burst has a step less.
    """
    query = """
        SELECT median(duration_ms)
        FROM (SELECT duration_ms, row_number() OVER (PARTITION BY burst ORDER BY duration_ms) AS place
              FROM bursts WHERE whole AND error IS NULL)
        GROUP BY place ORDER BY place
    """
    return [step_ms for (step_ms,) in _rows(database, query, key, size)]


def waves(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> list[tuple[str, int, int]]:
    """Return how many requests of the first burst each worker began in each wave: (worker, wave, requests).

    A wave lasts as long as a request asks for, and the first has its middle where the first request began. Nothing
    where there are more than WAVES, or a request asks for less than WAVE_FROM_MS.
    """
    query = f"""
        SELECT worker, wave, count(*)::INTEGER FROM (
            SELECT worker, asked_ms, (1 + round((began - min(began) OVER ()) / (asked_ms / 1000)))::INTEGER AS wave
            FROM bursts WHERE burst = 1 AND error IS NULL AND asked_ms >= {WAVE_FROM_MS})
        GROUP BY worker, wave ORDER BY worker, wave
    """  # noqa: S608
    found = _rows(database, query, key, size)
    quick = _rows(database, f"FROM bursts WHERE burst = 1 AND asked_ms < {WAVE_FROM_MS}", key, size)
    return [] if quick or any(wave > WAVES for _, wave, _ in found) else [(*row,) for row in found]


def first(database: duckdb.DuckDBPyConnection, key: Key, size: int) -> list[Step]:
    """Return the requests of the first burst in the order of their answers; those without one are the last."""
    query = """
        SELECT epoch(sent) - first, began - first, ended - first, epoch(answered) - first, worker, error IS NOT NULL
        FROM (SELECT *, epoch(min(sent) OVER ()) AS first FROM bursts WHERE burst = 1)
        ORDER BY answered NULLS LAST, sent, id, generator
    """
    return [Step(*row) for row in _rows(database, query, key, size)]


def ordinal(place: int) -> str:
    """Return the word for a place: 1st, 2nd, 3rd, 4th and so on."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ending}"


def in_order(workers: set[str]) -> list[str]:
    """Return workers (host:pid) container by container, in the order of forking."""

    def forked(worker: str) -> tuple[str, int, str]:
        host, _, pid = worker.rpartition(":")
        return host, len(pid), pid

    return sorted(workers, key=forked)


def _rows(database: duckdb.DuckDBPyConnection, query: str, key: Key, size: int) -> list[Any]:
    variant, load, trial = key
    asked = {"variant": variant, "load": load, "trial": trial, "size": size}
    return database.execute(f"{_BURSTS} {query}", asked).fetchall()

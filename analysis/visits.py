"""Visits: what one person does on a page, up to three requests one after the other, in an open loop.

A visit gets a page with a form (class ``page``), posts the form, which writes one row (``post``), and gets what the
answer's redirect names (``newest``). It stops at its first request that fails, and fails with it.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from analysis.bursts import Key
from analysis.quantities import TIME_STATISTICS, Metric, Statistic, aggregate, failures_allowed, rows_needed
from analysis.read.rows import write_requests

POST = "post"
"""The class of the request that writes a row."""
LAST = "newest"
"""The class of the request that a visit ends with."""
FAILED_ALLOWED = 0.01
"""A rate of which a smaller share of the visits fails is within the capacity."""
CUT_OFF = "cut off by the end of the run"
"""What became of a visit none of whose requests failed, and which did not come to its last one."""

# Of a request that was never answered nobody knows how long it took; its visit was under way until the end.
_VISITS = f"""
WITH of_trial AS (
    FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial) AND visit IS NOT NULL),
together AS (
    SELECT visit, min(sent) AS arrived, arg_min(error, (sent, request)) AS error,
        arg_min(request, (sent, request)) FILTER (WHERE error IS NOT NULL) AS failed_in,
        bool_or(request = '{LAST}') AS complete,
        CASE WHEN count(*) = count(answered) THEN max(answered) END AS ended
    FROM of_trial GROUP BY visit),
visits AS (
    SELECT *, (epoch_us(ended) - epoch_us(arrived)) / 1000 AS time_ms,
        CASE WHEN error IS NOT NULL THEN error WHEN NOT complete THEN '{CUT_OFF}' END AS outcome
    FROM together)
"""  # noqa: S608  # made of this module's own constants


class Visit(NamedTuple):
    """One visit of a trial: when it came and how long it took, in seconds; the former since the first one came.

    ``outcome`` is the error of its request of class ``failed_in``; None: it succeeded.
    """

    arrived_s: float
    took_s: float
    outcome: str | None
    failed_in: str | None


class Count(NamedTuple):
    """How many visits were made, and how many of them succeeded."""

    made: int
    succeeded: int


class Step(NamedTuple):
    """The visits that were due while so many came in a second, and how many of them failed."""

    per_s: int
    visits: int
    failed: int


class Posts(NamedTuple):
    """The visits of a trial that posted a form, and those of them that were told of success."""

    sent: frozenset[str] = frozenset()
    succeeded: frozenset[str] = frozenset()


class Written(NamedTuple):
    """What the rows of a database are, beside the posts that should have written them.

    ``lost`` are visits that were told of success and have no row, ``doubled`` those that have several. ``foreign``
    rows belong to no visit that posted, ``unreported`` ones to visits that were not told of success.
    """

    rows: int
    lost: list[str]
    doubled: list[str]
    foreign: int
    unreported: int


def rates_per_s(settings: dict[str, str], duration: str) -> list[int]:
    """Return how many visits are due in a second, step by step; nothing of a load whose settings do not say it.

    Of n steps of STEP_S seconds the first has the rate FIRST_PER_S, the last LAST_PER_S, and each is as many times the
    one before.
    """
    if not {"FIRST_PER_S", "LAST_PER_S", "STEP_S"} <= settings.keys():
        return []
    first, last = float(settings["FIRST_PER_S"]), float(settings["LAST_PER_S"])
    steps = max(1, math.floor(_seconds(duration) / float(settings["STEP_S"])))
    return [math.floor(first * (last / first) ** (step / max(1, steps - 1)) + 0.5) for step in range(steps)]


def read(database: duckdb.DuckDBPyConnection, key: Key) -> list[Visit]:
    """Return the visits of a trial in the order of coming."""
    query = """
        SELECT (epoch_us(arrived) - epoch_us(min(arrived) OVER ())) / 1e6,
            (epoch_us(coalesce(ended, (SELECT max(coalesce(answered, sent)) FROM of_trial))) - epoch_us(arrived)) / 1e6,
            outcome, failed_in
        FROM visits ORDER BY arrived, visit
    """
    return [Visit(*row) for row in _rows(database, query, key)]


def count(database: duckdb.DuckDBPyConnection, key: Key) -> Count:
    """Return how many visits a trial made."""
    [row] = _rows(database, "SELECT count(*), count(*) FILTER (WHERE outcome IS NULL) FROM visits", key)
    return Count(*row)


def statistics(database: duckdb.DuckDBPyConnection, key: Key) -> dict[tuple[Metric, Statistic], float]:
    """Return how long the visits of a trial took that succeeded, in ms, and how many failed; nothing without visits.

    A statistic that they cannot carry, or of which too many failed, is left out.
    """
    made, succeeded = count(database, key)
    if not made:
        return {}
    failed = (made - succeeded) / made
    stats: dict[tuple[Metric, Statistic], float] = {
        ("visits_failed", "share"): failed,
        ("visits_failed", "count"): made - succeeded,
    }
    columns = ", ".join(aggregate(stat, "time_ms") for stat in TIME_STATISTICS)
    [times_ms] = _rows(database, f"SELECT {columns} FROM visits WHERE outcome IS NULL", key)  # noqa: S608
    for stat, time_ms in zip(TIME_STATISTICS, times_ms, strict=True):
        if time_ms is not None and succeeded >= rows_needed(stat) and failed < failures_allowed(stat):
            stats["visit", stat] = time_ms
    return stats


def steps(database: duckdb.DuckDBPyConnection, key: Key, rates: Sequence[int], step_s: float) -> list[Step]:
    """Return the visits of each step of a trial; rates are in visits/s.

    Visits are numbered from 0 in the order in which they are due, whichever load generator makes them, so that the
    number of one says its step. Those of the last step and later ones are one.
    """
    ends = list(accumulate(rate * step_s for rate in rates))
    made, failed = Counter[int](), Counter[int]()
    query = "SELECT TRY_CAST(visit AS BIGINT) AS number, outcome IS NOT NULL FROM visits WHERE number IS NOT NULL"
    for number, has_failed in _rows(database, query, key):
        place = min(bisect_right(ends, number), len(rates) - 1)
        made[place] += 1
        failed[place] += has_failed
    return [Step(per_s, made[place], failed[place]) for place, per_s in enumerate(rates)]


def capacity_per_s(database: duckdb.DuckDBPyConnection, key: Key, rates: Sequence[int], step_s: float) -> float | None:
    """Return the largest rate, in visits/s, up to which fewer than FAILED_ALLOWED of the visits of each step failed.

    0 when that is so of no step; None when it is so of all, or of all until one in which nobody came: the capacity is
    larger than what was asked for.
    """
    capacity = 0
    for step in steps(database, key, rates, step_s):
        if not step.visits:
            break
        if step.failed >= FAILED_ALLOWED * step.visits:
            return float(capacity)
        capacity = step.per_s
    return None


def measured_capacity_per_s(
    trial_folder: Path, variant: str, load_name: str, trial: int, settings: dict[str, str], duration: str
) -> float:
    """Write requests.parquet of a trial and return the capacity that it shows, in visits/s.

    Raise UnreadablePoints as ``write_requests`` does, ValueError when there was no visit, not every visit that was due
    was made, or the rate does not climb, or not until visits fail.
    """
    rates = rates_per_s(settings, duration)
    if len(rates) < 2:
        raise ValueError("the rate of visits does not climb")
    if dropped := write_requests(trial_folder, variant, load_name, trial):
        raise ValueError(f"the load generator dropped {dropped} visits")
    key = (variant, load_name, trial)
    with duckdb.connect() as database:
        database.read_parquet(str(trial_folder / "requests.parquet")).create_view("requests")
        if not count(database, key).made:
            raise ValueError("no visit was made")
        capacity = capacity_per_s(database, key, rates, float(settings["STEP_S"]))
    if capacity is None:
        raise ValueError(f"{rates[-1]} visits a second are too few to fail, raise last_per_s")
    return capacity


def posts(database: duckdb.DuckDBPyConnection, key: Key) -> Posts:
    """Return which visits of a trial posted a form."""
    query = "SELECT visit, error IS NULL FROM of_trial WHERE request = $post"
    told = dict(_rows(database, query, key, post=POST))
    return Posts(frozenset(told), frozenset(visit for visit, succeeded in told.items() if succeeded))


def written(rows: Sequence[str], posts: Posts) -> Written:
    """Compare the rows of a database, each the visit that wrote it, with the posts of a trial."""
    by_visit = Counter(rows)
    return Written(
        rows=len(rows),
        lost=_in_order(posts.succeeded - by_visit.keys()),
        doubled=_in_order({visit for visit, count in by_visit.items() if count > 1}),
        foreign=sum(count for visit, count in by_visit.items() if visit not in posts.sent),
        unreported=sum(count for visit, count in by_visit.items() if visit in posts.sent - posts.succeeded),
    )


def _in_order(names: set[str] | frozenset[str]) -> list[str]:
    """Return visits sorted, numbers by what they are."""
    return sorted(names, key=lambda name: (len(name), name))


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def _rows(database: duckdb.DuckDBPyConnection, query: str, key: Key, **asked: float | str) -> list[Any]:
    variant, load, trial = key
    return database.execute(f"{_VISITS} {query}", {"variant": variant, "load": load, "trial": trial} | asked).fetchall()

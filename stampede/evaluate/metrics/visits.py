"""Visits: up to three requests of one visitor, one after the other, in an open loop.

A visit gets a page with a form (class ``page``), posts the form, which writes one row (``post``), and gets the page
that the answer redirects to (``newest``). If a request fails, the visit ends there and has failed.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics import CAPACITY, DATABASE_CONNECTIONS, VISIT, VISITS_FAILED
from stampede.evaluate.metrics.by_class import times_found
from stampede.evaluate.metrics.metric import Family, MetricValues, Sample, Severity, ValidityIssue
from stampede.evaluate.metrics.rates import highest_rate
from stampede.evaluate.read import OF_TRIAL, Key, of_trial
from stampede.evaluate.read.observation import database_of
from stampede.evaluate.read.requests import Requests
from stampede.evaluate.read.rows import opened, write_requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import MachineRecord
from stampede.records.traffic import rates_per_s
from stampede.records.words import noun_for, plural

LAST = "newest"
"""The class of a visit's last request."""
FAILED_ALLOWED = 0.01
"""A rate is within the capacity if the share of its visits that fail is smaller than this."""

_VISITS = f"""
SELECT TRY_CAST(visit AS BIGINT), (epoch_us(max(answered)) - epoch_us(min(sent))) / 1000,
    count(error) > 0 OR NOT bool_or(request_class = '{LAST}')
FROM requests WHERE {OF_TRIAL} AND visit IS NOT NULL GROUP BY visit ORDER BY min(sent), visit
"""  # noqa: S608  # made of this module's own constants


class Visit(NamedTuple):
    """One visit of a trial, and whether it failed, or the end of the run cut it off.

    All load generators together number the visits from 0, in the order in which the visits are due.
    """

    number: int | None
    took_ms: float | None
    failed: bool


def read_visits(database: duckdb.DuckDBPyConnection, key: Key) -> list[Visit]:
    """Return the visits of a trial in the order in which they came."""
    return [Visit(*row) for row in database.execute(_VISITS, of_trial(key)).fetchall()]


def by_level(visits: Iterable[Visit], rates: Sequence[int], level_s: float) -> list[tuple[int, int, int]]:
    """Return the rate of each level in visits/s, how many visits it has, and how many of them failed.

    The number of a visit says its level, as each level lasts ``level_s`` seconds. Visits beyond the last level count as
    part of the last level.
    """
    ends = list(accumulate(rate * level_s for rate in rates))
    made, failed = Counter[int](), Counter[int]()
    for visit in visits:
        if visit.number is not None:
            place = min(bisect_right(ends, visit.number), len(rates) - 1)
            made[place] += 1
            failed[place] += visit.failed
    return [(per_s, made[place], failed[place]) for place, per_s in enumerate(rates)]


def _observe(trial: TrialData, _: Requests, database: duckdb.DuckDBPyConnection) -> Iterator[MetricValues]:
    """Yield the times and failures of a trial's visits, the capacity, and what the trial's database reports.

    There is a capacity if the rate climbs and visits began to fail.
    """
    if trial.requests.of_visits:
        visits = read_visits(database, trial.key)
        times_ms = np.array([visit.took_ms for visit in visits if not visit.failed], dtype=np.float64)
        made, failed = len(visits), len(visits) - len(times_ms)
        yield MetricValues(VISITS_FAILED, None, {"share": failed / made, "count": failed}, carried_by=made)
        yield times_found(VISIT, None, Sample(times_ms, made), carried_by=len(times_ms))
        rates = rates_per_s(trial.load.settings, trial.load.duration)
        if len(rates) > 1:
            steps = by_level(visits, rates, float(trial.load.settings["STEP_S"]))
            if (per_s := highest_rate(steps, FAILED_ALLOWED)) is not None:
                yield MetricValues(CAPACITY, None, {"per_second": per_s})
    found = database_of(trial.containers)
    if found and (most := found[1].database.get("connections_max")) is not None:
        yield MetricValues(DATABASE_CONNECTIONS, None, {"max": most})


def measured_capacity_per_s(
    trial_folder: Path, key: Key, settings: dict[str, str], duration: str, machines: Sequence[MachineRecord] = ()
) -> float:
    """Write requests.parquet of a trial during its run and return the capacity that the trial shows, in visits/s.

    The rates of later loads may depend on it. Raise the same errors as ``write_requests``. Raise ValueError if no visit
    was made, if the load generator made fewer visits than were due, if the rate does not climb, or if visits do not
    begin to fail.
    """
    rates = rates_per_s(settings, duration)
    if len(rates) < 2:
        raise ValueError("the rate of visits does not climb")
    dropped, _ = write_requests(trial_folder, *key, machines)
    if dropped:
        raise ValueError(f"the load generator dropped {dropped} visits")
    with opened([trial_folder]) as database:
        visits = read_visits(database, key)
    if not visits:
        raise ValueError("no visit was made")
    capacity = highest_rate(by_level(visits, rates, float(settings["STEP_S"])), FAILED_ALLOWED)
    if capacity is None:
        raise ValueError(f"{rates[-1]} visits a second are too few to fail, raise last_per_s")
    return capacity


def _issues(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that each successful post wrote exactly one row, that no other rows exist, and that nobody was refused."""
    if trial.load.database is None:
        return
    if not (observed := database_of(trial.containers)):
        yield "invalid", "the database was not observed after the load: nobody knows which rows were written"
        return
    before, after, written = observed
    if before and before.rows:
        yield "invalid", f"the database had {plural(len(before.rows), 'row')} before the load"
    posts, by_visit = trial.requests.posts, Counter(written)
    succeeded = {visit for visit, has_succeeded in posts.items() if has_succeeded}
    doubled = {visit for visit, count in by_visit.items() if count > 1}
    for what, visits in (("lost", succeeded - by_visit.keys()), ("doubled", doubled)):
        if visits:
            rows, names = plural(len(visits), "row"), sorted(visits, key=lambda name: (len(name), name))
            which = f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
            yield (
                "invalid",
                f"{rows} {'is' if len(names) == 1 else 'are'} {what}: {noun_for(len(names), 'visit')} {which}",
            )
    if foreign := sum(count for visit, count in by_visit.items() if visit not in posts):
        yield "invalid", f"{plural(foreign, 'row')} belong{'s' if foreign == 1 else ''} to no visit"
    if unreported := sum(by_visit[visit] for visit in posts.keys() - succeeded):
        were = "was" if unreported == 1 else "were"
        yield "note", f"{plural(unreported, 'row')} {were} written for visits that were told of a failure"
    refused_before = before.database.get("connections_refused", 0) if before else 0
    if refused := after.database.get("connections_refused", 0) - refused_before:
        severity: Severity = "note" if trial.load.overloads else "suspect"
        yield severity, f"the database refused {plural(refused, 'connection')}"


FAMILY = Family(observe=_observe, issues=_issues)

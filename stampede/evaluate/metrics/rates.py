"""The highest rate at which hardly any request waits, under a load whose rate climbs in steps."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import duckdb

from stampede.evaluate.metrics import RATE_WITHIN
from stampede.evaluate.metrics.metric import Family, MetricValues
from stampede.evaluate.metrics.simulated import SimulatedTrial
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.duration import in_seconds
from stampede.records.run import LoadRecord
from stampede.records.summary import RateStepRow
from stampede.records.traffic import climbing_rates_rps


class Climb(NamedTuple):
    """A rate that climbs: the requests/s of each step, how long a step lasts, and which requests are late."""

    rates_rps: Sequence[int]
    step_s: float
    late_ms: float
    late_share: float

    def late_by_step(self, requests: Iterable[tuple[float, bool]]) -> list[tuple[int, int, int]]:
        """Return the rate of each step, how many requests it has, and how many of them are late.

        ``requests`` says of each request how many seconds after the first request it was sent, and whether it is late.
        """
        made, waited = Counter[int](), Counter[int]()
        for sent_s, is_late in requests:
            place = min(int(sent_s / self.step_s), len(self.rates_rps) - 1)
            made[place] += 1
            waited[place] += is_late
        return [(rate_rps, made[place], waited[place]) for place, rate_rps in enumerate(self.rates_rps)]


def highest_rate(steps: Iterable[tuple[int, int, int]], allowed: float) -> float | None:
    """Return the largest rate up to which a smaller share than ``allowed`` fails in each step.

    A step is its rate, how many requests or visits it has, and how many of them fail. Return 0 if too many fail in the
    first step. Return None if no step has too many, or if a step without any comes first: then the rate is larger than
    the rates that were tried.
    """
    within = 0
    for rate, made, failed in steps:
        if not made:
            break
        if failed >= allowed * made:
            return float(within)
        within = rate
    return None


def climb_of(load: LoadRecord) -> Climb | None:
    """Return how the rate of a load climbs; None: it has no bound of lateness."""
    if "LATE_MS" not in load.settings:
        return None
    asked = {name.lower(): float(load.settings[name]) for name in ("FIRST_RPS", "LAST_RPS", "STEPS", "LATE_MS")}
    rates = climbing_rates_rps(asked)
    return Climb(rates, in_seconds(load.duration) / len(rates), asked["late_ms"], float(load.settings["LATE_SHARE"]))


def rate_step_rows(database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData]) -> Iterator[RateStepRow]:
    """Yield the steps of each trial whose load has a bound of lateness."""
    for trial in trials:
        if climb := climb_of(trial.load):
            variant, load, number = trial.key
            for per_s, made, late in climb.late_by_step(_late(database, trial, climb)):
                yield RateStepRow(variant=variant, load=load, trial=number, per_s=per_s, visits=made, failed=late)


def _late(database: duckdb.DuckDBPyConnection, trial: TrialData, climb: Climb) -> list[tuple[float, bool]]:
    """Return of each request of a trial when it was sent, in seconds after the first, and whether it is late."""
    query = f"""
        SELECT (epoch_us(sent) - epoch_us(min(sent) OVER ())) / 1e6, coalesce(overhead_ms > $late_ms, true)
        FROM requests WHERE {OF_TRIAL}
    """  # noqa: S608  # made of a constant
    return database.execute(query, of_trial(trial.key) | {"late_ms": climb.late_ms}).fetchall()


def _values(climb: Climb, requests: Iterable[tuple[float, bool]]) -> Iterator[MetricValues]:
    if (rate := highest_rate(climb.late_by_step(requests), climb.late_share)) is not None:
        yield MetricValues(None, RATE_WITHIN.keyed({"per_second": rate}))


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    if climb := climb_of(trial.load):
        yield from _values(climb, _late(database, trial, climb))


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    if climb := climb_of(trial.load):
        sent_s = trial.rows.sent - trial.rows.sent.min(initial=0)
        late = ~trial.answered | (1000 * (trial.rows.ended - trial.rows.sent - trial.rows.asked) > climb.late_ms)
        yield from _values(climb, zip(sent_s.tolist(), late.tolist(), strict=True))


FAMILY = Family((RATE_WITHIN,), _measure, measure_simulated=_measure_simulated)

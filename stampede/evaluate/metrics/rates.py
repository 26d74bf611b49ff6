"""The highest rate at which hardly any request waits, under a load whose rate climbs in steps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stampede.evaluate.metrics import RATE_WITHIN
from stampede.evaluate.metrics.metric import Family, Finding
from stampede.evaluate.read.requests import Requests
from stampede.records.run import LoadRecord, VariantRecord
from stampede.records.traffic import climbing_rates_rps
from stampede.records.words import in_seconds


class Climb(NamedTuple):
    """A rate that climbs: the requests/s of each step, how long a step lasts, and which requests are late."""

    rates_rps: Sequence[int]
    step_s: float
    late_ms: float
    late_share: float

    def late_by_step(self, requests: Requests) -> list[tuple[int, int, int]]:
        """Return the rate of each step, how many requests it has, and how many of them are late."""
        sent_s = (requests.sent_us - requests.sent_us.min(initial=np.inf)) / 1e6
        step = np.minimum((sent_s / self.step_s).astype(np.int64), len(self.rates_rps) - 1)
        late = ~(requests.overhead_ms <= self.late_ms)  # or it failed
        made, waited = (np.bincount(found, minlength=len(self.rates_rps)).tolist() for found in (step, step[late]))
        return [*zip(self.rates_rps, made, waited, strict=True)]


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


def _measure(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[Finding]:
    climb = climb_of(load)
    if climb and (rate := highest_rate(climb.late_by_step(requests), climb.late_share)) is not None:
        yield Finding(RATE_WITHIN, None, {"per_second": rate})


FAMILY = Family(_measure)

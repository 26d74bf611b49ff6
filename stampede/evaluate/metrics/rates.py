"""The highest rate at which hardly any request waits, under a load whose rate climbs in steps."""

from collections.abc import Iterable, Iterator

import numpy as np

from stampede.evaluate.metrics import RATE_WITHIN
from stampede.evaluate.metrics.metric import Family, MetricValues
from stampede.evaluate.read.requests import Requests
from stampede.records.run import LoadRecord, VariantRecord
from stampede.records.traffic import climbing_rates_rps, in_seconds


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


def _measure(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield the highest rate of a load that climbs, in which a step fails if too many of its requests are late."""
    if "LATE_MS" in load.settings:
        rate = highest_rate(_late_by_step(requests, load), float(load.settings["LATE_SHARE"]))
        if rate is not None:
            yield MetricValues(RATE_WITHIN, None, {"per_second": rate})


def _late_by_step(requests: Requests, load: LoadRecord) -> Iterator[tuple[int, int, int]]:
    """Return the rate of each step, how many requests were sent in it, and how many of these were late or failed."""
    asked = {name.lower(): float(load.settings[name]) for name in ("FIRST_RPS", "LAST_RPS", "STEPS", "LATE_MS")}
    rates_rps = climbing_rates_rps(asked)
    sent_s = (requests.sent_us - requests.sent_us.min(initial=np.inf)) / 1e6
    step = np.minimum((sent_s / (in_seconds(load.duration) / len(rates_rps))).astype(np.int64), len(rates_rps) - 1)
    late = ~(requests.overhead_ms <= asked["late_ms"])  # what failed has none
    sent, waited = (np.bincount(found, minlength=len(rates_rps)).tolist() for found in (step, step[late]))
    return zip(rates_rps, sent, waited, strict=True)


FAMILY = Family(_measure)

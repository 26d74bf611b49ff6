"""When to stop: how many trials a bound needs, and how many must agree if somebody looks after every trial."""

from collections.abc import Sequence
from functools import cache
from math import log, sqrt

Interval = tuple[float, float]
LEAST = 2
"""The number of trials below which there is no verdict: one trial does not show how far trials differ."""
ENOUGH = 3
"""The number of trials below which no interval is shown: the interval of two trials may reach to millions of ms."""
FAR = 100
"""No interval is shown if an end is so many times beyond everything that was measured."""
RESAMPLED_FROM = 5
"""From this number of trials on, trials are resampled. The range of fewer trials holds the median too seldom."""
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182}
"""Student's t at 97.5 % by degrees of freedom, as tables print it; stored intervals depend on each digit."""
MOST = 100
"""The largest number of trials that is ever advised."""
ERROR = 0.05
"""How often, at most, looking after every trial gives a verdict that contradicts the true median."""
_OF_MEDIAN = 2.46
"""How many standard deviations, divided by the root of the number of trials, the interval of a median reaches.

The median of normal values varies 1.25 times as much as their mean, and 95 % lie within 1.96 standard errors.
"""


def trials_needed(trials: int, measured: float, interval: Interval | None, bounds: Sequence[float]) -> int | None:
    """Return about how many trials in all decide on which side of each bound a value lies; None: more than MOST.

    ``interval`` is that of ``measured``, and becomes narrower with the root of the number of trials. One trial does not
    show how far trials differ, so the answer is then as many as the lab resamples.
    """
    if trials < LEAST or interval is None:
        return RESAMPLED_FROM
    most = 0
    for bound in bounds:
        low, at, high, edge = interval[0], measured, interval[1], bound
        if min(low, at, edge) > 0:
            low, at, high, edge = log(low), log(at), log(high), log(edge)
        deviation = (at - low if edge <= at else high - at) * sqrt(trials) / _factor(trials)
        enough = (n for n in range(LEAST, MOST + 1) if _factor(n) * deviation < abs(at - edge) * sqrt(n))
        most = max(most, next(enough, MOST + 1))
    return most if most <= MOST else None


def _factor(trials: int) -> float:
    return STUDENT[trials - 1] if trials < RESAMPLED_FROM else _OF_MEDIAN


def has_interval(values: Sequence[float], low: float | None, high: float | None) -> bool:
    """Whether an interval tells a reader anything, given the values of the trials."""
    if low is None or high is None or len(values) < ENOUGH:
        return False
    most, least = max(map(abs, values)), min(values)
    return not (0 < FAR * most < high or 0 < low < least / FAR)


def sequential_verdict(sides: Sequence[bool]) -> bool | None:
    """Return on which side of a bound the median lies, by the sides of all trials in the order of measuring.

    None: looking after every trial has not decided. If the true median lay at the bound or on the other side, each
    trial would lie on this side with a probability of at most one half (the sign test). The limits spend ERROR little
    by little over the looks (Lan and DeMets 1983), so that the probability that any look decides falsely is at most
    ERROR, however long somebody goes on.
    """
    for count in range(RESAMPLED_FROM, len(sides) + 1):
        kept = sum(sides[:count])
        for side, dissenting in ((True, count - kept), (False, kept)):
            if dissenting <= _most_dissenting(count):
                return side
    return None


@cache
def _most_dissenting(trials: int) -> int:
    """Return how many trials may lie on the other side when the look at so many trials decides; -1: no look decides."""
    going_on = {0: 1.0}  # the probability of each number of dissenting trials, if no look has decided yet
    spent, limit = 0.0, -1
    for count in range(1, trials + 1):
        after: dict[int, float] = {}
        for dissenting, share in going_on.items():
            for more in (0, 1):
                after[dissenting + more] = after.get(dissenting + more, 0.0) + share / 2
        limit = -1
        if count >= RESAMPLED_FROM:
            for dissenting in sorted(after):
                if spent + after[dissenting] > ERROR * count / (count + 3) + 1e-12:
                    break
                spent += after.pop(dissenting)
                limit = dissenting
        going_on = after
    return limit

"""How the spread of a measured value is shown: as its 95 % interval, or as the value of each trial.

The interval of one trial says nothing about another start of the servers, and the interval of two trials may reach to
millions of milliseconds. So from three trials on, tables show the interval; of fewer trials, they show the values.
"""

from collections.abc import Callable, Sequence

from stampede.evaluate.statistics.stopping import ENOUGH, FAR, MOST, has_interval
from stampede.records.claims import Claim, Quantity
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.report.wording import number
from stampede.typed import option

INTERVAL = (
    f"measured: the median over trials, with its 95 % interval; of fewer than {ENOUGH} trials, and if the interval "
    f"reaches {FAR} times beyond all values, what each trial measured; numbers that are equal are shown once"
)
COUNTED = "answered: how many requests of all trials were answered"
POOLED = (
    "pooled: single trials have too few requests for the percentile, so it is the percentile of the requests of all "
    "trials together; its interval resamples whole trials, and no claim rests on it"
)


def spread(
    values: Sequence[float], low: float | None, high: float | None, shown: Callable[[float], str] = number
) -> str:
    """Return an interval, e.g. 1.2 to 3.4, or the values of two or more trials, e.g. 142 and 219; empty for one."""
    if low is not None and high is not None and has_interval(values, low, high):
        return f"{shown(low)} to {shown(high)}"
    return word_list([shown(value) for value in values]) if len(values) > 1 else ""


def word_list(words: Sequence[str]) -> str:
    """Return words as a list: a; a and b; a, b and c."""
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last


def value_and_spread(
    measured: float, values: Sequence[float], low: float | None, high: float | None,
    shown: Callable[[float], str] = number,
) -> str:  # fmt: skip
    """Return a value with its interval, e.g. 2.3 (1.2 to 3.4), or the values of its trials, e.g. 142 and 219."""
    told = spread(values, low, high, shown)
    if has_interval(values, low, high):
        return f"{shown(measured)} ({told})"
    return told or shown(measured)


def is_certain(row: Estimate) -> bool:
    """Whether the interval of a measured value tells a reader anything."""
    return has_interval([row.measured or 0.0] * row.trials if row.pooled else [*row.values.values()], row.low, row.high)


def line_ends(row: Estimate) -> tuple[float, float]:
    """Return the ends of the line that a picture draws through a measured value: its interval, or its trials."""
    if row.low is not None and row.high is not None and is_certain(row):
        return row.low, row.high
    values = [*row.values.values()]
    assert row.measured is not None
    return min(values, default=row.measured), max(values, default=row.measured)


def claim_values(said: Claim, run: Run, summary: Summary) -> list[float]:
    """Return the value of a claim in each trial; of a claim about a ratio, the ratio in each trial."""
    values = _values(said.value, run, summary)
    if said.relative_to is None:
        return [*values.values()]
    others = _values(said.relative_to, run, summary)
    return [value / others[trial] for trial, value in values.items() if others.get(trial)]


def _values(quantity: Quantity, run: Run, summary: Summary) -> dict[int, float]:
    load = quantity.load or run.loads[0].name
    row = summary.row(quantity.variant, load, quantity.request_class, quantity.metric, quantity.stat)
    return row.values if row else {}


def trials_that_tell(trials: int | None, round_s: float) -> str:
    """Return about how many trials would tell, and how long they take. ``round_s``: a trial of each variant."""
    if trials is None:
        return f"More than {MOST} trials would be needed to tell."
    return f"About {trials} trials ({max(1, round(trials * round_s / 60))} min) would tell: {option('trials', trials)}"

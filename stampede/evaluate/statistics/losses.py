"""What requests lose with each way to serve, and whether one way saves noticeably more than another.

One way is better for a class of requests if its interval lies below the interval of the other way, and it saves more
than 10 % and 5 ms. No way is better if even the ends of the intervals leave no room for such a saving. Between the two,
and after a single trial, there are too few trials to tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from stampede.evaluate.statistics.stopping import LEAST, RESAMPLED_FROM, trials_needed
from stampede.records.summary import Estimate, Summary, suspect_trials

AS_GOOD, AS_GOOD_MS = 1.1, 5
"""Ways count as equally fast if no class of requests loses more than so much more with one of them."""
PERCENTILES = ("p99", "p90", "p50")
"""The percentiles by which ways to serve are compared, the first choice first."""
MORE_FAILURES = 0.01
"""A way is worse for a class if it fails so much more of the requests."""


@dataclass(frozen=True)
class Loss:
    """What the requests of a class lose with one way to serve, in ms, with its interval; ``values`` are the trials'."""

    ms: float
    low: float
    high: float
    values: Sequence[float] = ()


@dataclass(frozen=True)
class Figures:
    """The figures of a summary, by variant, class and statistic. ``loss_metric`` says what requests lose."""

    summary: Summary
    loss_metric: str = "overhead"

    def value(self, variant: str, request_class: str | None, metric: str, stat: str) -> float | None:
        """Return the median over trials; None: it was not measured."""
        row = self.row(variant, request_class, metric, stat)
        return row.median if row else None

    def row(self, variant: str, request_class: str | None, metric: str, stat: str) -> Estimate | None:
        """Return a row of the summary; None: there is none."""
        return self.summary.row(variant, None, request_class, metric, stat)

    def loss(self, variant: str, request_class: str, stat: str) -> Loss | None:
        """Return what the requests of a class lose in the median trial; None: it was not measured.

        Without an interval, the trials' extremes take its place.
        """
        row = self.row(variant, request_class, self.loss_metric, stat)
        if row is None or row.median is None:
            return None
        values = list(row.values.values()) or [row.median]
        low, high = (row.low, row.high) if row.low is not None and row.high is not None else (min(values), max(values))
        return Loss(row.median, low, high, values)

    def classes(self, variant: str) -> list[str]:
        """Return the classes of requests, in order."""
        return self.summary.request_classes(variant)

    def percentile(self, request_class: str, variants: Sequence[str]) -> str | None:
        """Return the highest percentile of a class that was measured of all variants."""
        known = (stat for stat in PERCENTILES if all(self.loss(name, request_class, stat) for name in variants))
        return next(known, None)


@dataclass(frozen=True)
class Comparison:
    """What the requests of a class lose with a way to serve, beside the way that it is compared with."""

    request_class: str
    stat: str
    before: Loss
    after: Loss
    failures: float = 0.0
    """The share of the requests that fail with this way, minus the share that fails with the other way."""

    @property
    def trials(self) -> int:
        """How many trials each way has at least."""
        return min(len(self.before.values), len(self.after.values))

    @property
    def saves(self) -> bool:
        """Whether the way loses noticeably less, if chance is left aside."""
        return saves(self.after.ms, self.before.ms)

    @property
    def outcome(self) -> Literal["better", "worse", "alike", "open"]:
        """Whether the way is better for this class, is worse, saves nothing noticeable, or whether this is open."""
        if self.failures > MORE_FAILURES:
            return "worse"
        if self.trials < LEAST:
            return "open"
        if self.after.high < self.before.low and self.saves:
            return "better"
        if self.before.high < self.after.low and saves(self.before.ms, self.after.ms):
            return "worse"
        return "open" if saves(self.after.low, self.before.high) else "alike"

    @property
    def trials_needed(self) -> int | None:
        """About how many trials decide a comparison that is open; None: more than the lab ever advises."""
        if self.trials < LEAST:
            return RESAMPLED_FROM
        before, after, edge = self.before, self.after, AS_GOOD * self.after.ms + AS_GOOD_MS
        if self.saves or saves(before.ms, after.ms):  # then the intervals must come apart
            middle = sqrt(before.ms * after.ms) if min(before.ms, after.ms) > 0 else (before.ms + after.ms) / 2
            bounds = middle, middle
        else:  # then they must leave no room for a saving
            middle = (before.ms + edge) / 2
            bounds = middle, (middle - AS_GOOD_MS) / AS_GOOD
        needed = [
            trials_needed(self.trials, loss.ms, (loss.low, loss.high), [bound])
            for loss, bound in zip((before, after), bounds, strict=True)
        ]
        return None if None in needed else max(self.trials + 1, *filter(None, needed))


def saves(loss_ms: float, other_ms: float) -> bool:
    """Whether a loss is noticeably smaller than another loss, in ms."""
    return other_ms > AS_GOOD * loss_ms + AS_GOOD_MS


def compare_losses(figures: Figures, before: str, after: str) -> list[Comparison]:
    """Compare two ways for each class of requests of which the same percentile was measured with both of them."""
    found = []
    for request_class in figures.classes(before):
        stat = figures.percentile(request_class, [before, after])
        failed = [figures.value(way, request_class, "failures", "share") or 0.0 for way in (before, after)]
        failures = failed[1] - failed[0]
        if stat is None and failures <= MORE_FAILURES:
            continue
        nothing = Loss(0.0, 0.0, 0.0)
        then, now = ((stat and figures.loss(way, request_class, stat)) or nothing for way in (before, after))
        found.append(Comparison(request_class, stat or "", then, now, failures))
    return found


def suspect_reason(summary: Summary, variants: Sequence[str]) -> str | None:
    """Return how many trials of some variants are suspect, and the main reason of the first; None: no trial is."""
    trials = [trial for trial in summary.trials if trial.variant in variants]
    reasons = (trial.reasons[0] for trial in trials if trial.verdict == "suspect" and trial.reasons)
    return next((f"{suspect_trials(trials)}: {reason}" for reason in reasons), None)

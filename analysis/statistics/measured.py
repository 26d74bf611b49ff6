"""The statistics of a run's trusted trials, and how to look up a quantity in them."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil
from statistics import median
from typing import NamedTuple

import duckdb

from analysis.metrics import (
    FAMILIES,
    METRICS,
    PRINTED,
    bursts,
    failures_allowed,
    percentile,
    rows_needed,
    statistics_of,
    unit,
)
from analysis.metrics.failures import FAILURES
from analysis.metrics.metric import Likely, MetricValues, Stats
from analysis.metrics.simulated import NOTHING, Cell, Predictions
from analysis.metrics.unknown import published_figures, unknown_in_measure, unknown_in_published
from analysis.metrics.visits import VISITS_FAILED
from analysis.read import Key
from analysis.read.rows import by_other_clocks
from analysis.read.trial_data import TrialData
from analysis.records.claims import Published, Quantity
from analysis.records.run import Run
from analysis.records.summary import CompletionTimesRow, Row
from analysis.statistics import intervals
from analysis.statistics.intervals import Draw
from analysis.statistics.stopping import MOST, Interval


class Measured(NamedTuple):
    """The statistics of one cell in one trial; ``answered`` requests of the cell succeeded.

    ``stats`` leaves out statistics that need more requests, or of which too many requests failed. If a metric was
    computed from something other than answered requests, such as visits, ``carried_by`` says from how many. ``likely``
    has the likely values of statistics, as far as they are known. If the trial's containers ran on several machines,
    ``clocks`` has the least and the most of each statistic by other clocks that fit as well.
    """

    trial: int
    answered: int
    stats: Stats
    carried_by: dict[str, int]
    likely: Likely
    clocks: Mapping[tuple[str, str], Interval] = {}

    def draw(self, key: tuple[str, str]) -> Draw:
        """Return the value of a statistic as one draw of chance."""
        return Draw(self.stats[key], self.likely.get(key, ()), self.clocks.get(key))

    def carrying(self, metric: str) -> int:
        """Return how many answered requests, or visits, the statistics of a metric were computed from."""
        return self.carried_by.get(metric, self.answered if METRICS[metric].sample != "visits" else 0)


class Stairs(NamedTuple):
    """The staircase of a variant's bursts under a load: response times in ms, in order of completion.

    ``trials`` is how many trials have each step. ``intervals`` has None for each step that only one trial has.
    """

    measured: Sequence[float] = ()
    intervals: Sequence[Interval | None] = ()
    trials: Sequence[int] = ()


def measure(
    database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData], rejected: Mapping[Key, Container[str]] = {}
) -> dict[Cell, list[Measured]]:
    """Collect the findings of every family in each trial, and return the statistics of every cell.

    ``rejected`` has the classes of request of a trial whose figures are invalid; such a trial is not in their cells.
    """
    cells: dict[Cell, list[Measured]] = {}
    for trial in trials:
        found = [finding for family in FAMILIES for finding in family.measure(database, trial)]
        by_clocks = _by_clocks(database, trial, found)
        variant, load, number = trial.key
        for request_class in trial.requests.names:
            if request_class in rejected.get(trial.key, ()):
                continue
            mine = [finding for finding in found if finding.request_class == request_class]
            measured = Measured(
                trial=number,
                answered=trial.requests.of_class(request_class).answered,
                stats={key: value for finding in mine for key, value in finding.stats.items()},
                carried_by={metric: n for finding in mine for metric, n in finding.carried_by.items()},
                likely={key: values for finding in mine for key, values in finding.likely.items()},
                clocks=by_clocks.get(request_class, {}),
            )
            cells.setdefault((variant, load, request_class), []).append(measured)
    return cells


def _by_clocks(
    database: duckdb.DuckDBPyConnection, trial: TrialData, found: Iterable[MetricValues]
) -> dict[str | None, dict[tuple[str, str], Interval]]:
    """Return the least and the most of each statistic by all clocks that fit, for each class of request.

    Only statistics are there that depend on how the clocks of machines differ.
    """
    if trial.raw.clocks is None:
        return {}
    every = [*found]
    for clocks in trial.raw.clocks.others:
        with by_other_clocks(database, trial.key, clocks) as rows:
            again = [family for family in FAMILIES if any(metric.between_clocks for metric in family.metrics)]
            every += [finding for family in again for finding in family.measure(rows, trial.by(clocks))]
    ends: dict[str | None, dict[tuple[str, str], Interval]] = {}
    for finding in every:
        mine = ends.setdefault(finding.request_class, {})
        for key, value in finding.stats.items():
            if METRICS[key[0]].between_clocks:
                low, high = mine.get(key, (value, value))
                mine[key] = min(low, value), max(high, value)
    return {
        request_class: {key: (low, high) for key, (low, high) in mine.items() if low < high}
        for request_class, mine in ends.items()
    }


def round_s(trials: Sequence[TrialData]) -> float:
    """Return about how many seconds it took to measure every variant once under every load."""
    times = [datetime.fromisoformat(time) for one in trials for time in (one.record.began, one.record.ended)]
    rounds = len({one.record.trial for one in trials})
    return (max(times) - min(times)).total_seconds() / rounds if rounds else 0.0


def staircases(database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData]) -> dict[tuple[str, str], Stairs]:
    """Return the staircases of small bursts by variant and load: medians over trials, with intervals."""
    by_trial: dict[tuple[str, str], list[list[float]]] = {}
    for trial in trials:
        if trial.load.burst and trial.load.has_small_bursts and not trial.load.crashes:
            stairs_ms = bursts.stairs_ms(database, trial.key, trial.load.burst)
            by_trial.setdefault(trial.key[:2], []).append(stairs_ms)
    return {cell: _of_trials(found) for cell, found in by_trial.items()}


def _of_trials(trials: list[list[float]]) -> Stairs:
    """Return the median and the interval of each step over the trials that have the step."""
    most = max(map(len, trials))
    stairs = [[trial[place] for trial in trials if place < len(trial)] for place in range(most)]
    ends = [intervals.of_median([Draw(value) for value in values]) for values in stairs]
    return Stairs([median(values) for values in stairs], ends, [*map(len, stairs)])


class Results:
    """The statistics of a run's trusted trials, and how to look up a quantity in them.

    ``stairs`` has the staircases by variant and load. ``round_s`` is how long it took to measure every variant once.
    """

    def __init__(
        self,
        run: Run,
        cells: dict[Cell, list[Measured]],
        stairs: dict[tuple[str, str], Stairs],
        round_s: float,
        predictions: Predictions = NOTHING,
    ) -> None:
        self.run = run
        self.predictions = predictions
        self.cells = cells
        self.stairs = stairs
        self.round_s = round_s
        self._intervals: dict[tuple[Cell, str, str], Interval | None] = {}

    def values(self, quantity: Quantity) -> list[float]:
        """Return the values of a statistic in all trials that have the statistic, in the metric's unit."""
        return [*self.by_trial(quantity).values()]

    def by_trial(self, quantity: Quantity) -> dict[int, float]:
        """Return the same values by the number of the trial."""
        return {one.trial: one.stats[quantity.metric, quantity.stat] for one in self._carrying(quantity)}

    def measured(self, quantity: Quantity) -> float | None:
        """Return the median over trials, in the metric's unit; None: no trial has the statistic."""
        values = self.values(quantity)
        return median(values) if values else None

    def draws(self, quantity: Quantity) -> list[Draw]:
        """Return the same values, each as one draw of chance."""
        return [one.draw((quantity.metric, quantity.stat)) for one in self._carrying(quantity)]

    def interval(self, quantity: Quantity) -> Interval | None:
        """Return the interval of the median over trials, or of the value of one trial; None: there is no interval."""
        cell = (quantity.variant, self.load_name(quantity.load), quantity.request_class)
        key = cell, quantity.metric, quantity.stat
        if key not in self._intervals:
            found = intervals.of_median(self.draws(quantity))
            if found and unit(quantity.metric, quantity.stat) in ("share", "index"):
                found = found[0], min(found[1], 1.0)
            self._intervals[key] = found
        return self._intervals[key]

    def advice(self, trials: int, needed: int | None) -> str:
        """Return how many trials would decide what ``trials`` trials did not decide, and how long they would take."""
        if needed is None:
            return f"more than {MOST} trials would be needed"
        needed = max(needed, trials + 1)
        return f"about {needed} trials ({ceil(needed * self.round_s / 60)} min) would decide: TRIALS={needed}"

    def sample(self, quantity: Quantity) -> tuple[int, int]:
        """Return how many answered requests, or visits, and how many trials a quantity was computed from."""
        carrying = self._carrying(quantity)
        return sum(one.carrying(quantity.metric) for one in carrying), len(carrying)

    def why_not(self, quantity: Quantity) -> str:
        """Return why no trial has a statistic, although there are trials."""
        cell = self._cell(quantity)
        if not cell:
            return f"no {quantity.request_class or ''} request was answered".replace("  ", " ")
        sample = METRICS[quantity.metric].sample
        of_failures = (VISITS_FAILED if sample == "visits" else FAILURES).name, "share"
        failing = [one.stats[of_failures] for one in cell if of_failures in one.stats]
        if not failing or sample is None:
            return f"nothing was seen that {quantity.metric} could be computed from"
        if max(failing) >= failures_allowed(quantity.stat):
            return f"{max(failing):.1%} of the {sample} failed, too many to leave out of {quantity.stat}"
        needed, counts = rows_needed(quantity.stat), [one.carrying(quantity.metric) for one in cell]
        if min(counts) >= needed:
            return f"nothing was seen that {quantity.metric} could be computed from"
        had = f"there were {max(counts)} at most" if max(counts) < needed else f"one trial had {min(counts)}"
        return f"{quantity.stat} needs {needed} {sample} a trial; {had}"

    def too_few(self) -> Iterator[str]:
        """Yield a sentence for each percentile that a table would show if there were more requests.

        For small bursts, tables show every request, so only published or claimed percentiles are mentioned.
        """
        wanted = {quantity.stat for quantity in self._published() if percentile(quantity.stat)} | {*PRINTED}
        classes = dict.fromkeys((load, request_class) for _, load, request_class in self.cells if request_class)
        for load, request_class in sorted(classes):
            cells = {cell[0]: ones for cell, ones in self.cells.items() if cell[1:] == (load, request_class)}
            counts = {variant: [one.answered for one in ones] for variant, ones in cells.items()}
            counts = {variant: ns for variant, ns in counts.items() if max(ns)}  # else all failed, as the reasons say
            missed = self._spoken_of(load, request_class) if self.run.load(load).has_small_bursts else wanted
            for stat in sorted(missed, key=lambda stat: (rows_needed(stat), stat)):
                needed = rows_needed(stat)
                if lacking := [variant for variant, ns in counts.items() if min(ns) < needed]:
                    which = ", ".join(lacking) if len(lacking) < len(counts) else "any variant"
                    most = max(max(counts[variant]) for variant in lacking)
                    fewest = min(min(counts[variant]) for variant in lacking)
                    yield f"no {stat} of {request_class} requests of {which}: it " + (
                        f"needs {needed} a trial, there were {most} at most" if most < needed else
                        f"needs {needed} in every trial, one trial had {fewest}"
                    )  # fmt: skip
                    break  # higher percentiles need even more requests

    def _spoken_of(self, load: str, request_class: str) -> set[str]:
        """Return the percentiles of one class of request that were published or claimed."""
        quantities = [*self._published(), *(one for claim in self.run.claims for one in claim.quantities)]
        return {
            one.stat
            for one in quantities
            if percentile(one.stat)
            and not unknown_in_measure(one)
            and (self.load_name(one.load), one.request_class) == (load, request_class)
        }

    def _cell(self, quantity: Quantity) -> list[Measured]:
        return self.cells.get((quantity.variant, self.load_name(quantity.load), quantity.request_class), [])

    def _carrying(self, quantity: Quantity) -> list[Measured]:
        """Return the trials that have a statistic; none if a percentile is missing in any trial.

        A closed loop sends fewer requests while requests wait. So the trials with too few requests for a percentile
        are those in which it is the longest, and a median over the other trials would be too short.
        """
        cell = self._cell(quantity)
        carrying = [one for one in cell if (quantity.metric, quantity.stat) in one.stats]
        return [] if percentile(quantity.stat) is not None and len(carrying) < len(cell) else carrying

    def rows(self) -> Iterator[Row]:
        """Yield every quantity that was measured or published, in the experiment's order.

        If nothing was measured at all, yield everything that is predicted, too.
        """
        published = self._published()
        predicted_cells = set() if self.cells else {cell for cell, _, _ in self.predictions.values}
        cells = (
            set(self.cells)
            | predicted_cells
            | {(q.variant, self.load_name(q.load), q.request_class) for q in published}
        )
        variants = [variant.name for variant in self.run.variants]
        loads = [load.name for load in self.run.loads]
        for variant, load, request_class in sorted(
            cells, key=lambda cell: (variants.index(cell[0]), loads.index(cell[1]), cell[2] is None, cell[2] or "")
        ):
            for metric, stat in statistics_of(request_class):
                quantity = Quantity(variant=variant, load=load, request_class=request_class, metric=metric, stat=stat)
                measured = self.measured(quantity)
                predicted = self.predictions.values.get(((variant, load, request_class), metric, stat))
                if measured is None and quantity not in published and (self.cells or not predicted):
                    continue
                n, trials = self.sample(quantity)
                low, high = self.interval(quantity) or (None, None)
                yield Row(
                    variant=variant,
                    load=load,
                    request_class=request_class,
                    metric=metric,
                    stat=stat,
                    unit=unit(metric, stat),
                    published=published.get(quantity),
                    predicted=predicted.median if predicted else None,
                    predicted_low=predicted.low if predicted else None,
                    predicted_high=predicted.high if predicted else None,
                    measured=measured,
                    low=low,
                    high=high,
                    n=n,
                    trials=trials,
                    values=self.by_trial(quantity),
                    by_clocks=self._by_clocks(quantity),
                )

    def _by_clocks(self, quantity: Quantity) -> dict[int, Interval] | None:
        """Return the least and the most of each trial by all clocks that fit; None: clocks make no difference."""
        key = quantity.metric, quantity.stat
        return {one.trial: one.clocks[key] for one in self._carrying(quantity) if key in one.clocks} or None

    def load_name(self, name: str | None) -> str:
        """Return the name of a load; None: the name of the only load."""
        return name or self.run.loads[0].name

    def _published(self) -> dict[Quantity, float]:
        asked = {variant.name for variant in self.run.variants}
        figures: dict[Quantity, float] = {}
        for one in self.run.published:
            if one.variant in asked and not unknown_in_published(self.run, one):
                figures |= self.figures(one)
        return figures

    def figures(self, one: Published) -> dict[Quantity, float]:
        """Return what a source published for one variant, each figure as a quantity of this run."""
        load = self.load_name(one.load)
        return {
            Quantity(
                variant=one.variant, load=load, request_class=one.request_class, metric=one.metric, stat=stat
            ): value
            for stat, value in published_figures(one).items()
        }

    def completion_times_rows(self) -> Iterator[CompletionTimesRow]:
        """Yield every staircase that was measured or published, in the experiment's order."""
        published = {
            (one.variant, self.load_name(one.load)): one.expected_completion_times
            for one in self.run.published
            if one.completion_times and not unknown_in_published(self.run, one)
        }
        for load in self.run.loads:
            for variant in self.run.variants:
                cell = variant.name, load.name
                if load.has_small_bursts and (cell in self.stairs or cell in published):
                    stairs = self.stairs.get(cell, Stairs())
                    yield CompletionTimesRow(
                        variant=variant.name,
                        load=load.name,
                        published=published.get(cell),
                        predicted=[one.median for one in self.predictions.stairs.get(cell, [])] or None,
                        measured=[*stairs.measured],
                        low=[interval[0] for interval in stairs.intervals if interval] or None,
                        high=[interval[1] for interval in stairs.intervals if interval] or None,
                    )

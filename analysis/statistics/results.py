"""The statistics of a run's trusted trials, and how to look up a quantity in them."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import NamedTuple

import duckdb

from analysis.metrics import FAMILIES, METRICS, STATISTICS, bursts, statistics_of, unit
from analysis.metrics.failures import FAILURES
from analysis.metrics.metric import PRINTED, MetricValues, failures_allowed, percentile, rows_needed
from analysis.metrics.simulated import NOTHING, Cell, Predictions
from analysis.metrics.unknown import known_figures
from analysis.metrics.visits import VISITS_FAILED
from analysis.read import Key
from analysis.read.rows import by_other_clocks
from analysis.read.trial_data import TrialData
from analysis.records.claims import Claim, Quantity
from analysis.records.run import Run
from analysis.records.summary import CompletionTimesRow, Row
from analysis.statistics import intervals
from analysis.statistics.intervals import Draw
from analysis.statistics.pooling import Pooled
from analysis.statistics.stopping import Interval


class TrialValues(NamedTuple):
    """The statistics of one cell in one trial, by metric and statistic; ``answered`` requests of the cell succeeded.

    ``draws`` leaves out statistics that need more requests, or of which too many requests failed. If a metric was
    computed from something other than answered requests, such as visits, ``carried_by`` says from how many.
    """

    trial: int
    answered: int
    draws: Mapping[tuple[str, str], Draw]
    carried_by: Mapping[str, int] = {}

    def carrying(self, metric: str) -> int:
        """Return how many answered requests, or visits, the statistics of a metric were computed from."""
        return self.carried_by.get(metric, self.answered if METRICS[metric].sample != "visits" else 0)


Cells = Mapping[Cell, Sequence[TrialValues]]


class CompletionTimes(NamedTuple):
    """The response times of a variant's bursts under a load in ms, in order of completion: medians over trials.

    ``trials`` is how many trials have each request. ``intervals`` has None for each request that only one trial has.
    """

    measured: Sequence[float] = ()
    intervals: Sequence[Interval | None] = ()
    trials: Sequence[int] = ()


def measure_cells(
    database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData], rejected: Mapping[Key, Container[str]] = {}
) -> dict[Cell, list[TrialValues]]:
    """Collect what every family measures in each trial, and return the statistics of every cell.

    ``rejected`` has the classes of request of a trial whose figures are invalid; such a trial is not in their cells.
    """
    cells: dict[Cell, list[TrialValues]] = {}
    for trial in trials:
        measured = [values for family in FAMILIES for values in family.measure(database, trial)]
        clocks = _ends_by_clocks(database, trial, measured)
        variant, load, number = trial.key
        for request_class in trial.requests.names:
            if request_class in rejected.get(trial.key, ()):
                continue
            mine = [values for values in measured if values.request_class == request_class]
            draws = {
                key: Draw(value, values.likely.get(key, ()), clocks.get((request_class, *key)))
                for values in mine
                for key, value in values.stats.items()
            }
            carried_by = {metric: count for values in mine for metric, count in values.carried_by.items()}
            answered = trial.requests.of_class(request_class).answered
            cells.setdefault((variant, load, request_class), []).append(
                TrialValues(number, answered, draws, carried_by)
            )
    return cells


def _ends_by_clocks(
    database: duckdb.DuckDBPyConnection, trial: TrialData, measured: Iterable[MetricValues]
) -> dict[tuple[str | None, str, str], Interval]:
    """Return the least and the most of each statistic by all clocks that fit, as far as they differ."""
    if trial.raw.clocks is None:
        return {}
    every = [*measured]
    for clocks in trial.raw.clocks.others:
        with by_other_clocks(database, trial.key, clocks) as rows:
            again = [family for family in FAMILIES if any(metric.between_clocks for metric in family.metrics)]
            every += [values for family in again for values in family.measure(rows, trial.by(clocks))]
    found: dict[tuple[str | None, str, str], list[float]] = {}
    for values in every:
        for (metric, stat), value in values.stats.items():
            if METRICS[metric].between_clocks:
                found.setdefault((values.request_class, metric, stat), []).append(value)
    return {key: (min(of_key), max(of_key)) for key, of_key in found.items() if min(of_key) < max(of_key)}


def seconds_of_round(trials: Sequence[TrialData]) -> float:
    """Return about how many seconds it took to measure every variant once under every load."""
    times = [datetime.fromisoformat(time) for trial in trials for time in (trial.record.began, trial.record.ended)]
    rounds = len({trial.record.trial for trial in trials})
    return (max(times) - min(times)).total_seconds() / rounds if rounds else 0.0


def completion_times(
    database: duckdb.DuckDBPyConnection, trials: Iterable[TrialData]
) -> dict[tuple[str, str], CompletionTimes]:
    """Return the completion times of small bursts by variant and load."""
    by_trial: dict[tuple[str, str], list[list[float]]] = {}
    for trial in trials:
        if trial.load.burst and trial.load.has_small_bursts and not trial.load.crashes:
            times_ms = bursts.completion_times_ms(database, trial.key, trial.load.burst)
            by_trial.setdefault(trial.key[:2], []).append(times_ms)
    return {cell: _of_trials(found) for cell, found in by_trial.items()}


def _of_trials(trials: list[list[float]]) -> CompletionTimes:
    most = max(map(len, trials))
    times = [[trial[place] for trial in trials if place < len(trial)] for place in range(most)]
    ends = [intervals.of_median([Draw(value) for value in values]) for values in times]
    return CompletionTimes([median(values) for values in times], ends, [*map(len, times)])


class Results:
    """The statistics of a run's trusted trials, and how to look up a quantity in them.

    ``completion_times`` has those of bursts by variant and load. ``pools`` has the percentiles of all trials together,
    which rows and published figures show, and on which no claim rests. ``round_s`` is how long it took to measure every
    variant once. ``known`` says of each published entry what this version knows of it. Quantities name their load.
    """

    def __init__(
        self,
        run: Run,
        cells: Cells,
        completion_times: Mapping[tuple[str, str], CompletionTimes] = {},
        round_s: float = 0.0,
        predictions: Predictions = NOTHING,
        pools: Mapping[tuple[Cell, str, str], Pooled] = {},
    ) -> None:
        self.run = run
        self.predictions = predictions
        self.cells = cells
        self.pools = pools
        self.completion_times = completion_times
        self.round_s = round_s
        variants = {variant.name for variant in run.variants}
        self.known = [known_figures(run, entry) for entry in run.published if entry.variant in variants]
        self._published = {quantity: value for known in self.known for quantity, value in known.figures.items()}
        self._intervals: dict[Quantity, Interval | None] = {}

    def draws(self, quantity: Quantity) -> dict[int, Draw]:
        """Return the values of a statistic by the number of the trial; none if a percentile is missing in any trial.

        A closed loop sends fewer requests while requests wait. So the trials with too few requests for a percentile
        are those in which it is the longest, and a median over the other trials would be too short.
        """
        return {trial.trial: trial.draws[quantity.metric, quantity.stat] for trial in self._carrying(quantity)}

    def values(self, quantity: Quantity) -> dict[int, float]:
        """Return the same values as numbers, in the metric's unit."""
        return {trial: draw.value for trial, draw in self.draws(quantity).items()}

    def median(self, quantity: Quantity) -> float | None:
        """Return the median over trials, in the metric's unit; None: no trial has the statistic."""
        values = self.values(quantity)
        return median(values.values()) if values else None

    def interval(self, quantity: Quantity) -> Interval | None:
        """Return the interval of the median over trials, or of the value of one trial; None: there is no interval."""
        if quantity not in self._intervals:
            found = intervals.of_median([*self.draws(quantity).values()])
            if found and unit(quantity.metric, quantity.stat) in ("share", "index"):
                found = found[0], min(found[1], 1.0)
            self._intervals[quantity] = found
        return self._intervals[quantity]

    def pooled(self, quantity: Quantity) -> Pooled | None:
        """Return a percentile of the requests of all trials together; None: single trials have enough, or all too few.

        No claim rests on it.
        """
        cell = quantity.variant, quantity.load or "", quantity.request_class
        return self.pools.get((cell, quantity.metric, quantity.stat))

    def explain_missing(self, quantity: Quantity) -> str:
        """Return why no trial has a statistic, although there are trials."""
        cell = self._cell(quantity)
        if not cell:
            return f"no {quantity.request_class or ''} request was answered".replace("  ", " ")
        sample = METRICS[quantity.metric].sample
        of_failures = (VISITS_FAILED if sample == "visits" else FAILURES).name, "share"
        failing = [trial.draws[of_failures].value for trial in cell if of_failures in trial.draws]
        nothing = f"nothing was seen that {quantity.metric} could be computed from"
        if not failing or sample is None:
            return nothing
        if max(failing) >= failures_allowed(quantity.stat):
            return f"{max(failing):.1%} of the {sample} failed, too many to leave out of {quantity.stat}"
        needed, counts = rows_needed(quantity.stat), [trial.carrying(quantity.metric) for trial in cell]
        if min(counts) >= needed:
            return nothing
        had = f"there were {max(counts)} at most" if max(counts) < needed else f"one trial had {min(counts)}"
        return f"{quantity.stat} needs {needed} {sample} a trial; {had}"

    def too_few(self) -> Iterator[str]:
        """Yield a sentence for each percentile that a table would show if there were more requests.

        For small bursts, tables show every request, so only published or claimed percentiles are mentioned.
        """
        claimed = [quantity for claim in self.run.claims for quantity in with_loads(self.run, claim).quantities]
        spoken_of = {*self._published, *(each for each in claimed if each.stat in STATISTICS.get(each.metric, ()))}
        percentiles = {quantity for quantity in spoken_of if percentile(quantity.stat)}
        wanted = {quantity.stat for quantity in self._published if percentile(quantity.stat)} | {*PRINTED}
        for load, request_class in sorted(
            {(load, request_class) for _, load, request_class in self.cells if request_class}
        ):
            counts = {cell[0]: [trial.answered for trial in trials]
                      for cell, trials in self.cells.items() if cell[1:] == (load, request_class)}  # fmt: skip
            counts = {variant: ns for variant, ns in counts.items() if max(ns)}  # else all failed, as the reasons say
            if self.run.load(load).has_small_bursts:
                stats = {each.stat for each in percentiles if (each.load, each.request_class) == (load, request_class)}
            else:
                stats = wanted
            for stat in sorted(stats, key=lambda stat: (rows_needed(stat), stat)):
                needed = rows_needed(stat)
                if lacking := [
                    variant for variant, ns in counts.items()
                    if min(ns) < needed and ((variant, load, request_class), "overhead", stat) not in self.pools
                ]:  # fmt: skip
                    which = ", ".join(lacking) if len(lacking) < len(counts) else "any variant"
                    most = max(max(counts[variant]) for variant in lacking)
                    fewest = min(min(counts[variant]) for variant in lacking)
                    yield f"no {stat} of {request_class} requests of {which}: it " + (
                        f"needs {needed} a trial, there were {most} at most" if most < needed else
                        f"needs {needed} in every trial, one trial had {fewest}"
                    )  # fmt: skip
                    break  # higher percentiles need even more requests

    def rows(self) -> Iterator[Row]:
        """Yield every quantity that was measured or published, in the experiment's order.

        If nothing was measured at all, yield everything that is predicted, too.
        """
        cells = {*self.cells, *((each.variant, each.load or "", each.request_class) for each in self._published)}
        if not self.cells:
            cells |= {cell for cell, _, _ in self.predictions.values}
        variants = [variant.name for variant in self.run.variants]
        loads = [load.name for load in self.run.loads]
        for variant, load, request_class in sorted(
            cells, key=lambda cell: (variants.index(cell[0]), loads.index(cell[1]), cell[2] is None, cell[2] or "")
        ):
            for metric, stat in statistics_of(request_class):
                quantity = Quantity(variant=variant, load=load, request_class=request_class, metric=metric, stat=stat)
                if row := self._row(quantity, (variant, load, request_class)):
                    yield row

    def _row(self, quantity: Quantity, cell: Cell) -> Row | None:
        """Return all that is known of a quantity; None: nothing."""
        key = quantity.metric, quantity.stat
        predicted = self.predictions.values.get((cell, *key))
        trials, pooled = self._carrying(quantity), self.pooled(quantity)
        if not (trials or pooled) and quantity not in self._published and (self.cells or not predicted):
            return None
        low, high = self.interval(quantity) or (None, None)
        clocks = {trial.trial: ends for trial in trials if (ends := trial.draws[key].clocks)}
        row = Row(
            **dict(quantity),
            unit=unit(*key),
            published=self._published.get(quantity),
            predicted=predicted.median if predicted else None,
            predicted_low=predicted.low if predicted else None,
            predicted_high=predicted.high if predicted else None,
            measured=self.median(quantity),
            low=low,
            high=high,
            n=sum(trial.carrying(quantity.metric) for trial in trials),
            trials=len(trials),
            values=self.values(quantity),
            by_clocks=clocks or None,
        )
        return row.model_copy(update={**pooled._asdict(), "pooled": True}) if pooled else row

    def completion_times_rows(self) -> Iterator[CompletionTimesRow]:
        """Yield the completion times that were measured or published, in the experiment's order."""
        published = {
            (known.entry.variant, known.entry.load): known.entry.expected_completion_times
            for known in self.known
            if known.entry.completion_times and not known.reason
        }
        for load in self.run.loads:
            for variant in self.run.variants:
                cell = variant.name, load.name
                if load.has_small_bursts and (cell in self.completion_times or cell in published):
                    times = self.completion_times.get(cell, CompletionTimes())
                    yield CompletionTimesRow(
                        variant=variant.name,
                        load=load.name,
                        published=published.get(cell),
                        predicted=[step.median for step in self.predictions.completion_times.get(cell, [])] or None,
                        measured=[*times.measured],
                        low=[interval[0] for interval in times.intervals if interval] or None,
                        high=[interval[1] for interval in times.intervals if interval] or None,
                    )

    def _cell(self, quantity: Quantity) -> Sequence[TrialValues]:
        return self.cells.get((quantity.variant, quantity.load or "", quantity.request_class), ())

    def _carrying(self, quantity: Quantity) -> list[TrialValues]:
        cell = self._cell(quantity)
        carrying = [trial for trial in cell if (quantity.metric, quantity.stat) in trial.draws]
        return [] if percentile(quantity.stat) is not None and len(carrying) < len(cell) else carrying


def with_loads(run: Run, claim: Claim) -> Claim:
    """Return a claim whose quantities name their load, also if the run has only one."""
    update = {"load": claim.value.load or run.loads[0].name}
    value, other = claim.value.model_copy(update=update), claim.relative_to
    if other:
        other = other.model_copy(update={"load": other.load or run.loads[0].name})
    return claim.model_copy(update={"value": value, "relative_to": other})

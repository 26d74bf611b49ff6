"""The statistics of a run's trusted trials, and from them the figure of each quantity that somebody asks for."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from stampede.evaluate.metrics import FAMILIES, METRICS, bursts, statistics_of, unit
from stampede.evaluate.metrics.asked import PublishedFigures
from stampede.evaluate.metrics.failures import FAILURES
from stampede.evaluate.metrics.metric import PRINTED, Family, MetricValues, failures_allowed, percentile, rows_needed
from stampede.evaluate.metrics.simulated import Cell, Predictions
from stampede.evaluate.metrics.visits import VISITS_FAILED
from stampede.evaluate.read import Key
from stampede.evaluate.read.rows import by_other_clocks
from stampede.evaluate.read.trial_data import TrialData
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.intervals import Draw
from stampede.evaluate.statistics.pooling import Pooled, Pools
from stampede.evaluate.statistics.stopping import Interval
from stampede.records.claims import Claim, Quantity
from stampede.records.run import Run

if TYPE_CHECKING:
    import duckdb


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
    database: "duckdb.DuckDBPyConnection",
    trials: Iterable[TrialData],
    rejected: Mapping[Key, Container[str]] = {},
    families: Sequence[Family] = FAMILIES,
) -> dict[Cell, list[TrialValues]]:
    """Collect what every family measures in each trial, and return the statistics of every cell.

    ``rejected`` has the classes of request of a trial whose figures are invalid; such a trial is not in their cells.
    """
    cells: dict[Cell, list[TrialValues]] = {}
    for trial in trials:
        measured = [values for family in families for values in family.measure(database, trial)]
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
    database: "duckdb.DuckDBPyConnection", trial: TrialData, measured: Iterable[MetricValues]
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
    database: "duckdb.DuckDBPyConnection", trials: Iterable[TrialData]
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


class MeasuredFigure(NamedTuple):
    """A quantity over all trusted trials, in the metric's unit.

    ``draws`` has the value of each trial by the number of the trial; none if a percentile is missing in any trial.
    ``n`` is how many answered requests, or visits, the values were computed from. ``interval`` is the interval of the
    median, or of the value of a single trial; None: there is no interval. ``missing`` says why there are no values,
    although there are trials. ``pooled`` is then the percentile of all trials together, on which no claim rests.
    """

    draws: Mapping[int, Draw]
    n: int = 0
    median: float | None = None
    interval: Interval | None = None
    missing: str = ""
    pooled: Pooled | None = None


class Results(NamedTuple):
    """What was measured in a run's trusted trials, and what was published.

    ``figures`` is in the experiment's order. ``published`` has the figures of all published ``entries``.
    ``completion_times`` has those of bursts by variant and load.
    ``round_s`` is how long it took to measure every variant once. Quantities name their load.
    """

    run: Run
    figures: Mapping[Quantity, MeasuredFigure]
    entries: Sequence[PublishedFigures] = ()
    published: Mapping[Quantity, float] = {}
    completion_times: Mapping[tuple[str, str], CompletionTimes] = {}
    round_s: float = 0.0


def too_few(results: Results, cells: Cells, claims: Iterable[Claim], pools: Pools) -> Iterator[str]:
    """Yield a sentence for each percentile that a table would show if there were more requests.

    For small bursts, tables show every request, so only published or claimed percentiles are mentioned.
    """
    spoken_of = {*results.published, *(quantity for claim in claims for quantity in claim.quantities)}
    percentiles = {quantity for quantity in spoken_of if percentile(quantity.stat)}
    printed = {stat for stat in PRINTED if percentile(stat)}
    wanted = {quantity.stat for quantity in results.published if percentile(quantity.stat)} | printed
    for load, request_class in sorted({(load, request_class) for _, load, request_class in cells if request_class}):
        counts = {cell[0]: [trial.answered for trial in trials]
                  for cell, trials in cells.items() if cell[1:] == (load, request_class)}  # fmt: skip
        counts = {variant: ns for variant, ns in counts.items() if max(ns)}  # else all failed, as the reasons say
        if results.run.load(load).has_small_bursts:
            stats = {each.stat for each in percentiles if (each.load, each.request_class) == (load, request_class)}
        else:
            stats = wanted
        for stat in sorted(stats, key=lambda stat: (rows_needed(stat), stat)):
            needed = rows_needed(stat)
            if lacking := [
                variant for variant, ns in counts.items()
                if min(ns) < needed and ((variant, load, request_class), "overhead", stat) not in pools
            ]:  # fmt: skip
                which = ", ".join(lacking) if len(lacking) < len(counts) else "any variant"
                most = max(max(counts[variant]) for variant in lacking)
                fewest = min(min(counts[variant]) for variant in lacking)
                there = f"there {'was' if most == 1 else 'were'} {most} at most"
                yield f"no {stat} of {request_class} requests of {which}: it " + (
                    f"needs {needed} a trial, {there}" if most < needed else
                    f"needs {needed} in every trial, the fewest were {fewest}"
                )  # fmt: skip
                break  # higher percentiles need even more requests


def results_of(
    run: Run,
    cells: Cells,
    claims: Iterable[Claim],
    entries: Sequence[PublishedFigures],
    predictions: Predictions,
    pools: Pools,
    completion_times: Mapping[tuple[str, str], CompletionTimes] = {},
    round_s: float = 0.0,
) -> Results:
    """Return the figure of every quantity that was measured, published, predicted or claimed."""
    published = {quantity: value for _, figures in entries for quantity, value in figures.items()}
    asked = [*published, *(quantity for claim in claims for quantity in claim.quantities)]
    found = {*cells, *map(_cell, published), *(cell for cell, _, _ in predictions.values)}
    variants, loads = [variant.name for variant in run.variants], [load.name for load in run.loads]
    quantities = [
        Quantity(variant=variant, load=load, request_class=request_class, metric=metric, stat=stat)
        for variant, load, request_class in sorted(
            found, key=lambda cell: (variants.index(cell[0]), loads.index(cell[1]), cell[2] is None, cell[2] or "")
        )
        for metric, stat in statistics_of(request_class)
    ]
    figures = figures_of(cells, [*quantities, *asked], pools)
    return Results(run, figures, entries, published, completion_times, round_s)


def figures_of(cells: Cells, quantities: Iterable[Quantity], pools: Pools) -> dict[Quantity, MeasuredFigure]:
    """Return the figure of each quantity, which must name its load."""
    return {quantity: _measured(quantity, cells.get(_cell(quantity), ()), pools) for quantity in quantities}


def _cell(quantity: Quantity) -> Cell:
    return quantity.variant, quantity.load or "", quantity.request_class


def _measured(quantity: Quantity, cell: Sequence[TrialValues], pools: Pools) -> MeasuredFigure:
    """Return the figure of a quantity; a percentile that is missing in any trial has none.

    A closed loop sends fewer requests while requests wait. So the trials with too few requests for a percentile are
    those in which it is the longest, and a median over the other trials would be too short.
    """
    metric, stat = quantity.metric, quantity.stat
    carrying = [trial for trial in cell if (metric, stat) in trial.draws]
    if not carrying or (percentile(stat) is not None and len(carrying) < len(cell)):
        pooled = pools.get((_cell(quantity), metric, stat))
        return MeasuredFigure({}, missing=_explain_missing(quantity, cell), pooled=pooled)
    draws = {trial.trial: trial.draws[metric, stat] for trial in carrying}
    interval = intervals.of_median([*draws.values()])
    if interval and unit(metric, stat) in ("share", "index"):
        interval = interval[0], min(interval[1], 1.0)
    n = sum(trial.carrying(metric) for trial in carrying)
    return MeasuredFigure(draws, n, median(draw.value for draw in draws.values()), interval)


def _explain_missing(quantity: Quantity, cell: Sequence[TrialValues]) -> str:
    """Return why no trial has a statistic, although there are trials."""
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

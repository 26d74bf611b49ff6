"""The statistics of a run's trusted trials, and from them the estimate of each quantity that somebody asks for."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb

from stampede.evaluate.metrics import FAILURES, METRICS, STATISTICS, VISITS_FAILED, bursts, statistics_of, unit
from stampede.evaluate.metrics.by_class import evenness
from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.metrics.metric import Family, MetricValues, Sample, failures_allowed, percentile, rows_needed
from stampede.evaluate.read import Cell, Key
from stampede.evaluate.read.requests import read_requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.intervals import Draw
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import BadRun
from stampede.records.predicted import NOTHING, PredictedRun
from stampede.records.run import Run
from stampede.records.summary import CompletionTimesRow, Estimate, Summary, TrialValidity

Entry = tuple[Published, dict[Quantity, float]]
"""A published entry that names its load, and those of its figures that this lab should measure."""


def claims_of(run: Run) -> list[Claim]:
    """Return the claims of a run with quantities that name their load, also if the run has only one load."""
    return [claim.with_load(run.loads[0].name) for claim in run.claims]


def published_in(run: Run) -> Iterator[Entry]:
    """Yield each published entry for the variants that are part of the run."""
    variants = {variant.name for variant in run.variants}
    for published in run.published:
        if published.variant in variants:
            entry = published.model_copy(update={"load": published.load or run.loads[0].name})
            about = entry.model_dump(include={"variant", "load", "request_class", "metric"})
            yield entry, {Quantity(**about, stat=stat): of for stat, of in comparable_figures(entry).items()}


def comparable_figures(published: Published) -> dict[str, float]:
    """Return the statistics that this lab should measure; for published counts, the statistics of how even they are."""
    return {
        stat: value / published.divided_by if unit(published.metric, stat) == "ms" else value
        for stat, value in (published.stats | evenness(published.counts)).items()
    }


def check_names(run_folder: Path, run: Run, summary: Summary | None = None) -> None:
    """Raise BadRun if a run or its summary names a load that the run does not have, or what nobody measures."""
    named: list[tuple[str | None, str, str | None]] = [
        (each.load, each.metric, each.stat) for claim in run.claims for each in claim.quantities
    ]
    named += [(each.load, each.metric, stat) for each in run.published for stat in each.stats or [None]]
    named += [(None, each.metric, each.stat) for each in (run.curve.values if run.curve else [])]
    if summary:
        named += [(row.load, row.metric, row.stat) for row in summary.rows]
        named += [(row.load, row.metric, None) for row in summary.published]
    loads = {load.name for load in run.loads}
    for load, metric, stat in named:
        if load is not None and load not in loads:
            raise BadRun(f"{run_folder} asks for the load {load}, which the run does not have")
        if metric not in STATISTICS or stat not in (None, *STATISTICS[metric]):
            asked = f"{stat} {metric}" if stat else f"the metric {metric}"
            raise BadRun(f"{run_folder} asks for {asked}, which this version does not measure")


KEPT = 10_000
"""At most so many times of a trial are kept: ten times as many as any percentile needs."""


class TrialValues(NamedTuple):
    """The statistics of one cell in one trial, by metric and statistic; ``answered`` requests of the cell succeeded.

    ``draws`` leaves out statistics that need more requests, or of which too many failed. ``carried_by``: from how many
    visits, and not answered requests, a metric was computed. ``samples`` has the times of each metric of times; None:
    there are more than KEPT.
    """

    trial: int
    answered: int
    draws: Mapping[tuple[str, str], Draw]
    carried_by: Mapping[str, int] = {}
    samples: Mapping[str, Sample | None] = {}

    def carrying(self, metric: str) -> int:
        """Return how many answered requests, or visits, the statistics of a metric were computed from."""
        return self.carried_by.get(metric, self.answered if METRICS[metric].sample != "visits" else 0)


Cells = Mapping[Cell, Sequence[TrialValues]]
Staircases = Mapping[tuple[str, str], Sequence[Sequence[float]]]


class Measured(NamedTuple):
    """What the trials of a run say: the verdicts on all trials, and the statistics of the trusted ones.

    ``pools`` has percentiles of all trials together, where single trials have too few requests. ``staircases`` has the
    response times of a burst in ms, in order of completion, in each trial. ``round_s`` is how long a round took.
    """

    trials: Sequence[TrialValidity] = ()
    cells: Mapping[Cell, Sequence[TrialValues]] = {}
    pools: Mapping[Quantity, Estimate] = {}
    staircases: Mapping[tuple[str, str], Sequence[Sequence[float]]] = {}
    doubts: Sequence[str] = ()
    round_s: float = 0.0


def measure_cells(
    database: duckdb.DuckDBPyConnection,
    trials: Iterable[TrialData],
    rejected: Mapping[Key, Container[str]] = {},
    families: Sequence[Family] = FAMILIES,
) -> Measured:
    """Return the statistics of every cell, and the completion times of small bursts in each trial.

    Classes of a trial whose figures are ``rejected`` have no statistics.
    """
    cells: dict[Cell, list[TrialValues]] = {}
    staircases: dict[tuple[str, str], list[list[float]]] = {}
    for trial in trials:
        requests, load, found = read_requests(database, trial.key), trial.load, list[MetricValues]()
        for family in families:
            found += [*family.measure(requests, trial.variant, load), *family.observe(trial, requests, database)]
        variant, _, number = trial.key
        for request_class in trial.requests.names:
            if request_class in rejected.get(trial.key, ()):
                continue
            mine = [each for each in found if each.request_class == request_class]
            values = TrialValues(
                number,
                trial.requests.of_class(request_class).answered,
                {(each.metric.name, stat): Draw(value, each.likely.get(stat, ()))
                 for each in mine for stat, value in each.stats.items()},
                {each.metric.name: each.carried_by for each in mine if each.carried_by is not None},
                {each.metric.name: each.sample if each.sample.times_ms.size <= KEPT else None
                 for each in mine if each.sample},
            )  # fmt: skip
            cells.setdefault((variant, load.name, request_class), []).append(values)
        if load.burst and load.has_small_bursts and not load.crashes:
            staircases.setdefault((variant, load.name), []).append(bursts.completion_times_ms(requests, load.burst))
    return Measured(cells=cells, staircases=staircases)


class Results(NamedTuple):
    """The estimates of a run in the experiment's order, and what they follow from. Quantities name their load."""

    run: Run
    measured: Measured
    estimates: Mapping[Quantity, Estimate]
    entries: Sequence[Entry] = ()
    staircases: Sequence[CompletionTimesRow] = ()

    @property
    def rows(self) -> list[Estimate]:
        """What was measured or published; if nothing was measured, also what is predicted."""
        every = [*self.estimates.values()]
        measured = any(row.values for row in every)
        return [
            row for row in every
            if row.values or row.pooled or row.published is not None or (not measured and row.predicted is not None)
        ]  # fmt: skip


def estimate_all(run: Run, measured: Measured, predictions: PredictedRun = NOTHING) -> Results:
    """Return the estimate of every quantity that was measured, published, predicted or claimed."""
    claims, entries = claims_of(run), [*published_in(run)]
    published = {quantity: value for _, figures in entries for quantity, value in figures.items()}
    predicted = predictions.figures
    found = {*measured.cells, *map(cell_of, published), *(cell for cell, _, _ in predicted)}
    variants, loads = [variant.name for variant in run.variants], [load.name for load in run.loads]
    quantities = [
        Quantity(variant=variant, load=load, request_class=request_class, metric=metric, stat=stat)
        for variant, load, request_class in sorted(
            found, key=lambda cell: (variants.index(cell[0]), loads.index(cell[1]), cell[2] is None, cell[2] or "")
        )
        for metric, stat in statistics_of(request_class)
    ]
    asked = [*published, *(quantity for claim in claims for quantity in claim.quantities)]
    estimates = {}
    for quantity in dict.fromkeys([*quantities, *asked]):
        figure = predicted.get((cell_of(quantity), quantity.metric, quantity.stat))
        beside: dict[str, float | None] = {"published": published.get(quantity)}
        if figure:
            beside |= {"predicted": figure.median, "predicted_low": figure.low, "predicted_high": figure.high}
        estimates[quantity] = estimate(quantity, measured, beside)
    return Results(run, measured, estimates, entries, [*_staircases(run, entries, measured.staircases, predictions)])


def cell_of(quantity: Quantity) -> Cell:
    """Return the cell of a quantity, which must name its load."""
    return quantity.variant, quantity.load or "", quantity.request_class


def estimate(quantity: Quantity, measured: Measured, beside: Mapping[str, float | None] = {}) -> Estimate:
    """Return the estimate of a quantity, which must name its load; ``beside`` is what was published and predicted.

    A percentile that is missing in any trial has none: a closed loop sends fewer requests while requests wait, so a
    median over the other trials would be too short.
    """
    key = metric, stat = quantity.metric, quantity.stat
    cell, draws = measured.cells.get(cell_of(quantity), ()), draws_of(quantity, measured.cells)
    if not draws and quantity in measured.pools:
        return measured.pools[quantity].model_copy(update=beside)
    values = {trial: draw.value for trial, draw in draws.items()}
    low, high = intervals.of_median([*draws.values()]) or (None, None)
    if high is not None and unit(metric, stat) in ("share", "index"):
        high = min(high, 1.0)
    n = sum(trial.carrying(metric) for trial in cell if draws and key in trial.draws)
    return Estimate(
        **dict(quantity), unit=unit(metric, stat), **({"published": None, "predicted": None} | dict(beside)),
        measured=median(values.values()) if values else None, low=low, high=high, n=n, trials=len(draws), values=values,
    )  # fmt: skip


def draws_of(quantity: Quantity, cells: Cells) -> dict[int, Draw]:
    """Return the value of each trial; none if a percentile is missing in any trial."""
    cell, key = cells.get(cell_of(quantity), ()), (quantity.metric, quantity.stat)
    draws = {trial.trial: trial.draws[key] for trial in cell if key in trial.draws}
    return {} if percentile(quantity.stat) is not None and len(draws) < len(cell) else draws


def explain_missing(quantity: Quantity, cells: Cells) -> str:
    """Return why no trial has a statistic, although there are trials."""
    cell = cells.get(cell_of(quantity), ())
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


def _staircases(
    run: Run, entries: Sequence[Entry], measured: Staircases, predictions: PredictedRun
) -> Iterator[CompletionTimesRow]:
    """Yield the completion times that were measured or published, in the experiment's order: medians over trials."""
    published = {(of.variant, of.load): of.expected_completion_times for of, _ in entries if of.completion_times}
    for load in run.loads:
        for variant in run.variants:
            cell = variant.name, load.name
            if not load.has_small_bursts or not (cell in measured or cell in published):
                continue
            trials = measured.get(cell, ())
            most = max(map(len, trials), default=0)
            steps = [[trial[place] for trial in trials if place < len(trial)] for place in range(most)]
            ends = [intervals.of_median([Draw(value) for value in values]) for values in steps]
            low, high = ([interval[end] for interval in ends if interval] or None for end in (0, 1))
            predicted = [step[0] for step in predictions.completion_times.get(cell, [])] or None
            yield CompletionTimesRow(
                variant=variant.name, load=load.name, published=published.get(cell), predicted=predicted,
                measured=[median(values) for values in steps], low=low, high=high,
            )  # fmt: skip

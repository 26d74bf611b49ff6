"""Requests, claims and published figures to summary.json: the machine-readable result of a run."""

import json
from collections.abc import Iterator
from itertools import groupby
from math import isclose
from pathlib import Path
from statistics import correlation, fmean, median
from typing import Any, Literal, NamedTuple

import duckdb

from analysis import bursts, intervals, visits, waiting
from analysis.intervals import Interval
from analysis.observation import Container, counted_by_worker, database_of, stalls_within
from analysis.quantities import (
    STATISTICS,
    Claim,
    Metric,
    Model,
    Published,
    Quantity,
    Statistic,
    aggregate,
    evenness,
    failures_allowed,
    percentile,
    rows_needed,
    statistics_of,
    unit,
)
from analysis.requests import CLIENT, COLUMNS
from analysis.run_folder import SCHEMA, STAIRS, BadRun, LoadRecord, Run, Trial, read_run, read_trial, write_whole
from analysis.validity import (
    ClassCount,
    Evidence,
    Requests,
    TrialValidity,
    Validity,
    judge_missing,
    judge_run,
    judge_trial,
)

ClaimVerdict = Literal["reproduced", "not reproduced", "undecided", "invalid"]


PRINTED: tuple[Statistic, ...] = ("min", "p50", "p90", "p99")
"""The statistics that a table shows also where nobody published them."""


class Row(Model):
    """One number as published, predicted and measured. ``n`` rows over ``trials`` trials carry the measured one.

    ``request`` is None for all classes together. ``low`` and ``high`` are the 95 % bootstrap interval of the median
    over trials; None: one trial has none.
    """

    variant: str
    load: str
    request: str | None
    metric: Metric
    stat: Statistic
    unit: str
    published: float | None
    predicted: float | None
    measured: float | None
    low: float | None
    high: float | None
    n: int
    trials: int


class WorkerRow(Model):
    """How many requests of one class one worker of one trial answered, and which share of them that is.

    ``connections`` is how many connections brought them; 0 where the server cannot tell.
    """

    variant: str
    load: str
    trial: int
    request: str | None
    worker: str
    requests: int
    share: float
    connections: int


class CounterRow(Model):
    """What one worker of one trial counted itself during the load, by name; a worker that died meanwhile, too."""

    variant: str
    load: str
    trial: int
    worker: str
    counts: dict[str, int]


class ClaimRow(Model):
    """A claim with what was measured for it and the verdict. ``reason`` says why there is no plain answer."""

    says: str
    stat: Statistic
    verdict: ClaimVerdict
    measured: float | None
    low: float | None
    high: float | None
    bound: str
    unit: str
    reason: str | None


class PublishedFigure(Model):
    """One published figure beside the measured one. ``ratio`` is measured divided by published.

    ``stat`` is a statistic, or which request of a burst was answered: 1st, 2nd, 3rd …
    """

    stat: str
    unit: str
    published: float
    measured: float | None
    low: float | None
    high: float | None
    ratio: float | None
    verdict: ClaimVerdict


class PublishedRow(Model):
    """Published figures of one metric with their common verdict. ``reason`` says why there is no plain answer.

    ``steps``: the figures are the response times of a burst in order of completion.
    """

    variant: str
    load: str
    request: str | None
    metric: Metric
    steps: bool = False
    divided_by: float = 1
    within: float
    verdict: ClaimVerdict
    reason: str | None
    figures: list[PublishedFigure]


class StepsRow(Model):
    """The response times of a burst in ms, in order of completion, as published and measured.

    ``low`` and ``high`` are the intervals of the medians over trials; None: one trial has none. They are shorter than
    ``measured`` where a step is of one trial only, because requests failed in the others.
    """

    variant: str
    load: str
    published: list[float] | None
    measured: list[float]
    low: list[float] | None
    high: list[float] | None


class WaveRow(Model):
    """How many requests of one burst a worker began in one wave: while a request that began at once would be served.

    Waves and bursts are counted from 1.
    """

    variant: str
    load: str
    trial: int
    burst: int
    worker: str
    wave: int
    requests: int


class VisitStepRow(Model):
    """How many visits came to one trial while ``per_s`` were due in a second, and how many of them failed.

    Where the rate does not climb a trial has one such row.
    """

    variant: str
    load: str
    trial: int
    per_s: int
    visits: int
    failed: int


class ErrorRow(Model):
    """How many requests of one class failed for one reason in one trial."""

    variant: str
    load: str
    trial: int
    request: str
    error: str
    requests: int


class DifferenceRow(Model):
    """How far two measurements of the same thing differ: b minus a, with the interval of the difference of medians.

    ``smallest`` is the end of the interval that is farther from zero: what is not larger may be chance.
    """

    load: str
    request: str | None
    metric: Metric
    stat: Statistic
    unit: str
    a: float
    b: float
    low: float
    high: float
    smallest: float
    trials: int


class Summary(Model):
    """All results of one run.

    ``published`` has the rows that say how near is near enough, ``differences`` has rows only where a variant was
    measured against itself, ``steps`` and ``waves`` where requests came in bursts, ``visit_steps`` where visits came.
    ``errors`` has why requests of trusted trials failed, the most frequent first.
    """

    experiment: str
    validity: Validity
    trials: list[TrialValidity]
    rows: list[Row]
    workers: list[WorkerRow]
    counters: list[CounterRow]
    claims: list[ClaimRow]
    published: list[PublishedRow]
    differences: list[DifferenceRow]
    steps: list[StepsRow]
    waves: list[WaveRow]
    visit_steps: list[VisitStepRow]
    errors: list[ErrorRow]


Cell = tuple[str, str, str | None]
"""A variant, a load and a class of request; None: all classes."""
Stats = dict[tuple[Metric, Statistic], float]


class Measured(Model):
    """The statistics of one cell in one trial. ``stats`` leaves out those that ``n`` rows cannot carry.

    Those of visits are carried by those that ``came``.
    """

    trial: int
    n: int
    stats: Stats
    came: visits.Count = visits.Count(0, 0)

    def carrying(self, metric: Metric) -> int:
        """Return how many answered requests, or visits, the statistics of a metric were computed from."""
        return {"visit": self.came.succeeded, "visits_failed": self.came.made}.get(metric, self.n)


class Steps(NamedTuple):
    """The steps of a variant under a load, with their intervals as far as there are two trials: see StepsRow."""

    measured: list[float]
    intervals: list[Interval]


def summarise(run_folder: Path, evidence: dict[Path, Evidence]) -> Summary:
    """Compute the summary of a run from its records, the requests.parquet of its trials and what else they show.

    ``evidence`` has an entry for each folder of a trial.
    """
    run = read_run(run_folder)
    folders = list(evidence)
    # Several threads would add up in a different order each time. One adds up in the order of the rows, and takes
    # little longer: what takes long is reading points and drawing.
    with duckdb.connect(config={"threads": 1}) as database:
        files = [str(folder / "requests.parquet") for folder in folders if (folder / "requests.parquet").exists()]
        if files:
            database.read_parquet(files).create_view("requests")
        else:
            database.execute(f"CREATE TABLE requests ({COLUMNS})")
        database.execute(_CLASSES)
        judged = []
        told: dict[bursts.Key, Stats] = {}
        came: dict[bursts.Key, visits.Count] = {}
        rates: dict[bursts.Key, list[int]] = {}
        waited: dict[tuple[Cell, int], Stats] = {}
        counters: list[CounterRow] = []
        for folder, found in evidence.items():
            trial = read_trial(folder)
            if trial.variant not in {one.name for one in run.variants} or trial.load not in {
                one.name for one in run.loads
            }:
                raise BadRun(
                    f"{folder}/trial.json is of {trial.variant} under {trial.load}, which run.json does not know"
                )
            size = run.load(trial.load).burst
            requests = _requests(database, trial, size)
            judged.append(judge_trial(run, trial, requests, found))
            key = trial.variant, trial.load, trial.trial
            told[key] = _told(found.containers) | (bursts.statistics(database, key, size) if size else {})
            came[key] = visits.count(database, key)
            rates[key] = _rates_per_s(run.load(trial.load), trial) if came[key].made else []
            told[key] |= _visited(database, run.load(trial.load), key)
            told[key] |= _written(found.containers, requests.posts)
            counters += _counters(trial, found.containers)
            if judged[-1].verdict != "invalid":
                waited |= _waited(database, run, trial, found.containers)
        judged += judge_missing(run, judged)
        trusted = {(one.variant, one.load, one.trial) for one in judged if one.verdict != "invalid"}
        open_loops = {one.name for one in run.loads if one.loop == "open"}
        workers = [one for one in _workers(database) if (one.variant, one.load, one.trial) in trusted]
        cells: dict[Cell, list[Measured]] = {}
        for (variant, load, request), measured in _cells(database):
            if (variant, load, measured.trial) in trusted:
                mine = [one for one in workers if _is_of(one, variant, load, request, measured.trial)]
                measured.stats.update(_spread(run, mine))
                measured.stats.update(waited.get(((variant, load, request), measured.trial), {}))
                if load in open_loops:  # the time that a user waits is not taken from its next request
                    measured.stats.pop(("throughput", "of_ideal"), None)
                if request is None:
                    measured.stats.update(told[variant, load, measured.trial])
                made = measured.model_copy(update={"came": came[variant, load, measured.trial]})
                cells.setdefault((variant, load, request), []).append(made)
        results = Results(run, cells, _steps(database, run, trusted))
        waves = list(_waves(database, run, trusted))
        visit_steps = list(_visit_steps(database, run, {key: rates[key] for key in rates if key in trusted}))
        errors = list(_errors(database, trusted))
    return Summary(
        experiment=run.experiment,
        validity=judge_run(run, judged, list(results.too_few())),
        trials=judged,
        rows=list(results.rows()),
        workers=workers,
        counters=counters,
        claims=[_verdict(claim, results, judged) for claim in run.claims],
        published=list(_published_rows(results, judged)),
        differences=list(_differences(results)) if run.against_itself else [],
        steps=list(results.steps_rows()),
        waves=waves,
        visit_steps=visit_steps,
        errors=errors,
    )


def write_summary(run_folder: Path, summary: Summary) -> None:
    """Write summary.json, whole or not at all."""
    values = {"schema": SCHEMA, **summary.model_dump(mode="json")}
    write_whole(run_folder / "summary.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def _is_of(row: WorkerRow, variant: str, load: str, request: str | None, trial: int) -> bool:
    return (row.variant, row.load, row.request, row.trial) == (variant, load, request, trial)


def _spread(run: Run, rows: list[WorkerRow]) -> Stats:
    """Return how evenly one trial's requests of one class, and their connections, were spread over the workers.

    Of workers that come and go nobody knows how many were idle: the spread is over those that served something.
    """
    stats: Stats = {}
    if rows:
        variant = run.variant(rows[0].variant)
        idle = [] if variant.elastic else [0] * (variant.workers - len(rows))
        requests, connections = [*(one.requests for one in rows), *idle], [*(one.connections for one in rows), *idle]
        stats |= {("requests_by_worker", stat): value for stat, value in evenness(requests).items()}
        stats |= {("connections_by_worker", stat): value for stat, value in evenness(connections).items()}
        if len(set(requests)) > 1 and len(set(connections)) > 1:
            stats["connections_by_worker", "correlation"] = correlation(requests, connections)
    return stats


def _told(containers: tuple[Container, ...]) -> Stats:
    """Return what the servers of a trial tell of themselves: races for connections, processor time, memory."""
    servers = [
        (one.before, one.after)
        for one in containers
        if one.before and one.after and (one.before.workers or one.after.workers)
    ]
    counts = {
        name: sum(counted_by_worker(containers, name).values())
        for name in ("served", "accepted", "accept_attempts", "accept_failures")
    }
    stats: Stats = {}
    if counts["accepted"]:
        stats["accept_attempts", "per_connection"] = counts["accept_attempts"] / counts["accepted"]
        stats["accept_failures", "per_connection"] = counts["accept_failures"] / counts["accepted"]
    used_s = [after.processor_s - before.processor_s for before, after in servers
              if before.processor_s is not None and after.processor_s is not None]  # fmt: skip
    if used_s and counts["served"]:
        stats["processor", "per_request"] = 1000 * sum(used_s) / counts["served"]
    memory_mib = [after.memory_mib for _, after in servers if after.memory_mib is not None]
    if memory_mib:
        stats["memory", "total"] = sum(memory_mib)
    for one in containers:
        if one.before and one.after and one.before.queued is not None and one.after.queued is not None:
            stats["queued", "count"] = one.after.queued - one.before.queued
    return stats


def _visited(database: duckdb.DuckDBPyConnection, load: LoadRecord, key: bursts.Key) -> Stats:
    """Return what became of a trial's visits, and up to which rate all went well where the rate climbs."""
    stats = visits.statistics(database, key)
    if stats and len(rates := visits.rates_per_s(load.settings, load.duration)) > 1:
        capacity_per_s = visits.capacity_per_s(database, key, rates, float(load.settings["STEP_S"]))
        if capacity_per_s is not None:
            stats["capacity", "per_second"] = capacity_per_s
    return stats


def _written(containers: tuple[Container, ...], posts: visits.Posts) -> Stats:
    """Return what the database of a trial tells: its rows, and how many connections it had at most."""
    after = one.after if (one := database_of(containers)) else None
    if not after or after.rows is None:
        return {}
    rows = visits.written(after.rows, posts)
    stats: Stats = {("rows_written", "count"): rows.rows, ("rows_unreported", "count"): rows.unreported}
    if "connections_max" in after.database:
        stats["database_connections", "max"] = after.database["connections_max"]
    return stats


def _rates_per_s(load: LoadRecord, trial: Trial) -> list[int]:
    """Return how many visits were due in a second of a trial, step by step; nothing where nobody says it."""
    if trial.visits_per_s is not None:
        return [round(trial.visits_per_s)]
    return visits.rates_per_s(load.settings, load.duration)


def _visit_steps(
    database: duckdb.DuckDBPyConnection, run: Run, rates: dict[bursts.Key, list[int]]
) -> Iterator[VisitStepRow]:
    """Yield the steps of each trial of whose visits we know how many were due."""
    for key, due in sorted(rates.items()):
        if due:
            step_s = float(run.load(key[1]).settings.get("STEP_S", 1))
            variant, load, trial = key
            for step in visits.steps(database, key, due, step_s):
                yield VisitStepRow(variant=variant, load=load, trial=trial, **step._asdict())


def _errors(database: duckdb.DuckDBPyConnection, trusted: set[bursts.Key]) -> Iterator[ErrorRow]:
    """Yield why requests failed in the trials that can be trusted, the most frequent reason first."""
    names = list(ErrorRow.model_fields)
    for row in database.execute(_ERRORS).fetchall():
        if row[:3] in trusted:
            yield ErrorRow.model_validate(dict(zip(names, row, strict=True)))


def _waited(
    database: duckdb.DuckDBPyConnection, run: Run, trial: Trial, containers: tuple[Container, ...]
) -> dict[tuple[Cell, int], Stats]:
    """Return who waited in a trial, by class of request: beside a free thread, and after a stall.

    Of workers that are killed and replaced nobody knows how many there were at a time.
    """
    if run.load(trial.load).crashes:
        return {}
    answered = waiting.read_answered(database, trial.variant, trial.load, trial.trial)
    variant = next(one for one in run.variants if one.name == trial.variant)
    by_class: dict[str | None, Stats] = {None: {}}
    if waits := waiting.of_variant(variant, answered):
        of_class = [(name, answered.request == place) for place, name in enumerate(answered.classes)]
        for name, mine in [*of_class, (None, answered.request >= 0)]:
            values = waiting.statistics(waits.beside_s[mine])
            by_class[name] = {("beside_free_thread", stat): value for stat, value in values.items()}
    stalls = stalls_within(containers, answered.first, answered.last_sent)
    if recoveries_s := list(waiting.recoveries_s(answered, stalls)):
        by_class[None]["recovery", "avg"] = 1000 * fmean(recoveries_s)
        by_class[None]["recovery", "max"] = 1000 * max(recoveries_s)
    return {((trial.variant, trial.load, name), trial.trial): stats for name, stats in by_class.items()}


def _steps(database: duckdb.DuckDBPyConnection, run: Run, trusted: set[bursts.Key]) -> dict[tuple[str, str], Steps]:
    """Return the staircases of small bursts by variant and load: medians over trials, with their intervals."""
    by_trial: dict[tuple[str, str], list[list[float]]] = {}
    for key in sorted(trusted):
        load = run.load(key[1])
        if load.burst and load.has_stairs and not load.crashes:
            by_trial.setdefault(key[:2], []).append(bursts.steps_ms(database, key, load.burst))
    return {cell: _of_trials(trials) for cell, trials in by_trial.items()}


def _of_trials(trials: list[list[float]]) -> Steps:
    """Return the median and the interval of each step over the trials that have it."""
    most = max(map(len, trials))
    steps = [[trial[place] for trial in trials if place < len(trial)] for place in range(most)]
    ends = [end for with_it, some in groupby(steps, len) if with_it > 1 for end in intervals.of_medians(list(some))]
    return Steps([median(values) for values in steps], ends)


def _waves(database: duckdb.DuckDBPyConnection, run: Run, trusted: set[bursts.Key]) -> Iterator[WaveRow]:
    """Yield the waves of the first burst of each variant's first trusted trial, where several workers share it."""
    variants, loads = [one.name for one in run.variants], [one.name for one in run.loads]
    firsts = {key[:2]: key for key in sorted(trusted, reverse=True)}
    for variant, load, trial in sorted(firsts.values(), key=lambda key: (variants.index(key[0]), loads.index(key[1]))):
        size = run.load(load).burst
        if not size or run.variant(variant).workers < 2:
            continue
        found = bursts.waves(database, (variant, load, trial), size)
        order = bursts.in_order({worker for worker, _, _ in found})
        for worker, wave, requests in sorted(found, key=lambda row: (order.index(row[0]), row[1])):
            yield WaveRow(variant=variant, load=load, trial=trial, burst=1, worker=worker, wave=wave, requests=requests)


def _counters(trial: Trial, containers: tuple[Container, ...]) -> Iterator[CounterRow]:
    """Yield what each worker of a trial counted, by the order of their names."""
    names = sorted({name for one in containers if one.after for ones in one.after.counts.values() for name in ones})
    by_name = {name: counted_by_worker(containers, name) for name in names}
    for worker in sorted({worker for ones in by_name.values() for worker in ones}):
        counts = {name: ones[worker] for name, ones in by_name.items() if worker in ones}
        yield CounterRow(variant=trial.variant, load=trial.load, trial=trial.trial, worker=worker, counts=counts)


_OF_VISITS: tuple[Metric, ...] = ("visit", "visits_failed")
_OF_NO_TIMES: tuple[Metric, ...] = ("capacity", "rows_written", "rows_unreported", "database_connections")


class Results:
    """The statistics of a run's trusted trials, and how to look one quantity up in them.

    ``steps`` are the staircases by variant and load.
    """

    def __init__(self, run: Run, cells: dict[Cell, list[Measured]], steps: dict[tuple[str, str], Steps]) -> None:
        self.run = run
        self.cells = cells
        self.steps = steps
        self._intervals = {cell: _intervals(trials) for cell, trials in cells.items()}

    def values(self, quantity: Quantity) -> list[float]:
        """Return a statistic of every trial that carries it, in the metric's unit."""
        return [one.stats[quantity.metric, quantity.stat] for one in self._carrying(quantity)]

    def measured(self, quantity: Quantity) -> float | None:
        """Return the median over trials, in the metric's unit; None when no trial carries the statistic."""
        values = self.values(quantity)
        return median(values) if values else None

    def interval(self, quantity: Quantity) -> Interval | tuple[None, None]:
        """Return the interval of the median over trials; None and None for fewer than two trials."""
        cell = (quantity.variant, self.load_name(quantity.load), quantity.request)
        return self._intervals.get(cell, {}).get((quantity.metric, quantity.stat), (None, None))

    def sample(self, quantity: Quantity) -> tuple[int, int]:
        """Return how many answered requests, or visits, in how many trials, a quantity was computed from."""
        carrying = self._carrying(quantity)
        return sum(one.carrying(quantity.metric) for one in carrying), len(carrying)

    def why_not(self, quantity: Quantity) -> str:
        """Return why no trial carries a statistic, although there are trials."""
        cell = self._cell(quantity)
        if not cell:
            return f"no {quantity.request or ''} request was answered".replace("  ", " ")
        whole, failing = "requests", [one.stats["failures", "share"] for one in cell]
        if quantity.metric in _OF_VISITS:
            whole, failing = (
                "visits",
                [one.stats["visits_failed", "share"] for one in cell if ("visits_failed", "share") in one.stats],
            )
        if not failing or quantity.metric in _OF_NO_TIMES:
            return f"nothing was seen that {quantity.metric} could be computed from"
        if max(failing) >= failures_allowed(quantity.stat):
            return f"{max(failing):.1%} of the {whole} failed, too many to leave out of {quantity.stat}"
        needed, most = rows_needed(quantity.stat), max(one.carrying(quantity.metric) for one in cell)
        if most >= needed:
            return f"nothing was seen that {quantity.metric} could be computed from"
        return f"{quantity.stat} needs {needed} {whole} a trial; there were {most} at most"

    def too_few(self) -> Iterator[str]:
        """Yield a sentence for each percentile that a table would show, had there been more requests.

        Of small bursts each request is shown: only percentiles that somebody speaks of are missed.
        """
        wanted = {quantity.stat for quantity in self._published() if percentile(quantity.stat)} | {*PRINTED}
        classes = dict.fromkeys((load, request) for _, load, request in self.cells if request)
        for load, request in sorted(classes):
            most = {
                cell[0]: max(one.n for one in ones) for cell, ones in self.cells.items() if cell[1:] == (load, request)
            }
            missed = self._spoken_of(load, request) if self.run.load(load).has_stairs else wanted
            for stat in sorted(missed, key=lambda stat: (rows_needed(stat), stat)):
                if lacking := [variant for variant, n in most.items() if n < rows_needed(stat)]:
                    which = ", ".join(lacking) if len(lacking) < len(most) else "any variant"
                    yield (
                        f"no {stat} of {request} requests of {which}: it needs {rows_needed(stat)} a trial, "
                        f"there were {max(most[variant] for variant in lacking)} at most"
                    )
                    break  # the percentiles beyond need more still

    def _spoken_of(self, load: str, request: str) -> set[Statistic]:
        """Return the percentiles of one class of request that were published or claimed."""
        quantities = [*self._published(), *(one for claim in self.run.claims for one in claim.quantities)]
        return {
            one.stat
            for one in quantities
            if percentile(one.stat) and (self.load_name(one.load), one.request) == (load, request)
        }

    def _cell(self, quantity: Quantity) -> list[Measured]:
        return self.cells.get((quantity.variant, self.load_name(quantity.load), quantity.request), [])

    def _carrying(self, quantity: Quantity) -> list[Measured]:
        return [one for one in self._cell(quantity) if (quantity.metric, quantity.stat) in one.stats]

    def rows(self) -> Iterator[Row]:
        """Yield every quantity that was measured or published, in the experiment's order."""
        published = self._published()
        cells = set(self.cells) | {(q.variant, self.load_name(q.load), q.request) for q in published}
        variants = [variant.name for variant in self.run.variants]
        loads = [load.name for load in self.run.loads]
        for variant, load, request in sorted(
            cells, key=lambda cell: (variants.index(cell[0]), loads.index(cell[1]), cell[2] is None, cell[2] or "")
        ):
            for metric, stat in statistics_of(request):
                quantity = Quantity(variant=variant, load=load, request=request, metric=metric, stat=stat)
                measured = self.measured(quantity)
                if measured is None and quantity not in published:
                    continue
                n, trials = self.sample(quantity)
                low, high = self.interval(quantity)
                yield Row(
                    variant=variant,
                    load=load,
                    request=request,
                    metric=metric,
                    stat=stat,
                    unit=unit(metric, stat),
                    published=published.get(quantity),
                    predicted=None,
                    measured=measured,
                    low=low,
                    high=high,
                    n=n,
                    trials=trials,
                )

    def load_name(self, name: str | None) -> str:
        """Return the name of a load; of the only one where none is given."""
        return name or self.run.loads[0].name

    def _published(self) -> dict[Quantity, float]:
        asked = {variant.name for variant in self.run.variants}
        figures: dict[Quantity, float] = {}
        for one in self.run.published:
            if one.variant in asked:
                figures |= self.figures(one)
        return figures

    def figures(self, one: Published) -> dict[Quantity, float]:
        """Return what a source printed for one variant, each figure as a quantity of this run."""
        load = self.load_name(one.load)
        return {
            Quantity(variant=one.variant, load=load, request=one.request, metric=one.metric, stat=stat): value
            for stat, value in one.figures_here.items()
        }

    def steps_rows(self) -> Iterator[StepsRow]:
        """Yield every staircase that was measured or published, in the experiment's order."""
        published = {(one.variant, self.load_name(one.load)): one.steps_here for one in self.run.published if one.steps}
        for load in self.run.loads:
            for variant in self.run.variants:
                cell = variant.name, load.name
                if load.has_stairs and (cell in self.steps or cell in published):
                    steps = self.steps.get(cell, Steps([], []))
                    yield StepsRow(
                        variant=variant.name,
                        load=load.name,
                        published=published.get(cell),
                        measured=steps.measured,
                        low=[low for low, _ in steps.intervals] or None,
                        high=[high for _, high in steps.intervals] or None,
                    )


def _intervals(trials: list[Measured]) -> dict[tuple[Metric, Statistic], Interval]:
    """Return the interval of every statistic that two or more trials carry."""
    together: dict[tuple[int, ...], list[tuple[Metric, Statistic]]] = {}
    for key in dict.fromkeys(key for one in trials for key in one.stats):
        carrying = tuple(index for index, one in enumerate(trials) if key in one.stats)
        together.setdefault(carrying, []).append(key)
    return {
        key: interval
        for carrying, keys in together.items()
        if len(carrying) > 1
        for key, interval in zip(
            keys, intervals.of_medians([[trials[index].stats[key] for index in carrying] for key in keys]), strict=True
        )
    }


def _verdict(claim: Claim, results: Results, judged: list[TrialValidity]) -> ClaimRow:
    verdict: ClaimVerdict
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    missing = next((one for one in claim.quantities if results.measured(one) is None), None)
    if missing:
        verdict, reason = _no_verdict(missing, results, judged)
    elif claim.relative_to and not all(results.values(claim.relative_to)):
        verdict, reason = "undecided", f"a trial of {claim.relative_to.variant} has 0, by which nothing can be divided"
    else:
        measured, (low, high) = _claimed(claim, results)
        ends = (low, high) if low is not None and high is not None else (measured,)
        kept = {claim.holds(end) for end in ends}
        verdict = "undecided" if len(kept) > 1 else "reproduced" if kept == {True} else "not reproduced"
        reasons = ["the interval straddles the bound"] if len(kept) > 1 else []
        reasons += _doubts({(one.variant, results.load_name(one.load)) for one in claim.quantities}, judged)
        reason = "; ".join(reasons) or None
    return ClaimRow(
        says=claim.says,
        stat=claim.value.stat,
        verdict=verdict,
        measured=measured,
        low=low,
        high=high,
        bound=claim.bound,
        unit="ratio" if claim.relative_to else unit(claim.value.metric, claim.value.stat),
        reason=reason,
    )


def _doubts(rests_on: set[tuple[str, str]], judged: list[TrialValidity]) -> list[str]:
    """Return why a verdict that rests on these variants under these loads is doubtful, if it is."""
    doubtful = [one for one in judged if (one.variant, one.load) in rests_on and one.verdict == "suspect"]
    return [f"suspect: {doubtful[0].reasons[0]}"] if doubtful else []


def _published_rows(results: Results, judged: list[TrialValidity]) -> Iterator[PublishedRow]:
    """Yield the published rows that say how near is near enough, of the variants that are part of the run."""
    asked = {variant.name for variant in results.run.variants}
    for one in results.run.published:
        if one.within is not None and one.variant in asked:
            yield _published_row(one, one.within, results, judged)


def _published_row(one: Published, within: float, results: Results, judged: list[TrialValidity]) -> PublishedRow:
    load = results.load_name(one.load)
    compared = _published_steps(one, within, results, judged) if one.steps else [
        _published_figure(quantity, value, within, results, judged) for quantity, value in results.figures(one).items()
    ]  # fmt: skip
    figures = [figure for figure, _ in compared]
    reasons = [reason for _, reason in compared if reason]
    if straddling := [figure.stat for figure in figures if figure.verdict == "undecided" and figure.ratio is not None]:
        reasons.append(f"the interval of {', '.join(straddling)} straddles an edge")
    reasons += _doubts({(one.variant, load)}, judged)
    return PublishedRow(
        variant=one.variant,
        load=load,
        request=one.request,
        metric=one.metric,
        steps=bool(one.steps),
        divided_by=one.divided_by,
        within=within,
        verdict=min((figure.verdict for figure in figures), key=_WORST_FIRST.index),
        reason="; ".join(dict.fromkeys(reasons)) or None,
        figures=figures,
    )


_WORST_FIRST: tuple[ClaimVerdict, ...] = ("invalid", "not reproduced", "undecided", "reproduced")


def _published_figure(
    quantity: Quantity, published: float, within: float, results: Results, judged: list[TrialValidity]
) -> tuple[PublishedFigure, str | None]:
    """Return one figure with its verdict, and why nothing was measured for it, if so."""
    measured, of_unit = results.measured(quantity), unit(quantity.metric, quantity.stat)
    if measured is None:
        verdict, reason = _no_verdict(quantity, results, judged)
        return _not_measured(quantity.stat, of_unit, published, verdict), reason
    return _compared(quantity.stat, of_unit, published, measured, results.interval(quantity), within), None


def _published_steps(
    one: Published, within: float, results: Results, judged: list[TrialValidity]
) -> list[tuple[PublishedFigure, str | None]]:
    """Return the steps of one staircase with their verdicts, and why they cannot be compared, if so."""
    load = results.run.load(results.load_name(one.load))
    steps = results.steps.get((one.variant, load.name), Steps([], []))
    if no_verdict := _no_steps(one, load, len(steps.measured), judged):
        verdict, reason = no_verdict
        return [
            (_not_measured(bursts.ordinal(place), "ms", value, verdict), reason)
            for place, value in enumerate(one.steps_here, start=1)
        ]
    ends = [*steps.intervals, *[(None, None)] * len(one.steps)]
    return [
        (_compared(bursts.ordinal(place), "ms", value, measured, interval, within), None)
        for place, (value, measured, interval) in enumerate(zip(one.steps_here, steps.measured, ends), start=1)  # noqa: B905
    ]


def _no_steps(
    one: Published, load: LoadRecord, measured: int, judged: list[TrialValidity]
) -> tuple[ClaimVerdict, str] | None:
    """Return why published steps cannot be compared with so many measured ones; None: they can."""
    if untrusted := _not_trusted(one.variant, load.name, judged):
        return "invalid", untrusted
    if not load.has_stairs:
        return "undecided", f"{load.name} has no bursts of at most {STAIRS} requests"
    if load.burst != len(one.steps):
        return "undecided", f"there were {load.burst} requests in a burst, {len(one.steps)} were published"
    if measured < len(one.steps):
        return "undecided", f"at most {measured} of the {load.burst} requests of a burst were answered"
    return None


def _compared(
    stat: str,
    of_unit: str,
    published: float,
    measured: float,
    interval: tuple[float | None, float | None],
    within: float,
) -> PublishedFigure:
    """Return a published figure with what was measured and how near that is."""
    low, high = interval
    ends = (low, high) if low is not None and high is not None else (measured,)
    sides = {_side(end / published, within) for end in ends}
    return PublishedFigure(
        stat=stat,
        unit=of_unit,
        published=published,
        measured=measured,
        low=low,
        high=high,
        ratio=measured / published,
        verdict="undecided" if len(sides) > 1 else "reproduced" if sides == {"within"} else "not reproduced",
    )


def _not_measured(stat: str, of_unit: str, published: float, verdict: ClaimVerdict) -> PublishedFigure:
    """Return a published figure that nothing was measured for."""
    return PublishedFigure(
        stat=stat, unit=of_unit, published=published, measured=None, low=None, high=None, ratio=None, verdict=verdict
    )


def _side(ratio: float, within: float) -> Literal["below", "within", "above"]:
    """Return where a ratio lies: between 1 / (1 + within) and 1 + within, the edges included, or beyond one of them."""
    edge = 1 + within
    if isclose(ratio, edge) or isclose(ratio, 1 / edge) or 1 / edge < ratio < edge:
        return "within"
    return "above" if ratio > 1 else "below"


def _differences(results: Results) -> Iterator[DifferenceRow]:
    """Yield the differences between the two variants of a run, for every statistic that both carry twice."""
    one, other = (variant.name for variant in results.run.variants)
    for variant, load, request in sorted(results.cells, key=lambda cell: (cell[1], cell[2] is None, cell[2] or "")):
        for metric, stat in statistics_of(request) if variant == one else ():
            quantity = Quantity(variant=one, load=load, request=request, metric=metric, stat=stat)
            a, b = results.values(quantity), results.values(quantity.model_copy(update={"variant": other}))
            if min(len(a), len(b)) < 2:
                continue
            low, high = intervals.of_difference(b, a)
            yield DifferenceRow(
                load=load,
                request=request,
                metric=metric,
                stat=stat,
                unit=unit(metric, stat),
                a=median(a),
                b=median(b),
                low=low,
                high=high,
                smallest=max(abs(low), abs(high)),
                trials=min(len(a), len(b)),
            )


def _claimed(claim: Claim, results: Results) -> tuple[float, Interval | tuple[None, None]]:
    """Return the value that a claim speaks of, and its interval if both sides have two trials or more."""
    value = results.measured(claim.value)
    assert value is not None
    if not claim.relative_to:
        return value, results.interval(claim.value)
    other = results.measured(claim.relative_to)
    assert other
    values, others = results.values(claim.value), results.values(claim.relative_to)
    if min(len(values), len(others)) < 2:
        return value / other, (None, None)
    return value / other, intervals.of_ratio(values, others)


def _no_verdict(quantity: Quantity, results: Results, judged: list[TrialValidity]) -> tuple[ClaimVerdict, str]:
    """Return why a quantity has no value: nothing of its trials can be trusted, or they do not carry it."""
    if untrusted := _not_trusted(quantity.variant, quantity.load, judged):
        return "invalid", untrusted
    return "undecided", results.why_not(quantity)


def _not_trusted(variant: str, load: str | None, judged: list[TrialValidity]) -> str | None:
    """Return why no trial of a variant under a load (None: the only one) can be trusted; None: one can."""
    trials = [one for one in judged if one.variant == variant and load in (None, one.load)]
    if any(one.verdict != "invalid" for one in trials):
        return None
    invalid = [reason for one in trials for reason in one.reasons]
    return f"{variant}: {invalid[0] if invalid else 'not part of this run'}"


_CLASSES = """
CREATE VIEW classes AS
SELECT * FROM requests
UNION ALL BY NAME
SELECT * REPLACE (NULL AS request) FROM requests
"""

_WORKERS = """
SELECT variant, load, trial, request, worker, requests,
    requests / sum(requests) OVER (PARTITION BY variant, load, trial, request) AS share, connections
FROM (SELECT variant, load, trial, request, worker, count(*)::INTEGER AS requests,
          count(DISTINCT connection)::INTEGER AS connections
      FROM classes WHERE error IS NULL GROUP BY ALL)
ORDER BY variant, load, trial, request NULLS LAST, requests, worker
"""

_ERRORS = """
SELECT variant, load, trial, request, error, count(*)::INTEGER AS requests
FROM requests WHERE error IS NOT NULL GROUP BY ALL
ORDER BY requests DESC, variant, load, trial, request, error
"""

# What a user lost is time in which it would have asked: without it the same requests fit into so much less.
_USERS = """
SELECT variant, load, trial, request, 1 - sum(lost_ms) / nullif(sum(span_ms), 0) AS of_ideal
FROM (SELECT variant, load, trial, request, sum(overhead_ms) AS lost_ms,
          epoch_ms(max(answered)) - epoch_ms(min(sent)) AS span_ms
      FROM classes WHERE answered IS NOT NULL
      GROUP BY variant, load, trial, request, generator, split_part(id, '-', 1))
GROUP BY ALL
"""

_CONNECTIONS = """
SELECT variant, load, trial, request, avg(requests) AS requests_by_connection, max(requests) AS most_by_connection
FROM (SELECT variant, load, trial, request, connection, count(*) AS requests
      FROM classes WHERE error IS NULL AND connection IS NOT NULL GROUP BY ALL)
GROUP BY ALL
"""

_SAME_CELL = """
    (classes.variant, classes.load, classes.trial) = ({other}.variant, {other}.load, {other}.trial)
    AND classes.request IS NOT DISTINCT FROM {other}.request
"""

_TIMES: list[tuple[Metric, Statistic]] = [
    (metric, stat) for metric in ("overhead", "response_time") for stat in STATISTICS[metric]
]


def _workers(database: duckdb.DuckDBPyConnection) -> list[WorkerRow]:
    names = list(WorkerRow.model_fields)
    rows = database.execute(_WORKERS).fetchall()
    return [WorkerRow.model_validate(dict(zip(names, row, strict=True))) for row in rows]


def _cells(database: duckdb.DuckDBPyConnection) -> Iterator[tuple[Cell, Measured]]:
    """Yield the statistics of every class of request in every trial, and of all classes together."""
    query = f"""
        WITH users AS ({_USERS}), connections AS ({_CONNECTIONS})
        SELECT classes.variant, classes.load, classes.trial, classes.request,
            count(*) FILTER (WHERE error IS NULL) AS n,
            count(*) FILTER (WHERE error IS NOT NULL) AS failed, count(*) AS sent,
            epoch(max(sent + to_milliseconds(coalesce(duration_ms, 0)))) - epoch(min(sent)) AS seconds,
            any_value(of_ideal), any_value(requests_by_connection), any_value(most_by_connection),
            {", ".join(_time_statistic(metric, stat) for metric, stat in _TIMES)}
        FROM classes LEFT JOIN users ON {_SAME_CELL.format(other="users")}
            LEFT JOIN connections ON {_SAME_CELL.format(other="connections")}
        GROUP BY classes.variant, classes.load, classes.trial, classes.request ORDER BY 1, 2, 3, 4
    """  # noqa: S608  # made of this module's own constants
    for variant, load, trial, request, n, failed, sent, seconds, of_ideal, average, most, *times in database.execute(
        query
    ).fetchall():
        failures = failed / sent
        stats: Stats = {("failures", "share"): failures, ("failures", "count"): failed}
        if n and seconds:
            stats["throughput", "per_second"] = n / seconds
        if of_ideal is not None:
            stats["throughput", "of_ideal"] = of_ideal
        if average is not None:
            stats["requests_by_connection", "avg"] = average
            stats["requests_by_connection", "max"] = most
        for (metric, stat), value in zip(_TIMES, times, strict=True):
            if value is not None and n >= rows_needed(stat) and failures < failures_allowed(stat):
                stats[metric, stat] = value
        yield (variant, load, request), Measured(trial=trial, n=n, stats=stats)


def _time_statistic(metric: Metric, stat: Statistic) -> str:
    column = {"overhead": "overhead_ms", "response_time": "duration_ms"}[metric]
    return f"{aggregate(stat, column)} FILTER (WHERE error IS NULL)"


def _requests(database: duckdb.DuckDBPyConnection, trial: Trial, burst: int | None) -> Requests:
    """Return what the rows of a trial say as a whole; ``burst`` requests of it were sent at once."""
    asked = {"variant": trial.variant, "load": trial.load, "trial": trial.trial}
    of_trial = "FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial)"

    def rows(query: str) -> list[tuple[Any, ...]]:
        return database.execute(query.format(of_trial=of_trial), asked).fetchall()

    [(began, with_status, quickest_ms)] = rows(
        "SELECT epoch(min(sent)), count(*) FILTER (WHERE status > 0), 1000 * min(ended - began) {of_trial}"
    )
    [(direct_sent, direct_with_status)] = rows(
        "SELECT count(*), count(*) FILTER (WHERE status > 0) {of_trial} AND generator = '" + CLIENT + "'"
    )
    [(generators,)] = rows("SELECT count(DISTINCT generator) {of_trial} AND generator <> '" + CLIENT + "'")
    [(in_flight, little)] = rows(_LITTLE)
    return Requests(
        began=began,
        classes=[
            ClassCount(*row)
            for row in rows("SELECT request, count(*), count(error) {of_trial} GROUP BY request ORDER BY request")
        ],
        errors=[
            error
            for (error,) in rows(
                "SELECT error {of_trial} AND error IS NOT NULL GROUP BY error ORDER BY count(*) DESC, error"
            )
        ],
        with_status=with_status,
        by_worker=dict(rows("SELECT worker, count(*) {of_trial} AND error IS NULL GROUP BY worker")),
        in_flight=in_flight,
        little=little,
        quickest_ms=quickest_ms,
        direct_sent=direct_sent,
        direct_with_status=direct_with_status,
        sending=bursts.sending(database, (trial.variant, trial.load, trial.trial), burst) if burst else None,
        generators=generators,
        posts=visits.posts(database, (trial.variant, trial.load, trial.trial)),
    )


# L = lambda W (Little 1961). L from the wall clock, W from k6's own timings, which run on another clock. What k6 itself
# takes for a request between the two, a quarter of a millisecond, counts as part of the response: it is the median's.
# Of a connection that broke k6 does not time the wait.
_LITTLE = """
WITH timed AS (
    SELECT epoch_us(answered) - epoch_us(sent) AS under_way_us,
        1000 * (duration_ms + blocked_ms + connecting_ms) AS response_us, sent, answered
    {of_trial} AND status > 0)
SELECT sum(under_way_us) / any_value(span_us) AS in_flight,
    count(*) / any_value(span_us) * (avg(response_us) + median(under_way_us - response_us)) AS little
FROM timed, (SELECT nullif(max(epoch_us(answered)) - min(epoch_us(sent)), 0) AS span_us FROM timed)
"""

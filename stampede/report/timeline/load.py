"""The timeline of each load: a trial of every variant, and the requests of one variant as other ways serve them."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics import waiting
from stampede.evaluate.read import OF_TRIAL, of_trial
from stampede.evaluate.read.lab_time import clocks_of_hosts
from stampede.evaluate.read.observation import read_containers, stalls_by_lab_clock, stalls_within
from stampede.evaluate.read.rows import COLUMNS
from stampede.predict.options import OPTION_KINDS
from stampede.predict.what_if import can_serve_otherwise, insert_requests, serve_otherwise
from stampede.records.folder import trial_folder
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.drawing import first_trials
from stampede.report.tables import Table
from stampede.report.timeline.trial import (
    NEVER,
    TimelineTrial,
    TrialTimeline,
    read_timeline_trial,
    trial_timeline,
    window,
)
from stampede.report.wording import load_suffix, number

MOST = 20_000
"""At most this many requests of a variant are shown: the requests around the longest wait."""
IN_ALL = 40_000
"""At most this many requests are shown in a report, so that the page stays small."""

COLOURS = ("#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31")
"""The colours of classes of request, which colour-blind eyes can tell apart."""


class LoadTimeline(NamedTuple):
    """The trials of one load. ``pair`` are the places of the two variants that are shown first.

    At most ``most`` requests of each variant are shown. The last of ``trials`` may be ``computed``: the requests of the
    first shown variant, served in other ways.
    """

    load: str
    title: str
    trials: list[TrialTimeline]
    pair: tuple[int, ...]
    classes: list[str]
    asked: dict[str, str]
    most: int

    @property
    def alt(self) -> str:
        """What the timeline shows, in words."""
        return " ".join(f"{self.trials[place].variant}: {self.trials[place].says}." for place in self.pair)

    @property
    def sampled(self) -> bool:
        """Whether any variant has more requests than are shown."""
        return any(trial.window for trial in self.trials)

    @property
    def of_threads(self) -> bool:
        """Whether the rows of every worker are threads."""
        return all(trial.of_threads for trial in self.trials)

    @property
    def knows_free_threads(self) -> bool:
        """Whether it is known for any variant how many threads each of its workers has."""
        return any(trial.blocked is not None for trial in self.trials)

    @property
    def measured(self) -> list[TrialTimeline]:
        """The trials that were measured."""
        return [trial for trial in self.trials if not trial.computed]

    @property
    def colours(self) -> list[tuple[str, str]]:
        """Each class of request with its colour."""
        return [(name, COLOURS[place % len(COLOURS)]) for place, name in enumerate(self.classes)]

    @property
    def table(self) -> Table:
        """A row for each worker: how many requests it served, their longest wait, and how long it was blocked."""
        rows = [
            (trial.variant, worker.name, str(worker.served), _seconds(worker.longest_wait), _seconds(worker.blocked))
            for trial in self.measured
            for worker in trial.workers
        ]
        blocked = "all threads busy while another worker had a free thread"
        head = ("variant", "worker", "requests", "longest wait", blocked)
        return Table("The first trial of each variant that can be trusted", head, rows, words=2)


def _seconds(tenths: int | None) -> str:
    return "–" if tenths is None else f"{number(tenths / 10_000)} s"


def load_timelines(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    run: Run,
    summary: Summary,
    capacity: tuple[int, int] | None = None,
) -> Iterator[LoadTimeline]:
    """Yield the timeline of every load, the load of the first claim first: each variant's first trusted trial.

    The requests of the first variant that is shown are also served in other ways, as theory computes it, by as many
    workers and threads as ``capacity`` has; None: by as many as were measured.
    """
    telling = [(claim.value.variant, claim.value.load) for claim in run.telling_claims]
    for load in sorted(run.loads, key=lambda load: load.name not in [name for _, name in telling[:1]]):
        firsts = first_trials(summary, load.name)
        variants = [variant for variant in run.variants_under(load.name) if variant.name in firsts]
        if not variants:
            continue
        names = [variant.name for variant in variants]
        wanted = [variant for variant, name in telling if name in (None, load.name) and variant in names]
        pair = tuple(names.index(name) for name in [*dict.fromkeys([*wanted, *names])][:2])
        trials = [read_timeline_trial(database, variant, load.name, firsts[variant.name]) for variant in variants]
        first = trials[pair[0]]
        several = first.variant.threads is not None and not first.variant.elastic and first.variant.workers > 1
        enough = len(first.answered.sent_s) > 0 and len(first.rows) <= MOST
        otherwise = several and enough and can_serve_otherwise(first.variant, load)
        most = min(MOST, IN_ALL // ((len(trials) + otherwise * len(OPTION_KINDS)) * len(run.loads)))
        around_s = first.longest_wait_at_s
        shown = [
            trial_timeline(trial, window(trial.rows, most, around_s), _stalls_s(run_folder, summary, trial))
            for trial in trials
        ]
        if otherwise:
            shown += [
                trial_timeline(trial, window(trial.rows, most, around_s), NEVER, computed=True)
                for trial in _served_otherwise(database, first, capacity)
            ]
            computed = [place for place, trial in enumerate(shown) if trial.computed]
            if capacity:  # with a single worker, it would be trivial that no other is free
                pair = 0, next((place for place in computed if len(shown[place].workers) > 1), computed[0])
        title = _title([shown[place] for place in pair]) + (f" ({load.name})" if load_suffix(run, load.name) else "")
        ranges = _service_times_s(trials)
        classes = longest_first({name: high for name, (_, high) in ranges.items()})
        yield LoadTimeline(load.name, title, shown, pair, classes, _in_words(ranges), most)


def longest_first(service_times: Mapping[str, float]) -> list[str]:
    """Return classes in the order of their colours: by the longest service time that a request asks for, or by name.

    So the slowest class is orange, and the next one blue, in every report and on every page.
    """
    return sorted(service_times, key=lambda name: (-service_times[name], name))


def _served_otherwise(
    database: duckdb.DuckDBPyConnection, trial: TimelineTrial, capacity: tuple[int, int] | None
) -> Iterator[TimelineTrial]:
    variant, (_, load, number) = trial.variant, trial.key
    with database.cursor() as again:  # where ``requests`` has only these requests
        again.execute("CREATE SCHEMA again")
        again.execute("SET schema = 'again'")
        again.execute(f"CREATE TABLE again.requests ({COLUMNS})")
        again.execute(f"INSERT INTO again.requests BY NAME FROM main.requests WHERE {OF_TRIAL}", of_trial(trial.key))
        for served in serve_otherwise(trial.answered, *(capacity or (variant.workers, variant.threads or 1))):
            insert_requests(again, variant, served)
            yield read_timeline_trial(again, served.variant(variant), load, number)
        again.execute("DROP SCHEMA again CASCADE")


def _stalls_s(run_folder: Path, summary: Summary, trial: TimelineTrial) -> waiting.Segments:
    """Return when the service that the servers call answered nobody, in epoch seconds of the lab's clock."""
    containers = read_containers(trial_folder(run_folder, *trial.key))
    by_lab_clock = stalls_by_lab_clock(containers, clocks_of_hosts(summary.clocks, trial.key))
    return np.array(stalls_within(by_lab_clock, trial.answered.first, trial.answered.last)).reshape(-1, 2)


def _service_times_s(trials: Iterable[TimelineTrial]) -> dict[str, tuple[float, float]]:
    """Return the least and the most service time that the requests of each class asked for, in seconds."""
    found_ms: dict[str, list[float]] = {}
    for trial in trials:
        for row in trial.rows:
            found_ms.setdefault(row.request_class, []).append(row.service_time_ms)
    return {name: (min(values) / 1000, max(values) / 1000) for name, values in found_ms.items()}


def _in_words(ranges: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return in words how much service time the requests of each class asked for; some classes ask for none."""
    return {
        name: f"{number(high)} s" if high - low < 0.05 * high else f"{number(low)} to {number(high)} s"
        for name, (low, high) in ranges.items()
        if high
    }


def _title(pair: list[TrialTimeline]) -> str:
    """Return what two trials say of requests that waited while another worker had a free thread."""
    parts = [
        f"with {trial.variant}, {trial.avoidable} of {trial.answered} requests"
        + (f", all {trial.avoidable_class}," if trial.avoidable_class else "")
        for trial in pair
        if trial.avoidable
    ]
    if not parts:
        return "Which worker served each request, and which requests waited"
    first, *others = [*parts, *(f"with {trial.variant}, none" for trial in pair if trial.avoidable == 0)]
    rest = "".join(f"; {other}" for other in others)
    return f"{first[0].upper()}{first[1:]} waited while another worker had a free thread{rest}"

"""The timeline of each load: a trial of every variant, and the requests of one variant as other ways serve them."""

from collections.abc import Mapping
from typing import NamedTuple

from stampede.predict.lanes import MOST, LoadLanes
from stampede.predict.options import OPTION_KINDS
from stampede.records.run import Run
from stampede.report.tables import Table
from stampede.report.timeline.trial import TrialTimeline, trial_timeline
from stampede.report.wording import capitalised, load_suffix, number

IN_ALL = 40_000
"""At most this many requests are shown in a report, so that the page stays small."""

COLOURS = ("#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31")
"""The colours of classes of request, which colour-blind eyes can tell apart."""


class LoadTimeline(NamedTuple):
    """The trials of one load. ``pair`` are the places of the two variants that are shown first.

    At most ``most`` requests of each variant are shown. The last of ``trials`` may be ``computed``: the requests of the
    first shown variant, served in other ways. ``asked`` is how much work the requests of a class ask for, ``colours``
    has the classes with their colours, ``alt`` says what the timeline shows.
    """

    load: str
    title: str
    trials: list[TrialTimeline]
    pair: tuple[int, ...]
    asked: dict[str, str]
    most: int
    colours: list[tuple[str, str]]
    alt: str

    @property
    def measured(self) -> list[TrialTimeline]:
        """The trials that were measured."""
        return [trial for trial in self.trials if not trial.computed]

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


def load_timeline(run: Run, lanes: LoadLanes) -> LoadTimeline:
    """Return the timeline of a load."""
    measured = [trial for trial in lanes.trials if not trial.computed]
    ways = len(OPTION_KINDS) if len(measured) < len(lanes.trials) else 0
    most = min(MOST, IN_ALL // ((len(measured) + ways) * len(run.loads)))
    first = lanes.trials[lanes.pair[0]]
    around_s = max(first.rows, key=lambda row: row.waited_s).sent_s if first.rows else 0.0
    shown = [trial_timeline(trial, most, around_s) for trial in lanes.trials]
    service_times_s: dict[str, list[float]] = {}
    for trial in measured:
        for row in trial.rows:
            service_times_s.setdefault(row.request_class, []).append(row.service_time_ms / 1000)
    ranges = {name: (min(times), max(times)) for name, times in service_times_s.items()}
    asked = {
        name: f"{number(high)} s" if high - low < 0.05 * high else f"{number(low)} to {number(high)} s"
        for name, (low, high) in ranges.items()
        if high  # some classes ask for none
    }
    pair = [shown[place] for place in lanes.pair]
    waits = [
        f"with {trial.variant}, {trial.avoidable} of {trial.answered} requests"
        + (f", all {trial.avoidable_class}," if trial.avoidable_class else "")
        for trial in pair
        if trial.avoidable
    ]
    title = "Which worker served each request, and which requests waited"
    if waits:
        others = [*waits[1:], *(f"with {trial.variant}, none" for trial in pair if trial.avoidable == 0)]
        rest = "".join(f"; {other}" for other in others)
        title = f"{capitalised(waits[0])} waited while another worker had a free thread{rest}"
    title += f" ({lanes.load.name})" if load_suffix(run, lanes.load.name) else ""
    classes = longest_first({name: high for name, (_, high) in ranges.items()})
    colours = [(name, COLOURS[place % len(COLOURS)]) for place, name in enumerate(classes)]
    alt = " ".join(f"{trial.variant}: {trial.says}." for trial in pair)
    return LoadTimeline(lanes.load.name, title, shown, lanes.pair, asked, most, colours, alt)


def longest_first(service_times: Mapping[str, float]) -> list[str]:
    """Return classes in the order of their colours: by the longest service time that a request asks for, or by name.

    So the slowest class is orange, and the next one blue, in every report and on every page.
    """
    return sorted(service_times, key=lambda name: (-service_times[name], name))

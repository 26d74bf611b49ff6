"""Which columns decide: the quantities that the claims of an experiment are about, the answer's first."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from stampede.evaluate.metrics import AVOIDABLE_WAIT, FAILURES, METRICS, OVERHEAD, unit
from stampede.evaluate.metrics.metric import percentile
from stampede.records.claims import Measure
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.report.wording import plain_name, unit_suffix

MOST_COLUMNS = 5
_WEIGHTS: dict[str | None, int] = {"answer": 100, "cure": 10, None: 1}
_NEIGHBOURS = ("p50", "p90", "p99")
"""The percentiles that stand beside a percentile that a claim is about."""


class Group(NamedTuple):
    """Columns that share a load (None: the only load), a class of requests and a metric, in the order of ``stats``."""

    load: str | None
    request_class: str | None
    metric: str
    stats: tuple[str, ...]

    def row(self, summary: Summary, variant: str, stat: str) -> Estimate | None:
        """Return the row of a variant and a statistic."""
        return summary.row(variant, self.load, self.request_class, self.metric, stat)

    def title(self, run: Run, *, named: bool = True, stat: str = "") -> str:
        """Return what the columns measure, with the load if there are several; ``named``: with the class, too."""
        units = {unit(self.metric, stat) for stat in self.stats}
        of_unit = unit_suffix(units.pop()) if len(units) == 1 else ""
        called = "avoidable waits" if self.metric == AVOIDABLE_WAIT.name else plain_name(self.metric)
        which = "" if of_unit.endswith("/s") or self.stats == ("share",) else plain_name(stat)
        words = (self.load if len(run.loads) > 1 else "", self.request_class if named else "", called, which)
        return " ".join(filter(None, words)) + (of_unit and f",{of_unit}")


class Lead(NamedTuple):
    """The column that the answer is about: the bar draws it, and its published figures stand beside it."""

    group: Group
    stat: str


def deciding_columns(run: Run, summary: Summary, measures: Sequence[Measure] = ()) -> tuple[list[Group], Lead | None]:
    """Return the columns of the table on the screen, at most ``MOST_COLUMNS``, and the leading column.

    A quantity weighs what its claims weigh, and a percentile brings the usual percentiles with it. The last column is
    only for what answers the question or names a cure. Without claims, the columns are the ``measures`` of an app or,
    without these, the overhead of the most frequent requests and the avoidable waits.
    """
    heaviest = max(run.claims, key=lambda claim: _WEIGHTS[claim.role], default=None)
    if not heaviest and measures:
        groups = [Group(None, measure.request_class, measure.metric, (measure.stat,)) for measure in measures]
        return groups[:MOST_COLUMNS], Lead(groups[0], measures[0].stat)
    if not heaviest:  # the most frequent class of requests under the first load
        load = run.loads[0].name
        rows = [row for row in summary.rows if row.load == load and row.metric == OVERHEAD.name and row.request_class]
        if not rows:
            return [], None
        frequent = max(rows, key=lambda row: row.n).request_class
        groups = [Group(load, frequent, OVERHEAD.name, _NEIGHBOURS), Group(load, None, AVOIDABLE_WAIT.name, ("share",))]
        of_failures = (load, None, FAILURES.name)
        if any(row.measured for row in summary.rows if (row.load, row.request_class, row.metric) == of_failures):
            groups.append(Group(*of_failures, ("share",)))
        return groups, Lead(groups[0], "p99")
    totals: Counter[tuple[str, str | None, str]] = Counter()
    stats: dict[tuple[str, str | None, str], Counter[str]] = {}
    for claim in run.claims:
        for quantity in claim.with_load(run.loads[0].name).quantities:
            place = (quantity.load or "", quantity.request_class, quantity.metric)
            totals[place] += _WEIGHTS[claim.role]
            stats.setdefault(place, Counter())[quantity.stat] += _WEIGHTS[claim.role]
    groups = []
    for place, weight in totals.most_common():
        chosen = {stat for stat, _ in stats[place].most_common(3)}
        if any(percentile(stat) is not None for stat in chosen):
            chosen |= {*_NEIGHBOURS}
        ordered = [stat for stat in METRICS[place[2]].units if stat in chosen]
        room = MOST_COLUMNS - (weight < _WEIGHTS["cure"]) - sum(len(group.stats) for group in groups)
        if room > 0:
            groups.append(Group(*place, tuple(ordered[:room])))
    wanted = heaviest.with_load(run.loads[0].name).value
    leading = (wanted.load, wanted.request_class, wanted.metric)
    return groups, next((Lead(group, wanted.stat) for group in groups if group[:3] == leading), None)

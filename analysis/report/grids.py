"""Tables of results, which the terminal, Markdown and the report print."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from analysis.metrics import METRICS, PRINTED, STATISTICS, TIME_STATISTICS, Metric, MetricName, Statistic, unit
from analysis.metrics.bursts import ordinal
from analysis.records.run import LoadRecord, Run
from analysis.records.summary import DifferenceRow, Row, Summary
from analysis.report.words import divided, number, of_load, of_median, of_requests, percent, whole, words
from analysis.statistics.stopping import has_interval


@dataclass(frozen=True)
class Line:
    """One line of a grid: published, predicted or measured statistics of one variant.

    Below a measured line, there are lines with the ends of the intervals, or a line for each ``trial``.
    """

    variant: str
    word: Literal["published", "predicted", "measured", "low", "high", "trial"]
    values: list[float | None]
    n: int | None
    divided_by: float = 1
    trial: int | None = None

    @property
    def says(self) -> str:
        """The first word of the line; for published figures that were divided, also the divisor."""
        return self.word + divided(self.divided_by) + (f" {self.trial}" if self.trial is not None else "")


@dataclass(frozen=True)
class Grid:
    """A table of what was published and measured for one load, metric and class of request."""

    title: str
    statistics: list[str]
    lines: list[Line]


@dataclass(frozen=True)
class TextGrid:
    """A table of words and numbers; the first ``words`` columns are words."""

    title: str
    head: tuple[str, ...]
    lines: Sequence[tuple[str, ...]]
    words: int = 1


def quantity_grids(run: Run, summary: Summary) -> Iterator[Grid]:
    """Yield the grids of each load, metric by metric, and for each metric the most frequent class of request first.

    There is a grid for everything that was published or claimed, and for the metrics whose declarations say so.
    """
    for load in run.loads:
        rows = [row for row in summary.rows if row.load == load.name]
        frequency = {row.request: row.n for row in sorted(rows, key=lambda row: row.n) if row.metric == "overhead"}
        classes = sorted(frequency, key=lambda name: (name is None, -frequency[name], name or ""))
        claimed = [one for claim in run.claims for one in claim.quantities if one.load in (None, load.name)]
        spoken_of = {(row.metric, row.request) for row in rows if row.published is not None}
        spoken_of |= {(one.metric, one.request) for one in claimed}
        for metric in METRICS.values():
            for request in classes:
                chosen = [row for row in rows if (row.metric, row.request) == (metric.name, request)]
                if chosen and ((metric.name, request) in spoken_of or _is_shown(metric, request, chosen, load)):
                    yield _grid(run, load.name, metric.name, request, chosen)


def _is_shown(metric: Metric, request: str | None, rows: Sequence[Row], load: LoadRecord) -> bool:
    """Whether there is a grid of a metric although nobody has published or claimed its values."""
    if load.crashes or metric.of_all != (request is None):
        return False
    if metric.is_of_times and load.has_few_stairs:  # small bursts have a table of every request instead
        return False
    if metric.shown == "if not 0":
        return any(row.measured for row in rows if row.stat == next(iter(metric.units)))
    return metric.shown == "always"


def visits_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield a table of visits for each load that made visits: failures, times of successful visits, and rows written.

    The figures are medians over trials, but ``visits`` counts the visits of all trials. If the rate does not climb,
    there is a column for the rate; otherwise, if a capacity was found, there is a column for the capacity. If figures
    of a variant were published, they have a line of their own below the variant's line.
    """
    for load in run.loads:
        rows = [row for row in summary.rows if row.load == load.name and row.request is None]
        made = {row.variant: row.n for row in rows if row.metric == "visits_failed"}
        measured = {(row.variant, row.metric, row.stat): row.measured for row in rows}
        published = {(row.variant, row.metric, row.stat): row.published for row in rows if row.published is not None}
        levels = [row for row in summary.visit_steps if row.load == load.name]
        steady = 0 < len(levels) == len({(row.variant, row.trial) for row in levels})
        rate = ["per s"] if steady else ["capacity"] if any(row.metric == "capacity" for row in rows) else []
        lines: list[tuple[str, ...]] = []
        for name in (variant.name for variant in run.variants_under(load.name)):
            failed = measured.get((name, "visits_failed", "share"))
            if failed is None:
                continue
            times = [number(measured.get((name, "visit", stat))) for stat in _VISIT_TIMES]
            written = number(whole("rows", measured.get((name, "rows_written", "count"))))
            due = [row.per_s for row in levels if row.variant == name]
            shown = float(median(due)) if steady and due else measured.get((name, "capacity", "per_second"))
            per_s = [number(whole("visits", shown))] * len(rate)
            lines.append((name, str(made[name]), *per_s, percent(failed), *times, written))
            if any(variant == name for variant, _, _ in published):
                share = published.get((name, "visits_failed", "share"))
                times = [number(published.get((name, "visit", stat))) for stat in _VISIT_TIMES]
                lines.append(("  published", *["–"] * (1 + len(rate)), percent(share) if share else "–", *times, "–"))
        if lines:
            head = ("variant", "visits", *rate, "failed", *_VISIT_TIMES, "rows")
            yield TextGrid(f"Visits, ms{of_load(run, load.name)}{of_median(run)}", head, lines)


_VISIT_TIMES: tuple[Statistic, ...] = ("min", "p50", "avg", "max")


def errors_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield a table of why requests failed under each load, for each variant the most frequent reasons first.

    A count is the median over the trusted trials. A trial in which a reason did not occur counts as zero.
    """
    for load in run.loads:
        lines: list[tuple[str, ...]] = []
        for name in (variant.name for variant in run.variants_under(load.name)):
            trials = [
                one.trial for one in summary.trials if (one.variant, one.load) == (name, load.name)
                and one.verdict != "invalid"
            ]  # fmt: skip
            found: dict[tuple[str, str], dict[int, int]] = {}
            for row in summary.errors:
                if (row.variant, row.load) == (name, load.name):
                    found.setdefault((row.request, row.error), {})[row.trial] = row.requests
            counts = {why: median(by_trial.get(trial, 0) for trial in trials) for why, by_trial in found.items()}
            told = sorted(counts, key=lambda why: (-counts[why], why))
            lines += [(name, *why, number(whole("requests", float(counts[why])))) for why in told[:_ERRORS]]
            if rest := told[_ERRORS:]:
                others = f"{len(rest)} other reason{'s' if len(rest) > 1 else ''}"
                together = float(sum(counts[why] for why in rest))
                lines.append((name, "", others, number(whole("requests", together))))
        if lines:
            head = ("variant", "request", "error", "requests")
            yield TextGrid(f"Why requests failed{of_load(run, load.name)}{of_median(run)}", head, lines, words=3)


_ERRORS = 8
"""The most reasons that are listed for a variant under a load. There may be many, because errors may name ports."""


def stairs_grids(run: Run, summary: Summary) -> Iterator[Grid]:
    """Yield the staircases of each load that has small bursts: when the 1st, 2nd … answer came, in seconds."""
    for load in run.loads:
        rows = [row for row in summary.steps if row.load == load.name]
        if not rows or not load.has_few_stairs or load.crashes:
            continue
        every = [stairs for row in rows for stairs in (row.measured, row.published, row.predicted) if stairs]
        most = max(map(len, every), default=0)
        lines = []
        for row in rows:
            if row.published is not None:
                by = _divided_by(run, row.variant, load.name, "response_time", None, steps=True)
                lines.append(Line(row.variant, "published", _in_seconds(row.published, most), None, by))
            if row.predicted is not None:
                lines.append(Line(row.variant, "predicted", _in_seconds(row.predicted[:most], most), None))
            if row.measured or row.predicted is None:
                lines.append(Line(row.variant, "measured", _in_seconds(row.measured, most), None))
        title = f"Response times in seconds, in order of completion{of_load(run, load.name)}"
        yield Grid(title, [ordinal(place) for place in range(1, most + 1)], lines)


def _in_seconds(stairs_ms: list[float], places: int) -> list[float | None]:
    return [*(stair_ms / 1000 for stair_ms in stairs_ms), *[None] * (places - len(stairs_ms))]


def _divided_by(run: Run, variant: str, load: str, metric: MetricName, request: str | None, *, steps: bool) -> float:
    """Return the number by which the published figures of a line were divided; 1 if they were not."""
    for one in run.published:
        if (one.variant, one.metric, one.request, bool(one.steps)) == (variant, metric, request, steps) and (
            one.load in (None, load)
        ):
            return one.divided_by
    return 1


def telling_differences(summary: Summary) -> list[DifferenceRow]:
    """Return the differences that tables show: overhead, throughput and largest share of each class of request."""
    return [
        row
        for row in summary.differences
        if row.request
        and (
            (row.metric == "overhead" and row.stat in PRINTED)
            or (row.metric, row.stat) in (("throughput", "per_second"), ("requests_by_worker", "largest_share"))
        )
    ]


def _grid(run: Run, load: str, metric: MetricName, request: str | None, rows: list[Row]) -> Grid:
    published = {row.stat for row in rows if row.published is not None}
    of_times = STATISTICS[metric] == TIME_STATISTICS
    statistics = [stat for stat in STATISTICS[metric] if stat in PRINTED or stat in published or not of_times]
    lines = []
    for variant in run.variants_under(load):
        mine = {row.stat: row for row in rows if row.variant == variant.name}
        for word in ("published", "predicted", "measured"):
            values = [
                whole(unit(metric, stat), getattr(mine[stat], word)) if stat in mine else None for stat in statistics
            ]
            measured = word == "measured" and any(row.trials for row in rows)
            if measured or any(value is not None for value in values):
                n = max((row.n for row in mine.values()), default=0) if measured else None
                by = _divided_by(run, variant.name, load, metric, request, steps=False) if word == "published" else 1
                lines.append(Line(variant.name, word, values, n, by))
        lines += _spread(variant.name, statistics, mine)
    units = {stat: unit(metric, stat) for stat in statistics}
    title = of_requests(metric, request)
    only, *others = set(units.values())
    of_unit = f", {only}" if not others and only not in title.split() else ""
    columns = [f"{words(stat)}, ms" if others and units[stat] == "ms" else words(stat) for stat in statistics]
    return Grid(f"{title[0].upper()}{title[1:]}{of_unit}{of_load(run, load)}", columns, lines)


def _spread(variant: str, statistics: Sequence[Statistic], rows: Mapping[Statistic, Row]) -> Iterator[Line]:
    """Yield the lines that show how a variant's measured values vary: the ends of intervals, or the trials' values."""
    certain = {stat: row for stat, row in rows.items() if has_interval([*row.values.values()], row.low, row.high)}
    of_trials = {stat: row for stat, row in rows.items() if stat not in certain and len(row.values) > 1}

    def line(word: Literal["low", "high", "trial"], ends: Mapping[Statistic, float | None], trial: int | None) -> Line:
        values = [whole(unit(rows[stat].metric, stat), ends[stat]) if stat in ends else None for stat in statistics]
        return Line(variant, word, values, None, trial=trial)

    if any(stat in certain for stat in statistics):
        yield line("low", {stat: row.low for stat, row in certain.items()}, None)
        yield line("high", {stat: row.high for stat, row in certain.items()}, None)
    if any(stat in of_trials for stat in statistics):
        for trial in sorted({trial for row in of_trials.values() for trial in row.values}):
            yield line("trial", {stat: row.values.get(trial) for stat, row in of_trials.items()}, trial)

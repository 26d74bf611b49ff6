"""A run's results for a terminal of 80 columns: doubts first, then what was published and measured, then verdicts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.bursts import ordinal
from analysis.quantities import OF_ALL_REQUESTS, STATISTICS, TIME_STATISTICS, Metric, Statistic, unit
from analysis.result import PRINTED, ClaimRow, DifferenceRow, PublishedFigure, PublishedRow, Row, Summary, WorkerRow
from analysis.run_folder import Run

_VERDICT_STYLE = {
    "reproduced": "green",
    "not reproduced": "red",
    "undecided": "yellow",
    "invalid": "magenta",
    "valid": "green",
    "suspect": "yellow",
}


def print_tables(console: Console, run: Run, summary: Summary) -> None:
    """Print the whole result of a run."""
    console.print()
    console.print(Text(run.title, style="bold"))
    console.print(Text(run.question, style="italic"))
    console.print(doubts(summary))
    for grid in quantity_grids(run, summary):
        for part in _parts(grid):
            console.print()
            console.print(quantity_table(part))
    if run.trials > 1:
        console.print(Text(INTERVAL, style="dim"))
    for told in [*visits_grids(run, summary), *errors_grids(run, summary)]:
        console.print()
        console.print(text_table(told))
    for grid in steps_grids(run, summary):
        console.print()
        console.print(steps_table(grid))
    for load in run.loads:
        if any(worker.load == load.name for worker in summary.workers) and run.has_several_workers(load.name):
            console.print()
            console.print(workers_table(run, summary, load.name))
    console.print()
    if summary.differences:
        console.print(differences_table(run, summary))
    else:
        console.print(claims_table(summary))
    if summary.published:
        console.print()
        console.print(published_table(run, summary))


def doubts(summary: Summary) -> RenderableType:
    """Return the run's validity and every reason to doubt it, one line each."""
    verdict = summary.validity.verdict
    valid = sum(trial.verdict == "valid" for trial in summary.trials)
    head = Text.assemble(
        "The measurement is ",
        (verdict, _VERDICT_STYLE[verdict]),
        f": {valid} of {len(summary.trials)} trials are valid.",
    )
    grid = Table.grid(padding=(0, 1))
    for reason in summary.validity.reasons:
        grid.add_row("-", Text(reason))
    return Group(head, grid)


def markdown(run: Run, summary: Summary) -> str:
    """Return what ``print_tables`` prints of claims and figures as tables in Markdown, for a page about the run."""
    doubtful = "".join(f"- {reason}\n" for reason in summary.validity.reasons)
    tables = [f"The measurement is {summary.validity.verdict}.\n\n{doubtful}"]
    if summary.claims:
        rows = [
            [one.says, claim_value(one), claim_interval(one), one.bound, one.verdict, one.reason or ""]
            for one in summary.claims
        ]
        tables.append(_markdown(["claim", "measured", "interval", "bound", "verdict", "reason"], rows))
    if summary.published:
        rows = [[published_what(run, one), published_figures(one), one.verdict] for one in summary.published]
        tables.append(_markdown(["published", "figures", "verdict"], rows))
    for grid in quantity_grids(run, summary):
        lines = [
            [line.variant, line.says, *map(number, line.values), "" if line.n is None else str(line.n)]
            for line in grid.lines
        ]
        tables.append(f"{grid.title}:\n\n{_markdown(['variant', '', *grid.statistics, 'n'], lines)}")
    for told in [*visits_grids(run, summary), *errors_grids(run, summary)]:
        tables.append(f"{told.title}:\n\n{_markdown([*told.head], [list(line) for line in told.lines])}")
    for grid in steps_grids(run, summary):
        lines = [[line.variant, line.says, *map(seconds, line.values)] for line in grid.lines]
        tables.append(f"{grid.title}:\n\n{_markdown(['variant', '', *grid.statistics], lines)}")
    return "\n".join(tables)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a table; what would be taken for markup is escaped."""
    lines = [head, ["---"] * len(head), *([re.sub(r"([\\|*_`<])", r"\\\1", cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@dataclass(frozen=True)
class Line:
    """One line of a grid: the published, predicted or measured statistics of one variant, or an end of the interval."""

    variant: str
    word: Literal["published", "predicted", "measured", "low", "high"]
    values: list[float | None]
    n: int | None
    divided_by: float = 1

    @property
    def says(self) -> str:
        """Its word, and by what published figures were divided."""
        return self.word + divided(self.divided_by)


@dataclass(frozen=True)
class Grid:
    """What was published and measured for one load, metric and class of request, ready to be printed anywhere."""

    title: str
    statistics: list[str]
    lines: list[Line]


@dataclass(frozen=True)
class TextGrid:
    """A table of words and numbers, ready to be printed anywhere; the first ``words`` columns are words."""

    title: str
    head: tuple[str, ...]
    lines: list[tuple[str, ...]]
    words: int = 1


def quantity_grids(run: Run, summary: Summary) -> Iterator[Grid]:
    """Yield the grids of each load: overhead by class of request, frequent ones first, then what is spoken of besides.

    Spoken of is what was published, what a claim is about, who waited beside a free thread wherever somebody did, and
    what a burst took.
    """
    for load in run.loads:
        rows = [row for row in summary.rows if row.load == load.name]
        frequency = {row.request: row.n for row in sorted(rows, key=lambda row: row.n) if row.metric == "overhead"}
        classes = sorted(frequency, key=lambda name: (name is None, -frequency[name], name or ""))
        claimed = [one for claim in run.claims for one in claim.quantities if one.load in (None, load.name)]
        spoken_of = {(row.metric, row.request) for row in rows if row.published is not None}
        spoken_of |= {(one.metric, one.request) for one in claimed}
        spoken_of |= {(row.metric, row.request) for row in rows if row.request and _waited_beside(row)}
        wanted = spoken_of if load.crashes else spoken_of | {("burst", None)}
        if not load.has_few_steps:  # or each request has a number of its own
            wanted |= {("overhead", name) for name in classes if name}
        for metric in STATISTICS:
            for request in classes:
                chosen = [row for row in rows if (row.metric, row.request) == (metric, request)]
                if chosen and (metric, request) in wanted:
                    yield _grid(run, load.name, metric, request, chosen)


def _parts(grid: Grid) -> Iterator[Grid]:
    """Yield a grid in parts that fit a terminal: more columns would leave the names of variants no room."""
    for start in range(0, len(grid.statistics), _COLUMNS):
        part = slice(start, start + _COLUMNS)
        lines = [replace(line, values=line.values[part]) for line in grid.lines]
        told = [line for line in lines if line.word == "measured" or any(value is not None for value in line.values)]
        yield replace(grid, statistics=grid.statistics[part], lines=told)


_COLUMNS = 6


def quantity_table(grid: Grid) -> Table:
    """Return a grid as a table for the terminal."""
    table = _table(grid.title)
    table.add_column("variant", overflow="fold")  # a name may be broken, a number never
    table.add_column("", no_wrap=True)
    for stat in [*grid.statistics, "n"]:
        table.add_column(stat, justify="right", no_wrap=True)
    above = ""
    for line in grid.lines:
        style = "bold" if line.word == "measured" else "dim"
        cells = [Text(number(value), style=style) for value in line.values]
        n = "" if line.n is None else str(line.n)
        name, above = "" if line.variant == above else line.variant, line.variant
        table.add_row(name, Text(line.says, style=style), *cells, n)
    return table


def visits_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield what became of the visits of each load that made some: medians over trials, times of those that succeeded.

    ``visits`` are those of all trials. A rate that does not climb has a column, a capacity that showed has one instead.
    What was published of a variant has a line of its own below it.
    """
    for load in run.loads:
        rows = [row for row in summary.rows if row.load == load.name and row.request is None]
        made = {row.variant: row.n for row in rows if row.metric == "visits_failed"}
        measured = {(row.variant, row.metric, row.stat): row.measured for row in rows}
        published = {(row.variant, row.metric, row.stat): row.published for row in rows if row.published is not None}
        steps = [row for row in summary.visit_steps if row.load == load.name]
        steady = 0 < len(steps) == len({(row.variant, row.trial) for row in steps})
        rate = ["per s"] if steady else ["capacity"] if any(row.metric == "capacity" for row in rows) else []
        lines: list[tuple[str, ...]] = []
        for name in (variant.name for variant in run.variants_under(load.name)):
            failed = measured.get((name, "visits_failed", "share"))
            if failed is None:
                continue
            times = [number(measured.get((name, "visit", stat))) for stat in _VISIT_TIMES]
            written = number(_whole("rows", measured.get((name, "rows_written", "count"))))
            due = [row.per_s for row in steps if row.variant == name]
            shown = float(median(due)) if steady and due else measured.get((name, "capacity", "per_second"))
            per_s = [number(_whole("visits", shown))] * len(rate)
            lines.append((name, str(made[name]), *per_s, percent(failed), *times, written))
            if any(variant == name for variant, _, _ in published):
                share = published.get((name, "visits_failed", "share"))
                times = [number(published.get((name, "visit", stat))) for stat in _VISIT_TIMES]
                lines.append(("  published", *["–"] * (1 + len(rate)), percent(share) if share else "–", *times, "–"))
        if lines:
            head = ("variant", "visits", *rate, "failed", *_VISIT_TIMES, "rows")
            yield TextGrid(f"Visits, ms{of_load(run, load.name)}{_of_median(run)}", head, lines)


_VISIT_TIMES: tuple[Statistic, ...] = ("min", "p50", "avg", "max")


def errors_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield why requests failed under each load, for each variant the most frequent reasons first.

    A count is the median over the trials that can be trusted; a trial without the reason has none of it.
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
            lines += [(name, *why, number(_whole("requests", float(counts[why])))) for why in told[:_ERRORS]]
            if rest := told[_ERRORS:]:
                others = f"{len(rest)} other reason{'s' if len(rest) > 1 else ''}"
                together = float(sum(counts[why] for why in rest))
                lines.append((name, "", others, number(_whole("requests", together))))
        if lines:
            head = ("variant", "request", "error", "requests")
            yield TextGrid(f"Why requests failed{of_load(run, load.name)}{_of_median(run)}", head, lines, words=3)


_ERRORS = 8
"""Of a variant under a load at most so many reasons are told; errors of connections may name ports."""


def _of_median(run: Run) -> str:
    return f", median of {run.trials} trials" if run.trials > 1 else ""


def text_table(grid: TextGrid) -> Table:
    """Return a grid of words and numbers as a table for the terminal; words may be broken anywhere."""
    table = _table(grid.title)
    for place, name in enumerate(grid.head):
        if place < grid.words:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    above = ""
    for name, *cells in grid.lines:
        table.add_row(Text("" if name == above else name), *map(Text, cells))
        above = name
    return table


def steps_grids(run: Run, summary: Summary) -> Iterator[Grid]:
    """Yield the staircases of each load of small bursts: when the 1st, 2nd … request was answered, in seconds."""
    for load in run.loads:
        rows = [row for row in summary.steps if row.load == load.name]
        if not rows or not load.has_few_steps or load.crashes:
            continue
        most = max(len(steps) for row in rows for steps in (row.measured, row.published or []))
        lines = []
        for row in rows:
            if row.published is not None:
                by = _divided_by(run, row.variant, load.name, "response_time", None, steps=True)
                lines.append(Line(row.variant, "published", _in_seconds(row.published, most), None, by))
            lines.append(Line(row.variant, "measured", _in_seconds(row.measured, most), None))
        title = f"Seconds in order of completion{of_load(run, load.name)}"
        yield Grid(title, [ordinal(place) for place in range(1, most + 1)], lines)


def steps_table(grid: Grid) -> Table:
    """Return a grid of steps as a table for the terminal: the steps in one cell, which may be broken anywhere."""
    table = _table(grid.title)
    table.add_column("variant", overflow="fold")
    table.add_column("")
    table.add_column("1st to last")
    above = ""
    for line in grid.lines:
        style = "bold" if line.word == "measured" else "dim"
        steps = "  ".join(seconds(value) for value in line.values if value is not None)
        name, above = "" if line.variant == above else line.variant, line.variant
        table.add_row(name, Text(line.says, style=style), Text(steps or number(None), style=style))
    return table


def seconds(value: float | None) -> str:
    """Return seconds with two decimals."""
    return number(None) if value is None else f"{value:.2f}"


def _in_seconds(steps_ms: list[float], places: int) -> list[float | None]:
    return [*(step_ms / 1000 for step_ms in steps_ms), *[None] * (places - len(steps_ms))]


def workers_table(run: Run, summary: Summary, load: str) -> Table:
    """Return how many requests each worker answered, least first, for each variant and class of request."""
    which = ", first trial" if run.trials > 1 else ""
    table = _table(f"Requests by worker, least first{which}{of_load(run, load)}")
    table.add_column("variant")
    table.add_column("request")
    table.add_column("published")
    table.add_column("measured")
    published = {
        (one.variant, one.request): sorted(one.counts)
        for one in run.published
        if one.counts and one.load in (None, load)
    }
    for variant in run.variants:
        measured = [one for one in summary.workers if one.variant == variant.name and one.load == load and one.request]
        for request in sorted({one.request or "" for one in measured}):
            rows = [one for one in measured if one.request == request]
            counts = counts_by_worker(rows, 0 if variant.elastic else variant.workers)
            table.add_row(
                variant.name,
                request,
                " ".join(map(str, published.get((variant.name, request), []))),
                " ".join(map(str, counts)),
            )
    return table


def counts_by_worker(rows: list[WorkerRow], workers: int) -> list[int]:
    """Return the requests per worker in the first trial of ``rows``, least first, idle workers as zeros."""
    first = min(row.trial for row in rows)
    counts = sorted(row.requests for row in rows if row.trial == first)
    return [0] * (workers - len(counts)) + counts


def claims_table(summary: Summary) -> RenderableType:
    """Return the claims with what was measured and the verdicts."""
    if not summary.claims:
        return Text("This experiment makes no claims.")
    table = _table("Claims")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    for claim in summary.claims:
        says = claim.says + (f" — {claim.reason}" if claim.reason else "")
        table.add_row(
            Text(claim.verdict, style=_VERDICT_STYLE[claim.verdict]),
            Text(says),
            claim_value(claim) + (f"\n{claim_interval(claim)}" if claim.low is not None else ""),
            claim.bound + (f" {claim.unit}" if claim.unit == "ms" else ""),
        )
    return Group(table, Text(MEANING, style="dim"))


def published_table(run: Run, summary: Summary) -> RenderableType:
    """Return the published rows that have a verdict, and which of their figures are off."""
    table = _table("Published figures")
    table.add_column("verdict", no_wrap=True)
    table.add_column("what")
    table.add_column("figures")
    for row in summary.published:
        of_row = published_what(run, row) + (f" — {row.reason}" if row.reason else "")
        table.add_row(Text(row.verdict, style=_VERDICT_STYLE[row.verdict]), Text(of_row), Text(published_figures(row)))
    return Group(table, Text(WITHIN, style="dim"))


def published_what(run: Run, row: PublishedRow) -> str:
    """Return what a published row is about in words."""
    steps = ", in order of completion" if row.steps else ""
    by = f", published{divided(row.divided_by)}" if row.divided_by != 1 else ""
    return f"{row.variant}{of_load(run, row.load)}: {of_requests(row.metric, row.request)}{steps}{by}"


def divided(by: float) -> str:
    """Return what is added to the word for a published figure that was divided; nothing where it was not."""
    return "" if by == 1 else f" ÷ {by:g}"


def _divided_by(run: Run, variant: str, load: str, metric: Metric, request: str | None, *, steps: bool) -> float:
    """Return what the published figures of a line were divided by."""
    for one in run.published:
        if (one.variant, one.metric, one.request, bool(one.steps)) == (variant, metric, request, steps) and (
            one.load in (None, load)
        ):
            return one.divided_by
    return 1


def published_figures(row: PublishedRow) -> str:
    """Return how many figures of a published row are as near as stated, and how far off each of the others is."""
    off = ", ".join(f"{words(one.stat)} {_ratio(one)}" for one in row.figures if one.verdict != "reproduced")
    near = sum(one.verdict == "reproduced" for one in row.figures)
    return f"{near} of {len(row.figures)} within {100 * row.within:g} %" + (f": {off}" if off else "")


def _ratio(figure: PublishedFigure) -> str:
    """Return measured divided by published; of an undecided figure also the ends of its interval."""
    if figure.ratio is None:
        return number(None)
    ratio = _ratio_number(figure.ratio)
    if figure.verdict != "undecided" or figure.low is None or figure.high is None:
        return ratio
    low, high = figure.low / figure.published, figure.high / figure.published
    return f"{ratio} ({_ratio_number(low)} to {_ratio_number(high)})"


def _ratio_number(value: float) -> str:
    """Return a ratio with the digits that tell it from 1, however small it is."""
    return number(value) if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def telling_differences(summary: Summary) -> list[DifferenceRow]:
    """Return the differences that a table shows: of the printed statistics, class by class."""
    return [
        row
        for row in summary.differences
        if row.request
        and (
            (row.metric == "overhead" and row.stat in PRINTED)
            or (row.metric, row.stat) in (("throughput", "per_second"), ("requests_by_worker", "largest_share"))
        )
    ]


def what(row: DifferenceRow) -> str:
    """Return the quantity in words, with its unit."""
    return f"{words(row.metric)} {words(row.stat)}, {row.unit}"


def differences_table(run: Run, summary: Summary) -> RenderableType:
    """Return how far a variant differs from itself, and so which difference is more than chance."""
    table = _table("The smallest difference that this machine can tell")
    table.add_column("request")
    table.add_column("what")
    for name in ("a", "b", "b - a", "smallest"):
        table.add_column(name, justify="right")
    for row in telling_differences(summary):
        values = number(row.a), number(row.b), f"{number(row.low)} to {number(row.high)}", number(row.smallest)
        table.add_row(f"{row.request}{of_load(run, row.load)}", what(row), *values)
    return Group(table, Text(SMALLEST, style="dim"))


SMALLEST = "b - a: 95 % interval of the difference; what is not larger than the smallest may be chance"
MEANING = "reproduced: the measured value keeps the bound; it need not equal what was published"
WITHIN = (
    "reproduced: every figure, with its interval, is within that share of the published one; "
    "behind a statistic stands measured / published"
)
INTERVAL = "low and high: 95 % bootstrap interval of the median over trials"


def claim_value(claim: ClaimRow) -> str:
    """Return what was measured for a claim, with its statistic and unit."""
    if claim.measured is None:
        return number(None)
    if claim.unit in ("share", "ratio", "index"):
        return number(claim.measured)
    stat = f"{claim.stat} " if claim.stat in TIME_STATISTICS else ""
    return f"{stat}{number(_whole(claim.unit, claim.measured))} {claim.unit}"


def claim_interval(claim: ClaimRow) -> str:
    """Return the interval of what was measured for a claim, e.g. 1.2 to 3.4; empty for one trial."""
    return "" if claim.low is None else f"{number(claim.low)} to {number(claim.high)}"


def number(value: float | None) -> str:
    """Return a value with the digits that matter: none after the point from 100 on, two below 1; a whole one as is."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _grid(run: Run, load: str, metric: Metric, request: str | None, rows: list[Row]) -> Grid:
    published = {row.stat for row in rows if row.published is not None}
    of_times = STATISTICS[metric] == TIME_STATISTICS
    statistics = [stat for stat in STATISTICS[metric] if stat in PRINTED or stat in published or not of_times]
    lines = []
    for variant in run.variants_under(load):
        mine = {row.stat: row for row in rows if row.variant == variant.name}
        for word in ("published", "predicted", "measured", "low", "high"):
            values = [
                _whole(unit(metric, stat), getattr(mine[stat], word)) if stat in mine else None for stat in statistics
            ]
            if word == "measured" or any(value is not None for value in values):
                n = max((row.n for row in mine.values()), default=0) if word == "measured" else None
                by = _divided_by(run, variant.name, load, metric, request, steps=False) if word == "published" else 1
                lines.append(Line(variant.name, word, values, n, by))
    units = {stat: unit(metric, stat) for stat in statistics}
    title = of_requests(metric, request)
    only, *others = set(units.values())
    of_unit = f", {only}" if not others and only not in title.split() else ""
    columns = [f"{words(stat)}, ms" if others and units[stat] == "ms" else words(stat) for stat in statistics]
    return Grid(f"{title[0].upper()}{title[1:]}{of_unit}{of_load(run, load)}", columns, lines)


def _whole(of_unit: str, value: float | None) -> float | None:
    """Return a count as the whole number that it is; the median of several trials, or an average, may be none."""
    counted = of_unit in ("requests", "visits", "rows", "connections")
    return int(value) if counted and value is not None and value.is_integer() else value


def percent(share: float) -> str:
    """Return a share in percent, with the digits that tell it from nothing."""
    return f"{share:.1%}" if share == 0 or share >= 0.0005 else "< 0.1%"


def _waited_beside(row: Row) -> bool:
    return (row.metric, row.stat) == ("beside_free_thread", "count") and bool(row.measured)


def words(name: str) -> str:
    """Return the name of a metric or statistic as people write it."""
    return name.replace("_", " ")


def of_requests(metric: Metric, request: str | None) -> str:
    """Return a metric with the class of request that it is of, where it knows classes."""
    if metric in OF_ALL_REQUESTS:
        return words(metric)
    of = f"of {request or 'all'} requests"
    return f"waits {of} beside a free thread" if metric == "beside_free_thread" else f"{words(metric)} {of}"


def of_load(run: Run, load: str) -> str:
    """Return what a title adds to say which load it is about: nothing where there is one."""
    return f", {load}" if len(run.loads) > 1 else ""


def _table(title: str) -> Table:
    return Table(
        title=Text(title), box=None, title_justify="left", title_style="bold", header_style="dim", pad_edge=False
    )

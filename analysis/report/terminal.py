"""A run's results on a terminal of 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.records.run import Run
from analysis.records.summary import ClaimRow, PublishedRow, Summary, WorkerRow
from analysis.report.grids import (
    Grid,
    TextGrid,
    errors_grids,
    quantity_grids,
    stairs_grids,
    telling_differences,
    visits_grids,
)
from analysis.report.section import Section
from analysis.report.spread import INTERVAL, claim_spread
from analysis.report.words import (
    MEANING,
    POWER,
    SMALLEST,
    WITHIN,
    certainty,
    claim_value,
    number,
    of_load,
    published_figures,
    published_what,
    seconds,
    trials_and_time,
    verdict_of,
    what,
)
from analysis.verdict.claims import lacking

_VERDICT_STYLE = {
    "reproduced": "green",
    "not reproduced": "red",
    "undecided": "yellow",
    "invalid": "magenta",
    "valid": "green",
    "suspect": "yellow",
}


def print_tables(console: Console, run: Run, summary: Summary, sections: Sequence[Section] = ()) -> None:
    """Print the whole result of a run. ``sections`` are what an app adds."""
    console.print()
    console.print(Text(run.title, style="bold"))
    console.print(Text(run.question, style="italic"))
    console.print(doubts(summary))
    for grid in quantity_grids(run, summary):
        for part in _parts(grid):
            console.print()
            console.print(quantity_table(part))
    console.print(Text(INTERVAL, style="dim"))
    for told in [*visits_grids(run, summary), *errors_grids(run, summary)]:
        console.print()
        console.print(text_table(told))
    for grid in stairs_grids(run, summary):
        console.print()
        console.print(stairs_table(grid))
    for load in run.loads:
        if any(worker.load == load.name for worker in summary.workers) and run.has_several_workers(load.name):
            console.print()
            console.print(workers_table(run, summary, load.name))
    console.print()
    if summary.differences:
        console.print(differences_table(run, summary))
    elif sections:
        _print_sections(console, sections)
    else:
        console.print(claims_table(run, summary))
    if summary.published:
        console.print()
        console.print(published_table(run, summary))


def _print_sections(console: Console, sections: Sequence[Section]) -> None:
    for section in sections:
        console.print(Text(section.title, style="bold"))
        console.print()
        answers = Table.grid(padding=(0, 1))
        for sentence in section.answers:
            answers.add_row("-", Text(sentence))
        console.print(answers)
        for grid in section.tables:
            console.print()
            console.print(text_table(grid))


def print_predicted(console: Console, run: Run, summary: Summary) -> None:
    """Print what theory predicts of a run, beside what was published, and what theory cannot predict."""
    console.print()
    console.print(Text(run.title, style="bold"))
    console.print(Text(run.question, style="italic"))
    for grid in quantity_grids(run, summary):
        for part in _parts(grid):
            console.print()
            console.print(quantity_table(part))
    for grid in stairs_grids(run, summary):
        console.print()
        console.print(stairs_table(grid))
    if summary.not_predicted:
        console.print()
        console.print(not_predicted_table(run, summary))


def not_predicted_table(run: Run, summary: Summary) -> Table:
    """Return which variants theory cannot predict, and which mechanism is missing."""
    table = _table("Without a prediction")
    table.add_column("variant", overflow="fold")
    table.add_column("because theory lacks")
    for row in summary.not_predicted:
        table.add_row(f"{row.variant}{of_load(run, row.load)}", row.missing)
    return table


def doubts(summary: Summary) -> RenderableType:
    """Return the run's validity and every reason to doubt it, one line each."""
    verdict = summary.validity.verdict
    valid = sum(trial.verdict == "valid" for trial in summary.trials)
    head = Text.assemble(
        "The measurement is ",
        (verdict, _VERDICT_STYLE.get(verdict, "")),
        f": {valid} of {len(summary.trials)} trials are valid.",
    )
    grid = Table.grid(padding=(0, 1))
    for reason in summary.validity.reasons:
        grid.add_row("-", Text(reason))
    return Group(head, grid)


def _parts(grid: Grid) -> Iterator[Grid]:
    """Yield a grid in parts that fit a terminal and leave room for the names of variants."""
    for start in range(0, len(grid.statistics), _COLUMNS):
        part = slice(start, start + _COLUMNS)
        lines = [replace(line, values=line.values[part]) for line in grid.lines]
        told = [line for line in lines if line.n is not None or any(value is not None for value in line.values)]
        yield replace(grid, statistics=grid.statistics[part], lines=told)


_COLUMNS = 6


def quantity_table(grid: Grid) -> Table:
    """Return a grid as a table for the terminal."""
    table = _table(grid.title)
    table.add_column("variant", overflow="fold")  # names may wrap, numbers may not
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


def text_table(grid: TextGrid) -> Table:
    """Return a grid of words and numbers as a table for the terminal; words may wrap anywhere."""
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


def stairs_table(grid: Grid) -> Table:
    """Return a staircase as a table for the terminal; all its steps are in one cell, which may wrap."""
    table = _table(grid.title)
    table.add_column("variant", overflow="fold")
    table.add_column("")
    table.add_column("1st to last")
    above = ""
    for line in grid.lines:
        style = "bold" if line.word == "measured" else "dim"
        stairs = "  ".join(seconds(value) for value in line.values if value is not None)
        name, above = "" if line.variant == above else line.variant, line.variant
        table.add_row(name, Text(line.says, style=style), Text(stairs or number(None), style=style))
    return table


def workers_table(run: Run, summary: Summary, load: str) -> Table:
    """Return how many requests each worker answered, the smallest number first, by variant and class of request."""
    which = f", mean of {run.trials} trials" if run.trials > 1 else ""
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
    """Return the requests per worker, the smallest number first; idle workers count as zero.

    Of several trials, return means, rounded to whole requests: of the least busy workers of all trials, and so on.
    """
    by_trial: dict[int, list[int]] = {}
    for row in rows:
        by_trial.setdefault(row.trial, []).append(row.requests)
    most = max(workers, *map(len, by_trial.values()))
    ranked = [[0] * (most - len(counts)) + sorted(counts) for counts in by_trial.values()]
    return [round(mean(counts)) for counts in zip(*ranked, strict=True)]


def _verdict(row: ClaimRow | PublishedRow) -> Text:
    """Return a verdict in two lines and in the colour of doubt if it rests on a suspect trial."""
    style = _VERDICT_STYLE.get("suspect" if row.suspect else row.verdict, "")
    return Text(verdict_of(row).replace(", ", ",\n"), style=style)


def claims_table(run: Run, summary: Summary) -> RenderableType:
    """Return the claims with their measured values and verdicts."""
    if not summary.claims:
        return Text("This experiment makes no claims.")
    table = _table("Claims")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    for said, claim in zip(run.claims, summary.claims, strict=True):
        spread = claim_spread(said, claim, run, summary)
        says = claim.says + (f" — {claim.reason}" if claim.reason else "")
        table.add_row(
            _verdict(claim),
            Text(says),
            claim_value(claim) + (f"\n{spread}" if spread else ""),
            claim.bound + (f" {claim.unit}" if claim.unit == "ms" else ""),
        )
    return Group(table, Text(MEANING, style="dim"))


def power_table(run: Run, summary: Summary) -> RenderableType:
    """Return about how many trials each claim needs for a verdict, and how long these trials take."""
    table = _table("Trials that decide")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    for name in ("measured", "bound", "trials", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for said, claim in zip(run.claims, summary.claims, strict=True):
        few = lacking(said, run)
        table.add_row(
            _verdict(claim),
            Text(claim.says + (f" — {few}" if few else "")),
            claim_value(claim),
            claim.bound,
            *(("–", "–") if few else trials_and_time(claim, summary.round_s)),
        )
    return Group(table, Text(POWER, style="dim"))


def published_table(run: Run, summary: Summary) -> RenderableType:
    """Return the published rows that have a verdict, and their figures that were not reproduced."""
    table = _table("Published figures")
    table.add_column("verdict", no_wrap=True)
    table.add_column("what")
    table.add_column("figures")
    for row in summary.published:
        of_row = published_what(run, row) + (f" — {row.reason}" if row.reason else "")
        table.add_row(_verdict(row), Text(of_row), Text(published_figures(row)))
    return Group(table, Text(WITHIN, style="dim"))


def differences_table(run: Run, summary: Summary) -> RenderableType:
    """Return how far two measurements of one variant differ; larger differences between variants are not chance."""
    table = _table("The smallest difference that this machine can tell")
    table.add_column("request")
    table.add_column("what")
    for name in ("a", "b", "b - a", "smallest"):
        table.add_column(name, justify="right")
    for row in telling_differences(summary):
        table.add_row(
            f"{row.request}{of_load(run, row.load)}", what(row), number(row.a), number(row.b), *certainty(row)
        )
    return Group(table, Text(SMALLEST, style="dim"))


def _table(title: str) -> Table:
    return Table(
        title=Text(title), box=None, title_justify="left", title_style="bold", header_style="dim", pad_edge=False
    )

"""A run's results as tables in Markdown, for a page about it."""

import re

from analysis.records.run import Run
from analysis.records.summary import Summary
from analysis.report.grids import TextGrid, errors_grids, quantity_grids, stairs_grids, visits_grids
from analysis.report.spread import claim_spread
from analysis.report.words import (
    claim_value,
    number,
    published_figures,
    published_what,
    seconds,
    verdict_of,
)


def markdown(run: Run, summary: Summary) -> str:
    """Return the claims and figures that ``print_tables`` prints, as tables in Markdown."""
    doubtful = "".join(f"- {reason}\n" for reason in summary.validity.reasons)
    tables = [f"The measurement is {summary.validity.verdict}.\n\n{doubtful}"]
    if summary.claims:
        rows = [
            [one.says, claim_value(one), claim_spread(said, one, run, summary), one.bound, verdict_of(one),
             one.reason or ""]
            for said, one in zip(run.claims, summary.claims, strict=True)
        ]  # fmt: skip
        tables.append(table(["claim", "measured", "interval", "bound", "verdict", "reason"], rows))
    if summary.published:
        rows = [[published_what(run, one), published_figures(one), verdict_of(one)] for one in summary.published]
        tables.append(table(["published", "figures", "verdict"], rows))
    for grid in quantity_grids(run, summary):
        lines = [
            [line.variant, line.says, *map(number, line.values), "" if line.n is None else str(line.n)]
            for line in grid.lines
        ]
        tables.append(f"{grid.title}:\n\n{table(['variant', '', *grid.statistics, 'n'], lines)}")
    for told in [*visits_grids(run, summary), *errors_grids(run, summary)]:
        tables.append(of_grid(told))
    for grid in stairs_grids(run, summary):
        lines = [[line.variant, line.says, *map(seconds, line.values)] for line in grid.lines]
        tables.append(f"{grid.title}:\n\n{table(['variant', '', *grid.statistics], lines)}")
    return "\n".join(tables)


def of_grid(grid: TextGrid) -> str:
    """Return a grid of words and numbers as a table in Markdown."""
    return f"{grid.title}:\n\n{table([*grid.head], [list(line) for line in grid.lines])}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table; characters that Markdown would take for markup are escaped."""
    lines = [head, ["---"] * len(head), *([re.sub(r"([\\|*_`<])", r"\\\1", cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

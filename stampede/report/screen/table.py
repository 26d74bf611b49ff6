"""The table of the screen: a row for each variant, the few columns that decide, and a bar."""

import textwrap
from collections.abc import Sequence

from rich.cells import set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.answer import answers, cures
from stampede.report.screen.columns import deciding_columns
from stampede.report.section import Section
from stampede.report.wording import number, plain_name, short_figure

_NARROWEST, _WIDEST, _WIDEST_NAME = 8, 16, 24
"""How wide a column is at least and, if there is room for it, so that its head has few lines; and a name at most."""
_PUBLISHED = "publ."
_FEWEST_ROWS, _FEWEST_COLUMNS, _BAR = 3, 3, 10
"""How many rows and columns stay if room is short, and how wide a bar is at least."""


def screen_table(run: Run, summary: Summary, width: int, room: int, section: Section | None = None) -> list[Text]:
    """Return the lines of the table, ``width`` columns wide: at most ``room`` lines, but at least three variants.

    A bar is as long as the value of its variant beside the largest value.
    """
    groups, lead = deciding_columns(run, summary, section.columns if section else ())
    found = {
        variant.name: [[group.row(summary, variant.name, stat) for stat in group.stats] for group in groups]
        for variant in run.variants
    }
    variants = [
        name for name, rows in found.items()
        if any(row and row.measured is not None for of_group in rows for row in of_group)
    ]  # fmt: skip
    if not variants:
        return []
    classes = {group.request_class for group in groups}
    corner = f"{classes.copy().pop()} requests" if len(classes) == 1 and None not in classes else ""
    labels = {name: name for name in variants} | dict(section.labels if section else {})
    names = {name: set_cell_size(labels[name], _WIDEST_NAME).rstrip() for name in variants}
    columns: list[tuple[str, str, dict[str, str]]] = []  # a head, a style, and a cell for each variant
    values: dict[str, float] = {}
    for place, group in enumerate(groups):
        for at, stat in enumerate(group.stats):
            rows = {name: found[name][place][at] for name in variants}
            cells = {
                name: number(None) if row is None or row.measured is None
                else short_figure(row.unit, row.measured) + "*" * row.pooled  # pooled over all trials
                for name, row in rows.items()
            }  # fmt: skip
            is_lead = lead is not None and (lead.group, lead.stat) == (group, stat)
            head = group._replace(stats=(stat,)).title(run, named=not corner, stat=stat)
            columns.append((head, "bold" if is_lead else "", cells))
            if is_lead:
                values = {name: row.measured for name, row in rows.items() if row and row.measured is not None}
                published = {
                    name: short_figure(row.unit, row.published)
                    for name, row in rows.items() if row and row.published is not None
                }  # fmt: skip
                columns += [(_PUBLISHED, "dim", published)] if published else []

    def drawn(kept: Sequence[str], least: int, bar: int = 0) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("\n".join(filter(None, (corner, "variant"))), no_wrap=True)
        for head, style, cells in columns:
            narrow = max(least * (head != _PUBLISHED), *map(len, (*cells.values(), *head.split())))
            table.add_column(textwrap.fill(head, narrow), justify="right", style=style, no_wrap=True, min_width=narrow)
        if bar:
            table.add_column(f" {plain_name(lead.stat if lead else '')[:bar]}", style="cyan", no_wrap=True)
        longest = max(values.values(), default=0.0) or 1.0
        for name in kept:
            bars = [" " + "━" * round(bar * max(values.get(name, 0.0), 0.0) / longest)] * bool(bar)
            table.add_row(names[name], *(cells.get(name, "") for _, _, cells in columns), *bars)
        return table

    def taken(least: int) -> int:
        return console.measure(drawn(variants, least)).maximum

    console = Console(width=2 * width, color_system="standard", force_terminal=True, emoji=False)
    while taken(_NARROWEST) > width - (2 + _BAR) * (len(columns) > _FEWEST_COLUMNS):
        columns.pop()
    fitting = width - (2 + _BAR) * (taken(_NARROWEST) + 2 + _BAR <= width)
    least = next(least for least in range(_WIDEST, 0, -1) if taken(least) <= fitting)
    bar = width - taken(least) - 2 if values else 0
    bar *= bar >= _BAR
    above = len(_lines(console, drawn(variants, least))) - len(variants)
    starred = any(cell.endswith("*") for _, _, cells in columns for cell in cells.values())
    fitting = room - above - starred
    fitting -= len(variants) > fitting and not starred  # a line says how many variants are left out
    pairs = [*answers(run, summary), *cures(run, summary)]
    telling = [quantity.variant for claim, _ in pairs for quantity in claim.quantities if quantity.variant in variants]
    kept = {*[*dict.fromkeys([*telling, *variants])][: max(fitting, _FEWEST_ROWS)]}
    notes = [f"… and {plural(len(variants) - len(kept), 'more variant')}"] if len(kept) < len(variants) else []
    notes += ["* pooled over all trials"] if starred else []
    told = [Text(" · ".join(notes), style="dim")] if notes else []
    return [*_lines(console, drawn([name for name in variants if name in kept], least, bar)), *told]


def _lines(console: Console, table: Table) -> list[Text]:
    with console.capture() as printed:
        console.print(table)
    lines = [*map(Text.from_ansi, printed.get().splitlines())]
    for line in lines:
        line.rstrip()
    return lines

"""The table of the screen: a row for each variant, the few columns that decide, and a bar."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.answer import answers, cures
from stampede.report.screen.columns import deciding_columns
from stampede.report.section import Section
from stampede.report.wording import number, plain_name, short_figure

_NARROWEST, _WIDEST, _WIDEST_NAME = 8, 16, 24
"""How wide a column is at least and, if there is room for it, so that its head has few lines; and a name at most."""
_FEWEST_ROWS, _BAR = 3, 10
"""How many rows stay if room is short, and how wide a bar is at least."""


class _Column(NamedTuple):
    """A column: its head, a cell for each variant that has one, and its style. ``wraps``: the head may wrap."""

    head: str
    cells: Mapping[str, str]
    style: str
    wraps: bool = True

    def width(self, least: int) -> int:
        return max(least * self.wraps, *map(len, (*self.cells.values(), *re.findall(r"[^ -]+-?", self.head))))


def screen_table(run: Run, summary: Summary, width: int, room: int, section: Section | None = None) -> list[Text]:
    """Return the lines of the table, ``width`` columns wide: at most ``room`` lines, but at least three variants.

    A bar is as long as the value of its variant beside the largest value.
    """
    groups, lead = deciding_columns(run, summary, section.columns if section else ())
    classes = {group.request_class for group in groups}
    corner = f"{classes.copy().pop()} requests" if len(classes) == 1 and None not in classes else ""
    columns: list[_Column] = []
    values: dict[str, float] = {}
    measured: set[str] = set()
    for group in groups:
        for stat in group.stats:
            rows = {of.name: row for of in run.variants if (row := group.row(summary, of.name, stat))}
            known = {name: row.measured for name, row in rows.items() if row.measured is not None}
            starred = {name: "*" * row.pooled for name, row in rows.items()}  # pooled over all trials
            cells = {name: short_figure(rows[name].unit, value) + starred[name] for name, value in known.items()}
            measured |= known.keys()
            head = group._replace(stats=(stat,)).title(run, named=not corner, stat=stat)
            is_lead = lead is not None and (lead.group, lead.stat) == (group, stat)
            columns.append(_Column(head, {of.name: number(None) for of in run.variants} | cells, "bold" * is_lead))
            if is_lead:
                values = known
                published = {name: row.published for name, row in rows.items() if row.published is not None}
                told = {name: short_figure(rows[name].unit, value) for name, value in published.items()}
                columns += [_Column("publ.", told, "dim", wraps=False)] if told else []
    variants = [of.name for of in run.variants if of.name in measured]
    if not variants:
        return []
    labels = {name: name for name in variants} | dict(section.labels if section else {})
    names = {name: set_cell_size(labels[name], _WIDEST_NAME).rstrip() for name in variants}

    def taken(least: int) -> int:
        return max(map(cell_len, (corner, "variant", *names.values()))) + sum(1 + of.width(least) for of in columns)

    def drawn(kept: Sequence[str], least: int, bar: int = 0) -> list[Text]:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("\n".join(filter(None, (corner, "variant"))), no_wrap=True)
        for of in columns:
            wide = of.width(least)
            table.add_column(textwrap.fill(of.head, wide), justify="right", style=of.style, no_wrap=True, width=wide)
        if bar:
            table.add_column(f" {plain_name(lead.stat if lead else '')[:bar]}", style="cyan", no_wrap=True)
        longest = max(values.values(), default=0.0) or 1.0
        for name in kept:
            bars = [" " + "━" * round(bar * max(values.get(name, 0.0), 0.0) / longest)] * bool(bar)
            table.add_row(names[name], *(of.cells.get(name, "") for of in columns), *bars)
        return _lines(table, width)

    while taken(_NARROWEST) > width:
        columns.pop()
    fitting = width - (2 + _BAR) * (taken(_NARROWEST) + 2 + _BAR <= width)
    least = next(least for least in range(_WIDEST, 0, -1) if taken(least) <= fitting)
    bar = width - taken(least) - 2 if values else 0
    bar *= bar >= _BAR
    has_star = any(cell.endswith("*") for of in columns for cell in of.cells.values())
    fitting = room - (len(drawn(variants, least)) - len(variants)) - has_star
    fitting -= len(variants) > fitting and not has_star  # a line says how many variants are left out
    pairs = [*answers(run, summary), *cures(run, summary)]
    telling = [quantity.variant for claim, _ in pairs for quantity in claim.quantities if quantity.variant in variants]
    kept = {*[*dict.fromkeys([*telling, *variants])][: max(fitting, _FEWEST_ROWS)]}
    notes = [f"… and {plural(len(variants) - len(kept), 'more variant')}"] if len(kept) < len(variants) else []
    notes += ["* pooled over all trials"] if has_star else []
    below = [Text(" · ".join(notes), style="dim")] if notes else []
    return [*drawn([name for name in variants if name in kept], least, bar), *below]


def _lines(table: Table, width: int) -> list[Text]:
    """Return the lines of a table. No text of a run is taken for markup or for an escape sequence."""
    console = Console(width=2 * width, markup=False, emoji=False, highlight=False)
    lines = [
        Text.assemble(*((part.text, part.style or "") for part in line))
        for line in console.render_lines(table, pad=False)
    ]
    for line in lines:
        line.rstrip()
    return lines

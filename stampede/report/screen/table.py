"""The table of the screen: a row for each variant, the few columns that decide, and a bar."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import log10
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from stampede.evaluate.metrics import unit
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.records.words import plural
from stampede.report.answer import answers, cures
from stampede.report.screen.columns import Lead, deciding_columns
from stampede.report.section import Section
from stampede.report.wording import number, short_figure

_NARROWEST, _WIDEST, _WIDEST_NAME = 8, 16, 24
"""How wide a column is at least and, unless a figure is wider, at most; and how wide a name is at most."""
_FEWEST_ROWS, _FEWEST_COLUMNS, _BAR = 3, 3, 10
"""How many rows stay if room is short, how many columns never give way to the bar, and how wide it is at least."""
_MOST_HEAD_LINES = 5
"""How many lines heads have at most, unless only the fewest columns are left."""
_FAR_APART = 20
"""Bars of times are logarithmic if the longest time is so many times the shortest."""


class _Column(NamedTuple):
    """A column: its head, a cell for each variant that has one, its style, and what the line below says of it."""

    head: str
    cells: Mapping[str, str]
    style: str = ""
    note: str = ""
    wraps: bool = True

    def width(self, least: int, whole: int) -> int:
        """Return how wide the column is; words of the head with more than ``whole`` letters break at hyphens."""
        words = self.head.split()
        parts = [part for word in words for part in ([word] if len(word) <= whole else re.findall("[^-]+-?", word))]
        of_head = [min(len(part), _WIDEST) for part in parts]
        return max(least if self.wraps else 0, *of_head, *map(len, self.cells.values()))


class _Bar(NamedTuple):
    """How long the bar of each variant is beside the longest bar, the head, and what the line below says of bars."""

    lengths: Mapping[str, float]
    head: str = ""
    note: str = ""

    def column(self, width: int) -> _Column:
        """Return the bars as a column of this width. A value above 0 has at least one character."""
        bars = {name: " " + "━" * max(round(width * length), length > 0) for name, length in self.lengths.items()}
        return _Column(textwrap.indent(textwrap.fill(self.head, width), " "), bars, _BARS, self.note)


_LEAD, _BARS = "bold", "cyan"
"""The styles of the column that the bars draw, and of the bars."""


def screen_table(run: Run, summary: Summary, width: int, room: int, section: Section | None = None) -> list[Text]:
    """Return the lines of the table, ``width`` columns wide: at most ``room`` lines, but at least three variants."""
    groups, lead = deciding_columns(run, summary, section.columns if section else ())
    rows = {
        (group, stat): {of.name: row for of in run.variants if (row := group.row(summary, of.name, stat))}
        for group in groups
        for stat in group.stats
    }
    measured = {name for found in rows.values() for name, row in found.items() if row.measured is not None}
    variants = [of.name for of in run.variants if of.name in measured]
    if not variants:
        return []
    classes = {group.request_class for group in groups}
    corner = f"{classes.copy().pop()} requests" if len(classes) == 1 and None not in classes else ""
    if len(corner) > _WIDEST_NAME:
        corner = ""  # the heads name the class
    columns: list[_Column] = []
    bar = _Bar({})
    for (group, stat), found in rows.items():
        head = group._replace(stats=(stat,)).title(run, named=not corner, stat=stat)
        leads = lead == Lead(group, stat)
        columns += _columns(head, found, variants, leads=leads)
        if leads:
            bar = _bar(head, found, unit(group.metric, stat))
    labels = section.labels if section else {}
    names = {name: set_cell_size(labels.get(name, name), _WIDEST_NAME).rstrip() for name in variants}
    fitted = _fitted(columns, bar, width - max(map(cell_len, (corner, "variant", *names.values()))))

    notes = [*dict.fromkeys(of.note for of, _ in fitted if of.note)]
    room -= max(2 if corner else 1, *(len(of.head.split("\n")) for of, _ in fitted)) + bool(notes)
    if len(variants) > room and not notes:
        room -= 1  # a line says how many variants are left out
    kept = _kept(run, summary, variants, max(room, _FEWEST_ROWS))
    if len(kept) < len(variants):
        notes.insert(0, f"… and {plural(len(variants) - len(kept), 'more variant')}")
    below = [Text(" · ".join(notes), style="dim")] if notes else []

    return [*_drawn(corner, {name: names[name] for name in kept}, fitted, width), *below]


def _columns(head: str, rows: Mapping[str, Estimate], variants: Sequence[str], *, leads: bool) -> Iterator[_Column]:
    """Yield the column of a quantity and, if it leads, a column of its published figures."""
    cells = {name: number(None) for name in variants}
    for name, row in rows.items():
        if row.measured is not None:
            cells[name] = short_figure(row.unit, row.measured) + "*" * row.pooled
    starred = any(cell.endswith("*") for cell in cells.values())
    yield _Column(head, cells, _LEAD if leads else "", "* pooled over all trials" if starred else "")
    published = {name: row.published for name, row in rows.items() if name in cells and row.published is not None}
    if leads and published:
        told = {name: short_figure(rows[name].unit, value) for name, value in published.items()}
        yield _Column("publ.", told, "dim", wraps=False)


def _bar(head: str, rows: Mapping[str, Estimate], of_unit: str) -> _Bar:
    """Return the bars of measured values: of times that are far apart logarithmic, of others from 0 on."""
    values = {name: row.measured for name, row in rows.items() if row.measured is not None}
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    if of_unit == "ms" and low > 0 and high >= _FAR_APART * low:
        low /= 1.6  # the shortest time has a bar, too
        lengths = {name: log10(value / low) / log10(high / low) for name, value in values.items()}
        return _Bar(lengths, head, "bars: logarithmic")
    return _Bar({name: max(value, 0.0) / (high or 1.0) for name, value in values.items()}, head)


def _fitted(columns: Sequence[_Column], bar: _Bar, room: int) -> list[tuple[_Column, int]]:
    """Return the columns that fit into the room, at last the bar's, each with its width; their heads are in lines.

    Columns give way to the bar, and to low heads, while more than three stand. The leading column stays.
    """
    columns = [*columns]
    of_bar = _BAR + 2 if bar.lengths else 0
    while not (layouts := [*_layouts(columns, room - of_bar)]) and len(columns) > 1:
        if of_bar and len(columns) <= _FEWEST_COLUMNS:
            of_bar = 0
        else:  # the last of those that do not lead, the published figures after all others
            places = [place for place, of in enumerate(columns) if of.style != _LEAD]
            del columns[max(places, key=lambda place: (columns[place].wraps, place))]
    widths = min(layouts, key=lambda widths: _height(columns, widths), default=[_WIDEST] * len(columns))
    found = [(of._replace(head=textwrap.fill(of.head, wide)), wide) for of, wide in zip(columns, widths, strict=True)]
    if of_bar:
        left = room - sum(widths) - len(widths) - 2
        found.append((bar.column(left), left + 1))
    return found


def _layouts(columns: Sequence[_Column], room: int) -> Iterator[list[int]]:
    """Yield widths with which the columns fit into the room: with words unbroken first, and the narrowest first."""
    for whole, least in product((_WIDEST, 0), range(_NARROWEST, _WIDEST + 1)):
        widths = [of.width(least, whole) for of in columns]
        is_low = len(columns) <= _FEWEST_COLUMNS or _height(columns, widths) <= _MOST_HEAD_LINES
        if is_low and sum(widths) + len(widths) <= room:
            yield widths


def _height(columns: Sequence[_Column], widths: Sequence[int]) -> int:
    """Return how many lines the highest head has."""
    return max(len(textwrap.wrap(of.head, wide)) for of, wide in zip(columns, widths, strict=True))


def _kept(run: Run, summary: Summary, variants: Sequence[str], most: int) -> list[str]:
    """Return the variants that have a row, at most so many; those of the answer and of the cures first."""
    pairs = [*answers(run, summary), *cures(run, summary)]
    telling = [quantity.variant for claim, _ in pairs for quantity in claim.quantities if quantity.variant in variants]
    kept = [*dict.fromkeys([*telling, *variants])][:most]
    return [name for name in variants if name in kept]


def _drawn(corner: str, names: Mapping[str, str], columns: Sequence[tuple[_Column, int]], width: int) -> list[Text]:
    """Return the lines of a table of these variants, without columns that have nothing to say of them.

    No text of a run is taken for markup or for an escape sequence.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("\n".join(filter(None, (corner, "variant"))), no_wrap=True)
    told = [(of, wide) for of, wide in columns if any(of.cells.get(name) for name in names)]
    for of, wide in told:
        justify: JustifyMethod = "left" if of.style == _BARS else "right"
        table.add_column(of.head, justify=justify, style=of.style, no_wrap=True, width=wide)
    for name, shown in names.items():
        table.add_row(shown, *(of.cells.get(name, "") for of, _ in told))
    console = Console(width=2 * width, markup=False, emoji=False, highlight=False)
    lines = [
        Text.assemble(*((part.text, part.style or "") for part in line))
        for line in console.render_lines(table, pad=False)
    ]
    for line in lines:
        line.rstrip()
    return lines

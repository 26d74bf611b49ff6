"""The table of the screen: a row for each variant, the few columns that decide, and a strip."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from analysis.metrics import unit
from analysis.records.run import Run
from analysis.records.summary import Row, Summary
from analysis.report.screen.columns import Group, Lead, deciding_columns
from analysis.report.screen.strip import scale_of, strip
from analysis.report.screen.words import answers, cures
from analysis.report.section import Section
from analysis.report.wording import number, percent, plain_name, whole_number

_NARROWEST, _NARROWEST_GROUP, _WIDEST_NAME = 6, 11, 24
_FEWEST_ROWS, _FEWEST_COLUMNS, _STRIP = 3, 3, 10
"""How many rows and columns stay if room is short, and how wide a strip is at least."""


class _Column(NamedTuple):
    """A column: the title of its group (empty after the first column of a group), its head, and a cell per variant."""

    title: str
    head: str
    cells: Sequence[str]
    style: str = ""

    @property
    def width(self) -> int:
        return max(_NARROWEST, *map(len, (self.head, *self.cells)))


def screen_table(run: Run, summary: Summary, width: int, room: int, section: Section | None = None) -> list[Text]:
    """Return the lines of the table, ``width`` columns wide: at most ``room`` lines, but at least three variants."""
    groups, lead = deciding_columns(run, summary, section.columns if section else ())
    labels = section.labels if section else {}
    variants = _variants(run, summary, groups)
    if not variants:
        return []
    name_width = min(max(map(cell_len, ["variant", *(labels.get(name, name) for name in variants)])), _WIDEST_NAME)
    columns = [*_columns(run, summary, groups, lead, variants)]
    head, widths = _head(columns, name_width)
    while cell_len(head[-1]) > width or (len(columns) > _FEWEST_COLUMNS and cell_len(head[-1]) + 2 + _STRIP > width):
        columns.pop()
        head, widths = _head(columns, name_width)
    strips = _strips(summary, lead, variants, width - cell_len(head[-1]) - 2) if lead else []
    if strips:
        head[-1] += "  " + strips[0]
    starred = any(cell.endswith("*") for column in columns for cell in column.cells)
    kept = _kept(run, summary, variants, max(room - len(head) - starred, _FEWEST_ROWS))
    lines = [Text(line.rstrip(), style="dim") for line in head]
    for place, variant in enumerate(variants):
        if variant in kept:
            line = Text(set_cell_size(labels.get(variant, variant), name_width))
            for column, cells in zip(columns, widths, strict=True):
                line.append(" " + column.cells[place].rjust(cells), style=column.style)
            line.append("  " + strips[place + 1] if strips else "", style="cyan")
            line.rstrip()
            lines.append(line)
    if len(kept) < len(variants):
        lines.append(Text(f"… and {len(variants) - len(kept)} more variants: make report TABLES=1", style="dim"))
    if starred:
        lines.append(Text("* pooled: the percentile of the requests of all trials together", style="dim"))
    return lines


def _variants(run: Run, summary: Summary, groups: Sequence[Group]) -> list[str]:
    """Return the variants that have a value in any of the columns."""
    return [
        variant.name
        for variant in run.variants
        if any(_value(group.row(summary, variant.name, stat)) is not None for group in groups for stat in group.stats)
    ]


def _kept(run: Run, summary: Summary, variants: Sequence[str], rows: int) -> set[str]:
    """Return which variants are shown in so many rows: those of the answer and of cures before all others."""
    if len(variants) <= rows:
        return {*variants}
    pairs = [*answers(run, summary), *cures(run, summary)]
    telling = [quantity.variant for claim, _ in pairs for quantity in claim.quantities]
    ranked = dict.fromkeys([*telling, *variants])
    return {*[variant for variant in ranked if variant in variants][: rows - 1]}


def _columns(
    run: Run, summary: Summary, groups: Sequence[Group], lead: Lead | None, variants: Sequence[str]
) -> Iterator[_Column]:
    for group in groups:
        title = group.title(run, summary)
        for stat in group.stats:
            is_lead = lead is not None and (lead.group, lead.stat) == (group, stat)
            rows = [group.row(summary, variant, stat) for variant in variants]
            cells = [_cell(row) for row in rows]
            yield _Column(title, plain_name(stat), cells, "bold" if is_lead else "")
            title = ""
            if is_lead and any(row and row.published is not None for row in rows):
                published = [number(row.published) if row and row.published is not None else "" for row in rows]
                yield _Column("", "publ.", published, "dim")


def _value(row: Row | None) -> float | None:
    return row.measured if row else None


def _cell(row: Row | None) -> str:
    """Return a measured value: a share in percent, and a value of all trials together with a star."""
    if row is None or row.measured is None:
        return number(None)
    pooled = "*" if row.pooled else ""
    if unit(row.metric, row.stat) == "share":
        return percent(row.measured).replace(".0%", "%") + pooled
    return number(whole_number(row.unit, row.measured)) + pooled


def _head(columns: Sequence[_Column], name_width: int) -> tuple[list[str], list[int]]:
    """Return the lines above the rows, and the width of each column, with room for the titles of groups."""
    widths = [column.width for column in columns]
    spans = [place for place, column in enumerate(columns) if column.title] + [len(columns)]
    titles: list[list[str]] = []
    for start, end in pairwise(spans):
        longest = max(_NARROWEST_GROUP, *map(len, columns[start].title.split()))
        room = sum(widths[start:end]) + end - start - 1
        widths[start] += max(longest - room, 0)
        titles.append(textwrap.wrap(columns[start].title, max(room, longest)))
    lines = []
    for line in range(-max(map(len, titles)), 0):
        cells = [
            (title[line] if len(title) >= -line else "").rjust(sum(widths[start:end]) + end - start - 1)
            for title, start, end in zip(titles, spans, spans[1:], strict=False)
        ]
        lines.append(" " * name_width + "".join(f" {cell}" for cell in cells))
    stats = "".join(" " + column.head.rjust(width) for column, width in zip(columns, widths, strict=True))
    return [*lines, "variant".ljust(name_width) + stats], widths


def _strips(summary: Summary, lead: Lead, variants: Sequence[str], width: int) -> list[str]:
    """Return the axis and a strip for each variant; nothing if there is no room for them, or no value."""
    rows = [lead.group.row(summary, variant, lead.stat) for variant in variants]
    values = [value for row in rows if row for value in (row.measured, row.published) if value is not None]
    if width < _STRIP or not values:
        return []
    scale = scale_of(values, unit(lead.group.metric, lead.stat), width)
    strips = [strip(scale, _value(row), row.published if row else None) for row in rows]
    return [scale.axis(unit(lead.group.metric, lead.stat)), *strips]

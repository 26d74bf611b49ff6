"""The table of the screen: a row for each variant, the few columns that decide, and a strip."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import floor, log10
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from stampede.evaluate.metrics import unit
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.answer import answers, cures
from stampede.report.screen.columns import Group, Lead, deciding_columns
from stampede.report.section import Section
from stampede.report.wording import number, plain_name, short_figure

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
    variants = [
        variant.name
        for variant in run.variants
        if any(
            (row := group.row(summary, variant.name, stat)) and row.measured is not None
            for group in groups
            for stat in group.stats
        )
    ]
    if not variants:
        return []
    classes = {group.request_class for group in groups}
    corner = f"{classes.copy().pop()} requests" if len(classes) == 1 and None not in classes else ""
    shown = ["variant", corner, *(labels.get(name, name) for name in variants)]
    name_width = min(max(map(cell_len, shown)), _WIDEST_NAME)
    columns = [*_columns(run, summary, groups, lead, variants, named=not corner)]
    head, widths = _head(columns, name_width, corner)
    while cell_len(head[-1]) > width or (len(columns) > _FEWEST_COLUMNS and cell_len(head[-1]) + 2 + _STRIP > width):
        columns.pop()
        head, widths = _head(columns, name_width, corner)
    strips: list[str] = []
    if lead and (room_for_strips := width - cell_len(head[-1]) - 2) >= _STRIP:
        rows = [lead.group.row(summary, variant, lead.stat) for variant in variants]
        if values := [value for row in rows if row for value in (row.measured, row.published) if value is not None]:
            of_unit = unit(lead.group.metric, lead.stat)
            scale = scale_of(values, of_unit, room_for_strips)
            strips = [strip(scale, row.measured, row.published) if row else "" for row in rows]
            head[-1] += "  " + scale.axis(of_unit)
    starred = any(cell.endswith("*") for column in columns for cell in column.cells)
    fitting = room - len(head) - starred
    fitting -= len(variants) > fitting and not starred  # a line says how many variants are left out
    pairs = [*answers(run, summary), *cures(run, summary)]
    telling = [quantity.variant for claim, _ in pairs for quantity in claim.quantities if quantity.variant in variants]
    kept = {*[*dict.fromkeys([*telling, *variants])][: max(fitting, _FEWEST_ROWS)]}
    lines = [Text(line.rstrip(), style="dim") for line in head]
    for place, variant in enumerate(variants):
        if variant in kept:
            line = Text(set_cell_size(labels.get(variant, variant), name_width))
            for column, cells in zip(columns, widths, strict=True):
                line.append(" " + column.cells[place].rjust(cells), style=column.style)
            line.append("  " + strips[place] if strips else "", style="cyan")
            line.rstrip()
            lines.append(line)
    notes = [f"… and {plural(len(variants) - len(kept), 'more variant')}"] if len(kept) < len(variants) else []
    notes += ["* pooled over all trials"] if starred else []
    if lead and strips and notes:
        mark = ", ◆ published" if any(column.head == "publ." for column in columns) else ""
        notes.append(f"bar: {plain_name(lead.stat)}{mark}")
    return [*lines, *([Text(" · ".join(notes), style="dim")] if notes else [])]


def _columns(
    run: Run, summary: Summary, groups: Sequence[Group], lead: Lead | None, variants: Sequence[str], *, named: bool
) -> Iterator[_Column]:
    """Yield the columns of all groups; ``named``: their titles name the class of requests."""
    for group in groups:
        title = group.title(run, named=named)
        for stat in group.stats:
            is_lead = lead is not None and (lead.group, lead.stat) == (group, stat)
            rows = [group.row(summary, variant, stat) for variant in variants]
            cells = [
                number(None) if row is None or row.measured is None
                else short_figure(row.unit, row.measured) + "*" * row.pooled  # pooled over all trials
                for row in rows
            ]  # fmt: skip
            name = "" if group.stats == ("share",) else plain_name(stat)
            yield _Column(title, name, cells, "bold" if is_lead else "")
            title = ""
            if is_lead and any(row and row.published is not None for row in rows):
                published = [
                    short_figure(row.unit, row.published) if row and row.published is not None else "" for row in rows
                ]
                yield _Column("", "publ.", published, "dim")


def _head(columns: Sequence[_Column], name_width: int, corner: str) -> tuple[list[str], list[int]]:
    """Return the lines above the rows, and the width of each column, with room for the titles of groups."""
    widths = [column.width for column in columns]
    spans = [place for place, column in enumerate(columns) if column.title] + [len(columns)]
    blocks: list[list[str]] = []
    for start, end in pairwise(spans):
        single = end == start + 1
        title = columns[start].title + (f", {columns[start].head}" if single and columns[start].head else "")
        longest = max(_NARROWEST_GROUP, *map(len, title.split()))
        if single:
            widths[start] = max(*map(len, columns[start].cells), longest)
        else:
            widths[start] += max(longest - (sum(widths[start:end]) + end - start - 1), 0)
        room = sum(widths[start:end]) + end - start - 1
        stats = " ".join(
            column.head.rjust(width) for column, width in zip(columns[start:end], widths[start:end], strict=True)
        )
        blocks.append([line.rjust(room) for line in textwrap.wrap(title, room)] + ([] if single else [stats]))
    height = max(2 if corner else 1, *map(len, blocks))
    padded = [[" " * len(block[0])] * (height - len(block)) + block for block in blocks]
    names = [*[""] * (height - 2), *([corner] if height > 1 else []), "variant"]
    lines = [" ".join([name.ljust(name_width), *parts]) for name, *parts in zip(names, *padded, strict=True)]
    return lines, widths


_BAR, _MARK = "━", "◆"


class Scale(NamedTuple):
    """A scale of ``width`` characters from ``low`` to ``high``; ``is_log``: in powers of ten."""

    low: float
    high: float
    width: int
    is_log: bool

    def place(self, value: float) -> int:
        """Return the character, from 0 to ``width - 1``, at which a value lies; values beyond an end lie at the end."""
        value = min(max(value, self.low), self.high)
        low, high, at = (
            (log10(self.low), log10(self.high), log10(value)) if self.is_log else (self.low, self.high, value)
        )
        return round((at - low) / (high - low) * (self.width - 1))

    def axis(self, unit: str) -> str:
        """Return the line above the strips, with the powers of ten, or both ends, as labels."""
        line = [" "] * self.width
        values = [self.low, self.high, (self.low + self.high) / 2]
        if self.is_log:
            values = [10.0**power for power in range(round(log10(self.low)), floor(log10(self.high)) + 1)]
        for value in values:
            label = tick(value, unit)
            start = min(self.place(value), self.width - len(label))
            if all(character == " " for character in line[max(start - 1, 0) : start + len(label)]):
                line[start : start + len(label)] = label
        return "".join(line)


def scale_of(values: Sequence[float], unit: str, width: int) -> Scale:
    """Return a scale for values: linear for shares and indices, logarithmic from a power of ten for all else."""
    if unit == "share":
        return Scale(0, 1, width, is_log=False)
    positive = [value for value in values if value > 0]
    if unit in ("ratio", "index") or not positive:
        return Scale(0, max([*positive, 1.0]), width, is_log=False)
    low = max(floor(log10(min(positive))), 0 if unit == "ms" else -9)
    return Scale(10.0**low, max(*positive, 10.0 ** (low + 1)), width, is_log=True)


def strip(scale: Scale, value: float | None, published: float | None) -> str:
    """Return a bar up to the measured value, with a mark at the published value."""
    line = [" "] * scale.width
    if value is not None:
        line[: scale.place(value) + 1] = _BAR * (scale.place(value) + 1)
    if published is not None:
        line[scale.place(published)] = _MARK
    return "".join(line)


def tick(value: float, unit: str) -> str:
    """Return the label of a value: milliseconds from 1000 on in seconds, shares in percent."""
    if unit == "share":
        return f"{value:.0%}"
    if unit == "ms":
        return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"
    return f"{value:.3g}"

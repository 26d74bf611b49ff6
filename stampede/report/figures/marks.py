"""The marks of a figure as a table, for everybody who cannot see the figure."""

from collections.abc import Iterator
from typing import Any

import altair as alt

from stampede.report.tables import Table
from stampede.report.wording import number, plain_name

MOST_ROWS = 60
"""A table has at most this many rows, so that the page stays small."""
_CHANNELS = ("row", "column", "y", "x", "x2", "y2", "color", "shape", "opacity", "text")
"""The channels of a mark, in the order of the columns. Others only move or decorate a mark."""


def mark_tables(chart: alt.TopLevelMixin) -> list[Table]:
    """Return the marks of a chart: a table for each of its layers, without layers that say nothing more than others.

    A layer says nothing more if each of its marks is a part of one of the others. Of many marks, every second, third, …
    has a row.
    """
    drawn = chart.to_dict(validate=False)
    datasets = drawn.get("datasets", {})
    whole: dict[str, Any] = {"data": drawn.get("data"), "encoding": {}, "title": ""}
    parts: list[tuple[dict[str, str], str, list[dict[str, Any]]]] = []  # columns by field, title, and marks
    for layer in _layers(drawn | {"title": ""}, whole):
        columns: dict[str, str] = {}
        for name in _CHANNELS:
            channel = layer["encoding"].get(name, {})
            if "field" in channel and "aggregate" not in channel:
                title = channel.get("title") or (channel.get("axis") or {}).get("title")
                columns.setdefault(channel["field"], title if isinstance(title, str) else plain_name(channel["field"]))
        data = layer["data"] or {}
        marks = data.get("values") or datasets.get(data.get("name", ""), [])
        if len(columns) > 1 and marks:
            parts.append((columns, layer["title"], marks))
    kept: list[tuple[dict[str, str], str, list[dict[str, Any]]]] = []
    tables = []
    for columns, title, marks in sorted(parts, key=lambda part: -len(part[0])):
        told = {tuple(mark.get(field) for field in columns) for mark in marks}
        if any(
            title == other and columns.keys() <= fields.keys()
            and told <= {tuple(mark.get(field) for field in columns) for mark in more}
            for fields, other, more in kept
        ):  # fmt: skip
            continue
        kept.append((columns, title, marks))
        shown = marks[:: -(-len(marks) // MOST_ROWS)]
        left_out = len(marks) - len(shown)
        note = f"{left_out} further marks, from everywhere in the figure, have no row here" if left_out else ""
        cells = [[mark.get(field) for field in columns] for mark in shown]
        rows = [
            [number(cell) if isinstance(cell, int | float) and cell is not True else str(cell or "") for cell in row]
            for row in cells
        ]
        tables.append(Table(title, [*columns.values()], rows, words=len(columns), note=note))
    return tables


def _layers(spec: dict[str, Any], outer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the layers of a chart, with the data, the encoding and the title that they have or get from around them."""
    encoding = outer["encoding"] | spec.get("encoding", {})
    title = spec.get("title") or outer["title"]
    title = title["text"] if isinstance(title, dict) else title
    inner = {"data": spec.get("data", outer["data"]), "encoding": encoding, "title": title}
    parts = [*spec.get("layer", []), *spec.get("vconcat", []), *spec.get("hconcat", [])]
    if not parts:
        yield inner
    for part in parts:
        yield from _layers(part, inner)

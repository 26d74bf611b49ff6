"""The marks of a figure as a table, for everybody who cannot see the figure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import altair as alt

from analysis.show.words import number, words

MOST_ROWS = 60
"""A table has at most this many rows, so that the page stays small."""
_CHANNELS = ("row", "column", "y", "x", "x2", "y2", "color", "shape", "text")
"""The channels of a mark, in the order of the columns. Others only move or decorate a mark."""


class Table(NamedTuple):
    """The marks of one layer: a row for each mark. ``left_out`` is how many marks have no row."""

    head: list[str]
    rows: list[list[str]]
    left_out: int


def tables(chart: alt.TopLevelMixin) -> list[Table]:
    """Return the marks of a chart: a table for each of its layers, without layers that say nothing more than others."""
    drawn = chart.to_dict()
    found = [table for layer in _layers(drawn, {}) if (table := _table(layer, drawn.get("datasets", {})))]
    kept: list[Table] = []
    for one in sorted(found, key=lambda table: -len(table.head)):
        if not any(_told(one) <= _told(other) for other in kept):
            kept.append(one)
    return kept


def _told(table: Table) -> set[tuple[str, str]]:
    return {(name, cell) for row in table.rows for name, cell in zip(table.head, row, strict=True)}


def _layers(spec: dict[str, Any], outer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the layers of a chart, each with the data and the encoding that it has or gets from what is around it."""
    encoding = {**outer.get("encoding", {}), **spec.get("encoding", {})}
    facet = spec.get("facet")
    if isinstance(facet, dict):
        encoding |= {channel: facet[channel] for channel in ("row", "column") if channel in facet}
    inner = {"data": spec.get("data", outer.get("data")), "encoding": encoding}
    parts = [*spec.get("layer", []), *spec.get("vconcat", []), *spec.get("hconcat", [])]
    parts += [spec["spec"]] if "spec" in spec else []
    if not parts:
        yield inner
    for part in parts:
        yield from _layers(part, inner)


def _table(layer: dict[str, Any], datasets: dict[str, Any]) -> Table | None:
    columns = {
        channel["field"]: _title(channel)
        for name in _CHANNELS
        if (channel := layer["encoding"].get(name)) and "field" in channel
    }
    data = layer["data"] or {}
    values = data.get("values") or datasets.get(data.get("name", ""), [])
    lines = list(dict.fromkeys(tuple(_cell(mark.get(field)) for field in columns) for mark in values))
    if len(columns) < 2 or not lines:
        return None
    return Table(list(columns.values()), [list(line) for line in lines[:MOST_ROWS]], max(0, len(lines) - MOST_ROWS))


def _title(channel: dict[str, Any]) -> str:
    title = channel.get("title") or (channel.get("axis") or {}).get("title")
    return title if isinstance(title, str) else words(channel["field"])


def _cell(value: object) -> str:
    return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value or "")

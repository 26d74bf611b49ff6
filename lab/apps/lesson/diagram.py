"""Where requests can wait in a variant: from the users over the balancer and the sockets to the workers' threads."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from lab.experiment.model import Load
from lab.servers.base import Variant

QUEUE, THREAD = "≡", "□"
LEGEND = f"{QUEUE} requests can wait here   {THREAD} a thread"
_GAP, _ROW, _CHARACTER = 44, 26, 8.4
"""Of the picture, in pixels: between columns, from row to row, and the width of a character."""


@dataclass(frozen=True)
class Box:
    """One place on the way of a request. It is as high as the ``rows`` rows that it leads to, from ``row`` on."""

    text: str
    column: int
    row: int
    rows: int


def layout(variant: Variant, load: Load) -> list[list[Box]]:
    """Return the columns of the diagram, each with its boxes from top to bottom. Every worker has a row."""
    workers = variant.workers * variant.replicas
    each_socket = 1 if variant.accept == "per-worker" else variant.workers
    users = f"{load.declared.users_at_once(load.settings):.0f} users"
    front: list[list[tuple[str, int]]] = [] if variant.balancer == "none" else [[(variant.balancer, workers)]]
    sockets = [(f"{QUEUE} socket", each_socket)] * (workers // each_socket)
    queue = f"{QUEUE} " if variant.queueing.has_inner_queue else ""
    of_worker = THREAD * variant.threads if variant.threads else "event loop"
    last = [(f"{queue}worker {number} {of_worker}", 1) for number in range(1, workers + 1)]
    columns = [[(users, workers)], *front, sockets, last]
    return [list(_stacked(column, boxes)) for column, boxes in enumerate(columns)]


def _stacked(column: int, boxes: list[tuple[str, int]]) -> Iterator[Box]:
    row = 0
    for text, rows in boxes:
        yield Box(text, column, row, rows)
        row += rows


def as_text(variant: Variant, load: Load) -> str:
    """Draw the diagram for a terminal."""
    columns = layout(variant, load)
    lines = []
    for row in range(columns[-1][-1].row + 1):
        line = ""
        for number, column in enumerate(columns):
            [box] = [box for box in column if box.row <= row < box.row + box.rows]
            width = max(len(box.text) for box in column)
            line += f"{box.text:<{width}}" if box.row == row else " " * width
            if number + 1 < len(columns):
                line += _arrow(box, [one.row for one in columns[number + 1]], row)
        lines.append(line.rstrip())
    return "\n".join(lines)


def _arrow(box: Box, next_rows: list[int], row: int) -> str:
    """Return the part of an arrow from a box to the boxes of the next column that is in a row."""
    ends = [one for one in next_rows if box.row <= one < box.row + box.rows]
    if row not in ends:
        return " │   " if row < ends[-1] else "     "
    if len(ends) == 1:
        return " ──> "
    return " ┬─> " if row == ends[0] else " └─> " if row == ends[-1] else " ├─> "


def as_svg(variant: Variant, load: Load, name: str) -> str:
    """Draw the diagram as a picture. A screen reader reads its alternative text."""
    columns = layout(variant, load)
    lefts, left = [], 4.0
    for column in columns:
        lefts.append(left)
        left += max(len(box.text) for box in column) * _CHARACTER + 16 + _GAP
    width, height = left - _GAP + 4, (columns[-1][-1].row + 1) * _ROW + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(_spoken(name, variant, columns))}" '
        f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        'font-family="monospace" font-size="14" fill="none" stroke="#5a5a5a">'
    ]
    for number, column in enumerate(columns):
        for box in column:
            wide = len(box.text) * _CHARACTER + 16
            y = _middle(box)
            waits = box.text.startswith(QUEUE)
            parts += [
                f'<rect x="{lefts[number]:.1f}" y="{y - 10:.1f}" width="{wide:.1f}" height="20" rx="3" '
                f'fill="{"#fdeecf" if waits else "#eef1f4"}"/>',
                f'<text x="{lefts[number] + 8:.1f}" y="{y + 5:.1f}" fill="#1c1c1c" stroke="none">'
                f"{escape(box.text)}</text>",
            ]
            for after in columns[number + 1] if number + 1 < len(columns) else []:
                if box.row <= after.row < box.row + box.rows:
                    end = lefts[number + 1]
                    parts.append(f'<path d="M{lefts[number] + wide:.1f} {y:.1f}L{end - 2:.1f} {_middle(after):.1f}"/>')
    return "".join([*parts, "</svg>"])


def _middle(box: Box) -> float:
    return 4 + (box.row + box.rows / 2) * _ROW


def _spoken(name: str, variant: Variant, columns: list[list[Box]]) -> str:
    """Return the diagram as a sentence."""
    users, *front, sockets, workers = columns
    threads = f" of {_count(variant.threads, 'thread')}" if variant.threads else ", an event loop each"
    way = [
        users[0].text,
        *(one[0].text for one in front),
        _count(len(sockets), "socket"),
        _count(len(workers), "worker"),
    ]
    inside = " and in a worker" if variant.queueing.has_inner_queue else ""
    return f"{name}: {', then '.join(way)}{threads}. Requests can wait at a socket{inside}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"

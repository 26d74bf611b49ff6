"""Where requests can wait in a variant: from the users over the balancer and the sockets to the workers' threads."""

from collections.abc import Iterator
from typing import NamedTuple

from stampede.experiment.model import Experiment, Load
from stampede.records.plural import plural
from stampede.servers.base import Variant

QUEUE, THREAD = "≡", "□"
LEGEND = f"{QUEUE} requests can wait here   {THREAD} a thread"


class Diagram(NamedTuple):
    """The diagram of a variant as text, and as a sentence for a screen reader."""

    name: str
    text: str
    spoken: str


class _Box(NamedTuple):
    """A place on the way of a request. It is as high as the ``rows`` rows that it leads to, from ``row`` on."""

    text: str
    row: int
    rows: int


def diagrams(experiment: Experiment) -> Iterator[Diagram]:
    """Yield the diagram of each variant under the first load that measures it."""
    for name, variant in experiment.variants.items():
        load = next(load for load in experiment.all_loads.values() if load.is_for(name))
        columns = _columns(variant, load)
        lines = []
        for row in range(columns[-1][-1].row + 1):
            line = ""
            for number, column in enumerate(columns):
                [box] = [box for box in column if box.row <= row < box.row + box.rows]
                width = max(len(box.text) for box in column)
                line += f"{box.text:<{width}}" if box.row == row else " " * width
                if number + 1 < len(columns):
                    line += _arrow(box, [after.row for after in columns[number + 1]], row)
            lines.append(line.rstrip())
        yield Diagram(name, "\n".join(lines), _sentence(name, variant, columns))


def _columns(variant: Variant, load: Load) -> list[list[_Box]]:
    """Return the columns of the diagram, each with its boxes from top to bottom. Every worker has a row."""
    workers = variant.workers * variant.replicas
    each_socket = 1 if variant.accept == "per-worker" else variant.workers
    users = f"{load.declared.users_at_once(load.settings):.0f} users"
    balancer = [] if variant.balancer == "none" else [str(variant.balancer)]
    sockets = [f"{QUEUE} socket"] * (workers // each_socket)
    queue = f"{QUEUE} " if variant.queueing.has_inner_queue else ""
    threads = THREAD * variant.threads if variant.threads else "event loop"
    names = [f"{queue}worker {number} {threads}" for number in range(1, workers + 1)]
    columns = (([users], workers), (balancer, workers), (sockets, each_socket), (names, 1))
    return [[_Box(text, place * rows, rows) for place, text in enumerate(texts)] for texts, rows in columns if texts]


def _arrow(box: _Box, next_rows: list[int], row: int) -> str:
    """Return the part of an arrow from a box to the boxes of the next column that is in a row."""
    ends = [end for end in next_rows if box.row <= end < box.row + box.rows]
    if row not in ends:
        return " │   " if row < ends[-1] else "     "
    if len(ends) == 1:
        return " ──> "
    return " ┬─> " if row == ends[0] else " └─> " if row == ends[-1] else " ├─> "


def _sentence(name: str, variant: Variant, columns: list[list[_Box]]) -> str:
    users, *front, sockets, workers = columns
    threads = f" of {plural(variant.threads, 'thread')}" if variant.threads else ", an event loop each"
    way = [
        users[0].text,
        *(column[0].text for column in front),
        plural(len(sockets), "socket"),
        plural(len(workers), "worker"),
    ]
    inside = " and in a worker" if variant.queueing.has_inner_queue else ""
    return f"{name}: {', then '.join(way)}{threads}. Requests can wait at a socket{inside}."

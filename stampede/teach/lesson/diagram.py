"""Where requests can wait in a variant: from the users over the balancer and the sockets to the workers' threads."""

from collections.abc import Iterator
from typing import NamedTuple

from stampede.experiment.model import Experiment
from stampede.records.plural import plural

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
    """Yield the diagram of each variant under the first load that measures it. Every worker has a row."""
    for name, variant in experiment.variants.items():
        load = next(load for load in experiment.all_loads.values() if load.is_for(name))
        workers = variant.workers * variant.replicas
        each_socket = 1 if variant.accept == "per-worker" else variant.workers
        users = f"{load.declared.users_at_once(load.settings):.0f} users"
        balancer = [] if variant.balancer == "none" else [str(variant.balancer)]
        sockets = [f"{QUEUE} socket"] * (workers // each_socket)
        inside = variant.queueing.has_inner_queue
        serves = THREAD * variant.threads if variant.threads else "event loop"
        names = [f"{QUEUE + ' ' if inside else ''}worker {number} {serves}" for number in range(1, workers + 1)]
        way = (([users], workers), (balancer, workers), (sockets, each_socket), (names, 1))
        columns = [[_Box(text, place * rows, rows) for place, text in enumerate(texts)] for texts, rows in way if texts]

        lines = []
        for row in range(workers):
            line = ""
            for number, column in enumerate(columns):
                [box] = [box for box in column if box.row <= row < box.row + box.rows]
                width = max(len(box.text) for box in column)
                line += f"{box.text:<{width}}" if box.row == row else " " * width
                if number + 1 < len(columns):
                    line += _arrow(box, [after.row for after in columns[number + 1]], row)
            lines.append(line.rstrip())
        stops = [users, *balancer, plural(len(sockets), "socket"), plural(workers, "worker")]
        threads = f" of {plural(variant.threads, 'thread')}" if variant.threads else ", an event loop each"
        waits = f"Requests can wait at a socket{' and in a worker' if inside else ''}."
        yield Diagram(name, "\n".join(lines), f"{name}: {', then '.join(stops)}{threads}. {waits}")


def _arrow(box: _Box, next_rows: list[int], row: int) -> str:
    """Return the part of an arrow from a box to the boxes of the next column that is in a row."""
    ends = [end for end in next_rows if box.row <= end < box.row + box.rows]
    if row not in ends:
        return " │   " if row < ends[-1] else "     "
    if len(ends) == 1:
        return " ──> "
    return " ┬─> " if row == ends[0] else " └─> " if row == ends[-1] else " ├─> "

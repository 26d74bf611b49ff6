"""Waiting from ten workers to ten thousand, on paper: the pictures of docs/explain/theory.md.

    PYTHONPATH=. .venv/bin/python tools/scale.py policies docs/explain/scale-policies.svg
    PYTHONPATH=. .venv/bin/python tools/scale.py balancers docs/explain/scale-balancers.svg
    PYTHONPATH=. .venv/bin/python tools/scale.py kept docs/explain/scale-kept.svg
    PYTHONPATH=. .venv/bin/python tools/scale.py heavy-mix docs/explain/scale-heavy-mix.svg

But for heavy-mix, every worker has one thread, service times are exponential, and times are multiples of their mean.
The first half of each simulation is left out, because the queues fill meanwhile.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from stampede.experiment.file import load_experiment
from stampede.plan import lay_out
from stampede.predict.prediction import predict_run
from stampede.records.folder import write_whole
from stampede.report.figures.drawing import svg
from stampede.run.record import record_of
from stampede.theory.model import Class, Closed, Exponential, Open, QueueingSystem, Servers, WorkStep
from stampede.theory.simulate import simulate_in_chunks

REQUESTS = 1_000_000
"""At least so many requests are simulated for each point; and 1000 for each worker, so that the queues settle."""
POLICIES: dict[str, Callable[[int], Servers]] = {
    "by chance (reuse_port)": lambda workers: Servers(sockets=workers, balance="hash"),
    "in turns": lambda workers: Servers(sockets=workers, balance="turns"),
    "the better of two": lambda workers: Servers(sockets=workers, balance="two"),
    "fewest requests": lambda workers: Servers(sockets=workers, balance="least"),
    "one queue for all": lambda workers: Servers(threads=workers),
}
UTILISATIONS = (0.5, 0.6, 0.7, 0.8, 0.9)
Point = dict[str, Any]


def p99(model: QueueingSystem, rate: float, workers: int) -> float:
    """Return how long one request in a hundred waits or longer, at about this rate of requests."""
    seconds = max(REQUESTS, 1000 * workers) / rate
    parts = [rows.began - rows.sent for rows in simulate_in_chunks(model, seconds, 1)]
    waits = np.concatenate(parts)
    return float(np.quantile(waits[len(waits) // 2 :], 0.99))


def of(workers: int) -> str:
    """Return the title of the panel for this number of workers."""
    return f"{workers:,} workers"


def policies() -> Iterator[Point]:
    """Yield p99 of each policy, by utilisation and number of workers."""
    for workers in (10, 100, 1000, 10_000):
        for name, servers in POLICIES.items():
            for busy in UTILISATIONS:
                model = QueueingSystem(servers(workers), [_open(busy * workers)])
                yield {"panel": of(workers), "how": name, "x": busy, "y": p99(model, busy * workers, workers)}


def balancers() -> Iterator[Point]:
    """Yield p99 at 80 % by the number of balancers, each of which counts only its own requests."""
    for workers in (10, 100, 1000):
        for name in ("fewest requests", "the better of two", "in turns"):
            for count in (1, 2, 4, 8, 16, 32, 64, 128):
                one = POLICIES[name](workers)
                servers = Servers(sockets=workers, balance=one.balance, balancers=count)
                point = p99(QueueingSystem(servers, [_open(0.8 * workers)]), 0.8 * workers, workers)
                yield {"panel": of(workers), "how": name, "x": count, "y": point}


def kept() -> Iterator[Point]:
    """Yield p99 of ten users for each worker, whose pauses decide the utilisation, with connections kept or not."""
    for workers in (10, 100, 1000):
        for name, balance, keeps in (
            ("new connection, fewest requests", "least", False),
            ("kept connection, fewest connections", "least", True),
            ("kept connection, by chance", "hash", True),
        ):
            for busy in UTILISATIONS:
                users = Closed(10 * workers, Exponential(10 / busy - 1), keeps=keeps)
                model = QueueingSystem(Servers(sockets=workers, balance=balance), [Class("all", users, _WORK)])  # type: ignore[arg-type]
                yield {"panel": of(workers), "how": name, "x": busy, "y": p99(model, busy * workers, workers)}


def heavy_mix() -> Iterator[Point]:
    """Yield which share of light requests waits avoidably, in percent, with more workers and users than heavy-mix has.

    Each worker has two threads, and five light users come with every four workers. What is predicted is the median of
    sixty trials of 60 s.
    """
    experiment = load_experiment("heavy-mix")
    run = record_of("heavy-mix", experiment, lay_out(experiment, trials=5, jobs=1, seed=0), full=False, command="")
    [load] = run.loads
    assert load.traffic
    variants = {
        "one socket": run.variant("shared-socket"),
        "worker_connections = threads": run.variant("connection-limit"),
    }
    for workers in (4, 8, 16, 32, 64):
        for heavy, who in ((2, "2 heavy users"), (workers // 2, "heavy users: half the workers")):
            users = {"light": workers * 5 // 4, "heavy": heavy}
            classes = {
                name: each.model_copy(update={"users": users[name]}) for name, each in load.traffic.classes.items()
            }
            traffic = load.traffic.model_copy(update={"classes": classes})
            asked = load.model_copy(update={"duration": "60s", "traffic": traffic})
            for name, variant in variants.items():
                settings = variant.settings | {"workers": workers}
                served = variant.model_copy(update={"workers": workers, "settings": settings})
                [cell] = predict_run(run.model_copy(update={"variants": [served], "loads": [asked]}))
                for each in cell.figures:
                    if (each.request_class, each.metric, each.stat) == ("light", "avoidable_wait", "share"):
                        yield {"panel": who, "how": name, "x": workers, "y": 100 * each.median}


_WORK = [WorkStep(Exponential(1.0))]


def _open(rate: float) -> Class:
    return Class("all", Open(rate), _WORK)


WAITS = "p99 of the wait / service time"
FIGURES: dict[str, tuple[Callable[[], Iterator[Point]], str, str, str]] = {
    "policies": (policies, "utilisation", WAITS, "What one request in a hundred waits, by how its worker is chosen"),
    "balancers": (balancers, "balancers", WAITS, "What several balancers know, at 80 % utilisation"),
    "kept": (kept, "utilisation", WAITS, "Connections that are kept bind users to workers"),
    "heavy-mix": (heavy_mix, "workers", "light requests that wait avoidably, %", "More workers do not end the waits"),
}


def picture(points: list[Point], along: str, value: str, title: str) -> alt.FacetChart:
    """Return a chart with a line for each way to choose a worker, in panels."""
    names = list(dict.fromkeys(point["how"] for point in points))
    colours = alt.Scale(domain=names)
    scale = alt.Scale(zero=False) if along == "utilisation" else alt.Scale(type="log", base=2)
    lines = alt.Chart(alt.InlineData(values=points)).mark_line(point=True)
    panels = lines.encode(
        alt.X("x:Q", title=along, scale=scale),
        alt.Y("y:Q", title=value, scale=alt.Scale(type="symlog", constant=0.1) if value == WAITS else alt.Scale()),
        alt.Color("how:N", title=None, scale=colours),
        alt.StrokeDash("how:N", title=None, scale=colours),
        alt.Shape("how:N", title=None, scale=colours),
    ).properties(width=290, height=200)
    order = list(dict.fromkeys(point["panel"] for point in points))
    facets = panels.facet(facet=alt.Facet("panel:N", title=None, sort=order), columns=2)
    chart: alt.FacetChart = facets.properties(title=alt.TitleParams(title)).configure_legend(labelLimit=300)
    return chart


def table(points: list[Point]) -> str:
    """Return the points as a table in Markdown."""
    along = list(dict.fromkeys(point["x"] for point in points))
    lines = [["", "", *map(str, along)], ["---"] * (2 + len(along))]
    for panel, name in dict.fromkeys((point["panel"], point["how"]) for point in points):
        found = {point["x"]: point["y"] for point in points if (point["panel"], point["how"]) == (panel, name)}
        lines.append([panel, name, *(f"{found[x]:.2f}" if x in found else "–" for x in along)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Simulate the points of one figure, print them as a table, and draw the figure."""
    match sys.argv[1:]:
        case [name, target] if name in FIGURES:
            find, along, value, title = FIGURES[name]
            points = list(find())
            sys.stdout.write(table(points))
            write_whole(Path(target), svg(picture(points, along, value, title)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

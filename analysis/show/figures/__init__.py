"""The pictures of a run. Each function draws one picture, or returns None if the run has no data for the picture."""

from analysis.show.figures.bursts import staircase, waves
from analysis.show.figures.curves import across_loads, curve
from analysis.show.figures.drawing import svg
from analysis.show.figures.exploring import across_runs, distribution, waits
from analysis.show.figures.shares import by_age, connections, races, share_and_tail, workers
from analysis.show.figures.times import DOTS, classes, overhead
from analysis.show.figures.visits import VISITS, failing_visits, visit_times

__all__ = [
    "DOTS",
    "VISITS",
    "across_loads",
    "across_runs",
    "by_age",
    "classes",
    "connections",
    "curve",
    "distribution",
    "failing_visits",
    "overhead",
    "races",
    "share_and_tail",
    "staircase",
    "svg",
    "visit_times",
    "waits",
    "waves",
    "workers",
]

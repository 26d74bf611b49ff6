"""The pictures of a run. Each function draws one picture, or returns None if the run has no data for the picture."""

from analysis.report.figures.bursts import staircase, waves
from analysis.report.figures.curves import across_loads, curve
from analysis.report.figures.drawing import svg
from analysis.report.figures.shares import by_age, connections, races, share_and_tail, workers
from analysis.report.figures.times import DOTS, classes, overhead
from analysis.report.figures.visits import VISITS, failing_visits, visit_times

__all__ = [
    "DOTS",
    "VISITS",
    "across_loads",
    "by_age",
    "classes",
    "connections",
    "curve",
    "failing_visits",
    "overhead",
    "races",
    "share_and_tail",
    "staircase",
    "svg",
    "visit_times",
    "waves",
    "workers",
]

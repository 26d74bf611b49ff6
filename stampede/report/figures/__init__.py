"""The pictures of a run. Each function draws one picture, or returns None if the run has no data for the picture."""

from collections.abc import Iterator
from typing import NamedTuple

import duckdb
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from stampede.evaluate.metrics import METRICS
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.curves import load_curve, setting_curve
from stampede.report.figures.drawing import svg
from stampede.report.figures.requests import overhead, staircase


class Picture(NamedTuple):
    """A picture as SVG. ``telling``: it shows a metric that a claim asks for."""

    svg: Markup
    telling: bool


def pictures(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary) -> Iterator[Picture]:
    """Yield the pictures of a run, without the pictures for which the run has no data."""
    times = {"overhead", "response_time"}
    with debug_mode(False):  # Altair would check each part of a chart against its schema; the tests do that
        charts = [(load_curve(run, summary), {"throughput", "response_time"}, "")]  # what a chart shows, and its load
        for load in run.loads:
            name = load.name
            charts += [
                (staircase(database, run, summary, name), {*times, "burst", "failures"}, name),
                (setting_curve(run, summary, name), set(METRICS), name),
            ]
            if not load.has_tabled_bursts:
                classes = database.execute(_MOST_FREQUENT_FIRST, [name]).fetchall()
                charts += [(overhead(database, run, summary, name, of_class), times, name) for (of_class,) in classes]
    asked = {(quantity.metric, quantity.load) for claim in run.claims for quantity in claim.quantities}
    for chart, metrics, load_name in charts:
        if chart is not None:
            telling = any(metric in metrics and (not load_name or of in (None, load_name)) for metric, of in asked)
            yield Picture(Markup(svg(chart)), telling or not asked)  # noqa: S704  # we draw these pictures


_MOST_FREQUENT_FIRST = (
    "SELECT request_class FROM requests WHERE load = ? GROUP BY ALL ORDER BY count(*) DESC, request_class"
)

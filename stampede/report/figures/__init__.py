"""The pictures of a run. Each function draws one picture, or returns None if the run has no data for the picture."""

from collections.abc import Iterator

import duckdb
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.curves import load_curve, setting_curve
from stampede.report.figures.drawing import svg
from stampede.report.figures.requests import overhead, staircase


def pictures(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary) -> Iterator[Markup]:
    """Yield the pictures of a run as SVG, those of the load of the first claims first."""
    telling = [claim.value.load for claim in run.telling_claims]
    with debug_mode(False):  # Altair would check each part of a chart against its schema; the tests do that
        charts = [load_curve(run, summary)]
        for load in sorted(run.loads, key=lambda load: load.name not in telling[:1]):
            charts += [setting_curve(run, summary, load.name), staircase(database, run, summary, load.name)]
            if not load.has_tabled_bursts:
                classes = database.execute(_MOST_FREQUENT_FIRST, [load.name]).fetchall()
                charts += [overhead(database, run, summary, load.name, of_class) for (of_class,) in classes]
    yield from (Markup(svg(chart)) for chart in charts if chart is not None)  # noqa: S704  # we draw these pictures


_MOST_FREQUENT_FIRST = (
    "SELECT request_class FROM requests WHERE load = ? GROUP BY ALL ORDER BY count(*) DESC, request_class"
)

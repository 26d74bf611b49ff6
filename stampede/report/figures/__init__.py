"""The pictures of a run. Each function draws one picture, or returns None if the run has no data for the picture."""

from collections.abc import Iterator
from typing import NamedTuple

import altair as alt
import duckdb
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from stampede.evaluate.metrics import METRICS
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.curves import load_curve, setting_curve, wave_cells
from stampede.report.figures.drawing import svg
from stampede.report.figures.marks import mark_tables
from stampede.report.figures.published import published_chart
from stampede.report.figures.requests import connections, overhead, staircase, visit_times
from stampede.report.tables import Table


class Picture(NamedTuple):
    """A picture as SVG, and as tables. ``telling``: it shows a metric that a claim asks for."""

    svg: Markup
    tables: list[Table]
    telling: bool


def pictures(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary) -> Iterator[Picture]:
    """Yield the pictures of a run, without the pictures for which the run has no data."""
    asked = {(quantity.metric, quantity.load) for claim in run.claims for quantity in claim.quantities}
    with debug_mode(False):  # Altair would check each part of a chart against its schema; the tests do that
        charts = [*_charts(database, run, summary)]
    for chart, metrics, load in charts:
        if chart is not None:
            telling = any(metric in metrics and (not load or name in (None, load)) for metric, name in asked)
            drawn = Markup(svg(chart))  # noqa: S704  # we draw these pictures
            yield Picture(drawn, mark_tables(chart), telling or not asked)


def published_picture(run: Run, summary: Summary) -> Picture | None:
    """Return the picture of the published figures; None: none of them was measured."""
    chart = published_chart(run, summary)
    return Picture(Markup(svg(chart)), [], telling=True) if chart is not None else None  # noqa: S704  # we draw it


def _charts(
    database: duckdb.DuckDBPyConnection, run: Run, summary: Summary
) -> Iterator[tuple[alt.TopLevelMixin | None, set[str], str | None]]:
    """Yield the charts of a run with the metrics that each shows, and its load; None: it is of all loads."""
    yield load_curve(run, summary), {"throughput", "response_time"}, None
    times = {"overhead", "response_time"}
    for load in run.loads:
        name = load.name
        yield staircase(database, run, summary, name), {*times, "burst", "failures"}, name
        yield wave_cells(run, summary, name), {*times, "burst"}, name
        yield visit_times(database, run, summary, name), {"visit", "visits_failed", "capacity"}, name
        yield setting_curve(run, summary, name), set(METRICS), name
        if not load.has_tabled_bursts:
            for (request_class,) in database.execute(_MOST_FREQUENT_FIRST, [name]).fetchall():
                yield overhead(database, run, summary, name, request_class), times, name
        yield connections(database, run, name), {"connections_by_worker", "requests_by_connection"}, name


_MOST_FREQUENT_FIRST = (
    "SELECT request_class FROM requests WHERE load = ? GROUP BY ALL ORDER BY count(*) DESC, request_class"
)

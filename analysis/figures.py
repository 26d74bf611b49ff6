"""The pictures of a report, one function each: a title that is the sentence it supports, units on every axis."""

from typing import Any

import altair as alt
import duckdb
import vl_convert

from analysis.quantities import Statistic
from analysis.run_folder import Run
from analysis.summary import Summary
from analysis.table import number

DOTS = 100
"""Each row of the overhead figure has at most this many dots."""

_MEASURED = "#1f5fa8"
_PUBLISHED = "#c4512d"
_WIDTH = 640
_FLOOR_MS = 0.1  # the left end of the logarithmic axis


def svg(chart: alt.TopLevelMixin) -> str:
    """Draw a chart as SVG text."""
    text: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return text


def classes(database: duckdb.DuckDBPyConnection, load: str) -> list[str]:
    """Return the classes of request of a load, the most frequent first."""
    rows = database.execute(
        "SELECT request FROM requests WHERE load = ? GROUP BY request ORDER BY count(*) DESC, request", [load]
    )
    return [name for (name,) in rows.fetchall()]


def overhead(
    database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str, request: str
) -> alt.TopLevelMixin:
    """Draw how the overhead of one class of request is distributed in every variant.

    A dot is the middle of one hundredth of the requests, so ten dots to the right of a second are a tenth of all
    requests that waited longer than that; of fewer than a hundred requests each is a dot. Diamonds are the published
    percentiles.
    """
    rows = database.execute(
        """SELECT variant, list_sort(list(overhead_ms)) FROM requests
           WHERE load = $load AND request = $request AND error IS NULL GROUP BY variant""",
        {"load": load, "request": request},
    ).fetchall()
    measured = {variant: _representatives(values) for variant, values in rows}
    order = [variant.name for variant in run.variants]
    dots = [
        {"variant": variant, "overhead": max(value, _FLOOR_MS), "offset": _scatter(index), "kind": "measured"}
        for variant in order
        for index, value in enumerate(measured.get(variant, []))
    ]
    marks = [
        {
            "variant": row.variant,
            "overhead": max(row.published, _FLOOR_MS),
            "kind": "published",
            "label": row.stat if row.stat in ("p50", "p99") else "",  # the others would overlap
        }
        for row in summary.rows
        if row.load == load and row.request == request and row.metric == "overhead" and row.published is not None
    ]
    x = alt.X(
        "overhead:Q", title=f"overhead of {request} requests, ms", scale=alt.Scale(type="log", nice=False, padding=10)
    )
    y = alt.Y("variant:N", title=None, sort=order, axis=alt.Axis(grid=True, labelLimit=200))
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["measured", "published"], range=[_MEASURED, _PUBLISHED]),
        legend=alt.Legend(orient="top"),
    )
    measured_dots = (
        alt.Chart(_data(dots))
        .mark_circle(size=26, opacity=0.55)
        .encode(x=x, y=y, yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4])), color=colour)
    )
    published = alt.Chart(_data(marks)).encode(x=x, y=y)
    published_marks = published.mark_point(shape="diamond", size=60, strokeWidth=1.6).encode(color=colour)
    published_names = published.mark_text(dy=-10, fontSize=9, color=_PUBLISHED).encode(text="label:N")
    trials = f"{run.trials} trial{'s' if run.trials > 1 else ''}"
    counts = [len(values) for _, values in rows]
    fewest, most = (min(counts), max(counts)) if counts else (0, 0)
    size = (
        f"{fewest} to {most} requests a variant, {trials}" if fewest < most else f"{most} requests a variant, {trials}"
    )
    what = "request" if counts and max(counts) <= DOTS else "hundredth of the requests"
    layers = [measured_dots] + ([published_marks, published_names] if marks else [])
    title = _worst_and_best(summary, load, request)
    return _styled(alt.layer(*layers), title, f"{size}; each dot is one {what}", 46 * len(order))


def workers(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin:
    """Draw which share of the requests each worker answered, measured beside published, the busiest first."""
    values = []
    for variant in run.variants:
        rows = [one for one in summary.workers if one.variant == variant.name and one.load == load and one.request]
        for request in sorted({one.request or "" for one in rows}):
            first = min(one.trial for one in rows)
            counts = [one.requests for one in rows if one.request == request and one.trial == first]
            values += _segments(variant.name, request, "measured", counts)
    for one in run.published:
        if one.counts and one.load in (None, load):
            values += _segments(one.variant, one.request or "", "published", one.counts)
    order = [variant.name for variant in run.variants]
    bars = (
        alt.Chart(_data(values))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("share:Q", title="share of the requests", axis=alt.Axis(format="%")).scale(domain=[0, 1]),
            y=alt.Y("variant:N", title=None, sort=order, axis=alt.Axis(labelLimit=200)),
            yOffset=alt.YOffset("kind:N", sort=["published", "measured"]),
            color=alt.Color("rank:O", title="worker, busiest first").scale(scheme="blues", reverse=True),
            opacity=alt.Opacity("kind:N", title=None).scale(domain=["measured", "published"], range=[1, 0.45]),
            order=alt.Order("rank:Q"),
            column=alt.Column("request:N", title=None),
        )
        .properties(width=250, height=34 * len(order))
    )
    return _styled(bars, "Who answered: the share of each worker", "first trial of each variant", None)


def _data(values: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=values)


def across_runs(rows: list[dict[str, Any]], title: str) -> alt.TopLevelMixin:
    """Draw one statistic of every variant in several runs; ``rows`` are those of ``collection.measured``."""
    points = (
        alt.Chart(_data(rows))
        .mark_point(filled=True, size=60, opacity=0.7, color=_MEASURED)
        .encode(
            x=alt.X("value:Q", title=f"measured, {rows[0]['unit']}" if rows else None, scale=alt.Scale(type="log")),
            y=alt.Y("variant:N", title=None, axis=alt.Axis(grid=True, labelLimit=200)),
            tooltip=["run:N", "variant:N", "value:Q", "n:Q"],
        )
    )
    variants = {row["variant"] for row in rows}
    runs = {row["run"] for row in rows}
    return _styled(points, title, f"{len(runs)} runs, a dot each", 30 * max(1, len(variants)))


def _segments(variant: str, request: str, kind: str, counts: list[int]) -> list[dict[str, Any]]:
    return [
        {"variant": variant, "request": request, "kind": kind, "rank": rank, "share": count / sum(counts)}
        for rank, count in enumerate(sorted(counts, reverse=True), start=1)
    ]


def _representatives(values: list[float]) -> list[float]:
    """Return all of the sorted values, or the middles of their hundredths when there are more than that."""
    if len(values) <= DOTS:
        return values
    return [values[int((index + 0.5) / DOTS * len(values))] for index in range(DOTS)]


def _scatter(index: int) -> float:
    """Spread neighbouring dots over the height of their row, the same way every time."""
    return (index * 0.618034) % 1 * 2 - 1


def _worst_and_best(summary: Summary, load: str, request: str) -> str:
    stat: Statistic = "p99"
    values = {
        row.variant: row.measured
        for row in summary.rows
        if row.load == load and row.request == request and row.metric == "overhead" and row.stat == stat
        and row.measured is not None
    }  # fmt: skip
    if len(values) < 2:
        return f"How long {request} requests waited"
    worst, best = max(values, key=lambda name: values[name]), min(values, key=lambda name: values[name])
    return (
        f"One {request} request in a hundred waits {number(values[worst])} ms or more with {worst}, "
        f"{number(values[best])} ms with {best}"
    )


def _styled(chart: Any, title: str, subtitle: str, height: int | None) -> alt.TopLevelMixin:  # noqa: ANN401
    if height is not None:
        chart = chart.properties(width=_WIDTH, height=height)
    styled: alt.TopLevelMixin = (
        chart.properties(title=alt.Title(title, subtitle=subtitle, anchor="start", subtitleColor="#555"))
        .configure(font="Arial, Helvetica, sans-serif", padding={"left": 24, "right": 90, "top": 5, "bottom": 5})
        .configure_view(stroke=None)
        .configure_axis(gridColor="#e4e4e4", domainColor="#999")
    )
    return styled

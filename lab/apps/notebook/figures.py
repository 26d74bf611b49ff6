"""Pictures of any number of runs, for the notebook."""

from typing import Any

import altair as alt

from analysis.report.figures.drawing import FLOOR_MS, MEASURED, inline_data, styled, told_apart


def across_runs(rows: list[dict[str, Any]], title: str) -> alt.TopLevelMixin:
    """Draw one statistic of every variant in several runs; ``rows`` come from ``collection.measured``."""
    scale = alt.Scale(type="log" if all(row["value"] > 0 for row in rows) else "linear")
    points = (
        alt.Chart(inline_data(rows))
        .mark_point(filled=True, size=60, opacity=0.7, color=MEASURED)
        .encode(
            x=alt.X("value:Q", title=f"measured, {rows[0]['unit']}" if rows else None, scale=scale),
            y=alt.Y("variant:N", title=None, axis=alt.Axis(grid=True, labelLimit=200)),
            tooltip=["run:N", "variant:N", "value:Q", "n:Q"],
        )
    )
    variants = {row["variant"] for row in rows}
    runs = {row["run"] for row in rows}
    return styled(points, title, f"{len(runs)} runs; each dot is a variant in one run", 30 * max(1, len(variants)))


def distribution(rows: list[dict[str, Any]], percentile: float, title: str) -> alt.TopLevelMixin:
    """Draw for each variant which share of the requests took at most so long; ``rows`` of ``collection.quantiles``.

    A line marks ``percentile``, from 0 to 100.
    """
    names = list(dict.fromkeys(row["variant"] for row in rows))
    marks = [{**row, "value": max(row["value"], FLOOR_MS)} for row in rows]
    lines = alt.Chart(inline_data(marks)).encode(
        x=alt.X("value:Q", title="response time, ms", scale=alt.Scale(type="log", nice=False)),
        y=alt.Y("share:Q", title="share of the requests", axis=alt.Axis(format="%")),
        color=alt.Color("variant:N", title=None, scale=alt.Scale(domain=names)),
    )
    points = lines.transform_filter("datum.told").mark_point(filled=False, size=45)
    asked = alt.Chart(inline_data([{"share": percentile / 100}])).mark_rule(strokeDash=[4, 3]).encode(y="share:Q")
    drawn = alt.layer(lines.mark_line(), points.encode(shape=told_apart("variant", names)), asked)
    return styled(drawn, title, f"the dashed line is p{percentile:g}", 300)


def waits(rows: list[dict[str, Any]], left_out: int, title: str) -> alt.TopLevelMixin:
    """Draw when each request was sent, and how long it waited for its worker; ``rows`` of ``collection.waits``.

    ``left_out`` is how many requests with shorter waits are not among ``rows``.
    """
    names = list(dict.fromkeys(row["variant"] for row in rows))
    classes = list(dict.fromkeys(row["request"] for row in rows))
    marks = [{**row, "wait_ms": max(row["wait_ms"], FLOOR_MS)} for row in rows]
    points = (
        alt.Chart(inline_data(marks))
        .mark_point(filled=False, size=18, opacity=0.6)
        .encode(
            x=alt.X("at_s:Q", title="seconds since the first request was sent"),
            y=alt.Y("wait_ms:Q", title="wait, ms", scale=alt.Scale(type="log", nice=False)),
            color=alt.Color("request:N", title=None, scale=alt.Scale(domain=classes)),
            shape=told_apart("request", classes),
        )
        .properties(width=560, height=120)
        .facet(row=alt.Row("variant:N", title=None, sort=names))
    )
    subtitle = "from when a request was sent to when a worker began to work on it"
    if left_out:
        subtitle += f"; {left_out} requests with shorter waits are left out"
    return styled(points, title, subtitle, None)

"""Pictures drawn from the summary: how statistics change with one setting, of the variants or of the loads."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import altair as alt

from stampede.evaluate.metrics import unit
from stampede.evaluate.statistics.stopping import ENOUGH
from stampede.records.claims import Measure
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.report.figures.drawing import FLOOR_MS, Marks, inline_data, style_chart
from stampede.report.spread import line_ends
from stampede.report.wording import load_suffix, plain_name

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left",
          "M-1,-1L1,1L1,-1L-1,1Z", "M0,-1L0.3,-0.3L1,0L0.3,0.3L0,1L-0.3,0.3L-1,0L-0.3,-0.3Z")  # fmt: skip
"""The shapes of points, so that ten lines are told apart without their colours."""


Point = tuple[str, Any, Estimate]
"""A point of a curve: the name of its line, its place along the axis, and the estimate."""


def setting_curve(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how the experiment's setting changes statistics, a panel for each; None: the experiment has no curve.

    Each line is what the variants share beside the setting.
    """
    if not run.curve or not all(run.curve.over in variant.settings for variant in run.variants):
        return None
    over = run.curve.over
    differing = [
        key
        for key in dict.fromkeys(key for variant in run.variants for key in variant.settings)
        if key != over and len({repr(variant.settings.get(key)) for variant in run.variants}) > 1
    ]
    panels: list[tuple[Measure, list[Point]]] = []
    for measure in run.curve.values:
        points: list[Point] = []
        for variant in run.variants:
            row = summary.row(variant.name, load, measure.request_class, measure.metric, measure.stat)
            if row is None or row.median is None:
                continue
            named = [(variant.settings.get(key), plain_name(key)) for key in differing]  # such as 4 workers, 1 worker
            words = [f"{value} {key.removesuffix('s') if value == 1 else key}" for value, key in named]
            points.append((", ".join(words) or "all", variant.settings[over], row))
        panels.append((measure, points))
    return _curve(run, {"": panels}, over, load_suffix(run, load), log=True)


_ACROSS = Measure(metric="throughput", stat="per_second"), Measure(metric="response_time", stat="p99")


def load_curve(run: Run, summary: Summary) -> alt.TopLevelMixin | None:
    """Draw throughput and p99 response time over the number in which the loads differ, with a row for each server.

    Each line is a variant. None: there is no single number in which the loads differ.
    """
    loads = run.loads
    names = {name for load in loads for name in load.described}
    differing = [name for name in names if len({load.described.get(name) for load in loads}) > 1]
    if len(loads) < 2 or len({load.script for load in loads}) > 1 or len(differing) != 1 or loads[0].burst:
        return None  # bursts have pictures of their own
    [setting] = differing
    values = {load.name: load.described.get(setting, "") for load in loads}
    if len({*values.values()}) < len(loads) or not all(value.isdecimal() and int(value) for value in values.values()):
        return None
    places = {load: int(value) for load, value in values.items()}
    servers: dict[str, list[tuple[Measure, list[Point]]]] = {}
    for server in dict.fromkeys(str(variant.settings.get("server", "")) for variant in run.variants):
        mine = [variant.name for variant in run.variants if str(variant.settings.get("server", "")) == server]
        servers[server] = [(measure, [*_across(summary, mine, places, measure)]) for measure in _ACROSS]
    return _curve(run, servers, setting.lower(), "", log=False)


def _across(summary: Summary, variants: Sequence[str], places: Mapping[str, int], measure: Measure) -> Iterator[Point]:
    """Yield the points of the variants under loads with these places; those of a class only if they are published."""
    for variant, (load, place) in product(variants, places.items()):
        for row in summary.rows:
            is_wanted = row.request_class is None or row.published is not None
            if is_wanted and (row.variant, row.load, row.metric, row.stat) == (
                variant,
                load,
                measure.metric,
                measure.stat,
            ):
                yield (variant, place, row)


def _curve(
    run: Run, rows: Mapping[str, Sequence[tuple[Measure, Sequence[Point]]]], over: str, suffix: str, *, log: bool
) -> alt.TopLevelMixin:
    """Draw a panel for each measure; below the title stands what points and other marks are. ``log``: of times.

    ``rows``: the panels beside each other, by the heading of their legend.
    """
    marks = dict[str, None]()
    drawn = [
        alt.hconcat(*(_panel(points, over, of, marks, heading, log=log and unit(of.metric, of.stat) == "ms")
                      for of, points in panels))
        for heading, panels in rows.items()
    ]  # fmt: skip
    bars = "its interval" if run.trials >= ENOUGH else "the range of the trials"
    explained = f"median of {run.trials} trials; bars show {bars}" if run.trials > 1 else "1 trial"
    title = f"What changes with {plain_name(over)}{suffix}"
    chart = alt.vconcat(*drawn).resolve_scale(color="independent", shape="independent")
    return style_chart(chart, title, "; ".join([explained, *marks]), None)


def _panel(
    points: Sequence[Point], over: str, measure: Measure, told: dict[str, None], heading: str, *, log: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw a line for each name among the points, which have a setting and an estimate.

    Add to ``told`` what marks beside the line mean. ``heading``: what the legend says above the names.
    """
    floor = FLOOR_MS * log
    measured, trials, theory, published = Marks(), Marks(), Marks(), Marks()
    for name, setting, row in points:
        at = {"series": name, "setting": setting}
        if row.published is not None:
            published.append(at | {"value": max(row.published, floor)})
        if row.median is None or row.request_class != measure.request_class:
            continue
        low, high = line_ends(row)
        measured.append(at | {"value": max(row.median, floor), "low": max(low, floor), "high": max(high, floor)})
        trials += [at | {"value": max(value, floor)} for value in row.values.values() if len(row.values) > 1]
        theory += [at | {"value": max(row.predicted, floor)}] if row.predicted is not None else []
    settings, names = sorted({at for _, at, _ in points}), [*dict.fromkeys(name for name, *_ in points)]
    x = alt.X("setting:O", title=plain_name(over)).axis(labelAngle=0)
    if all(type(setting) in (int, float) and setting > 0 for setting in settings):
        x = alt.X("setting:Q", title=plain_name(over), axis=alt.Axis(values=settings, format="d"))
        x = x.scale(type="log", base=2, nice=False, padding=12)
    of_unit = unit(measure.metric, measure.stat)
    what = ("" if of_unit.endswith("/s") else f"{plain_name(measure.stat)} ") + plain_name(measure.metric)
    of_class = f" of {measure.request_class} requests" if measure.request_class else ""
    y = alt.Y("value:Q", title=f"{what}{of_class}, {of_unit}")
    y = y.scale(type="log") if log else y.scale(zero=True)
    above = alt.Legend(orient="top", columns=2)
    colour = alt.Color("series:N", title=heading or None, scale=alt.Scale(domain=names), legend=above)
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    shape = alt.Shape("series:N", title=heading or None, legend=above).scale(domain=names, range=shapes)
    chart = alt.Chart(inline_data(measured)).encode(x=x, color=colour)
    layers = [
        chart.mark_line(opacity=0.5).encode(y=y),
        chart.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("low:Q"), y2="high:Q"),
        chart.mark_point(filled=True, size=60).encode(y=y, shape=shape),
    ]
    further: list[tuple[str, Marks, dict[str, Any]]] = [
        ("dots are trials", trials, {"type": "circle", "size": 22, "opacity": 0.35}),
        ("theory's line is dashed", theory, {"type": "line", "strokeDash": [4, 3]}),
        ("diamonds are published", published, {"type": "point", "shape": "diamond", "size": 110, "strokeWidth": 1.6}),
    ]
    for what, marks, look in further:
        if marks:
            told[what] = None
            layers.append(alt.Chart(inline_data(marks), mark=alt.MarkDef(**look)).encode(x=x, y=y, color=colour))
    return alt.layer(*layers).properties(width=290, height=260)

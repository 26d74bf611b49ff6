"""Pictures drawn from the summary: how one setting changes statistics, and in which waves bursts were served."""

import altair as alt

from stampede.evaluate.metrics import unit
from stampede.evaluate.metrics.workers import labels
from stampede.evaluate.statistics.stopping import ENOUGH
from stampede.records.claims import Measure
from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.drawing import (
    FLOOR_MS,
    LIGHT,
    MEASURED,
    WIDTH,
    Marks,
    in_a_row,
    inline_data,
    interval_ends,
    measured_rows,
    panel_title,
    series_names,
    shape_scale,
    stacked,
    style_chart,
)
from stampede.report.wording import load_suffix, plain_name


def setting_curve(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how the experiment's setting changes statistics, a panel for each, with theory's line where there is one.

    None: the experiment has no curve.
    """
    if not run.curve or not all(run.curve.over in variant.settings for variant in run.variants):
        return None
    panels = [_panel(run, summary, load, run.curve.over, measure) for measure in run.curve.values]
    title = f"What changes with {plain_name(run.curve.over)}{load_suffix(run, load)}"
    rows = [row for measure in run.curve.values for row in measured_rows(summary, load, measure).values()]
    interval = ", its interval" * (run.trials >= ENOUGH)
    subtitle = f"median of {run.trials} trials{interval}, and each trial" if run.trials > 1 else "1 trial"
    subtitle += "; theory's line is dashed" * any(row.predicted is not None for row in rows)
    return style_chart(in_a_row(panels), title, subtitle, None)


def _panel(run: Run, summary: Summary, load: str, over: str, measure: Measure) -> alt.LayerChart | alt.FacetChart:
    rows = measured_rows(summary, load, measure)
    of_unit = unit(measure.metric, measure.stat)
    log = of_unit == "ms"
    values = [
        {
            "variant": variant.name,
            "setting": variant.settings[over],
            "series": series,
            **interval_ends(rows[variant.name], "value", FLOOR_MS * log),
        }
        for variant, series in zip(run.variants, series_names(run.variants, over), strict=True)
        if variant.name in rows
    ]
    settings = sorted({point["setting"] for point in values})
    by_number = all(type(setting) in (int, float) and setting > 0 for setting in settings)
    x = _number_axis(over, settings) if by_number else alt.X("setting:O", title=plain_name(over)).axis(labelAngle=0)
    of_class = f" of {measure.request_class} requests" if measure.request_class else ""
    y = alt.Y("value:Q", title=f"{plain_name(measure.stat)} {plain_name(measure.metric)}{of_class}, {of_unit}")
    y = y.scale(type="log") if log else y.scale(zero=True)
    names = list(dict.fromkeys(point["series"] for point in values))
    legend = alt.Legend(orient="top", columns=2)
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=names), legend=legend)
    trials = [
        {"setting": point["setting"], "series": point["series"], "value": max(value, FLOOR_MS * log)}
        for point in values
        for value in rows[point["variant"]].values.values()
        if len(rows[point["variant"]].values) > 1
    ]
    dots = alt.Chart(inline_data(trials)).mark_circle(size=22, opacity=0.35).encode(x=x, y=y, color=colour)
    lines = _lines(values, x, y, colour, shape_scale("series", names))
    predicted = {name: row.predicted for name, row in rows.items() if row.predicted is not None}
    expected = [
        {key: point[key] for key in ("setting", "series")} | {"value": max(predicted[point["variant"]], FLOOR_MS * log)}
        for point in values
        if point["variant"] in predicted
    ]
    theory = alt.Chart(inline_data(expected)).mark_line(strokeDash=[4, 3]).encode(x=x, y=y, color=colour)
    return alt.layer(dots, *lines, *[theory] * bool(expected)).properties(width=290, height=260)


def _number_axis(over: str, settings: list[int]) -> alt.X:
    axis = alt.X("setting:Q", title=plain_name(over), axis=alt.Axis(values=settings, format="d"))
    return axis.scale(type="log", base=2, nice=False, padding=12)


def _lines(values: Marks, x: alt.X, y: alt.Y, colour: alt.Color, shape: alt.Shape) -> list[alt.Chart]:
    """Draw a line for each colour through its values, each of which has its interval."""
    chart = alt.Chart(inline_data(values)).encode(x=x, color=colour)
    return [
        chart.mark_line(opacity=0.5).encode(y=y),
        chart.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("value_low:Q"), y2="value_high:Q"),
        chart.mark_point(filled=True, size=60).encode(y=y, shape=shape),
    ]


_ACROSS = Measure(metric="throughput", stat="per_second"), Measure(metric="response_time", stat="p99")


def load_curve(run: Run, summary: Summary) -> alt.TopLevelMixin | None:
    """Draw throughput and p99 response time over the number in which the loads differ, with a row for each server.

    Each line is a variant; diamonds are published figures. None: there is no single number in which the loads differ.
    """
    loads = run.loads
    names = {name for load in loads for name in load.described}
    differing = [name for name in names if len({load.described.get(name) for load in loads}) > 1]
    if len(loads) < 2 or len({load.script for load in loads}) > 1 or len(differing) != 1 or loads[0].burst:
        return None  # bursts have pictures of their own
    [setting] = differing
    values = {load.described.get(setting, "") for load in loads}
    if len(values) < len(loads) or not all(value.isdecimal() and int(value) for value in values):
        return None
    servers = dict.fromkeys(str(variant.settings.get("server")) for variant in run.variants)
    rows = [in_a_row(_over_loads(run, summary, setting, server, measure) for measure in _ACROSS) for server in servers]
    title = f"What changes with {plain_name(setting.lower())}"
    chart = stacked(rows).resolve_scale(color="independent")
    bars = "its interval" if run.trials >= ENOUGH else "the range of the trials"
    subtitle = f"median of {plural(run.trials, 'trial')}; bars show {bars}; diamonds are published"
    return style_chart(chart, title, subtitle, None)


def _over_loads(
    run: Run, summary: Summary, setting: str, server: str, measure: Measure
) -> alt.LayerChart | alt.FacetChart:
    of_server = [variant.name for variant in run.variants if str(variant.settings.get("server")) == server]
    values, marks, wanted = [], [], (measure.metric, measure.stat)
    for load in run.loads:
        at = {"setting": int(load.described[setting])}
        for row in summary.rows:
            if (row.load, row.metric, row.stat) != (load.name, *wanted) or row.variant not in of_server:
                continue
            if row.request_class is None and row.median is not None:
                values.append({"variant": row.variant, **at, **interval_ends(row, "value", 0.0)})
            if row.published is not None:
                marks.append({"variant": row.variant, **at, "value": row.published})
    settings = sorted(int(load.described[setting]) for load in run.loads)
    x = _number_axis(setting.lower(), settings)
    of_unit = unit(measure.metric, measure.stat)
    what = ("" if of_unit.endswith("/s") else f"{plain_name(measure.stat)} ") + plain_name(measure.metric)
    y = alt.Y("value:Q", title=f"{what}, {of_unit}", scale=alt.Scale(zero=True))
    colour = alt.Color("variant:N", title=server, sort=of_server, scale=alt.Scale(domain=of_server))
    layers = _lines(values, x, y, colour, shape_scale("variant", of_server, server))
    if marks:
        published = alt.Chart(inline_data(marks)).encode(x=x, y=y, color=colour)
        layers.append(published.mark_point(shape="diamond", size=110, strokeWidth=1.6))
    return alt.layer(*layers).properties(width=260, height=240)


def wave_cells(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how many requests of a large burst each worker began in each wave, including idle workers.

    A panel has the cells of one variant up to its last wave; all panels share the axis of waves, and the last has its
    labels. None: there is no large burst, or its requests were not served in waves.
    """
    found = [(variant, [row for row in summary.waves if (row.variant, row.load) == (variant.name, load)])
             for variant in run.variants]  # fmt: skip
    shown = [(variant, rows) for variant, rows in found if rows]
    if run.load(load).has_small_bursts or not shown:
        return None
    most = max(row.wave for _, rows in shown for row in rows)
    largest = max(row.requests for _, rows in shown for row in rows)
    width = min(WIDTH, 60 * most)
    labelled = [wave for wave in range(1, most + 1) if most <= 20 or wave % 5 == 0 or wave == 1]
    colour = alt.Color("requests:Q", title="requests that the worker began in the wave")
    colour = colour.scale(range=["#f1f4f8", LIGHT, MEASURED], domain=[0, largest / 2, largest])
    colour = colour.legend(orient="top", gradientLength=160, titleLimit=300)
    panels: list[alt.LayerChart | alt.FacetChart] = []
    for variant, rows in shown:
        last = len(panels) == len(shown) - 1
        named = labels(row.worker for row in rows)
        idle = 0 if variant.elastic else max(0, variant.workers - len(named))
        lanes = [*named.values(), *(f"idle worker {place}" for place in range(1, idle + 1))]
        counts = {(named[row.worker], row.wave): row.requests for row in rows}
        waves = range(1, max(row.wave for row in rows) + 1)
        cells = [
            {"lane": lane, "wave": wave, "requests": counts.get((lane, wave), 0)} for lane in lanes for wave in waves
        ]
        x = alt.X("wave:O", title="wave, counted from the first request that a worker began" if last else None)
        x = x.axis(values=labelled, labels=last, ticks=False, labelAngle=0, domain=False)
        y = alt.Y("lane:N", title=None, sort=lanes, axis=alt.Axis(minExtent=70, ticks=False, domain=False))
        chart = alt.Chart(inline_data(cells)).encode(x=x.scale(domain=[*range(1, most + 1)]), y=y)
        written = alt.condition(f"datum.requests > {largest * 0.7}", alt.value("white"), alt.value("#333"))
        texts = chart.mark_text(fontSize=10 if width / most >= 16 else 7).encode(text="requests:Q", color=written)
        served = sum(row.requests for row in rows)
        says = panel_title(f"{variant.name}: {served} requests in {plural(len(waves), 'wave')}")
        boxes = chart.mark_rect(stroke="white", strokeWidth=1).encode(color=colour)
        panels.append(alt.layer(boxes, texts).properties(title=says, width=width, height=18 * len(lanes)))
    title = f"Waves: how many requests each worker began in each wave{load_suffix(run, load)}"
    which = "first burst of each variant, invalid trials left out; a wave lasts as long as one request asks for"
    return style_chart(stacked(panels, spacing=10), title, which, None)

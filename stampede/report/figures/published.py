"""Every published figure against the measured figure, by variant."""

from math import ceil, floor, log, log10
from typing import Any

import altair as alt

from stampede.evaluate.statistics.stopping import LEAST, has_interval
from stampede.evaluate.verdict.claims import edges_of
from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import PublishedFigure, PublishedRow, Summary
from stampede.report.article import figures_counted
from stampede.report.figures.drawing import (
    CROSS,
    FLOOR_MS,
    Marks,
    in_a_row,
    inline_data,
    panel_title,
    stacked,
    style_chart,
    variant_axis,
    variant_names,
)
from stampede.report.wording import number, plain_name

LOOKS: dict[str, tuple[str, str]] = {
    "reproduced": ("circle", "#1f5fa8"),
    "differs by the floor": ("triangle-down", "#5b8fc7"),
    "undecided": ("diamond", "#8a8f96"),
    "contradicted": (CROSS, "#c02020"),
}
"""The shape and the colour of a figure by its verdict: only a contradiction is red."""

_IN_A_ROW, _SIDE = 3, 180
_LEAST, _MOST = 0.1, 10.0
"""The ends of the axis of ratios. A ratio beyond is drawn at the end."""


def verdict_looks() -> dict[str, Any]:
    """Return the channels of the field ``verdict``, with a legend above the picture."""
    legend = alt.Legend(orient="top", title=None, columnPadding=24)
    shapes, colours = zip(*LOOKS.values(), strict=True)
    return {
        "color": alt.Color("verdict:N", legend=legend, scale=alt.Scale(domain=[*LOOKS], range=[*colours])),
        "shape": alt.Shape("verdict:N", legend=legend, scale=alt.Scale(domain=[*LOOKS], range=[*shapes])),
    }


def published_chart(run: Run, summary: Summary) -> alt.TopLevelMixin | None:
    """Draw each published figure against the measured figure; None: none of the published figures was measured.

    Times have a panel for each variant, with the tolerance and the floor as bands along the diagonal. Other figures are
    ratios, in a row for each variant.
    """
    marks = [
        _mark(row, figure, figure.measured)
        for row in summary.published
        for figure in row.figures
        if figure.measured is not None and figure.published and figure.verdict in LOOKS
    ]
    if not marks:
        return None
    article = summary.article
    title = f"{plural(len(marks), 'measured figure')} beside the article's"
    if article and run.trials < LEAST:
        title = f"One trial does not say which of {plural(article.figures.count, 'figure')} agree with the article"
    elif article:
        title = figures_counted(summary, article)
    times, others = ([mark for mark in marks if mark["is_time"] == kind] for kind in (True, False))
    order = [name for name in variant_names(run) if any(mark["variant"] == name for mark in marks)]
    parts: list[alt.HConcatChart | alt.LayerChart | alt.FacetChart] = [*_panels(summary, times, order)]
    parts += [_ratios(summary, others, order)] if others else []
    floors = sorted({number(abs(floor.ms)) for floor in article.floors}) if article and times else []
    floor = f"; light band: the floor of {' and '.join(floors)} ms" if floors else ""
    subtitle = f"each mark is a figure, a line its interval; dark band: the tolerance{floor}"
    return style_chart(stacked(parts), title, subtitle, None)


def _mark(row: PublishedRow, figure: PublishedFigure, measured: float) -> dict[str, Any]:
    """Return the mark of a figure. Times below FLOOR_MS become FLOOR_MS."""
    known = has_interval([measured] * figure.trials, figure.low, figure.high)
    low, high = figure.interval if figure.interval and known else (measured, measured)
    is_time = figure.unit == "ms"
    least = FLOOR_MS if is_time else _LEAST * figure.published
    values = {
        name: max(value, least)
        for name, value in (("published", figure.published), ("measured", measured), ("low", low), ("high", high))
    }
    ratios = {f"{name}_ratio": min(value / figure.published, _MOST) for name, value in values.items()}
    name = f"{row.request_class or ''} {plain_name(figure.stat)}".strip()
    told = {"variant": row.variant, "name": name, "verdict": figure.verdict, "is_time": is_time}
    return told | values | ratios


def _panels(summary: Summary, times: Marks, order: list[str]) -> list[alt.HConcatChart]:
    """Return panels of the same scale, one for each variant with published times, three in a row."""
    if not times:
        return []
    ends = [mark[key] for mark in times for key in ("published", "measured")]
    domain = min(ends) / 1.6, max(ends) * 1.6
    by_variant = {name: [mark for mark in times if mark["variant"] == name] for name in order}
    shown = {name: marks for name, marks in by_variant.items() if marks}
    panels = [
        _panel(summary, name, marks, domain, first=place % _IN_A_ROW == 0, last=place + _IN_A_ROW >= len(shown))
        for place, (name, marks) in enumerate(shown.items())
    ]
    return [in_a_row(panels[start : start + _IN_A_ROW]) for start in range(0, len(panels), _IN_A_ROW)]


def _panel(
    summary: Summary, variant: str, times: Marks, domain: tuple[float, float], *, first: bool, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw the times of one variant. The first panel of a row names the y axis; the last of a column, the x axis.

    The contradicted figure that is farthest from the published one has its name.
    """
    least, most = domain
    tens = [10.0**power for power in range(floor(log10(least)), ceil(log10(most)) + 1)]
    few = sum(least <= tick <= most for tick in tens) < 3
    ticks = [n * tick for tick in tens for n in ((1, 2, 5) if few else (1,)) if least <= n * tick <= most]
    scale, axis = (
        alt.Scale(type="log", domain=domain, nice=False, clamp=True),
        alt.Axis(values=ticks, format="~g"),
    )
    x = alt.X("published:Q", title="published, ms" if last else None, scale=scale, axis=axis)
    y = alt.Y("measured:Q", title="measured, ms" if first else None, scale=scale, axis=axis)
    rows = [row for row in summary.published if row.variant == variant]
    within = max(row.within for row in rows)
    floors = summary.article.floors if summary.article else []
    floor_ms = max((floor.p90_ms for row in rows for floor in floors
                    if (floor.load, floor.request_class, floor.metric) == (row.load, row.request_class, row.metric)),
                   key=abs, default=0.0)  # fmt: skip
    steps = [least * (most / least) ** (step / 60) for step in range(61)]
    layers = []
    for by_ms, colour in ((floor_ms, "#eef3f8"), (0.0, "#d5e3f1")):
        edges = [(published, *edges_of(published, within, by_ms)) for published in steps]
        band = [{"published": at, "least": max(low, least), "most": high} for at, low, high in edges]
        area = alt.Chart(inline_data(band)).mark_area(color=colour, opacity=1)
        layers.append(area.encode(x=alt.X("published:Q", scale=scale), y=alt.Y("least:Q", scale=scale), y2="most:Q"))
    drawn, looks = alt.Chart(inline_data(times)).encode(x=x), verdict_looks()
    lines = drawn.mark_rule(opacity=0.4, strokeWidth=1.5)
    layers.append(lines.encode(y=alt.Y("low:Q", scale=scale), y2="high:Q", color=looks["color"]))
    layers.append(drawn.mark_point(size=42, strokeWidth=1.8, opacity=0.9).encode(y=y, **looks))
    if off := [mark for mark in times if mark["verdict"] == "contradicted"]:
        farthest = max(off, key=lambda mark: abs(log(mark["measured_ratio"])))
        left = farthest["published"] > (least * most) ** 0.5
        named = alt.Chart(inline_data([farthest]))
        text = named.mark_text(
            align="right" if left else "left", dx=-7 if left else 7, fontSize=10, color=LOOKS["contradicted"][1]
        )
        layers.append(text.encode(x="published:Q", y=y, text="name:N"))
    return alt.layer(*layers).properties(width=_SIDE, height=_SIDE, title=panel_title(variant))


def _ratios(summary: Summary, others: Marks, order: list[str]) -> alt.LayerChart | alt.FacetChart:
    named = [name for name in order if any(mark["variant"] == name for mark in others)]
    marks = [
        {**mark, "offset": (2 * place + 1) / len(found) - 1}
        for name in named
        for found in [[mark for mark in others if mark["variant"] == name]]
        for place, mark in enumerate(found)
    ]
    scale = alt.Scale(type="log", domain=[_LEAST, _MOST], nice=False)
    title = "measured / published, of figures that are not times (beyond 0.1 and 10: at the ends)"
    x = alt.X("measured_ratio:Q", title=title, scale=scale).axis(values=[0.1, 0.2, 0.5, 1, 2, 5, 10], format="~g")
    y, offset, looks = (
        variant_axis(named, grid=True),
        alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.2, 1.2])),
        verdict_looks(),
    )
    bands = [
        {"variant": name, "from": 1 / (1 + within), "to": 1 + within}
        for name in named
        for within in [max(row.within for row in summary.published if row.variant == name)]
    ]
    band = alt.Chart(inline_data(bands)).mark_bar(height={"band": 0.9}, color="#d5e3f1")
    drawn = alt.Chart(inline_data(marks)).encode(y=y, yOffset=offset, color=looks["color"])
    return alt.layer(
        band.encode(x=alt.X("from:Q", scale=scale), x2="to:Q", y=y),
        drawn.mark_rule(opacity=0.4, strokeWidth=1.5).encode(x=alt.X("low_ratio:Q", scale=scale), x2="high_ratio:Q"),
        drawn.mark_point(size=42, strokeWidth=1.8, opacity=0.9).encode(x=x, shape=looks["shape"]),
    ).properties(width=(_SIDE + 45) * _IN_A_ROW - 45, height=34 * len(named))

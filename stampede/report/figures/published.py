"""Every published figure against the measured figure: measured divided by published."""

from typing import Any

import altair as alt

from stampede.evaluate.statistics.stopping import LEAST, has_interval
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.article import figures_counted
from stampede.report.figures.drawing import CROSS, Marks, inline_data, jitter, style_chart, variant_axis

LOOKS: dict[str, tuple[str, str]] = {
    "reproduced": ("circle", "#1f5fa8"),
    "differs by the floor": ("triangle-down", "#5b8fc7"),
    "undecided": ("diamond", "#8a8f96"),
    "contradicted": (CROSS, "#c02020"),
}
"""The shape and the colour of a figure by its verdict: only a contradiction is red."""
_LEAST, _MOST = 0.01, 100.0


def published_chart(run: Run, summary: Summary) -> alt.TopLevelMixin | None:
    """Draw each published figure by variant; None: none of the published figures was measured."""
    marks: Marks = []
    for row in summary.published:
        for figure in row.figures:
            if figure.ratio is not None and figure.published and figure.verdict in LOOKS:
                known = has_interval([figure.measured or 0.0] * figure.trials, figure.low, figure.high)
                ends = [end / figure.published for end in figure.interval or ()] if known else [figure.ratio] * 2
                marks.append({"row": row.variant, "ratio": figure.ratio, "low": ends[0], "high": ends[1],
                              "verdict": figure.verdict, "within": row.within})  # fmt: skip
    if not marks:
        return None
    title, article = f"{plural(len(marks), 'measured figure')} beside the article's", summary.article
    if article and run.trials < LEAST:
        title = f"One trial does not say which of {plural(article.figures.count, 'figure')} agree with the article"
    elif article:
        title = figures_counted(summary, article)
    order = [variant.name for variant in run.variants]
    return ratio_chart(marks, order, title, "each mark is a figure, a line its interval")


def ratio_chart(marks: Marks, rows: list[str], title: str, subtitle: str) -> alt.TopLevelMixin:
    """Draw measured divided by published: a row for each name, in it a mark for each figure, and the tolerance.

    A mark has its ``row``, ``ratio`` and ``verdict``, the tolerance (``within``), and perhaps the ends of its interval
    (``low``, ``high``).
    """
    named = [name for name in rows if any(mark["row"] == name for mark in marks)]
    within = {name: max(mark["within"] for mark in marks if mark["row"] == name) for name in named}
    bands = [{"row": name, "from": 1 / (1 + share), "to": 1 + share} for name, share in within.items()]
    drawn: list[dict[str, Any]] = [
        mark | {"offset": jitter(place)} | {end: min(max(mark[end], _LEAST), _MOST) for end in ("ratio", "low", "high")
                                            if end in mark}
        for name in named
        for place, mark in enumerate(mark for mark in marks if mark["row"] == name)
    ]  # fmt: skip
    scale = alt.Scale(type="log", domain=[_LEAST, _MOST], nice=False)
    x = alt.X("ratio:Q", title="measured / published", scale=scale)
    x = x.axis(values=[0.01, 0.1, 0.5, 1, 2, 10, 100], format="~g")
    y, offset = variant_axis(named, "row"), alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4]))
    legend = alt.Legend(orient="top", title=None, columnPadding=24)
    shapes, colours = ([*looks] for looks in zip(*LOOKS.values(), strict=True))
    colour = alt.Color("verdict:N", legend=legend, scale=alt.Scale(domain=[*LOOKS], range=colours))
    shape = alt.Shape("verdict:N", legend=legend, scale=alt.Scale(domain=[*LOOKS], range=shapes))
    band = alt.Chart(inline_data(bands)).mark_bar(height={"band": 0.9}, color="#dbe7f3")
    figures = alt.Chart(inline_data(drawn)).encode(y=y, yOffset=offset, color=colour)
    lines = figures.mark_rule(opacity=0.4, strokeWidth=1.5).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    points = figures.mark_point(filled=False, size=34, strokeWidth=1.6, opacity=0.8).encode(x=x, shape=shape)
    layers = [band.encode(x=alt.X("from:Q", scale=scale), x2="to:Q", y=y)]
    layers += [*([lines] if any("low" in mark for mark in marks) else []), points]
    subtitle += "; the band is the largest tolerance; ratios beyond the axis are drawn at its ends"
    return style_chart(alt.layer(*layers), title, subtitle, 34 * max(1, len(named)))

"""Predictions beside results in the same picture."""

import altair as alt

from stampede.report.figures.drawing import MEASURED, PUBLISHED, inline_data, style_chart, svg
from stampede.report.wording import capitalised, number
from stampede.teach.lesson.notes import Bar

_WHOSE = ("you predicted", "theory predicts", "measured")
_COLOURS = (PUBLISHED, "#7a7a7a", MEASURED)


def result_chart(bars: list[Bar]) -> str:
    """Return the bars as SVG, with a panel for each number."""
    interval = ", with its interval in black" if any(bar.low is not None for bar in bars) else ""
    subtitle = f"measured: the median of the trials{interval}"
    panels = alt.vconcat(*map(_panel, bars))
    return svg(style_chart(panels, "What you predicted, and what was measured", subtitle, None))


def _panel(bar: Bar) -> alt.LayerChart | alt.FacetChart:
    marks = [
        {"whose": whose, "value": value, "text": number(value),
         "beside": max(value, bar.high or 0) if whose == _WHOSE[2] else value}
        for whose, value in zip(_WHOSE, (bar.yours, bar.theory, bar.measured), strict=True) if value is not None
    ]  # fmt: skip
    y = alt.Y("whose:N", title=None, sort=[*_WHOSE])
    x = alt.X("value:Q", title=f"{capitalised(bar.says)} … {bar.unit}").scale(domainMin=0, nice=True)
    colour = alt.Color("whose:N", legend=None).scale(domain=[*_WHOSE], range=[*_COLOURS])
    drawn = alt.Chart(inline_data(marks))
    layers = [
        drawn.mark_bar(opacity=0.85).encode(x=x, y=y, color=colour),
        drawn.mark_text(align="left", dx=8).encode(x="beside:Q", y=y, text="text:N"),
    ]
    if bar.low is not None and bar.high is not None:
        ends = [{"whose": _WHOSE[2], "low": bar.low, "high": bar.high}]
        rule = alt.Chart(inline_data(ends)).mark_rule(strokeWidth=3, color="#000000")
        layers.append(rule.encode(x="low:Q", x2="high:Q", y=y))
    return alt.layer(*layers).properties(width=460, height=25 * len(marks))

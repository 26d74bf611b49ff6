"""Predictions beside results in the same picture."""

import altair as alt

from stampede.report.figures.drawing import MEASURED, PUBLISHED, inline_data, style_chart, svg
from stampede.report.wording import capitalised, number
from stampede.teach.lesson.notes import Bar

_COLOURS = {"you predicted": PUBLISHED, "theory predicts": "#7a7a7a", "measured": MEASURED}


def result_chart(bars: list[Bar]) -> str:
    """Return the bars as SVG, with a panel for each number."""
    interval = ", with its interval in black" if any(bar.low is not None for bar in bars) else ""
    subtitle = f"measured: the median of the trials{interval}"
    y = alt.Y("whose:N", title=None, sort=[*_COLOURS])
    colour = alt.Color("whose:N", legend=None).scale(domain=[*_COLOURS], range=[*_COLOURS.values()])
    panels = []
    for bar in bars:
        values = zip(_COLOURS, (bar.yours, bar.theory, bar.measured), strict=True)
        marks = [{"whose": whose, "value": told, "text": number(told)} for whose, told in values if told is not None]
        marks[-1]["beside"] = max(bar.measured, bar.high or 0)
        x = alt.X("value:Q", title=f"{capitalised(bar.says)} … {bar.unit}").scale(domainMin=0, nice=True)
        drawn = alt.Chart(inline_data([{"beside": mark["value"], **mark} for mark in marks]))
        layers = [
            drawn.mark_bar(opacity=0.85).encode(x=x, y=y, color=colour),
            drawn.mark_text(align="left", dx=8).encode(x="beside:Q", y=y, text="text:N"),
        ]
        if bar.low is not None and bar.high is not None:
            rule = alt.Chart(inline_data([{"whose": "measured", "low": bar.low, "high": bar.high}]))
            layers.append(rule.mark_rule(strokeWidth=3, color="#000000").encode(x="low:Q", x2="high:Q", y=y))
        panels.append(alt.layer(*layers).properties(width=460, height=25 * len(marks)))
    return svg(style_chart(alt.vconcat(*panels), "What you predicted, and what was measured", subtitle, None))

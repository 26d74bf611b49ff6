"""What all figures share: their style, their data, and how a figure becomes SVG."""

import re
from html import escape
from typing import Any, Self

import altair as alt
import vl_convert

MEASURED = "#1f5fa8"
PUBLISHED = "#c4512d"
WIDTH = 640
FLOOR_MS = 0.1  # the left end of the logarithmic axis
Marks = list[dict[str, Any]]
"""The marks of a chart, one dictionary for each mark."""


def svg(chart: alt.TopLevelMixin, label: str = "") -> str:
    """Draw a chart as SVG text. To a screen reader it is one picture with a label, or with the title of the chart.

    The chart is not checked against Altair's schema, which takes as long as drawing; the tests check every figure.
    """
    drawn = chart.to_dict(validate=False)
    text = _ARIA.sub("", vl_convert.vegalite_to_svg(drawn))
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label or drawn["title"]["text"])}" ', 1)


_ARIA = re.compile(r' (role|aria-[a-z]+)="[^"<>]*"')
"""What Vega tells screen readers of each mark: hundreds of names without a sentence."""


CROSS = "M-1,-1L1,1M-1,1L1,-1"


def variant_axis(order: list[str], field: str = "variant") -> alt.Y:
    """Return the axis that has a row for each variant, or for each value of another field."""
    return alt.Y(f"{field}:N", title=None, sort=order, axis=alt.Axis(grid=True, labelLimit=220))


class _Shared(alt.InlineData):
    """Data that the copies of a chart share. Altair copies a chart whenever one of its properties is set."""

    def __deepcopy__(self, _: object) -> Self:
        return self


def inline_data(values: list[dict[str, Any]]) -> alt.InlineData:
    """Return the data of a chart; each mark is a dictionary."""
    return _Shared(values=values)


def jitter(index: int) -> float:
    """Return the height of a dot in its row, from -1 to 1, so that neighbouring dots are apart; always the same."""
    return (index * 0.618034) % 1 * 2 - 1


def style_chart(chart: Any, title: str, subtitle: str, height: int | None) -> alt.TopLevelMixin:  # noqa: ANN401
    """Give a chart a title, a subtitle and fonts, and return it; ``height`` is in pixels; None: it has its own height.

    The chart itself is changed: Altair's methods copy it for each property, which takes longer than drawing.
    """
    if height is not None:
        chart.width, chart.height = WIDTH, height
    chart.title = alt.Title(title, subtitle=subtitle, anchor="start", subtitleColor="#555")
    chart.config = alt.Config(
        font="Arial, Helvetica, sans-serif", padding={"left": 24, "right": 90, "top": 5, "bottom": 5},
        view=alt.ViewConfig(stroke=None), axis=alt.AxisConfig(gridColor="#e4e4e4", domainColor="#999"),
        axisX=alt.AxisConfig(labelOverlap=True, labelSeparation=4),
    )  # fmt: skip
    styled: alt.TopLevelMixin = chart
    return styled

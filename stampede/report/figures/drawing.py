"""What all figures share: their style, their data, and how a figure becomes SVG."""

import re
from collections.abc import Callable, Iterable
from html import escape
from typing import Any, Self, TypeVar

import altair as alt
import vl_convert

from stampede.evaluate.metrics import MetricName
from stampede.evaluate.read import Key
from stampede.records.claims import Measure
from stampede.records.run import Run, VariantRecord
from stampede.records.summary import Estimate, Summary
from stampede.report.spread import line_ends
from stampede.report.wording import divisor_suffix, plain_name

MEASURED = "#1f5fa8"
PUBLISHED = "#c4512d"
LIGHT = "#a9c6e8"
WIDTH = 640
FLOOR_MS = 0.1  # the left end of the logarithmic axis
T = TypeVar("T")
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


FAILED = "refused or failed"
CROSS = "M-1,-1L1,1M-1,1L1,-1"


def variant_names(run: Run) -> list[str]:
    """Return the names of a run's variants, in the experiment's order."""
    return [variant.name for variant in run.variants]


def read_first_trials(run: Run, summary: Summary, load: str, read: Callable[[Key], list[T]]) -> dict[str, list[T]]:
    """Return by variant what ``read`` finds in its first trusted trial, without variants that have nothing."""
    firsts = summary.first_trials(load)
    found = {name: read((name, load, firsts[name])) for name in variant_names(run) if name in firsts}
    return {name: there for name, there in found.items() if there}


def divisor_subtitle(run: Run, metric: MetricName, load: str) -> str:
    """Return the end of a subtitle that says by what published figures were divided; empty if they were not."""
    by = {row.divided_by for row in run.published if row.metric == metric and row.load in (None, load)} - {1}
    return "".join(f"; published{divisor_suffix(divisor)}" for divisor in sorted(by))


def series_names(variants: list[VariantRecord], over: str) -> list[str]:
    """Return in words the settings in which each variant differs from the others, without the setting on the axis."""
    differing = [
        key
        for key in dict.fromkeys(key for variant in variants for key in variant.settings)
        if key != over and len({repr(variant.settings.get(key)) for variant in variants}) > 1
    ]
    found = []
    for variant in variants:  # such as 4 workers, 1 worker
        named = [(variant.settings.get(key), plain_name(key)) for key in differing]
        found.append(
            ", ".join(f"{value} {key.removesuffix('s') if value == 1 else key}" for value, key in named) or "all"
        )
    return found


def measured_rows(summary: Summary, load: str, measure: Measure) -> dict[str, Estimate]:
    """Return the rows of one statistic by variant, if their values are medians over trials."""
    names = dict.fromkeys(row.variant for row in summary.rows)
    found = {name: summary.row(name, load, measure.request_class, measure.metric, measure.stat) for name in names}
    return {name: row for name, row in found.items() if row and row.median is not None}


def interval_ends(row: Estimate, name: str, floor: float) -> dict[str, float]:
    """Return a measured value and the ends of its interval, or of the range of few trials.

    Values below ``floor`` become ``floor``.
    """
    assert row.measured is not None
    low, high = line_ends(row)
    return {name: max(row.measured, floor), f"{name}_low": max(low, floor), f"{name}_high": max(high, floor)}


def time_axis(field: str, lasted_s: float, title: str, *, last: bool) -> alt.X:
    """Return the time axis that panels below each other share; the last panel has its title and its labels."""
    axis = alt.X(field, title=title if last else None).scale(domain=[0, lasted_s], nice=False)
    return axis.axis(labels=last, ticks=last)


def variant_axis(order: list[str], *, grid: bool = False) -> alt.Y:
    """Return the axis that has a row for each variant."""
    return alt.Y("variant:N", title=None, sort=order, axis=alt.Axis(grid=grid, labelLimit=200))


def kind_colours(colours: dict[str, str]) -> alt.Color:
    """Return the colour of each kind of marks, with a legend above the picture."""
    scale = alt.Scale(domain=[*colours], range=[*colours.values()])
    return alt.Color("kind:N", title=None, legend=alt.Legend(orient="top"), scale=scale)


def panel_title(text: str) -> alt.Title:
    """Return the title of one panel of a picture."""
    return alt.Title(text, anchor="start", fontSize=11, fontWeight="normal", offset=3)


SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left",
          "M-1,-1L1,1L1,-1L-1,1Z", "M0,-1L0.3,-0.3L1,0L0.3,0.3L0,1L-0.3,0.3L-1,0L-0.3,-0.3Z")  # fmt: skip
"""The shapes of points, so that ten lines are told apart without their colours."""


def shape_scale(field: str, names: list[str], title: str | None = None) -> alt.Shape:
    """Return a shape of points for each of ``names``, the values of ``field``; ``title`` is the legend's."""
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    return alt.Shape(f"{field}:N", title=title).scale(domain=names, range=shapes)


class _Shared(alt.InlineData):
    """Data that the copies of a chart share. Altair copies a chart whenever one of its properties is set."""

    def __deepcopy__(self, _: object) -> Self:
        return self


def inline_data(values: list[dict[str, Any]]) -> alt.InlineData:
    """Return the data of a chart; each mark is a dictionary."""
    return _Shared(values=values)


def spaced(values: list[T], most: int) -> list[T]:
    """Return all values, or of many values so many: the middle of each part."""
    return values if len(values) <= most else [values[int((n + 0.5) / most * len(values))] for n in range(most)]


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


def stacked(charts: Iterable[Any], **settings: Any) -> alt.VConcatChart:  # noqa: ANN401  # Altair has no type for both
    """Return charts below each other, without the copies that ``alt.vconcat`` makes of them."""
    whole = alt.VConcatChart(**settings)
    whole.vconcat = [*charts]
    return whole


def in_a_row(charts: Iterable[Any]) -> alt.HConcatChart:
    """Return charts beside each other, without the copies that ``alt.hconcat`` makes of them."""
    whole = alt.HConcatChart()
    whole.hconcat = [*charts]
    return whole

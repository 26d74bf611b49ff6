"""A strip: one number of all laptops of a class on an axis, with theory, the published figure and the claim's bound."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import log10
from statistics import median

import altair as alt
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from stampede.report.figures.drawing import PUBLISHED, inline_data, svg
from stampede.teach.classroom.strips import Strip

WIDTH, RADIUS = 800, 10
LANE = 2 * RADIUS + 3
COLOURS = {"#440154": "#ffffff", "#31688e": "#ffffff", "#35b779": "#1c1c1c", "#fde725": "#1c1c1c",
           "#d1495b": "#ffffff", "#8d5a2b": "#ffffff", "#7a7a7a": "#ffffff"}  # fmt: skip
"""For the numbers of cores, the darkest for the fewest, each with the colour of text on it."""
SHAPES = {"": "circle", "hold": "square", "burn": "diamond"}
THEORY, GOOD = "#7a2fa0", "#dff0e3"


def assign_lanes(places: Sequence[float]) -> list[int]:
    """Return for each dot its lane, so that no dot covers another: 0 is the middle, 1 is above, -1 below."""
    taken: dict[int, float] = {}
    found = [0] * len(places)
    for index in sorted(range(len(places)), key=lambda index: places[index]):
        from_the_middle = (lane for step in count() for lane in (step, -step))
        lane = next(lane for lane in from_the_middle if places[index] - taken.get(lane, -1e9) >= 2 * RADIUS + 1)
        taken[lane] = places[index]
        found[index] = lane
    return found


def _axis(low: float, high: float) -> tuple[float, float, bool]:
    """Return the ends of an axis that has room beside these values, and whether it is logarithmic."""
    if low > 0 and high / low > 20:
        return low / 1.6, high * 1.6, True
    room = (high - low) * 0.06 or abs(high) * 0.5 or 1.0
    return min(low, 0.0) - room, max(high, 0.0) + room, False


def draw_strip(strip: Strip, colour_of: Mapping[int, str], label: str) -> Markup:
    """Draw a strip as SVG, each dot a link to its laptop, and marks above them. Empty: no laptop has a number.

    Dots have lanes where they would cover each other. The axis is logarithmic if all values are positive and differ by
    a factor of 20; otherwise it has 0. ``label`` says to a screen reader what the strip shows.
    """
    measured = [(dot, dot.value) for dot in strip.dots if dot.value is not None]
    if not measured:
        return Markup("")
    claim, predicted, values = strip.claim, strip.predicted, [value for _, value in measured]
    marks = [strip.median, strip.published, claim.limit, *predicted]
    known = [*values, *(mark for mark in marks if mark is not None)]
    low, high, is_log = _axis(min(known), max(known))
    scaled: Callable[[float], float] = log10 if is_log else float
    least, most = scaled(low), scaled(high)
    places = [WIDTH * (scaled(value) - least) / (most - least) for value in values]
    lanes = assign_lanes(places)
    top, bottom = max(*lanes, 0) + 1.5, min(*lanes, 0) - 0.7
    dots = []
    for (dot, value), lane in zip(measured, lanes, strict=True):
        fill, shape = colour_of[dot.cores], SHAPES.get(dot.computes, "circle")
        look = {"shape": shape, "fill": fill, "ink": COLOURS[fill]}
        dots.append({"x": value, "y": lane, "laptop": str(dot.laptop), "href": f"#laptop-{dot.laptop}", **look})
    x = alt.X("x:Q", title=None).axis(grid=False, format=",")
    x = x.scale(type="log" if is_log else "linear", domain=[low, high], nice=False)
    y = alt.Y("y:Q", title=None, axis=None).scale(domain=[bottom, top], nice=False)
    shapes = alt.Shape("shape:N", legend=None).scale(domain=[*SHAPES.values()], range=[*SHAPES.values()])
    ends = (claim.limit, high) if claim.at_least is not None else (low, claim.limit)

    def at(*places: float | None) -> alt.Chart:
        return alt.Chart(inline_data([{"x": place, "y": top - 0.4} for place in places if place is not None]))

    drawn = alt.Chart(inline_data(dots)).encode(x=x, y=y, href="href:N")
    area = alt.Chart(inline_data([dict(zip(("x", "to"), ends, strict=True))]))
    theory = at(median(predicted) if predicted else None)
    layers = [
        area.mark_rect(color=GOOD).encode(x=x, x2="to:Q"),
        at(strip.median).mark_rule(color="#1c1c1c", strokeWidth=2.5, opacity=0.75).encode(x=x),
        at(*predicted).mark_line(color=THEORY, strokeWidth=3).encode(x=x, y=y),
        theory.mark_point(shape="triangle-down", size=130, color=THEORY, filled=True).encode(x=x, y=y),
        at(strip.published).mark_point(shape="diamond", size=130, color=PUBLISHED).encode(x=x, y=y),
        drawn.mark_point(size=4 * RADIUS**2, opacity=1, stroke="#ffffff", strokeWidth=2).encode(
            fill=alt.Fill("fill:N", scale=None), shape=shapes
        ),
        drawn.mark_text(fontSize=11, fontWeight=700).encode(text="laptop:N", color=alt.Color("ink:N", scale=None)),
    ]
    with debug_mode(False):  # Altair would check each part of a chart against its schema; the tests do that
        chart = alt.layer(*layers).properties(width=WIDTH, height=round(LANE * (top - bottom)))
        picture = svg(chart.configure(font="Arial, Helvetica, sans-serif"), label)
    # vl-convert takes links within a page for links to its own site
    picture = re.sub(r'xlink:href="[^"#]*#([^"]*)"', r'href="#\1" aria-label="\1"', picture)
    return Markup(picture.replace('role="img"', 'role="group"', 1))  # noqa: S704  # we draw it

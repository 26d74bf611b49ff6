"""A strip: one number of all laptops of a class on an axis, with theory, the published figure and a claim's bound.

Another kind of strip has what students predicted of a number, beside what they measured.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from math import log10
from statistics import median
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from stampede.records.claims import Claim
from stampede.report.figures.drawing import PUBLISHED, inline_data, svg
from stampede.teach.classroom.predictions import ClassPrediction
from stampede.teach.classroom.strips import Mode, Strip

WIDTH, RADIUS = 800, 10
LANE = 2 * RADIUS + 3
COLOURS = ("#440154", "#31688e", "#35b779", "#fde725", "#d1495b", "#8d5a2b", "#7a7a7a")
"""For the numbers of cores, the darkest for the fewest."""
_DARK = ("#440154", "#31688e", "#d1495b", "#8d5a2b", "#7a7a7a")
SHAPES: dict[Mode, str] = {"sleep": "circle", "hold": "square", "burn": "diamond"}
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


def draw_strip(strip: Strip, colour_of: Mapping[int, str], label: str) -> Markup:
    """Draw a strip as SVG, each dot a link to its laptop; ``label`` says to a screen reader what it shows."""
    dots = [
        {"x": dot.value, "laptop": str(dot.laptop), "href": f"#laptop-{dot.laptop}", "shape": SHAPES[dot.cpu_mode],
         "fill": colour_of[dot.cores], "ink": "#ffffff" if colour_of[dot.cores] in _DARK else "#1c1c1c"}
        for dot in strip.dots if dot.value is not None
    ]  # fmt: skip
    return _drawn(dots, strip.median, strip.predicted, strip.published, strip.claim, label)


def draw_predictions(found: ClassPrediction, label: str) -> Markup:
    """Draw what students predicted of a number as SVG. The dots have no numbers: nobody sees who predicted what."""
    rings = [{"x": value, "laptop": "", "href": None, "shape": "circle", "fill": "#ffffff", "ink": "#ffffff"}
             for value in found.predictions]  # fmt: skip
    return _drawn(rings, median(found.measured), [] if found.theory is None else [found.theory], None, None, label)


def _drawn(
    dots: list[dict[str, Any]], middle: float | None, predicted: Sequence[float], published: float | None,
    claim: Claim | None, label: str,
) -> Markup:  # fmt: skip
    """Draw dots, in lanes where they would cover each other, and marks above them. Empty: there is no dot.

    The axis is logarithmic if all values are positive and differ by a factor of 20; otherwise it has 0.
    """
    if not dots:
        return Markup("")
    marks = [*predicted, *(mark for mark in (middle, published, claim and claim.limit) if mark is not None)]
    low, high = (end([*(dot["x"] for dot in dots), *marks]) for end in (min, max))
    is_log = low > 0 and high / low > 20
    room = (high - low) * 0.06 or abs(high) * 0.5 or 1.0
    low, high = (low / 1.6, high * 1.6) if is_log else (min(low, 0.0) - room, max(high, 0.0) + room)
    least, most = (log10(end) if is_log else end for end in (low, high))
    places = [WIDTH * ((log10(dot["x"]) if is_log else dot["x"]) - least) / (most - least) for dot in dots]
    lanes = assign_lanes(places)
    top, bottom = max(*lanes, 0) + 1.5, min(*lanes, 0) - 0.7
    scale = alt.Scale(type="log" if is_log else "linear", domain=[low, high], nice=False)
    x = alt.X("x:Q", title=None, scale=scale).axis(grid=False, format=",")
    y = alt.Y("y:Q", title=None, axis=None, scale=alt.Scale(domain=[bottom, top], nice=False))

    def at(*values: float | None) -> alt.Chart:
        return alt.Chart(inline_data([{"x": value, "y": top - 0.4} for value in values if value is not None]))

    layers: list[alt.Chart] = []
    if claim:
        ends = (claim.limit, high) if claim.at_least is not None else (low, claim.limit)
        area = alt.Chart(inline_data([dict(zip(("x", "to"), ends, strict=True))]))
        layers.append(area.mark_rect(color=GOOD).encode(x=x, x2="to:Q"))
    layers.append(at(middle).mark_rule(color="#1c1c1c", strokeWidth=2.5, opacity=0.75).encode(x=x))
    layers.append(at(*predicted).mark_line(color=THEORY, strokeWidth=3).encode(x=x, y=y))
    triangle = at(median(predicted) if predicted else None)
    layers.append(triangle.mark_point(shape="triangle-down", size=130, color=THEORY, filled=True).encode(x=x, y=y))
    layers.append(at(published).mark_point(shape="diamond", size=130, color=PUBLISHED).encode(x=x, y=y))
    drawn = alt.Chart(inline_data([dot | {"y": lane} for dot, lane in zip(dots, lanes, strict=True)]))
    drawn = drawn.encode(x=x, y=y, href="href:N")
    outline = "#ffffff" if dots[0]["laptop"] else "#7a7a7a"
    point = drawn.mark_point(size=4 * RADIUS**2, opacity=1, stroke=outline, strokeWidth=2)
    of_shape = alt.Scale(domain=[*SHAPES.values()], range=[*SHAPES.values()])
    layers.append(
        point.encode(fill=alt.Fill("fill:N", scale=None), shape=alt.Shape("shape:N", legend=None, scale=of_shape))
    )
    layers.append(
        drawn.mark_text(fontSize=11, fontWeight=700).encode(text="laptop:N", color=alt.Color("ink:N", scale=None))
    )
    with debug_mode(False):  # Altair would check each part of a chart against its schema; the tests do that
        chart = alt.layer(*layers).properties(width=WIDTH, height=round(LANE * (top - bottom)))
        drawn_svg = svg(chart.configure(font="Arial, Helvetica, sans-serif"), label)
    # vl-convert takes links within a page for links to its own site
    drawn_svg = re.sub(r'xlink:href="[^"#]*#([^"]*)"', r'href="#\1" aria-label="\1"', drawn_svg)
    return Markup(drawn_svg.replace('role="img"', 'role="group"', 1))  # noqa: S704  # we draw it

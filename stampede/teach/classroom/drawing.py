"""A strip: one number of all laptops of a class on an axis, with theory, the published figure and a claim's bound.

Another kind of strip has what students predicted of a number, beside what they measured. Strips are drawn here and not
by Vega, because each dot has the number of its laptop, and the page's script finds it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import ceil, floor, log10
from statistics import median
from typing import NamedTuple

from markupsafe import Markup, escape

from stampede.report.wording import number, unit_suffix, verdict_phrase
from stampede.teach.classroom.predictions import ClassPrediction
from stampede.teach.classroom.strips import Dot, Mode, Strip

WIDTH, LEFT, RIGHT = 900, 30, 870
RADIUS = 10
_LANE = 2 * RADIUS + 3
_MARKS = 26
"""The height above the dots, for the marks of theory, of the published figure and of the median."""
_COLOURS = ("#440154", "#31688e", "#35b779", "#fde725", "#d1495b", "#8d5a2b", "#7a7a7a")
_ON_DARK = {"#fde725": "#1c1c1c", "#35b779": "#1c1c1c"}
SHAPES: dict[Mode, str] = {"sleep": "circle", "hold": "square", "burn": "diamond"}
THEORY, PUBLISHED, GOOD = "#7a2fa0", "#c4512d", "#dff0e3"


class Scale(NamedTuple):
    """The axis of a strip, from ``low`` to ``high``, on logarithms if ``is_log``."""

    low: float
    high: float
    is_log: bool

    def x(self, value: float) -> float:
        """Return where a value is drawn."""
        low, high, at = (log10(end) if self.is_log else end for end in (self.low, self.high, value))
        return LEFT + (RIGHT - LEFT) * (at - low) / (high - low)

    @property
    def ticks(self) -> list[float]:
        """The values that are written below the axis."""
        if self.is_log:
            low, high = floor(log10(self.low)), ceil(log10(self.high))
            parts = (1.0,) if high - low > 3 else (1.0, 2.0, 5.0)
            every = [10.0**power * part for power in range(low, high + 1) for part in parts]
        else:
            rough = (self.high - self.low) / 5
            power = 10.0 ** floor(log10(rough))
            step = next(part * power for part in (1, 2, 5, 10) if part * power >= rough)
            every = [step * place for place in range(floor(self.low / step), ceil(self.high / step) + 1)]
        return [tick for tick in every if self.low <= tick <= self.high]


def scale_of(values: Sequence[float]) -> Scale:
    """Return an axis with room for all values: on logarithms if they are positive and differ by a factor of 20."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 20:
        return Scale(low / 1.6, high * 1.6, is_log=True)
    low = 0.0 if 0 <= low < high / 2 or low == high else low
    room = (high - low) * 0.06 or abs(high) * 0.5 or 1.0
    return Scale(low - room, high + room, is_log=False)


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


def core_colours(cores: Sequence[int]) -> dict[int, str]:
    """Return a colour for each number of cores, the darkest for the fewest."""
    return {number: _COLOURS[place % len(_COLOURS)] for place, number in enumerate(sorted(set(cores)))}


def draw_strip(strip: Strip, colour_of: Mapping[int, str], label: str) -> Markup:
    """Draw a strip as SVG; ``label`` says to a screen reader what it shows. A strip without a value is empty."""
    dots = [(dot, dot.value) for dot in strip.dots if dot.value is not None]
    if not dots:
        return Markup("")
    limit = strip.claim.limit if strip.claim else None
    marks = [*strip.values.values(), *strip.predicted, *(mark for mark in (strip.published, limit) if mark is not None)]
    scale = scale_of(marks)
    places, floor_ = _laid_out([scale.x(value) for _, value in dots])
    parts = [
        *_bound(strip, scale, floor_),
        *_axis(scale, floor_),
        *_marks(scale, floor_, strip.median, strip.predicted, strip.published),
        *(_dot(dot, value, x, y, colour_of[dot.cores], strip.unit)
          for (dot, value), (x, y) in zip(dots, places, strict=True)),
    ]  # fmt: skip
    return _svg(label, floor_, parts)


def draw_predictions(predicted_value: ClassPrediction, label: str) -> Markup:
    """Draw what students predicted of a number as SVG. The dots have no numbers: nobody sees who predicted what.

    The axis begins at 0 or is logarithmic, so that predictions that are nearly right look nearly right.
    """
    theory = [predicted_value.theory] if predicted_value.theory is not None else []
    marks = [*predicted_value.predictions, *predicted_value.measured, *theory]
    scale = scale_of(marks)
    if not scale.is_log:
        scale = scale_of([0.0, *marks])
    places, floor_ = _laid_out([scale.x(value) for value in predicted_value.predictions])
    parts = [
        *_axis(scale, floor_),
        *_marks(scale, floor_, median(predicted_value.measured), theory, None),
        *(f"<g><title>{number(value)}</title>{prediction_shape(x, y)}</g>"
          for value, (x, y) in zip(predicted_value.predictions, places, strict=True)),
    ]  # fmt: skip
    return _svg(label, floor_, parts)


def prediction_shape(x: float, y: float) -> str:
    """Return the shape of a prediction as SVG: a ring."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS - 2}" fill="none" stroke="#7a7a7a" stroke-width="3"/>'


def _laid_out(places: Sequence[float]) -> tuple[list[tuple[float, float]], float]:
    """Return where the middle of each dot is, and where the axis is, below all dots."""
    rows = assign_lanes(places)
    middle = _MARKS + RADIUS + 2 + _LANE * max(0, *rows)
    floor_ = middle + RADIUS + 2 + _LANE * max(0, *(-row for row in rows))
    return [(place, middle - _LANE * row) for place, row in zip(places, rows, strict=True)], floor_


def _svg(label: str, floor_: float, parts: Iterable[str]) -> Markup:
    head = f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {floor_ + 24}" font-size="12">'
    return Markup(f"{head}{''.join(parts)}</svg>")  # noqa: S704  # every text is escaped


def _bound(strip: Strip, scale: Scale, floor_: float) -> Iterator[str]:
    """Yield the side of a claim's bound on which the claim holds, and the bound."""
    if strip.claim:
        at = scale.x(strip.claim.limit)
        left, right = (at, RIGHT) if strip.claim.at_least is not None else (LEFT, at)
        width, height = max(0.0, right - left), floor_ - _MARKS
        yield f'<rect x="{left:.1f}" y="{_MARKS}" width="{width:.1f}" height="{height}" fill="{GOOD}"/>'
        yield f'<path d="M{at:.1f},{_MARKS}V{floor_}" stroke="#1a7f37" stroke-dasharray="4 3"/>'


def _axis(scale: Scale, floor_: float) -> Iterator[str]:
    yield f'<path d="M{LEFT},{floor_}H{RIGHT}" stroke="#999"/>'
    for tick in scale.ticks:
        at = scale.x(tick)
        yield f'<path d="M{at:.1f},{floor_}v4" stroke="#999"/>'
        yield f'<text x="{at:.1f}" y="{floor_ + 17}" text-anchor="middle" fill="#555">{tick:g}</text>'


def _marks(
    scale: Scale, floor_: float, middle: float | None, predicted: Sequence[float], published: float | None
) -> Iterator[str]:
    """Yield the marks above the dots: the median of the class, what theory predicts, and the published figure."""
    if middle is not None:
        at = scale.x(middle)
        yield f'<path d="M{at:.1f},{_MARKS - 8}V{floor_}" stroke="#1c1c1c" stroke-width="2.5" opacity=".75"/>'
    if predicted:
        low, high = (scale.x(end) for end in (min(predicted), max(predicted)))
        yield f'<path d="M{low:.1f},{_MARKS - 6}H{high:.1f}" stroke="{THEORY}" stroke-width="3"/>'
        yield f'<path d="M{(low + high) / 2:.1f},{_MARKS - 2}l-7,-12h14z" fill="{THEORY}"><title>theory</title></path>'
    if published is not None:
        at = scale.x(published)
        yield (f'<path d="M{at:.1f},{_MARKS - 1}l-7,-7l7,-7l7,7z" fill="none" stroke="{PUBLISHED}" '
               'stroke-width="2"><title>published</title></path>')  # fmt: skip


def _dot(dot: Dot, value: float, x: float, y: float, colour: str, unit: str) -> str:
    measured = f"{number(value)}{unit_suffix(unit)}, {verdict_phrase(dot.verdict, dot.suspect)}"
    told = f"laptop-{dot.laptop}: {measured}, {dot.cores} cores, {dot.cpu_mode}"
    ink = _ON_DARK.get(colour, "#ffffff")
    return (
        f'<g class="dot" data-laptop="{dot.laptop}"><title>{escape(told)}</title>'
        f'{shape(dot.cpu_mode, x, y, colour)}<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="{ink}" '
        f'font-size="11" font-weight="700">{dot.laptop}</text></g>'
    )


def shape(cpu_mode: Mode, x: float, y: float, colour: str) -> str:
    """Return the shape of a dot as SVG: a circle, a square or a diamond, which tells how requests pass their time."""
    look = f'fill="{colour}" stroke="#ffffff"'
    match SHAPES[cpu_mode]:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {look}/>'
        case "square":
            return f'<rect x="{x - 9:.1f}" y="{y - 9:.1f}" width="18" height="18" {look}/>'
        case _:
            return f'<path d="M{x:.1f},{y - 13:.1f}l13,13l-13,13l-13,-13z" {look}/>'

"""The picture of all published figures: measured divided by published, for every experiment."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from stampede.report.figures.drawing import inline_data, jitter, style_chart, svg
from stampede.report.figures.published import LOOKS, verdict_looks
from stampede.reproduce.reproduction import Reproduced

_LEAST, _MOST = 0.01, 100.0
"""The ends of the axis. A ratio beyond is drawn at the end."""


def ratio_picture(experiments: Sequence[Reproduced]) -> str:
    """Draw measured divided by published as SVG: a row for each experiment, a dot for each figure.

    The band is the tolerance.
    """
    shown = [experiment for experiment in experiments if experiment.figures]
    order = [experiment.experiment for experiment in shown]
    dots: list[dict[str, Any]] = []
    for experiment in shown:
        drawn = [figure for figure in experiment.figures if figure.ratio is not None and figure.verdict in LOOKS]
        for place, figure in enumerate(drawn):
            ratio = min(max(figure.ratio or 0.0, _LEAST), _MOST)
            dots.append({"experiment": experiment.experiment, "ratio": ratio, "verdict": figure.verdict,
                         "offset": jitter(place)})  # fmt: skip
    bands = [
        {"experiment": experiment.experiment, "from": 1 / (1 + within), "to": 1 + within}
        for experiment in shown
        for within in [max(figure.within for figure in experiment.figures)]
    ]
    y = alt.Y("experiment:N", title=None, sort=order, axis=alt.Axis(grid=True, labelLimit=220))
    scale = alt.Scale(type="log", domain=[_LEAST, _MOST], nice=False)
    x = alt.X("ratio:Q", title="measured / published", scale=scale).axis(
        values=[0.01, 0.1, 0.5, 1, 2, 10, 100], format="~g"
    )
    band = alt.Chart(inline_data(bands)).mark_bar(height={"band": 0.9}, color="#dbe7f3").encode(
        x=alt.X("from:Q", scale=scale), x2="to:Q", y=y
    )  # fmt: skip
    points = alt.Chart(inline_data(dots)).mark_point(filled=False, size=34, strokeWidth=1.6, opacity=0.8)
    offset = alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4]))
    verdicts = [dot["verdict"] for dot in dots]
    near = verdicts.count("reproduced") + verdicts.count("differs by the floor")
    contradict = verdicts.count("contradicted")
    end = f", {contradict} contradict them" if contradict else ""
    machines = dict.fromkeys(", ".join(experiment.machine.split(", ")[:2]) for experiment in experiments)
    title = f"{near} of {len(dots)} measured figures agree with the articles{end}: {' and '.join(machines)}"
    subtitle = "each mark is a figure; the band is the largest tolerance; ratios beyond the axis are drawn at its ends"
    layers = alt.layer(band, points.encode(x=x, y=y, **verdict_looks(), yOffset=offset))
    return svg(style_chart(layers, title, subtitle, 30 * len(order)))

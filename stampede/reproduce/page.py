"""The page of all published figures: measured divided by published, for every experiment of this machine."""

from typing import Any

import altair as alt
from markupsafe import Markup

from stampede.evaluate.statistics.stopping import has_interval
from stampede.report.figures.drawing import inline_data, jitter, style_chart, svg
from stampede.report.figures.published import LOOKS, verdict_looks
from stampede.report.page import render
from stampede.report.wording import metric_phrase, number, plain_name
from stampede.reproduce.reproduction import Reproduced, Reproduction

_LEAST, _MOST = 0.01, 100.0
"""The ends of the axis. A ratio beyond is drawn at the end."""


def reproduction_page(own: Reproduction, reference: Reproduction | None) -> str:
    """Return the page of this machine, with the picture of the reference."""
    return render(
        "reproduce.html",
        app="stampede.reproduce",
        own=own,
        reference=reference,
        pictures=[
            (title, Markup(svg(ratio_chart(found.experiments, title))))  # noqa: S704  # we draw these pictures
            for title, found in (("this machine", own), ("the reference", reference))
            if found and any(experiment.figures for experiment in found.experiments)
        ],
        number=number,
        has_interval=has_interval,
        words=plain_name,
        of_requests=metric_phrase,
    )


def ratio_chart(experiments: list[Reproduced], where: str) -> alt.TopLevelMixin:
    """Draw measured divided by published for every published figure: a row for each experiment, a dot for each figure.

    The band is the tolerance. A dot links to the report of its run, if there is experiment.
    """
    shown = [experiment for experiment in experiments if experiment.figures]
    order = [experiment.experiment for experiment in shown]
    dots: list[dict[str, Any]] = []
    for experiment in shown:
        drawn = [figure for figure in experiment.figures if figure.ratio is not None and figure.verdict in LOOKS]
        for place, figure in enumerate(drawn):
            assert figure.ratio is not None
            dots.append({
                "experiment": experiment.experiment,
                "ratio": min(max(figure.ratio, _LEAST), _MOST),
                "verdict": figure.verdict,
                "offset": jitter(place),
                "link": experiment.report,
            })  # fmt: skip
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
    links = {"href": "link:N"} if any(experiment.report for experiment in shown) else {}
    drawn = points.encode(
        x=x,
        y=y,
        **verdict_looks(),
        yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4])),
        **links,
    )
    verdicts = [dot["verdict"] for dot in dots]
    near = verdicts.count("reproduced") + verdicts.count("differs by the floor")
    contradict = verdicts.count("contradicted")
    end = f", {contradict} contradict them" if contradict else ""
    title = f"{near} of {len(dots)} measured figures agree with the articles{end}: {where}"
    subtitle = "each mark is a figure; the band is the largest tolerance; ratios beyond the axis are drawn at its ends"
    return style_chart(alt.layer(band, drawn), title, subtitle, 30 * len(order))

"""The page of all published figures: measured divided by published, for every experiment of this machine."""

import altair as alt
from markupsafe import Markup

from stampede.evaluate.statistics.stopping import has_interval
from stampede.report.figures.drawing import svg
from stampede.report.figures.published import LOOKS, ratio_chart
from stampede.report.page import render
from stampede.report.wording import metric_phrase, number, plain_name
from stampede.reproduce.reproduction import Reproduced, Reproduction


def reproduction_page(own: Reproduction, reference: Reproduction | None) -> str:
    """Return the page of this machine, with the picture of the reference."""
    return render(
        "reproduce.html",
        app="stampede.reproduce",
        own=own,
        reference=reference,
        pictures=[
            (title, Markup(svg(figures_chart(found.experiments, title))))  # noqa: S704  # we draw these pictures
            for title, found in (("this machine", own), ("the reference", reference))
            if found and any(experiment.figures for experiment in found.experiments)
        ],
        number=number,
        has_interval=has_interval,
        words=plain_name,
        of_requests=metric_phrase,
    )


def figures_chart(experiments: list[Reproduced], where: str) -> alt.TopLevelMixin:
    """Draw every published figure, a row for each experiment; a mark links to the report of its run."""
    marks = [
        {"row": experiment.experiment, "ratio": figure.ratio, "verdict": figure.verdict, "within": figure.within}
        | ({"link": experiment.report} if experiment.report else {})
        for experiment in experiments
        for figure in experiment.figures
        if figure.ratio is not None and figure.verdict in LOOKS
    ]
    verdicts = [mark["verdict"] for mark in marks]
    near = verdicts.count("reproduced") + verdicts.count("differs by the floor")
    contradict = verdicts.count("contradicted")
    end = f", {contradict} contradict them" if contradict else ""
    title = f"{near} of {len(marks)} measured figures agree with the articles{end}: {where}"
    return ratio_chart(marks, [each.experiment for each in experiments], title, "each mark is a figure")

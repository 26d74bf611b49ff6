"""The picture of all published figures: measured divided by published, for every experiment."""

from collections.abc import Sequence

from stampede.report.figures.drawing import svg
from stampede.report.figures.published import LOOKS, ratio_chart
from stampede.reproduce.reproduction import Reproduced


def ratio_picture(experiments: Sequence[Reproduced]) -> str | None:
    """Draw measured divided by published as SVG: a row for each experiment, a mark for each figure; None: no figure."""
    marks = [
        {"row": experiment.experiment, "ratio": figure.ratio, "verdict": figure.verdict, "within": figure.within}
        for experiment in experiments
        for figure in experiment.figures
        if figure.ratio is not None and figure.verdict in LOOKS
    ]
    if not marks:
        return None
    verdicts = [mark["verdict"] for mark in marks]
    near = verdicts.count("reproduced") + verdicts.count("differs by the floor")
    contradict = verdicts.count("contradicted")
    end = f", {contradict} contradict them" if contradict else ""
    machines = dict.fromkeys(", ".join(experiment.machine.split(", ")[:2]) for experiment in experiments)
    title = f"{near} of {len(marks)} measured figures agree with the articles{end}: {' and '.join(machines)}"
    return svg(ratio_chart(marks, [each.experiment for each in experiments], title, "each mark is a figure"))

"""The page that shows the lanes while a load runs."""

import json
from pathlib import Path

from markupsafe import Markup

from analysis.report.lanes import COLOURS
from analysis.report.page import policy, script, style, template


def page(experiment: str, report: Path) -> str:
    """Return the page of an experiment. ``report``: where its report will be."""
    drawing = script("trial.js", "pens.js", "draw.js", "live.js")
    about = json.dumps({"colours": COLOURS, "report": str(report)}).replace("<", "\\u003c")
    return template("watch.html").render(
        experiment=experiment,
        policy=f"{policy(drawing)}; connect-src 'self'",
        style=style(),
        script=drawing,
        about=Markup(about),  # noqa: S704  # holds no "<"
    )

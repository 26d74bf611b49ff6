"""What all experiments of a machine say of everything that the articles published, as a file and as a picture."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from stampede.paths import ROOT
from stampede.records.folder import BadRun, read_run, read_summary, write_whole
from stampede.records.model import Model
from stampede.records.run import METHOD
from stampede.records.summary import Article, PublishedFigure
from stampede.report.article import article_sentence
from stampede.report.figures.drawing import svg
from stampede.report.figures.published import LOOKS, ratio_chart
from stampede.reproduce.shown import Shown, shown_of

REFERENCE = ROOT / "docs" / "experiments" / "reference.json"
"""What the experiments said on the machine of this lab's authors. The tables of their pages follow from it."""


class Figure(PublishedFigure):
    """A published figure beside the measured one, with what it is the figure of, and its tolerance."""

    variant: str
    load: str
    request_class: str | None
    metric: str
    within: float


class Reproduced(Model):
    """What one experiment's run says. ``claims`` counts the verdicts on claims.

    ``judged`` is the verdict on the article, and ``sentence`` is the same in words; None: nothing was published.
    ``shown`` is what the experiment's page in docs/ shows.
    """

    experiment: str
    title: str
    article: str | None
    address: str | None = Field(None, pattern=r"^https?://")
    machine: str
    measured: str
    trials: int
    validity: str
    claims: dict[str, int]
    judged: Article | None = None
    sentence: str | None = None
    figures: list[Figure]
    shown: Shown | None = None

    @property
    def words(self) -> str:
        """The verdict on the article in words, without its name."""
        return (self.sentence or "").partition(": ")[2]


class Reproduction(Model):
    """What the runs of one machine say, an element for each experiment."""

    experiments: list[Reproduced]


def read_reproduced(folder: Path) -> Reproduced:
    """Return what a run says of its published figures and claims. Raise BadRun if it cannot be read."""
    run, summary = read_run(folder), read_summary(folder)
    found = [claim.verdict for claim in summary.claims]
    source = run.source
    return Reproduced(
        experiment=run.experiment,
        title=run.title,
        article=f"{source.publisher}{f', {source.year}' if source.year else ''}" if source else None,
        address=source.address if source else None,
        machine=f"{run.host.cpu}, {run.host.cores} cores, {run.host.memory_gib} GiB, {run.host.kernel}",
        measured=run.began[:10],
        trials=run.trials,
        validity=summary.validity.verdict,
        claims={verdict: found.count(verdict) for verdict in dict.fromkeys(found)},
        judged=summary.article,
        sentence=article_sentence(run, summary),
        figures=[
            Figure(**row.model_dump(include={"variant", "load", "request_class", "metric", "within"}) | dict(figure))
            for row in summary.published
            for figure in row.figures
        ],
        shown=shown_of(run, summary),
    )


def default_run(results: Path, experiment: str, variants: list[str], trials: int) -> Path | None:
    """Return the latest run of an experiment that measured all variants as often as by default; None: there is none."""
    whole = rf"(make experiment NAME=|stampede run ){re.escape(experiment)}( TRIALS=\d+| --trials \d+)?"
    for folder in sorted((path.parent for path in (results / experiment).glob("*/summary.json")), reverse=True):
        with suppress(BadRun):
            run = read_run(folder)
            if (
                not folder.is_symlink()
                and (run.outcome, run.method) == ("completed", METHOD)
                and re.fullmatch(whole, run.command)
                and run.trials >= trials
                and [variant.name for variant in run.variants] == variants
            ):
                read_summary(folder)
                return folder
    return None


def read_reproduction(path: Path) -> Reproduction:
    """Read the experiments of another machine, as ``write_reproduction`` wrote them."""
    return Reproduction.model_validate_json(path.read_text(encoding="utf-8"))


def write_reproduction(path: Path, found: Reproduction) -> None:
    """Write what the experiments of this machine say to a file with a line for each figure and each row of a table."""
    write_whole(path, _in_lines(found.model_dump(mode="json")) + "\n")


def _in_lines(value: object) -> str:
    """Return a value as JSON, with a line for each element of a list that has more than texts and numbers."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(key)}:{_in_lines(inner)}" for key, inner in value.items()) + "}"
        case [dict() | list(), *_]:
            return "[\n" + ",\n".join(map(_in_lines, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


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

"""What all experiments of this machine say of everything that the articles published: one figure after the other."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from stampede.records.folder import BadRun, read_run, read_summary, write_whole
from stampede.records.model import Record
from stampede.records.run import METHOD, Run
from stampede.records.summary import Article, Summary
from stampede.report.article import article_sentence
from stampede.reproduce.shown import Shown, ShownTable, shown_of


class Figure(Record):
    """A published figure beside the measured one. ``ratio`` is measured divided by published; None: not measured."""

    variant: str
    load: str
    request_class: str | None
    metric: str
    stat: str
    unit: str
    published: float
    measured: float | None
    ratio: float | None
    low: float | None
    high: float | None
    within: float
    verdict: str


class Reproduced(Record):
    """What one experiment's run says. ``claims`` counts the verdicts on claims; ``report`` is a path or empty.

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
    report: str = ""

    @property
    def words(self) -> str:
        """The verdict on the article in words; of an older file, how many published figures have each verdict."""
        if self.sentence:
            return self.sentence.partition(": ")[2]
        return ", ".join(
            f"{count} {verdict}" for verdict, count in Counter(each.verdict for each in self.figures).items()
        )


class Reproduction(Record):
    """What the runs of one machine say, an element for each experiment."""

    experiments: list[Reproduced]


def read_reproduced(folder: Path, results: Path) -> Reproduced:
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
        figures=list(_figures(summary)),
        shown=shown_of(run, summary),
        report=str((folder / "report.html").relative_to(results)),
    )


def _figures(summary: Summary) -> Iterator[Figure]:
    for row in summary.published:
        shared = row.model_dump(include={"variant", "load", "request_class", "metric", "within"})
        for figure in row.figures:
            yield Figure(**shared | figure.model_dump(exclude={"trials"}))


def default_run(results: Path, experiment: str, variants: list[str], trials: int) -> Path | None:
    """Return the latest run of an experiment that measured all variants as often as by default; None: there is none."""
    folders = sorted((path.parent for path in (results / experiment).glob("*/summary.json")), reverse=True)
    for folder in folders:
        with suppress(BadRun):
            if not folder.is_symlink() and _is_default(read_run(folder), variants, trials):
                read_summary(folder)
                return folder
    return None


def _is_default(run: Run, variants: list[str], trials: int) -> bool:
    return (
        run.outcome == "completed"
        and run.method == METHOD
        and re.fullmatch(
            rf"(make experiment NAME=|stampede run ){re.escape(run.experiment)}( TRIALS=\d+| --trials \d+)?",
            run.command,
        )
        is not None
        and run.trials >= trials
        and [variant.name for variant in run.variants] == variants
    )


def read_reproduction(path: Path) -> Reproduction:
    """Read the experiments of another machine, as ``write_reproduction`` wrote them."""
    return Reproduction.model_validate_json(path.read_text(encoding="utf-8"))


def write_reproduction(path: Path, found: Reproduction) -> None:
    """Write what the experiments of this machine say to a file with a line for each figure and each row of a table."""
    write_whole(path, '{"experiments":[\n' + ",\n".join(map(_written, found.experiments)) + "]}\n")


def _written(experiment: Reproduced) -> str:
    parts = [experiment.model_copy(update={"report": ""}).model_dump_json(exclude={"figures", "shown"})[1:-1]]
    if experiment.shown:
        shown = experiment.shown
        tables, further = (_in_lines(map(_table, some)) for some in (shown.tables, shown.further))
        parts.append(f'"shown":{{"about":{_json(shown.about)},"tables":{tables},"further":{further}}}')
    parts.append(f'"figures":{_in_lines(figure.model_dump_json() for figure in experiment.figures)}')
    return "{" + ",\n".join(parts) + "}"


def _table(table: ShownTable) -> str:
    return f'{table.model_dump_json(exclude={"rows"})[:-1]},"rows":{_in_lines(_json(row) for row in table.rows)}}}'


def _in_lines(elements: Iterable[str]) -> str:
    return "[\n" + ",\n".join(elements) + "]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

"""The diagnosis of a run of an own service: from its trials to diagnosis.json and to a section of the report."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from stampede.causes import failure
from stampede.diagnosis.deaths import read_deaths
from stampede.diagnosis.evidence import Evidence
from stampede.diagnosis.held import read_alone, read_stalls
from stampede.diagnosis.improvement import MOST_CLASSES, figures_of, find_improvement, loss_in_words
from stampede.diagnosis.model import Diagnosis, read_diagnosis, write_diagnosis
from stampede.diagnosis.rules import diagnose
from stampede.evaluate.read.observation import read_containers
from stampede.evaluate.read.rows import opened
from stampede.evaluate.statistics.losses import Figures
from stampede.evaluate.statistics.stopping import has_interval
from stampede.predict.options import label_of
from stampede.records.claims import Measure
from stampede.records.folder import read_run, read_trial, trial_folder
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.section import Section
from stampede.report.tables import Table
from stampede.report.wording import number, percent

_CLASSES = 2
"""How many classes of requests one table has, so that it fits a terminal."""
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\S+Z ", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"


def write_section(run_folder: Path, summary: Summary) -> Section | None:
    """Write diagnosis.json, if the run measured somebody's own service as it is served today, and return its section.

    Return None for a run of anything else.
    """
    run = read_run(run_folder)
    if not _is_of_service(run):
        return None
    folders = [trial_folder(run_folder, *trial.key) for trial in summary.trials
               if trial.variant == TODAY and trial.is_trusted]  # fmt: skip
    shares = [share for folder in folders if (share := read_trial(folder).busy_during) is not None]
    logs = [folder / f"{container.name}.log" for folder in folders for container in read_containers(folder)
            if container.before and container.before.workers]  # fmt: skip
    texts = (_TIME.sub("", log.read_text(encoding="utf-8", errors="replace")) for log in logs if log.exists())
    thrown = next((told for text in texts if _TRACEBACK in text and (told := failure(text))), "")
    with opened(folders) as rows:
        alone_ms = read_alone(run_folder, summary, TODAY)
        loops = read_stalls(rows, run_folder, summary, TODAY, alone_ms)
        deaths = read_deaths(rows, run_folder, summary, run.variant(TODAY))
        busy = median(shares) if shares else None
        diagnosis = diagnose(Evidence(summary, run, rows, loops, alone_ms, busy, deaths, thrown))
    write_diagnosis(run_folder, diagnosis)
    return section_of(run, summary, diagnosis)


def read_section(run_folder: Path, summary: Summary) -> Section | None:
    """Return the section with the diagnosis of a run; None: the run has none."""
    run = read_run(run_folder)
    diagnosis = read_diagnosis(run_folder) if _is_of_service(run) else None
    return section_of(run, summary, diagnosis) if diagnosis else None


def _is_of_service(run: Run) -> bool:
    return any(load.is_of_user_service for load in run.loads) and any(variant.name == TODAY for variant in run.variants)


def section_of(run: Run, summary: Summary, diagnosis: Diagnosis) -> Section:
    """Return what the report shows of a diagnosis and of the ways that were tried."""
    names, figures = [variant.name for variant in run.variants], figures_of(summary, diagnosis)
    stats = [(name, stat) for name in figures.classes(TODAY) if (stat := figures.percentile(name, names))]
    beside = {name: figures.value(name, None, "avoidable_wait", "share") for name in names}
    known = any(share is not None for share in beside.values())  # event loops have no threads that could be free
    columns = [Measure(request_class=name, metric=figures.loss_metric, stat=stat)
               for name, stat in stats if name in figures.classes(TODAY)[:MOST_CLASSES]]  # fmt: skip
    columns += [Measure(metric="avoidable_wait", stat="share")] if known else []
    grid = Table(
        "Ways to serve, workers x threads",
        ("way", "w x t", *(("beside",) if known else ()), "MiB"),
        [(label_of(way.name), f"{way.workers} x {way.threads}" if way.threads else str(way.workers),
          *((percent(beside[way.name]),) if known else ()), number(figures.value(way.name, None, "memory", "total")))
         for way in run.variants],
    )  # fmt: skip
    several = len(names) > 1
    return Section(
        title="Diagnosis, as the service is served today",
        answers=diagnosis.sentences,
        minor=diagnosis.minor,
        heading="Ways to serve",
        tables=[grid, *_losses(figures, names, stats)] if several else [],
        remarks=find_improvement(summary, diagnosis, names).sentences if several else ["No other way was tried."],
        lead="As it is served today:" if diagnosis.alarm else "",
        columns=[*columns, Measure(metric="memory", stat="total")],
        labels={name: label_of(name) for name in names},
    )


def _losses(figures: Figures, names: Sequence[str], stats: Sequence[tuple[str, str]]) -> Iterator[Table]:
    """Yield tables of what each class of requests loses with each way: its median, and the interval or each trial."""
    what = "Response time" if figures.loss_metric == "response_time" else "Lost outside the application"
    for start in range(0, len(stats), _CLASSES):
        part = stats[start : start + _CLASSES]
        found = [lost for name in names for of in part if (lost := figures.loss(name, *of))]
        known = [has_interval(loss.values, loss.low, loss.high) for loss in found]
        beside = "95 % interval" if all(known) else "95 % interval, or each trial" if any(known) else "each trial"
        yield Table(
            f"{what}, in ms{'' if all(len(loss.values) == 1 for loss in found) else f' ({beside})'}",
            ("way", *(f"{request_class} {stat}" for request_class, stat in part)),
            [(label_of(name), *(loss_in_words(figures.loss(name, *of)) for of in part)) for name in names],
        )

"""What is shown of a diagnosis, of the ways in which somebody's own service was served, and which of them is better."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stampede.diagnosis.improvement import Improvement, TriedWay, find_improvement
from stampede.diagnosis.model import Diagnosis, figures_of, read_diagnosis
from stampede.evaluate.statistics.losses import Comparison, Figures, Loss
from stampede.evaluate.statistics.stopping import has_interval
from stampede.predict.options import label_of
from stampede.records.claims import Measure
from stampede.records.folder import read_run
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.section import Section
from stampede.report.spread import trials_that_tell, value_and_spread, word_list
from stampede.report.tables import Table
from stampede.report.wording import capitalised, number, percent

_CLASSES, _SCREEN_CLASSES = 2, 3
"""How many classes of requests one table has, so that it fits a terminal, and how many the screen shows."""


def read_section(run_folder: Path, summary: Summary) -> Section | None:
    """Return the section with the diagnosis of a run; None: the run has none."""
    run = read_run(run_folder)
    diagnosis = read_diagnosis(run_folder) if is_of_service(run) else None
    return section_of(run, summary, diagnosis) if diagnosis else None


def is_of_service(run: Run) -> bool:
    """Whether a run measured somebody's own service as it is served today."""
    return any(load.is_of_user_service for load in run.loads) and any(variant.name == TODAY for variant in run.variants)


def section_of(run: Run, summary: Summary, diagnosis: Diagnosis) -> Section:
    """Return what the report shows of a diagnosis and of the ways that were tried."""
    names, figures = [variant.name for variant in run.variants], figures_of(summary, diagnosis)
    several, answer = len(names) > 1, find_improvement(summary, diagnosis, names)
    stats = [(name, stat) for name in figures.classes(TODAY) if (stat := figures.percentile(name, names))]
    beside = {name: figures.value(name, None, "avoidable_wait", "share") for name in names}
    known = any(share is not None for share in beside.values())  # event loops have no threads that could be free
    shown = figures.classes(TODAY)[:_SCREEN_CLASSES]
    columns = [Measure(request_class=name, metric=figures.loss_metric, stat=stat)
               for name, stat in stats if name in shown]  # fmt: skip
    columns += [Measure(metric="avoidable_wait", stat="share")] if known else []
    grid = Table(
        "Ways to serve, workers x threads",
        ("way", "w x t", *(("beside",) if known else ()), "MiB"),
        [(label_of(way.name), f"{way.workers} x {way.threads}" if way.threads else str(way.workers),
          *((percent(beside[way.name]),) if known else ()), number(figures.value(way.name, None, "memory", "total")))
         for way in run.variants],
    )  # fmt: skip
    return Section(
        title="Diagnosis, as the service is served today",
        answers=diagnosis.sentences,
        minor=diagnosis.minor,
        heading="Ways to serve",
        tables=[grid, *_losses(figures, names, stats)] if several else [],
        remarks=[*improvement_sentences(answer, summary.round_s)] if several else ["No other way was tried."],
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
            [(label_of(name), *(_lost(figures.loss(name, *of)) for of in part)) for name in names],
        )


def _lost(lost: Loss | None) -> str:
    return "–" if lost is None else value_and_spread(lost.ms, lost.values, lost.low, lost.high)


def improvement_sentences(found: Improvement, round_s: float) -> Iterator[str]:
    """Yield the sentences that an answer consists of, the main sentence first. ``round_s``: a trial of each way."""
    doubt = f" ({found.suspect})" if found.suspect else ""
    in_trials = "in one trial" if found.trials == 1 else f"in {found.trials} trials"
    match found.verdict:
        case "better":
            assert found.best
            yield f"Better than today's, and the best that was tried: {label_of(found.best.name)}{doubt}."
            better = [compared for compared in found.best.classes if compared.outcome == "better"]
            yield f"How sure: {in_trials}, {_told(better, found.best)}."
            if left := found.best.requests("open"):
                yield f"For {word_list(left)}, there are too few trials to tell."
        case "too few":
            told = "no way saved more than 10 % and 5 ms"
            if found.promising:
                told = _told([compared for compared in found.promising.classes if compared.saves], found.promising)
            yield f"Too few trials to tell whether another way is better{doubt}: {in_trials}, {told}."
            yield trials_that_tell(found.trials_needed, round_s)
        case "none better":
            yield f"Nothing that was tried is better than today's way to serve{doubt}."
            if all(way.verdict == "alike" for way in found.tried):
                yield f"The intervals {in_trials} leave no room for a saving of more than 10 % and 5 ms."
            elif any(way.verdict == "open" for way in found.tried):
                capital = capitalised(in_trials)
                yield f"{capital}, no way saved more than 10 % and 5 ms, and no request waits noticeably today."
        case "unknown":
            yield "Whether another way is better is unknown: no class of requests was measured both with it and today."
        case "mixed":
            pass
    for way in found.mixed:
        better_for, worse_for = (word_list(way.requests(outcome)) for outcome in ("better", "worse"))
        says = f"{label_of(way.name)} is better than today's way for {better_for}, and worse for {worse_for}{doubt}."
        yield capitalised(says)


def _told(classes: Sequence[Comparison], way: TriedWay) -> str:
    """Return what classes of requests lose with a way and today, those that save most first; the tables have all."""
    most = sorted(classes, key=lambda compared: compared.after.ms - compared.before.ms)[:_SCREEN_CLASSES]
    told = "; ".join(
        f"{compared.request_class} {compared.stat} is {_lost(compared.after)} ms with {label_of(way.name)}, and "
        f"{_lost(compared.before)} ms today"
        for compared in most
    )
    more = len(classes) - len(most)
    return told + (f"; {more} further class{'es save' if more > 1 else ' saves'}, too" if more else "")

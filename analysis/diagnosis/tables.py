"""What is shown of the ways in which somebody's own service was served, and which of them is better."""

from collections.abc import Iterator

from analysis.diagnosis.improvement import Answer, Comparison, Way, answer
from analysis.diagnosis.lookup import Figures, Lost
from analysis.predict.ways import says
from analysis.records.run import TODAY, Run, VariantRecord
from analysis.records.summary import Summary
from analysis.report.grids import TextGrid
from analysis.report.section import Section
from analysis.report.spread import listed, value_and_spread
from analysis.report.words import number, percent
from analysis.statistics.deciding import MOST, has_interval

_CLASSES = 2
"""How many classes of requests one table has, so that it fits a terminal."""


def report_sections(run: Run, summary: Summary) -> list[Section]:
    """Return what the report of a run adds about somebody's own service; nothing for every other run."""
    if summary.diagnosis is None:
        return []
    return [
        Section(
            "Diagnosis, as the service is served today",
            summary.diagnosis.sentences,
            "Ways to serve",
            [*tried_grids(run, summary)],
            answer_sentences(run, summary) if len(run.variants) > 1 else ["No other way was tried."],
            lead="As it is served today:" if summary.diagnosis.alarm else "",
        )
    ]


def tried_grids(run: Run, summary: Summary) -> Iterator[TextGrid]:
    """Yield what requests lose with each way to serve; nothing if only one way was measured."""
    if summary.diagnosis is None or len(run.variants) < 2:
        return
    figures = Figures(summary)
    names = [variant.name for variant in run.variants]
    statistics = [(one, stat) for one in figures.classes(TODAY) if (stat := figures.statistic(one, names))]
    beside = {one: figures.value(one, None, "avoidable_wait", "share") for one in names}
    known = any(share is not None for share in beside.values())  # event loops have no threads that could be free
    yield TextGrid(
        "Ways to serve, workers x threads",
        ("way", "w x t", *(("beside",) if known else ()), "MiB"),
        [(says(one.name), _size(one), *((_share(beside[one.name]),) if known else ()),
          number(figures.value(one.name, None, "memory", "total"))) for one in run.variants],
    )  # fmt: skip
    what = "Response time" if figures.waits_within_work else "Lost outside the application"
    for start in range(0, len(statistics), _CLASSES):
        part = statistics[start : start + _CLASSES]
        found = [lost for name in names for of in part if (lost := figures.lost(name, *of))]
        yield TextGrid(
            f"{what}, in ms{_in_brackets(found)}",
            ("way", *(f"{request} {stat}" for request, stat in part)),
            [(says(name), *(_lost(figures.lost(name, *of)) for of in part)) for name in names],
        )


def _in_brackets(found: list[Lost]) -> str:
    """Return what a table of losses shows beside, or in the place of, the median."""
    known = [has_interval(one.values, one.low, one.high) for one in found]
    if all(len(one.values) == 1 for one in found):
        return ""
    return " (95 % interval)" if all(known) else " (95 % interval, or each trial)" if any(known) else " (each trial)"


def _size(variant: VariantRecord) -> str:
    threads = variant.settings.get("threads")
    return f"{variant.workers} x {threads}" if threads else str(variant.workers)


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _lost(lost: Lost | None) -> str:
    return "–" if lost is None else value_and_spread(lost.ms, lost.values, lost.low, lost.high)


def answer_sentences(run: Run, summary: Summary) -> list[str]:
    """Say whether another way is better than today's way, how sure this is, or how many trials would tell."""
    if summary.diagnosis is None or len(run.variants) < 2:
        return []
    return [*sentences(answer(summary, [variant.name for variant in run.variants]), summary.round_s)]


def sentences(found: Answer, round_s: float) -> Iterator[str]:
    """Yield the sentences that an answer consists of, the main sentence first. ``round_s``: a trial of each way."""
    doubt = f" (suspect: {found.suspect})" if found.suspect else ""
    in_trials = "in one trial" if found.trials == 1 else f"in {found.trials} trials"
    match found.verdict:
        case "better":
            assert found.best
            yield f"Better than today's, and the best that was tried: {says(found.best.name)}{doubt}."
            yield from _how_sure(found.best, in_trials)
        case "too few":
            lead = f"Too few trials to tell whether another way is better{doubt}"
            if found.promising:
                told = "; ".join(_told(one, found.promising) for one in found.promising.classes if one.saves)
                yield f"{lead}: {in_trials}, {told}."
            else:
                yield f"{lead}: {in_trials}, no way saved more than 10 % and 5 ms."
            yield how_many(found.trials_needed, round_s)
        case "none better":
            yield f"Nothing that was tried is better than today's way to serve{doubt}."
            if all(way.verdict == "alike" for way in found.tried):
                yield f"The intervals {in_trials} leave no room for a saving of more than 10 % and 5 ms."
            elif any(way.verdict == "open" for way in found.tried):
                capital = _capital(in_trials)
                yield f"{capital}, no way saved more than 10 % and 5 ms, and no request waits noticeably today."
        case "unknown":
            yield "Whether another way is better is unknown: no class of requests was measured both with it and today."
        case "mixed":
            pass
    for way in found.mixed:
        better, worse = (listed(way.requests(outcome)) for outcome in ("better", "worse"))
        yield f"{_capital(says(way.name))} is better than today's way for {better}, and worse for {worse}{doubt}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def how_many(trials: int | None, round_s: float) -> str:
    """Return about how many trials would tell, and how long they take."""
    if trials is None:
        return f"More than {MOST} trials would be needed to tell."
    return f"About {trials} trials ({max(1, round(trials * round_s / 60))} min) would tell: TRIALS={trials}"


def _how_sure(best: Way, in_trials: str) -> Iterator[str]:
    """Yield what the best way saves, and for which classes of requests this is open."""
    told = "; ".join(_told(one, best) for one in best.classes if one.outcome == "better")
    yield f"How sure: {in_trials}, {told}."
    if left := best.requests("open"):
        yield f"For {listed(left)}, there are too few trials to tell."


def _told(one: Comparison, way: Way) -> str:
    """Return what a class of requests loses with a way, and with today's."""
    return f"{one.request} {one.stat} is {_lost(one.after)} ms with {says(way.name)}, and {_lost(one.before)} ms today"

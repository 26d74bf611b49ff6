"""Which of the ways that were tried is better than today's way, and if the trials cannot tell, how many would."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from stampede.diagnosis.model import Diagnosis, Limit
from stampede.evaluate.statistics.losses import Comparison, Figures, Loss, compare_losses, suspect_reason
from stampede.predict.options import label_of
from stampede.records.run import TODAY
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.spread import trials_that_tell, value_and_spread, word_list
from stampede.report.wording import capitalised

WITHIN_WORK: frozenset[Limit] = frozenset({"event-loop", "interpreter-lock", "thread-pool", "inside"})
"""The limits for which requests wait while they count as at work, so that overhead does not show these waits."""
MOST_CLASSES = 3
"""How many classes of requests a sentence, and the screen, show."""
_NO_SAVING = "no way saved more than 10 % and 5 ms"


class TriedWay(NamedTuple):
    """A way that was tried: how each class of requests fares with it, compared with today's way."""

    name: str
    classes: Sequence[Comparison]

    def requests(self, outcome: str) -> list[str]:
        """Return the classes of requests with an outcome."""
        return [found.request_class for found in self.classes if found.outcome == outcome]

    @property
    def verdict(self) -> Literal["better", "mixed", "worse", "alike", "open", "unknown"]:
        """What the classes say together."""
        outcomes = {found.outcome for found in self.classes}
        if {"better", "worse"} <= outcomes:
            return "mixed"
        return next((each for each in ("better", "worse", "open", "alike") if each in outcomes), "unknown")

    @property
    def saved_ms(self) -> float:
        """What the class that saves most saves, of those of which the trials cannot tell; 0: none saves noticeably."""
        unsure = [found for found in self.classes if found.outcome == "open" and found.saves]
        return max((found.before.ms - found.after.ms for found in unsure), default=0.0)


class Improvement(NamedTuple):
    """Whether a way is better than today's way, in ``sentences``, the main sentence first.

    ``best`` is the way whose classes lose least of those that are better; None: none surely is. ``as_good`` are the
    ways that lose noticeably more for no class.
    """

    sentences: Sequence[str]
    best: str | None = None
    as_good: Sequence[str] = ()


def figures_of(summary: Summary, diagnosis: Diagnosis | None) -> Figures:
    """Return the figures by which ways are compared: response times if requests wait at work, else the overhead."""
    within_work = diagnosis is not None and WITHIN_WORK & {found.limit for found in diagnosis.bottlenecks}
    return Figures(summary, "response_time" if within_work else "overhead")


def find_improvement(summary: Summary, diagnosis: Diagnosis | None, names: Sequence[str]) -> Improvement:
    """Say which of the ways that were tried is better than today's way. The diagnosis is that of today's way."""
    figures = figures_of(summary, diagnosis)
    tried = [TriedWay(name, compare_losses(figures, TODAY, name)) for name in names if name != TODAY]
    better, mixed, unsure = ([way for way in tried if way.verdict == each] for each in ("better", "mixed", "open"))
    count = min((found.trials for way in tried for found in way.classes if found.stat), default=0)
    in_trials = "in one trial" if count == 1 else f"in {count} trials"

    def doubt(ways: Sequence[TriedWay]) -> str:
        reason = suspect_reason(summary, [TODAY, *(way.name for way in ways)])
        return f" ({reason})" if reason else ""

    def also_mixed(rests_on: Sequence[TriedWay]) -> Iterator[str]:
        for way in mixed:
            better_for, worse_for = (word_list(way.requests(outcome)) for outcome in ("better", "worse"))
            yield capitalised(f"{label_of(way.name)} is better than today's way for {better_for}, and worse for "
                              f"{worse_for}{doubt(rests_on)}.")  # fmt: skip

    if better:
        stats = {name: stat for name in figures.classes(TODAY) if (stat := figures.percentile(name, names))}

        def lost_ms(way: TriedWay) -> float:  # by all classes, each in the percentile that all ways have
            losses = [figures.loss(way.name, name, stat) for name, stat in stats.items()]
            return sum(loss.ms for loss in losses if loss)

        best = min(better, key=lost_ms)
        as_good = [way.name for way in better if way != best and not any(
            found.outcome == "worse" for found in compare_losses(figures, best.name, way.name))]  # fmt: skip
        saves = [found for found in best.classes if found.outcome == "better"]
        said = [f"Better than today's, and the best that was tried: {label_of(best.name)}{doubt([best])}.",
                f"How sure: {in_trials}, {_told(saves, best)}."]  # fmt: skip
        if left := best.requests("open"):
            said.append(f"For {word_list(left)}, there are too few trials to tell.")
        return Improvement([*said, *also_mixed([best])], best.name, as_good)
    promising = max(unsure, key=lambda way: way.saved_ms, default=None)
    hopeful = promising is not None and promising.saved_ms > 0
    if promising and (hopeful or mixed or not diagnosis or diagnosis.alarm):  # else there is no wait to be saved
        rests_on = [promising] if hopeful else unsure
        needed = [found.trials_needed for way in rests_on for found in way.classes
                  if found.outcome == "open" and (found.saves or not hopeful)]  # fmt: skip
        most = None if None in needed else max(filter(None, needed))
        told = _told([found for found in promising.classes if found.saves], promising) if hopeful else _NO_SAVING
        doubted = doubt([*rests_on, *mixed])
        return Improvement([
            f"Too few trials to tell whether another way is better{doubted}: {in_trials}, {told}.",
            trials_that_tell(most, summary.round_s), *also_mixed([*rests_on, *mixed]),
        ])  # fmt: skip
    if mixed:
        return Improvement([*also_mixed(mixed)])
    if all(way.verdict == "unknown" for way in tried):
        unknown = "Whether another way is better is unknown: no class of requests was measured both with it and today."
        return Improvement([unknown])
    said = [f"Nothing that was tried is better than today's way to serve{doubt(tried)}."]
    if unsure:
        said.append(f"{capitalised(in_trials)}, {_NO_SAVING}, and no request waits noticeably today.")
    elif all(way.verdict == "alike" for way in tried):
        said.append(f"The intervals {in_trials} leave no room for a saving of more than 10 % and 5 ms.")
    return Improvement(said)


def _told(classes: Sequence[Comparison], way: TriedWay) -> str:
    """Return what classes of requests lose with a way and today, those that save most first; the tables have all."""
    most = sorted(classes, key=lambda compared: compared.after.ms - compared.before.ms)[:MOST_CLASSES]
    told = "; ".join(
        f"{compared.request_class} {compared.stat} is {loss_in_words(compared.after)} ms with {label_of(way.name)}, "
        f"and {loss_in_words(compared.before)} ms today" for compared in most
    )  # fmt: skip
    more = len(classes) - len(most)
    return told + (f"; {plural(more, 'further class saves', 'further classes save')}, too" if more else "")


def loss_in_words(lost: Loss | None) -> str:
    """Return what a class loses, with its interval or its trials."""
    return "–" if lost is None else value_and_spread(lost.ms, lost.values, lost.low, lost.high)

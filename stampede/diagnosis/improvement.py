"""Which of the ways that were tried is better than today's way, and if the trials cannot tell, how many would."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stampede.diagnosis.model import Diagnosis, figures_of
from stampede.evaluate.statistics.losses import Comparison, compare_losses, suspect_reason
from stampede.records.run import TODAY
from stampede.records.summary import Summary


@dataclass(frozen=True)
class TriedWay:
    """A way that was tried: what it is compared with today's way, class by class."""

    name: str
    classes: Sequence[Comparison]

    def requests(self, outcome: str) -> list[str]:
        """Return the classes of requests with an outcome."""
        return [found.request_class for found in self.classes if found.outcome == outcome]

    @property
    def verdict(self) -> Literal["better", "mixed", "worse", "alike", "open", "unknown"]:
        """What the classes say together."""
        outcomes = {found.outcome for found in self.classes}
        if "better" in outcomes:
            return "mixed" if "worse" in outcomes else "better"
        if not outcomes:
            return "unknown"
        if "worse" in outcomes:
            return "worse"
        return "open" if "open" in outcomes else "alike"

    @property
    def saved_ms(self) -> float:
        """What the class that saves most saves, of those of which the trials cannot tell; 0: none saves noticeably."""
        unsure = [found for found in self.classes if found.outcome == "open" and found.saves]
        return max((found.before.ms - found.after.ms for found in unsure), default=0.0)


@dataclass(frozen=True)
class Improvement:
    """Which way is better than today's way, if any.

    ``best`` is the way whose classes lose least of those that are better; ``as_good`` has the ways that lose
    noticeably more for no class. ``promising`` is the way that saves most, where the trials cannot tell. ``suspect``
    is how many of the trials that the answer rests on are suspect, and why; None: none is. ``trials_needed`` is about
    how many trials would tell; None: more than the lab ever advises, or the trials tell.
    """

    verdict: Literal["better", "mixed", "too few", "none better", "unknown"]
    tried: Sequence[TriedWay]
    best: TriedWay | None = None
    as_good: Sequence[str] = ()
    promising: TriedWay | None = None
    trials_needed: int | None = None
    suspect: str | None = None

    @property
    def trials(self) -> int:
        """How many trials each way has at least."""
        return min((found.trials for way in self.tried for found in way.classes if found.stat), default=0)

    @property
    def mixed(self) -> list[TriedWay]:
        """The ways that are better for a class of requests and worse for another class."""
        return [way for way in self.tried if way.verdict == "mixed"]


def find_improvement(summary: Summary, diagnosis: Diagnosis | None, names: Sequence[str]) -> Improvement:
    """Say which of the ways that were tried is better than today's way. The diagnosis is that of today's way."""
    figures = figures_of(summary, diagnosis)
    tried = [TriedWay(name, compare_losses(figures, TODAY, name)) for name in names if name != TODAY]
    better, mixed, unsure = ([way for way in tried if way.verdict == each] for each in ("better", "mixed", "open"))
    if better:
        stats = {name: stat for name in figures.classes(TODAY) if (stat := figures.percentile(name, names))}

        def lost_ms(way: TriedWay) -> float:  # by all classes, each in the percentile that all ways have
            losses = [figures.loss(way.name, name, stat) for name, stat in stats.items()]
            return sum(loss.ms for loss in losses if loss)

        best = min(better, key=lost_ms)
        others = [way.name for way in better if way != best and not any(
            found.outcome == "worse" for found in compare_losses(figures, best.name, way.name))]  # fmt: skip
        return Improvement("better", tried, best, others, suspect=suspect_reason(summary, [TODAY, best.name]))
    if unsure:
        promising = max(unsure, key=lambda way: way.saved_ms)
        rests_on = [promising] if promising.saved_ms else unsure
        if promising.saved_ms or mixed or not diagnosis or diagnosis.alarm:  # else there is no wait to be saved
            needed = [found.trials_needed for way in rests_on for found in way.classes
                      if found.outcome == "open" and (found.saves or not promising.saved_ms)]  # fmt: skip
            most = None if None in needed else max(count for count in needed if count is not None)
            reason = suspect_reason(summary, [TODAY, *(way.name for way in (rests_on + mixed))])
            hopeful = promising if promising.saved_ms else None
            return Improvement("too few", tried, promising=hopeful, trials_needed=most, suspect=reason)
    elif mixed:
        return Improvement("mixed", tried, suspect=suspect_reason(summary, [TODAY, *(way.name for way in mixed)]))
    elif all(way.verdict == "unknown" for way in tried):
        return Improvement("unknown", tried)
    return Improvement("none better", tried, suspect=suspect_reason(summary, names))

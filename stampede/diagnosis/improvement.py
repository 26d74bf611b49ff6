"""Which of the ways that were tried is better than today's way, and if the trials cannot tell, how many would."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stampede.diagnosis.model import Diagnosis, figures_of
from stampede.evaluate.statistics.losses import Comparison, Figures, compare_losses, suspect_reason
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
    of = {verdict: [way for way in tried if way.verdict == verdict] for verdict in ("better", "mixed", "open")}
    if of["better"]:
        best = min(of["better"], key=lambda way: _lost_by_all_ms(figures, way.name, names))
        others = [way.name for way in of["better"] if way != best and not any(
            found.outcome == "worse" for found in compare_losses(figures, best.name, way.name))]  # fmt: skip
        return Improvement("better", tried, best, others, suspect=suspect_reason(summary, [TODAY, best.name]))
    if of["open"]:
        promising = max(of["open"], key=_saved_ms) if any(_saved_ms(way) for way in of["open"]) else None
        if not promising and not of["mixed"] and diagnosis and not diagnosis.alarm:
            # there is no wait to be saved
            return Improvement("none better", tried, suspect=suspect_reason(summary, names))
        rests_on = [promising] if promising else of["open"]
        needed = [
            found.trials_needed for way in rests_on for found in way.classes
            if found.outcome == "open" and (found.saves or not promising)
        ]  # fmt: skip
        most = None if None in needed else max(count for count in needed if count is not None)
        reason = suspect_reason(summary, [TODAY, *(way.name for way in (rests_on + of["mixed"]))])
        return Improvement("too few", tried, promising=promising, trials_needed=most, suspect=reason)
    if of["mixed"]:
        return Improvement("mixed", tried, suspect=suspect_reason(summary, [TODAY, *(way.name for way in of["mixed"])]))
    if all(way.verdict == "unknown" for way in tried):
        return Improvement("unknown", tried)
    return Improvement("none better", tried, suspect=suspect_reason(summary, names))


def _saved_ms(way: TriedWay) -> float:
    return max(
        (found.before.ms - found.after.ms for found in way.classes if found.outcome == "open" and found.saves),
        default=0,
    )


def _lost_by_all_ms(figures: Figures, name: str, names: Sequence[str]) -> float:
    """Return what the classes lose together with a way, each in the percentile that all ways have."""
    stats = {request_class: figures.percentile(request_class, names) for request_class in figures.classes(TODAY)}
    losses = [figures.loss(name, request_class, stat) for request_class, stat in stats.items() if stat]
    return sum(loss.ms for loss in losses if loss)

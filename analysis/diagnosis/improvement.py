"""Whether another way to serve is better than today's way, and if the trials cannot tell, how many trials would tell.

One way is better for a class of requests if its interval lies below the interval of the other way, and it saves more
than 10 % and 5 ms. No way is better if even the ends of the intervals leave no room for such a saving. Between the two,
and after a single trial, there are too few trials to tell.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from analysis.diagnosis.lookup import Figures, Lost
from analysis.predict.ways import AS_GOOD, AS_GOOD_MS
from analysis.records.run import TODAY
from analysis.records.summary import Summary
from analysis.statistics.deciding import LEAST, RESAMPLED_FROM, trials_needed

MORE_FAILURES = 0.01
"""A way is worse for a class if it fails so much more of the requests."""


@dataclass(frozen=True)
class Comparison:
    """What the requests of a class lose with a way to serve, beside the way that it is compared with."""

    request: str
    stat: str
    before: Lost
    after: Lost
    failures: float = 0.0
    """The share of the requests that fail with this way, minus the share that fails with the other way."""

    @property
    def trials(self) -> int:
        """How many trials each way has at least."""
        return min(len(self.before.values), len(self.after.values))

    @property
    def saves(self) -> bool:
        """Whether the way loses noticeably less, if chance is left aside."""
        return saves(self.after.ms, self.before.ms)

    @property
    def outcome(self) -> Literal["better", "worse", "alike", "open"]:
        """Whether the way is better for this class, is worse, saves nothing noticeable, or whether this is open."""
        if self.failures > MORE_FAILURES:
            return "worse"
        if self.trials < LEAST:
            return "open"
        if _beats(self.after, self.before):
            return "better"
        if _beats(self.before, self.after):
            return "worse"
        return "open" if saves(self.after.low, self.before.high) else "alike"

    @property
    def trials_needed(self) -> int | None:
        """About how many trials decide a comparison that is open; None: more than the lab ever advises."""
        if self.trials < LEAST:
            return RESAMPLED_FROM
        before, after, edge = self.before, self.after, AS_GOOD * self.after.ms + AS_GOOD_MS
        if self.saves or saves(before.ms, after.ms):  # then the intervals must come apart
            middle = sqrt(before.ms * after.ms) if min(before.ms, after.ms) > 0 else (before.ms + after.ms) / 2
            bounds = middle, middle
        else:  # then they must leave no room for a saving
            middle = (before.ms + edge) / 2
            bounds = middle, (middle - AS_GOOD_MS) / AS_GOOD
        needed = [
            trials_needed(self.trials, lost.ms, (lost.low, lost.high), [bound])
            for lost, bound in zip((before, after), bounds, strict=True)
        ]
        return None if None in needed else max(self.trials + 1, *(one for one in needed if one is not None))


def saves(lost_ms: float, other_ms: float) -> bool:
    """Whether a loss is noticeably smaller than another loss, in ms."""
    return other_ms > AS_GOOD * lost_ms + AS_GOOD_MS


def _beats(one: Lost, other: Lost) -> bool:
    return one.high < other.low and saves(one.ms, other.ms)


def compare_ways(figures: Figures, before: str, after: str) -> list[Comparison]:
    """Compare two ways for each class of requests of which the same percentile was measured with both of them."""
    found = []
    for request in figures.classes(before):
        stat = figures.statistic(request, [before, after])
        failures = _failures(figures, after, request) - _failures(figures, before, request)
        if stat is None and failures <= MORE_FAILURES:
            continue
        nothing = Lost(0.0, 0.0, 0.0)
        one, other = ((stat and figures.lost(way, request, stat)) or nothing for way in (before, after))
        found.append(Comparison(request, stat or "", one, other, failures))
    return found


def _failures(figures: Figures, way: str, request: str) -> float:
    return figures.value(way, request, "failures", "share") or 0.0


@dataclass(frozen=True)
class Way:
    """A way that was tried: what it is compared with today's way, class by class."""

    name: str
    classes: Sequence[Comparison]

    def requests(self, outcome: str) -> list[str]:
        """Return the classes of requests with an outcome."""
        return [one.request for one in self.classes if one.outcome == outcome]

    @property
    def verdict(self) -> Literal["better", "mixed", "worse", "alike", "open", "unknown"]:
        """What the classes say together."""
        outcomes = {one.outcome for one in self.classes}
        if "better" in outcomes:
            return "mixed" if "worse" in outcomes else "better"
        if not outcomes:
            return "unknown"
        if "worse" in outcomes:
            return "worse"
        return "open" if "open" in outcomes else "alike"


@dataclass(frozen=True)
class Answer:
    """Which way is better than today's way, if any.

    ``best`` is the way whose classes lose least of those that are better; ``as_good`` has the ways that lose
    noticeably more for no class. ``promising`` is the way that saves most, where the trials cannot tell. ``suspect``
    is why the trials that the answer rests on are suspect; None: they are not. ``trials_needed`` is about how many
    trials would tell; None: more than the lab ever advises, or the trials tell.
    """

    verdict: Literal["better", "mixed", "too few", "none better", "unknown"]
    tried: Sequence[Way]
    best: Way | None = None
    as_good: Sequence[str] = ()
    promising: Way | None = None
    trials_needed: int | None = None
    suspect: str | None = None

    @property
    def trials(self) -> int:
        """How many trials each way has at least."""
        return min((one.trials for way in self.tried for one in way.classes if one.stat), default=0)

    @property
    def mixed(self) -> list[Way]:
        """The ways that are better for a class of requests and worse for another class."""
        return [way for way in self.tried if way.verdict == "mixed"]


def answer(summary: Summary, names: Sequence[str]) -> Answer:
    """Say which of the ways that were tried is better than today's way."""
    figures = Figures(summary)
    tried = [Way(name, compare_ways(figures, TODAY, name)) for name in names if name != TODAY]
    of = {verdict: [way for way in tried if way.verdict == verdict] for verdict in ("better", "mixed", "open")}
    if of["better"]:
        best = min(of["better"], key=lambda way: _lost_by_all(figures, way.name, names))
        others = [way.name for way in of["better"] if way != best and not _loses_more(figures, way.name, best.name)]
        return Answer("better", tried, best, others, suspect=suspicion(summary, [TODAY, best.name]))
    if of["open"]:
        promising = max(of["open"], key=_saved_ms) if any(_saved_ms(way) for way in of["open"]) else None
        if not promising and not of["mixed"] and summary.diagnosis and not summary.diagnosis.alarm:
            return Answer("none better", tried, suspect=suspicion(summary, names))  # there is no wait to be saved
        rests_on = [promising] if promising else of["open"]
        needed = [
            one.trials_needed for way in rests_on for one in way.classes
            if one.outcome == "open" and (one.saves or not promising)
        ]  # fmt: skip
        most = None if None in needed else max(one for one in needed if one is not None)
        reason = suspicion(summary, [TODAY, *(way.name for way in (rests_on + of["mixed"]))])
        return Answer("too few", tried, promising=promising, trials_needed=most, suspect=reason)
    if of["mixed"]:
        return Answer("mixed", tried, suspect=suspicion(summary, [TODAY, *(way.name for way in of["mixed"])]))
    if all(way.verdict == "unknown" for way in tried):
        return Answer("unknown", tried)
    return Answer("none better", tried, suspect=suspicion(summary, names))


def suspicion(summary: Summary, names: Sequence[str]) -> str | None:
    """Return why trials of some ways are suspect: the main reason of the first such trial; None: none is suspect."""
    return next(
        (one.reasons[0] for one in summary.trials if one.variant in names and one.verdict == "suspect" and one.reasons),
        None,
    )


def _saved_ms(way: Way) -> float:
    return max((one.before.ms - one.after.ms for one in way.classes if one.outcome == "open" and one.saves), default=0)


def _loses_more(figures: Figures, name: str, best: str) -> bool:
    return any(one.outcome == "worse" for one in compare_ways(figures, best, name))


def _lost_by_all(figures: Figures, name: str, names: Sequence[str]) -> float:
    """Return what the classes lose together, in ms."""
    return sum(_lost_ms(figures, name, names))


def _lost_ms(figures: Figures, name: str, names: Sequence[str]) -> Iterator[float]:
    for request in figures.classes(TODAY):
        stat = figures.statistic(request, names)
        if lost := figures.lost(name, request, stat) if stat else None:
            yield lost.ms

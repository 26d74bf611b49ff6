"""Verdicts on claims and published figures."""

from collections.abc import Iterator
from math import ceil, isclose
from typing import Literal, NamedTuple

from stampede.evaluate.metrics import bursts, unit
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.results import CompletionTimes, MeasuredFigure, Results
from stampede.evaluate.statistics.stopping import LEAST, MOST, Interval, sequential_verdict, trials_needed
from stampede.evaluate.verdict.article import Circumstances
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.run import SMALL_BURST, LoadRecord, Run
from stampede.records.summary import (
    ClaimRow,
    ClaimVerdict,
    FigureVerdict,
    PublishedFigure,
    PublishedRow,
    TrialValidity,
)

WITHIN = 0.25
"""How far a measured figure may be from a published figure for which the experiment's file names no tolerance."""
_WORST_FIRST: tuple[FigureVerdict, ...] = (
    "invalid", "contradicted", "undecided", "differs by the floor", "reproduced", "not measured in a short run",
)  # fmt: skip

_NoVerdict = Literal["undecided", "invalid"]
"""The verdict on what has no value."""


def claim_row(claim: Claim, results: Results, judged: list[TrialValidity]) -> ClaimRow:
    """Return a claim with its measured value and its verdict, given the verdicts on all trials."""
    figures = [results.figures[quantity] for quantity in claim.quantities]
    without = next((pair for pair in zip(claim.quantities, figures, strict=True) if not pair[1].draws), None)
    verdict: ClaimVerdict = "undecided"
    measured, interval, needed, doubt = None, None, None, None
    if without:
        verdict, *reasons = _no_verdict(*without, judged)
    elif claim.relative_to and not all(draw.value for draw in figures[1].draws.values()):
        reasons = [f"a trial of {claim.relative_to.variant} has 0, by which nothing can be divided"]
    else:
        measured, interval = _measured(*figures)
        doubt = _doubt({(quantity.variant, quantity.load) for quantity in claim.quantities}, judged)
        if few := missing_cores(claim, results.run):
            reasons = [few]
        else:
            trials = min(len(figure.draws) for figure in figures)
            verdict, undecided = _verdict(claim, interval, trials)
            sides = _sides(claim, *figures)
            if not undecided and results.run.until_decided and sequential_verdict(sides) != (verdict == "reproduced"):
                verdict, undecided = "undecided", "looking after every round needs more certainty"
            needed = trials_needed(trials, measured, interval, [claim.limit])
            reasons = [undecided, _advice(results, trials, needed)] if undecided else []
    low, high = interval or (None, None)
    return ClaimRow(
        says=claim.says,
        stat=claim.value.stat,
        verdict=verdict,
        measured=measured,
        low=low,
        high=high,
        bound=claim.bound,
        unit="ratio" if claim.relative_to else unit(claim.value.metric, claim.value.stat),
        reason="; ".join(reasons) or None,
        suspect=doubt is not None,
        doubt=doubt,
        trials_needed=needed,
    )


def _measured(value: MeasuredFigure, divisor: MeasuredFigure | None = None) -> tuple[float, Interval | None]:
    """Return the value or ratio that a claim is about, and its interval."""
    assert value.median is not None
    if divisor is None:
        return value.median, value.interval
    assert divisor.median
    return value.median / divisor.median, intervals.of_ratio([*value.draws.values()], [*divisor.draws.values()])


def missing_cores(claim: Claim, run: Run) -> str | None:
    """Return why no number of trials on the machines of this run decides a claim; None: trials can decide the claim."""
    if claim.cores and run.cores_of_one < claim.cores:
        where = " on one machine" if run.machines else ""
        return f"the claim needs {claim.cores} cores{where}, and the servers had {run.cores_of_one}"
    return None


def _verdict(claim: Claim, interval: Interval | None, trials: int) -> tuple[ClaimVerdict, str | None]:
    """Return the verdict on a claim that was measured in so many trials; if it is undecided, also return why."""
    if trials < LEAST:
        return "undecided", "one trial decides nothing"
    if interval is None:
        return "undecided", "there is no interval"
    kept = {claim.holds(end) for end in interval}
    if len(kept) > 1:
        return "undecided", "the interval straddles the bound"
    return ("reproduced" if kept == {True} else "not reproduced"), None


def _sides(claim: Claim, value: MeasuredFigure, divisor: MeasuredFigure | None = None) -> list[bool]:
    """Return whether the claim holds in each trial, in the order of measuring."""
    divisors = divisor.draws if divisor else dict.fromkeys(value.draws, intervals.Draw(1.0))
    both = sorted(value.draws.keys() & divisors.keys())
    return [claim.holds(value.draws[trial].value / divisors[trial].value) for trial in both]


def _advice(results: Results, trials: int, needed: int | None) -> str:
    """Return how many trials would decide what ``trials`` trials did not decide, and how long they would take."""
    if needed is None:
        return f"more than {MOST} trials would be needed"
    needed = max(needed, trials + 1)
    return f"about {needed} trials ({ceil(needed * results.round_s / 60)} min) would decide: TRIALS={needed}"


def _doubt(rests_on: set[tuple[str, str | None]], judged: list[TrialValidity]) -> str | None:
    """Return the main reason to doubt a verdict that rests on these variants under these loads; None: there is none."""
    doubtful = [trial for trial in judged if (trial.variant, trial.load) in rests_on and trial.verdict == "suspect"]
    return doubtful[0].reasons[0] if doubtful else None


def published_rows(results: Results, judged: list[TrialValidity], apart: Circumstances) -> Iterator[PublishedRow]:
    """Yield the verdicts on published rows, for the variants that are part of the run.

    ``apart`` is what sets the run apart from the article.
    """
    for published in results.entries:
        entry = published.entry
        within = WITHIN if entry.within is None else entry.within
        compared = _published_times(entry, within, results, judged) if entry.completion_times else [
            _published_figure(*figure, within, results, judged, apart) for figure in published.figures.items()
        ]  # fmt: skip
        if compared:
            yield _published_row(entry, within, compared, results, judged)


class Compared(NamedTuple):
    """A published figure with its verdict.

    ``reason`` says why there is nothing to compare it with; None: there is. ``edges`` are the least and the most that
    do not contradict the figure.
    """

    figure: PublishedFigure
    reason: str | None = None
    edges: Interval = (0.0, 0.0)


def _published_row(
    entry: Published, within: float, compared: list[Compared], results: Results, judged: list[TrialValidity]
) -> PublishedRow:
    figures = [each.figure for each in compared]
    reasons = [each.reason for each in compared if each.reason]
    reasons += _why_undecided(compared, results)
    doubt = _doubt({(entry.variant, entry.load)}, judged)
    verdicts = {figure.verdict for figure in figures}
    return PublishedRow(
        variant=entry.variant,
        load=entry.load or "",
        request_class=entry.request_class,
        metric=entry.metric,
        completion_times=bool(entry.completion_times),
        divided_by=entry.divided_by,
        within=within,
        verdict=next(verdict for verdict in _WORST_FIRST if verdict in verdicts),
        reason="; ".join(dict.fromkeys(reasons)) or None,
        suspect=doubt is not None,
        doubt=doubt,
        figures=figures,
    )


def _why_undecided(compared: list[Compared], results: Results) -> Iterator[str]:
    """Yield why figures that were measured are undecided, and what would decide."""
    undecided = [each for each in compared if each.figure.verdict == "undecided" and each.figure.measured is not None]
    if not undecided:
        return
    few = min(each.figure.trials for each in undecided)
    yield (
        "one trial decides nothing" if few < LEAST else
        f"the interval of {', '.join(each.figure.stat for each in undecided)} straddles an edge"
    )  # fmt: skip
    needed = [
        trials_needed(figure.trials, figure.measured, figure.interval, edges)
        for figure, _, edges in undecided
        if figure.measured is not None
    ]
    yield _advice(results, few, None if None in needed else max(trials for trials in needed if trials))


def _published_figure(
    quantity: Quantity,
    published: float,
    within: float,
    results: Results,
    judged: list[TrialValidity],
    apart: Circumstances,
) -> Compared:
    """Return one published figure with its verdict; if nothing was measured for the figure, also return why.

    A percentile for which single trials have too few requests is that of the requests of all trials together.
    """
    found, of_unit = results.figures[quantity], unit(quantity.metric, quantity.stat)
    measured, interval, trials = found.median, found.interval, len(found.draws)
    if pooled := found.pooled:
        measured, interval, trials = pooled.measured, (pooled.low, pooled.high), pooled.trials
    if measured is None:
        verdict, reason = _no_verdict(quantity, found, judged)
        short = verdict == "undecided" and quantity in apart.short
        word: FigureVerdict = "not measured in a short run" if short else verdict
        return Compared(_figure(quantity.stat, of_unit, published, word), reason)
    edges = edges_of(published, within, apart.floor_ms(quantity))
    word = _nearness(published, within, edges, interval, trials)
    figure = _figure(quantity.stat, of_unit, published, word, measured, interval, trials)
    return Compared(figure.model_copy(update={"pooled": bool(pooled)}), None, edges)


def _published_times(entry: Published, within: float, results: Results, judged: list[TrialValidity]) -> list[Compared]:
    """Return published completion times with their verdicts; if they cannot be compared, also return why."""
    load = results.run.load(entry.load or "")
    times = results.completion_times.get((entry.variant, load.name), CompletionTimes())
    published = [
        (bursts.ordinal(place), "ms", value) for place, value in enumerate(entry.expected_completion_times, start=1)
    ]
    if no_verdict := _no_times(entry, load, len(times.measured), judged):
        verdict, reason = no_verdict
        return [Compared(_figure(*figure, verdict), reason) for figure in published]
    compared = []
    for figure, measured, interval, trials in zip(published, *times):  # noqa: B905
        edges = edges_of(figure[2], within)
        word = _nearness(figure[2], within, edges, interval, trials)
        compared.append(Compared(_figure(*figure, word, measured, interval, trials), None, edges))
    return compared


def _no_times(
    entry: Published, load: LoadRecord, measured: int, judged: list[TrialValidity]
) -> tuple[_NoVerdict, str] | None:
    """Return why published times cannot be compared with ``measured`` measured ones; None: they can be compared."""
    if untrusted := _not_trusted(entry.variant, load.name, None, judged):
        return "invalid", untrusted
    if not load.has_small_bursts:
        return "undecided", f"{load.name} has no bursts of at most {SMALL_BURST} requests"
    if load.burst != len(entry.completion_times):
        return "undecided", f"there were {load.burst} requests in a burst, {len(entry.completion_times)} were published"
    if measured < len(entry.completion_times):
        return "undecided", f"at most {measured} of the {load.burst} requests of a burst were answered"
    return None


def _figure(
    stat: str,
    of_unit: str,
    published: float,
    verdict: FigureVerdict,
    measured: float | None = None,
    interval: Interval | None = None,
    trials: int = 0,
) -> PublishedFigure:
    low, high = interval or (None, None)
    return PublishedFigure(
        stat=stat,
        unit=of_unit,
        published=published,
        measured=measured,
        low=low,
        high=high,
        ratio=measured / published if published and measured is not None else None,
        trials=trials,
        verdict=verdict,
    )


def _nearness(
    published: float, within: float, edges: Interval, interval: Interval | None, trials: int
) -> FigureVerdict:
    """Return whether a whole interval is within the tolerance of a published figure, or between or beyond the edges."""
    if trials < LEAST or interval is None:
        return "undecided"
    sides = {_side(end, published, within) for end in interval}
    if sides == {"within"}:
        return "reproduced"
    (low, high), (least, most) = interval, edges
    if least <= low and high <= most:
        return "differs by the floor"
    return "contradicted" if len(sides) == 1 and (high < least or low > most) else "undecided"


def edges_of(published: float, within: float, floor_ms: float = 0.0) -> Interval:
    """Return the least and the most that do not contradict a published figure.

    A request through the article's stack costs up to the floor more than a request of this run. So the tolerance
    reaches further down by the floor; if the floor is negative, it reaches further up. The tolerance itself is that of
    the figure as published.
    """
    least, most = sorted((published / (1 + within), published * (1 + within)))
    return least - max(floor_ms, 0.0), most - min(floor_ms, 0.0)


def _side(measured: float, published: float, within: float) -> Literal["below", "within", "above"]:
    """Return where a figure lies: from published / (1 + within) to published * (1 + within), edges included, or beside.

    Nothing is near a published 0 but 0.
    """
    if not published:
        return "above" if measured else "within"
    ratio, edge = measured / published, 1 + within
    if isclose(ratio, edge) or isclose(ratio, 1 / edge) or 1 / edge < ratio < edge:
        return "within"
    return "above" if ratio > 1 else "below"


def _no_verdict(quantity: Quantity, figure: MeasuredFigure, judged: list[TrialValidity]) -> tuple[_NoVerdict, str]:
    """Return why a quantity has no value: no trial can be trusted, or the trusted trials do not have the statistic."""
    if untrusted := _not_trusted(quantity.variant, quantity.load, quantity.request_class, judged):
        return "invalid", untrusted
    return "undecided", figure.missing


def _not_trusted(variant: str, load: str | None, request_class: str | None, judged: list[TrialValidity]) -> str | None:
    """Return why no trial of a variant under a load can be trusted for a class of request; None: a trial can be.

    ``request_class``: None asks for all classes together.
    """
    trials = [trial for trial in judged if (trial.variant, trial.load) == (variant, load)]
    if any(trial.verdict != "invalid" and not trial.rejects(request_class) for trial in trials):
        return None
    reasons = [reason for trial in trials for reason in [trial.rejects(request_class), *trial.reasons] if reason]
    return f"{variant}: {reasons[0] if reasons else 'not part of this run'}"

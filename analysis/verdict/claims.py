"""Verdicts on claims and published figures, and the differences between two measurements of the same variant."""

from collections.abc import Iterator
from math import isclose
from statistics import median
from typing import Literal

from analysis.metrics import bursts, statistics_of, unit
from analysis.metrics.unknown import unknown_in_claim, unknown_in_published, unknown_statistics
from analysis.records.claims import Claim, Published, Quantity
from analysis.records.run import SMALL_BURST, LoadRecord, Run
from analysis.records.summary import ClaimRow, ClaimVerdict, DifferenceRow, PublishedFigure, PublishedRow, TrialValidity
from analysis.statistics import intervals
from analysis.statistics.measured import Results, Stairs
from analysis.statistics.stopping import LEAST, Interval, sequential_verdict, trials_needed


def claim_row(claim: Claim, results: Results, judged: list[TrialValidity]) -> ClaimRow:
    """Return a claim with its measured value and its verdict, given the verdicts on all trials."""
    if what := unknown_in_claim(results.run, claim):
        return _unknown_claim(claim, what)
    verdict: ClaimVerdict
    measured: float | None = None
    interval: Interval | None = None
    needed: int | None = None
    doubts: list[str] = []
    reason: str | None = None
    missing = next((one for one in claim.quantities if results.measured(one) is None), None)
    if missing:
        verdict, reason = _no_verdict(missing, results, judged)
    elif claim.relative_to and not all(results.values(claim.relative_to)):
        verdict, reason = "undecided", f"a trial of {claim.relative_to.variant} has 0, by which nothing can be divided"
    else:
        measured, interval = _claimed(claim, results)
        trials = min(len(results.values(one)) for one in claim.quantities)
        if few := lacking(claim, results.run):
            verdict, reasons = "undecided", [few]
        else:
            needed = trials_needed(trials, measured, interval, [claim.limit])
            verdict, undecided = _decided(claim, results, interval, trials)
            reasons = [undecided, results.advice(trials, needed)] if undecided else []
        doubts = _doubts({(one.variant, results.load_name(one.load)) for one in claim.quantities}, judged)
        reason = "; ".join([*reasons, *doubts]) or None
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
        reason=reason,
        suspect=bool(doubts),
        trials_needed=needed,
    )


def _unknown_claim(claim: Claim, what: str) -> ClaimRow:
    """Return a claim that this version cannot judge because it does not know ``what`` the claim asks for."""
    return ClaimRow(
        says=claim.says,
        stat=claim.value.stat,
        verdict="undecided",
        measured=None,
        low=None,
        high=None,
        bound=claim.bound,
        unit="ratio" if claim.relative_to else unit(claim.value.metric, claim.value.stat),
        reason=f"not judged by this version: the claim asks for {what}",
        suspect=False,
        trials_needed=None,
    )


def lacking(claim: Claim, run: Run) -> str | None:
    """Return why no number of trials on the machines of this run decides a claim; None: trials can decide the claim."""
    if claim.cores and run.cores_of_one < claim.cores:
        where = " on one machine" if run.machines else ""
        return f"the claim needs {claim.cores} cores{where}, and the servers had {run.cores_of_one}"
    return None


def _decided(claim: Claim, results: Results, interval: Interval | None, trials: int) -> tuple[ClaimVerdict, str | None]:
    """Return the verdict on a claim that was measured in so many trials; if it is undecided, also return why."""
    if trials < LEAST:
        return "undecided", "one trial decides nothing"
    if interval is None:
        return "undecided", "there is no interval"
    kept = {claim.holds(end) for end in interval}
    if len(kept) > 1:
        return "undecided", "the interval straddles the bound"
    if results.run.until_decided and sequential_verdict(_sides(claim, results)) not in kept:
        return "undecided", "looking after every round needs more certainty"
    return ("reproduced" if kept == {True} else "not reproduced"), None


def _sides(claim: Claim, results: Results) -> list[bool]:
    """Return whether the claim holds in each trial, in the order of measuring."""
    values = results.by_trial(claim.value)
    if not claim.relative_to:
        return [claim.holds(values[trial]) for trial in sorted(values)]
    others = results.by_trial(claim.relative_to)
    return [claim.holds(values[trial] / others[trial]) for trial in sorted(values.keys() & others.keys())]


def _doubts(rests_on: set[tuple[str, str]], judged: list[TrialValidity]) -> list[str]:
    """Return why a verdict that rests on these variants under these loads is doubtful; empty if it is not."""
    doubtful = [one for one in judged if (one.variant, one.load) in rests_on and one.verdict == "suspect"]
    return [f"suspect: {doubtful[0].reasons[0]}"] if doubtful else []


def published_rows(results: Results, judged: list[TrialValidity]) -> Iterator[PublishedRow]:
    """Yield the verdicts on published rows, for the variants that are part of the run."""
    asked = {variant.name for variant in results.run.variants}
    for one in results.run.published:
        within = WITHIN if one.within is None else one.within
        if one.variant in asked and (figures := _figures(one, within, results, judged)):
            yield _published_row(one, within, figures, results, judged)


WITHIN = 0.25
"""How far a measured figure may be from a published figure for which the experiment's file names no tolerance."""


Compared = tuple[PublishedFigure, str | None]
"""A published figure with its verdict, and why there is nothing to compare it with; None: there is."""


def _figures(one: Published, within: float, results: Results, judged: list[TrialValidity]) -> list[Compared]:
    """Return the figures of a published entry; those that this version does not know are undecided."""
    if what := unknown_in_published(results.run, one):
        return [_not_judged(one, stat, what) for stat in one.stats]
    if one.completion_times:
        return _published_stairs(one, within, results, judged)
    known = results.figures(one).items()
    return [
        *(_published_figure(quantity, value, within, results, judged) for quantity, value in known),
        *(_not_judged(one, stat, what) for stat, what in unknown_statistics(one).items()),
    ]


def _not_judged(one: Published, stat: str, what: str) -> Compared:
    reason = f"not judged by this version: {what} was published"
    return _not_measured(stat, unit(one.metric, stat), one.stats[stat], "undecided"), reason


def _published_row(
    one: Published, within: float, compared: list[Compared], results: Results, judged: list[TrialValidity]
) -> PublishedRow:
    load = results.load_name(one.load)
    figures = [figure for figure, _ in compared]
    reasons = [reason for _, reason in compared if reason]
    reasons += _why_undecided(figures, within, results)
    doubts = _doubts({(one.variant, load)}, judged)
    verdicts = {figure.verdict for figure in figures}
    return PublishedRow(
        variant=one.variant,
        load=load,
        request_class=one.request_class,
        metric=one.metric,
        completion_times=bool(one.completion_times),
        divided_by=one.divided_by,
        within=within,
        verdict=next(verdict for verdict in _WORST_FIRST if verdict in verdicts),
        reason="; ".join(dict.fromkeys([*reasons, *doubts])) or None,
        suspect=bool(doubts),
        figures=figures,
    )


def _why_undecided(figures: list[PublishedFigure], within: float, results: Results) -> Iterator[str]:
    """Yield why figures that were measured are undecided, and what would decide."""
    undecided = [figure for figure in figures if figure.verdict == "undecided" and figure.measured is not None]
    if not undecided:
        return
    few = min(figure.trials for figure in undecided)
    yield (
        "one trial decides nothing" if few < LEAST else
        f"the interval of {', '.join(figure.stat for figure in undecided)} straddles an edge"
    )  # fmt: skip
    edges = [1 + within, 1 / (1 + within)]
    needed = [
        trials_needed(one.trials, one.measured, one.interval, [one.published * edge for edge in edges])
        for one in undecided
        if one.measured is not None
    ]
    yield results.advice(few, None if None in needed else max(one for one in needed if one))


_WORST_FIRST: tuple[ClaimVerdict, ...] = ("invalid", "not reproduced", "undecided", "reproduced")


def _published_figure(
    quantity: Quantity, published: float, within: float, results: Results, judged: list[TrialValidity]
) -> Compared:
    """Return one published figure with its verdict; if nothing was measured for the figure, also return why."""
    measured, of_unit = results.measured(quantity), unit(quantity.metric, quantity.stat)
    if measured is None:
        verdict, reason = _no_verdict(quantity, results, judged)
        return _not_measured(quantity.stat, of_unit, published, verdict), reason
    trials = len(results.values(quantity))
    return _compared(quantity.stat, of_unit, published, measured, results.interval(quantity), trials, within), None


def _published_stairs(one: Published, within: float, results: Results, judged: list[TrialValidity]) -> list[Compared]:
    """Return the steps of a published staircase with their verdicts; if they cannot be compared, also return why."""
    load = results.run.load(results.load_name(one.load))
    stairs = results.stairs.get((one.variant, load.name), Stairs([], []))
    if no_verdict := _no_stairs(one, load, len(stairs.measured), judged):
        verdict, reason = no_verdict
        return [
            (_not_measured(bursts.ordinal(place), "ms", value, verdict), reason)
            for place, value in enumerate(one.expected_completion_times, start=1)
        ]
    completion_times = zip(one.expected_completion_times, stairs.measured, stairs.intervals, stairs.trials)  # noqa: B905
    return [
        (_compared(bursts.ordinal(place), "ms", value, measured, interval, trials, within), None)
        for place, (value, measured, interval, trials) in enumerate(completion_times, start=1)
    ]


def _no_stairs(
    one: Published, load: LoadRecord, measured: int, judged: list[TrialValidity]
) -> tuple[ClaimVerdict, str] | None:
    """Return why published steps cannot be compared with ``measured`` measured steps; None: they can be compared."""
    if untrusted := _not_trusted(one.variant, load.name, judged):
        return "invalid", untrusted
    if not load.has_small_bursts:
        return "undecided", f"{load.name} has no bursts of at most {SMALL_BURST} requests"
    if load.burst != len(one.completion_times):
        return "undecided", f"there were {load.burst} requests in a burst, {len(one.completion_times)} were published"
    if measured < len(one.completion_times):
        return "undecided", f"at most {measured} of the {load.burst} requests of a burst were answered"
    return None


def _compared(
    stat: str,
    of_unit: str,
    published: float,
    measured: float,
    interval: Interval | None,
    trials: int,
    within: float,
) -> PublishedFigure:
    """Return a published figure with the measured value, the ratio of the two and the verdict."""
    low, high = interval or (None, None)
    sides = {_side(end, published, within) for end in interval} if interval and trials >= LEAST else {"below", "above"}
    return PublishedFigure(
        stat=stat,
        unit=of_unit,
        published=published,
        measured=measured,
        low=low,
        high=high,
        ratio=measured / published if published else None,
        trials=trials,
        verdict="undecided" if len(sides) > 1 else "reproduced" if sides == {"within"} else "not reproduced",
    )


def _not_measured(stat: str, of_unit: str, published: float, verdict: ClaimVerdict) -> PublishedFigure:
    """Return a published figure that has no measured value."""
    return PublishedFigure(
        stat=stat,
        unit=of_unit,
        published=published,
        measured=None,
        low=None,
        high=None,
        ratio=None,
        trials=0,
        verdict=verdict,
    )


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


def differences(results: Results) -> Iterator[DifferenceRow]:
    """Yield the differences between a run's two variants, for each statistic that both have from two or more trials."""
    one, other = (variant.name for variant in results.run.variants)
    for variant, load, request_class in sorted(
        results.cells, key=lambda cell: (cell[1], cell[2] is None, cell[2] or "")
    ):
        for metric, stat in statistics_of(request_class) if variant == one else ():
            quantity = Quantity(variant=one, load=load, request_class=request_class, metric=metric, stat=stat)
            of_b = quantity.model_copy(update={"variant": other})
            a, b = results.values(quantity), results.values(of_b)
            if min(len(a), len(b)) < 2:
                continue
            low, high = intervals.of_difference(results.draws(of_b), results.draws(quantity))
            yield DifferenceRow(
                load=load,
                request_class=request_class,
                metric=metric,
                stat=stat,
                unit=unit(metric, stat),
                a=median(a),
                b=median(b),
                low=low,
                high=high,
                smallest=max(abs(low), abs(high)),
                trials=min(len(a), len(b)),
            )


def _claimed(claim: Claim, results: Results) -> tuple[float, Interval | None]:
    """Return the value or ratio that a claim is about, and its interval."""
    value = results.measured(claim.value)
    assert value is not None
    if not claim.relative_to:
        return value, results.interval(claim.value)
    other = results.measured(claim.relative_to)
    assert other
    return value / other, intervals.of_ratio(results.draws(claim.value), results.draws(claim.relative_to))


def _no_verdict(quantity: Quantity, results: Results, judged: list[TrialValidity]) -> tuple[ClaimVerdict, str]:
    """Return why a quantity has no value: no trial can be trusted, or the trusted trials do not have the statistic."""
    if untrusted := _not_trusted(quantity.variant, quantity.load, judged, quantity.request_class):
        return "invalid", untrusted
    return "undecided", results.why_not(quantity)


def _not_trusted(
    variant: str, load: str | None, judged: list[TrialValidity], request_class: str | None = None
) -> str | None:
    """Return why no trial of a variant under a load can be trusted for a class of request; None: a trial can be.

    ``load``: None is the only load; ``request_class``: None asks for all classes together.
    """
    trials = [one for one in judged if one.variant == variant and load in (None, one.load)]
    if any(one.verdict != "invalid" and not one.rejects(request_class) for one in trials):
        return None
    reasons = [reason for one in trials for reason in [one.rejects(request_class), *one.reasons] if reason]
    return f"{variant}: {reasons[0] if reasons else 'not part of this run'}"

"""Verdicts on claims and published figures, and the differences between two measurements of the same variant."""

from collections.abc import Iterator
from math import isclose
from statistics import median
from typing import Literal

from analysis import intervals
from analysis.intervals import Interval
from analysis.measured import Results, Stairs
from analysis.metrics import bursts, statistics_of, unit
from analysis.quantities import Claim, Published, Quantity
from analysis.record import STAIRS, LoadRecord
from analysis.result import ClaimRow, ClaimVerdict, DifferenceRow, PublishedFigure, PublishedRow, TrialValidity


def claim_row(claim: Claim, results: Results, judged: list[TrialValidity]) -> ClaimRow:
    """Return a claim with its measured value and its verdict, given the verdicts on all trials."""
    verdict: ClaimVerdict
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    doubts: list[str] = []
    reason: str | None = None
    missing = next((one for one in claim.quantities if results.measured(one) is None), None)
    if missing:
        verdict, reason = _no_verdict(missing, results, judged)
    elif claim.relative_to and not all(results.values(claim.relative_to)):
        verdict, reason = "undecided", f"a trial of {claim.relative_to.variant} has 0, by which nothing can be divided"
    else:
        measured, (low, high) = _claimed(claim, results)
        ends = (low, high) if low is not None and high is not None else (measured,)
        kept = {claim.holds(end) for end in ends}
        verdict = "undecided" if len(kept) > 1 else "reproduced" if kept == {True} else "not reproduced"
        reasons = ["the interval straddles the bound"] if len(kept) > 1 else []
        doubts = _doubts({(one.variant, results.load_name(one.load)) for one in claim.quantities}, judged)
        reason = "; ".join([*reasons, *doubts]) or None
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
    )


def _doubts(rests_on: set[tuple[str, str]], judged: list[TrialValidity]) -> list[str]:
    """Return why a verdict that rests on these variants under these loads is doubtful; empty if it is not."""
    doubtful = [one for one in judged if (one.variant, one.load) in rests_on and one.verdict == "suspect"]
    return [f"suspect: {doubtful[0].reasons[0]}"] if doubtful else []


def published_rows(results: Results, judged: list[TrialValidity]) -> Iterator[PublishedRow]:
    """Yield the verdicts on published rows that have ``within``, for the variants that are part of the run."""
    asked = {variant.name for variant in results.run.variants}
    for one in results.run.published:
        if one.within is not None and one.variant in asked:
            yield _published_row(one, one.within, results, judged)


def _published_row(one: Published, within: float, results: Results, judged: list[TrialValidity]) -> PublishedRow:
    load = results.load_name(one.load)
    compared = _published_stairs(one, within, results, judged) if one.steps else [
        _published_figure(quantity, value, within, results, judged) for quantity, value in results.figures(one).items()
    ]  # fmt: skip
    figures = [figure for figure, _ in compared]
    reasons = [reason for _, reason in compared if reason]
    if straddling := [figure.stat for figure in figures if figure.verdict == "undecided" and figure.ratio is not None]:
        reasons.append(f"the interval of {', '.join(straddling)} straddles an edge")
    doubts = _doubts({(one.variant, load)}, judged)
    return PublishedRow(
        variant=one.variant,
        load=load,
        request=one.request,
        metric=one.metric,
        steps=bool(one.steps),
        divided_by=one.divided_by,
        within=within,
        verdict=min((figure.verdict for figure in figures), key=_WORST_FIRST.index),
        reason="; ".join(dict.fromkeys([*reasons, *doubts])) or None,
        suspect=bool(doubts),
        figures=figures,
    )


_WORST_FIRST: tuple[ClaimVerdict, ...] = ("invalid", "not reproduced", "undecided", "reproduced")


def _published_figure(
    quantity: Quantity, published: float, within: float, results: Results, judged: list[TrialValidity]
) -> tuple[PublishedFigure, str | None]:
    """Return one published figure with its verdict; if nothing was measured for the figure, also return why."""
    measured, of_unit = results.measured(quantity), unit(quantity.metric, quantity.stat)
    if measured is None:
        verdict, reason = _no_verdict(quantity, results, judged)
        return _not_measured(quantity.stat, of_unit, published, verdict), reason
    return _compared(quantity.stat, of_unit, published, measured, results.interval(quantity), within), None


def _published_stairs(
    one: Published, within: float, results: Results, judged: list[TrialValidity]
) -> list[tuple[PublishedFigure, str | None]]:
    """Return the steps of a published staircase with their verdicts; if they cannot be compared, also return why."""
    load = results.run.load(results.load_name(one.load))
    stairs = results.stairs.get((one.variant, load.name), Stairs([], []))
    if no_verdict := _no_stairs(one, load, len(stairs.measured), judged):
        verdict, reason = no_verdict
        return [
            (_not_measured(bursts.ordinal(place), "ms", value, verdict), reason)
            for place, value in enumerate(one.steps_here, start=1)
        ]
    ends = [*stairs.intervals, *[(None, None)] * len(one.steps)]
    return [
        (_compared(bursts.ordinal(place), "ms", value, measured, interval, within), None)
        for place, (value, measured, interval) in enumerate(zip(one.steps_here, stairs.measured, ends), start=1)  # noqa: B905
    ]


def _no_stairs(
    one: Published, load: LoadRecord, measured: int, judged: list[TrialValidity]
) -> tuple[ClaimVerdict, str] | None:
    """Return why published steps cannot be compared with ``measured`` measured steps; None: they can be compared."""
    if untrusted := _not_trusted(one.variant, load.name, judged):
        return "invalid", untrusted
    if not load.has_stairs:
        return "undecided", f"{load.name} has no bursts of at most {STAIRS} requests"
    if load.burst != len(one.steps):
        return "undecided", f"there were {load.burst} requests in a burst, {len(one.steps)} were published"
    if measured < len(one.steps):
        return "undecided", f"at most {measured} of the {load.burst} requests of a burst were answered"
    return None


def _compared(
    stat: str,
    of_unit: str,
    published: float,
    measured: float,
    interval: tuple[float | None, float | None],
    within: float,
) -> PublishedFigure:
    """Return a published figure with the measured value, the ratio of the two and the verdict."""
    low, high = interval
    ends = (low, high) if low is not None and high is not None else (measured,)
    sides = {_side(end / published, within) for end in ends}
    return PublishedFigure(
        stat=stat,
        unit=of_unit,
        published=published,
        measured=measured,
        low=low,
        high=high,
        ratio=measured / published,
        verdict="undecided" if len(sides) > 1 else "reproduced" if sides == {"within"} else "not reproduced",
    )


def _not_measured(stat: str, of_unit: str, published: float, verdict: ClaimVerdict) -> PublishedFigure:
    """Return a published figure that has no measured value."""
    return PublishedFigure(
        stat=stat, unit=of_unit, published=published, measured=None, low=None, high=None, ratio=None, verdict=verdict
    )


def _side(ratio: float, within: float) -> Literal["below", "within", "above"]:
    """Return where a ratio lies: from 1 / (1 + within) to 1 + within, edges included, or below or above this range."""
    edge = 1 + within
    if isclose(ratio, edge) or isclose(ratio, 1 / edge) or 1 / edge < ratio < edge:
        return "within"
    return "above" if ratio > 1 else "below"


def differences(results: Results) -> Iterator[DifferenceRow]:
    """Yield the differences between a run's two variants, for each statistic that both have from two or more trials."""
    one, other = (variant.name for variant in results.run.variants)
    for variant, load, request in sorted(results.cells, key=lambda cell: (cell[1], cell[2] is None, cell[2] or "")):
        for metric, stat in statistics_of(request) if variant == one else ():
            quantity = Quantity(variant=one, load=load, request=request, metric=metric, stat=stat)
            a, b = results.values(quantity), results.values(quantity.model_copy(update={"variant": other}))
            if min(len(a), len(b)) < 2:
                continue
            low, high = intervals.of_difference(b, a)
            yield DifferenceRow(
                load=load,
                request=request,
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


def _claimed(claim: Claim, results: Results) -> tuple[float, Interval | tuple[None, None]]:
    """Return the value or ratio that a claim is about, and its interval if each side has two or more trials."""
    value = results.measured(claim.value)
    assert value is not None
    if not claim.relative_to:
        return value, results.interval(claim.value)
    other = results.measured(claim.relative_to)
    assert other
    values, others = results.values(claim.value), results.values(claim.relative_to)
    if min(len(values), len(others)) < 2:
        return value / other, (None, None)
    return value / other, intervals.of_ratio(values, others)


def _no_verdict(quantity: Quantity, results: Results, judged: list[TrialValidity]) -> tuple[ClaimVerdict, str]:
    """Return why a quantity has no value: no trial can be trusted, or the trusted trials do not have the statistic."""
    if untrusted := _not_trusted(quantity.variant, quantity.load, judged):
        return "invalid", untrusted
    return "undecided", results.why_not(quantity)


def _not_trusted(variant: str, load: str | None, judged: list[TrialValidity]) -> str | None:
    """Return why all trials of a variant under a load (None: the only load) are invalid; None: not all are invalid."""
    trials = [one for one in judged if one.variant == variant and load in (None, one.load)]
    if any(one.verdict != "invalid" for one in trials):
        return None
    invalid = [reason for one in trials for reason in one.reasons]
    return f"{variant}: {invalid[0] if invalid else 'not part of this run'}"

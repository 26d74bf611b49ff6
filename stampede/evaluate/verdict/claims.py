"""Verdicts on claims and published figures, and the summary of a run that they are part of."""

from collections.abc import Iterator
from functools import partial
from math import ceil, isclose
from typing import Any, NamedTuple

from stampede.evaluate.metrics import bursts, unit
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.estimates import Measured, Results, claims_of, draws_of, estimate_all, explain_missing
from stampede.evaluate.statistics.stopping import LEAST, MOST, Interval, sequential_verdict, trials_needed
from stampede.evaluate.verdict.article import Circumstances, circumstances, judge_article
from stampede.evaluate.verdict.validity import judge_run
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.predicted import NOTHING, PredictedRun
from stampede.records.run import SMALL_BURST, Run
from stampede.records.summary import ClaimRow, FigureVerdict, PublishedFigure, PublishedRow, Summary

WITHIN = 0.25
"""How far a measured figure may be from a published figure for which the experiment's file names no tolerance."""
_WORST_FIRST: tuple[FigureVerdict, ...] = (
    "invalid", "contradicted", "undecided", "differs by the floor", "reproduced", "not measured in a short run",
)  # fmt: skip


def conclude(run: Run, measured: Measured, predictions: PredictedRun = NOTHING, **counted: Any) -> Summary:  # noqa: ANN401
    """Return the summary of a run; ``counted`` are its rows that are counts, and not estimates."""
    results = estimate_all(run, measured, predictions)
    apart, claims = circumstances(results.rows), [claim_row(claim, results) for claim in claims_of(run)]
    published = list(published_rows(results, apart))
    return Summary(
        experiment=run.experiment,
        round_s=measured.round_s,
        validity=judge_run(run, measured.trials, measured.doubts),
        trials=[*measured.trials],
        rows=results.rows,
        completion_times=[*results.staircases],
        claims=claims,
        published=published,
        article=judge_article(run, claims, published, apart.floors),
        not_predicted=predictions.not_predicted,
        **counted,
    )


def claim_row(claim: Claim, results: Results) -> ClaimRow:
    """Return a claim with its measured value and its verdict."""
    value, *others = [results.estimates[quantity] for quantity in claim.quantities]
    divisor = others[0] if others else None
    of_unit = "ratio" if divisor else unit(value.metric, value.stat)
    row = partial(ClaimRow, says=claim.says, stat=value.stat, bound=claim.bound, unit=of_unit)
    nothing = partial(row, measured=None, low=None, high=None)
    if without := next((of for of in claim.quantities if not results.estimates[of].values), None):
        if untrusted := _not_trusted(without.variant, without.load, without.request_class, results):
            return nothing(verdict="invalid", reason=untrusted)
        return nothing(verdict="undecided", reason=explain_missing(without, results.measured.cells))
    if divisor and not all(divisor.values.values()):
        why = f"a trial of {divisor.variant} has 0, by which nothing can be divided"
        return nothing(verdict="undecided", reason=why)
    measured, interval, trials = value.measured, value.interval, value.trials
    if divisor and value.measured is not None and divisor.measured is not None:
        measured, trials = value.measured / divisor.measured, min(value.trials, divisor.trials)
        of_both = [[*draws_of(quantity, results.measured.cells).values()] for quantity in claim.quantities]
        interval = intervals.of_ratio(*of_both)
    assert measured is not None
    low, high = interval or (None, None)
    doubt = _doubt({(quantity.variant, quantity.load) for quantity in claim.quantities}, results)
    row = partial(row, measured=measured, low=low, high=high, suspect=doubt is not None, doubt=doubt)
    if lacking := missing_cores(claim, results.run):
        return row(verdict="undecided", reason=lacking)
    row = partial(row, trials_needed=(needed := trials_needed(trials, measured, interval, [claim.limit])))
    kept = {claim.holds(end) for end in interval or ()}
    by = divisor.values if divisor else dict.fromkeys(value.values, 1.0)
    sides = [claim.holds(value.values[trial] / by[trial]) for trial in sorted(value.values.keys() & by.keys())]
    if trials < LEAST:
        reason = "one trial decides nothing"
    elif interval is None:
        reason = "there is no interval"
    elif len(kept) > 1:
        reason = "the interval straddles the bound"
    elif results.run.until_decided and sequential_verdict(sides) != (kept == {True}):
        reason = "looking after every round needs more certainty"
    else:
        return row(verdict="reproduced" if kept == {True} else "not reproduced", reason=None)
    return row(verdict="undecided", reason=f"{reason}; {_advice(results, trials, needed)}")


def missing_cores(claim: Claim, run: Run) -> str | None:
    """Return why no number of trials on the machines of this run decides a claim; None: trials can decide the claim."""
    if claim.cores and run.cores_of_one < claim.cores:
        where = " on one machine" if run.machines else ""
        return f"the claim needs {claim.cores} cores{where}, and the servers had {run.cores_of_one}"
    return None


def _advice(results: Results, trials: int, needed: int | None) -> str:
    """Return how many trials would decide what ``trials`` trials did not decide, and how long they would take."""
    if needed is None:
        return f"more than {MOST} trials would be needed"
    needed = max(needed, trials + 1)
    return f"about {needed} trials ({ceil(needed * results.measured.round_s / 60)} min) would decide"


def _doubt(rests_on: set[tuple[str, str | None]], results: Results) -> str | None:
    """Return the main reason to doubt a verdict that rests on these variants under these loads; None: there is none."""
    trials = [trial for trial in results.measured.trials if (trial.variant, trial.load) in rests_on]
    return next((trial.reasons[0] for trial in trials if trial.verdict == "suspect"), None)


def published_rows(results: Results, apart: Circumstances) -> Iterator[PublishedRow]:
    """Yield the verdicts on published rows, for the variants that are part of the run."""
    for entry, published in results.entries:
        within = WITHIN if entry.within is None else entry.within
        if entry.completion_times:
            compared = _completion_times(entry, within, results)
        else:
            compared = [_figure(of, figure, within, results, apart) for of, figure in published.items()]
        if not compared:
            continue
        reasons = [each.reason for each in compared if each.reason]
        undecided = [(figure, edges) for figure, edges, _ in compared
                     if figure.verdict == "undecided" and figure.measured is not None]  # fmt: skip
        if undecided:
            few = min(figure.trials for figure, _ in undecided)
            stats = ", ".join(figure.stat for figure, _ in undecided)
            reasons.append("one trial decides nothing" if few < LEAST else f"the interval of {stats} straddles an edge")
            needed = [trials_needed(figure.trials, figure.measured or 0.0, figure.interval, edges)
                      for figure, edges in undecided]  # fmt: skip
            reasons.append(_advice(results, few, None if None in needed else max(filter(None, needed))))
        doubt = _doubt({(entry.variant, entry.load)}, results)
        figures = [each.figure for each in compared]
        verdicts = {figure.verdict for figure in figures}
        yield PublishedRow(
            **entry.model_dump(include={"variant", "load", "request_class", "metric", "divided_by"}),
            completion_times=bool(entry.completion_times),
            within=within,
            verdict=next(verdict for verdict in _WORST_FIRST if verdict in verdicts),
            reason="; ".join(dict.fromkeys(reasons)) or None,
            suspect=doubt is not None,
            doubt=doubt,
            figures=figures,
        )


class _Compared(NamedTuple):
    """A published figure with its verdict, the least and the most that do not contradict it, and why it has none."""

    figure: PublishedFigure
    edges: Interval
    reason: str | None


def _figure(of: Quantity, published: float, within: float, results: Results, apart: Circumstances) -> _Compared:
    found, edges = results.estimates[of], edges_of(published, within, apart.floor_ms(of))
    missing: tuple[FigureVerdict, str] | None = None
    if found.measured is None and (untrusted := _not_trusted(of.variant, of.load, of.request_class, results)):
        missing = "invalid", untrusted
    elif found.measured is None:
        why = explain_missing(of, results.measured.cells)
        missing = ("not measured in a short run", why) if of in apart.short else ("undecided", why)
    verdict, reason = missing or (_nearness(published, within, edges, found.interval, found.trials), None)
    told = found.model_dump(include={"stat", "unit", "measured", "low", "high", "trials", "pooled"})
    ratio = _ratio(found.measured, published)
    return _Compared(PublishedFigure(**told, published=published, ratio=ratio, verdict=verdict), edges, reason)


def _completion_times(entry: Published, within: float, results: Results) -> list[_Compared]:
    load, expected = results.run.load(entry.load or ""), entry.expected_completion_times
    cell = entry.variant, load.name
    row = next((each for each in results.staircases if (each.variant, each.load) == cell), None)
    trials, measured = results.measured.staircases.get(cell, ()), row.measured if row else []
    ends = [*zip(row.low or (), row.high or (), strict=True)] if row else []
    missing: tuple[FigureVerdict, str] | None = None
    if untrusted := _not_trusted(*cell, None, results):
        missing = "invalid", untrusted
    elif not load.has_small_bursts:
        missing = "undecided", f"{load.name} has no bursts of at most {SMALL_BURST} requests"
    elif load.burst != len(expected):
        missing = "undecided", f"there were {load.burst} requests in a burst, {len(expected)} were published"
    elif len(measured) < len(expected):
        missing = "undecided", f"at most {len(measured)} of the {load.burst} requests of a burst were answered"
    found = []
    for place, published in enumerate(expected):
        edges, took_ms, interval, count = edges_of(published, within), None, None, 0
        if not missing:
            took_ms, count = measured[place], sum(place < len(trial) for trial in trials)
            interval = ends[place] if place < len(ends) else None
        verdict, reason = missing or (_nearness(published, within, edges, interval, count), None)
        low, high = interval or (None, None)
        figure = PublishedFigure(
            stat=bursts.ordinal(place + 1), unit="ms", published=published, measured=took_ms, low=low, high=high,
            ratio=_ratio(took_ms, published), trials=count, verdict=verdict,
        )  # fmt: skip
        found.append(_Compared(figure, edges, reason))
    return found


def _ratio(measured: float | None, published: float) -> float | None:
    return measured / published if published and measured is not None else None


def _nearness(
    published: float, within: float, edges: Interval, interval: Interval | None, trials: int
) -> FigureVerdict:
    """Return whether a whole interval is within the tolerance of a published figure, or between or beyond the edges.

    The tolerance is from published / (1 + within) to published * (1 + within), edges included. Nothing is near a
    published 0 but 0.
    """
    if trials < LEAST or interval is None:
        return "undecided"
    sides = set[int]()
    for end in interval:
        ratio, edge = end / published if published else float(bool(end)), 1 + within
        near = isclose(ratio, edge) or isclose(ratio, 1 / edge) or 1 / edge < ratio < edge
        sides.add(0 if (near if published else not end) else 1 if ratio > 1 or not published else -1)
    if sides == {0}:
        return "reproduced"
    (low, high), (least, most) = interval, edges
    if least <= low and high <= most:
        return "differs by the floor"
    return "contradicted" if len(sides) == 1 and (high < least or low > most) else "undecided"


def edges_of(published: float, within: float, floor_ms: float = 0.0) -> Interval:
    """Return the least and the most that do not contradict a published figure.

    The tolerance reaches further down by the floor, which a request costs more through the article's stack; or further
    up, if the floor is negative.
    """
    least, most = sorted((published / (1 + within), published * (1 + within)))
    return least - max(floor_ms, 0.0), most - min(floor_ms, 0.0)


def _not_trusted(variant: str, load: str | None, request_class: str | None, results: Results) -> str | None:
    """Return why no trial can be trusted for a class of requests, or for all classes (None); None: a trial can be."""
    trials = [trial for trial in results.measured.trials if (trial.variant, trial.load) == (variant, load)]
    if any(trial.is_trusted and not trial.rejects(request_class) for trial in trials):
        return None
    reasons = [reason for trial in trials for reason in [trial.rejects(request_class), *trial.reasons] if reason]
    return f"{variant}: {reasons[0] if reasons else 'not part of this run'}"

"""The answer to the experiment's question and its cures, and how the page tells them with the run's own numbers."""

from collections.abc import Iterator

from stampede.evaluate.metrics.metric import percentile
from stampede.evaluate.statistics.stopping import ENOUGH, has_interval
from stampede.records.claims import Claim
from stampede.records.run import Run
from stampede.records.summary import ClaimRow, Summary
from stampede.records.words import plural
from stampede.report.spread import claim_values, spread
from stampede.report.wording import claim_subject, number, short_figure, suspect_of, unit_suffix

Pair = tuple[Claim, ClaimRow]
"""A claim as the experiment states it, and what was found of it."""
_ANSWERS = {
    "reproduced": "Answer:", "not reproduced": "Not so:", "undecided": "Not sure yet:", "invalid": "Not measured:"
}  # fmt: skip
_CURES = {
    "reproduced": "Helps:", "not reproduced": "Does not help:", "undecided": "May help:", "invalid": "Not measured:"
}  # fmt: skip


def answers(run: Run, summary: Summary) -> list[Pair]:
    """Return the claims that answer the question; if no claim does, the first one, unless it names a cure."""
    pairs = [*zip(run.claims, summary.claims, strict=True)]
    return [pair for pair in pairs if pair[0].role == "answer"] or [pair for pair in pairs[:1] if not pair[0].role]


def cures(run: Run, summary: Summary) -> list[Pair]:
    """Return the claims that name a cure, the claims that hold first."""
    pairs = [pair for pair in zip(run.claims, summary.claims, strict=True) if pair[0].role == "cure"]
    return sorted(pairs, key=lambda pair: pair[1].verdict != "reproduced")


def lead(run: Run, pair: Pair) -> str:
    """Return the words before a claim. A claim that too few trials leave undecided says what these trials say."""
    claim, row = pair
    leads = _CURES if claim.role == "cure" else _ANSWERS
    if row.verdict != "undecided" or run.trials >= ENOUGH or row.measured is None:
        return leads.get(row.verdict, leads["invalid"])
    so_far = leads["reproduced" if claim.holds(row.measured) else "not reproduced"].removesuffix(":")
    return f"{so_far}, in {'a single trial' if run.trials == 1 else plural(run.trials, 'trial')}:"


def key_claims(run: Run, summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield the claims that answer the question, why they are true, and the claims that name a cure.

    Words come before a claim, and after it what was measured; of a cure also its number in the variant of the answer.
    """
    asked = answers(run, summary)
    for pair in asked:
        yield (lead(run, pair), pair[1].says, measured_phrase(run, summary, pair))
    if run.because and any(row.verdict == "reproduced" for _, row in asked):
        yield ("Why:", "", run.because.removesuffix("."))
    for pair in cures(run, summary):
        measured, (cure, found) = measured_phrase(run, summary, pair), pair
        for answer, _ in asked[:1]:
            of, variant = cure.value, answer.value.variant
            row = summary.row(variant, answer.value.load, of.request_class, of.metric, of.stat)
            if not cure.relative_to and row and row.measured is not None and row.measured != found.measured:
                measured += f", instead of {short_figure(row.unit, row.measured)}{unit_suffix(row.unit)} ({variant})"
        yield (lead(run, pair), found.says, measured)


def first_figure(run: Run, summary: Summary) -> tuple[str, str] | None:
    """Return the number that answers the question, and what it is; None: nobody asks, or it was not measured."""
    asked = answers(run, summary)
    if not asked or (measured := asked[0][1].measured) is None:
        return None
    claim, row = asked[0]
    figure = claim_figure(claim, row, measured) + (" times" if claim.relative_to else unit_suffix(row.unit))
    return figure, claim_subject(claim).removesuffix(",")


def measured_phrase(run: Run, summary: Summary, pair: Pair) -> str:
    """Return the measured value of a claim with its interval, or why there is none."""
    claim, row = pair
    if row.measured is None:
        return (row.reason or "not measured").rstrip(".")
    values = claim_values(claim, run, summary)
    known = has_interval(values, row.low, row.high) and row.low != row.high
    interval = spread(values, row.low, row.high, lambda value: claim_figure(claim, row, value)) if known else ""
    stat = f"{row.stat} " if percentile(row.stat) is not None else ""
    of_unit = row.unit.removesuffix("s") if row.measured == 1 and row.unit != "ms" else row.unit
    suffix = " times" if claim.relative_to else unit_suffix(of_unit)
    low, _, high = interval.partition(" to ")
    shown = f" ({interval})" if low != high and interval else ""
    doubt = suspect_of(run, summary, claim.quantities)
    return ", ".join(filter(None, (f"{stat}{claim_figure(claim, row, row.measured)}{suffix}{shown}", doubt)))


def claim_figure(claim: Claim, row: ClaimRow, value: float) -> str:
    """Return a value of a claim without its unit."""
    return number(value) if claim.relative_to else short_figure(row.unit, value)

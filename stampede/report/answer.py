"""The answer to the experiment's question and its cures, and how the page tells them with the run's own numbers."""

from collections.abc import Iterator
from typing import NamedTuple

from stampede.evaluate.metrics import AVOIDABLE_WAIT, OVERHEAD
from stampede.evaluate.metrics.metric import percentile
from stampede.evaluate.statistics.stopping import ENOUGH, has_interval
from stampede.records.claims import Claim, Quantity
from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import ClaimRow, Summary
from stampede.report.spread import claim_values, spread
from stampede.report.wording import (
    capitalised,
    claim_subject,
    claim_value,
    number,
    percent,
    quantity_place,
    short_figure,
    suspect_of,
    unit_suffix,
    whole_number,
)

Pair = tuple[Claim, ClaimRow]
"""A claim as the experiment states it, and what was found of it."""
_ANSWERS = {
    "reproduced": "Answer:", "not reproduced": "Not so:", "undecided": "Not sure yet:", "invalid": "Not measured:"
}  # fmt: skip
_CURES = {
    "reproduced": "Helps:", "not reproduced": "Does not help:", "undecided": "May help:", "invalid": "Not measured:"
}  # fmt: skip


class KeyClaim(NamedTuple):
    """A claim that answers the question or names a cure.

    ``lead`` comes before it, and what was measured follows it: in ``short``, or with all numbers.
    """

    lead: str
    says: str
    short: str
    measured: str


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


def key_claims(run: Run, summary: Summary) -> Iterator[KeyClaim]:
    """Yield the claims that answer the question, why they are true, and the claims that name a cure."""
    asked = answers(run, summary)
    for pair in asked:
        yield KeyClaim(
            lead(run, pair), pair[1].says, measured_phrase(run, summary, pair), _measured_sentence(run, summary, *pair)
        )
    if run.because and any(row.verdict == "reproduced" for _, row in asked):
        yield KeyClaim("Why:", "", run.because.removesuffix("."), run.because.removesuffix("."))
    for pair in cures(run, summary):
        short, sentences = measured_phrase(run, summary, pair), [_measured_sentence(run, summary, *pair)]
        for answer, _ in asked[:1]:
            short += _uncured(summary, pair, answer)
            sentences += filter(None, [_cured_sentence(summary, pair[0], answer)])
        yield KeyClaim(lead(run, pair), pair[1].says, short, ". ".join(sentences))


class FirstFigure(NamedTuple):
    """The number that a page opens with, and what it is, in a sentence without its full stop."""

    figure: str
    says: str


def first_figure(run: Run, summary: Summary) -> FirstFigure | None:
    """Return the number that answers the question; None: nobody asks, or it was not measured."""
    asked = answers(run, summary)
    if not asked or (measured := asked[0][1].measured) is None:
        return None
    claim, row = asked[0]
    figure = claim_figure(claim, row, measured) + (" times" if claim.relative_to else unit_suffix(row.unit))
    says = _in_plain_words(claim, measured)
    if says is None:
        return FirstFigure(figure, claim_subject(claim).removesuffix(","))
    return FirstFigure(figure, f"{says.partition(': ')[2].removeprefix(figure)} ({quantity_place(claim.value)})")


def measured_phrase(run: Run, summary: Summary, pair: Pair) -> str:
    """Return the measured value of a claim with its interval, or why there is none."""
    claim, row = pair
    if row.measured is None:
        return (row.reason or "not measured").rstrip(".")
    values = claim_values(claim, run, summary)
    known = has_interval(values, row.low, row.high) and row.low != row.high
    interval = spread(values, row.low, row.high, lambda value: claim_figure(claim, row, value)) if known else ""
    stat = f"{row.stat} " if percentile(row.stat) is not None else ""
    of_unit = row.unit.removesuffix("s") if row.measured == 1 else row.unit
    suffix = " times" if claim.relative_to else unit_suffix(of_unit)
    low, _, high = interval.partition(" to ")
    shown = f" ({interval})" if low != high and interval else ""
    doubt = suspect_of(run, summary, claim.quantities)
    return ", ".join(filter(None, (f"{stat}{claim_figure(claim, row, row.measured)}{suffix}{shown}", doubt)))


def claim_figure(claim: Claim, row: ClaimRow, value: float) -> str:
    """Return a value of a claim without its unit."""
    return number(value) if claim.relative_to else short_figure(row.unit, value)


def _measured_sentence(run: Run, summary: Summary, claim: Claim, row: ClaimRow) -> str:
    """Return what was measured of a claim, in a sentence without its full stop."""
    if row.measured is None:
        return capitalised(row.reason or "")
    values = claim_values(claim, run, summary)
    shown = spread(values, row.low, row.high)
    which = "95 % interval" if has_interval(values, row.low, row.high) else "in the trials"
    interval = f" ({which}: {shown}{unit_suffix(row.unit)})" if shown and row.low != row.high else ""
    sentence = (
        _in_plain_words(claim, row.measured)
        or f"{claim_subject(claim)} is {claim_value(row).removeprefix(f'{row.stat} ')}"
    )
    return ". ".join(filter(None, (f"{sentence}{interval}", capitalised(suspect_of(run, summary, claim.quantities)))))


def _in_plain_words(claim: Claim, value: float) -> str | None:
    return None if claim.relative_to else quantity_sentence(claim.value, value, at_least=claim.at_least is not None)


def quantity_sentence(quantity: Quantity, value: float, *, at_least: bool) -> str | None:
    """Return a percentile of lost time, or an avoidable wait, in plain words; None: another quantity."""
    q = percentile(quantity.stat)
    where = f"Measured with {quantity_place(quantity)}"
    if quantity.metric == OVERHEAD.name and q is not None and quantity.request_class:
        share, side = (100 - q, "more") if at_least else (q, "less")
        return f"{where}: {share:g} % of the {quantity.request_class} requests lose {number(value)} ms or {side}"
    if quantity.metric != AVOIDABLE_WAIT.name:
        return None
    requests = f"{quantity.request_class} requests" if quantity.request_class else "requests"
    free_meanwhile = "while another worker had a free thread"
    match quantity.stat:
        case "share":
            says = f"{percent(value) if value else 'none'} of the {requests} waited {free_meanwhile}"
        case "count":
            some = f"{number(whole_number('requests', value))} {requests} of a trial" if value else f"no {requests}"
            says = f"{some} waited {free_meanwhile}"
        case "max":
            says = f"the longest wait of {requests} {free_meanwhile} was {number(value)} ms"
        case _:
            says = f"together, the {requests} of a trial waited {number(value)} ms {free_meanwhile}"
    return f"{where}: {says}"


def _uncured(summary: Summary, pair: Pair, answer: Claim) -> str:
    """Return the number of a cure in the variant of the answer, e.g. ``, instead of 42% (shared-socket)``."""
    (cure, measured), variant = pair, answer.value.variant
    value = cure.value
    row = summary.row(variant, answer.value.load, value.request_class, value.metric, value.stat)
    if cure.relative_to or row is None or row.measured in (None, measured.measured):
        return ""
    assert row.measured is not None
    return f", instead of {short_figure(row.unit, row.measured)}{unit_suffix(row.unit)} ({variant})"


def _cured_sentence(summary: Summary, cure: Claim, answer: Claim) -> str | None:
    """Return the number of the answer in the variant of a cure, if the cure itself tells another number."""
    value = answer.value
    wanted = (value.request_class, value.metric, value.stat)
    if wanted == (cure.value.request_class, cure.value.metric, cure.value.stat):
        return None
    row = summary.row(cure.value.variant, cure.value.load, *wanted)
    if row is None or row.median is None:
        return None
    cured = value.model_copy(update={"variant": row.variant, "load": cure.value.load})
    sentence = quantity_sentence(cured, row.median, at_least=answer.at_least is None)
    return sentence and capitalised(sentence.partition(": ")[2])

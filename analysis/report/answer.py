"""How the report opens: the answer to the experiment's question and its cure, made from the run's own numbers."""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.metrics import percentile
from analysis.metrics.avoidable_wait import AVOIDABLE_WAIT
from analysis.metrics.times import OVERHEAD
from analysis.records.claims import Claim, Quantity
from analysis.records.run import Run
from analysis.records.summary import ClaimRow, Summary
from analysis.report.spread import claim_values, spread
from analysis.report.wording import claim_subject, claim_value, number, percent, unit_suffix, whole_number
from analysis.statistics.stopping import has_interval


class Answer(NamedTuple):
    """A claim that answers the question or names a cure. ``lead`` comes before it, and ``measured`` follows it."""

    lead: str
    says: str
    measured: str


def answers(run: Run, summary: Summary) -> Iterator[Answer]:
    """Yield the claims that answer the question, why they are true, and the claims that name a cure.

    If no claim has a role, the first claim is the answer.
    """
    pairs = [*zip(run.claims, summary.claims, strict=True)]
    asked = [pair for pair in pairs if pair[0].role == "answer"] or [pair for pair in pairs[:1] if not pair[0].role]
    for claim, row in asked:
        yield Answer(_lead(claim, row), row.says, _measured(run, summary, claim, row))
    if run.because and any(row.verdict == "reproduced" for _, row in asked):
        yield Answer("Why:", "", run.because.removesuffix("."))
    for claim, row in pairs:
        if claim.role == "cure":
            there = [_there(summary, claim, of_answer) for of_answer, _ in asked[:1]]
            yield Answer(
                _lead(claim, row), row.says, ". ".join([_measured(run, summary, claim, row), *filter(None, there)])
            )


def _lead(claim: Claim, row: ClaimRow) -> str:
    match row.verdict:
        case "reproduced":
            return "What helps:" if claim.role == "cure" else ""
        case "not reproduced":
            return "In this run, this is not so:"
        case "undecided":
            return "This run cannot tell whether this is so:"
        case _:
            return "This run did not measure whether this is so:"


def _measured(run: Run, summary: Summary, claim: Claim, row: ClaimRow) -> str:
    """Return what was measured of a claim, in a sentence without its full stop."""
    if row.measured is None:
        return row.reason[0].upper() + row.reason[1:] if row.reason else ""
    unit = unit_suffix(row.unit)
    values = claim_values(claim, run, summary)
    told = spread(values, row.low, row.high)
    which = "95 % interval" if has_interval(values, row.low, row.high) else "in the trials"
    interval = f" ({which}: {told}{unit})" if told and row.low != row.high else ""
    says = None if claim.relative_to else _told(claim.value, row.measured, at_least=claim.at_least is not None)
    says = says or f"{claim_subject(claim)} is {claim_value(row).removeprefix(f'{row.stat} ')}"
    return f"{says}{interval}" + (". It rests on a suspect trial" if row.suspect else "")


def _told(quantity: Quantity, value: float, *, at_least: bool) -> str | None:
    """Return a percentile of lost time, or the share that waited beside a free thread, in plain words."""
    q = percentile(quantity.stat)
    where = f"Measured with {quantity.variant}" + (f" under {quantity.load}" if quantity.load else "")
    if quantity.metric == OVERHEAD.name and q is not None and quantity.request_class:
        share, side = (100 - q, "more") if at_least else (q, "less")
        return f"{where}: {share:g} % of the {quantity.request_class} requests lose {number(value)} ms or {side}"
    if quantity.metric == AVOIDABLE_WAIT.name:
        return f"{where}: {_told_of_waits(quantity, value)}"
    return None


def _told_of_waits(quantity: Quantity, value: float) -> str:
    """Return how many requests waited beside a free thread, or how long, in plain words."""
    requests = f"{quantity.request_class} requests" if quantity.request_class else "requests"
    beside = "although another worker had a free thread"
    match quantity.stat:
        case "share":
            return f"{percent(value) if value else 'none'} of the {requests} waited {beside}"
        case "count":
            some = f"{number(whole_number('requests', value))} {requests} of a trial" if value else f"no {requests}"
            return f"{some} waited {beside}"
        case "max":
            return f"the longest wait of {requests} {beside} was {number(value)} ms"
        case _:
            return f"together, the {requests} of a trial waited {number(value)} ms {beside}"


def _there(summary: Summary, cure: Claim, of_answer: Claim) -> str | None:
    """Return the number of the answer in the variant of a cure, if the cure itself tells another number."""
    value = of_answer.value
    if (value.metric, value.stat, value.request_class) == (
        cure.value.metric,
        cure.value.stat,
        cure.value.request_class,
    ):
        return None
    there = (cure.value.variant, cure.value.load, value.request_class, value.metric, value.stat)
    for row in summary.rows:
        if (row.variant, cure.value.load and row.load, row.request_class, row.metric, row.stat) == there:
            of_cure = value.model_copy(update={"variant": row.variant, "load": cure.value.load})
            told = None if row.measured is None else _told(of_cure, row.measured, at_least=of_answer.at_least is None)
            told = told and told.partition(": ")[2]
            return told and told[0].upper() + told[1:]
    return None

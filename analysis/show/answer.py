"""How the report opens: the answer to the experiment's question and its cure, made from the run's own numbers."""

from collections.abc import Iterator
from typing import NamedTuple

from analysis.quantities import Claim
from analysis.record import Run
from analysis.result import ClaimRow, Summary
from analysis.show.words import claim_interval, claim_value, measured_thing


class Answer(NamedTuple):
    """A claim that answers the question or names a cure. ``lead`` comes before it, and ``measured`` follows it."""

    lead: str
    says: str
    measured: str


def answers(run: Run, summary: Summary) -> Iterator[Answer]:
    """Yield the claims that answer the question, then the claims that name a cure; without roles, the first claim."""
    pairs = [*zip(run.claims, summary.claims, strict=True)]
    told = [pair for role in ("answer", "cure") for pair in pairs if pair[0].role == role] or pairs[:1]
    for claim, row in told:
        yield Answer(_lead(claim, row), row.says, _measured(claim, row))


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


def _measured(claim: Claim, row: ClaimRow) -> str:
    if row.measured is None:
        return row.reason[0].upper() + row.reason[1:] if row.reason else ""
    value = claim_value(row).removeprefix(f"{row.stat} ")
    interval = f" (95 % interval: {claim_interval(row)})" if row.low is not None else ""
    doubt = " It rests on a suspect trial" if row.suspect else ""
    end = f".{doubt}" if doubt else ""
    return f"{measured_thing(claim)} is {value}{interval}{end}"

"""Tables of verdicts: on claims, and on published figures."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from stampede.evaluate.metrics.metric import TIME_STATISTICS
from stampede.records.claims import Quantity
from stampede.records.run import Run
from stampede.records.summary import ClaimRow, PublishedRow, Summary
from stampede.report.article import article_tables
from stampede.report.spread import claim_values, spread
from stampede.report.tables import Table
from stampede.report.wording import (
    figures_phrase,
    number,
    plain_name,
    published_quantity,
    suspect_of,
    unit_suffix,
    verdict_phrase,
    whole_number,
)


def verdict_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield the tables of verdicts: on claims, on the article, and on its figures."""
    if summary.claims:
        yield claims_table(run, summary)
    yield from article_tables(run, summary)
    if summary.published:
        yield published_table(run, summary)


def claims_table(run: Run, summary: Summary) -> Table:
    """Return the claims with their measured values and verdicts."""
    rows = []
    reasons = [row.reason for row in summary.claims if row.reason]
    shared = reasons[:1] if len(reasons) > 1 and len({*reasons}) == 1 else []
    doubts = _repeated(summary.claims)
    for claim, row in zip(run.claims, summary.claims, strict=True):
        why = _why(run, summary, row, claim.quantities, {*shared, *doubts})
        says = row.says + (f" — {'; '.join(why)}" if why else "")
        named = row.unit in ("share", "index") or (row.unit != "ratio" and row.stat in TIME_STATISTICS)
        value = number(whole_number(row.unit, row.measured))
        if row.measured is not None:
            of_unit = " times" if row.unit == "ratio" else unit_suffix(row.unit)
            value = f"{f'{plain_name(row.stat)} ' if named else ''}{value}{of_unit}"
        measured = [value, spread(claim_values(claim, run, summary), row.low, row.high)]
        bound = row.bound + (" ms" if row.unit == "ms" else "")
        rows.append((verdict_phrase(row.verdict, row.suspect), says, "\n".join(filter(None, measured)), bound))
    told = [*shared, *_doubt_told(doubts)]
    told.append("reproduced: the whole interval satisfies the bound")
    told += ["the value may still differ from the published value"] * bool(summary.published)
    return Table("Claims", ("verdict", "claim", "measured", "bound"), rows, words=2, note="; ".join(told))


def _repeated(rows: Sequence[ClaimRow | PublishedRow]) -> list[str]:
    """Return the doubts of more than one row, which are told once below the table."""
    times = Counter(row.doubt for row in rows if row.doubt)
    return [doubt for doubt in times if times[doubt] > 1]


def _doubt_told(doubts: Sequence[str]) -> list[str]:
    return [f"suspect: trials are in doubt, for example because {doubts[0]}"] if doubts else []


def _why(
    run: Run, summary: Summary, row: ClaimRow | PublishedRow, of: Sequence[Quantity | PublishedRow],
    told: Collection[str],
) -> list[str]:  # fmt: skip
    """Return why a verdict is undecided or invalid, and how many trials are suspect and why, unless it was told.

    If all trials of the run are suspect, its first sentence says so.
    """
    suspect = "" if all(trial.verdict == "suspect" for trial in summary.trials) else suspect_of(run, summary, of)
    reasons = [row.reason] if row.reason and row.reason not in told else []
    doubt = [row.doubt] if row.doubt and row.doubt not in told else []
    return [*reasons, *filter(None, [": ".join(filter(None, [suspect, *doubt]))])]


def published_table(run: Run, summary: Summary) -> Table:
    """Return the published rows with their verdicts, and their figures that were not reproduced."""
    rows, doubts = [], _repeated(summary.published)
    for row in summary.published:
        why = "; ".join(_why(run, summary, row, [row], doubts))
        what = published_quantity(run, row) + (f" — {why}" if why else "")
        rows.append((verdict_phrase(row.verdict, row.suspect), what, figures_phrase(row)))
    figures = [figure for row in summary.published for figure in row.figures]
    pooled = any(figure.pooled and figure.verdict != "reproduced" for figure in figures)
    told = [
        *_doubt_told(doubts),
        "reproduced: every measured figure, with its interval, is within the stated percentage of the published figure",
        "the other figures are listed as measured / published",
        "floor: what a request costs while nobody waits",
        *["*: of the requests of all trials together"] * pooled,
    ]
    return Table("Published figures", ("verdict", "what", "figures"), rows, words=3, note="; ".join(told))

"""What an experiment's page in docs/ shows of a run. The reference keeps it; the page's block is written from there."""

from collections.abc import Iterator
from itertools import chain

from pydantic import Field

from stampede.records.model import Model
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.article import article_tables
from stampede.report.markdown import markdown_table
from stampede.report.tables import COUNTS, Table
from stampede.report.tables.quantities import quantity_tables
from stampede.report.tables.verdicts import claims_table
from stampede.report.wording import capitalised, doubts_of, metric_phrase, trials_phrase

READING = (
    "A figure is the median over the trials, with its 95 % interval in parentheses; where the interval would reach far "
    "beyond the values of all trials, the cell lists the value of each trial instead. The column *answered* counts "
    "requests, or visits, of all trials."
)
"""How to read a page's tables of quantities."""
MOST_DOUBTS = 6
"""How many kinds of reasons to doubt a run a page names."""


class ShownTable(Model):
    """A table of a page: a name for each column, and in each row a cell for each column. ``note`` explains it."""

    title: str
    head: list[str]
    rows: list[list[str]]
    note: str = ""


class Shown(Model):
    """What a page shows of a run. ``about`` says when, where and with which versions the run was measured.

    ``further`` has tables of other runs, such as a longer one. They stay when a newer run takes the place of this one.
    """

    about: str
    tables: list[ShownTable]
    further: list[ShownTable] = Field([])

    def lines(self) -> Iterator[str]:
        """Yield the lines of the block in Markdown."""
        yield f"{self.about}\n"
        if any({*table.head} & {*COUNTS} for table in self.tables):
            yield f"{READING}\n"
        for table in (*self.tables, *self.further):
            yield markdown_table(Table(table.title, table.head, table.rows, words=len(table.head), note=table.note))


def shown_of(run: Run, summary: Summary) -> Shown:
    """Return what the page shows of a run: its claims, the verdict on the article, and the quantities of the claims."""
    quantities = [part for claim in run.claims for part in claim.quantities]
    claimed = tuple({metric_phrase(part.metric, None).partition(" of ")[0] for part in quantities})
    tables = [
        *([claims_table(run, summary)] if summary.claims else []),
        *article_tables(run, summary),
        *(table for table in quantity_tables(run, summary) if table.title.lower().startswith(claimed)),
    ]
    programs = dict.fromkeys(chain.from_iterable(image.programs.items() for image in run.images))
    versions = ", ".join(f"{name} {version}" for name, version in programs)
    doubts = "".join(f"\n- {told}" for told in doubts_of(run, summary, MOST_DOUBTS))
    end = f":\n{doubts}" if doubts else "."
    if summary.validity.verdict == "valid" and doubts:
        end = f". Also noted{end}"
    about = (
        f"Measured on {run.began[:10]}, {plural(run.trials, 'trial')} of each variant, on {run.host.cpu}, "
        f"{plural(run.host.cores, 'core')}, {run.host.kernel}{f', with {versions}' if versions else ''}. "
        f"{capitalised(trials_phrase(summary))}{end}"
    )
    kept = []
    for table in tables:
        rows = [[cell.replace("\n", " (", 1) + ")" * ("\n" in cell) for cell in row] for row in table.rows]
        kept.append(ShownTable(title=table.title, head=list(table.head), rows=rows, note=table.note))
    return Shown(about=about, tables=kept)

"""A run's results as tables in Markdown, for a page about it."""

import re

from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.tables import Table
from stampede.report.tables.quantities import counting_tables, legend, quantity_tables
from stampede.report.tables.verdicts import verdict_tables
from stampede.report.wording import capitalised, doubts_of, trials_phrase


def markdown(run: Run, summary: Summary) -> str:
    """Return the claims and figures that ``print_tables`` prints, as tables in Markdown."""
    validity = summary.validity
    doubts, noted = ("".join(f"- {reason}\n" for reason in told) for told in (doubts_of(run, summary), validity.notes))
    quantities = [*quantity_tables(run, summary)]
    notes = [f"{capitalised(sentence)}.\n" for sentence in legend(run, quantities)]
    before = [*verdict_tables(run, summary), *quantities]
    head = f"The measurement is {validity.verdict}: {trials_phrase(summary)}.\n\n{doubts}"
    head += f"\nAlso noted:\n\n{noted}" if noted else ""
    return "\n".join([head, *map(markdown_table, before), *notes, *map(markdown_table, counting_tables(run, summary))])


def markdown_table(table: Table) -> str:
    """Return a table in Markdown; characters that Markdown would take for markup are escaped."""
    cells = []
    for row in table.rows:
        details = [re.sub(r"\n(.+)", r" (\1)", cell, count=1) for cell in row[table.words :]]  # 8489 (2100 to 9400)
        cells.append([re.sub(r"([\\|*_`<])", r"\\\1", cell).replace("\n", "<br>")
                      for cell in (*row[: table.words], *details)])  # fmt: skip
    lines = "".join(f"| {' | '.join(row)} |\n" for row in (table.head, ["---"] * len(table.head), *cells))
    note = f"\n{capitalised(table.note)}.\n" if table.note else ""
    return f"{table.title}:\n\n{lines}{note}"

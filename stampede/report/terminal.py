"""A run's results on a terminal; what is too wide for it follows in further tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich import table as rich
from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from stampede.errors import WrongUse
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.section import Section
from stampede.report.tables import Table
from stampede.report.tables.quantities import counting_tables, legend, quantity_tables, stairs_tables
from stampede.report.tables.verdicts import verdict_tables
from stampede.report.wording import doubts_of, load_suffix, trials_phrase

_STYLES = {
    "reproduced": "green", "not reproduced": "red", "contradicted": "red", "undecided": "yellow",
    "differs by the floor": "dim", "not measured in a short run": "dim", "invalid": "magenta", "valid": "green",
    "suspect": "yellow", "measured": "bold", "pooled": "bold", "published": "dim", "predicted": "dim",
    "higher": "yellow", "lower": "cyan", "~": "dim",
}  # fmt: skip
"""How rows of each kind, and verdicts, are printed."""


FURTHER = ("min", "p60", "p70", "p80", "p95", "jain index", "max over mean")
"""The columns that ``--tables`` leaves out, so that most quantities have one table; ``--table`` has them."""


def print_tables(console: Console, run: Run, summary: Summary, section: Section | None = None) -> None:
    """Print the whole result of a run. ``section`` has its diagnosis."""
    _print_question(console, run)
    verdict, notes = summary.validity.verdict, summary.validity.notes
    head = Text.assemble("The measurement is ", (verdict, _STYLES[verdict]), f": {trials_phrase(summary)}.")
    noted: list[RenderableType] = [Text("Also noted:"), _listed(notes)] if notes else []
    console.print(Group(head, _listed(doubts_of(run, summary)), *noted))
    whole = [*quantity_tables(run, summary)]
    quantities = [short for table in whole if (short := table.without(FURTHER)).rows]
    _print_all(console, quantities)
    _print_legend(console, run, quantities)
    if left_out := [name for name in FURTHER if any(name in table.head for table in whole)]:
        console.print(Text(f"left out: {', '.join(left_out)}; --table prints a table with all columns", style="dim"))
    _print_all(console, counting_tables(run, summary))
    if section:
        console.print(Text(f"\n{section.title}\n", style="bold"))
        console.print(_listed([*section.answers, *section.minor]))
    if not (summary.claims or section):
        console.print("\nThis experiment makes no claims.")
    _print_all(console, [*(section.tables if section else ()), *verdict_tables(run, summary)])
    for remark in section.remarks if section else ():
        console.print(Text(remark))


def print_chosen_tables(
    console: Console, run: Run, summary: Summary, words: Sequence[str], section: Section | None = None
) -> None:
    """Print the tables whose titles contain one of the words. Raise WrongUse for a word that no title contains."""
    tables = [*quantity_tables(run, summary), *counting_tables(run, summary), *(section.tables if section else ()),
              *verdict_tables(run, summary)]  # fmt: skip
    for word in words:
        if not any(word.lower() in table.title.lower() for table in tables):
            titles = "\n".join(table.title for table in tables)
            raise WrongUse(f"No table has {word!r} in its title.", hint=f"The tables:\n{titles}")
    _print_all(console, [table for table in tables if any(word.lower() in table.title.lower() for word in words)])


def print_predicted(console: Console, run: Run, summary: Summary) -> None:
    """Print what theory predicts of a run, beside what was published, and what theory cannot predict."""
    _print_question(console, run)
    quantities = [*quantity_tables(run, summary)]
    _print_all(console, [*quantities, *stairs_tables(run, summary)])
    _print_legend(console, run, quantities)
    rows = [(f"{row.variant}{load_suffix(run, row.load)}", row.missing) for row in summary.not_predicted]
    table = Table("Without a prediction", ("variant", "because theory lacks"), rows, words=2)
    _print_all(console, [table] if rows else [])


def _print_legend(console: Console, run: Run, quantities: Iterable[Table]) -> None:
    for sentence in legend(run, quantities):
        console.print(Text(sentence, style="dim"))


def _print_question(console: Console, run: Run) -> None:
    console.print()
    console.print(Text(run.title, style="bold"))
    console.print(Text(run.question, style="italic"))


def _print_all(console: Console, tables: Iterable[Table]) -> None:
    for table in tables:
        for part in _parts(console, table):
            console.print("", terminal_table(part), sep="\n", crop=False)


def _parts(console: Console, table: Table) -> Iterator[Table]:
    """Yield a table and, if it is too wide, the columns that do not fit in further tables with the same names."""
    most = len(table.head)
    while most > table.words + 1 and _width(console, table.only(range(most))) > console.width:
        most -= 1
    if most == len(table.head):
        yield table
        return
    yield replace(table.only(range(most)), note="")
    yield from _parts(console, table.only([*range(table.words), *range(most, len(table.head))]))


def _width(console: Console, table: Table) -> int:
    lines = Segment.split_lines(console.render(terminal_table(table)))
    return max(map(Segment.get_line_length, lines), default=0)


def _listed(sentences: Sequence[str]) -> rich.Table:
    grid = rich.Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", Text(sentence))
    return grid


def terminal_table(table: Table) -> RenderableType:
    """Return a table for the terminal: cells wrap between words, never within a figure or an interval."""
    shown = rich.Table(
        title=Text(table.title), box=None, title_justify="left", title_style="bold", header_style="dim", pad_edge=False
    )
    for place, name in enumerate(table.head):
        cells = [row[place] for row in table.rows]
        longest = max((len(line) for cell in cells for line in cell.split("\n")), default=0)
        if name == "verdict" and place < table.words:
            parts = [part for cell in cells for part in cell.replace(", ", ",\n").split("\n")]
            shown.add_column(name, width=max(len(name), min(max(map(len, parts), default=0), _VERDICT)))
        elif place == 0 and "" in table.head:
            shown.add_column(name, overflow="fold", width=min(max(longest, len(name)), _NAME))
        elif place < table.words:
            shown.add_column(name, overflow="fold", no_wrap=not name)
        else:
            lines = [line for cell in cells for line in cell.split("\n")]
            unbroken = [[line] if " to " in line else line.split() for line in [name, *lines]]
            least = max((len(part) for parts in unbroken for part in parts), default=0)
            shown.add_column(name, justify="right", min_width=least)
    above = ""
    for row in table.rows:
        first, *others = row
        style = _STYLES.get(table.kind(row), "")
        if table.head[0] == "verdict":
            shown.add_row(Text(first.replace(", ", ",\n"), style=style), *map(Text, others))
        else:
            shown.add_row(Text("" if first == above else first), *(Text(cell, style=style) for cell in others))
        above = first
    return Group(shown, Text(table.note, style="dim")) if table.note else shown


_VERDICT, _NAME = 15, 24
"""How wide a verdict, and the name of a variant, are before they wrap."""

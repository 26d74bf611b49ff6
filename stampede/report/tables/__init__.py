"""The tables of a run's results as text. The terminal, Markdown and the page print the same tables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

_EMPTY = ("", "–")
COUNTS = ("answered", "visits")
"""The column that says how many requests or visits of all trials the figures of a row come from."""


@dataclass(frozen=True)
class Table:
    """A table: a name for each column, and in each row a cell for each column.

    The first ``words`` columns have words, which may wrap; the others have figures. Lines of a cell below its first
    line add details. ``note`` explains the table, in a sentence without a capital letter and a full stop.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    note: str = ""

    def kind(self, row: Sequence[str]) -> str:
        """Return a row's verdict, or the first word in the column without a name, by which it has its colour."""
        if "verdict" in self.head:
            return row[self.head.index("verdict")].rpartition(", ")[2]
        return row[self.head.index("")].partition(" ")[0] if "" in self.head else ""

    def groups(self) -> list[list[Sequence[str]]]:
        """Return the rows, those together that differ in their kind and have the same name in the first column."""
        if "" not in self.head:
            return [[row] for row in self.rows]
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: row[0])]

    def only(self, places: Sequence[int]) -> "Table":
        """Return the table with only the columns at these places, in this order."""
        head, *rows = [[row[place] for place in places] for row in (self.head, *self.rows)]
        return replace(self, head=head, rows=rows, words=sum(place < self.words for place in places))

    def without(self, names: Collection[str]) -> "Table":
        """Return the table without the columns of these names, and without gaps."""
        return self.only([place for place, name in enumerate(self.head) if name not in names]).without_gaps()

    def without_gaps(self) -> "Table":
        """Return the table without the rows that have no figure but counts, and without columns that have nothing."""
        figures = [place for place in range(self.words, len(self.head)) if self.head[place] not in COUNTS]
        rows = [row for row in self.rows if not figures or any(row[place] not in _EMPTY for place in figures)]
        kept = [place for place in range(len(self.head)) if any(row[place] not in _EMPTY for row in rows)]
        return replace(self, rows=rows).only(kept)

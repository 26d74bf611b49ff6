"""The tables of a run's results as text. The terminal, Markdown and the page print the same tables."""

from collections.abc import Sequence
from dataclasses import dataclass


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
        """Return of which kind a row is, by which it has its colour; empty: of no kind.

        The kind is the verdict of the row, or the first word in the column that has no name (published, low, …).
        """
        if "verdict" in self.head:
            return row[self.head.index("verdict")].rpartition(", ")[2]
        return row[self.head.index("")].partition(" ")[0] if "" in self.head else ""

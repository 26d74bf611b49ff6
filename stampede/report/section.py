"""What the diagnosis of an own service adds to the report of a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stampede.records.claims import Measure
from stampede.report.tables import Table


class Section(NamedTuple):
    """Sentences and tables that stand in a report in the place of the verdicts on claims.

    The terminal prints the ``answers`` below the ``title``, then the ``minor`` ones, and then the tables. The page
    opens with the answers and the minor ones, after the words ``lead``; further down, below the ``heading``, it has the
    tables and the ``remarks`` on them. The screen has the first answer, as many further answers as there is room for,
    the ``columns`` that decide, the most important first, and the remarks. ``labels`` are the names that people read
    for variants.
    """

    title: str
    answers: Sequence[str]
    heading: str
    tables: Sequence[Table]
    remarks: Sequence[str]
    lead: str = ""
    columns: Sequence[Measure] = ()
    labels: Mapping[str, str] = {}
    minor: Sequence[str] = ()

"""What an app adds to the report of its runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.records.claims import Measure
from analysis.report.tables import Table


class Section(NamedTuple):
    """Sentences and tables that an app adds to a report, in the place of the verdicts on claims.

    The terminal prints the ``answers`` below the ``title``, and then the tables. The page opens with the answers, after
    the words ``lead``; further down, below the ``heading``, it has the tables and the ``remarks`` on them. The screen
    has the answers, the ``columns`` that decide, the most important first, and the remarks. ``labels`` are the names
    that people read for variants.
    """

    title: str
    answers: Sequence[str]
    heading: str
    tables: Sequence[Table]
    remarks: Sequence[str]
    lead: str = ""
    columns: Sequence[Measure] = ()
    labels: Mapping[str, str] = {}

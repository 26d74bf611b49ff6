"""What the diagnosis of an own service adds to the results of a run: diagnosis.json, and a section of the report."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from stampede.records.claims import Measure
from stampede.records.summary import Summary
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


_DIAGNOSIS = "stampede.service.diagnosis.extension"
"""The module that writes and reads the diagnosis of an own service; it stands above this room, and is loaded late."""


def write_section(run_folder: Path, summary: Summary) -> Section | None:
    """Write the diagnosis into the folder of a run of somebody's own service; return the section of its report."""
    import_module(_DIAGNOSIS).write_files(run_folder, summary)
    return read_section(run_folder, summary)


def read_section(run_folder: Path, summary: Summary) -> Section | None:
    """Return the section that the diagnosis of a run adds to its report; None: the run has no diagnosis."""
    section: Section | None = import_module(_DIAGNOSIS).read_section(run_folder, summary)
    return section

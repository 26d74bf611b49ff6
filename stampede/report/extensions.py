"""What an app adds to the results of a run: files beside summary.json, and a section of the report."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from stampede.records.claims import Measure
from stampede.records.summary import Summary
from stampede.report.tables import Table


class Section(NamedTuple):
    """Sentences and tables that an app adds to a report, in the place of the verdicts on claims.

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


class Extension(Protocol):
    """A module of an app that has more to say of some runs, and nothing of all others."""

    def write_files(self, run_folder: Path, summary: Summary) -> None:
        """Write the app's files into the folder of a run whose summary was computed."""

    def read_section(self, run_folder: Path, summary: Summary) -> Section | None:
        """Return the app's section of the report, from the files that it wrote; None: it has none of this run."""


EXTENSIONS = ["stampede.service.diagnosis.extension"]
"""The names of the modules that add to results. They are imported when needed."""


def write_extensions(run_folder: Path, summary: Summary) -> list[Section]:
    """Write the files of all apps into the folder of a run, and return the sections of its report."""
    for extension in _extensions():
        extension.write_files(run_folder, summary)
    return read_sections(run_folder, summary)


def read_sections(run_folder: Path, summary: Summary) -> list[Section]:
    """Return the sections that apps add to the report of a run."""
    return [section for extension in _extensions() if (section := extension.read_section(run_folder, summary))]


def _extensions() -> list[Extension]:
    return [cast("Extension", import_module(name)) for name in EXTENSIONS]

"""What an app adds to the results of a run: files beside summary.json, and a section of the report."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from analysis.records.summary import Summary
    from analysis.report.section import Section


class Extension(Protocol):
    """A module of an app that has more to say of some runs, and nothing of all others."""

    def write_files(self, run_folder: Path, summary: "Summary") -> None:
        """Write the app's files into the folder of a run whose summary was computed."""

    def read_section(self, run_folder: Path, summary: "Summary") -> "Section | None":
        """Return the app's section of the report, from the files that it wrote; None: it has none of this run."""


EXTENSIONS: list[str] = []
"""The names of the modules that add to results. The command line registers them; they are imported when needed."""


def write_extensions(run_folder: Path, summary: "Summary") -> "list[Section]":
    """Write the files of all apps into the folder of a run, and return the sections of its report."""
    for extension in _extensions():
        extension.write_files(run_folder, summary)
    return read_sections(run_folder, summary)


def read_sections(run_folder: Path, summary: "Summary") -> "list[Section]":
    """Return the sections that apps add to the report of a run."""
    return [section for extension in _extensions() if (section := extension.read_section(run_folder, summary))]


def _extensions() -> list[Extension]:
    return [cast("Extension", import_module(name)) for name in EXTENSIONS]

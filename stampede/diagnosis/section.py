"""The section that a diagnosis adds to the report of a run; reading it needs neither rows nor numpy."""

from pathlib import Path

from stampede.diagnosis.model import read_diagnosis
from stampede.diagnosis.tables import section_of
from stampede.records.folder import read_run
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.section import Section


def read_section(run_folder: Path, summary: Summary) -> Section | None:
    """Return the section with the diagnosis of a run; None: the run has none."""
    run = read_run(run_folder)
    diagnosis = read_diagnosis(run_folder) if is_of_service(run) else None
    return section_of(run, summary, diagnosis) if diagnosis else None


def is_of_service(run: Run) -> bool:
    """Whether a run measured somebody's own service as it is served today."""
    return any(load.is_of_user_service for load in run.loads) and any(variant.name == TODAY for variant in run.variants)

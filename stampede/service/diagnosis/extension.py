"""The diagnosis as an extension of results: diagnosis.json, and a section of the report."""

from pathlib import Path
from statistics import median

from stampede.evaluate.read.rows import opened
from stampede.records.folder import read_run, read_trial, trial_folder
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.extensions import Section
from stampede.service.diagnosis.deaths import read_deaths
from stampede.service.diagnosis.held import read_alone, read_held
from stampede.service.diagnosis.model import read_diagnosis, write_diagnosis
from stampede.service.diagnosis.omissions import read_omissions
from stampede.service.diagnosis.rules import diagnose
from stampede.service.diagnosis.tables import section_of


def write_files(run_folder: Path, summary: Summary) -> None:
    """Write diagnosis.json, if the run measured somebody's own service as it is served today."""
    run = read_run(run_folder)
    if not _is_of_service(run):
        return
    folders = [trial_folder(run_folder, *trial.key) for trial in summary.trials
               if trial.variant == TODAY and trial.is_trusted]  # fmt: skip
    records = [read_trial(folder) for folder in folders]
    shares = [record.busy_during for record in records if record.busy_during is not None]
    with opened(folders) as rows:
        alone_ms = read_alone(run_folder, summary, TODAY)
        loops = read_held(rows, run_folder, summary, TODAY, alone_ms)
        omissions = read_omissions(run_folder, run, summary)
        deaths = read_deaths(rows, run_folder, summary, run.variant(TODAY))
        busy = median(shares) if shares else None
        write_diagnosis(run_folder, diagnose(summary, run, rows, loops, alone_ms, omissions, busy, deaths))


def read_section(run_folder: Path, summary: Summary) -> Section | None:
    """Return the section with the diagnosis of a run; None: the run has none."""
    run = read_run(run_folder)
    diagnosis = read_diagnosis(run_folder) if _is_of_service(run) else None
    return section_of(run, summary, diagnosis) if diagnosis else None


def _is_of_service(run: Run) -> bool:
    return any(load.is_of_user_service for load in run.loads) and any(variant.name == TODAY for variant in run.variants)

"""Everything that follows from a run's raw points: delete it, call this, and it is back, with the same summary."""

from pathlib import Path

from analysis.folder import read_trial, trial_folders
from analysis.manifest import Hashes, evidence_problem, sealed
from analysis.read.observation import UnreadableObservation, read_containers, read_generators
from analysis.read.rows import UnreadablePoints, write_requests
from analysis.result import Summary
from analysis.show.report import write_report
from analysis.summary import summarise, write_summary
from analysis.validity import Evidence


def derive(run_folder: Path) -> Summary:
    """Write requests.parquet of every trial, summary.json and report.html, and return the summary.

    A trial whose raw files cannot be read, or are not those that manifest.sha256 lists, is judged invalid
    with the reason; raise BadRun when run.json, a trial.json or the manifest cannot be read.
    """
    summary = derive_summary(run_folder)
    write_report(run_folder, summary)
    return summary


def derive_summary(run_folder: Path) -> Summary:
    """Do what ``derive`` does, but draw nothing."""
    hashes = sealed(run_folder)
    evidence = {folder: _evidence(run_folder, folder, hashes) for folder in trial_folders(run_folder)}
    summary = summarise(run_folder, evidence)
    write_summary(run_folder, summary)
    return summary


def _evidence(run_folder: Path, folder: Path, hashes: Hashes) -> Evidence:
    """Write a trial's requests.parquet, and return what else its raw files say."""
    trial = read_trial(folder)
    problem = evidence_problem(run_folder, folder, hashes)
    if not problem:
        try:
            dropped = write_requests(folder, trial.variant, trial.load, trial.trial)
            return Evidence(containers=read_containers(folder), generators=read_generators(folder), dropped=dropped)
        except (UnreadablePoints, UnreadableObservation) as unreadable:
            problem = str(unreadable).replace(f"{run_folder}/", "")
    (folder / "requests.parquet").unlink(missing_ok=True)
    return Evidence(problem=problem)

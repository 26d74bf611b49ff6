"""Everything that follows from a run's raw points: delete it, call this, and it is back, with the same summary."""

from pathlib import Path

from analysis.report import write_report
from analysis.requests import UnreadablePoints, write_requests
from analysis.run_folder import read_trial, trial_folders
from analysis.summary import Summary, summarise, write_summary


def derive(run_folder: Path) -> Summary:
    """Write requests.parquet of every trial, summary.json and report.html, and return the summary.

    A trial whose points cannot be read is judged invalid with the reason; raise BadRun when run.json or a trial.json
    cannot be read.
    """
    problems: dict[Path, str] = {}
    for folder in trial_folders(run_folder):
        trial = read_trial(folder)
        try:
            write_requests(folder, trial.variant, trial.load, trial.trial)
        except UnreadablePoints as unreadable:
            (folder / "requests.parquet").unlink(missing_ok=True)
            problems[folder] = str(unreadable).replace(f"{run_folder}/", "")
    summary = summarise(run_folder, problems)
    write_summary(run_folder, summary)
    write_report(run_folder, summary)
    return summary

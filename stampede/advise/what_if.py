"""What if: the requests of a trial, served in another way, as a page."""

from pathlib import Path

from stampede.errors import WrongUse
from stampede.evaluate.metrics.waiting import Answered, read_answered
from stampede.evaluate.read.rows import opened
from stampede.predict.what_if import can_serve_otherwise
from stampede.records.folder import trial_folder
from stampede.records.run import LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary, TrialValidity
from stampede.report.html import timeline_page
from stampede.typed import option


def recorded(run_folder: Path, run: Run, variant: VariantRecord, load: LoadRecord, trial: int) -> Answered:
    """Return the answered requests of a trial. Raise WrongUse if their work would change in another way to serve."""
    if not can_serve_otherwise(variant, load):
        problem = "These requests cannot be replayed, because how long they work depends on how they are served."
        raise WrongUse(problem, hint=f"stampede advise results/{run.experiment}/latest")
    folder = trial_folder(run_folder, variant.name, load.name, trial)
    with opened([folder]) as rows:
        answered = read_answered(rows, variant.name, load.name, trial)
    if not len(answered.sent_s):
        problem = f"Trial {trial} of {variant.name} under {load.name} has no answered request."
        raise WrongUse(problem, hint=f"{option('trial', 1)}; there are {run.trials}")
    return answered


def lanes(
    run_folder: Path, run: Run, variant: VariantRecord, load: LoadRecord, trial: int, workers: int, threads: int
) -> str:
    """Return a page with the lanes of a trial as it was measured, and of the same requests served in other ways."""
    only = {"variants": [variant], "loads": [load.model_copy(update={"loop": "open"})], "claims": []}
    shown = run.model_copy(update=only | {"order": [[variant.name, load.name, str(trial)]]})
    valid = TrialValidity(variant=variant.name, load=load.name, trial=trial, verdict="valid", reasons=[])
    summary = Summary.of_nothing(run.experiment).model_copy(update={"trials": [valid]})
    asked = f"What if the requests of {variant.name}, trial {trial}, had been served in another way?"
    with opened([trial_folder(run_folder, variant.name, load.name, trial)]) as database:
        return timeline_page(database, run_folder, shown, summary, [asked], (workers, threads))

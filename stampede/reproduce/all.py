"""Measure every experiment, one after the other, and show all published figures on one page."""

from dataclasses import dataclass
from pathlib import Path

from stampede.docker.engine import default_jobs
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names
from stampede.experiment.model import Experiment
from stampede.paths import ROOT
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.records.folder import write_whole
from stampede.report.figures.drawing import svg
from stampede.reproduce.page import figures_chart, reproduction_page
from stampede.reproduce.reproduction import (
    Reproduction,
    default_run,
    read_reproduced,
    read_reproduction,
    write_reproduction,
)

REFERENCE = ROOT / "docs" / "experiments" / "reference.json"
"""What the experiments said on the machine of this lab's authors. The tables of their pages follow from it."""


@dataclass(frozen=True)
class TimedExperiment:
    """An experiment, and about how long it takes to measure it by its default settings."""

    name: str
    experiment: Experiment
    expected_s: int

    def run(self, results: Path) -> Path | None:
        """Return the latest run by default settings; None: there is none."""
        return default_run(results, self.name, list(self.experiment.variants), self.experiment.trials)


def timed_experiments() -> list[TimedExperiment]:
    """Return all experiments, the shortest first."""
    found = []
    for name in names():
        experiment = load_experiment(name)
        planned = lay_out(experiment, trials=experiment.trials, jobs=default_jobs(), seed=0)
        found.append(TimedExperiment(name, experiment, expected_s(planned)))
    return sorted(found, key=lambda timed: timed.expected_s)


def read_latest_runs(results: Path, experiments: list[TimedExperiment]) -> Reproduction:
    """Return what the latest runs by default settings say."""
    runs = [run for timed in experiments if (run := timed.run(results))]
    return Reproduction(experiments=[read_reproduced(run, results) for run in runs])


def write_page(results: Path, own: Reproduction) -> Path:
    """Write the page, beside the reference, and return it."""
    target = results / "reproduce.html"
    results.mkdir(parents=True, exist_ok=True)
    reference = read_reproduction(REFERENCE) if REFERENCE.exists() else None
    write_whole(target, reproduction_page(own, reference))
    return target


def check_target(target: Path) -> None:
    """Raise WrongUse if what the experiments say cannot be written to this file."""
    if target.suffix == ".svg" or target.is_dir():
        raise WrongUse(
            f"--to {target} cannot be the file, because the picture is written beside it.", hint="--to mine.json"
        )
    if not target.parent.is_dir():
        raise WrongUse(f"--to {target} is in a folder that does not exist.", hint=f"mkdir -p {target.parent}")


def write_reference(target: Path, own: Reproduction) -> None:
    """Write what the experiments say to a small file, and the picture beside it as SVG."""
    write_reproduction(target, own)
    machines = dict.fromkeys(", ".join(experiment.machine.split(", ")[:2]) for experiment in own.experiments)
    write_whole(target.with_suffix(".svg"), svg(figures_chart(own.experiments, " and ".join(machines))))

"""Measure every experiment, one after the other, and show all published figures on one page."""

from dataclasses import dataclass
from pathlib import Path

from analysis.reproduction import Reproduction, default_run, of_run, read_reproduction
from analysis.show import reproduction
from lab.experiment.file import load_experiment, names
from lab.experiment.model import Experiment
from lab.machine.engine import default_jobs
from lab.paths import ROOT
from lab.plan import lay_out

REFERENCE = ROOT / "docs" / "reference.json"
"""What the experiments said on the machine of this lab's authors."""


@dataclass(frozen=True)
class Known:
    """An experiment, and about how long it takes to measure it by its default settings."""

    name: str
    experiment: Experiment
    expected_s: int

    def run(self, results: Path) -> Path | None:
        """Return the latest run by default settings; None: there is none."""
        return default_run(results, self.name, list(self.experiment.variants), self.experiment.trials)


def known() -> list[Known]:
    """Return all experiments, the shortest first."""
    found = []
    for name in names():
        experiment = load_experiment(name)
        planned = lay_out(experiment, trials=experiment.trials, jobs=default_jobs(), seed=0)
        found.append(Known(name, experiment, planned.expected_s))
    return sorted(found, key=lambda one: one.expected_s)


def write_page(results: Path, experiments: list[Known]) -> tuple[Path, int]:
    """Write the page from the latest runs by default settings; return it, and how many experiments are on it."""
    runs = [run for one in experiments if (run := one.run(results))]
    own = Reproduction(experiments=[of_run(run, results) for run in runs])
    target = results / "reproduce.html"
    results.mkdir(parents=True, exist_ok=True)
    reproduction.write_page(target, own, read_reproduction(REFERENCE) if REFERENCE.exists() else None)
    return target, len(runs)

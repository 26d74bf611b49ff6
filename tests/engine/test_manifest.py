"""stampede.records.checksums: a run is sealed while it is measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.docker import leftovers
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import Progress
from stampede.experiment.file import load_experiment
from stampede.plan import Plan, lay_out
from stampede.records.checksums import changed_files, read_manifest
from stampede.records.folder import read_run, read_trial, trial_folders
from stampede.records.run import Run, TrialRecord
from stampede.run import machine_lock
from stampede.run import run as running
from stampede.run.options import MeasureOptions, RunRequest
from stampede.run.trial import batch
from tests.quick.test_manifest import CHANGED, FEW, UNTRUE, flip
from tests.synthetic import make_run, make_trial

pytestmark = pytest.mark.usefixtures("without_pictures")


def record_of(folder: Path) -> Run:
    """Return the record of a run that is still going on."""
    return read_run(folder).model_copy(update={"outcome": "running", "ended": None})


def test_a_run_is_sealed_after_each_batch_and_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed run keeps the hashes of its finished trials: what is changed before it is closed does not pass."""
    run = make_run(tmp_path / "run", {"one": FEW})
    seen: list[set[str]] = []

    def measure(_plan: Plan, folder: Path, _progress: Progress, _engines: Engines) -> Iterator[list[TrialRecord]]:
        for number in (1, 2):
            yield [read_trial(make_trial(folder, "one", number, FEW))]
            seen.append(set(read_manifest(folder)))
            flip(folder / "one" / "mix" / str(number) / "points.json.gz")

    monkeypatch.setattr(batch, "measure_plan", measure)
    monkeypatch.setattr(leftovers, "remove_leftovers", lambda _: [])
    monkeypatch.setattr(running, "build_images", lambda *_: None)
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(running, "record_of", lambda *_, **__: record_of(run))
    said: list[str] = []

    experiment = load_experiment("heavy-mix")
    request = RunRequest("made-up", experiment, MeasureOptions(), tmp_path / "results", "")
    folder, summary = running.run_plan(request, lay_out(experiment), said.append, lambda *_: None)

    first = {name for name in read_manifest(folder) if "/2/" not in name}
    assert "one/mix/1/points.json.gz" in first
    assert seen == [first, set(read_manifest(folder))]
    assert len(trial_folders(folder)) == 2
    assert [str(one) for one in changed_files(folder)] == [f"one/mix/{n}/points.json.gz: {CHANGED}" for n in (1, 2)]
    assert summary.trials[0].reasons == [UNTRUE]
    assert summary.rows == []

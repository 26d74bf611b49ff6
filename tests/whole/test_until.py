"""stampede.run.run with UNTIL=decided: rounds go on until every claim is decided or the budget is used."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.docker import leftovers
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import Progress
from stampede.experiment.file import load_experiment
from stampede.plan import Plan, lay_out
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_run, read_trial, trial_folders
from stampede.records.run import Run, TrialRecord
from stampede.records.summary import Summary
from stampede.run import machine_lock
from stampede.run import run as running
from stampede.run.options import MeasureOptions, RunRequest
from stampede.run.trial import batch
from tests.synthetic import Request, make_run, make_trial

pytestmark = pytest.mark.usefixtures("without_pictures")
WAITS = Claim(
    says="It waits", value=Quantity(variant="one", request_class="light", metric="overhead", stat="p50"), at_least=50
)


@pytest.fixture
def record(tmp_path: Path) -> Run:
    """The record of a run that is still going on, with more rounds planned than any test needs."""
    run = make_run(tmp_path / "planned", {"one": [Request()]}, claims=[WAITS], trials=100)
    order = [["one", "mix", str(number)] for number in range(1, 101)]
    return read_run(run).model_copy(update={"outcome": "running", "ended": None, "order": order})


def measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run, overheads_ms: list[float], budget_s: float | None
) -> tuple[Path, Summary, list[str]]:
    """Measure rounds in which the requests of the only variant have these overheads; the last repeats itself."""

    def round_of(plan: Plan, folder: Path, _progress: Progress, _engines: Engines) -> Iterator[list[TrialRecord]]:
        assert (folder / "predicted.json").exists(), "a run that is killed later has its predictions, too"
        for [trial, *_] in plan.batches:
            overhead_ms = overheads_ms[min(trial.number, len(overheads_ms)) - 1]
            yield [read_trial(make_trial(folder, "one", trial.number, [Request(overhead_ms=overhead_ms)] * 20))]

    monkeypatch.setattr(batch, "measure_plan", round_of)
    monkeypatch.setattr(leftovers, "remove_leftovers", lambda _: [])
    monkeypatch.setattr(running, "build_images", lambda *_: None)
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(running, "record_of", lambda *_, **__: record)
    said: list[str] = []
    experiment = load_experiment("heavy-mix")
    plan = lay_out(experiment, trials=record.trials, jobs=8)
    options = MeasureOptions() if budget_s is None else MeasureOptions(until="decided", budget=f"{budget_s:.0f}s")
    request = RunRequest("made-up", experiment, options, tmp_path / "results", "")
    folder, summary = running.run_plan(request, plan, said.append, lambda *_: None)
    return folder, summary, [one for one in said if not one.startswith("one (mix, trial ")]


def test_rounds_that_agree_decide_at_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run
) -> None:
    folder, summary, said = measure(tmp_path, monkeypatch, record, [60], 3600)

    assert said == ["1 of 1 claims are decided after 5 rounds."]
    assert [claim.verdict for claim in summary.claims] == ["reproduced"]
    run = read_run(folder)
    assert (run.until_decided, run.trials, run.outcome) == (True, 5, "completed")
    assert run.order == [["one", "mix", str(number)] for number in range(1, 6)]
    assert len(trial_folders(folder)) == 5
    assert summary.validity.verdict == "valid"


def test_rounds_go_on_while_a_claim_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run) -> None:
    folder, summary, said = measure(tmp_path, monkeypatch, record, [60, 40, 60], 3600)

    assert said[0] == "0 of 1 claims are decided after 5 rounds."
    assert said[-1] == f"1 of 1 claims are decided after {len(said) + 4} rounds."
    assert len(said) > 2
    assert [claim.verdict for claim in summary.claims] == ["reproduced"]
    assert read_run(folder).trials == len(trial_folders(folder)) == len(said) + 4


def test_rounds_end_if_only_more_cores_could_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run
) -> None:
    claims = [one.model_copy(update={"cores": 4096}) for one in record.claims]
    _, summary, said = measure(tmp_path, monkeypatch, record.model_copy(update={"claims": claims}), [60], 3600)

    assert said == ["0 of 1 claims are decided after 5 rounds; 1 cannot be decided for want of cores."]
    assert [claim.verdict for claim in summary.claims] == ["undecided"]


def test_the_budget_ends_the_rounds_and_nothing_is_decided_too_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run
) -> None:
    _, summary, said = measure(tmp_path, monkeypatch, record, [60], 0)

    assert said == ["Another round would exceed the budget of 0 min. A larger budget: --budget 1m"]
    assert [(claim.verdict, claim.measured) for claim in summary.claims] == [("undecided", 60)]


def test_without_a_budget_all_rounds_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run) -> None:
    folder, _, said = measure(tmp_path, monkeypatch, record.model_copy(update={"trials": 7}), [60], None)

    assert said == []
    assert len(trial_folders(folder)) == 7
    assert not read_run(folder).until_decided


def test_an_interrupted_run_lacks_only_the_trials_of_its_last_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Run
) -> None:
    def interrupted(plan: Plan, folder: Path, _progress: Progress, _engines: Engines) -> Iterator[list[TrialRecord]]:
        for [trial, *_] in plan.batches:
            if trial.number == 3:
                raise KeyboardInterrupt
            yield [read_trial(make_trial(folder, "one", trial.number, [Request()]))]

    monkeypatch.setattr(batch, "measure_plan", interrupted)
    monkeypatch.setattr(leftovers, "remove_leftovers", lambda _: [])
    monkeypatch.setattr(running, "build_images", lambda *_: None)
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(running, "record_of", lambda *_, **__: record)
    experiment = load_experiment("heavy-mix")

    with pytest.raises(KeyboardInterrupt):
        running.run_plan(
            RunRequest("made-up", experiment, MeasureOptions(until="decided"), tmp_path / "results", ""),
            lay_out(experiment, trials=100, jobs=8), lambda _: None, lambda *_: None,
        )  # fmt: skip

    [latest] = (tmp_path / "results" / "made-up").glob("2*")
    assert (read_run(latest).outcome, read_run(latest).trials) == ("interrupted", 3)
    assert len(read_run(latest).order) == 3

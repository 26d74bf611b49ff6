"""stampede.run.run without containers: until when rounds are measured, what is sealed when, and what errors tell."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stampede.docker import leftovers
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import Progress
from stampede.errors import LabError
from stampede.experiment.file import load_experiment
from stampede.plan import Plan, lay_out
from stampede.records.checksums import changed_files, read_manifest
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_run, read_trial, trial_folders
from stampede.records.run import TrialRecord
from stampede.records.summary import Summary
from stampede.run import run as running
from stampede.run.options import MeasureOptions, RunRequest
from stampede.run.trial import batch
from tests.quick.test_manifest import CHANGED, UNTRUE, flip
from tests.synthetic import Request, make_run, make_trial

pytestmark = pytest.mark.usefixtures("without_pictures")
WAITS = Claim(
    says="It waits", value=Quantity(variant="one", request_class="light", metric="overhead", stat="p50"), at_least=50
)
Trials = Iterator[list[TrialRecord]]


def trial(folder: Path, number: int, overhead_ms: float = 0) -> list[TrialRecord]:
    return [read_trial(make_trial(folder, "one", number, [Request(overhead_ms=overhead_ms)] * 20))]


class Runs:
    """Runs whose trials are written and not measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch, self.results = monkeypatch, folder / "data-of-dolores" / "results"
        run = make_run(folder / "planned", {"one": [Request()]}, claims=[WAITS], trials=100)
        order = [["one", "mix", str(number)] for number in range(1, 101)]
        self.record = read_run(run).model_copy(update={"outcome": "running", "ended": None, "order": order})
        self.said: list[str] = []
        monkeypatch.setattr(leftovers, "remove_leftovers", lambda _: [])
        monkeypatch.setattr(running, "build_images", lambda *_: None)
        monkeypatch.setattr(running, "record_of", lambda *_, **__: self.record)

    def run(self, batches: Callable[[Plan, Path], Trials], budget_s: float | None = None) -> tuple[Path, Summary]:
        """Measure a run whose batches are given."""

        def measure(plan: Plan, folder: Path, _progress: Progress, _engines: Engines) -> Trials:
            assert (folder / "predicted.json").exists(), "a run that is killed later has its predictions, too"
            yield from batches(plan, folder)

        self._monkeypatch.setattr(batch, "measure_plan", measure)
        experiment = load_experiment("heavy-mix")
        plan = lay_out(experiment, trials=self.record.trials, jobs=8)
        options = MeasureOptions() if budget_s is None else MeasureOptions(until="decided", budget=f"{budget_s:.0f}s")
        request = RunRequest("made-up", experiment, options, self.results, "")
        measured = running.run_plan(request, plan, self.said.append, lambda *_: None)
        self.said = [one for one in self.said if not one.startswith("one (mix, trial ")]
        return measured

    def rounds(self, overheads_ms: list[float], budget_s: float | None = 3600) -> tuple[Path, Summary]:
        """Measure rounds in which the requests have these overheads; the last repeats itself."""
        return self.run(
            lambda plan, folder: (
                trial(folder, one.number, overheads_ms[min(one.number, len(overheads_ms)) - 1])
                for [one, *_] in plan.batches
            ),
            budget_s,
        )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """What measures runs that need no containers."""
    return Runs(monkeypatch, tmp_path)


def test_rounds_that_agree_decide_at_the_first_look(runs: Runs) -> None:
    folder, summary = runs.rounds([60])

    assert runs.said == ["1 of 1 claims are decided after 5 rounds."]
    assert [claim.verdict for claim in summary.claims] == ["reproduced"]
    run = read_run(folder)
    assert (run.until_decided, run.trials, run.outcome) == (True, 5, "completed")
    assert run.order == [["one", "mix", str(number)] for number in range(1, 6)]
    assert len(trial_folders(folder)) == 5
    assert summary.validity.verdict == "valid"


def test_rounds_go_on_while_a_claim_is_undecided(runs: Runs) -> None:
    folder, summary = runs.rounds([60, 40, 60])

    assert runs.said[0] == "0 of 1 claims are decided after 5 rounds."
    assert runs.said[-1] == f"1 of 1 claims are decided after {len(runs.said) + 4} rounds."
    assert len(runs.said) > 2
    assert [claim.verdict for claim in summary.claims] == ["reproduced"]
    assert read_run(folder).trials == len(trial_folders(folder)) == len(runs.said) + 4


def test_rounds_end_if_only_more_cores_could_decide(runs: Runs) -> None:
    claims = [one.model_copy(update={"cores": 4096}) for one in runs.record.claims]
    runs.record = runs.record.model_copy(update={"claims": claims})
    _, summary = runs.rounds([60])

    assert runs.said == ["0 of 1 claims are decided after 5 rounds; 1 cannot be decided for want of cores."]
    assert [claim.verdict for claim in summary.claims] == ["undecided"]


def test_the_budget_ends_the_rounds_and_nothing_is_decided_too_early(runs: Runs) -> None:
    _, summary = runs.rounds([60], budget_s=0)

    assert runs.said == ["Another round would exceed the budget of 0 min. A larger budget: --budget 1m"]
    assert [(claim.verdict, claim.measured) for claim in summary.claims] == [("undecided", 60)]


def test_without_a_budget_all_rounds_are_measured(runs: Runs) -> None:
    runs.record = runs.record.model_copy(update={"trials": 7})
    folder, _ = runs.rounds([60], budget_s=None)

    assert runs.said == []
    assert len(trial_folders(folder)) == 7
    assert not read_run(folder).until_decided


def test_an_interrupted_run_lacks_only_the_trials_of_its_last_round(runs: Runs) -> None:
    def interrupted(plan: Plan, folder: Path) -> Trials:
        for [one, *_] in plan.batches:
            if one.number == 3:
                raise KeyboardInterrupt
            yield trial(folder, one.number)

    with pytest.raises(KeyboardInterrupt):
        runs.run(interrupted, budget_s=3600)

    [latest] = (runs.results / "made-up").glob("2*")
    assert (read_run(latest).outcome, read_run(latest).trials) == ("interrupted", 3)
    assert len(read_run(latest).order) == 3


def test_a_run_that_fails_says_where_on_the_terminal_alone(runs: Runs) -> None:
    """The error that the user sees has the true path, run.json and what is derived from it have a word."""
    problem = f"There is no room left for results in {runs.results}."

    def failing(_plan: Plan, _folder: Path) -> Trials:
        yield []
        raise LabError(problem)

    with pytest.raises(LabError) as caught:
        runs.run(failing)

    assert caught.value.message == problem
    [folder] = {path.resolve() for path in (runs.results / "made-up").iterdir()}
    assert read_run(folder).reason == "There is no room left for results in $RESULTS."
    assert [path for path in folder.rglob("*") if path.is_file() and b"dolores" in path.read_bytes()] == []


def test_a_run_is_sealed_after_each_batch_and_when_it_ends(runs: Runs) -> None:
    """A killed run keeps the hashes of its finished trials: what is changed before it is closed does not pass."""
    seen: list[set[str]] = []

    def flipping(_: Plan, folder: Path) -> Trials:
        for number in (1, 2):
            yield trial(folder, number)
            seen.append(set(read_manifest(folder)))
            flip(folder / "one" / "mix" / str(number) / "points.json.gz")

    folder, summary = runs.run(flipping)

    first = {name for name in read_manifest(folder) if "/2/" not in name}
    assert "one/mix/1/points.json.gz" in first
    assert seen == [first, set(read_manifest(folder))]
    assert len(trial_folders(folder)) == 2
    assert [str(one) for one in changed_files(folder)] == [f"one/mix/{n}/points.json.gz: {CHANGED}" for n in (1, 2)]
    assert summary.trials[0].reasons == [UNTRUE]
    assert summary.rows == []

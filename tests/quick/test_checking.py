"""stampede.run.trial.batch.check: somebody's own application is started and asked once before anything is measured."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from stampede.docker.cluster.engines import Engines
from stampede.errors import LabError
from stampede.plan import Plan
from stampede.records.run import TODAY
from stampede.run.trial import batch


class Started:
    """A stack that starts nothing, and notes what is done with it. ``does`` is what its check does."""

    def __init__(self, does: Callable[["Started"], str], folder: Path) -> None:
        self._does = does
        self.steps: list[str] = []
        self.outcome, self.composed, self.gone = "measured", ["composed"], False
        self.part = folder / ".1.part"
        self.part.mkdir()

    def start(self) -> None:
        """Note it."""
        self.steps.append("up")

    def abort_start(self) -> None:
        """Note it."""
        self.steps.append("abort_start")

    def check(self, say: Callable[[str], None]) -> None:
        """Note it, and do it."""
        self.steps.append("check")
        say(self._does(self))

    def collect(self) -> None:
        """Note it."""
        self.steps.append("collect")

    def remove(self) -> None:
        """Note it."""
        self.steps.append("down")
        self.gone = True

    def save(self, *_: object) -> None:
        """Note it."""
        self.steps.append("save")

    def interrupt(self) -> None:
        """Note it."""
        self.outcome = "interrupted"


def fail(stack: Started) -> str:
    stack.outcome = "failed"
    raise LabError("GET /total is answered with status 500.")


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """The stacks that are started."""
    found: list[Started] = []
    monkeypatch.setattr(batch, "end_with_servers", lambda *_: nullcontext())
    return found


def check(
    monkeypatch: pytest.MonkeyPatch, stacks: list[Started], folder: Path, does: Callable[[Started], str],
    names: tuple[str, ...] = ("limit-2x2", TODAY, TODAY),
) -> list[str]:  # fmt: skip
    """Check a plan that has variants with these names, and return what is said."""
    said: list[str] = []

    class Own(Started):
        def __init__(self, trial: SimpleNamespace, *_: object) -> None:
            assert trial.variant_name == TODAY
            super().__init__(does, folder)
            stacks.append(self)

    monkeypatch.setattr(batch, "TrialContainers", Own)
    monkeypatch.setattr(batch, "ask_for_each_class", Started.check)
    trials = [SimpleNamespace(variant=SimpleNamespace(workload=object()), variant_name=name) for name in names]
    batch.check(cast("Plan", SimpleNamespace(trials=trials)), folder, lambda *_: None, Engines(), said.append)
    return said


def test_an_application_that_answers_is_started_once_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, stacks: list[Started], tmp_path: Path
) -> None:
    """However many trials the run has, and wherever today's way is in their order."""
    assert check(monkeypatch, stacks, tmp_path, lambda _: "a redirect") == ["a redirect"]

    [stack] = stacks
    assert stack.steps == ["up", "check", "down"]
    assert list(tmp_path.iterdir()) == []


def test_an_application_that_fails_stops_the_run_and_its_record_is_kept(
    monkeypatch: pytest.MonkeyPatch, stacks: list[Started], tmp_path: Path
) -> None:
    with pytest.raises(LabError, match="status 500"):
        check(monkeypatch, stacks, tmp_path, fail)

    [stack] = stacks
    assert stack.steps == ["up", "check", "collect", "down", "save"]


def test_an_experiment_of_the_lab_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, stacks: list[Started], tmp_path: Path
) -> None:
    assert check(monkeypatch, stacks, tmp_path, fail, ("one-process",)) == []
    assert stacks == []

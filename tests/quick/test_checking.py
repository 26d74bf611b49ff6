"""stampede.run.trial.batch.check: somebody's own application is started and asked once before anything is measured."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from stampede.docker.cluster.engines import Engines
from stampede.errors import LabError
from stampede.plan import Plan, timing
from stampede.records.run import TODAY
from stampede.run.trial import batch
from stampede.run.trial.compose import Composed
from stampede.run.trial.trial import Trial

Does = Callable[[Trial, Callable[[str], None]], None]


class Checks:
    """Checks of applications without containers, which note their steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.steps: list[str] = []
        self.does: Does = lambda _, __: None
        for name in ("start", "collect", "_there"):
            monkeypatch.setattr(Trial, name, self._step(name))
        monkeypatch.setattr(Trial, "save", lambda trial, *_: self.steps.append(f"save {trial.planned.variant_name}"))
        monkeypatch.setattr(batch, "ask_for_each_class", self._ask)
        monkeypatch.setattr(batch, "remove_projects", self._remove)
        monkeypatch.setattr(timing, "up_s", lambda _: 1.0)
        monkeypatch.setattr(timing, "down_s", lambda _: 1.0)

    def _step(self, name: str) -> Callable[[Trial], Awaitable[list[object]]]:
        async def step(trial: Trial) -> list[object]:
            self.steps.append(name)
            if name == "start":
                trial.part.mkdir(parents=True)
                trial.composed = [cast("Composed", "one")]
            return []

        return step

    async def _ask(self, trial: Trial, say: Callable[[str], None]) -> None:
        self.steps.append("check")
        self.does(trial, say)

    async def _remove(self, *_: object) -> set[str]:
        self.steps.append("remove")
        return set()

    def check(self, *names: str) -> list[str]:
        """Check a plan that has variants with these names, and return what is said."""
        said: list[str] = []
        variant = SimpleNamespace(workload=object(), service="gunicorn")
        trials = [
            SimpleNamespace(variant=variant, variant_name=name, load_name="own", number=number)
            for number, name in enumerate(names or ("limit-2x2", TODAY, TODAY), start=1)
        ]
        plan = cast("Plan", SimpleNamespace(trials=trials))
        batch.check(plan, self.folder / "mine" / "run", lambda *_: None, Engines(()), said.append)
        return said


def fail(trial: Trial, _: object) -> None:
    trial.fail("GET /total is answered with status 500")
    raise LabError("GET /total is answered with status 500.")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Checks:
    """What checks applications that need no containers."""
    return Checks(monkeypatch, tmp_path)


def test_an_application_that_answers_is_started_once_and_leaves_nothing(checks: Checks, tmp_path: Path) -> None:
    """However many trials the run has, and wherever today's way is in their order."""
    checks.does = lambda _, say: say("a redirect")

    assert checks.check() == ["a redirect"]

    assert checks.steps == ["start", "check", "remove"]
    assert [path for path in tmp_path.rglob("*") if path.name.endswith(".part")] == []


def test_an_application_that_fails_stops_the_run_and_its_record_is_kept(checks: Checks) -> None:
    checks.does = fail

    with pytest.raises(LabError, match="status 500"):
        checks.check()

    assert checks.steps == ["start", "check", "_there", "collect", f"save {TODAY}", "remove"]


def test_an_experiment_of_the_lab_is_not_checked(checks: Checks) -> None:
    checks.does = fail

    assert checks.check("one-process") == []
    assert checks.steps == []

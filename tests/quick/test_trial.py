"""lab.trial: what becomes of the trials of a batch when some of them fail."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from lab import interruption
from lab.engine.cluster.engines import Engines
from lab.engine.machine_usage import Progress, Quiet
from lab.experiment.model import Durations, Load
from lab.interruption import interrupt
from lab.plan import PlannedTrial
from lab.servers.gunicorn import GunicornSync
from lab.trial import batch
from lab.trial.compose import Composed
from lab.trial.containers import Phase, TrialContainers


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Heed SIGINT as the command line does."""
    previous = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, previous)
    interruption._signals.clear()


def saved_after(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    up: Callable[[TrialContainers], None],
    settle: Callable[[Progress], Quiet],
) -> list[str]:
    """Interrupt a batch of two trials without containers, and return how each trial was saved."""
    saved: list[str] = []

    def save(stack: TrialContainers, *_: object) -> None:
        saved.append(f"{stack.planned.variant_name} {stack.outcome}: {(stack.reason or '').split(' at 2')[0]}")

    def started(stack: TrialContainers) -> None:
        stack.composed = [cast("Composed", "one")]
        up(stack)
        stack.phase = Phase.STARTED  # as at the end of TrialContainers.start, whatever happened

    monkeypatch.setattr(TrialContainers, "start", started)
    monkeypatch.setattr(TrialContainers, "observe_before", lambda _: None)
    monkeypatch.setattr(TrialContainers, "collect", lambda _: None)
    monkeypatch.setattr(TrialContainers, "remove", lambda stack: setattr(stack, "gone", True))
    monkeypatch.setattr(TrialContainers, "save", save)
    monkeypatch.setattr(Engines, "settle", lambda _, progress: settle(progress))
    monkeypatch.setattr(batch, "_is_worth_keeping", lambda _: True)
    users = {"users": 1, "delay_min_s": 0, "delay_max_s": 0, "pause_s": 0}
    load = Load(script="users.js", duration=Durations(short="1s", full="1s"), settings=users)
    variant = GunicornSync(server="gunicorn-sync", workers=2)
    trials = tuple(PlannedTrial(name, variant, "users", load, "1s", 1) for name in ("one", "two"))
    with pytest.raises(KeyboardInterrupt):
        batch._measure_batch(trials, folder, lambda *_: None, Engines())
    return saved


def test_an_interrupt_keeps_the_reason_of_a_trial_that_failed_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def up(stack: TrialContainers) -> None:
        if stack.planned.variant_name == "one":
            stack.fail("the servers did not become healthy: no memory")

    def settle(_: Progress) -> Quiet:
        signal.raise_signal(signal.SIGINT)
        return Quiet(waited_s=0, busy=0)

    assert saved_after(monkeypatch, tmp_path, up, settle) == [
        "one failed: the servers did not become healthy: no memory",
        "two interrupted: interrupted",
    ]


def test_a_failure_after_an_interrupt_is_the_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C in a terminal ends the engine's clients, too."""

    def up(stack: TrialContainers) -> None:
        cast("list[int]", stack.stop_signals).append(signal.SIGINT)
        stack.fail("the servers did not become healthy: signal: interrupt")

    assert saved_after(monkeypatch, tmp_path, up, lambda _: Quiet(waited_s=0, busy=0)) == [
        "one interrupted: interrupted",
        "two interrupted: interrupted",
    ]

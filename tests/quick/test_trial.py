"""stampede.run.trial: what becomes of the trials of a batch when some of them fail."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stampede import interruption
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import Progress, Quiet
from stampede.experiment.model import Durations, Load
from stampede.interruption import interrupt
from stampede.plan import PlannedTrial
from stampede.run.trial import batch
from stampede.run.trial.compose import Composed
from stampede.run.trial.containers import Phase, TrialContainers
from stampede.run.trial.replacing import replace_workers, restart_replicas
from stampede.servers.gunicorn import GunicornSync


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
    load = Load(classes={"user": {"users": 1}}, duration=Durations(short="1s", full="1s"))
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


def trial_with(folder: Path, name: str, hup_after_s: float, **settings: float) -> TrialContainers:
    """Return a trial whose server gets HUP so many seconds after the load begins."""
    load = Load(classes={"user": {"users": 1}}, duration=Durations(short="1s", full="1s"))
    variant = GunicornSync(server="gunicorn-sync", workers=2, replicas=2, hup_after_s=hup_after_s, **settings)
    return TrialContainers(PlannedTrial(name, variant, "users", load, "1s", 1), folder, 1, Engines())


class Slow(str):
    """A text that takes a while to be compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        time.sleep(0.2)
        return str.__eq__(self, other)


def test_only_the_first_of_two_reasons_at_the_same_time_counts(tmp_path: Path) -> None:
    trial = trial_with(tmp_path, "one", 0)
    trial.outcome = cast("Any", Slow("measured"))
    threads = [threading.Thread(target=trial.fail, args=(reason,)) for reason in ("first", "second")]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()

    assert (trial.outcome, trial.reason) == ("failed", "first")


def test_servers_are_reloaded_during_the_load_and_not_after_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reloaded: list[str] = []
    was_reloaded = threading.Event()

    def reload(trial: TrialContainers) -> None:
        reloaded.append(trial.planned.variant_name)
        was_reloaded.set()

    monkeypatch.setattr(TrialContainers, "reload", reload)
    trials = [trial_with(tmp_path, name, after_s) for name, after_s in (("never", 0), ("soon", 0.01), ("late", 3600))]

    with replace_workers(trials):
        assert was_reloaded.wait(timeout=60)

    assert reloaded == ["soon"]


@pytest.mark.parametrize(
    ("pre_stop_s", "phase", "done"),
    [
        (0, Phase.LOADING, ["SIGTERM one", "nginx: two", "wait for one", "nginx: one two",
                            "SIGTERM two", "nginx: one", "wait for two", "nginx: one two"]),
        (2, Phase.LOADING, ["nginx: two", "SIGTERM one", "wait for one", "nginx: one two",
                            "nginx: one", "SIGTERM two", "wait for two", "nginx: one two"]),
        (0, Phase.LOADED, []),
    ],
)  # fmt: skip
def test_replicas_are_restarted_one_after_another_and_nginx_learns_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pre_stop_s: float, phase: Phase, done: list[str]
) -> None:
    said: list[str] = []

    def container(name: str, service: str) -> Any:  # stands in for a ContainerInfo
        def execute(command: list[str]) -> str:
            words = " ".join(command)
            if command[0] == "env":
                said.append("nginx: " + command[1].removeprefix("LAB_UPSTREAM=").replace(":8000", ""))
            elif "kill -TERM" in words:
                said.append(f"SIGTERM {name}")
            elif command[0] == "timeout":
                said.append(f"wait for {name}")
            return f"{name} fd00::2"

        return SimpleNamespace(id=name, service=service, execute=execute)

    monkeypatch.setattr("stampede.run.trial.replacing.NGINX_LEARNS_AFTER_S", 0.02)
    trial = trial_with(tmp_path, "one", 0, term_after_s=1)
    trial.containers = [container("one", "gunicorn"), container("two", "gunicorn"), container("balancer", "nginx")]
    trial.phase = phase

    restart_replicas(trial, pre_stop_s / 50, Event())

    assert said == done


def test_a_restart_that_pauses_ends_with_the_load(tmp_path: Path) -> None:
    """Nothing is said to the server or to nginx, and nobody waits for the rest of the pause."""
    over, executed = Event(), list[list[str]]()

    def execute(command: list[str]) -> str:
        executed.append(command)
        over.set()
        return "one"

    trial = trial_with(tmp_path, "one", 0, term_after_s=1)
    trial.containers = [
        cast("Any", SimpleNamespace(id=name, service=name, execute=execute)) for name in ("gunicorn", "nginx")
    ]
    trial.phase = Phase.LOADING

    restart_replicas(trial, 5, over)

    assert executed == [["hostname", "-i"]]


@pytest.mark.parametrize(("phase", "got"), [(Phase.LOADING, [("server", "HUP")]), (Phase.LOADED, [])])
def test_only_the_servers_get_hup_and_only_while_requests_come(
    tmp_path: Path, phase: Phase, got: list[tuple[str, str]]
) -> None:
    told: list[tuple[str, str]] = []
    kill = SimpleNamespace(kill=lambda container, signal: told.append((container, signal)))
    machine = SimpleNamespace(client=SimpleNamespace(container=kill))
    trial = trial_with(tmp_path, "one", 1)
    services = {"server": "gunicorn", "balancer": "nginx", "load": "k6"}
    trial.containers = cast(
        "Any", [SimpleNamespace(id=one, service=of, machine=machine) for one, of in services.items()]
    )
    trial.phase = phase

    trial.reload()

    assert told == got

"""stampede.interruption, and how the runner uses it: nobody is interrupted in the middle of what has to be finished."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from python_on_whales.exceptions import DockerException

from stampede import interruption
from stampede.cli import reading as reporting
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import Progress, Quiet
from stampede.experiment.model import Durations, Load
from stampede.interruption import interrupt, uninterrupted
from stampede.paths import ROOT
from stampede.plan import PlannedTrial
from stampede.run.trial import batch, containers
from stampede.run.trial.batch import BatchStep, _do, _load, _measure_batch
from stampede.run.trial.compose import Composed
from stampede.run.trial.containers import TrialContainers
from stampede.servers.gunicorn import GunicornSync
from tests.conftest import PATIENCE_S
from tests.synthetic import Request, make_run

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STACKS = cast("list[TrialContainers]", ["one", "two"])


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Heed signals as the command line does."""
    previous = {one: signal.signal(one, interrupt) for one in STOPS}
    yield
    for one, handler in previous.items():
        signal.signal(one, handler)
    interruption._signals.clear()


def together(
    step: Callable[[TrialContainers], None], stop: Callable[[TrialContainers], None] | None = None, asked: int = 0
) -> None:
    """Do a step for two stacks as the runner does, where nothing else raises KeyboardInterrupt."""
    with uninterrupted() as signals:
        try:
            signals.extend([asked] * bool(asked))
            _do(BatchStep(step, "a step", 1, stop), STACKS, lambda *_: None, signals)
        finally:
            signals.clear()


@pytest.mark.parametrize("which", STOPS)
def test_what_has_begun_is_finished_before_an_interrupt_is_heeded(which: signal.Signals) -> None:
    seen: list[int] = []

    def work() -> None:
        with uninterrupted() as asked:
            signal.raise_signal(which)
            seen.extend(asked)

    with pytest.raises(KeyboardInterrupt):
        work()

    assert seen == [which]


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        (signal.SIGINT, "stopped by the user"),
        (signal.SIGTERM, "stopped by the user"),
        (signal.SIGHUP, "its terminal was closed, or its parent process ended"),
    ],
)
def test_who_stopped_the_lab_is_told_by_the_signal(which: signal.Signals, reason: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(which)

    assert interruption.stop_reason() == reason


HEEDING = """
import signal, sys, threading
from stampede.interruption import heed_signals, interrupt
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
heed_signals()
print(signal.getsignal(signal.SIGHUP) is interrupt, threading.active_count())
"""


@pytest.mark.parametrize(("hang_ups", "heeds"), [("SIG_DFL", "True 2"), ("SIG_IGN", "False 1")])
def test_under_nohup_neither_a_terminal_nor_a_parent_stops_the_lab(hang_ups: str, heeds: str) -> None:
    """Nohup ignores SIGHUP. Without it, a thread looks whether the parent process is there."""
    done = subprocess.run(
        [sys.executable, "-c", HEEDING, hang_ups], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == heeds


TALKING = """
import os, signal, sys
from stampede.plan import Plan
from stampede.run.progress import Expected, showing_progress
from stampede.terminal import say
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with showing_progress(Expected(Plan((), 1, 0), [])) as shown:
    shown.progress("load", 1, 2)
    os.write(1, b"shown\\n")  # print would go to the terminal
    sys.stdin.read()
    shown.progress("load", 2, 2)
    say("What was measured is kept.")
say("Interrupted.")
print("cleaned up", flush=True)
"""


def test_a_closed_terminal_does_not_keep_the_lab_from_cleaning_up() -> None:
    """What is said to nobody is no error, neither while a status is shown nor afterwards."""
    terminal, its_end = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", TALKING], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=its_end, env=os.environ | {"TERM": "xterm"},
    ) as talking:  # fmt: skip
        os.close(its_end)
        assert talking.stdout
        assert talking.stdout.readline() == "shown\n"
        os.close(terminal)
        said, _ = talking.communicate(timeout=60)

    assert said == "cleaned up\n"


def test_without_an_interrupt_nothing_is_raised_and_the_next_one_is_heeded_at_once() -> None:
    with uninterrupted() as asked:
        pass

    assert asked == []
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_block_inside_another_leaves_the_interrupt_to_the_outer_block() -> None:
    """Also if the inner block fails."""
    done = []

    def work() -> None:
        with uninterrupted() as outer:
            with suppress(ValueError), uninterrupted():
                signal.raise_signal(signal.SIGTERM)
                raise ValueError
            done.append([*outer])
            with uninterrupted() as inner:
                signal.raise_signal(signal.SIGINT)
            done.append([*outer])
            done.append([*inner])

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [[signal.SIGTERM], [signal.SIGTERM, signal.SIGINT], [signal.SIGINT]]


def test_a_block_that_ends_before_a_later_one_does_not_end_that_one() -> None:
    """As blocks of two threads do."""
    first, second = uninterrupted(), uninterrupted()
    first.__enter__()
    asked = second.__enter__()
    first.__exit__(None, None, None)
    signal.raise_signal(signal.SIGINT)

    assert asked == [signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        second.__exit__(None, None, None)


def test_an_interrupt_ends_a_step_early_where_there_is_a_way_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as the runner begins to wait; raised inside of ``wait`` it could leave locks taken for ever."""
    told: list[Any] = []
    ended = {"one": threading.Event(), "two": threading.Event()}

    def interrupted_wait(*arguments: Any, **settings: Any) -> Any:
        if not told:
            told.append("interrupted")
            signal.raise_signal(signal.SIGINT)
            told.append("went on")
        return wait(*arguments, **settings)

    def step(stack: TrialContainers) -> None:
        told.append((stack, ended[str(stack)].wait(timeout=60)))

    def stop(stack: TrialContainers) -> None:
        ended[str(stack)].set()

    monkeypatch.setattr(batch, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        together(step, stop)

    assert told[:2] == ["interrupted", "went on"]
    assert sorted(told[2:]) == [("one", True), ("two", True)]


def test_an_interrupt_is_heeded_after_a_step_that_cannot_be_stopped() -> None:
    through: list[str] = []

    def step(stack: TrialContainers) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        through.append(str(stack))

    with pytest.raises(KeyboardInterrupt):
        together(step)

    assert sorted(through) == ["one", "two"]


def test_a_step_does_not_begin_when_somebody_has_asked_to_stop() -> None:
    through: list[str] = []

    with pytest.raises(KeyboardInterrupt):
        together(lambda stack: through.append(str(stack)), asked=signal.SIGINT)

    assert through == []


def test_a_step_that_can_be_stopped_begins_and_is_stopped() -> None:
    """Load generators that have started are to end in good order."""
    through: list[str] = []

    with pytest.raises(KeyboardInterrupt):
        together(
            lambda stack: through.append(f"load {stack}"), lambda stack: through.append(f"stop {stack}"), signal.SIGINT
        )

    assert sorted(through) == ["load one", "load two", "stop one", "stop two"]


def test_an_interrupt_names_the_unexpected_error_that_it_hides() -> None:
    def step(_: TrialContainers) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        raise ValueError("unexpected")

    with pytest.raises(KeyboardInterrupt) as caught:
        together(step)

    assert str(caught.value.__cause__) == "unexpected"


def test_what_is_done_last_is_done_although_somebody_asked_to_stop() -> None:
    through: list[str] = []

    with uninterrupted() as asked:
        signal.raise_signal(signal.SIGINT)
        _do(BatchStep(lambda stack: through.append(str(stack)), "a step", 1), STACKS, lambda *_: None)
        assert asked.pop() == signal.SIGINT

    assert sorted(through) == ["one", "two"]


def test_an_unexpected_error_is_raised_when_all_are_through() -> None:
    failed = threading.Event()
    through: list[str] = []

    def step(stack: TrialContainers) -> None:
        if str(stack) == "one":
            failed.set()
            raise ValueError("unexpected")
        failed.wait(timeout=60)
        through.append(str(stack))

    with pytest.raises(ValueError, match="unexpected"):
        together(step)

    assert through == ["two"]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the runner does with the stack of a batch that needs no containers, step by step."""
    taken: list[str] = []

    def start(stack: TrialContainers) -> None:
        stack.composed = [cast("Composed", "one")]
        taken.append("up")

    def remove(stack: TrialContainers) -> None:
        stack.gone = True
        taken.append("down")

    def save(stack: TrialContainers, *_: object) -> None:
        taken.append(f"saved, {stack.outcome}: {(stack.reason or '').split(' at ')[0]}")

    for step in (start, remove, save):
        monkeypatch.setattr(TrialContainers, step.__name__, step)
    monkeypatch.setattr(TrialContainers, "observe_before", lambda _: taken.append("look before"))
    monkeypatch.setattr(TrialContainers, "collect", lambda _: taken.append("collect"))
    monkeypatch.setattr(Engines, "settle", lambda *_: Quiet(waited_s=0, busy=0))
    monkeypatch.setattr(batch, "_load", lambda *_: taken.append("load"))
    monkeypatch.setattr(batch, "_is_worth_keeping", lambda _: True)
    return taken


def measure(folder: Path) -> None:
    """Measure a batch of one trial."""
    load = Load(classes={"user": {"users": 1}}, duration=Durations(short="1s", full="1s"))
    trial = PlannedTrial("some", GunicornSync(server="gunicorn-sync", workers=2), "users", load, "1s", 1)
    _measure_batch((trial,), folder, lambda *_: None, Engines())


def test_a_batch_is_measured_and_cleaned_up(tmp_path: Path, steps: list[str]) -> None:
    measure(tmp_path)

    assert steps == ["up", "look before", "load", "collect", "down", "saved, measured: "]


def test_an_interrupt_while_the_machine_settles_lets_no_load_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str]
) -> None:
    """Not even one that is ended at once: what starts up may have made a file of points."""

    def interrupted(_: Engines, __: Progress) -> Quiet:
        signal.raise_signal(signal.SIGINT)
        return Quiet(waited_s=0, busy=0)

    started: list[float] = []
    monkeypatch.setattr(Engines, "settle", interrupted)
    monkeypatch.setattr(batch, "_load", _load)
    monkeypatch.setattr(TrialContainers, "start_load", lambda _, at, **__: started.append(at))

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path)

    assert started == []
    assert steps == ["up", "look before", "collect", "down", "saved, interrupted: interrupted"]


def test_an_interrupt_while_a_busy_machine_settles_is_heeded_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str]
) -> None:
    def interrupted(_: Engines, progress: Progress) -> Quiet:
        signal.raise_signal(signal.SIGTERM)
        progress("waiting until the machine is quiet", 0.4, 10)
        steps.append("settled")
        return Quiet(waited_s=10, busy=1)

    monkeypatch.setattr(Engines, "settle", interrupted)

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path)

    assert steps == ["up", "look before", "collect", "down", "saved, interrupted: interrupted"]


def test_an_interrupt_that_ends_the_engines_clients_is_no_failure_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str]
) -> None:
    def ended(stack: TrialContainers) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        stack.fail("the container engine stopped answering: signal: interrupt")

    monkeypatch.setattr(TrialContainers, "collect", ended)

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path)

    assert steps == ["up", "look before", "load", "down", "saved, interrupted: interrupted"]


def test_an_interrupt_that_is_noted_after_it_ended_the_engines_clients_is_no_failure_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str]
) -> None:
    """On a busy machine, a thread may see that Docker's command has ended before the main thread notes the signal."""

    def ended(stack: TrialContainers) -> None:
        main = threading.main_thread().ident or 0
        threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        stack.fail("the container engine stopped answering", DockerException(["docker", "wait"], 130))

    def load(trials: list[TrialContainers], progress: Progress, stop_signals: list[int], _: Engines) -> None:
        _do(BatchStep(ended, "load", 0), trials, progress, stop_signals)

    monkeypatch.setattr(batch, "_load", load)
    monkeypatch.setattr(containers, "SIGNAL_NOTED_WITHIN_S", PATIENCE_S)

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path)

    assert steps == ["up", "look before", "collect", "down", "saved, interrupted: interrupted"]


def test_what_cannot_be_collected_is_saved_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str]
) -> None:
    def broken(_: TrialContainers) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(TrialContainers, "collect", broken)

    with pytest.raises(ValueError, match="unexpected"):
        measure(tmp_path)

    assert steps == ["up", "look before", "load", "down", "saved, measured: "]


@pytest.mark.parametrize(
    ("deriving", "command"),
    [("stampede.pipeline.derive", reporting.report), ("stampede.verification.verify_run", reporting.verify)],
)
def test_results_are_derived_to_their_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deriving: str, command: Callable[..., None]
) -> None:
    """A database that is asked meanwhile would fail with an error that does not name the interrupt."""
    finished = []

    def derived(folder: Path) -> None:
        make_run(folder, {"one": [Request()]})
        signal.raise_signal(signal.SIGINT)
        finished.append(folder)

    monkeypatch.setattr(deriving, derived)

    with pytest.raises(KeyboardInterrupt):
        command(run=tmp_path, results=tmp_path)

    assert finished == [tmp_path]

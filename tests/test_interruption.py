"""lab.interruption, and how the runner uses it: nobody is interrupted in the middle of what has to be finished."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any, cast

import pytest

from lab import runner
from lab.interruption import uninterrupted
from lab.runner import Stack, _together

STOPS = (signal.SIGINT, signal.SIGTERM)


STACKS = cast("list[Stack]", ["one", "two"])


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Heed signals as the command line does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = {one: signal.signal(one, interrupt) for one in STOPS}
    yield
    for one, handler in previous.items():
        signal.signal(one, handler)


def together(step: Callable[[Stack], None], stop: Callable[[Stack], None] | None = None) -> None:
    """Do a step for two stacks as the runner does."""
    with uninterrupted() as asked:
        _together(step, STACKS, lambda *_: None, 1, asked, stop)


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


def test_without_an_interrupt_nothing_is_raised_and_the_next_one_is_heeded_at_once() -> None:
    with uninterrupted() as asked:
        pass

    assert asked == []
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_a_step_early_where_there_is_a_way_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes where ``wait`` has the locks of what it waits for: raised there, they would stay taken for ever."""
    told: list[Any] = []
    ended = {"one": threading.Event(), "two": threading.Event()}

    def interrupted_wait(*arguments: Any, **settings: Any) -> Any:
        if not told:
            told.append("interrupted")
            signal.raise_signal(signal.SIGINT)
            told.append("went on")
        return wait(*arguments, **settings)

    def step(stack: Stack) -> None:
        told.append((stack, ended[str(stack)].wait(timeout=60)))

    def stop(stack: Stack) -> None:
        ended[str(stack)].set()

    monkeypatch.setattr(runner, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        together(step, stop)

    assert told[:2] == ["interrupted", "went on"]
    assert sorted(told[2:]) == [("one", True), ("two", True)]


def test_an_interrupt_is_heeded_after_a_step_that_cannot_be_stopped() -> None:
    through: list[str] = []

    def step(stack: Stack) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(0.01)
        through.append(str(stack))

    with pytest.raises(KeyboardInterrupt):
        together(step)

    assert sorted(through) == ["one", "two"]


def test_what_is_done_last_is_done_although_somebody_asked_to_stop() -> None:
    through: list[str] = []

    with uninterrupted() as asked:
        signal.raise_signal(signal.SIGINT)
        _together(lambda stack: through.append(str(stack)), STACKS, lambda *_: None, 1)
        assert asked.pop() == signal.SIGINT

    assert sorted(through) == ["one", "two"]


def test_an_unexpected_error_is_raised_when_all_are_through() -> None:
    through: list[str] = []

    def step(stack: Stack) -> None:
        if str(stack) == "one":
            raise ValueError("unexpected")
        time.sleep(0.01)
        through.append(str(stack))

    with pytest.raises(ValueError, match="unexpected"):
        together(step)

    assert through == ["two"]

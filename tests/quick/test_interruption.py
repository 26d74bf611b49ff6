"""stampede.interruption: nobody is interrupted in the middle of what has to be finished."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stampede import interruption
from stampede.cli import reading as reporting
from stampede.docker.client import HERE
from stampede.interruption import interrupt, uninterrupted
from stampede.paths import ROOT
from tests.synthetic import Request, make_run

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Heed signals as the command line does."""
    previous = {one: signal.signal(one, interrupt) for one in STOPS}
    yield
    for one, handler in previous.items():
        signal.signal(one, handler)
    interruption._signals.clear()


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        (signal.SIGINT, "stopped by the user"),
        (signal.SIGTERM, "stopped by the user"),
        (signal.SIGHUP, "its terminal was closed, or its parent process ended"),
    ],
)
def test_what_has_begun_is_finished_before_an_interrupt_is_heeded_and_the_next_is_heeded_at_once(
    which: signal.Signals, reason: str
) -> None:
    seen: list[int] = []

    def work() -> None:
        with uninterrupted() as asked:
            assert asked == []
            signal.raise_signal(which)
            seen.extend(asked)

    with pytest.raises(KeyboardInterrupt):
        work()
    with uninterrupted() as asked:
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

    assert (seen, asked) == ([which], [])
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


def test_the_engine_is_asked_outside_of_trials_without_asyncio(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In Python 3.11, asyncio starts a thread for each program. It refuses a second loop in a thread."""
    (tmp_path / "docker").write_text("#!/bin/sh\ncat; echo $*\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    async def asked() -> str:
        return HERE.run("version", stdin=b"said ")

    assert asyncio.run(asked()) == "said version"

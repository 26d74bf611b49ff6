"""What the lab shows while it measures: lines of trials, or the live line of a terminal, and the time that is left."""

import io
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stampede.experiment.file import load_experiment
from stampede.plan import Plan, lay_out
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_trial
from stampede.records.run import Seconds, TrialRecord
from stampede.run.progress import Expected, LiveLine, TrialLines, showing_progress
from tests.synthetic import BEGAN, Request, make_run, make_trial

WAITS = Claim(
    says="It waits", role="answer", at_least=50,
    value=Quantity(variant="shared-socket", request_class="light", metric="overhead", stat="p50"),
)  # fmt: skip
HELPS = WAITS.model_copy(
    update={"role": "cure", "value": WAITS.value.model_copy(update={"variant": "connection-limit"})}
)
VARIANTS = ("one-process", "shared-socket", "connection-limit")
CONTROL = re.compile(r"\x1b\[[0-9?]*[A-Za-z]|\r")
"""What moves the cursor of a terminal and erases its lines."""
OVERHEADS_MS = {"one-process": 3, "shared-socket": 400, "connection-limit": 2}


def plan(trials: int, jobs: int = 8) -> Plan:
    return lay_out(load_experiment("heavy-mix"), variants=[*VARIANTS], trials=trials, jobs=jobs)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run whose trials are not there yet."""
    empty: dict[str, list[Request]] = {name: [Request()] for name in VARIANTS}
    return make_run(tmp_path, empty, claims=[WAITS, HELPS], times=0, trials=3, outcome="running", ended=None)


def measure(run: Path, number: int, *, took_s: float, **changed: Any) -> list[TrialRecord]:
    ended = (BEGAN + timedelta(seconds=took_s)).isoformat()
    times: dict[str, Any] = {"began": BEGAN.isoformat(), "ended": ended, "seconds": Seconds(load=took_s - 5)}
    return [
        read_trial(
            make_trial(run, name, number, [Request(overhead_ms=number * OVERHEADS_MS[name])] * 2, **times, **changed)
        )
        for name in VARIANTS
    ]


def test_without_a_terminal_there_is_a_line_for_each_trial_and_none_for_a_step_in_time(
    capfd: pytest.CaptureFixture[str], run: Path
) -> None:
    trials = measure(run, 1, took_s=25)
    failed = trials[0].model_copy(update={"outcome": "failed", "reason": "a worker ended", "seconds": Seconds()})

    with showing_progress(Expected(plan(1), [20])) as shown:
        for step, expected_s in (("starting the servers", 4), ("load", 21)):
            for spent_s in (0, 1, 30):
                shown.progress(step, spent_s, expected_s)
        shown.end_batch([*trials[1:], failed])

    assert capfd.readouterr().err.splitlines() == [
        "shared-socket (mix, trial 1): measured, 20 s of load",
        "connection-limit (mix, trial 1): measured, 20 s of load",
        "one-process (mix, trial 1): failed, no load: a worker ended",
    ]


def test_a_step_that_takes_much_longer_than_expected_says_so_again_and_again() -> None:
    said: list[str] = []
    told = TrialLines(said.append).progress

    for spent_s in (0, 4, 60, 65, 70, 130):
        told("starting the servers", spent_s, 4)
    for spent_s in (0, 60, 365):
        told("load", spent_s, 300)

    assert said == [
        "starting the servers: 65 s of about 4 s …",
        "starting the servers: 130 s of about 4 s …",
        "load: 365 s of about 300 s …",
    ]


@dataclass
class Terminal:
    """A terminal whose live line is recorded, and a clock that the test moves."""

    width: int = 90
    now_s: float = 0.0
    states: list[str] = field(default_factory=list)

    def live(self, expected: Expected, monkeypatch: pytest.MonkeyPatch) -> LiveLine:
        """Return a live line on this terminal."""
        self.console = Console(file=io.StringIO(), force_terminal=True, width=self.width, color_system=None)
        live = LiveLine(self.console, expected, lambda: self.now_s)
        monkeypatch.setattr(live._status, "update", lambda text: self.states.append(str(text)) if text else None)
        return live

    @property
    def stays(self) -> list[str]:
        """The lines that stay."""
        assert isinstance(self.console.file, io.StringIO)
        lines = CONTROL.sub("\n", self.console.file.getvalue()).splitlines()
        return [line for line in lines if line.startswith("round")]


def test_a_terminal_has_one_line_for_each_batch_with_the_time_that_is_left(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches were to take 20 s each, and take 30 s."""
    terminal = Terminal()

    with terminal.live(Expected(plan(3), [20.0] * 3, before_s=5), monkeypatch).showing() as shown:
        shown.progress("predicting", 0, 1)
        for number in (1, 2, 3):
            terminal.now_s += 12
            shown.progress("load", 2, 14)
            terminal.now_s += 18
            shown.end_batch(measure(run, number, took_s=30))
        shown.progress("writing the report", 0, 1)

    assert terminal.states == [
        "round 1 of 3, heavy-mix, 3 variants: 1 min 07 s left, predicting",
        "round 1 of 3, heavy-mix, 3 variants: 55 s left, load",
        "round 2 of 3, heavy-mix, 3 variants: 50 s left, load",
        "round 3 of 3, heavy-mix, 3 variants: 20 s left, load",
        "2 s left, writing the report",
    ]
    assert terminal.stays == [f"round {number} of 3, heavy-mix, 3 variants: measured in 30 s" for number in (1, 2, 3)]


def test_the_live_line_is_one_line_of_a_narrow_terminal(run: Path) -> None:
    """What does not fit is cut off. The line itself is erased when the block ends."""
    console = Console(file=io.StringIO(), force_terminal=True, width=40, color_system=None)

    with LiveLine(console, Expected(plan(2), [20.0] * 2)).showing() as shown:
        shown.progress("waiting until the machine is quiet", 0, 10)
        shown.end_batch(measure(run, 1, took_s=25))

    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    assert "round 1 of 2, heavy-mix, 3 variants: me…\n" in CONTROL.sub("\n", written)
    assert "⠋ round 1 of 2, heavy-mix, 3 variants: …" in written


def test_a_step_that_is_late_and_a_trial_that_failed_are_said_on_a_terminal_too(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(width=120)

    with terminal.live(Expected(plan(1, jobs=1), [20.0] * 3), monkeypatch).showing() as shown:
        shown.progress("starting the servers", 30, 4)
        [trial, *_] = measure(run, 1, took_s=25)
        failed = trial.model_copy(update={"outcome": "failed", "reason": "a worker ended"})
        shown.end_batch([failed])

    first = plan(1, jobs=1).trials[0].variant_name
    assert terminal.states == [f"heavy-mix, {first}: 1 min 02 s left, starting the servers (30 s of about 4 s)"]
    assert isinstance(terminal.console.file, io.StringIO)
    assert "one-process (mix, trial 1): failed, 20 s of load: a worker ended" in terminal.console.file.getvalue()


def test_rounds_until_all_is_decided_have_a_limit_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()

    with terminal.live(Expected(plan(100), [20.0] * 100, budget_s=900), monkeypatch).showing() as shown:
        terminal.now_s = 50  # what the run has waited for another run does not count
        shown.progress("predicting", 0, 1)
        terminal.now_s = 150
        shown.progress("load", 0, 10)

    assert terminal.states[-1] == "round 1, heavy-mix, 3 variants: at most 13 min 20 s left, load"

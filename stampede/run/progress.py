"""What the lab shows while it measures: on a terminal a live line for each batch, elsewhere a line for each trial."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from stampede.docker.machine_usage import Progress
from stampede.interruption import uninterrupted
from stampede.plan import Plan, timing
from stampede.records.folder import BadRun
from stampede.records.run import Run, TrialRecord
from stampede.run.machine_lock import Say
from stampede.terminal import count, say, talk, time_in_words

WORD_EVERY_S = 60
"""How often a step that takes longer than expected says so, if there is no terminal."""
MUCH_S = 5
"""From how many seconds too long on a live line says how long a step has taken."""
SPINNER_COLUMNS = 2
"""How much of a live line its spinner takes up."""
BatchEnd = Callable[[Path, Run, Sequence[TrialRecord]], None]
"""A function that is called with the run's folder, the run's record, and the trials of a batch that has ended."""


@dataclass(frozen=True)
class Shown:
    """What shows the steps of a run, and the ends of its batches."""

    progress: Progress
    end_batch: BatchEnd


@dataclass(frozen=True)
class Expected:
    """About how long the batches of a plan take, and what comes before the first of them, in seconds.

    ``budget_s``: rounds are measured until every claim is decided, but for no longer than this.
    """

    plan: Plan
    batches_s: Sequence[float]
    before_s: float = 0.0
    budget_s: float | None = None

    def left(self, took_s: Sequence[float], since_s: float, spent_s: float) -> str:
        """Return how long the run still takes, in words.

        The first batches took so long, ``since_s`` has passed since the last of them ended, and ``spent_s`` in all.
        """
        if self.budget_s is not None:
            return f"at most {time_in_words(round(max(self.budget_s - spent_s, 0)))} left"
        passed_s = since_s if took_s else since_s - self.before_s
        left_s = timing.left_s(self.batches_s, took_s, passed_s) + timing.report_s(self.plan)
        return f"{time_in_words(round(left_s))} left"


@contextmanager
def showing_progress(expected: Expected) -> Iterator[Shown]:
    """Yield what shows a run: a live line on a terminal, plain lines elsewhere."""
    if talk.is_terminal:
        with LiveLine(talk, expected).showing() as shown:
            yield shown
    else:
        yield Shown(late_words(say), trial_lines(say))


def late_words(say: Say) -> Progress:
    """Return a Progress that says only which steps take much longer than expected."""
    step, next_word_s = "", 0.0

    def progress(what: str, spent_s: float, expected_s: float) -> None:
        nonlocal step, next_word_s
        if step != what:
            step, next_word_s = what, expected_s + WORD_EVERY_S
        if spent_s >= next_word_s:
            next_word_s = spent_s + WORD_EVERY_S
            say(f"{what}: {spent_s:.0f} s of about {expected_s:.0f} s …")

    return progress


def trial_lines(say: Say) -> BatchEnd:
    """Return a function that says a line for each trial of a batch."""

    def end_batch(_folder: Path, _run: Run, trials: Sequence[TrialRecord]) -> None:
        for trial in trials:
            say(trial_line(trial))

    return end_batch


def trial_line(trial: TrialRecord) -> str:
    """Return one line that says how a trial went, with the reason if the trial failed."""
    name = f"{trial.variant} ({trial.load}, trial {trial.trial})"
    took = f"{trial.seconds.load:.0f} s of load" if trial.seconds.load else "no load"
    return f"{name}: {trial.outcome}, {took}" + (f": {trial.reason}" if trial.reason else "")


class LiveLine:
    """The line of a terminal that changes while a batch is measured, and stays when the batch has ended."""

    def __init__(self, console: Console, expected: Expected, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the terminal, what is expected of the run that begins with the first step, and a clock in seconds."""
        self._console, self._expected, self._clock = console, expected, clock
        self._status = console.status("")
        self._began_s: float | None = None
        self._ended_s = 0.0
        self._took_s: list[float] = []
        self._known: dict[str, list[float | None]] = {}
        self._so_far: tuple[str, Sequence[str]] = "", []

    @contextmanager
    def showing(self) -> Iterator[Shown]:
        """Show the line during the block."""
        with self._status:
            yield Shown(self._step, self._end_batch)

    def _step(self, what: str, spent_s: float, expected_s: float) -> None:
        """Show the time that is left, and what is known so far or else the step; also a step that is late."""
        now_s, done = self._clock(), len(self._took_s)
        if self._began_s is None:  # it may have waited for another run
            self._began_s = self._ended_s = now_s
        left = self._expected.left(self._took_s, now_s - self._ended_s, now_s - self._began_s)
        late = f" ({spent_s:.0f} s of about {expected_s:.0f} s)" if spent_s > expected_s + MUCH_S else ""
        text, columns = Text(f"{left}, {what}{late}"), self._console.width - SPINNER_COLUMNS
        if done < len(self._expected.plan.batches):
            if self._so_far[1] and self._expected.plan.batches[done][0].number > 1:
                text = Text(f"{self._place(done)}: {text if late else left}; ")
                text.append(_fitting(*self._so_far, columns - text.cell_len))
            else:
                text = Text(f"{self._place(done, whole=True)}: {text}")
        text.truncate(columns, overflow="ellipsis")
        self._status.update(text)

    def _end_batch(self, folder: Path, run: Run, trials: Sequence[TrialRecord]) -> None:
        place = self._place(len(self._took_s))
        self._took_s.append(_took_s(trials))
        with uninterrupted():  # DuckDB would turn an interrupt into an error of its own
            self._so_far = self._look(folder, run, trials)
        self._status.update("")
        told = f"measured in {time_in_words(round(self._took_s[-1]))}"
        if self._so_far[1] and trials[0].trial > 1:
            told = _fitting(*self._so_far, self._console.width - cell_len(place) - 2)
        self._console.print(Text(f"{place}: {told}", no_wrap=True, overflow="ellipsis"))
        for trial in trials:
            if trial.outcome != "measured":
                self._console.print(trial_line(trial), markup=False, soft_wrap=True)
        self._ended_s = self._clock()

    def _look(self, folder: Path, run: Run, trials: Sequence[TrialRecord]) -> tuple[str, list[str]]:
        """Add what a batch has measured to what is known, and return what is known in words."""
        from stampede.report import provisional  # noqa: PLC0415  # loading DuckDB takes as long as a set-up

        with suppress(OSError, BadRun):  # what the end of the run will say; here, nothing is known so far
            for variant, values in provisional.measure_leading(folder, run, trials).items():
                self._known.setdefault(variant, []).extend(values)
        first = [trial.variant for trial in trials] if len(trials) == 1 else []
        return provisional.title(run), [*provisional.values_in_words(run, self._known, first)]

    def _place(self, batches: int, *, whole: bool = False) -> str:
        """Return which batch comes after so many batches: its round, and what it measures.

        Unless the ``whole`` is asked for, leave out what is the same in all batches.
        """
        plan = self._expected.plan
        batch = plan.batches[batches]
        rounds = plan.trials[-1].number
        of = "" if self._expected.budget_s is not None else f" of {rounds}"
        beside = [other for other in plan.rounds[0].batches if other[0].load_name == batch[0].load_name]
        several_loads = len({other[0].load_name for other in plan.rounds[0].batches}) > 1
        words = [f"round {batch[0].number}{of}"] if rounds > 1 else []
        words += [batch[0].load_name] if whole or several_loads or not words else []
        variants = batch[0].variant_name if len(batch) == 1 else count(batch, "variant")
        return ", ".join([*words, *([variants] if whole or len(beside) > 1 or not words else [])])


def _took_s(trials: Sequence[TrialRecord]) -> float:
    """Return how long a batch took, in seconds."""
    times = [datetime.fromisoformat(at).timestamp() for trial in trials for at in (trial.began, trial.ended)]
    return max(times, default=0.0) - min(times, default=0.0)


def _fitting(title: str, values: Sequence[str], columns: int) -> str:
    """Return a title with as many values as fit into so many columns, but at least one; empty: there is none."""
    told = f"{title}: {values[0]}" if values else ""
    for value in values[1:]:
        if cell_len(told) + cell_len(value) + 2 > columns:
            break
        told += f", {value}"
    return told

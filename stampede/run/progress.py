"""What the lab shows while it measures: on a terminal a live line for each batch, elsewhere a line for each trial."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.text import Text

from stampede.docker.commands import Say
from stampede.docker.machine_usage import Progress
from stampede.plan import Plan, timing
from stampede.records.plural import plural
from stampede.records.run import TrialRecord
from stampede.terminal import say, talk, time_in_words

WORD_EVERY_S = 60
"""How often a step that takes longer than expected says so, if there is no terminal."""
MUCH_S = 5
"""From how many seconds too long on a live line says how long a step has taken."""
SPINNER_COLUMNS = 2
"""How much of a live line its spinner takes up."""
BatchEnd = Callable[[Sequence[TrialRecord]], None]
"""A function that is called with the trials of a batch that has ended."""


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

    def end_batch(trials: Sequence[TrialRecord]) -> None:
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

    @contextmanager
    def showing(self) -> Iterator[Shown]:
        """Show the line during the block."""
        with self._status:
            yield Shown(self._step, self._end_batch)

    def _step(self, what: str, spent_s: float, expected_s: float) -> None:
        """Show the time that is left, and the step; also that it is late."""
        now_s, done = self._clock(), len(self._took_s)
        if self._began_s is None:  # it may have waited for another run
            self._began_s = self._ended_s = now_s
        left = self._expected.left(self._took_s, now_s - self._ended_s, now_s - self._began_s)
        late = f" ({spent_s:.0f} s of about {expected_s:.0f} s)" if spent_s > expected_s + MUCH_S else ""
        text = Text(f"{left}, {what}{late}")
        if done < len(self._expected.plan.batches):
            text = Text(f"{self._place(done)}: {text}")
        text.truncate(self._console.width - SPINNER_COLUMNS, overflow="ellipsis")
        self._status.update(text)

    def _end_batch(self, trials: Sequence[TrialRecord]) -> None:
        place = self._place(len(self._took_s))
        times = [datetime.fromisoformat(at).timestamp() for trial in trials for at in (trial.began, trial.ended)]
        self._took_s.append(max(times, default=0.0) - min(times, default=0.0))
        self._status.update("")
        told = Text(f"{place}: measured in {time_in_words(round(self._took_s[-1]))}")
        told.truncate(self._console.width, overflow="ellipsis")
        self._console.print(told)
        for trial in trials:
            if trial.outcome != "measured":
                self._console.print(trial_line(trial), markup=False, soft_wrap=True)
        self._ended_s = self._clock()

    def _place(self, batches: int) -> str:
        """Return which batch comes after so many batches: its round, its load and its variants."""
        plan = self._expected.plan
        batch, rounds = plan.batches[batches], plan.trials[-1].number
        of = "" if self._expected.budget_s is not None else f" of {rounds}"
        words = [f"round {batch[0].number}{of}"] if rounds > 1 else []
        variants = batch[0].variant_name if len(batch) == 1 else plural(len(batch), "variant")
        return ", ".join([*words, batch[0].load_name, variants])

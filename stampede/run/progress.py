"""What the lab shows while it measures: on a terminal a live line for each batch, elsewhere a line for each trial."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.text import Text

from stampede.docker.commands import Say
from stampede.plan import Plan, timing
from stampede.records.run import TrialRecord
from stampede.records.words import plural
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
class Expected:
    """About how long the batches of a plan take, and what comes before the first of them, in seconds.

    ``budget_s``: rounds are measured until every claim is decided, but for no longer than this.
    """

    plan: Plan
    batches_s: Sequence[float]
    before_s: float = 0.0
    budget_s: float | None = None


@contextmanager
def showing_progress(expected: Expected) -> Iterator["TrialLines | LiveLine"]:
    """Yield what shows a run: a live line on a terminal, plain lines elsewhere."""
    if talk.is_terminal:
        with LiveLine(talk, expected).showing() as shown:
            yield shown
    else:
        yield TrialLines(say)


def trial_line(trial: TrialRecord) -> str:
    """Return one line that says how a trial went, with the reason if the trial failed."""
    name = f"{trial.variant} ({trial.load}, trial {trial.trial})"
    took = f"{trial.seconds.load:.0f} s of load" if trial.seconds.load else "no load"
    return f"{name}: {trial.outcome}, {took}" + (f": {trial.reason}" if trial.reason else "")


class TrialLines:
    """A line for each trial, and a word of a step that takes much longer than expected."""

    def __init__(self, say: Say) -> None:
        self._say, self._step, self._next_word_s = say, "", 0.0

    def progress(self, what: str, spent_s: float, expected_s: float) -> None:
        """Say that a step is late, again and again."""
        if self._step != what:
            self._step, self._next_word_s = what, expected_s + WORD_EVERY_S
        if spent_s >= self._next_word_s:
            self._next_word_s = spent_s + WORD_EVERY_S
            self._say(f"{what}: {spent_s:.0f} s of about {expected_s:.0f} s …")

    def end_batch(self, trials: Sequence[TrialRecord]) -> None:
        """Say a line for each trial."""
        for trial in trials:
            self._say(trial_line(trial))


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
    def showing(self) -> Iterator["LiveLine"]:
        """Show the line during the block."""
        with self._status:
            yield self

    def progress(self, what: str, spent_s: float, expected_s: float) -> None:
        """Show the time that is left, and the step; also that it is late."""
        now_s, of = self._clock(), self._expected
        if self._began_s is None:  # it may have waited for another run
            self._began_s = self._ended_s = now_s
        if of.budget_s is not None:
            left = f"at most {time_in_words(round(max(of.budget_s - (now_s - self._began_s), 0)))} left"
        else:
            since_s = now_s - self._ended_s - (0 if self._took_s else of.before_s)
            left_s = timing.left_s(of.batches_s, self._took_s, since_s) + timing.report_s(of.plan)
            left = f"{time_in_words(round(left_s))} left"
        late = f" ({spent_s:.0f} s of about {expected_s:.0f} s)" if spent_s > expected_s + MUCH_S else ""
        place = f"{self._place()}: " if len(self._took_s) < len(of.plan.batches) else ""
        text = Text(f"{place}{left}, {what}{late}")
        text.truncate(self._console.width - SPINNER_COLUMNS, overflow="ellipsis")
        self._status.update(text)

    def end_batch(self, trials: Sequence[TrialRecord]) -> None:
        """Let the line of a batch stay, with its trials that were not measured below."""
        place = self._place()
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

    def _place(self) -> str:
        """Return which batch is being measured: its round, its load and its variants."""
        plan = self._expected.plan
        batch, rounds = plan.batches[len(self._took_s)], plan.trials[-1].number
        of = "" if self._expected.budget_s is not None else f" of {rounds}"
        words = [f"round {batch[0].number}{of}"] if rounds > 1 else []
        variants = batch[0].variant_name if len(batch) == 1 else plural(len(batch), "variant")
        return ", ".join([*words, batch[0].load_name, variants])

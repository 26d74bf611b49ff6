"""What the command line prints: data to standard output, messages and progress to standard error."""

import json
import sys
from collections.abc import Iterator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import typer
from rich.console import Console
from rich.markup import escape

from lab.errors import LabError
from lab.interruption import was_left

if TYPE_CHECKING:
    from lab.engine.machine_usage import Progress
    from lab.plan import Plan


WORD_EVERY_S = 60
"""How often a step that takes longer than expected says so, if there is no terminal."""


class Unheard:
    """Standard error that stays silent after its terminal was closed, where other streams would raise OSError.

    While rich shows a status, it replaces ``sys.stderr`` by a proxy. ``rich_proxied_file`` leads to the real stream.
    """

    def write(self, text: str) -> int:
        """Write a text if the stream is open."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream if it is open."""
        with suppress(OSError):
            self._stream.flush()

    @property
    def rich_proxied_file(self) -> "Unheard":
        """The file that rich writes to."""
        return self

    @property
    def _stream(self) -> IO[str]:
        return cast("IO[str]", getattr(sys.stderr, "rich_proxied_file", sys.stderr))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


out = Console(highlight=False)
talk = Console(file=cast("IO[str]", Unheard()), highlight=False)


def tell(error: LabError) -> None:
    """Print what went wrong, and a hint if there is one."""
    talk.print(f"[red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.hint:
        talk.print(f"\n[cyan]hint:[/] {escape(error.hint)}", soft_wrap=True)


def say(text: str) -> None:
    """Print a message to standard error."""
    talk.print(text, markup=False, soft_wrap=True)


def print_json(values: object) -> None:
    """Print values as one line of JSON."""
    out.print(json.dumps(values, ensure_ascii=False), soft_wrap=True, markup=False)


def print_plan(console: Console, name: str, planned: "Plan", budget_s: float | None = None) -> None:
    """Print which trials are measured, in which order, and about how long it takes.

    ``budget_s``: rounds are measured until every claim is decided, but for no longer than this.
    """
    first, *further = planned.rounds
    if budget_s is None:
        size = f"{count(planned.trials, 'trial')} in {count(planned.batches, 'batch', 'batches')}"
        console.print(f"{escape(name)}: {size}, about {time_in_words(planned.expected_s)}.", soft_wrap=True)
    else:
        each = f"{count(first.trials, 'trial')}, about {time_in_words(first.expected_s)}"
        until = f"until every claim is decided or {time_in_words(round(budget_s))} are over"
        console.print(f"{escape(name)}: rounds of {each}, {until}.", soft_wrap=True)
    for number, batch in enumerate(first.batches, start=1):
        names = ", ".join(trial.variant_name for trial in batch)
        console.print(f"  {number}. {batch[0].load_name}, {batch[0].duration}: {names}", soft_wrap=True)
    if further:
        rounds = f"{count(further, 'further round')}" if budget_s is None else "Further rounds"
        console.print(f"  {rounds}: the same, each in an order of its own", soft_wrap=True)


def short_path(path: Path) -> str:
    """Return a path relative to the current folder if it is inside."""
    here = Path.cwd()
    return str(path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path)


def time_in_words(seconds: int) -> str:
    """Return a time in minutes and seconds, e.g. ``3 min 05 s``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def count(things: Sized, one: str, many: str = "") -> str:
    """Return how many things there are, e.g. ``2 trials``."""
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn an interrupt into a message and exit code 130, after everything was cleaned up."""
    try:
        yield
    except KeyboardInterrupt:
        if was_left():
            say("The terminal was closed, or the parent process ended. Start the lab under nohup to keep it running.")
        say("Interrupted. Nothing is left running; what was measured is kept.")
        raise typer.Exit(130) from None


@contextmanager
def showing_progress() -> "Iterator[Progress]":
    """Yield a Progress: a live line on a terminal; elsewhere a plain line per step, and more if it takes too long."""
    if talk.is_terminal:
        with talk.status("") as status:
            yield lambda what, spent, of: status.update(f"{what}: {spent:.0f} s of about {of:.0f} s")
        return
    said: list[str] = []
    next_word_s = 0.0

    def progress(what: str, spent: float, of: float) -> None:
        nonlocal next_word_s
        if said[-1:] != [what]:
            said.append(what)
            next_word_s = max(of, 0) + WORD_EVERY_S
            say(f"{what} (about {of:.0f} s) …")
        elif spent >= next_word_s:
            next_word_s = spent + WORD_EVERY_S
            say(f"{what}: {spent:.0f} s of about {of:.0f} s …")

    yield progress

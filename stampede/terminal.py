"""What the command line prints: data to standard output, messages and progress to standard error."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from stampede.errors import LabError
from stampede.interruption import was_left
from stampede.records.words import OBEYED, plural
from stampede.theory import COMPILED, must_compile

if TYPE_CHECKING:
    from stampede.plan import Plan


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


class Plain(Console):
    """A console that shows no control character of the texts that it prints, whoever wrote them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is printed, with U+FFFD in the place of what a terminal would obey."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=OBEYED.sub("\ufffd", segment.text))

    def on_broken_pipe(self) -> None:
        """End without an error if nobody reads any more, as in ``stampede list | head -1``."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


INTERRUPTED = 130
"""The exit code of a command that was interrupted."""
JSON_SCHEMA = 1
out = Plain(highlight=False, emoji=False)
talk = Plain(file=cast("IO[str]", Unheard()), highlight=False, emoji=False)


def tell(error: LabError) -> None:
    """Print what went wrong, and a hint if there is one."""
    talk.print(f"[red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.hint:
        talk.print(f"\n[cyan]hint:[/] {escape(error.hint)}", soft_wrap=True)


def say(text: str) -> None:
    """Print a message to standard error."""
    talk.print(text, markup=False, soft_wrap=True)


def print_json(values: Mapping[str, object]) -> None:
    """Print values as one line of JSON, with the number of its schema, which changes if a key gets another meaning."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415  # other commands start faster

    finite = to_jsonable_python({"schema": JSON_SCHEMA, **values}, inf_nan_mode="null")
    write_json(json.dumps(finite, ensure_ascii=False, allow_nan=False))


def write_json(text: str) -> None:
    """Print a text of JSON, with escapes in the place of what a terminal would obey."""
    _write(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def write(text: str) -> None:
    """Print a text that is data as it is, with U+FFFD in the place of what a terminal would obey."""
    _write(OBEYED.sub("\ufffd", text))


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def print_plan(console: Console, name: str, planned: "Plan", expected_s: int, budget_s: float | None = None) -> None:
    """Print which trials are measured, in which order, and about how long it takes.

    ``budget_s``: rounds are measured until every claim is decided, but for no longer than this; ``expected_s`` is then
    about the first of these rounds.
    """
    first, *further = planned.rounds
    if budget_s is None:
        batches = plural(len(planned.batches), "batch", "batches")
        size = f"{plural(len(planned.trials), 'trial')} in {batches}"
        console.print(f"{escape(name)}: {size}, about {time_in_words(expected_s)}.", soft_wrap=True)
    else:
        each = f"{plural(len(first.trials), 'trial')}, about {time_in_words(expected_s)}"
        until = f"until every claim is decided or {time_in_words(round(budget_s))} are over"
        console.print(f"{escape(name)}: rounds of {each}, {until}.", soft_wrap=True)
    for number, batch in enumerate(first.batches, start=1):
        names = ", ".join(trial.variant_name for trial in batch)
        console.print(f"  {number}. {batch[0].load_name}, {batch[0].duration}: {names}", soft_wrap=True)
    if further:
        rounds = plural(len(further), "further round") if budget_s is None else "Further rounds"
        console.print(f"  {rounds}: the same, each in an order of its own", soft_wrap=True)


def report_path(folder: Path) -> str:
    """Return the path of a report: relative if the current folder has it, and by ``latest`` if this is the run."""
    latest = folder.resolve().parent / "latest"
    path = (latest if latest.resolve() == folder.resolve() else folder.resolve()) / "report.html"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(folder / "report.html")


def time_in_words(seconds: int) -> str:
    """Return a time in minutes and seconds, e.g. ``3 min 05 s``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn an interrupt into a message and exit code 130, after everything was cleaned up."""
    try:
        yield
    except KeyboardInterrupt:
        if was_left():
            say("The terminal was closed, or the parent process ended. Start the lab under nohup to keep it running.")
        say("Interrupted. Nothing is left running; what was measured is kept.")
        raise typer.Exit(INTERRUPTED) from None


def say_how_theory_runs() -> None:
    """Say that the simulator is interpreted, so that theory is less certain, or that it must be compiled first."""
    if must_compile():
        say("Compiling the simulator, once after each installation: about half a minute …")
    if not COMPILED:
        say(
            "Numba is missing, so the simulator is interpreted, and simulates less: what theory says is less certain. "
            "To compile it: pip install 'stampede-lab[lab]'"
        )

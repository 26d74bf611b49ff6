"""Run commands: for their output, or for minutes, with a word now and then and with the reason if they fail."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import IO

from stampede.docker import processor
from stampede.errors import LabError
from stampede.interruption import program
from stampede.paths import ROOT

ANSWERS_WITHIN_S = 20
BUILD_WITHIN_S = 3600
"""How long a command may run that builds, pulls or installs."""
FIRST_WORD_S, WORD_EVERY_S = 30, 60
"""When the lab first says that a command is still running, and how often it then repeats this, in seconds."""
LAST_BYTES, LAST_LINES = 16384, 12
"""How much of a command's output is looked at for its last lines, and how many lines a person is shown."""

Say = Callable[[str], None]


def output(command: list[str]) -> str:
    """Return what a command prints; empty if the command fails, hangs or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def run_command(
    command: list[str],
    what: str,
    problem: str,
    say: Say,
    environment: dict[str, str] | None = None,
    within_s: float = BUILD_WITHIN_S,
    meanwhile: Callable[[], None] = lambda: None,
    told: IO[bytes] | None = None,
    lines: int = LAST_LINES,
) -> None:
    """Run a command in the checkout, and now and then say that it is still running.

    ``what`` says in the progress what the command does, e.g. ``building nginx``. If the command fails or does not end
    within ``within_s`` seconds, raise LabError with ``problem``, the reason and the command's last ``lines``.
    ``meanwhile`` is called while the command runs; if it raises an exception, the command is ended. ``told`` gets its
    standard output, if somebody reads it; the last lines are then those of standard error.
    """
    began = time.monotonic()
    named = f"{' '.join(command[:4])} …"
    with (
        tempfile.TemporaryFile() as output,
        program(command, stdout=told or output, stderr=output, env=environment, cwd=ROOT) as process,
    ):
        meanwhile()
        next_word_s: float = FIRST_WORD_S
        while True:
            try:
                code = process.wait(max(0.1, min(next_word_s, within_s) - (time.monotonic() - began)))
                break
            except subprocess.TimeoutExpired:
                pass
            passed_s = time.monotonic() - began
            if passed_s >= within_s:
                last = _last_lines(output) or "it printed nothing"
                raise LabError(problem, hint=f"{named} did not end within {in_words(within_s)}:\n{last}")
            if passed_s >= next_word_s:
                last = f"; its last line: {said[0]}" if (said := _last_lines(output, 1).splitlines()) else ""
                say(f"Still {what} after {in_words(passed_s)}{last}")
                next_word_s = passed_s + WORD_EVERY_S
        if code != 0:
            meaning = f": {known}" if (known := meaning_of(code)) else ":"
            last = _last_lines(output, lines) or "It printed nothing."
            raise LabError(problem, hint=f"{named} ended with {code}{meaning}\n{last}")


def _last_lines(output: IO[bytes], count: int = LAST_LINES) -> str:
    """Return the last lines of a file that a program still writes: reading must not move the place of writing."""
    size = os.fstat(output.fileno()).st_size
    said = os.pread(output.fileno(), LAST_BYTES, max(0, size - LAST_BYTES)).decode(errors="replace")
    return "\n".join(said.strip().splitlines()[-count:])


def in_words(seconds: float) -> str:
    """Return a time in whole seconds or minutes, e.g. ``40 s`` or ``3 min``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def meaning_of(code: int) -> str:
    """Return what the exit code of a program or a container means if a signal ended it; empty: no signal did."""
    number = -code if code < 0 else code - 128
    if number == signal.SIGILL:
        return f"a program in it has an instruction that this processor lacks. {processor.WAY_OUT}"
    if number == signal.SIGKILL:
        return "it was killed: perhaps by hand, or because its memory was not enough"
    return "it was ended by SIGSEGV, a fault of a compiled program" if number == signal.SIGSEGV else ""

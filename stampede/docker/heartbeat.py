"""Notice an engine that is there and does not answer, and end the calls that would wait for it for ever.

An engine that is paused or frozen keeps every client waiting. So a thread asks it something cheap now and then. If the
answer is too late, the thread ends Docker's clients that this lab has started, so each call fails as it does when an
engine has ended.
"""

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from stampede.docker.cluster.machines import Machine
from stampede.docker.commands import Say, in_words
from stampede.interruption import uninterrupted

ASK_EVERY_S = 20
LATE_S, SILENT_S = 15, 60
"""After how long the lab says that it waits for the engine, and after how long it ends its calls."""
ASK_AGAIN_S = 5
"""How long an engine that was silent may take for each further answer."""


@contextmanager
def heartbeat(machines: Sequence[Machine], say: Say) -> Iterator[None]:
    """Ask the engines of machines now and then during the block whether they are there."""
    over = threading.Event()
    threads = [threading.Thread(target=_ask_on, args=(machine, say, over), daemon=True) for machine in machines]
    with uninterrupted():
        for thread in threads:
            thread.start()
    try:
        yield
    finally:
        with uninterrupted():
            over.set()
            for thread in threads:
                thread.join()


def _ask_on(machine: Machine, say: Say, over: threading.Event) -> None:
    silent = False
    while not over.wait(0 if silent else ASK_EVERY_S):
        answered = _answers(machine, say, over, silent=silent)
        if answered is None:
            continue
        if silent and answered:
            say(f"{_capital(machine.engine_name)} answers again.")
        elif not silent and not answered:
            say(f"{_capital(machine.engine_name)} has not answered for {in_words(SILENT_S)}: "
                "is it paused, or is its machine? The lab ends what waits for it.")  # fmt: skip
        silent = not answered
        if silent:
            _end_clients(machine)


def _answers(machine: Machine, say: Say, over: threading.Event, *, silent: bool) -> bool | None:
    """Return whether an engine gives any answer in time, even an error; None if the block ended meanwhile."""
    began, told = time.monotonic(), silent
    try:
        asking = subprocess.Popen(
            [*machine.docker, "version", "--format", "{{.Server.Version}}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:  # there is no client yet
        return True
    try:
        while asking.poll() is None:
            waited_s = time.monotonic() - began
            if over.wait(0.1):
                return None
            if waited_s > (ASK_AGAIN_S if silent else SILENT_S):
                return False
            if waited_s > LATE_S and not told:
                told = True
                say(f"{_capital(machine.engine_name)} has not answered for {in_words(LATE_S)}; "
                    f"the lab waits for it for {in_words(SILENT_S)}.")  # fmt: skip
        return True
    finally:
        asking.kill()
        asking.wait()


def _end_clients(machine: Machine) -> None:
    """End Docker's clients for a machine that are children of this process, and what they have started.

    A client ends before what it has started, so that it cannot end with success.
    """
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.name() == "docker" and set(machine.docker[1:]) <= set(child.cmdline()):
                for program in (child, *child.children(recursive=True)):
                    with suppress(psutil.Error):
                        program.kill()


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]

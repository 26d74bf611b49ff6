"""The lock of this machine: only one command at a time measures, because two would disturb each other."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from math import inf
from pathlib import Path

from stampede.docker.commands import Say
from stampede.errors import LabError

LOCK = Path("/tmp/stampede.lock")  # noqa: S108  # one lock for all users; a link in its place is refused
TELL_AGAIN_S, LOOK_AGAIN_S = 60, 0.2
"""How often a lab that waits for the lock says so, and how often it looks, in seconds."""


@contextmanager
def machine_lock(say: Say, doing: str = "") -> Iterator[Callable[[str], None]]:
    """Hold the lock of this machine for the command ``doing``, and wait for it first; say meanwhile who holds it.

    Yield a function that tells labs that wait for the lock at which step the command is.
    """
    descriptor, told_s = -1, -inf
    for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL):  # another user may have made the file
        with suppress(OSError):
            descriptor = os.open(LOCK, os.O_NOFOLLOW | os.O_CLOEXEC | mode, 0o644)
            break
    else:
        raise LabError(f"The lock {LOCK} cannot be opened or created.", hint=f"Remove it: sudo rm {LOCK}")
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() - told_s > TELL_AGAIN_S:
                told_s = time.monotonic()
                noted = os.pread(descriptor, 1000, 0).decode(errors="replace")
                process, since, holds, step = [*noted.split("\n"), "", "", "", ""][:4]
                known = [f"process {process}", since and f"since {since}", holds, step and f"now: {step}"]
                who = ", ".join(filter(None, known))
                stop = f"; to stop it: kill {process}" if process.isdecimal() else ""
                say(f"Another run is measuring ({who}{stop}). This run starts when that run has ended.")
            time.sleep(LOOK_AGAIN_S)
        began = f"{os.getpid()}\n{datetime.now().astimezone():%H:%M}\n{doing}\n"
        noted_step: str | None = None

        def note(step: str) -> None:
            nonlocal noted_step
            if step != noted_step:
                noted_step = step
                with suppress(OSError):  # the lock file of another user can be locked but not written
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{began}{step}\n".encode(), 0)

        note("")
        yield note
    finally:
        os.close(descriptor)

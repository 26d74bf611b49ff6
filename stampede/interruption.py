"""Signals that stop the lab, and the parts of its work that finish before it stops."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

LOOK_FOR_PARENT_EVERY_S = 1
ENDS_WITHIN_S = 10
"""How long a program may take to end after SIGTERM. Then it is killed."""

_held_back: list[list[int]] = []
_signals: list[int] = []


def heed_signals() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt, even if the shell made the lab ignore SIGINT or SIGTERM.

    If the parent process ends, the lab stops as if its terminal were closed, because the user can no longer interrupt
    the lab. Under nohup, which ignores SIGHUP, the lab goes on in both cases.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGHUP, interrupt)
    parent = os.getppid()

    def follow_parent() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_FOR_PARENT_EVERY_S)
        os.kill(os.getpid(), signal.SIGHUP)

    threading.Thread(target=follow_parent, daemon=True).start()


def stop_reason() -> str:
    """Return why the lab was stopped."""
    return "its terminal was closed, or its parent process ended" if was_left() else "stopped by the user"


def was_stopped() -> bool:
    """Whether a signal has asked the lab to stop."""
    return bool(_signals)


def was_left() -> bool:
    """Whether the lab was stopped because its terminal was closed, or its parent process ended."""
    return signal.SIGHUP in _signals


def interrupt(number: int, _: FrameType | None) -> None:
    """Raise KeyboardInterrupt at once, or inside ``uninterrupted`` only note the signal."""
    _signals.append(number)
    if not _held_back:
        raise KeyboardInterrupt
    _held_back[-1].append(number)


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Finish the block even if a signal asks to stop, and raise KeyboardInterrupt afterwards.

    Yield the list of signals that came so far, so that the block can stop early. A block inside another block raises
    nothing: its signals are added to the list of the outer block. Start threads and wait for threads only inside such a
    block: an interrupt between taking a lock and releasing the lock would leave the lock taken, and the next thread
    that needs the lock would wait for ever. An interrupt in a callback of the garbage collector would be lost.
    """
    asked: list[int] = []
    _held_back.append(asked)
    try:
        yield asked
    finally:
        _held_back[:] = [others for others in _held_back if others is not asked]
        if _held_back:
            _held_back[-1].extend(asked)
    if asked and not _held_back:
        raise KeyboardInterrupt


@contextmanager
def program(command: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[bytes]]:  # noqa: ANN401  # as Popen has it
    """Run a program beside the block and wait for its end. If the block raises an exception, end the program first.

    ``how``: what subprocess.Popen takes. An interrupt while the program starts comes afterwards, because otherwise
    nobody would know the program. A program that ignores SIGTERM is killed: ``docker run`` only passes it on.
    """
    started: list[subprocess.Popen[bytes]] = []
    try:
        with uninterrupted():
            started.append(subprocess.Popen(command, **how))
        yield started[0]
        started[0].wait()
    except BaseException:
        with uninterrupted():
            for process in started:
                process.terminate()
                try:
                    process.wait(ENDS_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()
        raise
    finally:
        for process in started:
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                stream.close()

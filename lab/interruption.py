"""Somebody asks to stop, but not in the middle of what has to be finished."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LOOK_FOR_PARENT_EVERY_S = 1

_held_back: list[list[int]] = []
_signals: list[int] = []


def heed_signals() -> None:
    """Make an interrupt of SIGINT and SIGTERM, even if the shell that started the lab ignores them, and of SIGHUP.

    Where the parent process ends, the lab stops as if its terminal were closed, because nobody can interrupt it any
    more. Under nohup, which ignores SIGHUP, neither stops the lab.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGHUP, interrupt)
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()


def why() -> str:
    """Return why the lab was stopped."""
    return "its terminal was closed, or its parent process ended" if was_left() else "stopped by the user"


def was_left() -> bool:
    """Whether the lab was stopped because its terminal was closed, or its parent process ended."""
    return signal.SIGHUP in _signals


def _follow_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_FOR_PARENT_EVERY_S)
    os.kill(os.getpid(), signal.SIGHUP)


def interrupt(number: int, _: FrameType | None) -> None:
    """Raise KeyboardInterrupt at once, unless it is held back."""
    _signals.append(number)
    if not _held_back:
        raise KeyboardInterrupt
    _held_back[-1].append(number)


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Finish what is inside even if somebody asks to stop, and raise KeyboardInterrupt afterwards.

    The signals that came so far are yielded, for those who can stop earlier. Start threads and wait for them only
    inside: an interrupt between taking a lock and giving it back would leave it taken, and the thread that needs it
    next would wait for ever. One in a call-back of the garbage collection would be lost.
    """
    asked: list[int] = []
    _held_back.append(asked)
    try:
        yield asked
    finally:
        _held_back.pop()
    if asked:
        raise KeyboardInterrupt

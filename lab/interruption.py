"""Somebody asks to stop, but not in the middle of what has to be finished."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_held_back: list[list[int]] = []


def interrupt(number: int, _: FrameType | None) -> None:
    """Heed SIGINT or SIGTERM, as the handler of both: raise KeyboardInterrupt at once, unless it is held back."""
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

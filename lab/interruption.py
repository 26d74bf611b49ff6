"""Somebody asks to stop, but not in the middle of what has to be finished."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Finish what is inside even if somebody asks to stop, and raise KeyboardInterrupt afterwards.

    The signals that came so far are yielded, for who can stop earlier. Threads are started and waited for in here: an
    interrupt between taking a lock and giving it back would leave it taken, and the thread that needs it next would
    wait for ever; one in a call-back of the garbage collection would be lost.
    """
    asked: list[int] = []
    stops = (signal.SIGINT, signal.SIGTERM)
    previous = {one: signal.signal(one, lambda number, _frame: asked.append(number)) for one in stops}
    try:
        yield asked
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)
    if asked:
        raise KeyboardInterrupt

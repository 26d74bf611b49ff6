"""A cache of two million objects, which Python's garbage collector looks through, if ``LAB_COLLECTOR`` sets it.

``default`` leaves the collector as it is. ``freeze`` tells it to pass over the objects that are there when the
application has loaded, ``disable`` switches it off, and ``rare`` lets it start after 50,000 new objects. ``none``: the
cache is empty.
"""

import gc
import os
from collections import deque
from collections.abc import Callable
from functools import partial

OBJECTS = 10_000
"""How many objects one entry of the cache has."""
ENTRIES = 200
_COLLECTORS: dict[str, Callable[[], object]] = {
    "default": lambda: None,
    "freeze": gc.freeze,
    "disable": gc.disable,
    "rare": partial(gc.set_threshold, 50_000),
}
_entries: deque[list[list[object]]] = deque(maxlen=ENTRIES)


def renew() -> None:
    """Put a new entry into the cache; the oldest makes room for it."""
    _entries.append([[] for _ in range(OBJECTS)])


def set_up(collector: str) -> None:
    """Fill the cache, and set the collector as a word of ``LAB_COLLECTOR`` says."""
    for _ in range(ENTRIES):
        renew()
    gc.collect()
    _COLLECTORS[collector]()


if os.environ.get("LAB_COLLECTOR", "none") != "none":
    set_up(os.environ["LAB_COLLECTOR"])

"""What queueing predicts: a simulator of workers that have threads and queues of their own.

Nothing here knows the lab. ``model`` says what can be simulated, and ``simulate`` does it.
"""

import os
from importlib.util import find_spec
from pathlib import Path

COMPILED = find_spec("numba") is not None
"""Whether Numba is installed, which compiles the simulator. Without it, the same functions are interpreted."""


def must_compile(folder: Path = Path(__file__).parent) -> bool:
    """Return whether the first simulation waits for Numba, which has no simulator in its cache in a folder yet."""
    return COMPILED and os.access(folder, os.W_OK) and not any(folder.glob("__pycache__/events.advance-*.nbi"))

"""What queueing predicts: a simulator of workers that have threads and queues of their own.

Nothing here knows the lab. ``model`` says what can be simulated, and ``simulate`` does it.
"""

from importlib.util import find_spec

COMPILED = find_spec("numba") is not None
"""Whether Numba is installed, which compiles the simulator. Without it, the same functions are interpreted."""

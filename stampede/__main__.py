"""``python -m stampede``."""

import gc

gc.disable()  # what the imports make is no garbage, and to look for garbage takes a fifth of a short command's time

from stampede.cli import main  # noqa: E402

gc.enable()
main()

"""``python -m stampede``, and the command ``stampede`` of an installed package."""

import gc
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line. While modules are imported, no garbage is sought: that took a fifth of a short command."""
    gc.disable()
    from stampede.cli import main  # noqa: PLC0415

    gc.enable()
    main()


if __name__ == "__main__":
    run()

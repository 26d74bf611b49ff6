"""Connections that say nothing: each connects, is silent for SILENT_S, then asks and begins anew.

A row of class ``silent`` is the request at the end of the silence; it is sent at the load's end at the latest. What the
row says is how long its own answer took; the silence is no part of it.
"""

import sys

from lib import settings
from lib.connection import Connection
from lib.load import Load, run


def main() -> int:
    """Check the settings, load the server and return the exit code."""
    silent_s = settings.number("SILENT_S")

    async def ask_after_silence(load: Load, connection: Connection) -> None:
        await load.wait(silent_s)
        await connection.get()

    return run("silent", ask_after_silence)


if __name__ == "__main__":
    sys.exit(main())

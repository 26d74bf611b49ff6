"""Clients that connect, say nothing for SILENT_S, then send a request, and connect again after the answer.

Each request is a row of class ``silent``. A client sends its request at the end of the load at the latest. The times in
the row begin when the request is sent, so they do not include the silence.
"""

import sys

from lib import settings
from lib.connection import Connection
from lib.load import Load, run


def main() -> int:
    """Check the settings, send the load to the server, and return the exit code."""
    silent_s = settings.number("SILENT_S")

    async def ask_after_silence(load: Load, connection: Connection) -> None:
        await load.wait(silent_s)
        await connection.get()

    return run("silent", ask_after_silence)


if __name__ == "__main__":
    sys.exit(main())

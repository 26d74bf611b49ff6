"""Clients that get their answer and keep the connection open, although they asked with ``Connection: close``.

For LINGER_S after its answer, but at most until the end of the load, a client neither reads nor closes the connection.
Then the client closes it, pauses for PAUSE_S, and connects again. Each request is a row of class ``lingering``.
"""

import sys

from lib import settings
from lib.connection import Connection
from lib.load import Load, run


def main() -> int:
    """Check the settings, send the load to the server, and return the exit code."""
    linger_s = settings.number("LINGER_S")
    pause_s = settings.number("PAUSE_S")

    async def ask_and_linger(load: Load, connection: Connection) -> None:
        await connection.get()
        connection.stop_reading()
        await load.wait(linger_s)

    return run("lingering", ask_and_linger, pause_s)


if __name__ == "__main__":
    sys.exit(main())

"""Clients that have their answer and keep their socket open: each asks with ``Connection: close``, lingers, closes.

A row of class ``lingering`` is the request; for LINGER_S after its answer, at most until the load's end, the client
neither closes nor reads. PAUSE_S later it begins anew.
"""

import sys

from lib import settings
from lib.connection import Connection
from lib.load import Load, run


def main() -> int:
    """Check the settings, load the server and return the exit code."""
    linger_s = settings.number("LINGER_S")
    pause_s = settings.number("PAUSE_S")

    async def ask_and_linger(load: Load, connection: Connection) -> None:
        await connection.get()
        connection.stop_reading()
        await load.wait(linger_s)

    return run("lingering", ask_and_linger, pause_s)


if __name__ == "__main__":
    sys.exit(main())

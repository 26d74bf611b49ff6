"""Clients that send a request whose body of KIB KiB takes UPLOAD_S to send, as over a slow line.

Each request is a row of class ``uploading``, whose times include the sending. The rest of a body follows at once when
the load ends.
"""

import sys
from collections.abc import AsyncIterator

from lib import settings
from lib.connection import Connection
from lib.load import Load, run

PARTS = 50


def main() -> int:
    """Check the settings, send the load to the server, and return the exit code."""
    part = bytes(settings.count("KIB") * 1024 // PARTS)
    upload_s = settings.number("UPLOAD_S")

    async def slowly(load: Load) -> AsyncIterator[bytes]:
        for _ in range(PARTS):
            await load.wait(upload_s / PARTS)
            yield part

    async def upload(load: Load, connection: Connection) -> None:
        await connection.post(PARTS * len(part), slowly(load))

    return run("uploading", upload)


if __name__ == "__main__":
    sys.exit(main())

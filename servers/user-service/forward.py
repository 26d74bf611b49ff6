"""Pass connections on to one host outside, whose name the application knows. Usage: forward.py PORT=ADDRESS..."""

import asyncio
import sys
from contextlib import suppress

MOST_BYTES = 65536


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until the source ends."""
    with suppress(OSError):
        while part := await source.read(MOST_BYTES):
            target.write(part)
            await target.drain()
        target.write_eof()


async def listen(port: int, address: str) -> None:
    """Accept connections on a port, and connect each of them to the same port of an address."""

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(address, port)
            await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
            there_writer.close()
        writer.close()

    server = await asyncio.start_server(passed_on, port=port)
    await server.serve_forever()


async def main() -> None:
    """Listen on all ports of the command line."""
    asked = [one.partition("=") for one in sys.argv[1:]]
    await asyncio.gather(*(listen(int(port), address) for port, _, address in asked))


if __name__ == "__main__":
    asyncio.run(main())

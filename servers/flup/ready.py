"""Ask the application over FastCGI whether it is ready, and exit with 0 if it is. Usage: python ready.py."""

import socket
import struct
import sys

VERSION, BEGIN, PARAMS, STDIN = 1, 1, 4, 5
RESPONDER = 1
ASKED = {
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "",
    "PATH_INFO": "/-/ready",
    "SERVER_NAME": "app",
    "SERVER_PORT": "8000",
    "SERVER_PROTOCOL": "HTTP/1.1",
}
ANSWERS_WITHIN_S = 5


def record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack(">BBHHBx", VERSION, kind, 1, len(content), 0) + content


def main() -> str | None:
    """Ask for /-/ready. Return None if the application is ready, and its answer otherwise."""
    params = b"".join(bytes((len(name), len(value))) + f"{name}{value}".encode() for name, value in ASKED.items())
    with socket.create_connection(("127.0.0.1", 8000), ANSWERS_WITHIN_S) as connection:
        begin = record(BEGIN, struct.pack(">HB5x", RESPONDER, 0))
        connection.sendall(begin + record(PARAMS, params) + record(PARAMS) + record(STDIN))
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    return None if b'{"ready":true}' in said.replace(b" ", b"") else said.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())

"""Load an application and leave at once, whatever threads, handlers of signals and exit functions it has.

Usage: python -c <this text> WITHIN_S NO_ADDRESS. After so many seconds, the program says where the application is. For
each host without an address, it prints a line that begins with the word NO_ADDRESS.
"""

import os
import socket
import sys
import threading
import time
import traceback
from typing import Any

within_s, no_address = sys.argv[1:]
unknown: dict[str, None] = {}


def resolve(host: str, *words: Any, resolve: Any = socket.getaddrinfo, **options: Any) -> Any:
    try:
        return resolve(host, *words, **options)
    except socket.gaierror:
        unknown[host] = None
        raise


def give_up(main: int = threading.get_ident(), sleep: Any = time.sleep) -> None:  # the main thread
    sleep(float(within_s))
    traceback.print_stack(sys._current_frames()[main])
    print("It was not loaded within", within_s, "s; the last line above is what it was doing.", file=sys.stderr)
    leave(1)


def leave(code: int, leave: Any = os._exit) -> None:
    for host in unknown:
        print(no_address, host, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    leave(code)


socket.getaddrinfo = resolve
threading.Thread(target=give_up, daemon=True).start()
code = 0
try:
    import own  # noqa: F401
except SystemExit as left:
    print(left.code if isinstance(left.code, str) else f"It called sys.exit({left.code}).", file=sys.stderr)
    code = 1
except BaseException:
    traceback.print_exc()
    code = 1
leave(code)

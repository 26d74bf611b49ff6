"""Load an application and leave at once, whatever threads, handlers of signals and exit functions it has.

Usage: python -c <this text> WITHIN_S NO_ADDRESS LOADED [<text of ask.py>]. LOADED is JSON: ``callable``, ``folder``
(empty: that of start.json) and ``imports``. After WITHIN_S seconds, the program says where the application is. For each
host without an address, it prints a line that begins with the word NO_ADDRESS. If it has the text of ask.py, it asks
the application what routes it has.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

within_s, no_address, loaded, *asks = sys.argv[1:]
asking: dict[str, Any] = {}
unknown: dict[str, None] = {}


def resolve(host: str, *words: Any, resolve: Any = socket.getaddrinfo, **options: Any) -> Any:
    try:
        return resolve(host, *words, **options)
    except socket.gaierror:
        unknown[host] = None
        raise


def give_up(_signal: int, frame: Any) -> None:
    traceback.print_stack(frame, file=said)
    print("It was not loaded within", within_s, "s; the last line above is what it was doing.", file=said)
    leave(1)


def leave(code: int, leave: Any = os._exit) -> None:
    for host in unknown:
        print(no_address, host, file=said)
    for stream in (sys.stdout, sys.stderr, said):
        with suppress(Exception):  # the application may have closed it or put another object in its place
            stream.flush()
    leave(code)


SRV = os.environ.get("LAB_SRV", "/opt/stampede")
said = os.fdopen(os.dup(2), "w")  # an application may close the standard streams
if asks:
    exec(compile(asks[0], "ask.py", "exec"), asking)  # noqa: S102  # before the application prints
socket.getaddrinfo = resolve
# No thread: gevent cannot patch the modules of a process that has several threads.
signal.signal(signal.SIGALRM, give_up)
signal.setitimer(signal.ITIMER_REAL, float(within_s))
faulthandler.dump_traceback_later(float(within_s) + 1, exit=True, file=said)  # it blocks in C, or has its own handler
code = 0
try:
    how, start = json.loads(loaded), json.loads(Path(SRV, "start.json").read_text(encoding="utf-8"))
    here = Path(os.environ.get("LAB_FOLDER", "/opt/application"))
    folder = Path(how["folder"]) if how["folder"] and Path(how["folder"]).is_dir() else here / start["folder"]
    os.chdir(folder)
    os.environ.update(start["environment"])
    imports = [str(folder / each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [str(folder), *how["imports"], *imports, *(each for each in sys.path if each), SRV]
    os.environ["PYTHONPATH"] = os.pathsep.join(imports)
    from stampede_own import load

    application = load(how["callable"])
    if asks:
        asking["tell"](application)
except SystemExit as left:
    print(left.code if isinstance(left.code, str) else f"It called sys.exit({left.code}).", file=said)
    code = 1
except BaseException:
    traceback.print_exc(file=said)
    code = 1
leave(code)

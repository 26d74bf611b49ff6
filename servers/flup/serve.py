"""Start flup with the application that the experiment names: FastCGI from processes (prefork) or from threads.

flup gets the same settings as from Django's runfcgi. flup has no counts of its own, so this program adds them.
"""

import json
import os
import socket
import struct
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from counters import Counters
from flup.server import fcgi, fcgi_fork

ADDRESS = "0.0.0.0", 8000


class Prefork(fcgi_fork.WSGIServer):
    """Forks processes while too few are idle. If no more are allowed, connections wait in the listen queue."""

    def _child(self, sock: Any, parent: Any) -> None:
        self.counters = Counters("served", "ended_beside_a_queue")
        super()._child(sock, parent)
        if queued(sock):
            self.counters.add("ended_beside_a_queue")
        if os.environ["LAB_QUICK_EXIT"] == "true":
            os._exit(0)  # skip the interpreter's shutdown, which nothing needs any more

    def _intHandler(self, *_: Any) -> None:  # noqa: N802  # its name in flup
        self._keepGoing = False  # a fork that is going on swallows the exit
        sys.exit()  # flup's handler waits for a message of a child; children notice that their parent has exited


class Threaded(fcgi.WSGIServer):
    """Starts threads while too few are idle. If no more are allowed, it accepts connections and closes them."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.counters = Counters("served", "closed")
        add_job = self._threadPool.addJob

        def counted(job: Any, **how: Any) -> bool:
            if not (taken := add_job(job, **how)):
                self.counters.add("closed")
            return bool(taken)

        self._threadPool.addJob = counted


def queued(listening: socket.socket) -> int:
    """Return how many connections wait to be accepted: the fifth number after the first eight bytes of tcp_info."""
    info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
    return int(struct.unpack_from("=I", info, 24)[0])


def main() -> None:
    module, name = os.environ["LAB_APP"].split(":")
    application = getattr(import_module(module), name)
    prefork = os.environ["LAB_SERVER"] == "flup-prefork"
    settings = {
        "minSpare": int(os.environ["LAB_MIN_SPARE"]),
        "maxSpare": int(os.environ["LAB_MAX_SPARE"]),
        "maxChildren" if prefork else "maxThreads": int(os.environ["LAB_WORKERS" if prefork else "LAB_THREADS"]),
    }
    Path("/tmp/settings").write_text(json.dumps(settings) + "\n", encoding="utf-8")

    def counted(environ: dict[str, Any], start_response: Any) -> Any:
        try:
            return application(environ, start_response)
        finally:
            server.counters.add("served")

    kind = Prefork if prefork else Threaded
    environ = {"SERVER_SOFTWARE": f"flup6/{version('flup6')}"}
    server = kind(counted, environ=environ, bindAddress=ADDRESS, debug=False, **settings)
    server.run()


if __name__ == "__main__":
    main()

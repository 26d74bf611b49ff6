"""How the workers of a server queue requests: all that theory needs to know of the server."""

from typing import Any

from stampede.records.model import Record

GTHREAD_CONNECTIONS = 1000
"""How many connections a gthread worker of gunicorn holds if its settings do not say it."""
EVEN, FORK_ORDER = "even", "fork-order"


class Queueing(Record):
    """How one worker queues requests.

    ``threads`` is how many requests it serves at once, ``max_connections`` how many it accepts; None: without a limit.
    On a ``loop``, requests that compute or call another service hold up all others of the worker; ``blocks_loop``:
    requests that sleep do, too. A loop that ``sweeps_backlog`` accepts all connections that wait when it wakes.
    ``race`` says who wins a connection that several workers want: the workers in the order of forking
    (``fork-order``), or all with the same chance (``even``); a worker that ``hesitates`` lets idle workers win.
    ``keeps_idle``: the balancer may keep idle connections open; a worker that ``closes_idle_when_full`` closes them
    when its last thread becomes busy. ``missing`` is what theory lacks to simulate such workers.
    """

    threads: int | None = None
    max_connections: int | None = None
    loop: bool = False
    blocks_loop: bool = False
    sweeps_backlog: bool = False
    race: str = FORK_ORDER
    hesitates: bool = False
    keeps_idle: bool = False
    closes_idle_when_full: bool = False
    missing: str | None = None

    @property
    def has_inner_queue(self) -> bool:
        """Whether a busy worker accepts requests, so that they wait where no other worker can take them."""
        return self.threads is None or self.max_connections is None or self.max_connections > self.threads


_LATER_APPS = ("fastapi-blocking", "fastapi-to-thread")


def queueing_of_schema_1(settings: dict[str, Any]) -> Queueing | None:
    """Return how the servers of schema 1 queue, whose records do not say it; None: it is not known.

    ``settings`` are those of the variant. A server that is not here has always recorded its queueing.
    """
    server, threads = settings.get("server"), settings.get("threads")
    if settings.get("app") in _LATER_APPS or settings.get("health", "endpoint") != "endpoint":
        return None
    found: dict[str, Any]
    match server:
        case "gunicorn-gthread" | "python314-gunicorn":
            of = settings.get("worker_class", "gthread")
            closes = of.endswith("idle_thread.IdleThreadWorker")  # gunicorn_idle_thread since it is a package
            found = {
                "threads": threads,
                "max_connections": threads if closes else settings.get("worker_connections", GTHREAD_CONNECTIONS),
                "race": EVEN if of.endswith("RandomAccept") else FORK_ORDER,
                "hesitates": of == "acceptors.BusyAccept",
                "keeps_idle": bool(settings.get("keepalive_s")),
                "closes_idle_when_full": closes,
            }
        case "gunicorn-sync":
            found = {"threads": 1, "max_connections": 1}
        case "uwsgi" if settings.get("router", "none") == "none":
            found = {"threads": threads, "max_connections": threads}
        case "gunicorn-gevent" | "gunicorn-eventlet" | "gunicorn-tornado":
            found = {"loop": True, "blocks_loop": server == "gunicorn-tornado", "race": EVEN}
        case "gunicorn-asgi" | "gunicorn-uvicorn" | "uvicorn" | "hypercorn" | "granian":
            missing = "Django on an event loop" if str(settings.get("app")).startswith("django") else None
            found = {"threads": threads, "loop": threads is None, "sweeps_backlog": server != "granian",
                     "keeps_idle": bool(settings.get("keepalive_s")), "missing": missing}  # fmt: skip
        case "python314-granian":
            found = {"threads": threads, "race": EVEN}
        case "flup-prefork" | "flup-threaded":
            found = {"threads": threads, "missing": f"how {server} serves"}
        case _:
            return None
    return Queueing(**found)

"""The ways to share requests among workers: who accepts a connection, and the balancer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_REPLICAS = 32
"""How many containers of a server the lab starts at most."""


@dataclass(frozen=True)
class Kind:
    """One way to share requests among workers. ``of`` returns the settings for so many workers with so many threads."""

    name: str
    says: str
    why: str
    of: Callable[[int, int], dict[str, Any]]
    alone: bool = False
    """Whether it is for one worker only; every other kind but uWSGI is for several."""


def gthread(workers: int, threads: int, **more: object) -> dict[str, Any]:
    """Return the settings of gunicorn's thread workers."""
    return {"server": "gunicorn-gthread", "workers": workers, "threads": threads, **more}


KINDS_OF_WAYS = (
    Kind("one-process", "one process",
         "gunicorn: all threads take requests from one queue, and share one interpreter lock. If the process dies, all "
         "its requests fail.",
         gthread, alone=True),
    Kind("limit", "limit = threads",
         "gunicorn, worker_connections = threads: a worker with no free thread accepts nothing, so a request waits "
         "where any worker can take it.",
         lambda workers, threads: gthread(workers, threads, worker_connections=threads)),
    Kind("idle-thread", "IdleThreadWorker",
         "gunicorn with servers/gunicorn/idle_thread.py: a worker without a free thread accepts nothing, as with the "
         "limit, and connections can be kept alive.",
         lambda workers, threads: gthread(workers, threads, worker_class="idle_thread.IdleThreadWorker")),
    Kind("uwsgi", "uWSGI",
         "uWSGI: a thread accepts a connection when it is free, so a request waits where any worker can take it.",
         lambda workers, threads: {"server": "uwsgi", "workers": workers, "threads": threads}),
    Kind("least-conn", "nginx least_conn",
         "A gunicorn for each worker: nginx passes a request to the worker that has the fewest requests.",
         lambda workers, threads: gthread(1, threads, replicas=workers, balance="least_conn")),
    Kind("queue", "HAProxy maxconn",
         "A gunicorn for each worker: HAProxy keeps a request until some worker has a free thread.",
         lambda workers, threads: gthread(
             1, threads, replicas=workers, balancer="haproxy", balance="least_conn", max_conns=threads)),
    Kind("reuse-port", "reuse_port",
         "gunicorn: the kernel chooses a worker without knowing which worker is busy.",
         lambda workers, threads: gthread(workers, threads, reuse_port=True)),
    Kind("shared", "shared socket",
         "gunicorn: a busy worker accepts requests too, and no other worker can take them from it.", gthread),
)  # fmt: skip
"""In the order in which ways that are equally fast and need the same memory are named."""

KINDS_OF_USER_SERVICES = (
    Kind("map-socket", "map-socket",
         "uWSGI, a listening socket for each process: nginx passes a request to the process that has the fewest "
         "requests.",
         lambda workers, threads: {"server": "uwsgi", "workers": workers, "threads": threads}),
    Kind("sync", "sync",
         "gunicorn: a process for each thread, and no threads; a process accepts a connection when it is free.",
         lambda workers, threads: {"server": "gunicorn-sync", "workers": workers * threads}),
    Kind("more-workers", "more workers",
         "More processes: each has an interpreter lock, an event loop and pools of its own, and can use one more "
         "processor. Each needs memory.", gthread),
    Kind("more-threads", "more threads", "Twice the threads in each process: more requests can wait at the same time.",
         gthread),
    Kind("threads", "gthread",
         "gunicorn's class gthread: a request that blocks or computes holds up one thread, and not all requests of its "
         "worker.", gthread),
)  # fmt: skip
"""Further ways, which only somebody's own application is served in. The last three lift a limit that was found."""


def says(way: str) -> str:
    """Return in words how a way with a name such as limit-4x2 serves."""
    kind = way.rpartition("-")[0].removeprefix("advised-")
    said = next((one.says for one in (*KINDS_OF_WAYS, *KINDS_OF_USER_SERVICES) if one.name == kind), None)
    return way if said is None else f"advised: {said}" if way.startswith("advised-") else said

"""The kinds of options to share requests among workers: who accepts a connection, and the balancer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stampede.records.queueing import GTHREAD_CONNECTIONS, Queueing

MOST_REPLICAS = 32
"""How many containers of a server the lab starts at most."""


@dataclass(frozen=True)
class OptionKind:
    """A way to share requests among workers.

    ``serves`` says how requests get to a thread, ``change`` what to set for it, with numbers in braces, and ``cost``
    what that costs beside today's way. ``settings`` returns the settings of a variant with so many workers and threads.
    If a worker ``queues_inside``, it accepts requests although it is busy. The option is for one worker only
    (``for_single_worker``), or for several.
    """

    name: str
    label: str
    serves: str
    settings: Callable[[int, int], dict[str, Any]]
    queues_inside: bool = True
    for_single_worker: bool = False
    cost: str = ""
    change: str = ""

    @property
    def reason(self) -> str:
        """How the option serves requests, and what it costs."""
        return f"{self.serves} Cost: {self.cost}." if self.cost else self.serves

    def queueing(self, threads: int) -> Queueing:
        """Return how one worker with so many threads queues."""
        return Queueing(threads=threads, max_connections=GTHREAD_CONNECTIONS if self.queues_inside else threads)


def gthread(workers: int, threads: int, **more: object) -> dict[str, Any]:
    """Return the settings of gunicorn's thread workers."""
    return {"server": "gunicorn-gthread", "workers": workers, "threads": threads, **more}


OPTION_KINDS = (
    OptionKind("one-process", "one process",
         "All threads are in one process: they take requests from one queue.",
         gthread, for_single_worker=True, cost="one interpreter lock; if the process dies, all its requests fail",
         change="workers = 1, threads = {total}"),
    OptionKind("limit", "limit = threads",
         "gunicorn, worker_connections = threads: a worker with no free thread accepts nothing, so a request waits "
         "where any worker can take it.",
         lambda workers, threads: gthread(workers, threads, worker_connections=threads), queues_inside=False,
         cost="no keep-alive; silent clients keep others out",
         change="worker_connections = {threads} (gunicorn 24 or later)"),
    OptionKind("idle-thread", "IdleThreadWorker",
         "gunicorn with the package gunicorn-idle-thread: a worker without a free thread accepts nothing, as with the "
         "limit, but connections can be kept alive.",
         lambda workers, threads: gthread(workers, threads, worker_class="gunicorn_idle_thread.IdleThreadWorker"),
         queues_inside=False, cost="busy workers close idle connections",
         change="worker_class = gunicorn_idle_thread.IdleThreadWorker (pip install gunicorn-idle-thread)"),
    OptionKind("uwsgi", "uWSGI",
         "uWSGI: a thread accepts a connection when it is free, so a request waits where any worker can take it.",
         lambda workers, threads: {"server": "uwsgi", "workers": workers, "threads": threads}, queues_inside=False,
         cost="another server",
         change="uWSGI -p {workers} --threads {threads}"),
    OptionKind("least-conn", "nginx least_conn",
         "A server for each worker: nginx passes a request to the worker that has the fewest requests.",
         lambda workers, threads: gthread(1, threads, replicas=workers, balance="least_conn"),
         cost="a master or a container for each worker",
         change="nginx least_conn"),
    OptionKind("queue", "HAProxy maxconn",
         "A server for each worker: HAProxy keeps a request until some worker has a free thread.",
         lambda workers, threads: gthread(
             1, threads, replicas=workers, balancer="haproxy", balance="least_conn", max_conns=threads),
         cost="another balancer",
         change="HAProxy maxconn {threads}"),
    OptionKind("reuse-port", "reuse_port",
         "gunicorn: the kernel chooses a worker without knowing which worker is busy.",
         lambda workers, threads: gthread(workers, threads, reuse_port=True),
         change="reuse_port = True"),
    OptionKind("shared", "shared socket",
         "gunicorn: a busy worker accepts requests, and no other worker can take them from it.", gthread,
         change="gunicorn's defaults"),
)  # fmt: skip
"""In the order in which options that are equally fast and need the same memory are named."""

MORE_THREADS = OptionKind(
    "more-threads", "more threads",
    "Twice the threads in each process: more requests can be at work at the same time.",
    gthread, cost="memory, and more connections to a database", change="threads = {twice}",
)  # fmt: skip

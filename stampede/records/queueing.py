"""How the workers of a server queue requests: all that theory needs to know of the server."""

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

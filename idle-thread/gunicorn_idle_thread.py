"""A gunicorn worker that accepts a connection only while one of its threads is idle.

    gunicorn --worker-class gunicorn_idle_thread.IdleThreadWorker --workers 4 --threads 2 app:app

gunicorn's gthread worker accepts connections although all of its threads are busy. Each request on such a connection
waits, while other workers may have idle threads. This worker leaves the connection to them. ``worker_connections =
threads`` does so, too, but then no connection is kept alive, and silent clients keep others out. This worker counts
busy threads instead of connections:

- A new connection gets a thread once its client has sent something; for 20 ms, a thread is held free for it. If the
  client says nothing for half a minute, the connection is closed.
- A connection that is kept alive needs no thread while it is idle. But only this worker can serve its next request. So
  when the last idle thread gets work, the worker closes its idle connections, and their clients connect again.

Leave ``worker_connections`` at its default. The README of gunicorn-idle-thread names the limits.
"""

import selectors
import socket
import time
from functools import partial
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

SPEAKS_WITHIN_S = 0.02  # how long a thread is held free for a new connection; a proxy sends its request sooner
SILENT_FOR_S = 30.0  # how long a new connection may stay silent before it is closed


class IdleThreadWorker(ThreadWorker):
    """gthread with other rules. All methods run in the main thread of the worker, so no lock is needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.busy = 0  # requests in the pool, running or queued, and threads that are held free
        self.expected: dict[Any, float] = {}  # new connections for which a thread is held free, and until when
        self.silent: dict[Any, float] = {}  # other connections that never sent anything, and when they are closed

    @property
    def all_busy(self) -> bool:
        """Whether no thread is idle."""
        return bool(self.busy >= self.cfg.threads)

    def set_accept_enabled(self, enabled: bool) -> None:
        """Accept connections only while a thread is idle. gthread's main loop asks again in every turn."""
        super().set_accept_enabled(enabled and not self.all_busy)

    def accept(self, listener: Any) -> None:
        """Accept a connection, unless another listener's connection has taken the last idle thread just now."""
        if not self.all_busy:
            super().accept(listener)

    def enqueue_req(self, conn: Any) -> None:
        """Give a connection to the pool. If it is new and still silent, wait for its first byte without a thread."""
        sent = b"a request" if conn.initialized else _sent(conn)
        if sent == b"":  # the client has gone
            self.nr_conns -= 1
            conn.close()
            return
        self.busy += 1
        if sent is None:
            conn.sock.setblocking(False)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_first_byte, conn))
            self.expected[conn] = time.monotonic() + SPEAKS_WITHIN_S
        else:
            conn.data_ready = True  # from 25.2 on, a thread would wait for the first byte
            super().enqueue_req(conn)
        if self.all_busy:
            self.set_accept_enabled(False)
            if sent:
                self.close_idle()

    def on_client_socket_readable(self, conn: Any, client: Any) -> None:
        """Give a kept connection to the pool, or close it without a thread if its client has closed it."""
        if _sent(conn) == b"":
            self.keepalived_conns.remove(conn)
            self.close(conn)
        else:
            super().on_client_socket_readable(conn, client)

    def on_first_byte(self, conn: Any, client: Any) -> None:
        """Give a new connection to the pool when its client has sent something."""
        self.poller.unregister(client)
        if self.expected.pop(conn, None):
            self.busy -= 1
        self.silent.pop(conn, None)
        self.enqueue_req(conn)

    def finish_request(self, conn: Any, fs: Any) -> None:
        """Note that a thread is done. gthread then closes the connection or keeps it alive."""
        self.busy -= 1
        super().finish_request(conn, fs)
        if self.all_busy:
            self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that are kept alive, except those that have just sent a request."""
        if not self.alive:  # gthread closes them soon, and answers what their clients send meanwhile
            return
        kept = list(self.keepalived_conns)
        self.keepalived_conns.clear()
        for conn in kept:
            if _sent(conn) is not None:  # the poller tells of it
                self.keepalived_conns.append(conn)
            else:
                self.close(conn)

    def close(self, conn: Any) -> None:
        """Close a connection that waits in the poller."""
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Wake up in time to give up a thread that is held free."""
        super().wait_for_and_dispatch_events(min(timeout, SPEAKS_WITHIN_S) if self.expected else timeout)

    def murder_keepalived(self, *args: Any, **kwargs: Any) -> None:
        """Close expired connections, and hold no thread free for connections that stay silent."""
        super().murder_keepalived(*args, **kwargs)
        now = time.monotonic()
        for conn in [one for one, until in self.expected.items() if until <= now]:
            if _sent(conn) is not None:  # since the poller last looked
                self.on_first_byte(conn, conn.sock)
            else:
                del self.expected[conn]
                self.busy -= 1
                self.silent[conn] = now + SILENT_FOR_S
        while self.silent and (conn := next(iter(self.silent))) and (self.silent[conn] <= now or not self.alive):
            if _sent(conn):
                self.on_first_byte(conn, conn.sock)
            else:
                del self.silent[conn]
                self.close(conn)


def _sent(conn: Any) -> bytes | None:
    """Return a byte that the client has sent and nobody has read; None: nothing; empty: it has closed the connection.

    On a TLS connection this is a byte of the encrypted stream.
    """
    try:
        return socket.socket.recv(conn.sock, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:  # the connection was reset
        return b""

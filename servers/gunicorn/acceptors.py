"""gunicorn's workers with a changed ``accept``: they count their attempts to accept, or they wait before an attempt.

Releases up to 23 call the thread worker's ``accept(server, listener)``; later releases call ``accept(listener)``. The
listener is always the last argument. RandomAccept and BusyAccept make the changes of the VISASQ article in subclasses;
gunicorn's own code is unchanged.
"""

import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from counters import Counters
from gunicorn.workers.gthread import ThreadWorker
from gunicorn.workers.sync import SyncWorker

RANDOM_SLEEP_S = 0.010
BUSY_SLEEP_S = 0.001


class CountedListener:
    """A listening socket that counts the attempts to accept a connection, and how many succeeded and failed."""

    def __init__(self, listener: Any, counters: Counters) -> None:
        self._listener = listener
        self._counters = counters

    def accept(self) -> Any:
        self._counters.add("accept_attempts")
        try:
            accepted = self._listener.accept()
        except BlockingIOError:  # EAGAIN: another worker accepted the connection
            self._counters.add("accept_failures")
            raise
        self._counters.add("accepted")
        return accepted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


class Counted:
    """Counts the attempts to accept. gunicorn.conf.py creates the counters of each worker."""

    counted = ("accept_attempts", "accept_failures", "accepted")
    counters: Counters

    def accept(self, *args: Any) -> None:
        *before, listener = args
        super().accept(*before, CountedListener(listener, self.counters))  # type: ignore[misc]  # gunicorn's


class CountedThreads(Counted, ThreadWorker):
    """The released thread worker, counted."""


class CountedSync(Counted, SyncWorker):
    """The released sync worker, counted."""


class RandomAccept(ThreadWorker):
    """Sleeps uniform(0, 10 ms) before every attempt to accept, so that chance decides which worker is first."""

    def accept(self, *args: Any) -> None:
        time.sleep(random.uniform(0, RANDOM_SLEEP_S))
        super().accept(*args)


class CountedRandomAccept(RandomAccept, CountedThreads):
    """RandomAccept, counted."""


class RememberingPool(ThreadPoolExecutor):
    """A thread pool that remembers which of its tasks are running or pending."""

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers)
        self.unfinished: set[Future[Any]] = set()

    def submit(self, *args: Any, **kwargs: Any) -> "Future[Any]":
        future = super().submit(*args, **kwargs)
        self.unfinished.add(future)
        future.add_done_callback(self.unfinished.discard)
        return future


class BusyAccept(ThreadWorker):
    """Sleeps 1 ms before an attempt to accept if all threads of the worker are busy."""

    def get_thread_pool(self) -> RememberingPool:
        self.pool = RememberingPool(self.cfg.threads)
        return self.pool

    def accept(self, *args: Any) -> None:
        if len(self.pool.unfinished) >= self.cfg.threads:
            time.sleep(BUSY_SLEEP_S)
        super().accept(*args)

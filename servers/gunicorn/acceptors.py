"""Workers that count or choose when they accept, on top of the released gunicorn.

``accept`` is the only method replaced. Releases up to 23 call the thread worker's ``accept(server, listener)``, later
ones ``accept(listener)``: the listener is the last argument in both. RandomAccept and BusyAccept are the VISASQ
article's changes, made without touching gunicorn's code.
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
    """A listening socket that counts what becomes of every attempt to accept from it."""

    def __init__(self, listener: Any, counters: Counters) -> None:
        self._listener = listener
        self._counters = counters

    def accept(self) -> Any:
        self._counters.add("accept_attempts")
        try:
            accepted = self._listener.accept()
        except BlockingIOError:  # EAGAIN: another worker was faster
            self._counters.add("accept_failures")
            raise
        self._counters.add("accepted")
        return accepted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


class Counted:
    """Count attempts to accept; gunicorn.conf.py makes the counters of each worker."""

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
    """Sleep uniform(0, 10 ms) before every attempt to accept, so that chance decides the race."""

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
    """Sleep 1 ms before an attempt to accept, but only when every thread has something to do already."""

    def get_thread_pool(self) -> RememberingPool:
        self.pool = RememberingPool(self.cfg.threads)
        return self.pool

    def accept(self, *args: Any) -> None:
        if len(self.pool.unfinished) >= self.cfg.threads:
            time.sleep(BUSY_SLEEP_S)
        super().accept(*args)

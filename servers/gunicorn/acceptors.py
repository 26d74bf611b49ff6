"""Thread workers that choose when to accept, on top of the released gunicorn.

Both are the VISASQ article's changes, made without touching gunicorn's code: ``accept`` is the only method
replaced. Releases up to 23 call ``accept(server, listener)``, later ones ``accept(listener)``.
"""

import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

RANDOM_SLEEP_S = 0.010
BUSY_SLEEP_S = 0.001


class RandomAccept(ThreadWorker):
    """Sleep uniform(0, 10 ms) before every attempt to accept, so that chance decides the race."""

    def accept(self, *args: Any) -> None:
        time.sleep(random.uniform(0, RANDOM_SLEEP_S))
        super().accept(*args)


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

"""Workers that run an event loop, where gunicorn's or uvicorn's own lack something the lab needs."""

import os
from typing import Any, ClassVar

from counters import Counters
from gunicorn.workers.gtornado import TornadoWorker
from uvicorn_worker import UvicornWorker


class CountedTornado(TornadoWorker):
    """The released tornado worker, which calls no hook after a request."""

    counters: Counters

    def handle_request(self) -> None:
        super().handle_request()
        self.counters.add("served")


class Uvicorn(UvicornWorker):
    """uvicorn's worker on the event loop that the experiment names."""

    CONFIG_KWARGS: ClassVar[dict[str, Any]] = {"loop": os.environ["LAB_LOOP"], "http": "httptools"}

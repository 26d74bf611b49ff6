"""Workers that run an event loop, where gunicorn's or uvicorn's own lack something the lab needs."""

import os
from typing import Any, ClassVar

from counters import Counters
from gunicorn.workers.gtornado import TornadoWorker
from uvicorn_worker import UvicornWorker


class CountedTornado(TornadoWorker):
    """The released tornado worker, which calls no hook after a request."""

    counters: Counters

    def load_wsgi(self) -> None:
        super().load_wsgi()
        app = self.wsgi

        def counted(*request: Any) -> Any:
            answer = app(*request)
            self.counters.add("served")
            return answer

        self.wsgi = counted


class Uvicorn(UvicornWorker):
    """uvicorn's worker on the event loop that the experiment names."""

    CONFIG_KWARGS: ClassVar[dict[str, Any]] = {"loop": os.environ["LAB_LOOP"], "http": "httptools"}

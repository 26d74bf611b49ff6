"""Event-loop workers of gunicorn and uvicorn, with what the lab needs in addition."""

import os
from typing import Any, ClassVar

from counters import Counters
from gunicorn.workers.gtornado import TornadoWorker
from uvicorn_worker import UvicornWorker


class CountedTornado(TornadoWorker):
    """The released tornado worker, counted here because it does not call gunicorn's hook after a request."""

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

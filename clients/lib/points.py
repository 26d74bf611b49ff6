"""The points of a client, in the format of k6's JSON output: two points for each request, as in k6/lib/request.js.

``request_sent`` is written before the request and ``request_answered`` after it, both with the same ``id``. A request
that the end of the run cuts off has only ``request_sent``. All values of the metadata are strings.
"""

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

AS_GZIP = 31
ASKED_MS = 0
"""The service time of every request of a client: none."""


class Points:
    """A points file of requests of one class.

    The file has its final name from the start, and is complete at the end of the ``with`` block, also after a signal.
    If a client is killed, its file is cut short, and the lab refuses the file. So a killed client is never
    mistaken for a client that sent nothing.
    """

    def __init__(self, path: Path, request: str) -> None:
        self._request = request
        self._zip = zlib.compressobj(wbits=AS_GZIP)
        self._file = path.open("wb")
        try:
            self._file.write(self._zip.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()
        except OSError:
            with suppress(OSError):
                self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._file.write(self._zip.flush())

    def sent(self, request_id: str) -> None:
        """Write that a request is about to be sent."""
        self._write("request_sent", 1, {"id": request_id, "asked_ms": str(ASKED_MS)})

    def answered(self, request_id: str, duration_ms: float, outcome: Mapping[str, str]) -> None:
        """Write the outcome of a request that ``sent`` announced: which worker served it and when, or the error."""
        self._write("request_answered", duration_ms, {"id": request_id, "asked_ms": str(ASKED_MS), **outcome})

    def _write(self, metric: str, value: float, metadata: Mapping[str, str]) -> None:
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        data = {"time": time, "value": value, "tags": {"request": self._request}, "metadata": metadata}
        line = json.dumps({"metric": metric, "type": "Point", "data": data}) + "\n"
        self._file.write(self._zip.compress(line.encode()))

"""What a client has done, in the lines of k6's JSON output: two points for each request, as k6/lib/request.js does.

``request_sent`` is written before and ``request_answered`` after, joined by ``id``; a request that the end of the run
cuts off has only the first. All metadata are texts.
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
"""What every request of a client asks for: no work at all."""


class Points:
    """A points file of requests of one class.

    It is written under its own name from the start and is complete when the block ends, by a signal too. What a client
    leaves that was killed is cut short, and analysis.read.rows refuses it: a lost client never passes for an idle one.
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
        """Write how a request went that ``sent`` has announced: who served it and when, or the error."""
        self._write("request_answered", duration_ms, {"id": request_id, "asked_ms": str(ASKED_MS), **outcome})

    def _write(self, metric: str, value: float, metadata: Mapping[str, str]) -> None:
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        data = {"time": time, "value": value, "tags": {"request": self._request}, "metadata": metadata}
        line = json.dumps({"metric": metric, "type": "Point", "data": data}) + "\n"
        self._file.write(self._zip.compress(line.encode()))

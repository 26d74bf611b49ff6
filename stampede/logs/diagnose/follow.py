"""Growing logs, diagnosed again and again: a line each time, and the same numbers for Prometheus."""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from stampede.errors import WrongUse
from stampede.foreign import LONGEST_LINE, open_regular, unreadable
from stampede.logs.diagnose.diagnosis import Asked, Diagnosis, diagnose_logs
from stampede.loopback import Response
from stampede.report.wording import percent

WINDOW_S = 600
"""So many seconds of the logs are diagnosed each time, by when their lines were read. It bounds the memory."""
MOST_LINES, MOST_BYTES = 500_000, 1 << 27
"""At most so many lines of each log are diagnosed, the newest, and at most so many bytes."""
_QUANTILES = (("0.5", "wait_p50_s"), ("0.9", "wait_p90_s"), ("0.99", "wait_p99_s"))


class Tail:
    """The lines that are added to a file. A file that is replaced, or that shrinks, is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: IO[bytes] | None = None
        self._rest = b""
        self._bytes = 0
        self.lines: deque[tuple[float, bytes]] = deque()

    def read(self, now: float) -> None:
        """Read what was added, and forget the lines that were read before the window, or that are too many.

        Raise WrongUse if the file is there and cannot be read.
        """
        try:
            if self._stream:
                self._add(now)
            with suppress(FileNotFoundError):
                if not self._stream or self._is_another():
                    if self._stream:
                        self._stream.close()
                    self._stream, self._rest = open_regular(self.path), b""
                    self._add(now)
        except OSError as error:
            raise unreadable(self.path, error) from None
        while self.lines and (
            self.lines[0][0] < now - WINDOW_S or len(self.lines) > MOST_LINES or self._bytes > MOST_BYTES
        ):
            self._bytes -= len(self.lines.popleft()[1])

    def _is_another(self) -> bool:
        """Whether the path names another file now, or the file has shrunk."""
        assert self._stream
        named, read = self.path.stat(), os.fstat(self._stream.fileno())
        return named.st_ino != read.st_ino or named.st_size < self._stream.tell()

    def _add(self, now: float) -> None:
        assert self._stream
        newest = os.fstat(self._stream.fileno()).st_size - MOST_BYTES
        skips = self._stream.tell() < newest
        if skips:
            self._stream.seek(newest)
        *lines, self._rest = ((b"" if skips else self._rest) + self._stream.read(MOST_BYTES)).split(b"\n")
        self._rest = self._rest[: LONGEST_LINE + 1]
        for line in lines[skips:]:  # the first of them is half a line
            self.lines.append((now, line[: LONGEST_LINE + 1]))
            self._bytes += len(self.lines[-1][1])


def follow_logs(asked: Asked, every_s: float) -> Iterator[tuple[str, Diagnosis | None]]:
    """Yield after each period a line that says what was found, and the diagnosis; None: the logs say nothing yet."""
    tails = [Tail(path) for path in asked.paths]
    with TemporaryDirectory() as temporary:
        copies = {tail.path: Path(temporary) / str(number) / tail.path.name for number, tail in enumerate(tails)}
        while True:
            for tail in tails:
                tail.read(time.monotonic())
                copies[tail.path].parent.mkdir(exist_ok=True)
                copies[tail.path].write_bytes(b"".join(line + b"\n" for _, line in tail.lines))
            yield _of_window(asked.of(copies))
            time.sleep(every_s)


def _of_window(asked: Asked) -> tuple[str, Diagnosis | None]:
    at = f"{datetime.now(UTC):%H:%M:%S}"
    try:
        found = diagnose_logs(asked)
    except WrongUse as error:
        return f"{at} {error.message}", None
    findings = found.findings
    worst = max(findings.classes, key=lambda each: each.wait_p99_s)
    waited, avoidably = percent(findings.waited), percent(findings.waited_avoidably)
    line = f"{at} {len(found.requests):,} requests; waited more than 50 ms: {waited}, avoidably: {avoidably}; "
    return f"{line}p99 of {worst.name}: {1000 * worst.wait_p99_s:.0f} ms", found


def prometheus_text(found: Diagnosis | None) -> str:
    """Return a diagnosis in the text format of Prometheus (prometheus.io, exposition formats)."""
    if not found:
        return ""
    findings, lines = found.findings, ["# TYPE stampede_queueing_delay_seconds gauge"]
    for each in findings.classes:
        route = each.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += [f'stampede_queueing_delay_seconds{{route="{route}",quantile="{quantile}"}} {getattr(each, name):.6f}'
                  for quantile, name in _QUANTILES]  # fmt: skip
    gauges = {
        "stampede_requests": len(found.requests), "stampede_waited_share": findings.waited,
        "stampede_avoidable_wait_share": findings.waited_avoidably, "stampede_threads": found.capacity.total,
        "stampede_busy_threads": float(findings.load[-1]),
    }  # fmt: skip
    for name, value in gauges.items():
        lines += [f"# TYPE {name} gauge", f"{name} {value:.6g}"]
    return "\n".join(lines) + "\n"


def answer_prometheus(found: Sequence[Diagnosis | None], path: str) -> Response | None:
    """Return what Prometheus is answered, of the last diagnosis."""
    return Response(prometheus_text(found[-1] if found else None), "text/plain") if path == "/metrics" else None

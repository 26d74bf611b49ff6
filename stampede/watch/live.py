"""The lanes of a run while it is measured: a page on this machine, which reads what the load generators write."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from stampede.evaluate.metrics.workers import labels
from stampede.loopback import Response, Stage, read_whole, serving
from stampede.records.folder import BadRun, read_run
from stampede.records.run import Run, VariantRecord
from stampede.report.page import render, script_json
from stampede.report.timeline.load import COLOURS, longest_first

_SCRIPTS = ("trial.js", "pens.js", "draw.js", "live.js")
MOST_AT_ONCE = 8 * 2**20
"""The bytes of each file of points that are read at once."""
MOST_KEPT = 200_000
"""The rows that a page can still ask for. A page that is opened later than that misses older requests."""


class _Trial:
    """A trial that is being measured: the files that its load generators write, and who has served its requests."""

    def __init__(self, variant: VariantRecord, part: Path, place: int) -> None:
        self.variant = variant
        self.part = part
        self.place = place
        self.files: dict[Path, BinaryIO] = {}
        self.unfinished: dict[Path, bytes] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.sent: dict[int, float] = {}
        self.workers: set[str] = set()

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Yield each new line of the points with the name of its file."""
        with suppress(FileNotFoundError):  # the trial may end meanwhile
            for path in self.part.glob("points*.json"):
                if path not in self.files:  # an open file can be read to its end even after the trial has ended
                    self.files[path] = path.open("rb")
        for path, file in self.files.items():
            *whole, rest = (self.unfinished.get(path, b"") + file.read(MOST_AT_ONCE)).split(b"\n")
            self.unfinished[path] = rest
            yield from ((path.name, line) for line in whole)


class _Row(NamedTuple):
    """What is known of a request. Times are in ms since the first request of the batch; None: not known yet.

    ``number`` is the same in all rows of a request. ``trial`` is the place of its trial.
    """

    trial: int
    number: int
    request: str
    sent: float
    began: float | None = None
    ended: float | None = None
    answered: float | None = None
    worker: str | None = None
    thread: int | None = None
    error: str | None = None


class LiveFeed:
    """What a page has to know about the latest run of an experiment, as the run goes on."""

    def __init__(self, runs: Path, clock: Callable[[], float] = time.time) -> None:
        """Take the folder with the experiment's runs, and the clock of the load generators."""
        self._runs = runs
        self._older = {path.name for path in runs.glob("*")}
        self._clock = clock
        self._lock = threading.RLock()
        self._run: Run | None = None
        self._parts: set[Path] = set()
        self._trials: list[_Trial] = []
        self._classes: dict[str, float] = {}
        self._rows: list[_Row] = []
        self._dropped = 0
        self._batch = int(1000 * time.time())  # a page that is still open after another run knows none of these numbers
        self._first_s: float | None = None
        self._now_s = 0.0
        self.stage = Stage()

    def since(self, batch: int, after: int) -> dict[str, Any]:
        """Return what a page does not know yet that knows the first ``after`` rows of a batch."""
        with self._lock:
            self._look()
            known = after - self._dropped if batch == self._batch else 0
            rows = self._rows[max(0, known) :]
            there = [trial.variant.name for trial in self._trials]
            asked = [claim.value.variant for claim in self._run.telling_claims] if self._run else []
            return {
                "batch": self._batch,
                "after": self._dropped + len(self._rows),
                "now": 1000 * (self._now_s - (self._first_s or self._now_s)),
                "stage": self.stage.text,
                "trials": [
                    {
                        "variant": trial.variant.name,
                        "workers": 0 if trial.variant.elastic else trial.variant.workers,
                        "threads": None if trial.variant.elastic else trial.variant.threads,
                        "labels": labels(trial.workers),
                    }
                    for trial in self._trials
                ],
                # shown first: the variants of the first claims, as in the report
                "pair": [*dict.fromkeys(name for name in [*asked, *there] if name in there)][:2],
                "classes": longest_first(self._classes),
                "rows": rows,
            }

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for file in [file for trial in self._trials for file in trial.files.values()]:
                file.close()
            self._trials = []

    def _look(self) -> None:
        """Find the trials that are measured now, and read what was written since."""
        runs = [path for path in self._runs.glob("*/run.json") if path.parent.name not in {*self._older, "latest"}]
        folder = max(runs).parent if runs else None
        parts = {*folder.glob("*/*/.*.part")} if folder else set()
        if folder and parts and not self._parts & parts:  # another batch
            self.close()
            self._run = None
            with suppress(BadRun):
                self._run = read_run(folder)
            self._parts, self._classes = set(), {}
            self._rows, self._dropped, self._first_s = [], 0, None
            self._batch += 1
        self._parts |= parts
        if self._run:
            known = {trial.part for trial in self._trials}
            for part in sorted(parts - known):
                if any(part.glob("points*.json")):
                    self._trials.append(_Trial(self._run.variant(part.parents[1].name), part, len(self._trials)))
        if parts and self.stage.is_loading:
            self._now_s = self._clock()
        for trial in self._trials:
            for file, line in trial.lines():
                self._take(trial, file, line)
        if len(self._rows) > MOST_KEPT:
            self._dropped += len(self._rows) - MOST_KEPT
            self._rows = self._rows[-MOST_KEPT:]

    def _take(self, trial: _Trial, file: str, line: bytes) -> None:
        """Add what a line says of a request, if it is one of the two points that the load scripts write for each."""
        if not line.startswith(_OURS):
            return
        point = json.loads(line)
        data, metric = point["data"], point["metric"]
        if point["type"] != "Point":
            return
        known, at_s = data["metadata"], datetime.fromisoformat(data["time"]).timestamp()
        if self._first_s is None:
            self._first_s = at_s

        def ms(time_s: str | float | None) -> float | None:
            return None if time_s is None else round(1000 * (float(time_s) - (self._first_s or 0.0)), 1)

        request, asked_ms = data["tags"]["request"], float(known.get("asked_ms", 0))
        self._classes[request] = max(asked_ms, self._classes.get(request, 0))
        number = trial.numbers.setdefault((file, known["id"]), len(trial.numbers) + 1)
        if metric == "request_sent":
            trial.sent[number] = ms(at_s) or 0.0
            self._rows.append(_Row(trial.place, number, request, trial.sent[number]))
            return
        worker = None if known.get("error") else known.get("worker")
        if worker:
            trial.workers.add(worker)
        self._rows.append(
            _Row(
                trial.place, number, request, trial.sent.pop(number, ms(at_s) or 0.0),
                ms(known.get("began")) if worker else None, ms(known.get("ended")) if worker else None, ms(at_s),
                worker, int(known["thread"]) if worker else None, known.get("error"),
            )
        )  # fmt: skip


_OURS = (b'{"metric":"request_sent"', b'{"metric":"request_answered"')


@contextmanager
def live_page(runs: Path, port: int, clock: Callable[[], float] = time.time) -> Iterator[LiveFeed]:
    """Serve the page on this machine while an experiment is measured, whose runs are in the folder ``runs``.

    Raise LabError if the port cannot be used.
    """
    feed = LiveFeed(runs, clock)

    def get(path: str, query: dict[str, str]) -> Response | None:
        match path:
            case "/":
                about = script_json({"colours": COLOURS, "report": str(runs / "latest" / "report.html")})
                values = {"experiment": runs.name, "about": about}
                return Response(render("watch.html", *_SCRIPTS, app="stampede.watch", fetches=True, **values))
            case "/requests":
                return Response.json(feed.since(*(read_whole(query.get(name)) for name in ("batch", "after"))))
            case _:
                return None

    try:
        with serving(port, get):
            yield feed
    finally:
        feed.close()

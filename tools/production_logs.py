"""Access logs as nginx and gunicorn would have written them of a measured trial, and how well they tell what is true.

    python -m tools.production_logs results/heavy-mix/latest results/pid-skew/latest

prints for each way to write logs how far the findings of ``stampede diagnose`` are from what the lab knows.
"""

import gzip
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.metrics.waiting import FROM_S, Answered, avoidable_waits
from stampede.logs.diagnose.diagnosis import Asked, diagnose_logs
from stampede.logs.diagnose.findings import NOTICED
from stampede.logs.diagnose.ranges import WAITS
from stampede.records.folder import read_run, trial_folder

POINTS = 2.0
"""A share is close to the truth if it differs at most by so many percentage points."""
QUICK_S = 0.005
LINE = '{address} - - [{time}] "GET {path} HTTP/1.1" {status} {size} "-" "curl/8.5"'


class Served(NamedTuple):
    """One request of a trial; times are epoch seconds."""

    request_class: str
    sent: float
    answered: float
    began: float
    ended: float
    worker: str
    id: str


@dataclass(frozen=True)
class Writing:
    """How logs are written: ``fine``: nginx's times have milliseconds; ``ids``, ``workers``: the logs have them.

    ``lost`` is the share of the lines that are missing in each log, ``ahead_s`` how far gunicorn's clock is ahead.
    ``rotated``: each log is three files, of which the oldest is compressed. ``header``: there is only gunicorn's log,
    whose lines have precise times and X-Request-Start.
    """

    fine: bool = True
    ids: bool = True
    workers: bool = True
    lost: float = 0.0
    ahead_s: float = 0.0
    rotated: bool = False
    header: bool = False


def read_served(parquet: Path) -> list[Served]:
    """Return the answered requests of a trial, of which the lab knows all times."""
    rows = duckdb.execute(
        "SELECT request_class, epoch(sent), epoch(answered), began, ended, worker, id FROM read_parquet(?) "
        "WHERE error IS NULL AND began IS NOT NULL AND ended IS NOT NULL AND worker IS NOT NULL "
        "AND generator NOT LIKE '%client%' ORDER BY sent", [str(parquet)]).fetchall()  # fmt: skip
    return [Served(*row) for row in rows]


def write_logs(served: Sequence[Served], folder: Path, writing: Writing, seed: int = 1) -> list[Path]:
    """Write nginx.log and gunicorn.log of requests into a folder. Return the paths of their files."""
    chance = np.random.default_rng(seed)
    nginx, gunicorn = [], []
    for number, request in enumerate(served):
        head = {"address": f"198.51.100.{number % 250 + 1}", "path": f"/{request.request_class}?page={number % 10}",
                "status": 200, "size": 100 + number % 7}  # fmt: skip
        id_ = f" id={request.id}-{number:08x}" if writing.ids else ""
        fine = f" at={request.answered:.3f}" if writing.fine else ""
        nginx.append((request.answered, LINE.format(time=_time(request.answered), **head)
                      + f" rt={request.answered - request.sent:.3f}{id_}{fine}\n"))  # fmt: skip
        pid = f" <{request.worker.rpartition(':')[2]}>" if writing.workers else ""
        ended = request.ended + writing.ahead_s
        header = f" at={ended:.6f} request_start=t={request.sent:.3f}" if writing.header else ""
        gunicorn.append((request.ended, LINE.format(time=_time(ended), **head)
                         + f" rt={request.ended - request.began:.6f}{id_}{pid}{header}\n"))  # fmt: skip
    paths = []
    for name, lines in (("nginx.log", nginx), ("gunicorn.log", gunicorn))[writing.header :]:
        kept = [text for _, text in sorted(lines) if chance.random() >= writing.lost]
        paths += _write_rotated(folder / name, kept) if writing.rotated else [_write(folder / name, kept)]
    return paths


def _write_rotated(path: Path, lines: Sequence[str]) -> list[Path]:
    """Write the first third of lines compressed, as logrotate does, and the others into two files."""
    ends = len(lines) // 3, 2 * len(lines) // 3
    oldest = path.with_name(f"{path.name}.2.gz")
    oldest.write_bytes(gzip.compress("".join(lines[: ends[0]]).encode()))
    return [oldest, _write(path.with_name(f"{path.name}.1"), lines[slice(*ends)]), _write(path, lines[ends[1] :])]


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(lines))
    return path


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")


WRITINGS = {
    "milliseconds, ids and workers": Writing(),
    "rotated and compressed": Writing(rotated=True),
    "one log, with X-Request-Start": Writing(ids=False, header=True),
    "no ids": Writing(ids=False),
    "no ids, a clock 250 ms ahead": Writing(ids=False, ahead_s=0.25),
    "no ids, whole seconds": Writing(fine=False, ids=False),
    "ids, a tenth of the lines lost": Writing(lost=0.1),
    "no ids, a tenth of the lines lost": Writing(ids=False, lost=0.1),
    "no ids, whole seconds, a tenth lost": Writing(fine=False, ids=False, lost=0.1),
}


class Errors(NamedTuple):
    """How far a diagnosis is from the truth.

    ``close`` says for p50, p90 and p99 of the queueing delay whether they are within 5 % or 5 ms, of which some is the
    network. ``points`` is the error of the share of avoidable waits, in percentage points, and ``inside`` says whether
    the range of this share and those of the percentiles contain the truth, within 2 points, 5 % or 5 ms. ``cause`` is
    right, wrong, or open if the diagnosis says that it cannot tell.
    """

    close: list[bool]
    points: float
    cause: str
    inside: bool


def errors(served: Sequence[Served], workers: int, threads: int, writing: Writing) -> Errors:
    """Return how far the diagnosis of the logs of a trial is from what the lab knows of it."""
    times = [np.array([getattr(each, name) for each in served]) - served[0].sent for name in ("sent", "began", "ended")]
    sent_s, began_s, ended_s = times
    names = sorted({each.worker for each in served})
    worker = np.array([names.index(each.worker) for each in served])
    answered = Answered(names, [], 0.0, float(ended_s.max()), float(sent_s[-1]), worker, worker, *times)
    avoidable_s, waited_s = avoidable_waits(answered, workers, threads).beside_s, began_s - sent_s
    with TemporaryDirectory() as folder:
        found = diagnose_logs(Asked(write_logs(served, Path(folder), writing), {}, workers=workers, threads=threads))
    true, measured = (np.quantile(each, WAITS) for each in (waited_s, found.requests.waited_s[found.requests.joined]))
    close_s = np.maximum(0.05 * true, 0.005)
    avoidable = (waited_s > FROM_S).mean() > NOTICED and avoidable_s.sum() >= waited_s.sum() / 2
    share, ranges, cause = float((avoidable_s > FROM_S).mean()), found.findings.ranges, found.findings.cause
    points = 100 * abs(float(found.findings.avoidably.likely - share))
    close = (np.abs(measured - true) <= close_s).tolist()
    inside = points <= POINTS and all(close) if ranges is None else bool(
        ranges.avoidably.low - POINTS / 100 <= share <= ranges.avoidably.high + POINTS / 100
        and all(low - near <= value <= high + near
                for (low, _, high), value, near in zip(ranges.waits_s, true, close_s, strict=True)))  # fmt: skip
    right = "open" if cause in ("missing", "coarse") else "right" if (cause == "avoidable") == avoidable else "wrong"
    return Errors(close, points, right, inside)


def trials_of(run_folder: Path) -> Iterator[tuple[list[Served], int, int]]:
    """Yield the requests, the workers and the threads of the first trial of each variant, if its threads are known."""
    run = read_run(run_folder)
    for load in run.loads:
        for variant in run.variants_under(load.name):
            parquet = trial_folder(run_folder, variant.name, load.name, 1) / "requests.parquet"
            if variant.threads and not variant.elastic and parquet.exists() and (served := read_served(parquet)):
                yield served, variant.workers, variant.threads


def answers_are_quick(served: Sequence[Served]) -> bool:
    """Whether nearly all answers came back at once; of others, no log tells the way back from the queueing delay."""
    return bool(np.quantile([each.answered - each.ended for each in served], 0.99) <= QUICK_S)


def main() -> None:
    """Print a table in Markdown: for each way to write logs, how many trials are told well, and the errors."""
    trials = [trial for folder in sys.argv[1:] for trial in trials_of(Path(folder))]
    if not trials:
        sys.exit("No trial has requests.parquet and workers with threads. Run `stampede report RUN` first.")
    quick = [trial for trial in trials if answers_are_quick(trial[0])]
    wrong = "avoidable waits wrong by points: median, worst"
    head = (
        "logs",
        "p50 close",
        "p90 close",
        "p99 close",
        wrong,
        "within the range, or close",
        "cause right, open, wrong",
    )
    lines = [head, ("---",) * len(head)]
    if quick:
        lines.append(_row("milliseconds, ids and workers, quick answers", Writing(), quick))
    lines += [_row(name, writing, trials) for name, writing in WRITINGS.items()]
    sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))


def _row(name: str, writing: Writing, trials: Sequence[tuple[list[Served], int, int]]) -> tuple[str, ...]:
    found = [errors(*trial, writing) for trial in trials]
    points = [each.points for each in found]
    close = [f"{sum(column)} of {len(found)}" for column in zip(*(each.close for each in found), strict=True)]
    inside = f"{sum(each.inside for each in found)} of {len(found)}"
    causes = ", ".join(str(sum(each.cause == of for each in found)) for of in ("right", "open", "wrong"))
    return name, *close, f"{median(points):.1f}, {max(points):.1f} points", inside, causes


if __name__ == "__main__":
    main()

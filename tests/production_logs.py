"""Access logs as nginx and gunicorn would have written them of a measured trial, and what is true of the trial."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb

NGINX = '{address} - - [{time}] "GET {path} HTTP/1.1" {status} {size} "-" "curl/8.5"'
GUNICORN = '{address} - - [{time}] "GET {path} HTTP/1.1" {status} {size} "-" "curl/8.5"'


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
    """

    fine: bool = True
    ids: bool = True
    workers: bool = True
    lost: float = 0.0
    ahead_s: float = 0.0


def read_served(parquet: Path) -> list[Served]:
    """Return the answered requests of a trial, of which the lab knows all times."""
    rows = duckdb.execute(
        "SELECT request_class, epoch(sent), epoch(answered), began, ended, worker, id FROM read_parquet(?) "
        "WHERE error IS NULL AND began IS NOT NULL AND ended IS NOT NULL AND worker IS NOT NULL "
        "AND generator NOT LIKE '%client%' ORDER BY sent", [str(parquet)]).fetchall()  # fmt: skip
    return [Served(*row) for row in rows]


def write_logs(served: Sequence[Served], folder: Path, writing: Writing, seed: int = 1) -> list[Path]:
    """Write nginx.log and gunicorn.log of requests into a folder. Return their paths."""
    chance = random.Random(seed)
    nginx, gunicorn = [], []
    for number, request in enumerate(served):
        head = {"address": f"198.51.100.{number % 250 + 1}", "path": f"/{request.request_class}?page={number % 10}",
                "status": 200, "size": 100 + number % 7}  # fmt: skip
        id_ = f" id={request.id}-{number:08x}" if writing.ids else ""
        fine = f" at={request.answered:.3f}" if writing.fine else ""
        nginx.append((request.answered, NGINX.format(time=_time(request.answered), **head)
                      + f" rt={request.answered - request.sent:.3f}{id_}{fine}\n"))  # fmt: skip
        pid = f" <{request.worker.rpartition(':')[2]}>" if writing.workers else ""
        gunicorn.append((request.ended, GUNICORN.format(time=_time(request.ended + writing.ahead_s), **head)
                         + f" rt={request.ended - request.began:.6f}{id_}{pid}\n"))  # fmt: skip
    paths = [folder / "nginx.log", folder / "gunicorn.log"]
    for path, lines in zip(paths, (nginx, gunicorn), strict=True):
        path.write_text("".join(text for _, text in sorted(lines) if chance.random() >= writing.lost))
    return paths


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")

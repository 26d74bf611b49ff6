"""What if: the requests of a trial, sent at the same times and with the same work, served in another way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from analysis.folder import trial_folder
from analysis.prediction import NotModelled, servers_of
from analysis.read.rows import COLUMNS, opened
from analysis.record import LoadRecord, Run, VariantRecord
from analysis.result import Summary, TrialValidity
from analysis.show.report import lanes_of
from analysis.waiting import FROM_S, Answered, read_answered
from lab.advice.ways import KINDS_OF_WAYS, Kind
from lab.errors import WrongUse
from lab.servers import KINDS
from theory.model import Class, Constant, Model, Recorded, Step
from theory.simulate import simulate

_BLOCKING = {"gunicorn-tornado"}
"""Servers whose requests wait for each other while they work."""
Waits = npt.NDArray[np.float64]
"""How long each request waited for a thread, in seconds, in the order of sending."""


@dataclass(frozen=True)
class Replayed:
    """One way to serve the requests. ``kind`` is None for what was measured.

    ``worker`` counts the workers of all containers from 0, ``thread`` the threads of each worker.
    """

    kind: Kind | None
    workers: int
    threads: int
    waits_s: Waits
    worker: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]

    @property
    def waited(self) -> npt.NDArray[np.bool_]:
        """Which requests waited for more than 50 ms."""
        return self.waits_s > FROM_S


def recorded(run_folder: Path, run: Run, variant: VariantRecord, load: LoadRecord, trial: int) -> Answered:
    """Return the answered requests of a trial. Raise WrongUse if their work would change in another way to serve."""
    depends = bool(load.database or (load.api or {}).get("one_device") or variant.settings["server"] in _BLOCKING)
    if float(load.settings.get("CPU_MS", 0)) > 0 or depends:
        problem = "These requests cannot be replayed, because how long they work depends on how they are served."
        raise WrongUse(problem, hint=f"make advise RUN=results/{run.experiment}/latest")
    folder = trial_folder(run_folder, variant.name, load.name, trial)
    with opened([folder]) as rows:
        answered = read_answered(rows, variant.name, load.name, trial)
    if not len(answered.sent_s):
        problem = f"{folder} has no answered request."
        raise WrongUse(problem, hint=f"TRIAL=…, from 1 to {run.trials}")
    return answered


def measured(answered: Answered, variant: VariantRecord) -> Replayed:
    """Return what was measured."""
    waits_s, threads = answered.began_s - answered.sent_s, variant.settings.get("threads") or 1
    return Replayed(None, variant.workers, threads, waits_s, answered.worker, np.zeros_like(answered.worker))


def replay(answered: Answered, workers: int, threads: int) -> Iterator[Replayed]:
    """Yield the same requests with each kind of way to serve them."""
    for kind in KINDS_OF_WAYS:
        of = (1, workers * threads) if kind.alone else (workers, threads)
        settings = kind.of(*of)
        try:
            variant = KINDS[settings["server"]].model_validate(settings | {"memory_mib": 1 << 20})
            model = Model(servers_of(variant.record(kind.name)), list(_classes(answered)))
        except (NotModelled, ValidationError):  # more workers or threads than a container may have
            continue
        rows = simulate(model, float(answered.sent_s[-1]) + 1, 1)
        order = np.empty(len(answered.sent_s), dtype=np.int64)  # the row of each request
        for place in range(len(answered.classes)):
            mine = np.flatnonzero(rows.of_class == place)
            order[np.flatnonzero(answered.request == place)[rows.user[mine]]] = mine
        yield Replayed(kind, *of, (rows.began - rows.sent)[order], rows.worker[order], rows.thread[order])


def _classes(answered: Answered) -> Iterator[Class]:
    for place, name in enumerate(answered.classes):
        mine = answered.request == place
        works_s = (answered.ended_s - answered.began_s)[mine]
        yield Class(name, Recorded(answered.sent_s[mine]), [Step(Constant(0.0))], np.maximum(works_s, 0))


def lanes(
    run_folder: Path, run: Run, variant: VariantRecord, load: LoadRecord, trial: int, after: Sequence[Replayed]
) -> str:
    """Return a page with the lanes of the trial as it was measured, and of the same requests served in other ways."""
    names = [f"what-if-{one.kind.name}" for one in after if one.kind]
    settings = [variant.settings | {"workers": one.workers, "threads": one.threads} for one in after]
    others = [
        VariantRecord(name=name, workers=one.workers, settings=of)
        for name, one, of in zip(names, after, settings, strict=True)
    ]
    order = [[name, load.name, str(trial)] for name in (variant.name, *names)]
    shown = run.model_copy(
        update={
            "variants": [variant, *others],
            "loads": [load.model_copy(update={"loop": "open"})],
            "claims": [],
            "order": order,
        }
    )
    trials = [
        TrialValidity(variant=one.name, load=load.name, trial=trial, verdict="valid", reasons=[])
        for one in shown.variants
    ]
    summary = Summary.of_nothing(run.experiment).model_copy(update={"trials": trials})
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE requests ({COLUMNS})")
        parquet = trial_folder(run_folder, variant.name, load.name, trial) / "requests.parquet"
        database.execute("INSERT INTO requests BY NAME SELECT * FROM read_parquet($1)", [str(parquet)])
        for name, one in zip(names, after, strict=True):
            columns = one.waits_s.tolist(), one.worker.tolist(), one.thread.tolist()
            database.execute(_AGAIN, [name, variant.name, *columns])
        heading = (
            f"What if the requests of {variant.name}, trial {trial}, had been served in another way? Only "
            f"{variant.name} was measured. The other lanes are computed: each request is sent when it was sent, and "
            "works for as long as it worked."
        )
        return lanes_of(database, run_folder, shown, summary, heading)


_AGAIN = """
WITH known AS (
    SELECT *, row_number() OVER (ORDER BY sent, id, generator) AS place FROM requests
    WHERE variant = $2 AND error IS NULL AND worker IS NOT NULL AND began IS NOT NULL AND ended IS NOT NULL),
again AS (
    SELECT unnest(range(1, len($3) + 1)) AS place, unnest($3) AS wait_s, unnest($4) AS by_worker,
        unnest($5) AS by_thread),
later AS (SELECT *, epoch(sent) + wait_s - began AS later_s FROM known JOIN again USING (place))
INSERT INTO requests BY NAME SELECT * EXCLUDE (place, wait_s, by_worker, by_thread, later_s) REPLACE (
    $1 AS variant, 'replay:' || (1001 + by_worker) AS worker, by_thread AS thread,
    began + later_s AS began, ended + later_s AS ended,
    answered + to_microseconds((1e6 * later_s)::BIGINT) AS answered,
    duration_ms + 1000 * later_s AS duration_ms, overhead_ms + 1000 * later_s AS overhead_ms)
FROM later
"""

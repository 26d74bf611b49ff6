"""The requests of trials as lanes show them: as measured, with their waits, and as other ways would serve them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.waiting import Answered, Times
from stampede.evaluate.read import OF_TRIAL, Key, of_trial
from stampede.evaluate.read.lab_time import clocks_of_hosts
from stampede.evaluate.read.observation import read_containers, stalls_by_lab_clock, stalls_within
from stampede.predict.options import MOST_REPLICAS, OPTION_KINDS, OptionKind
from stampede.predict.system import servers_of
from stampede.records.folder import trial_folder
from stampede.records.run import GTHREAD_CONNECTIONS, LoadRecord, Queueing, Run, VariantRecord
from stampede.records.summary import Summary
from stampede.theory import COMPILED
from stampede.theory.model import Class, Constant, QueueingSystem, Recorded, WorkStep

MOST = 20_000
"""A trial with more requests is not served in other ways, and only those around its longest wait are shown."""
TURNS = 10
"""Without Numba, requests that compute hand the interpreter lock over so often on average, at most."""


class LaneRequest(NamedTuple):
    """One request of a trial; its times count from when the first request was sent."""

    request_class: str
    sent_s: float
    began_s: float | None
    ended_s: float | None
    answered_s: float | None
    connect_ms: float
    service_time_ms: float
    worker: str | None
    thread: int
    error: str | None

    @property
    def waited_s(self) -> float:
        """How long the request waited for a thread."""
        return (self.began_s or self.sent_s) - self.sent_s


class LaneTrial(NamedTuple):
    """The requests of a trial in the order of sending, and how long they had to wait.

    ``stalls_s`` says when the service that the servers call answered nobody, in epoch seconds of the lab's clock.
    ``computed``: theory served the requests of a measured trial in another way.
    """

    variant: VariantRecord
    key: Key
    rows: list[LaneRequest]
    answered: Answered
    waits: waiting.Waits | None
    stalls_s: waiting.Segments = waiting.NEVER
    computed: bool = False


class LoadLanes(NamedTuple):
    """The trials under one load, of which ``pair`` are the places of the two that are shown first."""

    load: LoadRecord
    trials: list[LaneTrial]
    pair: tuple[int, ...]


class WhatIf(NamedTuple):
    """Requests of a trial, sent at the same times and with the same work, served in another way.

    ``worker`` counts the workers of all containers from 0, ``thread`` the threads of each worker, and ``waits_s`` is
    how long each request waited for a thread, in the order of sending.
    """

    kind: OptionKind
    workers: int
    threads: int
    waits_s: Times
    worker: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]


def load_lanes(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    run: Run,
    summary: Summary,
    capacity: tuple[int, int] | None = None,
) -> Iterator[LoadLanes]:
    """Yield the lanes of every load, the load of the first claim first: each variant's first trusted trial.

    The requests of the first variant that is shown are also served in other ways, as theory computes it, by as many
    workers and threads as ``capacity`` has; None: by as many as were measured.
    """
    telling = [(claim.value.variant, claim.value.load) for claim in run.telling_claims]
    for load in sorted(run.loads, key=lambda load: load.name not in [name for _, name in telling[:1]]):
        firsts = summary.first_trials(load.name)
        variants = [variant for variant in run.variants_under(load.name) if variant.name in firsts]
        if not variants:
            continue
        names = [variant.name for variant in variants]
        wanted = [variant for variant, name in telling if name in (None, load.name) and variant in names]
        pair = tuple(names.index(name) for name in [*dict.fromkeys([*wanted, *names])][:2])
        trials = []
        for variant in variants:
            key = variant.name, load.name, firsts[variant.name]
            rows = [LaneRequest(*row) for row in database.execute(_ROWS, of_trial(key)).fetchall()]
            answered = waiting.read_answered(database, *key)
            clocks = clocks_of_hosts(summary.clocks, key)
            containers = stalls_by_lab_clock(read_containers(trial_folder(run_folder, *key)), clocks)
            stalls_s = np.array(stalls_within(containers, answered.first, answered.last)).reshape(-1, 2)
            waits = waiting.waits_of_variant(variant, answered)
            trials.append(LaneTrial(variant, key, rows, answered, waits, stalls_s))
        first = trials[pair[0]]
        if can_serve_otherwise(first.variant, load) and len(first.rows) <= MOST and first.answered.sent_s.size:
            otherwise = [*_served_otherwise(first, capacity)]
            if capacity:  # with a single worker, it would be trivial that no other is free
                place = next((place for place, trial in enumerate(otherwise) if trial.variant.workers > 1), 0)
                pair = 0, len(trials) + place
            trials += otherwise
        yield LoadLanes(load, trials, pair)


def can_serve_otherwise(variant: VariantRecord, load: LoadRecord) -> bool:
    """Whether several workers with threads served requests that would work for as long if served in another way."""
    several = variant.threads is not None and not variant.elastic and variant.workers > 1
    elsewhere = load.database or (load.api or {}).get("one_device") or "CPU" in load.settings
    return bool(several and not elsewhere and not (variant.queueing and variant.queueing.blocks_loop))


_ROWS = f"""
WITH trial AS (FROM requests WHERE {OF_TRIAL}), start AS (SELECT epoch(min(sent)) AS first FROM trial)
SELECT request_class, epoch(sent) - first, began - first, ended - first, epoch(answered) - first,
    greatest(coalesce(blocked_ms, 0), coalesce(connecting_ms, 0)), service_time_ms,
    CASE WHEN error IS NULL AND began IS NOT NULL AND ended IS NOT NULL THEN worker END,
    coalesce(thread, 0), error
FROM trial, start ORDER BY sent, id, generator
"""  # noqa: S608  # made of this module's own constants


def _served_otherwise(trial: LaneTrial, capacity: tuple[int, int] | None) -> Iterator[LaneTrial]:
    """Yield the answered requests of a trial, sent at the same times and with the same work, with other ways."""
    variant, (_, load, number) = trial.variant, trial.key
    known = [row for row in trial.rows if row.worker is not None]
    for served in serve_otherwise(trial.answered, *(capacity or (variant.workers, variant.threads or 1))):
        began_s = trial.answered.sent_s + served.waits_s
        later_s = began_s - trial.answered.began_s
        rows = [
            row._replace(
                began_s=(row.began_s or 0.0) + later, ended_s=(row.ended_s or 0.0) + later,
                answered_s=(row.answered_s or 0.0) + later, worker=f"replay:{1001 + worker}", thread=thread,
            )
            for row, later, worker, thread in zip(
                known, later_s.tolist(), served.worker.tolist(), served.thread.tolist(), strict=True
            )
        ]  # fmt: skip
        workers, worker = np.unique(served.worker, return_inverse=True)
        answered = replace(
            trial.answered, workers=[f"replay:{1001 + place}" for place in workers], worker=worker, began_s=began_s,
            ended_s=trial.answered.ended_s + later_s,
        )  # fmt: skip
        settings = variant.settings | {"workers": served.workers, "threads": served.threads}
        other = VariantRecord(name=f"what-if-{served.kind.name}", workers=served.workers, settings=settings)
        waits = waiting.waits_of_variant(other, answered)
        yield LaneTrial(other, (other.name, load, number), rows, answered, waits, computed=True)


def serve_otherwise(
    answered: Answered,
    workers: int,
    threads: int,
    seed: int = 1,
    kinds: Iterable[OptionKind] = OPTION_KINDS,
    *,
    computing: bool = False,
) -> Iterator[WhatIf]:
    """Yield the same requests with each kind of way to serve them.

    ``computing``: they compute for all the time that they worked, so threads of a process wait for its interpreter
    lock, and these waits count, too. Otherwise they only keep their threads.
    """
    from stampede.theory.simulate import simulate  # noqa: PLC0415  # loading Numba takes half a second

    works_s = np.maximum(answered.ended_s - answered.began_s, 0)
    least_switch_s = 0.0 if COMPILED else float(works_s.mean()) / TURNS
    step = WorkStep(Constant(0.0), "compute" if computing else "wait")
    of_classes = [answered.request_class == number for number in range(len(answered.classes))]
    classes = [
        Class(name, Recorded(answered.sent_s[mine]), [step], works_s[mine])
        for name, mine in zip(answered.classes, of_classes, strict=True)
    ]
    for kind in kinds:
        of = (1, workers * threads) if kind.for_single_worker else (workers, threads)
        settings = kind.settings(*of)
        if settings.get("replicas", 1) > MOST_REPLICAS:
            continue
        accept = "per-worker" if settings.get("reuse_port") else "shared"
        queueing = Queueing(threads=of[1], max_connections=GTHREAD_CONNECTIONS if kind.queues_inside else of[1])
        servers = servers_of(
            VariantRecord(name=kind.name, workers=of[0], accept=accept, queueing=queueing, settings=settings)
        )
        servers = replace(servers, switch=max(servers.switch, least_switch_s))
        rows = simulate(QueueingSystem(servers, classes), float(answered.sent_s[-1]) + 1, seed)
        order = np.empty(len(answered.sent_s), dtype=np.int64)  # the row of each request
        for number, mine in enumerate(of_classes):
            simulated = np.flatnonzero(rows.of_class == number)
            order[np.flatnonzero(mine)[rows.user[simulated]]] = simulated
        waits_s = (rows.ended - rows.sent)[order] - works_s if computing else (rows.began - rows.sent)[order]
        yield WhatIf(kind, *of, waits_s, rows.worker[order], rows.thread[order])

"""What if: the requests of a trial, sent at the same times and with the same work, served in another way."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stampede.evaluate.metrics.waiting import Answered
from stampede.predict.options import MOST_REPLICAS, OPTION_KINDS, OptionKind
from stampede.predict.system import servers_of
from stampede.records.run import GTHREAD_CONNECTIONS, LoadRecord, Queueing, VariantRecord
from stampede.theory import COMPILED
from stampede.theory.model import Class, Constant, QueueingSystem, Recorded, WorkStep

Waits = npt.NDArray[np.float64]
"""How long each request waited for a thread, in seconds, in the order of sending."""
TURNS = 10
"""Without Numba, requests that compute hand the interpreter lock over so often on average, at most."""


@dataclass(frozen=True)
class WhatIf:
    """One other way to serve the requests.

    ``worker`` counts the workers of all containers from 0, ``thread`` the threads of each worker.
    """

    kind: OptionKind
    workers: int
    threads: int
    waits_s: Waits
    worker: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]


def can_serve_otherwise(variant: VariantRecord, load: LoadRecord) -> bool:
    """Whether the requests would work for as long if they were served in another way."""
    waits_elsewhere = load.database or (load.api or {}).get("one_device")
    blocks_loop = variant.queueing and variant.queueing.blocks_loop
    return not (waits_elsewhere or "CPU" in load.settings or blocks_loop)


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
    for kind in kinds:
        of = (1, workers * threads) if kind.for_single_worker else (workers, threads)
        settings = kind.settings(*of)
        if settings.get("replicas", 1) > MOST_REPLICAS:
            continue
        accept = "per-worker" if settings.get("reuse_port") else "shared"
        queueing = Queueing(threads=of[1], max_connections=GTHREAD_CONNECTIONS if kind.queues_inside else of[1])
        variant = VariantRecord(name=kind.name, workers=of[0], accept=accept, queueing=queueing, settings=settings)
        servers = servers_of(variant)
        servers = replace(servers, switch=max(servers.switch, least_switch_s))
        step = WorkStep(Constant(0.0), "compute" if computing else "wait")
        of_classes = [answered.request_class == number for number in range(len(answered.classes))]
        classes = [
            Class(name, Recorded(answered.sent_s[mine]), [step], works_s[mine])
            for name, mine in zip(answered.classes, of_classes, strict=True)
        ]
        rows = simulate(QueueingSystem(servers, classes), float(answered.sent_s[-1]) + 1, seed)
        order = np.empty(len(answered.sent_s), dtype=np.int64)  # the row of each request
        for number, mine in enumerate(of_classes):
            simulated = np.flatnonzero(rows.of_class == number)
            order[np.flatnonzero(mine)[rows.user[simulated]]] = simulated
        waits_s = (rows.ended - rows.sent)[order] - works_s if computing else (rows.began - rows.sent)[order]
        yield WhatIf(kind, *of, waits_s, rows.worker[order], rows.thread[order])

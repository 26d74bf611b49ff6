"""The queueing system of a variant under a load, from their settings and the constants below."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from stampede.records.classes import Mean, Range, RequestClass, Takes
from stampede.records.run import EVEN, LoadRecord, VariantRecord, cores_named
from stampede.records.traffic import TrafficClass, in_seconds, traffic_of_settings
from stampede.theory import model
from stampede.theory.model import Class, Closed, Constant, Open, QueueingSystem, Servers, Stalls, WorkStep, WrongModel

RACE, RACE_ON_ONE_CORE = 0.3, 0.6
"""Of n workers, the worker that was forked first wins the race for a connection with this chance / √n, else the second,
and so on. Fitted to the shares of workers in thread-headroom, pid-skew and thundering-herd, on two cores and on one."""
TRANSIT_S = 0.0013
"""How long the network takes for a request that meets nobody else."""
OCCUPIES_S, FASTAPI_OCCUPIES_S, BALANCER_OCCUPIES_S = 0.00025, 0.0008, 0.00005
"""How long a request occupies the machine: the server, the load generator and the kernel; the same for FastAPI; and the
balancer."""
OWN_S = 0.0003
"""How long a server holds the interpreter lock to read a request, and again to answer it. Beside a thread that
computes, it may wait both times until that thread hands the lock over."""
OF_CORES = 2
"""On how many cores this was found; with more cores, requests occupy the machine for a smaller part of the time."""
BURST_APART_S = 0.0003
"""How long after one request of a burst the load generator sends the next."""
LATE_S = 0.001
"""How late at most a sleeping request wakes."""
JITTER_S = 0.002
"""How irregular the load generator sends requests at a fixed rate."""

_TAKE_THREADS_BACK = ("fastapi-sync", "fastapi-typed")
"""The applications in which a stream needs a thread of the pool again for each part."""


class NotModelled(Exception):
    """A variant or a load that theory cannot simulate yet. The message names the mechanism that is missing."""


def system_of(variant: VariantRecord, load: LoadRecord, side_by_side: int = 1, cores: int = 0) -> QueueingSystem:
    """Return the model of a variant under a load, while so many variants are measured side by side.

    ``cores`` is how many cores the machine has; 0: as many as OF_CORES. Raise NotModelled with the mechanism that
    theory lacks.
    """
    replicas = int(variant.settings.get("replicas", 1))
    sweeps = variant.queueing and variant.queueing.sweeps_backlog and variant.accept == "shared"
    places = int(variant.settings.get("somaxconn", 0)) * replicas
    at_work = variant.workers * (variant.threads or 1)
    waits = variant.queueing and not variant.queueing.has_inner_queue and places and load.kind == "burst"
    if waits and load.burst and load.burst > places + at_work:
        raise NotModelled("a listen queue that is full")
    if load.kind == "burst" and sweeps and int(variant.settings["workers"]) > 1:
        raise NotModelled("an event loop that accepts all connections of a burst that wait when it wakes")
    if load.kind == "burst" and variant.queueing and variant.settings.get("balancer") == "none":
        own = variant.queueing.model_copy(update={"keeps_idle": False})  # each request has its own connection
        variant = variant.model_copy(update={"queueing": own})
    one_device = bool((load.api or {}).get("one_device"))
    burns = load.settings.get("CPU") == "burn"
    return system_for(
        variant, classes_of(load), one_device, side_by_side * OF_CORES / (cores or OF_CORES),
        cores=min(cores or OF_CORES, cores_named(str(variant.settings.get("cpuset", ""))) or 1024) if burns else None,
        quota=float(variant.settings.get("cpus", 0)) or None if burns else None,
    )  # fmt: skip


def classes_of(load: LoadRecord) -> list[Class]:
    """Return what a load asks for, without the work of the server itself.

    Raise NotModelled for an unknown load, or work that theory does not know.
    """
    if load.client:
        raise NotModelled("clients that keep their connections open")
    api = {"every_s": 3600} | (load.api or {})
    stalls, classes = None, []
    try:
        if api.get("stall_s"):
            stalls = Stalls(*(float(api.get(name, 0)) for name in ("first_s", "every_s", "stall_s", "takes_s")))
        traffic = load.traffic or traffic_of_settings(load.script, load.settings)
        if not traffic or traffic.missing:
            raise NotModelled((traffic and traffic.missing) or f"the load {load.script}")
        for name, asked in traffic.classes.items():
            computes, steps = any(work.does == "compute" for work in asked.work), []
            for work in asked.work:
                match work.does:
                    case "stream":
                        steps.append(WorkStep(distribution(work.takes_s), queues=True))
                    case "wait" | "compute" | "call" as does:
                        takes = distribution(work.takes_s, late_s=LATE_S if computes and does == "wait" else 0.0)
                        steps.append(WorkStep(takes, does, stalls=stalls if does == "call" else None))
                    case does:
                        raise NotModelled(f"requests that {does}")
            classes.append(Class(name, _arrivals(asked, in_seconds(load.duration)), steps * asked.rounds))
    except KeyError as name:  # an older script had other settings
        raise NotModelled(f"the load {load.script} without the setting {name}") from None
    except WrongModel as problem:
        raise NotModelled(f"a load in which {problem}") from None
    return classes


def system_for(
    variant: VariantRecord, asked: Sequence[Class], one_device: bool = False, at_once: float = 1,
    *, cores: int | None = None, quota: float | None = None,
) -> QueueingSystem:  # fmt: skip
    """Return the model of a variant that gets these classes of requests, with the work of the server itself.

    ``at_once`` multiplies this work: while other variants are measured, or on a machine with more or fewer cores.
    ``cores`` is on how many cores requests compute, and ``quota`` how many cores the limit of each container allows on
    average; None: as many as they like.

    Raise NotModelled with the mechanism that theory lacks.
    """
    app = str(variant.settings.get("app", ""))
    balanced = variant.settings.get("balancer", "nginx") != "none"
    occupies_s = FASTAPI_OCCUPIES_S if app.startswith("fastapi") else OCCUPIES_S
    occupies_s += BALANCER_OCCUPIES_S if balanced else 0.0
    occupies = WorkStep(Constant(occupies_s * at_once), "occupy")
    blocks_loop = variant.queueing and variant.queueing.blocks_loop
    own = WorkStep(Constant(OWN_S), "compute")
    classes = []
    for class_ in asked:
        before, after = ([] if step.does == "compute" else [own]
                         for step in (class_.steps[0], class_.steps[-1]))  # fmt: skip
        steps = [occupies, *before, *class_.steps, *after]
        if app not in _TAKE_THREADS_BACK:
            steps = [replace(step, queues=False) for step in steps]
        if app == "fastapi-typed":  # the pool also checks the answer
            steps.append(WorkStep(Constant(0.0), queues=True))
        elif blocks_loop:  # Tornado's loop sends an answer only after all handlers that wait meanwhile
            steps = [step if step.does == "occupy" else replace(step, does="call") for step in steps]
            if not app.startswith("fastapi"):
                steps.append(WorkStep(Constant(0.0), "call"))
        classes.append(replace(class_, steps=steps))
    try:
        replicas = int(variant.settings.get("replicas", 1))
        servers = replace(servers_of(variant), cores=cores, quota=quota, containers=replicas)
        return QueueingSystem(servers, classes, one_device, TRANSIT_S)
    except WrongModel as problem:
        raise NotModelled(str(problem)) from None


def servers_of(variant: VariantRecord) -> Servers:
    """Return how a variant serves. Raise NotModelled with the mechanism that theory lacks."""
    settings, queueing = variant.settings, variant.queueing
    if not queueing or "workers" not in settings:
        raise NotModelled(f"how {settings.get('server')} serves")
    workers, replicas = int(settings["workers"]), int(settings.get("replicas", 1))
    balance = settings.get("balance", "round_robin")
    if balance not in _BALANCE:
        raise NotModelled(f"the policy {balance}")
    per_worker = variant.accept == "per-worker" and workers > 1
    by_kernel = per_worker and not settings.get("map_socket")
    if queueing.missing:
        raise NotModelled(queueing.missing)
    if variant.is_replaced:
        raise NotModelled("workers that are replaced")
    if variant.accept is None and workers > 1:
        raise NotModelled("whether the workers share a socket")
    if by_kernel and (replicas > 1 or settings.get("max_conns")):
        raise NotModelled("a balancer before sockets among which the kernel chooses")
    kept, balancer = int(settings.get("upstream_keepalive", 0)), settings.get("balancer", "nginx")
    if not queueing.keeps_idle or balancer == "none":
        kept = 0
    if queueing.keeps_idle and balancer == "none" and workers > 1:  # one worker serves whoever keeps a connection
        raise NotModelled("connections that users keep")
    if kept and (balancer != "nginx" or replicas > 1):
        raise NotModelled("connections that a balancer keeps to each of several sockets")
    if not (queueing.closes_idle_when_full or queueing.has_inner_queue):
        kept = 0  # at its limit of connections, gunicorn keeps none
    race = RACE_ON_ONE_CORE if settings.get("cpuset", "").isdecimal() else RACE
    return Servers(
        sockets=workers * replicas if per_worker else replicas,
        balance="hash" if by_kernel else _BALANCE[balance],
        max_per_socket=int(settings.get("max_conns", 0)) or None,
        queues=settings.get("balancer") == "haproxy",
        idle_kept=kept,
        closes_idle_when_full=queueing.closes_idle_when_full,
        workers=1 if per_worker else workers,
        threads=queueing.threads,
        max_connections=queueing.max_connections,
        bias=0.0 if queueing.race == EVEN else min(0.9, race / sqrt(workers)),
        hesitates=queueing.hesitates,
        loop=queueing.loop,
    )


_BALANCE: dict[str, model.Balance] = {"round_robin": "turns", "least_conn": "least", "random_two_least_conn": "two"}


def _arrivals(asked: TrafficClass, lasts_s: float) -> model.Arrivals:
    if asked.users:
        return Closed(asked.users, Constant(asked.pause_s))
    if asked.burst:
        return model.Bursts(asked.burst, asked.every_s, BURST_APART_S)
    if asked.rates_rps:
        step_s = lasts_s / len(asked.rates_rps)
        steps = [place * step_s + np.arange(0, step_s, 1 / rate_rps) for place, rate_rps in enumerate(asked.rates_rps)]
        return model.Recorded(np.concatenate(steps))
    return Open(asked.per_second or 0.0, regular=True, jitter=JITTER_S)


def distribution(takes: Takes, share: float = 1.0, late_s: float = 0.0) -> model.Distribution:
    """Return durations for the simulator: a share of each of them, and up to ``late_s`` more."""
    match takes:
        case Range(least=least, most=most):
            return model.Uniform(least * share, most * share + late_s)
        case Mean(mean=mean):
            return model.Exponential(mean * share)
        case list(measured):
            return model.Given(np.array(measured) * share)
        case seconds:
            return model.Uniform(seconds * share, seconds * share + late_s) if late_s else Constant(seconds * share)


def simulated_class(name: str, described: RequestClass, unknown: float = 0.0) -> Class:
    """Return the class for the simulator: a request first computes its part, and then waits.

    ``unknown`` is the part that a request computes if the description does not say it.
    """
    computes = unknown if described.computes is None else described.computes
    work = [
        WorkStep(distribution(described.takes_s, computes), "compute"),
        WorkStep(distribution(described.takes_s, 1 - computes)),
    ]
    arrivals = (
        Closed(described.users, Constant(described.pause_s)) if described.users else Open(described.per_second or 0.0)
    )
    return Class(name, arrivals, [step for step in work if step.takes.mean > 0])

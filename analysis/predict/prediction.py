"""Predict a run: simulate every variant under every load many times, and compute the same statistics as from requests.

A prediction knows the settings of the variant and of the load, and nothing that was measured, but for the
numbers below, which are the same for all experiments.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import median
from typing import Any, Literal
from zlib import crc32

import numpy as np

from analysis.metrics import FAMILIES, bursts, percentile
from analysis.metrics.simulated import Prediction, Predictions, SimulatedTrial
from analysis.records.classes import read_classes
from analysis.records.run import KINDS, LoadRecord, Run, VariantRecord
from analysis.records.summary import NotPredicted, Summary
from analysis.statistics.intervals import median_of_each
from analysis.statistics.measured import Results
from theory.model import (
    Balance,
    Bursts,
    Class,
    Closed,
    Constant,
    Open,
    QueueingSystem,
    Servers,
    Stalls,
    Uniform,
    WorkStep,
    WrongModel,
)

SIMULATED, LEAST_SIMULATED = 60, 10
"""How many trials are simulated for each variant under each load, and how many at least if they have many requests."""
SIMULATED_REQUESTS = 2_000_000
"""About how many requests are simulated for each variant under each load; a load with more takes too long."""
RACE, RACE_ON_ONE_CORE = 0.3, 0.6
"""Of n workers, the worker that was forked first wins the race for a connection with this chance / √n, else the second,
and so on. Fitted to the shares of workers in thread-headroom, pid-skew and thundering-herd, on two cores and on one."""
TRANSIT_S = 0.0013
"""How long the network takes for a request that meets nobody else."""
OCCUPIES_S, FASTAPI_OCCUPIES_S, BALANCER_OCCUPIES_S = 0.00025, 0.0008, 0.00005
"""How long a request occupies the machine: the server, the load generator and the kernel; the same for FastAPI; and the
balancer."""
OF_CORES = 2
"""On how many cores this was found; with more cores, requests occupy the machine for a smaller part of the time."""
BURST_APART_S = 0.0003
"""How long after one request of a burst the load generator sends the next."""
LATE_S = 0.001
"""How late at most a sleeping request wakes."""
JITTER_S = 0.002
"""How irregular the load generator sends requests at a fixed rate."""
_GROUPS = 1000

Settings = Mapping[str, Any]
Asked = Mapping[str, float]


class NotModelled(Exception):
    """A variant or a load that theory cannot simulate yet. The message names the mechanism that is missing."""


def predict(run: Run) -> Predictions:
    """Return what theory predicts of a run: a function of its settings alone, without chance."""
    found = Predictions({}, {}, {})
    for load in run.loads:
        for variant in run.variants_under(load.name):
            cell = variant.name, load.name
            try:
                side_by_side = min(run.jobs, len(run.variants_under(load.name)))
                model = model_of(variant, load, side_by_side, run.cores)
            except NotModelled as reason:
                found.missing[cell] = str(reason)
                continue
            simulated = min(SIMULATED, int(SIMULATED_REQUESTS / max(1, _requests(model, load))))
            if simulated < LEAST_SIMULATED:
                most = SIMULATED_REQUESTS // LEAST_SIMULATED
                found.missing[cell] = f"time for a load of more than {most:,} requests"
                continue
            trials = list(_trials(model, variant, load, simulated))
            values = _values(trials)
            for (request, metric, stat), prediction in zip(values, _of_runs(values.values(), run.trials), strict=True):
                found.values[(*cell, request), metric, stat] = prediction
            if load.has_stairs:
                stairs = [bursts.simulated_stairs_ms(trial) for trial in trials]
                found.stairs[cell] = _of_runs(list(zip(*stairs, strict=False)), run.trials)
    return found


def predict_summary(run: Run) -> Summary:
    """Return what is published and predicted of a run, as the summary of a run without trials."""
    predictions = predict(run)
    results = Results(run, {}, {}, 0.0, predictions)
    found = {
        "rows": list(results.rows()),
        "steps": list(results.stairs_rows()),
        "not_predicted": not_predicted(predictions),
    }
    return Summary.of_nothing(run.experiment).model_copy(update=found)


def not_predicted(predictions: Predictions) -> list[NotPredicted]:
    """Return which variants theory cannot predict under which loads, and why."""
    return [NotPredicted(variant=of, load=under, missing=what) for (of, under), what in predictions.missing.items()]


def model_of(variant: VariantRecord, load: LoadRecord, side_by_side: int = 1, cores: int = 0) -> QueueingSystem:
    """Return the model of a variant under a load, while so many variants are measured side by side.

    ``cores`` is how many cores the machine has; 0: as many as OF_CORES. Raise NotModelled with the mechanism that
    theory lacks.
    """
    if load.settings.get("CPU") == "burn" and _share_cores(variant, cores):
        raise NotModelled("workers that compute and share cores")
    sweeps = variant.settings.get("server") in _SWEEPING and variant.accept == "shared"
    if load.kind not in KINDS:
        raise NotModelled(f"loads of the kind {load.kind}")
    if load.kind == "burst" and sweeps and int(variant.settings["workers"]) > 1:
        raise NotModelled("an event loop that accepts all connections of a burst that wait when it wakes")
    one_device = bool((load.api or {}).get("one_device"))
    return model_for(variant, classes_of(load), one_device, side_by_side * OF_CORES / (cores or OF_CORES))


def _share_cores(variant: VariantRecord, cores: int) -> bool:
    """Whether a variant has more workers than cores, those of the machine or those that its containers may use."""
    each = variant.workers / int(variant.settings.get("replicas", 1))
    allowed = float(variant.settings.get("cpus", 0)) or each
    return each > allowed or bool(cores and variant.workers > cores)


def classes_of(load: LoadRecord) -> list[Class]:
    """Return what a load asks for, without the work of the server itself. Raise NotModelled for an unknown load."""
    if load.client:
        raise NotModelled("clients that keep their connections open")
    api = {"every_s": 3600} | (load.api or {})
    stalls = None
    try:
        if api.get("stall_s"):
            stalls = Stalls(*(float(api.get(name, 0)) for name in ("first_s", "every_s", "stall_s", "takes_s")))
        return _described(load) if load.script == "classes.js" else _classes(load, stalls)
    except KeyError as name:  # an older script had other settings
        raise NotModelled(f"the load {load.script} without the setting {name}") from None
    except WrongModel as problem:
        raise NotModelled(f"a load in which {problem}") from None


def model_for(
    variant: VariantRecord, asked: Sequence[Class], one_device: bool = False, at_once: float = 1
) -> QueueingSystem:
    """Return the model of a variant that gets these classes of requests, with the work of the server itself.

    ``at_once`` multiplies this work: while other variants are measured, or on a machine with more or fewer cores.

    Raise NotModelled with the mechanism that theory lacks.
    """
    of_fastapi = str(variant.settings.get("app", "")).startswith("fastapi")
    balanced = variant.settings.get("balancer", "nginx") != "none"
    occupies_s = (FASTAPI_OCCUPIES_S if of_fastapi else OCCUPIES_S) + (BALANCER_OCCUPIES_S if balanced else 0.0)
    occupies = WorkStep(Constant(occupies_s * at_once), "occupy")
    classes = [replace(one, steps=[occupies, *one.steps]) for one in asked]
    if add := _STEPS.get(variant.settings.get("app", "")) or _STEPS.get(variant.settings.get("server", "")):
        classes = [replace(one, steps=add(one.steps)) for one in classes]
    try:
        return QueueingSystem(servers_of(variant), classes, one_device, TRANSIT_S)
    except WrongModel as problem:
        raise NotModelled(str(problem)) from None


def servers_of(variant: VariantRecord) -> Servers:
    """Return how a variant serves. Raise NotModelled with the mechanism that theory lacks."""
    settings = variant.settings
    server = settings.get("server")
    workers, replicas = int(settings.get("workers", 1)), int(settings.get("replicas", 1))
    if not isinstance(server, str) or server not in _WORKERS or "workers" not in settings:
        raise NotModelled(f"how {server} serves")
    balance = settings.get("balance", "round_robin")
    if balance not in _BALANCE:
        raise NotModelled(f"the policy {balance}")
    own = variant.accept == "per-worker"
    by_kernel = own and not settings.get("map_socket")
    if variant.accept is None and workers > 1:
        raise NotModelled("whether the workers share a socket, which older records do not say")
    if by_kernel and (replicas > 1 or settings.get("max_conns")):
        raise NotModelled("a balancer before sockets among which the kernel chooses")
    return Servers(
        sockets=workers * replicas if own else replicas,
        balance="hash" if by_kernel else _BALANCE[balance],
        max_per_socket=int(settings.get("max_conns", 0)) or None,
        queues=settings.get("balancer") == "haproxy",
        workers=1 if own else workers,
        **_WORKERS[server](settings),
    )


_BALANCE: dict[str, Balance] = {"round_robin": "turns", "least_conn": "least", "random_two_least_conn": "two"}


def _race(settings: Settings) -> float:
    first = RACE_ON_ONE_CORE if settings.get("cpuset", "").isdecimal() else RACE
    return min(0.9, first / sqrt(int(settings["workers"])))


def _gthread(settings: Settings) -> dict[str, Any]:
    of, threads = settings.get("worker_class", "gthread"), int(settings["threads"])
    closes = of == "idle_thread.IdleThreadWorker"
    limit = threads if closes else int(settings.get("worker_connections", 1000))
    return {
        "threads": threads,
        "max_connections": limit,
        "idle_kept": _kept(settings, closes, limit),
        "closes_idle_when_full": closes,
        "bias": 0.0 if of.endswith("RandomAccept") else _race(settings),
        "hesitates": of == "acceptors.BusyAccept",
    }


def _kept(settings: Settings, closes: bool, limit: int) -> int:
    """Return how many idle connections nginx keeps to gunicorn. Raise NotModelled if users or other balancers do."""
    if not settings.get("keepalive_s"):
        return 0
    if settings.get("balancer") == "none":
        raise NotModelled("connections that users keep")
    kept = int(settings.get("upstream_keepalive", 0))
    if kept and (settings.get("balancer", "nginx") != "nginx" or int(settings.get("replicas", 1)) > 1):
        raise NotModelled("connections that a balancer keeps to each of several sockets")
    return kept if closes or limit > int(settings["threads"]) else 0  # at its limit of connections, gunicorn keeps none


def _asgi(settings: Settings) -> dict[str, Any]:
    if settings.get("app") == "django":
        raise NotModelled("Django on an event loop")
    threads = settings.get("threads")
    return {"threads": threads, "loop": threads is None, "bias": _race(settings)}


def _uwsgi(settings: Settings) -> dict[str, Any]:
    threads = int(settings["threads"])
    return {"threads": threads, "max_connections": threads, "bias": _race(settings)}


_WORKERS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "gunicorn-gthread": _gthread,
    "gunicorn-sync": lambda settings: {"threads": 1, "max_connections": 1, "bias": _race(settings)},
    "gunicorn-gevent": lambda _: {"threads": None, "loop": True},
    "gunicorn-eventlet": lambda _: {"threads": None, "loop": True},
    "gunicorn-tornado": lambda _: {"threads": None, "loop": True},
    "gunicorn-asgi": _asgi,
    "gunicorn-uvicorn": _asgi,
    "uvicorn": _asgi,
    "granian": _asgi,
    "hypercorn": _asgi,
    "uwsgi": _uwsgi,
    "python314-gunicorn": _gthread,
    "python314-granian": lambda settings: {"threads": int(settings["threads"])},
}
"""What theory knows of one worker of each server, as fields of Servers, from the settings of the variant."""


_SWEEPING = {"uvicorn", "gunicorn-uvicorn", "gunicorn-asgi", "hypercorn"}
"""The servers on asyncio, which accepts connections until none waits."""

_STEPS: dict[str, Callable[[Sequence[WorkStep]], list[WorkStep]]] = {
    "fastapi-typed": lambda steps: [*steps, WorkStep(Constant(0.0), queues=True)],  # the pool also checks the answer
    "gunicorn-tornado": lambda steps: [
        *(one if one.does == "occupy" else replace(one, does="call") for one in steps),
        WorkStep(Constant(0.0), "call"),
    ],
}
"""What an application or a server makes of the steps of a request. Tornado's handlers block its loop, and the loop
sends an answer only after all handlers that wait meanwhile."""


def _classes(load: LoadRecord, stalls: Stalls | None) -> list[Class]:
    words = {name.lower(): value for name, value in load.settings.items()}
    asked = {name: float(value) for name, value in words.items() if _is_number(value)}
    match load.script:
        case "heavy-mix.js":
            return [
                Class("light", Closed(int(asked["light_vus"])), [WorkStep(Uniform(0.0, asked["light_delay_max_s"]))]),
                Class("heavy", Closed(int(asked["heavy_vus"])), [WorkStep(Constant(asked["heavy_delay_s"]))]),
            ]
        case "users.js":
            takes = Uniform(asked["delay_min_s"], asked["delay_max_s"])
            return [Class("user", Closed(int(asked["users"]), Constant(asked["pause_s"])), [WorkStep(takes)])]
        case "rounds.js":
            return [Class("work", Closed(int(asked["users"])), _work(asked))]
        case "arrivals.js":
            return [Class("arrival", _regular(asked["rate_rps"]), [WorkStep(Constant(asked["delay_s"]))])]
        case "calls.js":
            call = WorkStep(Constant(asked["call_delay_s"]), "call", stalls=stalls)
            quick = WorkStep(Constant(asked["quick_delay_s"]))
            return [
                Class("call", _regular(asked["call_rps"]), [call]),
                Class("quick", _regular(asked["quick_rps"]), [quick]),
            ]
        case "burst.js":
            if words["does"] == "compute":
                work = _work(asked)
            else:
                does: Literal["wait", "call"] = "wait" if words["does"] == "wait" else "call"
                work = [WorkStep(Constant(asked["delay_s"]), does, stalls=stalls)]
            return [Class("burst", Bursts(int(asked["burst"]), asked["every_s"], BURST_APART_S), work)]
        case "fibonacci.js":
            raise NotModelled("how long this machine computes")
        case "crash.js":
            raise NotModelled("workers that are killed")
        case "own.js" | "replay.js":
            raise NotModelled("how long somebody's own application works on a request")
        case "visits.js":
            raise NotModelled("visitors who give up, and the application's own work and database")
    raise NotModelled(f"the load {load.script}")


def _described(load: LoadRecord) -> list[Class]:
    found = [one.of(name) for name, one in read_classes(load.settings["CLASSES"]).items()]
    return [
        replace(one, arrivals=_regular(one.arrivals.per_second)) if isinstance(one.arrivals, Open) else one
        for one in found
    ]


def _regular(per_second: float) -> Open:
    return Open(per_second, regular=True, jitter=JITTER_S)


def _work(asked: Asked) -> list[WorkStep]:
    wait_s, compute_s = asked["wait_ms"] / 1000, asked["cpu_ms"] / 1000
    waits = [WorkStep(Uniform(wait_s, wait_s + LATE_S))] if wait_s else []
    return [*waits, WorkStep(Constant(compute_s), "compute")] * int(asked["rounds"])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _requests(model: QueueingSystem, load: LoadRecord) -> float:
    """Return about how many requests a trial has, if none waits."""
    return sum(one.rate for one in model.classes) * _lasts_s(load)


def _lasts_s(load: LoadRecord) -> int:
    return int(load.duration[:-1]) * (60 if load.duration[-1] == "m" else 1)


def _trials(
    model: QueueingSystem, variant: VariantRecord, load: LoadRecord, count: int = SIMULATED
) -> Iterator[SimulatedTrial]:
    from theory import simulate  # noqa: PLC0415  # loading Numba takes half a second

    seed = crc32(f"{variant.name} {load.name}".encode())
    names = [one.name for one in model.classes]
    for rows in simulate.simulate_trials(model, _lasts_s(load), range(seed, seed + count)):
        yield SimulatedTrial.of(variant, load, names, rows)


def _values(trials: list[SimulatedTrial]) -> dict[tuple[str | None, str, str], list[float]]:
    """Return the values of each statistic that most simulated trials have, and of each percentile that all have."""
    found: dict[tuple[str | None, str, str], list[float]] = {}
    for trial in trials:
        for family in FAMILIES:
            for finding in family.measure_simulated(trial):
                for (metric, stat), value in finding.stats.items():
                    found.setdefault((finding.request, metric, stat), []).append(value)
    least = {key: len(trials) if percentile(key[-1]) is not None else len(trials) / 2 for key in found}
    return {key: values for key, values in found.items() if len(values) >= least[key]}


def _of_runs(columns: Collection[Sequence[float]], trials: int) -> list[Prediction]:
    """Return of each column the median, and where the median of a run of ``trials`` trials falls in 95 of 100 runs.

    Six digits: the last bits of logarithms differ between processors, and a run is verified on any machine.
    """
    drawn = {
        length: np.random.Generator(np.random.SFC64(0)).integers(length, size=(_GROUPS, trials))
        for length in {len(values) for values in columns}
    }
    medians = [median_of_each(np.array(values)[drawn[len(values)]]) for values in columns]
    ends = np.quantile(medians, [0.025, 0.975], axis=1).T.tolist() if medians else []
    return [
        Prediction(*(float(f"{one:.6g}") for one in (median(values), *between)))
        for values, between in zip(columns, ends, strict=True)
    ]

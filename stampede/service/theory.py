"""The way that theory advises for a service, from how long its requests took in an earlier run."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

from stampede.advise.offered import OfferedLoad
from stampede.advise.options import ServingOption
from stampede.advise.ranking import rank
from stampede.errors import WrongUse
from stampede.evaluate.read.rows import opened
from stampede.evaluate.statistics.losses import Figures
from stampede.logs.access_log import representative_durations
from stampede.logs.reading import SHORTEST_S
from stampede.predict.system import simulated_class
from stampede.records.classes import RequestClass
from stampede.records.folder import read_run, read_summary, trial_folders
from stampede.records.run import TODAY
from stampede.servers.limits import SERVER_MIB, WORKER_MIB
from stampede.service.answers import Record
from stampede.service.description import UserService
from stampede.service.layer import Layer
from stampede.service.variants import ADVISED, NotPossible, make_way, needs_newer

COMPUTES = 0.2
"""From this part of their time on, requests that compute need a processor of their own."""

# What the application's requests took at work as it is served today, without the waits for a worker.
_TOOK = """
SELECT request_class, list(service_time_ms / 1000) FROM requests
WHERE variant = $today AND error IS NULL AND service_time_ms > 0 GROUP BY request_class HAVING count(*) > 1
"""


def advise_way(service: UserService, layer: Layer, earlier: Path, told: Record | None = None) -> ServingOption:
    """Return the best way for the load of an earlier run of a service. ``told`` is what its server said of itself.

    Raise WrongUse if there is no such run, or if theory cannot serve such an application.
    """
    served = service.served
    if not (earlier / "summary.json").exists():
        raise WrongUse(
            "--ways advised: there is no earlier run of this service.", hint="stampede try without --ways comes first."
        )
    if "limit" not in served.kind.tried:
        workers = served.kind.server.removeprefix("gunicorn-")
        raise WrongUse(f"--ways advised: there is no advice for {workers}, only for gunicorn's gthread and sync.")
    if not service.requests:
        raise WrongUse("--ways advised: there is no advice for the requests of a log; describe classes of requests.")
    load = _load_of(service, earlier)
    for ranked in rank(load):
        option = ranked.option
        kind = option.kind
        if kind.name in ("uwsgi", "queue") or needs_newer(served, kind.name):
            continue
        changed = served.model_copy(update={
            "worker_class": "gthread", "workers": option.workers, "threads": option.threads, "replicas": 1,
            "balance": "round_robin", "cpus": load.cpus or 0, "memory_mib": load.memory_mib,
        })  # fmt: skip
        try:
            described = service.model_copy(update={"served": changed})
            way = make_way(kind, described, layer, told=told, at_home=served)
        except NotPossible:
            continue  # its workers do not fit into the memory
        return replace(way, kind=replace(way.kind, name=f"{ADVISED}-{kind.name}", label=f"advised: {way.kind.label}"))
    raise WrongUse("--ways advised: no way that theory knows fits this service.")


def _load_of(service: UserService, earlier: Path) -> OfferedLoad:
    """Return the load of an earlier run: how long requests worked, and what they and the workers needed."""
    served = service.served
    folders = [folder for folder in trial_folders(earlier) if folder.parent.parent.name == TODAY]
    with opened(folders) as rows:
        took = dict(rows.execute(_TOOK, {"today": TODAY}).fetchall())
    figures = Figures(read_summary(earlier))
    computed_ms = figures.value(TODAY, None, "processor", "per_request") or 0.0
    used_mib = figures.value(TODAY, None, "memory", "total") or 0.0
    all_took_s = [took_s for times in took.values() for took_s in times]
    computes = min(1.0, computed_ms / 1000 / fmean(all_took_s)) if all_took_s else 0.0
    classes = [
        simulated_class(name, RequestClass(
            users=asked.users, pause_s=asked.pause_s, per_second=asked.per_second,
            takes_s=[max(SHORTEST_S, round(took_s, 6)) for took_s in representative_durations(took[name])],
            computes=computes,
        ))
        for name, asked in service.requests.items() if name in took
    ]  # fmt: skip
    if not classes:
        raise WrongUse(
            f"--ways advised: {earlier} has too few requests.", hint="stampede try without --ways, and then again"
        )
    each_mib = (used_mib - SERVER_MIB * served.replicas) / served.processes
    whole = served.cpus * served.replicas
    return OfferedLoad(
        classes=classes, computes=computes > COMPUTES, cores=whole or read_run(earlier).host.cores, cpus=whole or None,
        memory_mib=served.memory_mib * served.replicas, worker_mib=max(WORKER_MIB["own"], each_mib),
    )  # fmt: skip

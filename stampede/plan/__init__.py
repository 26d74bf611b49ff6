"""Lay out a run before anything starts: which trials it has, their order, and which trials run side by side."""

import random
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING

from stampede.errors import WrongUse
from stampede.experiment.model import DATABASE, Experiment, Load, check_duration, unknown_variant
from stampede.servers.base import Variant
from stampede.servers.services import services
from stampede.typed import option

if TYPE_CHECKING:
    from stampede.plan.placement import MemoryBudgets


@dataclass(frozen=True)
class PlannedTrial:
    """One variant under one load, once. If its rate is relative to a capacity, ``follows`` measures that capacity.

    ``live``: k6 writes its points so that they can be read while the load runs.
    """

    variant_name: str
    variant: Variant
    load_name: str
    load: Load
    duration: str
    number: int
    follows: "PlannedTrial | None" = None
    live: bool = False

    @property
    def needed_mib(self) -> dict[str, int]:
        """The memory limit by service, in MiB, added up over all containers of the service."""
        return {
            self.variant.service: self.variant.memory_mib * self.variant.replicas,
            **{name: int(services()[name]["mem_limit"].removesuffix("m")) for name in self.services_beside},
            **(self.variant.workload.memory_mib if self.variant.workload else {}),
            "k6": self.load.k6_mib(self.duration) * self.load.generators,
        }

    @property
    def services_beside(self) -> list[str]:
        """The services that take part beside the server and k6: balancer, client, called service (api), database."""
        beside = [("client", self.load.client), ("api", self.load.api), (DATABASE, self.load.database)]
        return [self.variant.front] * (self.variant.balancer != "none") + [name for name, used in beside if used]


@dataclass(frozen=True)
class Plan:
    """All trials of a run, in batches that are measured side by side."""

    batches: tuple[tuple[PlannedTrial, ...], ...]
    jobs: int
    seed: int

    @property
    def trials(self) -> list[PlannedTrial]:
        """All trials in the order of measuring."""
        return [trial for batch in self.batches for trial in batch]

    @property
    def rounds(self) -> list["Plan"]:
        """The plan in parts, each of which measures every variant once under every load."""
        parts = groupby(self.batches, lambda batch: batch[0].number)
        return [Plan(tuple(batches), self.jobs, self.seed) for _, batches in parts]

    def as_json(self) -> dict[str, object]:
        """Return the plan for JSON: the trials of each batch in order."""
        names = {"variant": "variant_name", "load": "load_name", "trial": "number", "duration": "duration"}
        batches = [
            [{key: getattr(trial, name) for key, name in names.items()} for trial in batch] for batch in self.batches
        ]
        return {"jobs": self.jobs, "seed": self.seed, "batches": batches}


def lay_out(
    experiment: Experiment,
    *,
    variants: list[str] | None = None,
    full: bool = False,
    duration: str | None = None,
    trials: int = 1,
    jobs: int = 1,
    seed: int = 0,
    memory: "MemoryBudgets | None" = None,
    live: bool = False,
) -> Plan:
    """Lay out the trials of an experiment. Pure: the same arguments give the same plan.

    Each round measures every chosen variant once under every load, in an order shuffled from ``seed``. If the
    experiment allows it, at most ``jobs`` trials run side by side, and only as many as fit into ``memory`` (None: any
    number). ``live`` goes to every trial. Raise WrongUse for an unknown variant, an invalid duration, a rate that
    follows from a variant that is not chosen, or a trial that does not fit into ``memory``.
    """
    chosen = variants or list(experiment.variants)
    for name in chosen:
        if name not in experiment.variants:
            raise unknown_variant(name, experiment)
    if duration is not None:
        check_duration(duration)
    for name, load in experiment.all_loads.items():
        if load.relative and load.relative.of not in chosen and any(map(load.is_for, chosen)):
            raise WrongUse(
                f"The rate of load {name} follows from the capacity of {load.relative.of}, which VARIANTS leaves out.",
                hint=option("variants", ",".join([load.relative.of, *chosen])),
            )
    jobs = jobs if experiment.parallel else 1
    shuffle = random.Random(seed).shuffle  # noqa: S311  # an order, not a secret
    batches = []
    made: dict[tuple[str, str, int], PlannedTrial] = {}
    for number in range(1, trials + 1):
        for load_name, load in experiment.all_loads.items():
            order = list(dict.fromkeys(chosen))
            shuffle(order)
            ready = [
                PlannedTrial(
                    variant_name=name,
                    variant=experiment.variants[name],
                    load_name=load_name,
                    load=load,
                    duration=duration or (load.duration.full if full else load.duration.short),
                    number=number,
                    follows=made[load.relative.of, load.relative.under, number] if load.relative else None,
                    live=live,
                )
                for name in order
                if load.is_for(name)
            ]
            if not ready:
                continue
            made |= {(trial.variant_name, load_name, number): trial for trial in ready}
            batches += _batches(ready, jobs, memory)
    return Plan(tuple(batches), jobs, seed)


def _batches(ready: list[PlannedTrial], jobs: int, memory: "MemoryBudgets | None") -> list[tuple[PlannedTrial, ...]]:
    """Divide trials into as few batches as ``memory`` allows. Raise WrongUse when a trial alone does not fit.

    The batches have equal sizes as far as possible, so that the trials disturb each other equally in all batches.
    """
    for trial in ready:
        if memory and (problem := memory.problem([trial])):
            where = "these machines" if len(memory.machines) > 1 else "this machine"
            raise WrongUse(
                f"{trial.variant_name} under {trial.load_name} does not fit into {where}: {problem}.",
                hint="Reduce the users, the replicas, memory_mib or the duration of the load, or end other programs.",
            )
    for count in range(ceil(len(ready) / jobs), len(ready) + 1):
        size = ceil(len(ready) / count)
        batches = [tuple(ready[start : start + size]) for start in range(0, len(ready), size)]
        if memory is None or not any(memory.problem(batch) for batch in batches):
            break
    return batches

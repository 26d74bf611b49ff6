"""Lay out a run before anything starts: its trials, their order, which run side by side, and on which machine."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Literal, Protocol, TypeVar

from stampede.errors import WrongUse
from stampede.experiment.model import DATABASE, Experiment, Load, check_duration, unknown_variant
from stampede.servers.base import Variant
from stampede.servers.services import services
from stampede.typed import option

FREE_SHARE, FREE_MIB = 0.1, 4096
"""The memory that stays free when all containers reach their limits: a tenth of the machine's, at most 4 GiB."""
LAB_MIB = 512
"""The memory that the lab and the engine's clients need during a trial."""


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


class HasRole(Protocol):
    """A machine of a run: its name, and what is placed on it."""

    @property
    def name(self) -> str:
        """The name of the machine in messages and records; the lab's own engine has none."""

    @property
    def role(self) -> str:
        """What runs on the machine: servers, load generators, or both."""


M = TypeVar("M", bound=HasRole)


def machines_for(what: Literal["servers", "load"], machines: Sequence[M]) -> list[M]:
    """Return the machines that run servers, or load generators."""
    return [machine for machine in machines if machine.role in (what, "both")]


def k6_service(number: int) -> str:
    """Return the service of a k6 container, given its number from 1."""
    return "k6" if number == 1 else f"k6-{number}"


def assign(trial: PlannedTrial, machines: Sequence[HasRole]) -> list[dict[str, int]]:
    """Return how many containers of each service run on each machine, in the order of ``machines``.

    The replicas of the server and the load generators take turns among their machines. All other services run on the
    first machine for servers, but a client that misbehaves runs on the first machine for load.
    """
    servers, load = machines_for("servers", machines), machines_for("load", machines)
    found: dict[str, dict[str, int]] = {machine.name: {} for machine in machines}
    for replica in range(trial.variant.replicas):
        mine = found[servers[replica % len(servers)].name]
        mine[trial.variant.service] = mine.get(trial.variant.service, 0) + 1
    for service in trial.services_beside:
        found[(load if service == "client" else servers)[0].name][service] = 1
    for number in range(1, trial.load.generators + 1):
        found[load[(number - 1) % len(load)].name][k6_service(number)] = 1
    return [found[machine.name] for machine in machines]


@dataclass(frozen=True)
class MemoryBudget:
    """The total and the available memory of a machine that containers run on, in MiB."""

    total_mib: int
    available_mib: int

    def problem(self, needed_mib: dict[str, int]) -> str | None:
        """Return why containers do not fit; None if they fit. ``needed_mib`` has a sum per service."""
        together_mib = sum(needed_mib.values())
        free_mib = int(min(FREE_SHARE * self.total_mib, FREE_MIB))
        most_mib = max(0, self.available_mib - free_mib - LAB_MIB)
        if together_mib <= most_mib:
            return None
        kinds = ", ".join(f"{service} {mib:,}" for service, mib in needed_mib.items())
        return (
            f"the memory limits of its containers add up to {together_mib:,} MiB ({kinds}), but containers can have "
            f"only {most_mib:,} MiB: {self.available_mib:,} of {self.total_mib:,} MiB are available, {free_mib:,} MiB "
            f"must stay free, and the lab itself needs {LAB_MIB} MiB"
        )


@dataclass(frozen=True)
class MemoryBudgets:
    """The memory of each machine of a run, in the order of ``machines``; the lab's own engine comes first."""

    machines: Sequence[HasRole]
    budgets: Sequence[MemoryBudget]

    def problem(self, trials: Sequence[PlannedTrial]) -> str | None:
        """Return why the containers of trials side by side do not fit; None if they fit."""
        needed: list[dict[str, int]] = [{} for _ in self.machines]
        for trial in trials:
            containers = {"k6": trial.load.generators, trial.variant.service: trial.variant.replicas}
            for mine, counts in zip(needed, assign(trial, self.machines), strict=True):
                for service, count in counts.items():
                    kind = "k6" if service.startswith("k6") else service  # k6-2 is a further container of k6
                    each_mib = trial.needed_mib[kind] // containers.get(kind, 1)
                    mine[kind] = mine.get(kind, 0) + count * each_mib
            beside_mib = trial.variant.workload.memory_mib if trial.variant.workload else {}
            for service, mib in beside_mib.items():  # only on the lab's own engine
                needed[0][service] = needed[0].get(service, 0) + mib
        for machine, budget, mine in zip(self.machines, self.budgets, needed, strict=True):
            if problem := budget.problem(mine):
                return f"on {machine.name}, {problem}" if machine.name else problem
        return None


def lay_out(
    experiment: Experiment,
    *,
    variants: list[str] | None = None,
    full: bool = False,
    duration: str | None = None,
    trials: int = 1,
    jobs: int = 1,
    seed: int = 0,
    memory: MemoryBudgets | None = None,
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
                    name,
                    experiment.variants[name],
                    load_name,
                    load,
                    duration=duration or (load.duration.full if full else load.duration.short),
                    number=number,
                    follows=made[load.relative.of, load.relative.under, number] if load.relative else None,
                    live=live,
                )
                for name in order
                if load.is_for(name)
            ]
            made |= {(trial.variant_name, load_name, number): trial for trial in ready}
            batches += _batches(ready, jobs, memory) if ready else []
    return Plan(tuple(batches), jobs, seed)


def _batches(ready: list[PlannedTrial], jobs: int, memory: MemoryBudgets | None) -> list[tuple[PlannedTrial, ...]]:
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

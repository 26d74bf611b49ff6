"""Decide which containers of a trial run on which machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stampede.plan import PlannedTrial


class HasRole(Protocol):
    """A machine of a run: its name, and what is placed on it."""

    @property
    def name(self) -> str:
        """The name of the machine in messages and records."""

    @property
    def role(self) -> str:
        """What runs on the machine: servers, load generators, or both."""


M = TypeVar("M", bound=HasRole)


def server_machines(machines: Sequence[M]) -> list[M]:
    """Return the machines that run servers."""
    return [machine for machine in machines if machine.role != "load"]


def load_machines(machines: Sequence[M]) -> list[M]:
    """Return the machines that run load generators."""
    return [machine for machine in machines if machine.role != "servers"]


def k6_service(number: int) -> str:
    """Return the service of a k6 container, given its number from 1."""
    return "k6" if number == 1 else f"k6-{number}"


def assign(trial: PlannedTrial, machines: Sequence[HasRole]) -> list[dict[str, int]]:
    """Return how many containers of each service run on each machine, in the order of ``machines``.

    The replicas of the server and the load generators take turns among their machines. All other services run on the
    first machine for servers, but a client that misbehaves runs on the first machine for load.
    """
    servers, load = server_machines(machines), load_machines(machines)
    found: dict[str, dict[str, int]] = {machine.name: {} for machine in machines}
    for replica in range(trial.variant.replicas):
        mine = found[servers[replica % len(servers)].name]
        mine[trial.variant.service] = mine.get(trial.variant.service, 0) + 1
    for service in trial.services_beside:
        found[(load if service == "client" else servers)[0].name][service] = 1
    for number in range(1, trial.load.generators + 1):
        found[load[(number - 1) % len(load)].name][k6_service(number)] = 1
    return [found[machine.name] for machine in machines]


FREE_SHARE, FREE_MIB = 0.1, 4096
"""The memory that stays free when all containers reach their limits: a tenth of the machine's, at most 4 GiB."""
LAB_MIB = 512
"""The memory that the lab and the engine's clients need during a trial."""


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
    """The memory of each machine of a run, in the order of ``machines``; the lab's own engine has no name."""

    machines: Sequence[HasRole]
    budgets: Sequence[MemoryBudget]

    def problem(self, trials: Sequence[PlannedTrial]) -> str | None:
        """Return why the containers of trials side by side do not fit; None if they fit."""
        needed: list[dict[str, int]] = [{} for _ in self.machines]
        for trial in trials:
            for mine, counts in zip(needed, assign(trial, self.machines), strict=True):
                for service, count in counts.items():
                    kind = "k6" if service.startswith("k6") else service  # k6-2 is a further container of k6
                    containers = {"k6": trial.load.generators, trial.variant.service: trial.variant.replicas}
                    each_mib = trial.needed_mib[kind] // containers.get(kind, 1)
                    mine[kind] = mine.get(kind, 0) + count * each_mib
            beside_mib = trial.variant.workload.memory_mib if trial.variant.workload else {}
            for service, mib in beside_mib.items():  # only on the lab's own engine
                needed[0][service] = needed[0].get(service, 0) + mib
        for machine, budget, mine in zip(self.machines, self.budgets, needed, strict=True):
            if problem := budget.problem(mine):
                return f"on {machine.name}, {problem}" if machine.name else problem
        return None

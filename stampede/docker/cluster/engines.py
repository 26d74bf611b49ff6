"""The engines that run the containers of a run: the lab's own engine, or an engine on each machine of a cluster."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from stampede.docker.client import HERE, Machine
from stampede.docker.cluster.probe import MachineLost, Probe
from stampede.docker.machine_usage import Look, MemorySampler, Progress, Quiet, Usage, local_state, settle
from stampede.records.run import Exchange, MachineRecord

T = TypeVar("T")


@dataclass(frozen=True)
class Engines:
    """The machines of a run, and the probe on each machine. Without probes, everything runs on the lab's machine.

    ``overlay``: containers on several machines share a network, which Docker's swarm spans.
    """

    machines: tuple[Machine, ...] = (HERE,)
    probes: Mapping[str, Probe] = field(default_factory=dict)
    overlay: bool = False

    @property
    def looks(self) -> dict[str, Look]:
        """What looks at each machine, by the machine's name; the lab's own machine has no name."""
        return {name: probe.look for name, probe in self.probes.items()} or {"": local_state}

    def settle(self, progress: Progress) -> Quiet:
        """Wait until all machines are quiet."""
        return settle(progress, self.looks.values())

    def watch_memory(self) -> Callable[[], str | None]:
        """Return a function that says why a machine is short of memory; None: no machine is."""
        samplers = [MemorySampler(look, f"the machine {name}".strip()) for name, look in self.looks.items()]

        def shortage() -> str | None:
            return next((reason for sampler in samplers if (reason := _unless_lost(sampler.shortage))), None)

        return shortage

    def exchanges(self) -> dict[str, list[Exchange]]:
        """Ask every machine for its time. Raise MachineLost if a machine does not answer."""
        return {name: probe.exchanges() for name, probe in self.probes.items()}


class UsageSamplers:
    """Measure how busy each machine is during a load, and what the clocks of the machines tell before and after it."""

    def __init__(self, engines: Engines) -> None:
        """Begin. Raise MachineLost if a machine does not answer."""
        self._engines = engines
        self.exchanges = engines.exchanges()
        self._wall_s, self._monotonic_s = time.time(), time.monotonic()
        self.begin()

    def begin(self) -> None:
        """Begin to measure how busy the machines are, because the load begins now."""
        self._before = {name: _unless_lost(look) for name, look in self._engines.looks.items()}

    def begins_at(self, machine: Machine, at: float) -> float:
        """Return what the clock of a machine tells at a moment ``at`` (epoch seconds) of the lab's clock."""
        exchanges = self.exchanges.get(machine.name)
        return at + offset_s(exchanges) if exchanges else at

    def read(self) -> "UsageUnderLoad":
        """Return what was seen of each machine."""
        usages: dict[str, Usage | None] = {}
        for name, look in self._engines.looks.items():
            state, before = _unless_lost(look), self._before[name]
            usages[name] = state.usage_since(before) if state and before else None
        for name, probe in self._engines.probes.items():
            self.exchanges[name] += _unless_lost(probe.exchanges) or []
        clock_step_s = time.time() - self._wall_s - (time.monotonic() - self._monotonic_s)
        return UsageUnderLoad(usages, self.exchanges, round(clock_step_s, 3))


@dataclass(frozen=True)
class UsageUnderLoad:
    """How busy each machine was during a load (None: it does not answer any more), and what the clocks told.

    ``clock_step_s``: by how much somebody set the clock of the lab's machine.
    """

    usages: Mapping[str, Usage | None]
    exchanges: Mapping[str, list[Exchange]]
    clock_step_s: float

    def most(self, share: Callable[[Usage], float | None]) -> float | None:
        """Return a share of the machine that has the most of it; None: no machine tells."""
        shares = [value for usage in self.usages.values() if usage and (value := share(usage)) is not None]
        return max(shares, default=None)

    def record(self, name: str, hosts: Sequence[str], generators: Sequence[str]) -> MachineRecord:
        """Return how a trial records one machine."""
        usage = self.usages.get(name)
        used = {f"{part}_during": getattr(usage, part) for part in ("busy", "steal", "pressure")} if usage else {}
        exchanges = self.exchanges.get(name, [])
        return MachineRecord(name=name, hosts=[*hosts], generators=[*generators], exchanges=exchanges, **used)


def offset_s(exchanges: Sequence[Exchange]) -> float:
    """Return how far a clock is ahead of the lab's: the median over the quarter of exchanges that took the least time.

    The time that a machine told is compared with the middle of its exchange (Cristian 1989, Probabilistic clock
    synchronization).
    """
    quick = sorted(exchanges, key=lambda exchange: exchange.answered - exchange.asked)[: max(1, len(exchanges) // 4)]
    return median(exchange.told - (exchange.asked + exchange.answered) / 2 for exchange in quick)


def _unless_lost(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except MachineLost:
        return None

"""The engines that run the containers of a run: the lab's own engine, or an engine on each machine of a cluster."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from stampede.docker.client import HERE, Machine
from stampede.docker.cluster.probe import MachineLost, Probe
from stampede.docker.machine_usage import Look, Usage, local_state, memory_shortage
from stampede.records.run import Exchange, MachineRecord

T = TypeVar("T")


@dataclass(frozen=True)
class Engines:
    """The machines of a run, and the probe on each machine. Without probes, everything runs on the lab's machine."""

    machines: tuple[Machine, ...] = (HERE,)
    probes: Mapping[str, Probe] = field(default_factory=dict)

    @property
    def overlay(self) -> bool:
        """Whether containers on several machines share a network, which Docker's swarm spans."""
        return len(self.machines) > 1

    @property
    def looks(self) -> dict[str, Look]:
        """What looks at each machine, by the machine's name; the lab's own machine has no name."""
        return {name: probe.look for name, probe in self.probes.items()} or {"": local_state}

    def watch_memory(self) -> Callable[[], str | None]:
        """Return a function that says why a machine is short of memory since its last call; None: no machine is."""
        states = {name: _unless_lost(look) for name, look in self.looks.items()}

        def shortage() -> str | None:
            for name, look in self.looks.items():
                before, now = states[name], _unless_lost(look)
                states[name] = now
                if before and now and (reason := memory_shortage(before, now, f"the machine {name}".strip())):
                    return reason
            return None

        return shortage


class UsageUnderLoad:
    """How busy each machine is during a load, and what the clocks of the machines tell before and after it.

    Its three moments: it is made before the load generators start, ``begin`` is called when the load begins, and
    ``end`` when it has ended. Only then ``usages`` and ``clock_step_s`` are known.

    ``usages``: by the machine's name; None: it does not answer any more. ``clock_step_s``: by how much somebody set the
    clock of the lab's machine.
    """

    def __init__(self, engines: Engines) -> None:
        """Ask the machines for their times. Raise MachineLost if one of them does not answer."""
        self._engines = engines
        self.usages: dict[str, Usage | None] = {}
        self.clock_step_s: float | None = None
        self.exchanges = {name: probe.exchanges() for name, probe in engines.probes.items()}
        self._set_by_s = time.time() - time.monotonic()
        self.begin()

    def begin(self) -> None:
        """Begin to measure how busy the machines are, because the load begins now."""
        self._before = {name: _unless_lost(look) for name, look in self._engines.looks.items()}

    def end(self) -> None:
        """Note what was seen of each machine, because the load has ended."""
        for name, look in self._engines.looks.items():
            state, before = _unless_lost(look), self._before[name]
            self.usages[name] = state.usage_since(before) if state and before else None
        for name, probe in self._engines.probes.items():
            self.exchanges[name] += _unless_lost(probe.exchanges) or []
        self.clock_step_s = round(time.time() - time.monotonic() - self._set_by_s, 3)

    def begins_at(self, machine: Machine, at: float) -> float:
        """Return what the clock of a machine tells at a moment ``at`` (epoch seconds) of the lab's clock."""
        exchanges = self.exchanges.get(machine.name)
        return at + offset_s(exchanges) if exchanges else at

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

"""The engines that run the containers of a run: the lab's own engine, or an engine on each machine of a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from analysis.records.run import Exchange, MachineRecord
from lab.engine.cluster.machines import Machine, default_machine
from lab.engine.cluster.probe import MachineLost, Probe
from lab.engine.machine_usage import Clock, MemorySampler, Progress, Quiet, Usage, UsageSampler, local_state, settle

T = TypeVar("T")
Look = Callable[[], str | None]


@dataclass(frozen=True)
class Engines:
    """The machines of a run, and the probe on each machine. Without probes, everything runs on the lab's machine.

    ``overlay``: containers on several machines share a network, which Docker's swarm spans.
    """

    machines: tuple[Machine, ...] = field(default_factory=lambda: (default_machine(),))
    probes: Mapping[str, Probe] = field(default_factory=dict)
    overlay: bool = False
    encrypted: bool = False

    def settle(self, progress: Progress) -> Quiet:
        """Wait until all machines are quiet."""
        return settle(progress, [probe.look for probe in self.probes.values()] or [local_state])

    def memory(self) -> Look:
        """Return a function that says why a machine is short of memory; None: no machine is."""
        memories = [MemorySampler(one.look, f"the machine {name}") for name, one in self.probes.items()] or [
            MemorySampler()
        ]

        def shortage() -> str | None:
            return next((said for memory in memories if (said := _unless_lost(memory.shortage))), None)

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
        self._clock = Clock()
        self._watches = {name: UsageSampler(probe.look) for name, probe in engines.probes.items()} or {
            "": UsageSampler()
        }

    def begins_at(self, machine: Machine, at: float) -> float:
        """Return what the clock of a machine tells at a moment ``at`` (epoch seconds) of the lab's clock."""
        asked = self.exchanges.get(machine.name)
        return at + offset_s(asked) if asked else at

    def begin(self) -> None:
        """Begin to measure how busy the machines are, because the load begins now."""
        self._watches = {name: UsageSampler(one.look) for name, one in self._engines.probes.items()} or {
            "": UsageSampler()
        }

    def read(self) -> "UsageUnderLoad":
        """Return what was seen of each machine."""
        used = {name: _unless_lost(watch.read) for name, watch in self._watches.items()}
        for name, probe in self._engines.probes.items():
            self.exchanges[name] += _unless_lost(probe.exchanges) or []
        return UsageUnderLoad(used, self.exchanges, self._clock.step_s())


@dataclass(frozen=True)
class UsageUnderLoad:
    """The machines during a load: how busy each of them was (None: it does not answer any more), and their clocks."""

    used: Mapping[str, Usage | None]
    exchanges: Mapping[str, list[Exchange]]
    clock_step_s: float

    @property
    def lost(self) -> list[str]:
        """The machines that do not answer any more."""
        return [name for name, usage in self.used.items() if usage is None]

    def most(self, what: Callable[[Usage], float | None]) -> float | None:
        """Return a share of the machine that has the most of it; None: no machine tells."""
        told = [value for usage in self.used.values() if usage and (value := what(usage)) is not None]
        return max(told, default=None)

    def record(self, name: str, hosts: Sequence[str], generators: Sequence[str]) -> MachineRecord:
        """Return how a trial records one machine."""
        usage = self.used.get(name)
        return MachineRecord(
            name=name,
            hosts=list(hosts),
            generators=list(generators),
            exchanges=self.exchanges.get(name, []),
            busy_during=usage and usage.busy,
            steal_during=usage and usage.steal,
            pressure_during=usage and usage.pressure,
        )


def offset_s(exchanges: Sequence[Exchange]) -> float:
    """Return how far a clock is ahead of the lab's: the median over the quarter of exchanges that took the least time.

    The time that a machine told is compared with the middle of its exchange (Cristian 1989, Probabilistic clock
    synchronization).
    """
    quick = sorted(exchanges, key=lambda one: one.answered - one.asked)[: max(1, len(exchanges) // 4)]
    return median(one.told - (one.asked + one.answered) / 2 for one in quick)


def _unless_lost(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except MachineLost:
        return None

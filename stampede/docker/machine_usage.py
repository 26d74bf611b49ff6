"""Watch the machine: whether it is quiet before a load, and how busy it is during the load."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

QUIET = 0.2
QUIET_WITHIN_S = 10
SOON_S = 2
"""For how long the lab waits until the machine is quiet, before it says how long a run takes."""
LOOK_S = 0.4
"""For how long the lab looks whether a machine is quiet."""
HARDLY_ANY_MEMORY = 0.05, 1 * 2**30
LITTLE_MEMORY = 0.1, 2 * 2**30
"""Bounds of the available memory, as a share and in bytes; the lower bound counts. Plans leave a tenth available."""
STALLED = 0.2
"""The share of the time that programs wait for memory, above which little available memory is a shortage."""

Progress = Callable[[str, float, float], None]
"""A function that is called with the current step, the seconds that it has taken, and the seconds expected."""


@dataclass(frozen=True)
class Quiet:
    """How long the lab waited for a quiet machine, and how busy the machine was then, as a share of all cores."""

    waited_s: float
    busy: float


@dataclass(frozen=True)
class Usage:
    """A machine during some time, as shares between 0 and 1. None: the kernel does not tell."""

    busy: float
    steal: float | None
    pressure: float | None


@dataclass(frozen=True)
class MachineState:
    """A machine at one moment.

    ``at_s`` is by the lab's monotonic clock. Processor times are in seconds since the machine's start, summed over all
    cores; ``idle_s`` includes the time in which a core only waited for a disk. ``cpu_waits_us`` and ``memory_waits_us``
    are how long any program waited for a processor, or for memory. Memory is in bytes. None: the kernel does not tell.
    """

    at_s: float
    total_s: float
    idle_s: float
    steal_s: float | None
    cpu_waits_us: int | None
    memory_waits_us: int | None
    available: int
    memory: int

    def usage_since(self, before: "MachineState") -> Usage:
        """Return the usage of the machine since an earlier state."""
        passed_s = self.total_s - before.total_s
        steal_s = None if self.steal_s is None or before.steal_s is None else self.steal_s - before.steal_s
        return Usage(
            busy=1 - (self.idle_s - before.idle_s) / passed_s if passed_s > 0 else 0.0,
            steal=steal_s and steal_s / (passed_s or 1.0),
            pressure=_waiting(before.cpu_waits_us, self.cpu_waits_us, self.at_s - before.at_s),
        )


Look = Callable[[], MachineState]
"""Looks at a machine."""


READS = ("/proc/stat", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/meminfo")
"""The files in which the kernel of Linux says what ``state_of`` needs."""


def state_of(texts: Sequence[str]) -> MachineState:
    """Return the state of a machine, given the texts of READS; those of the pressures are empty on older kernels."""
    stat, cpu, memory, meminfo = texts
    # user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second
    spent = [int(value) / 100 for value in stat.partition("\n")[0].split()[1:]]
    kib = dict(re.findall(r"^(\w+):\s+(\d+) kB$", meminfo, flags=re.MULTILINE))
    return MachineState(
        at_s=time.monotonic(), total_s=sum(spent[:8]), idle_s=spent[3] + spent[4], steal_s=spent[7],
        cpu_waits_us=pressure_us(cpu), memory_waits_us=pressure_us(memory),
        available=int(kib["MemAvailable"]) * 1024, memory=int(kib["MemTotal"]) * 1024,
    )  # fmt: skip


def local_state() -> MachineState:
    """Look at the machine on which the lab runs. Raise OSError unless it runs Linux."""
    texts = []
    for path in READS:
        try:
            texts.append(Path(path).read_text(encoding="ascii"))
        except OSError:
            if "pressure" not in path:
                raise
            texts.append("")
    return state_of(texts)


def busy_share(looks: Iterable[Look]) -> float:
    """Look at machines for LOOK_S, and return how busy the busiest of them was, as a share of its cores."""
    before = [(look, look()) for look in looks]
    time.sleep(LOOK_S)
    return max(look().usage_since(state).busy for look, state in before)


def is_busy() -> bool:
    """Whether other programs keep this machine busy, so that it is not quiet within SOON_S; False without Linux."""
    began = time.monotonic()
    with suppress(OSError):
        while busy_share([local_state]) > QUIET:
            if time.monotonic() - began > SOON_S:
                return True
    return False


def memory_shortage(before: MachineState, now: MachineState, machine: str = "the machine") -> str | None:
    """Return why a machine, which ``machine`` names, is short of memory; None if it is not.

    It is if hardly any memory is available, or if little is and programs waited for memory for more than a fifth of the
    time. Waiting alone is no shortage, because programs also wait when a container reaches its own limit.
    """
    waited = _waiting(before.memory_waits_us, now.memory_waits_us, now.at_s - before.at_s) or 0.0
    share, most = LITTLE_MEMORY if waited > STALLED else HARDLY_ANY_MEMORY
    if now.available >= min(share * now.memory, most):
        return None
    available = f"{now.available // 2**20:,} of {now.memory // 2**20:,} MiB were available"
    return f"{machine} ran short of memory: {available}, and programs waited for memory {waited:.0%} of the time"


def _waiting(before_us: int | None, now_us: int | None, passed_s: float) -> float | None:
    """Return the share of a time in which any program waited for a resource; None if unknown."""
    if before_us is None or now_us is None or passed_s <= 0:
        return None
    return (now_us - before_us) / 1e6 / passed_s


def pressure_us(text: str) -> int | None:
    """Return the microseconds in a file of pressure stall information; None if the file is empty."""
    some = text.partition("\n")[0]
    return int(some.rpartition("total=")[2]) if some else None

"""Watch the machine: whether it is quiet before a load, and how busy it is during the load."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

QUIET = 0.2
QUIET_WITHIN_S = 10
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


def settle(progress: Progress) -> Quiet:
    """Wait until the machine is quiet, for at most QUIET_WITHIN_S, and return how busy it still is."""
    began = time.monotonic()
    while True:
        busy = psutil.cpu_percent(interval=0.4) / 100
        waited_s = time.monotonic() - began
        if busy <= QUIET or waited_s > QUIET_WITHIN_S:
            return Quiet(waited_s, busy)
        progress("waiting until the machine is quiet", waited_s, QUIET_WITHIN_S)


@dataclass(frozen=True)
class Usage:
    """The machine during the load, as shares between 0 and 1, and the clock's step. None: the kernel does not tell."""

    busy: float
    steal: float | None
    pressure: float | None
    clock_step_s: float


class Watch:
    """Measure how busy the machine is between the creation of a Watch and ``read``."""

    def __init__(self) -> None:
        self._cpu = psutil.cpu_times()
        self._pressure_us = _pressure_us("cpu")
        self._wall_s, self._monotonic_s = time.time(), time.monotonic()

    def read(self) -> Usage:
        """Return the machine's usage since the creation of this Watch."""
        last = psutil.cpu_times()
        spent = {field: getattr(last, field) - getattr(self._cpu, field) for field in last._fields}
        total = sum(value for field, value in spent.items() if not field.startswith("guest")) or 1.0
        elapsed_s = time.monotonic() - self._monotonic_s
        pressure_us = _pressure_us("cpu")
        return Usage(
            busy=1 - (spent["idle"] + spent.get("iowait", 0.0)) / total,
            steal=spent["steal"] / total if "steal" in spent else None,
            pressure=None
            if pressure_us is None or self._pressure_us is None
            else (pressure_us - self._pressure_us) / 1e6 / elapsed_s,
            clock_step_s=round(time.time() - self._wall_s - elapsed_s, 3),
        )


class Memory:
    """Check repeatedly whether the machine is short of memory."""

    def __init__(self) -> None:
        self._stalled_us, self._at_s = _pressure_us("memory"), time.monotonic()

    def shortage(self) -> str | None:
        """Return why the machine is short of memory; None if it is not.

        The machine is short of memory if hardly any memory is available, or if little memory is available and programs
        waited for memory for more than a fifth of the time since the last call. Waiting alone is no shortage, because
        programs also wait when a container reaches its own limit.
        """
        memory = psutil.virtual_memory()
        waited = self._waited()
        share, most = LITTLE_MEMORY if waited > STALLED else HARDLY_ANY_MEMORY
        if memory.available >= min(share * memory.total, most):
            return None
        available = f"{memory.available // 2**20:,} of {memory.total // 2**20:,} MiB were available"
        return f"the machine ran short of memory: {available}, and programs waited for memory {waited:.0%} of the time"

    def _waited(self) -> float:
        """Return the share of the time since the last call in which a program waited for memory; 0 if unknown."""
        stalled_us, at_s = _pressure_us("memory"), time.monotonic()
        before_us, before_s = self._stalled_us, self._at_s
        self._stalled_us, self._at_s = stalled_us, at_s
        if stalled_us is None or before_us is None or at_s <= before_s:
            return 0.0
        return (stalled_us - before_us) / 1e6 / (at_s - before_s)


def _pressure_us(resource: Literal["cpu", "memory"]) -> int | None:
    """Return for how many microseconds since the machine's start any program waited for a resource; None if unknown."""
    try:
        some = Path(f"/proc/pressure/{resource}").read_text(encoding="ascii").splitlines()[0]
    except (OSError, IndexError):  # a kernel without pressure stall information
        return None
    return int(some.rpartition("total=")[2])

"""The machine itself: is it quiet before a load, and what happens to it meanwhile?"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

QUIET = 0.2
QUIET_WITHIN_S = 10

Progress = Callable[[str, float, float], None]
"""Called with what is being done, for how many seconds, of how many expected."""


@dataclass(frozen=True)
class Quiet:
    """How long the machine took to become quiet, and how busy it still was, as a share of all cores."""

    waited_s: float
    busy: float


def settle(progress: Progress) -> Quiet:
    """Wait until the machine is quiet, but not for ever: what was still going on is written down."""
    began = time.monotonic()
    while True:
        busy = psutil.cpu_percent(interval=0.4) / 100
        waited_s = time.monotonic() - began
        if busy <= QUIET or waited_s > QUIET_WITHIN_S:
            return Quiet(waited_s, busy)
        progress("waiting until the machine is quiet", waited_s, QUIET_WITHIN_S)


@dataclass(frozen=True)
class Usage:
    """The machine during the load, as shares between 0 and 1; None: it does not tell."""

    busy: float
    steal: float
    pressure: float | None
    clock_step_s: float


class Watch:
    """Accounts for the machine from its making to ``read``."""

    def __init__(self) -> None:
        self._cpu = psutil.cpu_times()
        self._pressure_us = _cpu_pressure_us()
        self._wall_s, self._monotonic_s = time.time(), time.monotonic()

    def read(self) -> Usage:
        """Return how the machine was since the making."""
        last = psutil.cpu_times()
        spent = {field: getattr(last, field) - getattr(self._cpu, field) for field in last._fields}
        total = sum(value for field, value in spent.items() if not field.startswith("guest")) or 1.0
        elapsed_s = time.monotonic() - self._monotonic_s
        pressure_us = _cpu_pressure_us()
        return Usage(
            busy=1 - (spent["idle"] + spent.get("iowait", 0.0)) / total,
            steal=spent.get("steal", 0.0) / total,
            pressure=None
            if pressure_us is None or self._pressure_us is None
            else (pressure_us - self._pressure_us) / 1e6 / elapsed_s,
            clock_step_s=round(time.time() - self._wall_s - elapsed_s, 3),
        )


def _cpu_pressure_us() -> int | None:
    """Return for how many microseconds since its start something on this machine waited for a processor."""
    try:
        some = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
    except (OSError, IndexError):  # a kernel without pressure stall information
        return None
    return int(some.rpartition("total=")[2])

"""docker.machine_usage: when a machine is short of memory; the readings are by hand, as none is short on demand."""

from dataclasses import replace

import pytest

from stampede.docker import machine_usage
from stampede.docker.machine_usage import MachineState, MemorySampler


def memory(left: float, waited: float | None) -> str | None:
    """Return what is said after a second in which programs waited for so long, when so much memory is left."""
    before = MachineState(at_s=100.0, total_s=0, idle_s=0, steal_s=None, cpu_waits_us=None,
                   memory_waits_us=None if waited is None else 5_000_000,
                   available=round(left * 8192) * 2**20, memory=8192 * 2**20)  # fmt: skip
    waits_us = None if waited is None else 5_000_000 + round(waited * 1e6)
    states = iter([before, replace(before, at_s=101.0, memory_waits_us=waits_us)])
    return MemorySampler(lambda: next(states)).shortage()


@pytest.mark.parametrize(
    ("left", "waited", "message"),
    [
        (0.5, 0.0, None),
        (0.5, 0.9, None),  # a container waits at its own limit
        (0.09, 0.1, None),
        (0.09, 0.3, "the machine ran short of memory: 737 of 8,192 MiB were available, and programs waited for memory "
                    "30% of the time"),
        (0.04, 0.0, "the machine ran short of memory: 328 of 8,192 MiB were available, and programs waited for memory "
                    "0% of the time"),
        (0.06, None, None),  # a kernel without pressure stall information
        (0.04, None, "the machine ran short of memory: 328 of 8,192 MiB were available, and programs waited for memory "
                     "0% of the time"),
    ],
)  # fmt: skip
def test_a_machine_is_short_of_memory_when_hardly_any_is_left(
    left: float, waited: float | None, message: str | None
) -> None:
    """Or when little is left and programs wait for it."""
    assert memory(left, waited) == message


def test_pressure_is_read_where_the_kernel_tells() -> None:
    for resource in ("cpu", "memory"):
        pressure_us = machine_usage._pressure_us(resource)
        assert pressure_us is None or pressure_us >= 0

"""docker.machine_usage: when a machine is short of memory; the readings are by hand, as none is short on demand."""

from dataclasses import replace

import pytest

from stampede.docker.machine_usage import MachineState, memory_shortage

STATE = MachineState(at_s=100.0, total_s=0, idle_s=0, steal_s=None, cpu_waits_us=None, memory_waits_us=5_000_000,
                     available=0, memory=8192 * 2**20)  # fmt: skip


@pytest.mark.parametrize(
    ("left", "waited", "says"),
    [
        (0.5, 0.0, None),
        (0.5, 0.9, None),  # a container waits at its own limit
        (0.09, 0.1, None),
        (0.09, 0.3, "737 of 8,192 MiB were available, and programs waited for memory 30% of the time"),
        (0.04, 0.0, "328 of 8,192 MiB were available, and programs waited for memory 0% of the time"),
        (0.06, None, None),  # a kernel without pressure stall information
        (0.04, None, "328 of 8,192 MiB were available, and programs waited for memory 0% of the time"),
    ],
)
def test_a_machine_is_short_of_memory_when_hardly_any_is_left_or_when_little_is_left_and_programs_wait_for_it(
    left: float, waited: float | None, says: str | None
) -> None:
    before = replace(STATE, memory_waits_us=None if waited is None else STATE.memory_waits_us)
    waits_us = None if waited is None else 5_000_000 + round(waited * 1e6)
    now = replace(before, at_s=101.0, memory_waits_us=waits_us, available=round(left * 8192) * 2**20)

    assert memory_shortage(before, now) == (says and f"the machine ran short of memory: {says}")

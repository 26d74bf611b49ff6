"""lab.machine.watch: when a machine is short of memory; the readings are by hand, for no machine is short on demand."""

from types import SimpleNamespace

import psutil
import pytest

from lab.machine import watch
from lab.machine.watch import Memory


def memory(monkeypatch: pytest.MonkeyPatch, left: float, waited: float | None) -> str | None:
    """Return what is said after a second in which programs waited for so long, when so much memory is left."""
    available = SimpleNamespace(available=round(left * 8192) * 2**20, total=8192 * 2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: available)
    stalled_us = iter([None, None] if waited is None else [5_000_000, 5_000_000 + waited * 1e6])
    monkeypatch.setattr(watch, "_pressure_us", lambda _: next(stalled_us))
    times_s = iter([100.0, 101.0])
    monkeypatch.setattr("lab.machine.watch.time.monotonic", lambda: next(times_s))
    return Memory().shortage()


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
    monkeypatch: pytest.MonkeyPatch, left: float, waited: float | None, message: str | None
) -> None:
    """Or when little is left and programs wait for it."""
    assert memory(monkeypatch, left, waited) == message


def test_pressure_is_read_where_the_kernel_tells() -> None:
    for resource in ("cpu", "memory"):
        pressure_us = watch._pressure_us(resource)
        assert pressure_us is None or pressure_us >= 0

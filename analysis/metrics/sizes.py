"""Numbers of bytes as text."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.records.run import ContainerLog


def megabytes(size: float) -> str:
    """Return a number of bytes as megabytes; below 0.1 MB, as kilobytes."""
    value, unit = (size / 1e6, "MB") if size >= 1e5 else (size / 1e3, "kB")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def cut_logs(logs: "Mapping[str, ContainerLog]", written: Mapping[str, int | None]) -> dict[str, str]:
    """Return how much is there of each log that lacks its beginning, e.g. the last 1.8 MB of about 133 MB.

    ``written`` is how many bytes each container wrote in all; None: nobody knows.
    """
    found = {}
    for name, log in logs.items():
        if log.cut:
            total = written.get(name) or 0
            found[name] = f"the last {megabytes(log.kept)}" + (f" of about {megabytes(total)}" * (total > log.kept))
    return found

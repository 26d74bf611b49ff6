"""Whether theory is right: each predicted figure of a run beside the measured figure."""

from collections.abc import Iterator
from typing import NamedTuple

from stampede.predict.system import system_of
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.theory.model import Servers

VALIDATED = {
    ("overhead", "p50"), ("overhead", "p90"), ("overhead", "p99"), ("avoidable_wait", "share"),
    ("avoidable_wait", "max"), ("requests_by_worker", "largest_share"), ("throughput", "per_second"),
    ("burst", "total"),
}  # fmt: skip
"""The statistics of waits, shares, throughput and bursts that are compared."""
WITHIN_MS = 20
"""Times count as equal within these milliseconds, because theory knows the network, Python and nginx as one number."""
WITHIN = 0.05
"""All figures count as equal within this part of the prediction."""


class Compared(NamedTuple):
    """One figure, the experiment, and how the variant's workers get their requests."""

    experiment: str
    policy: str
    row: Estimate
    is_inside: bool


def compare_predictions(run: Run, summary: Summary) -> Iterator[Compared]:
    """Yield every figure that is both measured and predicted, of each class and of bursts."""
    for row in summary.rows:
        if (row.metric, row.stat) not in VALIDATED or (row.request_class is None and row.metric != "burst"):
            continue
        if row.median is None or row.predicted is None:
            continue
        low, high = row.predicted_low or 0.0, row.predicted_high or 0.0
        slack = max(WITHIN_MS if row.unit == "ms" else 0.0, WITHIN * abs(row.predicted))
        inside = low - slack <= row.median <= high + slack
        servers = system_of(run.variant(row.variant), run.load(row.load)).servers
        yield Compared(run.experiment, sharing_policy(servers), row, inside)


def sharing_policy(servers: Servers) -> str:
    """Return in words how the workers get their requests."""
    if servers.all_workers == 1:
        return "one worker"
    if servers.workers == 1:
        of = {"hash": "by chance", "turns": "in turns", "least": "fewest requests", "two": "the better of two"}
        return of[servers.balance] + (", with a limit" if servers.max_per_socket else "")
    among = "" if servers.sockets == 1 else "several sockets with "
    if servers.hesitates:
        return f"{among}a race of free workers"
    if servers.max_connections is not None and servers.threads and servers.max_connections <= servers.threads:
        return f"{among}a race with a limit"
    return f"{among}a race" if servers.bias else f"{among}a random worker"

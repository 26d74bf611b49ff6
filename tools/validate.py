"""Whether theory is right: how many predicted figures of runs came true, for docs/explain/theory.md.

    PYTHONPATH=. .venv/bin/python -m tools.validate results/heavy-mix/latest results/keep-alive/latest

Without arguments, the latest run of each experiment counts.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stampede.finished import latest_of_each, summary_of
from stampede.paths import RESULTS
from stampede.predict.system import system_of
from stampede.records.folder import read_run
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.report.tables import Table
from stampede.report.terminal import terminal_table
from stampede.report.wording import number
from stampede.terminal import out
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


def validation_tables(compared: Sequence[Compared]) -> list[Table]:
    """Return how many figures are inside their intervals, by policy and by experiment, and each figure that is not."""
    grids = [_counts(compared, "policy", [figure.policy for figure in compared])]
    grids.append(_counts(compared, "experiment", [figure.experiment for figure in compared]))
    statistics = [f"{figure.row.metric} {figure.row.stat}" for figure in compared]
    grids.append(_counts(compared, "statistic", statistics))
    outside = [figure for figure in compared if not figure.is_inside]
    lines: list[tuple[str, ...]] = [
        (
            figure.experiment,
            " ".join(filter(None, (figure.row.variant, figure.row.load, figure.row.request_class))),
            f"{figure.row.metric} {figure.row.stat}",
            number(figure.row.measured),
            number(figure.row.predicted),
            f"{number(figure.row.predicted_low)} to {number(figure.row.predicted_high)}",
        )
        for figure in outside
    ]
    if lines:
        head = ("experiment", "variant, load, class", "statistic", "measured", "predicted", "interval")
        grids.append(Table("Figures outside", head, lines, words=3))
    return grids


def _counts(compared: Sequence[Compared], of: str, names: Sequence[str]) -> Table:
    """Return a table of how many figures of each name are inside, and of all together."""
    lines = [_line(name, [figure for figure, its in zip(compared, names, strict=True) if its == name])
             for name in sorted(set(names))]  # fmt: skip
    if of == "experiment":
        lines.append(_line("all", compared))
    return Table(f"Figures inside the predicted interval, by {of}", (of, "figures", "inside", "share"), lines)


def _line(name: str, compared: Sequence[Compared]) -> tuple[str, ...]:
    inside = sum(figure.is_inside for figure in compared)
    return name, str(len(compared)), str(inside), f"{inside / len(compared):.0%}"


if __name__ == "__main__":
    found = [
        figure
        for folder in [*map(Path, sys.argv[1:])] or latest_of_each(RESULTS)
        for figure in compare_predictions(read_run(folder), summary_of("validate", folder, RESULTS))
    ]
    for table in validation_tables(found):
        out.print()
        out.print(terminal_table(table))

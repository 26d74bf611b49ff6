"""Measure whether the way that theory advises is the best, for the ten loads of measured_advice.yaml.

    PYTHONPATH=. .venv/bin/python -m tools.measured_advice [--duration 20s] [--trials 1] [--markdown] [LOAD …]

For each load, the best option of each of the first five kinds is measured with the lab's own application, and the p99
(with few requests: the p90) of what requests of the class that matters lose is compared. Advice holds if it is within
10 % and 5 ms of the best that was measured.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import yaml

from stampede.advise.ranking import best_of, rank
from stampede.advise.service import Service, tries
from stampede.evaluate.statistics.losses import AS_GOOD, AS_GOOD_MS, Figures
from stampede.paths import RESULTS
from stampede.records.summary import Estimate
from stampede.report.markdown import markdown_table
from stampede.report.tables import Table
from stampede.report.wording import number
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest

LOADS = Path(__file__).with_suffix(".yaml")
MOST_WAYS = 5


class Compared(NamedTuple):
    """A load, the class that matters, what was measured of the advised way, and of the best of ``ways``."""

    load: str
    request_class: str
    advised: Estimate
    best: Estimate
    ways: int

    @property
    def holds(self) -> bool:
        """Whether the advised way is as good as the best."""
        return (self.advised.median or 0) <= AS_GOOD * (self.best.median or 0) + AS_GOOD_MS


def main() -> int:
    """Measure the loads, print a table, and return 0 if the advice held everywhere."""
    described: dict[str, dict[str, object]] = yaml.safe_load(LOADS.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--duration", default="20s")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(described))
    given = parser.parse_args()
    options = MeasureOptions(duration=given.duration, trials=given.trials)
    found = []
    for name in given.loads or described:
        said = described[name]
        service = Service.model_validate({key: value for key, value in said.items() if key != "of"})
        tried = [ranked.option for ranked in best_of(rank(service.load()), MOST_WAYS)]
        experiment = tries(service, tried)
        command = f"python -m tools.measured_advice {name}"
        _, summary = measure_quietly(RunRequest(f"{name}-advice", experiment, options, given.results, command))
        found.append(compare(name, str(said["of"]), Figures(summary), [option.name for option in tried]))
    head = ("load, class", "advised", "predicted", "measured", "best of those measured", "held")
    lines = [(f"{each.load}, {each.request_class} {each.advised.stat}", each.advised.variant,
              f"{number(each.advised.predicted)} ms", f"{number(each.advised.median)} ms",
              f"{each.best.variant}, {number(each.best.median)} ms", "yes" if each.holds else "no")
             for each in found]  # fmt: skip
    print(markdown_table(Table("Whether advice held", head, lines)))
    return 0 if all(each.holds for each in found) else 1


def compare(load: str, request_class: str, figures: Figures, ways: list[str]) -> Compared:
    """Compare the first of some ways that were measured with the best of them."""
    stat = figures.percentile(request_class, ways) or "p90"
    rows = [row for way in ways if (row := figures.row(way, request_class, figures.loss_metric, stat))]
    return Compared(load, request_class, rows[0], min(rows, key=lambda row: row.median or 0), len(rows))


if __name__ == "__main__":
    sys.exit(main())

"""How well stampede-probe tells which requests waited avoidably: its share beside the lab's, for each way to serve.

    python -m tools.probe_truth [--results FOLDER] heavy-mix pid-skew stalled-api

measures one trial of each variant with the probe in its workers, and prints a table in Markdown. The lab knows when k6
sent each request and when its worker began; the probe knows X-Request-Start and what the workers share.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stampede.experiment.file import load_experiment
from stampede.paths import RESULTS
from stampede.records.folder import read_run, trial_folder
from stampede.records.summary import Summary
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest

CLOSE = 1.0
"""The probe tells the truth of a variant if its share differs by at most so many percentage points."""
_SECTION = re.compile(r"^==> probe <==\n(\{.*\})$", re.MULTILINE)


class Told(NamedTuple):
    """What the lab and the probe say of one trial: shares of the requests that waited avoidably for more than 50 ms.

    ``counted`` is the part of the requests of which the probe knows how long they waited.
    """

    variant: str
    load: str
    requests: int
    lab: float
    probe: float
    counted: float

    @property
    def points(self) -> float:
        """How far apart the two shares are, in percentage points."""
        return 100 * abs(self.lab - self.probe)


def measure(name: str, results: Path) -> tuple[Path, Summary]:
    """Measure one trial of each variant of an experiment that the probe can sit in."""
    experiment = MeasureOptions().experiment(name)
    fitting = [key for key, variant in experiment.variants.items()
               if variant.service in ("gunicorn", "asgi") and variant.balancer == "nginx"]  # fmt: skip
    if not fitting:
        sys.exit(f"{name}: no variant has gunicorn, uvicorn, granian or hypercorn behind nginx")
    variants = {key: variant.model_copy(update={"probe": True}) if key in fitting else variant
                for key, variant in experiment.variants.items()}  # fmt: skip
    probed = experiment.model_copy(update={"variants": variants})
    options = MeasureOptions(variants=",".join(fitting), trials=1)
    return measure_quietly(RunRequest(name, probed, options, results, f"python -m tools.probe_truth {name}"))


def compare(folder: Path, summary: Summary) -> Iterator[Told]:
    """Yield what the lab and the probe say of each trial."""
    truth: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for row in summary.rows:
        if (row.metric, row.stat) == ("avoidable_wait", "share") and row.measured is not None and row.n:
            truth[row.variant, row.load].append((row.n, row.measured))
    run = read_run(folder)
    for load in run.loads:
        for variant in run.variants_under(load.name):
            rows, part = truth[variant.name, load.name], trial_folder(folder, variant.name, load.name, 1)
            known, avoidable, requests = counts(part, "after") - counts(part, "before")
            if rows and known:
                n = sum(of for of, _ in rows)
                lab = sum(of * share for of, share in rows) / n
                yield Told(variant.name, load.name, n, lab, avoidable / known, known / requests)


class Counts(NamedTuple):
    """How many requests the probe has counted: with a known wait, with an avoidable wait above 50 ms, and in all."""

    known: int
    avoidable: int
    requests: int

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(*(one - two for one, two in zip(self, other, strict=True)))


def counts(part: Path, moment: str) -> Counts:
    """Return what the probes of all containers of a trial have counted before or after the load."""
    routes: list[Mapping[str, Any]] = []
    for path in part.glob(f"*.{moment}.txt"):
        if found := _SECTION.search(path.read_text(encoding="utf-8")):
            routes += json.loads(found[1])["routes"].values()
    return Counts(*(sum(route[key] for route in routes) for key in Counts._fields))


def main() -> int:
    """Measure, and print the table. Return 1 if a share is farther from the truth than CLOSE."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("experiments", nargs="+")
    given = parser.parse_args()
    print("| experiment | variant | requests | avoidable, lab | probe | points | known |\n|" + " --- |" * 7)
    far = 0
    for name in given.experiments:
        for told in compare(*measure(name, given.results)):
            far += told.points > CLOSE
            load = f" ({told.load})" if len(load_experiment(name).loads) > 1 else ""
            print(f"| {name} | {told.variant}{load} | {told.requests:,} | {told.lab:.1%} | {told.probe:.1%} | "
                  f"{told.points:.1f} | {told.counted:.0%} |", flush=True)  # fmt: skip
    return int(far > 0)


if __name__ == "__main__":
    sys.exit(main())

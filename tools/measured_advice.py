"""Measure whether the way that theory advises is the best, for the ten loads of measured_advice.yaml.

    PYTHONPATH=. .venv/bin/python -m tools.measured_advice [--duration 20s] [--trials 1] [--keep] [LOAD …]

For each load, the best option of each of the first five kinds is measured with the lab's own application, and the p99
(with few requests: the p90) of what requests of the class that matters lose is compared. Advice holds if it is within
10 % and 5 ms of the best that was measured. ``--keep`` writes the results into docs/reference/measured-advice.json,
from which ``python -m tools.reference`` makes a table of docs/how-to/advise.md.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from stampede.advise.ranking import best_of, predict_case
from stampede.advise.service import Service, tries
from stampede.evaluate.statistics.losses import AS_GOOD, AS_GOOD_MS, Figures
from stampede.interruption import heed_signals
from stampede.paths import RESULTS, ROOT
from stampede.records.words import plural
from stampede.report.wording import number
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest

LOADS = Path(__file__).with_suffix(".yaml")
KEPT = ROOT / "docs" / "reference" / "measured-advice.json"
MOST_WAYS = 5


def main() -> int:
    """Measure the loads, print a table, and return 0 if the advice held for all of them."""
    described: dict[str, dict[str, Any]] = yaml.safe_load(LOADS.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--duration", default="20s")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--machine", default="", help="what to say of the machine, such as: two cores, quiet")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(described))
    given = parser.parse_args()
    heed_signals()
    found: list[dict[str, Any]] = []
    for name in given.loads or described:
        service = Service.model_validate({key: value for key, value in described[name].items() if key != "of"})
        ways = [ranked.option for ranked in best_of(predict_case(service.load()).ranked, MOST_WAYS)]
        asked = MeasureOptions(duration=given.duration, trials=given.trials)
        command = f"python -m tools.measured_advice {name}"
        request = RunRequest(f"{name}-advice", tries(service, ways), asked, given.results, command)
        _, summary = measure_quietly(request)
        row = {"load": name, "date": datetime.now(UTC).date().isoformat(), "trials": given.trials,
               "machine": given.machine}  # fmt: skip
        found.append(row | compare(Figures(summary), described[name]["of"], [option.name for option in ways]))
        if given.keep:
            rows = {each["load"]: each for each in [*json.loads(KEPT.read_text(encoding="utf-8")), found[-1]]}
            KEPT.write_text(json.dumps([rows[each] for each in described if each in rows], indent=1) + "\n")
    print("\n".join(table(found)))
    return 0 if all(each["held"] for each in found) else 1


def compare(figures: Figures, request_class: str, ways: list[str]) -> dict[str, Any]:
    """Compare what was measured of the first of some ways with the best of them, in ms."""
    stat = figures.percentile(request_class, ways) or "p90"
    rows = [row for way in ways if (row := figures.row(way, request_class, figures.loss_metric, stat)) and row.median]
    if not rows or rows[0].variant != ways[0]:
        return {"class": f"{request_class} {stat}", "advised": ways[0], "predicted_ms": None, "measured_ms": None,
                "best": "", "best_ms": None, "held": False}  # fmt: skip
    best = min(rows, key=lambda row: row.median or 0)
    measured_ms, best_ms = rows[0].median or 0, best.median or 0
    return {
        "class": f"{request_class} {stat}", "advised": ways[0], "predicted_ms": rows[0].predicted,
        "measured_ms": measured_ms, "best": best.variant, "best_ms": best_ms,
        "held": measured_ms <= AS_GOOD * best_ms + AS_GOOD_MS,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of loads: what was advised, what it lost, and what the best that was measured lost."""
    yield "| load, class | advised | predicted | measured | best that was measured | held |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        of = f"{row['load']}, {row['class']}"
        times = [f"{number(row[key])} ms" for key in ("predicted_ms", "measured_ms", "best_ms")]
        held = "yes" if row["held"] else "no"
        yield f"| {of} | {row['advised']} | {times[0]} | {times[1]} | {row['best']}, {times[2]} | {held} |"


def kept() -> Iterator[str]:
    """Yield the table of the loads that were measured last, when and where, and which loads were not measured yet."""
    rows: list[dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))
    yield from table(rows)
    when = sorted({f"{row['date']}, {plural(row['trials'], 'trial')}{row['machine'] and ', '}{row['machine']}"
                   for row in rows})  # fmt: skip
    described = yaml.safe_load(LOADS.read_text(encoding="utf-8"))
    left = ", ".join(name for name in described if all(name != row["load"] for row in rows))
    yield f"\nMeasured: {'; '.join(when)}.{left and f' Not measured yet: {left}.'}"


if __name__ == "__main__":
    sys.exit(main())

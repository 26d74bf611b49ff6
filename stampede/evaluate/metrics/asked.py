"""What a run asks for: its claims and the published figures, whose quantities name their load."""

from collections.abc import Iterator
from pathlib import Path

from stampede.evaluate.metrics import STATISTICS, unit
from stampede.evaluate.metrics.spread import evenness
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import BadRun
from stampede.records.run import Run
from stampede.records.summary import Summary


Entry = tuple[Published, dict[Quantity, float]]
"""A published entry that names its load, and those of its figures that this lab should measure."""


def claims_of(run: Run) -> list[Claim]:
    """Return the claims of a run with quantities that name their load, also if the run has only one load."""
    return [claim.with_load(run.loads[0].name) for claim in run.claims]


def published_in(run: Run) -> Iterator[Entry]:
    """Yield each published entry for the variants that are part of the run."""
    variants = {variant.name for variant in run.variants}
    for published in run.published:
        if published.variant in variants:
            entry = published.model_copy(update={"load": published.load or run.loads[0].name})
            about = entry.model_dump(include={"variant", "load", "request_class", "metric"})
            figures = comparable_figures(published).items()
            yield entry, {Quantity(**about, stat=stat): value for stat, value in figures}


def comparable_figures(published: Published) -> dict[str, float]:
    """Return the statistics that this lab should measure; for published counts, the statistics of how even they are."""
    return {
        stat: value / published.divided_by if unit(published.metric, stat) == "ms" else value
        for stat, value in (published.stats | evenness(published.counts)).items()
    }


def check_names(run_folder: Path, run: Run, summary: Summary | None = None) -> None:
    """Raise BadRun if a run or its summary names a load that the run does not have, or what nobody measures."""
    named: list[tuple[str | None, str, str | None]] = [
        (each.load, each.metric, each.stat) for claim in run.claims for each in claim.quantities
    ]
    named += [(each.load, each.metric, stat) for each in run.published for stat in each.stats or [None]]
    named += [(None, each.metric, each.stat) for each in (run.curve.values if run.curve else [])]
    if summary:
        named += [(row.load, row.metric, row.stat) for row in summary.rows]
        named += [(row.load, row.metric, None) for row in summary.published]
    loads = {load.name for load in run.loads}
    for load, metric, stat in named:
        if load is not None and load not in loads:
            raise BadRun(f"{run_folder} asks for the load {load}, which the run does not have")
        if metric not in STATISTICS or stat not in (None, *STATISTICS[metric]):
            asked = f"{stat} {metric}" if stat else f"the metric {metric}"
            raise BadRun(f"{run_folder} asks for {asked}, which this version does not measure")

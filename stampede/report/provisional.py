"""What is known of a run while it is measured: the leading quantity, from the trials that have ended."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from stampede.evaluate.metrics import OVERHEAD, unit
from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.read.trial_data import derive_rows
from stampede.evaluate.statistics.estimates import measure_cells
from stampede.evaluate.verdict.validity import judge_trial
from stampede.records.claims import Quantity
from stampede.records.folder import trial_folder
from stampede.records.run import Run, TrialRecord
from stampede.report.screen.columns import Group, leading_quantity
from stampede.report.wording import short_figure

Values = dict[str, list[float | None]]
"""The leading quantity of each trial that can be trusted, by variant; None: the trial had too few requests for it."""


def leading(run: Run) -> Quantity:
    """Return the quantity that is shown while a run is measured, with its load; its variant does not count.

    Without claims, it is the p90 of the overhead of the load's first class of requests.
    """
    if found := leading_quantity(run):
        return found
    load = run.loads[0]
    classes = [*load.traffic.classes] if load.traffic else []
    return Quantity(
        variant="", load=load.name, request_class=classes[0] if classes else None, metric=OVERHEAD.name, stat="p90"
    )


def measure_leading(run_folder: Path, run: Run, trials: Sequence[TrialRecord]) -> Values:
    """Measure the leading quantity in trials that have just ended; only their own files are read.

    A trial that is invalid, or that is under another load, has no value.
    """
    wanted = leading(run)
    keys = [(trial.variant, trial.load, trial.trial) for trial in trials if trial.load == wanted.load]
    folders = [folder for key in keys if (folder := trial_folder(run_folder, *key)).is_dir()]
    with derive_rows(run_folder, run, folders, {}) as (rows, known):
        judged = {trial.key: judge_trial(trial) for trial in known}
        trusted = [trial for trial in known if judged[trial.key].is_trusted]
        families = [family for family in FAMILIES if wanted.metric in {metric.name for metric in family.metrics}]
        cells = measure_cells(rows, trusted, {key: trial.classes for key, trial in judged.items()}, families)
    draws = {variant: [trial.draws.get((wanted.metric, wanted.stat)) for trial in of_cell]
             for (variant, _, request_class), of_cell in cells.items()
             if request_class == wanted.request_class}  # fmt: skip
    return {variant: [draw and draw.value for draw in of_variant] for variant, of_variant in draws.items()}


def title(run: Run) -> str:
    """Return what the leading quantity is, with its unit, e.g. ``light overhead p90, ms``."""
    of = leading(run)
    group = Group(of.load, of.request_class, of.metric, (of.stat,))
    return group.title(run, stat="" if unit(of.metric, of.stat) == "share" else of.stat)


def values_in_words(run: Run, values: Values, first: Iterable[str] = ()) -> Iterator[str]:
    """Yield each variant with the median over its trials, e.g. ``shared-socket 2310``.

    A variant is left out if any of its trials lacks the quantity: that is the trial in which it would be the longest.
    The variants in ``first`` come first, then those of the claims that answer the question or name a cure.
    """
    telling = [claim.value.variant for role in ("answer", "cure") for claim in run.claims if claim.role == role]
    for variant in dict.fromkeys([*first, *telling, *(variant.name for variant in run.variants)]):
        measured = [value for value in values.get(variant, ()) if value is not None]
        if measured and len(measured) == len(values[variant]):
            value, of = median(measured), leading(run)
            of_unit = unit(of.metric, of.stat)
            shown = "none" if of_unit == "share" and not value else short_figure(of_unit, value)
            yield f"{variant} {shown}"

"""Predict a run: simulate every variant under every load many times, and compute the same statistics as from requests.

A prediction knows the settings of the variant and of the load, and nothing that was measured, but for the numbers in
``stampede.predict.system``, which are the same for all experiments.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from statistics import median
from zlib import crc32

import numpy as np

from stampede.evaluate.metrics import bursts
from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.metrics.metric import percentile
from stampede.evaluate.read.requests import Requests, simulated_requests
from stampede.evaluate.statistics.estimates import Measured
from stampede.evaluate.verdict.claims import conclude
from stampede.predict.system import NotModelled, system_of
from stampede.records.folder import BadRun, read_run, read_values, validated, write_whole
from stampede.records.predicted import PredictedCell, PredictedFigure, PredictedRun
from stampede.records.run import SCHEMA, THEORY, LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary
from stampede.records.traffic import in_seconds
from stampede.theory.model import QueueingSystem

SIMULATED, LEAST_SIMULATED = 60, 10
"""How many trials are simulated for each variant under each load, and how many at least if they have many requests."""
SIMULATED_REQUESTS = 2_000_000
"""About how many requests are simulated for each variant under each load; a load with more takes too long."""
_GROUPS = 1000
PARTS = ("rows", "completion_times", "not_predicted")
"""The parts of a summary that theory fills."""
PREDICTED = "predicted.json"
"""What theory predicts of a run, simulated once and kept in the run's folder."""


def predict_run(run: Run) -> list[PredictedCell]:
    """Return what theory predicts of a run: a function of its settings alone, without chance.

    The cells that it cannot predict come first.
    """
    cells = []
    for load in run.loads:
        side_by_side = min(run.jobs, len(run.variants_under(load.name)))
        for variant in run.variants_under(load.name):
            try:
                system = system_of(variant, load, side_by_side, run.cores)
                requests = sum(class_.rate for class_ in system.classes) * in_seconds(load.duration)  # if none waits
                simulated = min(SIMULATED, int(SIMULATED_REQUESTS / max(1, requests)))
                if simulated < LEAST_SIMULATED:
                    most = SIMULATED_REQUESTS // LEAST_SIMULATED
                    raise NotModelled(f"time for a load of more than {most:,} requests")  # noqa: TRY301
            except NotModelled as reason:
                cells.append(PredictedCell(variant=variant.name, load=load.name, missing=str(reason)))
                continue
            trials = list(_trials(system, variant, load, simulated))
            values = _values(trials, variant, load)
            figures = [
                PredictedFigure(request_class=of_class, metric=metric, stat=stat, median=middle, low=low, high=high)
                for (of_class, metric, stat), (middle, low, high) in zip(
                    values, _of_runs(values.values(), run.trials), strict=True
                )
            ]
            size = load.burst if load.has_small_bursts else None
            steps = zip(*(bursts.completion_times_ms(trial, size) for trial in trials if size), strict=False)
            times = _of_runs([*steps], run.trials)
            cells.append(PredictedCell(variant=variant.name, load=load.name, figures=figures, completion_times=times))
    return sorted(cells, key=lambda cell: cell.missing is None)


def predict_summary(run: Run) -> Summary:
    """Return what is published and predicted of a run, as the summary of a run without trials."""
    unclaimed = run.model_copy(update={"claims": []})
    found = conclude(unclaimed, Measured(), PredictedRun(settings="", cells=predict_run(run)))
    predicted = {name: getattr(found, name) for name in PARTS}
    return Summary.of_nothing(run.experiment).model_copy(update=predicted)


def predictions_of(run_folder: Path) -> PredictedRun:
    """Return what predicted.json says, if this version predicted it from the run's settings; simulate otherwise.

    Write the file if it had to be simulated. Raise BadRun if run.json cannot be read.
    """
    run, path = read_run(run_folder), run_folder / PREDICTED
    try:
        values = read_values(path, SCHEMA)
        del values["schema"]
        stored = validated(path, PredictedRun, values)
        if (stored.theory, stored.settings) == (THEORY, _hash(run)):
            return stored
    except BadRun:
        pass
    return write_predictions(run_folder, run)


def write_predictions(run_folder: Path, run: Run) -> PredictedRun:
    """Simulate a run, and write predicted.json into its folder."""
    predicted = PredictedRun(settings=_hash(run), cells=predict_run(run))
    text = json.dumps({"schema": SCHEMA, **predicted.model_dump(mode="json")}, indent=1, ensure_ascii=False)
    write_whole(run_folder / PREDICTED, text + "\n")
    return predicted


def _hash(run: Run) -> str:
    settings = {
        "variants": [variant.model_dump(mode="json") for variant in run.variants],
        "loads": [load.model_dump(mode="json", exclude=set() if load.traffic else {"traffic"}) for load in run.loads],
        "measured": sorted({(variant, load) for variant, load, _ in run.order}),
        "numbers": [run.trials, run.jobs, run.cores],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _trials(
    system: QueueingSystem, variant: VariantRecord, load: LoadRecord, count: int = SIMULATED
) -> Iterator[Requests]:
    from stampede.theory import simulate  # noqa: PLC0415  # loading Numba takes half a second

    seed = crc32(f"{variant.name} {load.name}".encode())
    names = [class_.name for class_ in system.classes]
    for rows in simulate.simulate_trials(system, in_seconds(load.duration), range(seed, seed + count)):
        yield simulated_requests(load, names, rows)


def _values(
    trials: list[Requests], variant: VariantRecord, load: LoadRecord
) -> dict[tuple[str | None, str, str], list[float]]:
    """Return the values of each statistic that most simulated trials have, and of each percentile that all have."""
    found: dict[tuple[str | None, str, str], list[float]] = {}
    for trial in trials:
        for family in FAMILIES:
            for finding in family.measure(trial, variant, load):
                for stat, value in finding.stats.items():
                    found.setdefault((finding.request_class, finding.metric.name, stat), []).append(value)
    least = {key: len(trials) if percentile(key[-1]) is not None else len(trials) / 2 for key in found}
    return {key: values for key, values in found.items() if len(values) >= least[key]}


def _of_runs(columns: Collection[Sequence[float]], trials: int) -> list[tuple[float, float, float]]:
    """Return of each column the median, and where the median of a run of ``trials`` trials falls in 95 of 100 runs.

    Six digits: the last bits of logarithms differ between processors, and a run is verified on any machine.
    """
    drawn = {
        length: np.random.Generator(np.random.SFC64(0)).integers(length, size=(_GROUPS, trials))
        for length in {len(values) for values in columns}
    }
    medians = [np.median(np.array(values)[drawn[len(values)]], axis=1) for values in columns]
    ends = np.quantile(medians, [0.025, 0.975], axis=1).T.tolist() if medians else []
    found = [(median(values), low, high) for values, (low, high) in zip(columns, ends, strict=True)]
    return [(float(f"{middle:.6g}"), float(f"{low:.6g}"), float(f"{high:.6g}")) for middle, low, high in found]

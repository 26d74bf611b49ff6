"""Predict a run: simulate every variant under every load many times, and compute the same statistics as from requests.

A prediction knows the settings of the variant and of the load, and nothing that was measured, but for the numbers in
``stampede.predict.system``, which are the same for all experiments.
"""

from collections.abc import Collection, Iterator, Sequence
from statistics import median
from zlib import crc32

import numpy as np

from stampede.evaluate.metrics import FAMILIES, bursts
from stampede.evaluate.metrics.asked import published_in
from stampede.evaluate.metrics.metric import Family, percentile
from stampede.evaluate.metrics.simulated import Prediction, Predictions, SimulatedTrial
from stampede.evaluate.statistics.results import results_of
from stampede.evaluate.statistics.rows import completion_times_rows, figure_rows
from stampede.predict.system import NotModelled, system_of
from stampede.records.duration import in_seconds
from stampede.records.run import LoadRecord, Run, VariantRecord
from stampede.records.summary import NotPredicted, Summary
from stampede.theory.model import QueueingSystem

SIMULATED, LEAST_SIMULATED = 60, 10
"""How many trials are simulated for each variant under each load, and how many at least if they have many requests."""
SIMULATED_REQUESTS = 2_000_000
"""About how many requests are simulated for each variant under each load; a load with more takes too long."""
_GROUPS = 1000


def predict_run(run: Run) -> Predictions:
    """Return what theory predicts of a run: a function of its settings alone, without chance."""
    found = Predictions({}, {}, {})
    for load in run.loads:
        for variant in run.variants_under(load.name):
            cell = variant.name, load.name
            try:
                side_by_side = min(run.jobs, len(run.variants_under(load.name)))
                system = system_of(variant, load, side_by_side, run.cores)
            except NotModelled as reason:
                found.missing[cell] = str(reason)
                continue
            requests = sum(class_.rate for class_ in system.classes) * in_seconds(load.duration)  # if none waits
            simulated = min(SIMULATED, int(SIMULATED_REQUESTS / max(1, requests)))
            if simulated < LEAST_SIMULATED:
                most = SIMULATED_REQUESTS // LEAST_SIMULATED
                found.missing[cell] = f"time for a load of more than {most:,} requests"
                continue
            trials = list(_trials(system, variant, load, simulated))
            values = _values(trials)
            for (request_class, metric, stat), prediction in zip(
                values, _of_runs(values.values(), run.trials), strict=True
            ):
                found.values[(*cell, request_class), metric, stat] = prediction
            if load.has_small_bursts:
                completion_times = [bursts.simulated_completion_times_ms(trial) for trial in trials]
                found.completion_times[cell] = _of_runs(list(zip(*completion_times, strict=False)), run.trials)
    return found


def predict_summary(run: Run) -> Summary:
    """Return what is published and predicted of a run, as the summary of a run without trials."""
    predictions = predict_run(run)
    results = results_of(run, {}, [], [*published_in(run)], predictions, {})
    found = {
        "rows": list(figure_rows(results, predictions)),
        "completion_times": list(completion_times_rows(results, predictions)),
        "not_predicted": not_predicted(predictions),
    }
    return Summary.of_nothing(run.experiment).model_copy(update=found)


def not_predicted(predictions: Predictions) -> list[NotPredicted]:
    """Return which variants theory cannot predict under which loads, and why."""
    return [NotPredicted(variant=of, load=under, missing=what) for (of, under), what in predictions.missing.items()]


def _trials(
    system: QueueingSystem, variant: VariantRecord, load: LoadRecord, count: int = SIMULATED
) -> Iterator[SimulatedTrial]:
    from stampede.theory import simulate  # noqa: PLC0415  # loading Numba takes half a second

    seed = crc32(f"{variant.name} {load.name}".encode())
    names = [class_.name for class_ in system.classes]
    for rows in simulate.simulate_trials(system, in_seconds(load.duration), range(seed, seed + count)):
        yield SimulatedTrial.from_rows(variant, load, names, rows)


def _values(
    trials: list[SimulatedTrial], families: Sequence[Family] = FAMILIES
) -> dict[tuple[str | None, str, str], list[float]]:
    """Return the values of each statistic that most simulated trials have, and of each percentile that all have."""
    found: dict[tuple[str | None, str, str], list[float]] = {}
    for trial in trials:
        for family in families:
            for finding in family.measure_simulated(trial):
                for (metric, stat), value in finding.stats.items():
                    found.setdefault((finding.request_class, metric, stat), []).append(value)
    least = {key: len(trials) if percentile(key[-1]) is not None else len(trials) / 2 for key in found}
    return {key: values for key, values in found.items() if len(values) >= least[key]}


def _of_runs(columns: Collection[Sequence[float]], trials: int) -> list[Prediction]:
    """Return of each column the median, and where the median of a run of ``trials`` trials falls in 95 of 100 runs.

    Six digits: the last bits of logarithms differ between processors, and a run is verified on any machine.
    """
    drawn = {
        length: np.random.Generator(np.random.SFC64(0)).integers(length, size=(_GROUPS, trials))
        for length in {len(values) for values in columns}
    }
    medians = [np.median(np.array(values)[drawn[len(values)]], axis=1) for values in columns]
    ends = np.quantile(medians, [0.025, 0.975], axis=1).T.tolist() if medians else []
    return [
        Prediction(*(float(f"{number:.6g}") for number in (median(values), *between)))
        for values, between in zip(columns, ends, strict=True)
    ]

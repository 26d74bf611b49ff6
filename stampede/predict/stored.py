"""predicted.json: what theory predicts of a run, simulated once and kept in the run's folder."""

import hashlib
import json
from pathlib import Path

from pydantic import Field

from stampede.evaluate.metrics.simulated import Prediction, Predictions
from stampede.predict.prediction import predict_run
from stampede.records.folder import BadRun, read_run, read_values, validated, write_whole
from stampede.records.model import Record
from stampede.records.run import SCHEMA, THEORY, Run

PREDICTED = "predicted.json"


class PredictedFigure(Record):
    """One statistic of a variant under a load; ``request_class`` None: of all classes together."""

    request_class: str | None
    metric: str
    stat: str
    median: float
    low: float
    high: float


class PredictedCell(Record):
    """What theory predicts of a variant under a load.

    ``missing`` is the mechanism that theory lacks. ``completion_times`` has the median, low and high of when each
    request of a burst is answered, in ms.
    """

    variant: str
    load: str
    missing: str | None = None
    figures: list[PredictedFigure] = Field([])
    completion_times: list[tuple[float, float, float]] = Field([])


class PredictedRun(Record):
    """predicted.json. ``theory``: the version that predicted; ``settings``: a hash of what the prediction follows from.

    A prediction follows from the variants and loads, which of them were measured together, the number of trials and of
    cores, and nothing else.
    """

    theory: int = THEORY
    settings: str
    cells: list[PredictedCell]


def predictions_of(run_folder: Path) -> Predictions:
    """Return what predicted.json says, if this version predicted it from the run's settings; simulate otherwise.

    Write the file if it had to be simulated. Raise BadRun if run.json cannot be read.
    """
    run, path = read_run(run_folder), run_folder / PREDICTED
    try:
        values = read_values(path, SCHEMA)
        del values["schema"]
        stored = validated(path, PredictedRun, values)
    except BadRun:
        stored = None
    if stored and (stored.theory, stored.settings) == (THEORY, _hash(run)):
        found = Predictions({}, {}, {})
        for cell in stored.cells:
            key = cell.variant, cell.load
            if cell.missing is not None:
                found.missing[key] = cell.missing
            if cell.completion_times:
                found.completion_times[key] = [Prediction(*step) for step in cell.completion_times]
            for figure in cell.figures:
                prediction = Prediction(figure.median, figure.low, figure.high)
                found.values[(*key, figure.request_class), figure.metric, figure.stat] = prediction
        return found
    return write_predictions(run_folder, run)


def write_predictions(run_folder: Path, run: Run) -> Predictions:
    """Simulate a run, and write predicted.json into its folder."""
    predictions = predict_run(run)
    cells = {
        cell: PredictedCell(variant=cell[0], load=cell[1], missing=predictions.missing.get(cell),
                            completion_times=[(*step,) for step in predictions.completion_times.get(cell, ())])
        for cell in [*predictions.missing, *{(variant, load): None for (variant, load, _), _, _ in predictions.values}]
    }  # fmt: skip
    for ((variant, load, request_class), metric, stat), (median, low, high) in predictions.values.items():
        figure = PredictedFigure(
            request_class=request_class, metric=metric, stat=stat, median=median, low=low, high=high
        )
        cells[variant, load].figures.append(figure)
    stored = PredictedRun(settings=_hash(run), cells=list(cells.values()))
    text = json.dumps({"schema": SCHEMA, **stored.model_dump(mode="json")}, indent=1, ensure_ascii=False)
    write_whole(run_folder / PREDICTED, text + "\n")
    return predictions


def _hash(run: Run) -> str:
    settings = {
        "variants": [variant.model_dump(mode="json") for variant in run.variants],
        "loads": [load.model_dump(mode="json", exclude=set() if load.traffic else {"traffic"}) for load in run.loads],
        "measured": sorted({(variant, load) for variant, load, _ in run.order}),
        "numbers": [run.trials, run.jobs, run.cores],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

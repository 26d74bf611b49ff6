"""predicted.json: what theory predicts of a run, simulated once and kept in the run's folder."""

import hashlib
import json
from pathlib import Path

from stampede.predict.prediction import predict_run
from stampede.records.folder import BadRun, read_run, read_values, validated, write_whole
from stampede.records.predicted import PredictedRun
from stampede.records.run import SCHEMA, THEORY, Run

PREDICTED = "predicted.json"


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

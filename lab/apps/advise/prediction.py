"""What theory predicts of an experiment: simulated once, and kept until the experiment or the theory changes."""

from pydantic import TypeAdapter

from analysis.records.run import Run
from analysis.records.summary import Summary
from lab.cache import digest, kept
from lab.paths import ROOT

_FOUND_WITH = "analysis", "theory", "requirements"
"""The folders of all files that decide what is predicted."""


def cached_prediction(run: Run) -> Summary:
    """Return what is published and predicted of a run, as the summary of a run without trials."""
    asked = run.model_copy(update={"began": "", "command": "", "seed": 0, "order": sorted(run.order)})
    found = [file for folder in _FOUND_WITH for file in sorted((ROOT / folder).rglob("*"))]
    code = [file.read_bytes() for file in found if file.suffix in (".py", ".txt")]
    question = digest(asked.model_dump_json().encode(), *code)
    return kept("predictions", question, TypeAdapter(Summary), lambda: _simulated(run))


def _simulated(run: Run) -> Summary:
    from analysis.predict.prediction import predict_summary  # noqa: PLC0415  # loading NumPy takes a tenth of a second

    return predict_summary(run)

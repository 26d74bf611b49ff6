"""From a run's raw points to its report, one way: rows, valid trials, metrics, estimates, verdicts, shown.

docs/explain/method.md says what each step counts.

Each stage passes finished values to the next. You can delete everything that ``derive`` writes and call ``derive``
again: it writes the same files.
"""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

from stampede.diagnosis.section import write_section
from stampede.evaluate.metrics import by_class, servers
from stampede.evaluate.read.trial_data import derive_rows
from stampede.evaluate.statistics.estimates import check_names, measure_cells
from stampede.evaluate.statistics.pooling import pool_cells
from stampede.evaluate.verdict.claims import conclude
from stampede.evaluate.verdict.validity import judge_trials, seconds_of_round, several_clocks, unapplied
from stampede.predict.prediction import predictions_of
from stampede.records.checksums import DERIVED_FROM, MANIFEST, changed_files, is_derived, sealed
from stampede.records.folder import read_run, read_summary, trial_folders, write_whole
from stampede.records.predicted import NOTHING, PredictedRun
from stampede.records.run import SCHEMA
from stampede.records.summary import Summary

_ROOMS = ("diagnosis", "evaluate", "predict", "records", "report", "servers", "theory")
CODE = tuple(Path(__file__).parent / room for room in _ROOMS)
"""The rooms whose code results follow from."""


def derive(run_folder: Path) -> Summary:
    """Write requests.parquet of every trial, summary.json, diagnosis.json and report.html; return the summary.

    Also write predicted.json, unless it is there and belongs to the run.

    If the raw files of a trial cannot be read, or differ from manifest.sha256, the trial is judged invalid with the
    reason. Raise BadRun if run.json, a trial.json or the manifest cannot be read.
    """
    summary = derive_summary(run_folder, predictions_of(run_folder))
    section = write_section(run_folder, summary)
    if _draws_pages():
        from stampede.report.html import write_report  # noqa: PLC0415

        write_report(run_folder, summary, section)
    if known := _derived_from(run_folder):  # last: it says that all of them are there
        write_whole(run_folder / DERIVED_FROM, known)
    return summary


def stored_summary(run_folder: Path) -> Summary | None:
    """Return summary.json of a run if nothing in its folder was changed, and this code computed it; else None."""
    try:
        known = (run_folder / DERIVED_FROM).read_text(encoding="ascii")
        if known != _derived_from(run_folder) or changed_files(run_folder):
            return None
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    if _draws_pages() and not (run_folder / "report.html").exists():  # the core has derived the run
        return None
    summary = read_summary(run_folder)
    check_names(run_folder, read_run(run_folder), summary)
    return summary


def _derived_from(run_folder: Path) -> str:
    """Return a hash of a run's manifest and results, and of the code that computes them; empty without a manifest."""
    if not (run_folder / MANIFEST).exists():
        return ""
    results = [path for path in run_folder.iterdir() if is_derived(path.name) and path.name != DERIVED_FROM]
    code = [path for room in CODE for path in room.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = hashlib.sha256()
    for path in [*sorted(results), Path(__file__), *sorted(code)]:
        found.update(path.read_bytes())
    return found.hexdigest()


def _draws_pages() -> bool:
    return all(map(find_spec, ("altair", "jinja2", "vl_convert")))


def derive_summary(run_folder: Path, predictions: PredictedRun = NOTHING) -> Summary:
    """Do the same as ``derive``, but without predicted.json, diagnosis.json and report.html.

    ``predictions`` has what theory predicts of the run; without it, the summary has no predictions.
    """
    run = read_run(run_folder)
    check_names(run_folder, run)
    with derive_rows(run_folder, run, trial_folders(run_folder), sealed(run_folder)) as (rows, trials):
        judged = judge_trials(run, trials)
        classes = {trial.key: trial.classes for trial in judged if trial.is_trusted}
        trusted = sorted((trial for trial in trials if trial.key in classes), key=lambda trial: trial.key)
        measured = measure_cells(rows, trusted, classes)
    doubts = [*unapplied(trials), *several_clocks(trials)]
    summary = conclude(
        run,
        measured._replace(
            trials=judged, pools=pool_cells(measured.cells), doubts=doubts, round_s=seconds_of_round(trials)
        ),
        predictions,
        workers=by_class.worker_rows(trusted),
        counters=list(servers.counter_rows(trials)),
        errors=by_class.error_rows(trusted),
        clocks=[trial.raw.clocks.record(trial.key) for trial in trials if trial.raw.clocks],
    )
    values = {"schema": SCHEMA, **summary.model_dump(mode="json")}
    write_whole(run_folder / "summary.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return summary

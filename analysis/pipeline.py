"""From a run's raw points to its report: rows, observed, judged, measured, verdicts, shown (see docs/method.md).

You can delete everything that ``derive`` writes and call ``derive`` again: it writes the same files.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from analysis.metrics import bursts, failures, servers, spread, visits
from analysis.metrics.unknown import unknown
from analysis.predict.prediction import not_predicted
from analysis.predict.stored import predictions_of
from analysis.read.rows import opened
from analysis.read.trial_data import RawTrial, read_raw_trial, read_trial_data
from analysis.records.checksums import sealed
from analysis.records.folder import read_run, trial_folders, write_whole
from analysis.records.run import SCHEMA
from analysis.records.summary import Summary
from analysis.report.extensions import write_extensions
from analysis.report.html import write_report
from analysis.statistics.results import Results, completion_times, measure_cells, seconds_of_round
from analysis.verdict.claims import claim_row, difference_rows, published_rows
from analysis.verdict.validity import doubt_effects, judge_missing, judge_run, judge_trial, several_clocks, unapplied

READ_AT_ONCE = 2
"""How many trials are read at the same time; each may need as much memory as ``analysis.read.rows`` allows."""


def derive(run_folder: Path) -> Summary:
    """Write requests.parquet of every trial, summary.json, the files of apps and report.html; return the summary.

    Also write predicted.json, unless it is there and belongs to the run.

    If the raw files of a trial cannot be read, or differ from manifest.sha256, the trial is judged invalid with the
    reason. Raise BadRun if run.json, a trial.json or the manifest cannot be read.
    """
    summary = derive_summary(run_folder)
    write_report(run_folder, summary, write_extensions(run_folder, summary))
    return summary


def derive_summary(run_folder: Path) -> Summary:
    """Do the same as ``derive``, but without report.html and the files of apps."""
    hashes = sealed(run_folder)
    folders = trial_folders(run_folder)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:  # DuckDB reads without the interpreter lock
        raw = dict(zip(folders, pool.map(partial(read_raw_trial, run_folder, hashes=hashes), folders), strict=True))
    summary = summarise(run_folder, raw)
    values = {"schema": SCHEMA, **summary.model_dump(mode="json")}
    write_whole(run_folder / "summary.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return summary


def summarise(run_folder: Path, raw: dict[Path, RawTrial]) -> Summary:
    """Compute the summary of a run from its records, and from the rows and the ``raw`` of each trial's folder."""
    run = read_run(run_folder)
    with opened(list(raw)) as rows:
        observed = [read_trial_data(rows, run, folder, found) for folder, found in raw.items()]
        judged = [judge_trial(trial) for trial in observed]
        judged += judge_missing(run, judged)
        rejected = {(one.variant, one.load, one.trial): one.classes for one in judged if one.verdict != "invalid"}
        keys = {*rejected}
        trusted = sorted((trial for trial in observed if trial.key in keys), key=lambda trial: trial.key)
        predictions = predictions_of(run_folder, run)
        cells = measure_cells(rows, trusted, rejected)
        judged = doubt_effects(judged, cells)
        results = Results(run, cells, completion_times(rows, trusted), seconds_of_round(observed), predictions)
        further = [*unknown(run, [one.record for one in observed]), *unapplied(observed), *several_clocks(observed)]
        further += results.too_few()
        return Summary(
            experiment=run.experiment,
            round_s=results.round_s,
            validity=judge_run(run, judged, further),
            trials=judged,
            rows=list(results.rows()),
            workers=spread.worker_rows(rows, keys),
            counters=list(servers.counter_rows(observed)),
            claims=[claim_row(claim, results, judged) for claim in run.claims],
            published=list(published_rows(results, judged)),
            differences=list(difference_rows(results)) if run.against_itself else [],
            completion_times=list(results.completion_times_rows()),
            waves=list(bursts.wave_rows(rows, run, keys)),
            rate_steps=list(visits.rate_step_rows(rows, trusted)),
            errors=list(failures.error_rows(rows, keys)),
            not_predicted=not_predicted(predictions),
            clocks=[trial.raw.clocks.record(trial.key) for trial in observed if trial.raw.clocks],
        )

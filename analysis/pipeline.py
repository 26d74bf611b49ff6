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
from analysis.read.trial_data import read_raw_trial, read_trial_data
from analysis.records.checksums import sealed
from analysis.records.folder import read_run, trial_folders, write_whole
from analysis.records.run import SCHEMA
from analysis.records.summary import Summary
from analysis.report.extensions import write_extensions
from analysis.report.html import write_report
from analysis.statistics.pooling import pool_cells
from analysis.statistics.results import Results, completion_times, measure_cells, seconds_of_round
from analysis.verdict.article import circumstances, judge_article
from analysis.verdict.claims import claim_row, difference_rows, published_rows
from analysis.verdict.validity import doubt_effects, judge_run, judge_trials, several_clocks, unapplied

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
    run, folders = read_run(run_folder), trial_folders(run_folder)
    read = partial(read_raw_trial, run_folder, hashes=sealed(run_folder))
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:  # DuckDB reads without the interpreter lock
        raw = [*pool.map(read, folders)]
    with opened(folders) as rows:
        trials = [read_trial_data(rows, run, *found) for found in zip(folders, raw, strict=True)]
        judged = judge_trials(run, trials)
        classes = {trial.key: trial.classes for trial in judged if trial.is_trusted}
        trusted = sorted((trial for trial in trials if trial.key in classes), key=lambda trial: trial.key)
        doubts = [*unknown(run, [trial.record for trial in trials]), *unapplied(trials), *several_clocks(trials)]
        predictions = predictions_of(run_folder, run)
        cells = measure_cells(rows, trusted, classes)
        pools = pool_cells(rows, trusted, cells)
        results = Results(run, cells, completion_times(rows, trusted), seconds_of_round(trials), predictions, pools)
        doubts += results.too_few()
        judged = doubt_effects(judged, cells)
        keys = {*classes}
        figures, claims = list(results.rows()), [claim_row(claim, results, judged) for claim in run.claims]
        apart = circumstances(figures)
        published = list(published_rows(results, judged, apart))
        summary = Summary(
            experiment=run.experiment,
            round_s=results.round_s,
            validity=judge_run(run, judged, doubts),
            trials=judged,
            rows=figures,
            completion_times=list(results.completion_times_rows()),
            claims=claims,
            published=published,
            article=judge_article(run, claims, published, apart.floors),
            differences=list(difference_rows(results)) if run.against_itself else [],
            workers=spread.worker_rows(rows, keys),
            counters=list(servers.counter_rows(trials)),
            waves=list(bursts.wave_rows(rows, run, keys)),
            rate_steps=list(visits.rate_step_rows(rows, trusted)),
            errors=list(failures.error_rows(rows, keys)),
            not_predicted=not_predicted(predictions),
            clocks=[trial.raw.clocks.record(trial.key) for trial in trials if trial.raw.clocks],
        )
    values = {"schema": SCHEMA, **summary.model_dump(mode="json")}
    write_whole(run_folder / "summary.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return summary

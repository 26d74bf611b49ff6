"""Many runs of one experiment, side by side, for the notebook."""

import json
from pathlib import Path
from typing import Any

import duckdb

from analysis.folder import BadRun, read_run
from analysis.metrics import MetricName, Statistic
from analysis.record import SCHEMA, Run

Rows = list[dict[str, Any]]


def find_runs(results: Path, experiment: str) -> list[Path]:
    """Return the folders of an experiment's runs that have a summary, the oldest first."""
    folders = {path.parent.resolve() for path in (results / experiment).glob("*/summary.json")}
    return sorted(folders)


def describe(runs: list[Path]) -> Rows:
    """Return a row for each run: its start, machine, loads and trials, how the run ended, and whether it is valid."""
    return [
        {
            "run": run.name,
            "machine": f"{record.host.cpu}, {record.host.cores} cores",
            "loads": ", ".join(f"{load.name} {load.duration}" for load in record.loads),
            "trials": record.trials,
            "outcome": record.outcome,
            "validity": _summary(run)["validity"]["verdict"],
        }
        for run in runs
        for record in [read_run(run)]
    ]


def verdicts(runs: list[Path]) -> Rows:
    """Return a row for each claim; the column with the name of a run has the claim's verdict in that run."""
    table: dict[str, dict[str, Any]] = {}
    for run in runs:
        for claim in _summary(run)["claims"]:
            table.setdefault(claim["says"], {"claim": claim["says"]})[run.name] = claim["verdict"]
    return list(table.values())


def measured(runs: list[Path], metric: MetricName, stat: Statistic, request: str) -> Rows:
    """Return a row for each run and variant that has the statistic: run, variant, load, value, unit, n, trials."""
    keys = ("variant", "load", "unit", "n", "trials")
    return [
        {"run": run.name, "value": row["measured"], **{key: row[key] for key in keys}}
        for run in runs
        for row in _summary(run)["rows"]
        if (row["metric"], row["stat"], row["request"]) == (metric, stat, request) and row["measured"] is not None
    ]


def requests(runs: list[Path]) -> duckdb.DuckDBPyRelation:
    """Return every request of the runs, for queries in SQL; the column ``run`` names the run of each request.

    If a run of an older version lacks a column, the column is NULL for that run.
    """
    files = [str(path) for run in runs for path in sorted(run.glob("*/*/*/requests.parquet"))]
    every = duckdb.read_parquet(files, filename=True, union_by_name=True)
    return every.project("parse_path(filename)[-5] AS run, * EXCLUDE (filename)")


def first_run(runs: list[Path]) -> Run:
    """Return the record of the oldest run, for its question and its variants."""
    return read_run(runs[0])


def _summary(run: Path) -> Any:  # noqa: ANN401  # JSON, with the keys of analysis.result.Summary
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    if (schema := summary.get("schema")) != SCHEMA:
        raise BadRun(f"{run / 'summary.json'} has schema {schema}; this version reads schema {SCHEMA}")
    return summary

"""Many runs of one experiment, side by side, for the notebook."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from analysis.folder import BadRun, read_run
from analysis.metrics import MetricName, Statistic
from analysis.record import SCHEMA

Rows = list[dict[str, Any]]


def experiments(results: Path) -> list[str]:
    """Return the experiments that have a run with a summary, in the order of their names."""
    return sorted({path.parents[1].name for path in results.glob("*/*/summary.json")})


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


def what_there_is(runs: list[Path]) -> tuple[list[str], list[str], float]:
    """Return the variants and the classes of the runs, and for how many seconds their longest trial sent requests."""
    if not runs:
        return [], [], 1.0
    variants = list(dict.fromkeys(one.name for run in runs for one in read_run(run).variants))
    found = requests(runs).query(
        "requests",
        """
        SELECT list_sort(list(DISTINCT request)), max(lasted_s) FROM (
            SELECT request, epoch(max(sent) OVER mine) - epoch(min(sent) OVER mine) AS lasted_s
            FROM requests WINDOW mine AS (PARTITION BY run, variant, load, trial))
        """,
    )
    assert found is not None
    [(classes, lasted_s)] = found.fetchall()
    return variants, classes or [], max(0.1, lasted_s or 0.0)


def measured(runs: list[Path], metric: MetricName, stat: Statistic, request: str | None) -> Rows:
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


class Chosen(NamedTuple):
    """Which requests are asked for: of these runs and variants, of one class, sent within a time of their trial.

    ``request``: None asks for all classes. Times are in seconds since the first request of a trial was sent.
    """

    runs: list[Path]
    variants: list[str]
    request: str | None
    from_s: float
    to_s: float


def quantiles(chosen: Chosen) -> Rows:
    """Return points of the distribution of response times, for each variant over all its trials.

    A row has the variant, the share of its answered requests (0 to 1) that took at most ``value`` ms, and whether it is
    ``told`` apart by a mark. There are 200 points, or one for each request if there are fewer.
    """
    found = _chosen(chosen).query(
        "chosen",
        """
        WITH answered AS (SELECT variant, duration_ms FROM chosen WHERE error IS NULL),
        ranked AS (
            SELECT *, row_number() OVER (PARTITION BY variant ORDER BY duration_ms) AS place,
                count(*) OVER (PARTITION BY variant) AS n
            FROM answered)
        SELECT variant, place / n AS share, duration_ms,
            n < 20 OR place * 10 // n > (place - 1) * 10 // n AS told
        FROM ranked WHERE n <= 200 OR place * 200 // n > (place - 1) * 200 // n ORDER BY variant, place
        """,
    )
    assert found is not None
    rows = [dict(zip(("variant", "share", "value", "told"), row, strict=True)) for row in found.fetchall()]
    return sorted(rows, key=lambda row: chosen.variants.index(row["variant"]))


MOST_WAITS = 2000
"""How many requests the waits of a variant have at most: those that waited longest."""


def waits(chosen: Chosen) -> tuple[Rows, int]:
    """Return when each request was sent and how long it waited for its worker, and how many requests were left out.

    A row has the variant, the class ``request``, ``at_s`` and ``wait_ms``.
    """
    found = _chosen(chosen).query(
        "chosen",
        f"""
        SELECT variant, request, at_s, 1000 * (began - epoch(sent)) AS wait_ms,
            count(*) OVER (PARTITION BY variant) AS n
        FROM chosen WHERE error IS NULL AND began IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY variant ORDER BY wait_ms DESC) <= {MOST_WAITS} ORDER BY at_s
        """,  # noqa: S608  # a constant of this module
    )
    assert found is not None
    rows = [dict(zip(("variant", "request", "at_s", "wait_ms", "n"), row, strict=True)) for row in found.fetchall()]
    in_all = sum({row["variant"]: row["n"] for row in rows}.values())
    told = [{key: value for key, value in row.items() if key != "n"} for row in rows]
    return sorted(told, key=lambda row: chosen.variants.index(row["variant"])), in_all - len(rows)


def _chosen(chosen: Chosen) -> duckdb.DuckDBPyRelation:
    """Return the chosen requests with ``at_s``, when each was sent in its trial."""
    every = requests(chosen.runs).project(
        "*, epoch(sent) - min(epoch(sent)) OVER (PARTITION BY run, variant, load, trial) AS at_s"
    )
    variant, request, at_s = (duckdb.ColumnExpression(name) for name in ("variant", "request", "at_s"))
    mine = every.filter(variant.isin(*map(duckdb.ConstantExpression, chosen.variants)))
    mine = mine.filter(at_s >= duckdb.ConstantExpression(chosen.from_s)).filter(
        at_s <= duckdb.ConstantExpression(chosen.to_s)
    )
    return mine if chosen.request is None else mine.filter(request == duckdb.ConstantExpression(chosen.request))


def _summary(run: Path) -> Any:  # noqa: ANN401  # JSON, with the keys of analysis.result.Summary
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    if (schema := summary.get("schema")) != SCHEMA:
        raise BadRun(f"{run / 'summary.json'} has schema {schema}; this version reads schema {SCHEMA}")
    return summary

"""Many runs of one experiment, side by side, for the notebook."""

from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from analysis.metrics import MetricName, Statistic
from analysis.read.rows import COLUMNS
from analysis.records.folder import read_run, read_values

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
    """Return a row for each claim; the column with the name of a run has the claim's verdict in that run.

    A claim is the same in two runs if it compares the same value with the same bound, whatever its words are.
    """
    table: dict[str, dict[str, Any]] = {}
    for run in runs:
        for said, claim in zip(read_run(run).claims, _summary(run)["claims"], strict=True):
            row = table.setdefault(said.model_dump_json(exclude={"says", "role"}), {})
            row |= {"claim": claim["says"], run.name: claim["verdict"]}
    return list(table.values())


class Offer(NamedTuple):
    """What there is to choose from in some runs. ``lasted_s``: for how long the longest trial sent requests."""

    loads: list[str]
    variants: list[str]
    requests: list[str]
    lasted_s: float


def what_there_is(runs: list[Path], load: str | None = None) -> Offer:
    """Return what there is to choose from in the runs, under a load; None: under the first load.

    There is no load if no run has a request.
    """
    names = list(dict.fromkeys(variant.name for run in runs for variant in read_run(run).variants))
    loads = list(dict.fromkeys(one.name for run in runs for one in read_run(run).loads))
    found = requests(runs).query(
        "requests",
        """
        SELECT load, list_distinct(list(variant)), list_sort(list_distinct(list(request))), max(lasted_s) FROM (
            SELECT *, epoch(max(sent) OVER mine) - epoch(min(sent) OVER mine) AS lasted_s
            FROM requests WINDOW mine AS (PARTITION BY run, variant, load, trial))
        GROUP BY load
        """,
    )
    assert found is not None
    by_load = {name: (variants, classes, lasted_s) for name, variants, classes, lasted_s in found.fetchall()}
    there = [name for name in loads if name in by_load]
    if not there:
        return Offer([], [], [], 1.0)
    variants, classes, lasted_s = by_load[load if load in there else there[0]]
    return Offer(there, [name for name in names if name in variants], classes, max(0.1, lasted_s))


def measured(chosen: "Chosen", metric: MetricName, stat: Statistic) -> Rows:
    """Return a row for each run and variant that has the statistic: run, variant, load, value, unit, n, trials."""
    keys = ("variant", "load", "unit", "n", "trials")
    asked = (chosen.load, chosen.request, metric, stat)
    return [
        {"run": run.name, "value": row["measured"], **{key: row[key] for key in keys}}
        for run in chosen.runs
        for row in _summary(run)["rows"]
        if (row["load"], row["request"], row["metric"], row["stat"]) == asked
        and row["variant"] in chosen.variants
        and row["measured"] is not None
    ]


def requests(runs: list[Path]) -> duckdb.DuckDBPyRelation:
    """Return every request of the runs, for queries in SQL; the column ``run`` names the run of each request.

    If a run of an older version lacks a column, the column is NULL for that run.
    """
    files = [str(path) for run in runs for path in sorted(run.glob("*/*/*/requests.parquet"))]
    if not files:
        nothing = duckdb.sql(f"SELECT * FROM (SELECT ''::VARCHAR AS run, {_NO_REQUEST}) WHERE false")  # noqa: S608
        assert nothing is not None
        return nothing
    every = duckdb.read_parquet(files, filename=True, union_by_name=True)
    return every.project("parse_path(filename)[-5] AS run, * EXCLUDE (filename)")


_NO_REQUEST = ", ".join(
    f"NULL::{kind} AS {name}" for name, kind in (column.split() for column in COLUMNS.replace("\n", " ").split(","))
)
"""A row of requests.parquet without values, for runs that have no request."""


class Chosen(NamedTuple):
    """Which requests are asked for: of these runs, of one load, of these variants, of one class, sent within a time.

    ``request``: None asks for all classes. Times are in seconds since the first request of a trial was sent.
    """

    runs: list[Path]
    load: str
    variants: list[str]
    request: str | None
    from_s: float
    to_s: float


def failed(chosen: Chosen) -> tuple[int, int]:
    """Return how many of the chosen requests failed, and how many there are."""
    found = _chosen(chosen).query("chosen", "SELECT count(error), count(*) FROM chosen")
    assert found is not None
    [(some, of)] = found.fetchall()
    return some, of


def quantiles(chosen: Chosen) -> Rows:
    """Return points of the distribution of response times, for each variant over all its trials.

    A row has the variant, the share of its answered requests (0 to 1) that took at most ``value`` ms, and whether it is
    ``told`` apart by a mark. There are 200 points, and one for each request of the
    slowest hundredth; or one for each request if there are fewer.
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
        FROM ranked WHERE n <= 200 OR place > 0.99 * n OR place * 200 // n > (place - 1) * 200 // n
        ORDER BY variant, place
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
    load, variant, request, at_s = map(duckdb.ColumnExpression, ("load", "variant", "request", "at_s"))
    mine = every.filter(load == duckdb.ConstantExpression(chosen.load))
    mine = mine.filter(variant.isin(*map(duckdb.ConstantExpression, chosen.variants)))
    mine = mine.filter(at_s >= duckdb.ConstantExpression(chosen.from_s)).filter(
        at_s <= duckdb.ConstantExpression(chosen.to_s)
    )
    return mine if chosen.request is None else mine.filter(request == duckdb.ConstantExpression(chosen.request))


def _summary(run: Path) -> Any:  # noqa: ANN401  # JSON, with the keys of analysis.records.summary.Summary
    return read_values(run / "summary.json")

"""Requests, claims and published figures to summary.json: the machine-readable result of a run."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import correlation, fmean, median
from typing import Any

import duckdb

from analysis import bursts, intervals, visits, waiting
from analysis.folder import BadRun, read_run, read_trial, write_whole
from analysis.measured import Cell, Measured, Results, Stats, Steps
from analysis.quantities import STATISTICS, Metric, Statistic, aggregate, evenness, failures_allowed, rows_needed
from analysis.read import CLIENT
from analysis.read.observation import Container, counted_by_worker, database_of, stalls_within
from analysis.read.rows import COLUMNS
from analysis.record import SCHEMA, LoadRecord, Run, TrialRecord
from analysis.result import CounterRow, ErrorRow, Summary, VisitStepRow, WaveRow, WorkerRow
from analysis.validity import ClassCount, Evidence, Requests, judge_missing, judge_run, judge_trial
from analysis.verdicts import claim_row, differences, published_rows


def summarise(run_folder: Path, evidence: dict[Path, Evidence]) -> Summary:
    """Compute the summary of a run from its records, the requests.parquet of its trials and what else they show.

    ``evidence`` has an entry for each folder of a trial.
    """
    run = read_run(run_folder)
    folders = list(evidence)
    # Several threads would add up in a different order each time. One adds up in the order of the rows, and takes
    # little longer: what takes long is reading points and drawing.
    with duckdb.connect(config={"threads": 1}) as database:
        files = [str(folder / "requests.parquet") for folder in folders if (folder / "requests.parquet").exists()]
        if files:
            database.read_parquet(files).create_view("requests")
        else:
            database.execute(f"CREATE TABLE requests ({COLUMNS})")
        database.execute(_CLASSES)
        judged = []
        told: dict[bursts.Key, Stats] = {}
        came: dict[bursts.Key, visits.Count] = {}
        rates: dict[bursts.Key, list[int]] = {}
        waited: dict[tuple[Cell, int], Stats] = {}
        counters: list[CounterRow] = []
        for folder, found in evidence.items():
            trial = read_trial(folder)
            if trial.variant not in {one.name for one in run.variants} or trial.load not in {
                one.name for one in run.loads
            }:
                raise BadRun(
                    f"{folder}/trial.json is of {trial.variant} under {trial.load}, which run.json does not know"
                )
            size = run.load(trial.load).burst
            requests = _requests(database, trial, size)
            judged.append(judge_trial(run, trial, requests, found))
            key = trial.variant, trial.load, trial.trial
            told[key] = _told(found.containers) | (bursts.statistics(database, key, size) if size else {})
            came[key] = visits.count(database, key)
            rates[key] = _rates_per_s(run.load(trial.load), trial) if came[key].made else []
            told[key] |= _visited(database, run.load(trial.load), key)
            told[key] |= _written(found.containers, requests.posts)
            counters += _counters(trial, found.containers)
            if judged[-1].verdict != "invalid":
                waited |= _waited(database, run, trial, found.containers)
        judged += judge_missing(run, judged)
        trusted = {(one.variant, one.load, one.trial) for one in judged if one.verdict != "invalid"}
        open_loops = {one.name for one in run.loads if one.loop == "open"}
        workers = [one for one in _workers(database) if (one.variant, one.load, one.trial) in trusted]
        cells: dict[Cell, list[Measured]] = {}
        for (variant, load, request), measured in _cells(database):
            if (variant, load, measured.trial) in trusted:
                mine = [one for one in workers if _is_of(one, variant, load, request, measured.trial)]
                measured.stats.update(_spread(run, mine))
                measured.stats.update(waited.get(((variant, load, request), measured.trial), {}))
                if load in open_loops:  # the time that a user waits is not taken from its next request
                    measured.stats.pop(("throughput", "of_ideal"), None)
                if request is None:
                    measured.stats.update(told[variant, load, measured.trial])
                made = measured.model_copy(update={"came": came[variant, load, measured.trial]})
                cells.setdefault((variant, load, request), []).append(made)
        results = Results(run, cells, _steps(database, run, trusted))
        waves = list(_waves(database, run, trusted))
        visit_steps = list(_visit_steps(database, run, {key: rates[key] for key in rates if key in trusted}))
        errors = list(_errors(database, trusted))
    return Summary(
        experiment=run.experiment,
        validity=judge_run(run, judged, list(results.too_few())),
        trials=judged,
        rows=list(results.rows()),
        workers=workers,
        counters=counters,
        claims=[claim_row(claim, results, judged) for claim in run.claims],
        published=list(published_rows(results, judged)),
        differences=list(differences(results)) if run.against_itself else [],
        steps=list(results.steps_rows()),
        waves=waves,
        visit_steps=visit_steps,
        errors=errors,
    )


def write_summary(run_folder: Path, summary: Summary) -> None:
    """Write summary.json, whole or not at all."""
    values = {"schema": SCHEMA, **summary.model_dump(mode="json")}
    write_whole(run_folder / "summary.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def _is_of(row: WorkerRow, variant: str, load: str, request: str | None, trial: int) -> bool:
    return (row.variant, row.load, row.request, row.trial) == (variant, load, request, trial)


def _spread(run: Run, rows: list[WorkerRow]) -> Stats:
    """Return how evenly one trial's requests of one class, and their connections, were spread over the workers.

    Of workers that come and go nobody knows how many were idle: the spread is over those that served something.
    """
    stats: Stats = {}
    if rows:
        variant = run.variant(rows[0].variant)
        idle = [] if variant.elastic else [0] * (variant.workers - len(rows))
        requests, connections = [*(one.requests for one in rows), *idle], [*(one.connections for one in rows), *idle]
        stats |= {("requests_by_worker", stat): value for stat, value in evenness(requests).items()}
        stats |= {("connections_by_worker", stat): value for stat, value in evenness(connections).items()}
        if len(set(requests)) > 1 and len(set(connections)) > 1:
            stats["connections_by_worker", "correlation"] = correlation(requests, connections)
    return stats


def _told(containers: tuple[Container, ...]) -> Stats:
    """Return what the servers of a trial tell of themselves: races for connections, processor time, memory."""
    servers = [
        (one.before, one.after)
        for one in containers
        if one.before and one.after and (one.before.workers or one.after.workers)
    ]
    counts = {
        name: sum(counted_by_worker(containers, name).values())
        for name in ("served", "accepted", "accept_attempts", "accept_failures")
    }
    stats: Stats = {}
    if counts["accepted"]:
        stats["accept_attempts", "per_connection"] = counts["accept_attempts"] / counts["accepted"]
        stats["accept_failures", "per_connection"] = counts["accept_failures"] / counts["accepted"]
    used_s = [after.processor_s - before.processor_s for before, after in servers
              if before.processor_s is not None and after.processor_s is not None]  # fmt: skip
    if used_s and counts["served"]:
        stats["processor", "per_request"] = 1000 * sum(used_s) / counts["served"]
    memory_mib = [after.memory_mib for _, after in servers if after.memory_mib is not None]
    if memory_mib:
        stats["memory", "total"] = sum(memory_mib)
    for one in containers:
        if one.before and one.after and one.before.queued is not None and one.after.queued is not None:
            stats["queued", "count"] = one.after.queued - one.before.queued
    return stats


def _visited(database: duckdb.DuckDBPyConnection, load: LoadRecord, key: bursts.Key) -> Stats:
    """Return what became of a trial's visits, and up to which rate all went well where the rate climbs."""
    stats = visits.statistics(database, key)
    if stats and len(rates := visits.rates_per_s(load.settings, load.duration)) > 1:
        capacity_per_s = visits.capacity_per_s(database, key, rates, float(load.settings["STEP_S"]))
        if capacity_per_s is not None:
            stats["capacity", "per_second"] = capacity_per_s
    return stats


def _written(containers: tuple[Container, ...], posts: visits.Posts) -> Stats:
    """Return what the database of a trial tells: its rows, and how many connections it had at most."""
    after = one.after if (one := database_of(containers)) else None
    if not after or after.rows is None:
        return {}
    rows = visits.written(after.rows, posts)
    stats: Stats = {("rows_written", "count"): rows.rows, ("rows_unreported", "count"): rows.unreported}
    if "connections_max" in after.database:
        stats["database_connections", "max"] = after.database["connections_max"]
    return stats


def _rates_per_s(load: LoadRecord, trial: TrialRecord) -> list[int]:
    """Return how many visits were due in a second of a trial, step by step; nothing where nobody says it."""
    if trial.visits_per_s is not None:
        return [round(trial.visits_per_s)]
    return visits.rates_per_s(load.settings, load.duration)


def _visit_steps(
    database: duckdb.DuckDBPyConnection, run: Run, rates: dict[bursts.Key, list[int]]
) -> Iterator[VisitStepRow]:
    """Yield the steps of each trial of whose visits we know how many were due."""
    for key, due in sorted(rates.items()):
        if due:
            step_s = float(run.load(key[1]).settings.get("STEP_S", 1))
            variant, load, trial = key
            for step in visits.steps(database, key, due, step_s):
                yield VisitStepRow(variant=variant, load=load, trial=trial, **step._asdict())


def _errors(database: duckdb.DuckDBPyConnection, trusted: set[bursts.Key]) -> Iterator[ErrorRow]:
    """Yield why requests failed in the trials that can be trusted, the most frequent reason first."""
    names = list(ErrorRow.model_fields)
    for row in database.execute(_ERRORS).fetchall():
        if row[:3] in trusted:
            yield ErrorRow.model_validate(dict(zip(names, row, strict=True)))


def _waited(
    database: duckdb.DuckDBPyConnection, run: Run, trial: TrialRecord, containers: tuple[Container, ...]
) -> dict[tuple[Cell, int], Stats]:
    """Return who waited in a trial, by class of request: beside a free thread, and after a stall.

    Of workers that are killed and replaced nobody knows how many there were at a time.
    """
    if run.load(trial.load).crashes:
        return {}
    answered = waiting.read_answered(database, trial.variant, trial.load, trial.trial)
    variant = next(one for one in run.variants if one.name == trial.variant)
    by_class: dict[str | None, Stats] = {None: {}}
    if waits := waiting.of_variant(variant, answered):
        of_class = [(name, answered.request == place) for place, name in enumerate(answered.classes)]
        for name, mine in [*of_class, (None, answered.request >= 0)]:
            values = waiting.statistics(waits.beside_s[mine])
            by_class[name] = {("beside_free_thread", stat): value for stat, value in values.items()}
    stalls = stalls_within(containers, answered.first, answered.last_sent)
    if recoveries_s := list(waiting.recoveries_s(answered, stalls)):
        by_class[None]["recovery", "avg"] = 1000 * fmean(recoveries_s)
        by_class[None]["recovery", "max"] = 1000 * max(recoveries_s)
    return {((trial.variant, trial.load, name), trial.trial): stats for name, stats in by_class.items()}


def _steps(database: duckdb.DuckDBPyConnection, run: Run, trusted: set[bursts.Key]) -> dict[tuple[str, str], Steps]:
    """Return the staircases of small bursts by variant and load: medians over trials, with their intervals."""
    by_trial: dict[tuple[str, str], list[list[float]]] = {}
    for key in sorted(trusted):
        load = run.load(key[1])
        if load.burst and load.has_stairs and not load.crashes:
            by_trial.setdefault(key[:2], []).append(bursts.steps_ms(database, key, load.burst))
    return {cell: _of_trials(trials) for cell, trials in by_trial.items()}


def _of_trials(trials: list[list[float]]) -> Steps:
    """Return the median and the interval of each step over the trials that have it."""
    most = max(map(len, trials))
    steps = [[trial[place] for trial in trials if place < len(trial)] for place in range(most)]
    ends = [end for with_it, some in groupby(steps, len) if with_it > 1 for end in intervals.of_medians(list(some))]
    return Steps([median(values) for values in steps], ends)


def _waves(database: duckdb.DuckDBPyConnection, run: Run, trusted: set[bursts.Key]) -> Iterator[WaveRow]:
    """Yield the waves of the first burst of each variant's first trusted trial, where several workers share it."""
    variants, loads = [one.name for one in run.variants], [one.name for one in run.loads]
    firsts = {key[:2]: key for key in sorted(trusted, reverse=True)}
    for variant, load, trial in sorted(firsts.values(), key=lambda key: (variants.index(key[0]), loads.index(key[1]))):
        size = run.load(load).burst
        if not size or run.variant(variant).workers < 2:
            continue
        found = bursts.waves(database, (variant, load, trial), size)
        order = bursts.in_order({worker for worker, _, _ in found})
        for worker, wave, requests in sorted(found, key=lambda row: (order.index(row[0]), row[1])):
            yield WaveRow(variant=variant, load=load, trial=trial, burst=1, worker=worker, wave=wave, requests=requests)


def _counters(trial: TrialRecord, containers: tuple[Container, ...]) -> Iterator[CounterRow]:
    """Yield what each worker of a trial counted, by the order of their names."""
    names = sorted({name for one in containers if one.after for ones in one.after.counts.values() for name in ones})
    by_name = {name: counted_by_worker(containers, name) for name in names}
    for worker in sorted({worker for ones in by_name.values() for worker in ones}):
        counts = {name: ones[worker] for name, ones in by_name.items() if worker in ones}
        yield CounterRow(variant=trial.variant, load=trial.load, trial=trial.trial, worker=worker, counts=counts)


_CLASSES = """
CREATE VIEW classes AS
SELECT * FROM requests
UNION ALL BY NAME
SELECT * REPLACE (NULL AS request) FROM requests
"""

_WORKERS = """
SELECT variant, load, trial, request, worker, requests,
    requests / sum(requests) OVER (PARTITION BY variant, load, trial, request) AS share, connections
FROM (SELECT variant, load, trial, request, worker, count(*)::INTEGER AS requests,
          count(DISTINCT connection)::INTEGER AS connections
      FROM classes WHERE error IS NULL GROUP BY ALL)
ORDER BY variant, load, trial, request NULLS LAST, requests, worker
"""

_ERRORS = """
SELECT variant, load, trial, request, error, count(*)::INTEGER AS requests
FROM requests WHERE error IS NOT NULL GROUP BY ALL
ORDER BY requests DESC, variant, load, trial, request, error
"""

# What a user lost is time in which it would have asked: without it the same requests fit into so much less.
_USERS = """
SELECT variant, load, trial, request, 1 - sum(lost_ms) / nullif(sum(span_ms), 0) AS of_ideal
FROM (SELECT variant, load, trial, request, sum(overhead_ms) AS lost_ms,
          epoch_ms(max(answered)) - epoch_ms(min(sent)) AS span_ms
      FROM classes WHERE answered IS NOT NULL
      GROUP BY variant, load, trial, request, generator, split_part(id, '-', 1))
GROUP BY ALL
"""

_CONNECTIONS = """
SELECT variant, load, trial, request, avg(requests) AS requests_by_connection, max(requests) AS most_by_connection
FROM (SELECT variant, load, trial, request, connection, count(*) AS requests
      FROM classes WHERE error IS NULL AND connection IS NOT NULL GROUP BY ALL)
GROUP BY ALL
"""

_SAME_CELL = """
    (classes.variant, classes.load, classes.trial) = ({other}.variant, {other}.load, {other}.trial)
    AND classes.request IS NOT DISTINCT FROM {other}.request
"""

_TIMES: list[tuple[Metric, Statistic]] = [
    (metric, stat) for metric in ("overhead", "response_time") for stat in STATISTICS[metric]
]


def _workers(database: duckdb.DuckDBPyConnection) -> list[WorkerRow]:
    names = list(WorkerRow.model_fields)
    rows = database.execute(_WORKERS).fetchall()
    return [WorkerRow.model_validate(dict(zip(names, row, strict=True))) for row in rows]


def _cells(database: duckdb.DuckDBPyConnection) -> Iterator[tuple[Cell, Measured]]:
    """Yield the statistics of every class of request in every trial, and of all classes together."""
    query = f"""
        WITH users AS ({_USERS}), connections AS ({_CONNECTIONS})
        SELECT classes.variant, classes.load, classes.trial, classes.request,
            count(*) FILTER (WHERE error IS NULL) AS n,
            count(*) FILTER (WHERE error IS NOT NULL) AS failed, count(*) AS sent,
            epoch(max(sent + to_milliseconds(coalesce(duration_ms, 0)))) - epoch(min(sent)) AS seconds,
            any_value(of_ideal), any_value(requests_by_connection), any_value(most_by_connection),
            {", ".join(_time_statistic(metric, stat) for metric, stat in _TIMES)}
        FROM classes LEFT JOIN users ON {_SAME_CELL.format(other="users")}
            LEFT JOIN connections ON {_SAME_CELL.format(other="connections")}
        GROUP BY classes.variant, classes.load, classes.trial, classes.request ORDER BY 1, 2, 3, 4
    """  # noqa: S608  # made of this module's own constants
    for variant, load, trial, request, n, failed, sent, seconds, of_ideal, average, most, *times in database.execute(
        query
    ).fetchall():
        failures = failed / sent
        stats: Stats = {("failures", "share"): failures, ("failures", "count"): failed}
        if n and seconds:
            stats["throughput", "per_second"] = n / seconds
        if of_ideal is not None:
            stats["throughput", "of_ideal"] = of_ideal
        if average is not None:
            stats["requests_by_connection", "avg"] = average
            stats["requests_by_connection", "max"] = most
        for (metric, stat), value in zip(_TIMES, times, strict=True):
            if value is not None and n >= rows_needed(stat) and failures < failures_allowed(stat):
                stats[metric, stat] = value
        yield (variant, load, request), Measured(trial=trial, n=n, stats=stats)


def _time_statistic(metric: Metric, stat: Statistic) -> str:
    column = {"overhead": "overhead_ms", "response_time": "duration_ms"}[metric]
    return f"{aggregate(stat, column)} FILTER (WHERE error IS NULL)"


def _requests(database: duckdb.DuckDBPyConnection, trial: TrialRecord, burst: int | None) -> Requests:
    """Return what the rows of a trial say as a whole; ``burst`` requests of it were sent at once."""
    asked = {"variant": trial.variant, "load": trial.load, "trial": trial.trial}
    of_trial = "FROM requests WHERE (variant, load, trial) = ($variant, $load, $trial)"

    def rows(query: str) -> list[tuple[Any, ...]]:
        return database.execute(query.format(of_trial=of_trial), asked).fetchall()

    [(began, with_status, quickest_ms)] = rows(
        "SELECT epoch(min(sent)), count(*) FILTER (WHERE status > 0), 1000 * min(ended - began) {of_trial}"
    )
    [(direct_sent, direct_with_status)] = rows(
        "SELECT count(*), count(*) FILTER (WHERE status > 0) {of_trial} AND generator = '" + CLIENT + "'"
    )
    [(generators,)] = rows("SELECT count(DISTINCT generator) {of_trial} AND generator <> '" + CLIENT + "'")
    [(in_flight, little)] = rows(_LITTLE)
    return Requests(
        began=began,
        classes=[
            ClassCount(*row)
            for row in rows("SELECT request, count(*), count(error) {of_trial} GROUP BY request ORDER BY request")
        ],
        errors=[
            error
            for (error,) in rows(
                "SELECT error {of_trial} AND error IS NOT NULL GROUP BY error ORDER BY count(*) DESC, error"
            )
        ],
        with_status=with_status,
        by_worker=dict(rows("SELECT worker, count(*) {of_trial} AND error IS NULL GROUP BY worker")),
        in_flight=in_flight,
        little=little,
        quickest_ms=quickest_ms,
        direct_sent=direct_sent,
        direct_with_status=direct_with_status,
        sending=bursts.sending(database, (trial.variant, trial.load, trial.trial), burst) if burst else None,
        generators=generators,
        posts=visits.posts(database, (trial.variant, trial.load, trial.trial)),
    )


# L = lambda W (Little 1961). L from the wall clock, W from k6's own timings, which run on another clock. What k6 itself
# takes for a request between the two, a quarter of a millisecond, counts as part of the response: it is the median's.
# Of a connection that broke k6 does not time the wait.
_LITTLE = """
WITH timed AS (
    SELECT epoch_us(answered) - epoch_us(sent) AS under_way_us,
        1000 * (duration_ms + blocked_ms + connecting_ms) AS response_us, sent, answered
    {of_trial} AND status > 0)
SELECT sum(under_way_us) / any_value(span_us) AS in_flight,
    count(*) / any_value(span_us) * (avg(response_us) + median(under_way_us - response_us)) AS little
FROM timed, (SELECT nullif(max(epoch_us(answered)) - min(epoch_us(sent)), 0) AS span_us FROM timed)
"""

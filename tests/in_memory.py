"""Trials and results without a folder: a trial is read once, and tests judge copies of what is known of it."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import duckdb
from rich.console import Console

from stampede.evaluate.metrics.metric import Family
from stampede.evaluate.read.observation import Container, Observation, parse
from stampede.evaluate.read.trial_data import TrialData, derive_rows
from stampede.evaluate.statistics.estimates import Cells, Measured, TrialValues, measure_cells
from stampede.evaluate.statistics.intervals import Draw
from stampede.evaluate.verdict import claims
from stampede.evaluate.verdict.validity import judge_trial
from stampede.records.folder import read_run, trial_folder, trial_folders, write_record
from stampede.records.run import LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary, TrialValidity
from stampede.report.html import write_report
from stampede.report.terminal import print_tables
from tests.synthetic import Request, make_run, run_record, write_points

MIX = LoadRecord(name="mix", script="mix.js", duration="60s", settings={"VUS": "1"})


def trial_of(requests: Sequence[Request], client: Sequence[Request] = (), load: LoadRecord = MIX) -> TrialData:
    """Return what is known of such a trial."""
    return _read(tuple(requests), tuple(client), load.model_dump_json())


@cache
def _read(requests: tuple[Request, ...], client: tuple[Request, ...], load: str) -> TrialData:
    with opened_trial(requests, client, LoadRecord.model_validate_json(load)) as (_, trial):
        return trial


@contextmanager
def opened_trial(
    requests: Sequence[Request], client: Sequence[Request] = (), load: LoadRecord = MIX
) -> Iterator[tuple[duckdb.DuckDBPyConnection, TrialData]]:
    """Open the rows of a trial of two workers, and of a client that sent requests beside k6."""
    with TemporaryDirectory() as folder:
        run = make_run(Path(folder), {"one": [*requests]}, loads=[load])
        if client:
            write_points(trial_folder(run, "one", "mix", 1) / "points-client.json.gz", client)
        with derive_rows(run, read_run(run), trial_folders(run), {}) as (rows, [trial]):
            yield rows, trial


def measure(
    requests: Sequence[Request], *families: Family, load: LoadRecord = MIX, **change: Any
) -> dict[tuple[str | None, str, str], float]:
    """Return the statistics of a trial, by class of request, metric and statistic, as some families measure them."""
    cells = measured_cells(requests, *families, load=load, **change)
    return {
        (request_class, *key): draw.value
        for (_, _, request_class), [trial] in cells.items()
        for key, draw in trial.draws.items()
    }


def measured_cells(requests: Sequence[Request], *families: Family, load: LoadRecord = MIX, **change: Any) -> Cells:
    """Return what some families measure in a trial of which something else is known."""
    with opened_trial(requests, load=load) as (rows, trial):
        return measure_cells(rows, [changed(trial, **change)], families=families).cells


def changed(
    trial: TrialData,
    /,
    *,
    variant: VariantRecord | None = None,
    load: LoadRecord | None = None,
    before: Mapping[str, str | None] = {},
    after: Mapping[str, str | None] = {},
    requests: Mapping[str, Any] = {},
    raw: Mapping[str, Any] = {},
    run: Mapping[str, Any] = {},
    **record: Any,
) -> TrialData:
    """Return a trial of which something else is known.

    ``before`` and ``after``: what containers printed then, by their names; None: the container was not observed.
    """
    planned = ({"variants": [variant]} if variant else {}) | ({"loads": [load]} if load else {})
    return trial._replace(
        run=trial.run.model_copy(update=planned | dict(run)),
        record=trial.record.model_copy(update=record),
        requests=trial.requests._replace(**requests),
        raw=trial.raw._replace(**{"containers": _observed(trial.containers, before, after), **raw}),
    )


def _observed(
    containers: Sequence[Container], before: Mapping[str, str | None], after: Mapping[str, str | None]
) -> tuple[Container, ...]:
    seen: dict[str, dict[str, Observation | None]] = {
        when: {one.name: getattr(one, when) for one in containers}
        | {name: parse(text) if text else None for name, text in said.items()}
        for when, said in (("before", before), ("after", after))
    }
    both = {name: {when: seen[when].get(name) for when in seen} for name in sorted(seen["before"] | seen["after"])}
    return tuple(Container(name=name, **one) for name, one in both.items() if any(one.values()))


def judged(trial: TrialData, **change: Any) -> tuple[str, list[str]]:
    """Return the verdict on a trial of which something else is known, and the reasons."""
    found = judge_trial(changed(trial, **change))
    return found.verdict, found.reasons


def values_of(trial: int, answered: int = 100, **stats: float) -> TrialValues:
    """Return the values of a trial in which no request failed: statistics of the overhead of a class of requests."""
    draws = {("overhead", stat): Draw(value, (value,)) for stat, value in stats.items()}
    return TrialValues(trial, answered, {("failures", "share"): Draw(0.0)} | draws)


def concluded(
    values: Mapping[str, Sequence[float]], *, stats: Sequence[str] = ("p99",), answered: int = 100, **changed: Any
) -> tuple[Run, Summary]:
    """Return a run and its results, given a value of each trial by variant.

    The value is that of each of these statistics of the overhead of light requests.
    """
    run = run_record([*values], max(map(len, values.values())), **changed)
    cells = {
        (variant, "mix", "light"): [
            values_of(number, answered, **dict.fromkeys(stats, value)) for number, value in enumerate(trials, start=1)
        ]
        for variant, trials in values.items()
    }
    return run, conclude(run, cells)


def conclude(
    run: Run,
    cells: Mapping[tuple[str, str, Any], Sequence[TrialValues]],
    doubtful: Sequence[TrialValidity] = (),
    times: Mapping[tuple[str, str], Sequence[Sequence[float]]] = {},
) -> Summary:
    """Return the results that follow from the statistics of a run's trusted trials; a run takes a minute.

    ``doubtful`` are the verdicts on the trials that are not valid.
    """
    trusted = [
        TrialValidity(variant=variant, load=load, trial=trial.trial, verdict="valid", reasons=[])
        for (variant, load, _), trials in cells.items()
        for trial in trials
        if (variant, load, trial.trial) not in {one.key for one in doubtful}
    ]
    measured = Measured([*doubtful, *trusted], cells, staircases=times, round_s=60 / run.trials)
    return claims.conclude(run, measured)


def page_of(folder: Path, run: Run, summary: Summary) -> str:
    """Return the report of results, without pictures and lanes."""
    write_record(folder / "run.json", run)
    with patch("stampede.report.html.pictures", lambda *_: []), patch("stampede.report.html.load_lanes", lambda *_: []):
        write_report(folder, summary)
    return (folder / "report.html").read_text(encoding="utf-8")


def printed(run: Run, summary: Summary) -> str:
    """Return what a terminal of 80 columns shows of results."""
    out = io.StringIO()
    print_tables(Console(file=out, width=80), run, summary)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue()

"""The measuring chain itself: a server with a known script goes through k6, points, table and report.

What comes out is what went in: each of four servers lags in its own scripted way, and the lab must say which.
"""

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

import duckdb
import pytest

from stampede.records.folder import read_run
from stampede.records.summary import Summary
from stampede.report.tables.quantities import quantity_tables
from stampede.report.wording import number
from tests.conftest import Lab, copy_lab
from tests.live import watch_all
from tools.browser import free_port

EXPERIMENT = """\
title: Four servers that lag as they are told
question: Does what went in come out?
loads:
  users:
    duration: {short: 4s, full: 1m}
    classes: {user: {users: 4, takes_s: {least: 0.01, most: 0.02}}}
parallel: true
variants:
  constant:     {server: gunicorn-gthread, workers: 1, threads: 8}
  bimodal:      {server: gunicorn-gthread, workers: 1, threads: 9}
  rarely-slow:  {server: gunicorn-gthread, workers: 1, threads: 10}
  rarely-fails: {server: gunicorn-gthread, workers: 1, threads: 11}
"""
SCRIPT = """\
import itertools, os, time
TURNS = itertools.count(1)
EXTRA_MS = {"8": lambda turn: 40, "9": lambda turn: (10, 90)[turn % 2], "10": lambda turn: 0 if turn % 100 else 400,
            "11": lambda turn: 10}[os.environ["LAB_THREADS"]]

def lag():
    turn = next(TURNS)
    if os.environ["LAB_THREADS"] == "11" and turn % 100 == 50:
        raise workload.BadRequest("as it was told")
    time.sleep(EXTRA_MS(turn) / 1000)

"""
Rows = list[tuple[float | None, str | None]]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, list[dict[str, Any]]]:
    """A run of the four, side by side, and the rows that a page was told that watched them."""
    lab = copy_lab(tmp_path_factory.mktemp("scripted"))
    (lab.root / "experiments" / "scripted.yaml").write_text(EXPERIMENT)
    lab.start_loads_at_once()
    lab.predict_roughly()
    lab.edit("servers/app/wsgi.py", "StartResponse = ", f"{SCRIPT}StartResponse = ")
    lab.edit("servers/app/wsgi.py", "            body = workload", "            lag()\n            body = workload")
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(watch_all, port := free_port())
        done = lab.run("watch", "scripted", "--port", str(port))
    assert done.returncode == 0, done.stderr
    return lab, told.result()


@pytest.fixture(scope="module")
def scripted(watched: tuple[Lab, list[dict[str, Any]]]) -> Lab:
    """The lab with the run of the four."""
    return watched[0]


def latest(lab: Lab) -> Path:
    return (lab.results / "scripted" / "latest").resolve()


def rows(lab: Lab, variant: str) -> Rows:
    table = duckdb.read_parquet(str(latest(lab) / variant / "users" / "1" / "requests.parquet"))
    return table.project("overhead_ms, error").fetchall()


def summary(lab: Lab) -> Summary:
    values = json.loads((latest(lab) / "summary.json").read_text())
    return Summary.model_validate({key: value for key, value in values.items() if key != "schema"})


def measured(lab: Lab, variant: str, metric: str, stat: str) -> float:
    [value] = [
        row.measured
        for row in summary(lab).rows
        if (row.variant, row.request_class, row.metric, row.stat) == (variant, "user", metric, stat)
    ]
    assert value is not None
    return value


def test_a_constant_lag_is_in_every_request(scripted: Lab) -> None:
    overheads = [overhead for overhead, _ in rows(scripted, "constant") if overhead is not None]

    assert len(overheads) > 100
    assert min(overheads) >= 40
    assert 40 <= measured(scripted, "constant", "overhead", "p50") < 80


def test_two_modes_come_out_as_two_modes(scripted: Lab) -> None:
    """Every second request lags by 90 instead of 10 ms; at the end four may be one off."""
    overheads = [overhead for overhead, _ in rows(scripted, "bimodal") if overhead is not None]

    slow = sum(overhead >= 90 for overhead in overheads)
    assert min(overheads) >= 10
    assert abs(slow - len(overheads) / 2) <= 4
    assert measured(scripted, "bimodal", "overhead", "p10") < 90 <= measured(scripted, "bimodal", "overhead", "p75")


def test_one_slow_request_in_a_hundred_is_one_in_a_hundred(scripted: Lab) -> None:
    overheads = [overhead for overhead, _ in rows(scripted, "rarely-slow") if overhead is not None]

    assert sum(overhead >= 400 for overhead in overheads) == len(overheads) // 100
    assert measured(scripted, "rarely-slow", "overhead", "max") >= 400
    assert measured(scripted, "rarely-slow", "overhead", "p90") < 400


def test_one_failure_in_a_hundred_is_counted_and_is_no_fast_success(scripted: Lab) -> None:
    found = rows(scripted, "rarely-fails")

    failed = [overhead for overhead, error in found if error]
    assert len(failed) == (len(found) + 50) // 100
    assert set(failed) == {None}
    assert {error for _, error in found} == {None, "status 400"}
    assert min(overhead for overhead, _ in found if overhead is not None) >= 10
    assert measured(scripted, "rarely-fails", "failures", "share") == pytest.approx(len(failed) / len(found))
    [trial] = [one for one in summary(scripted).trials if one.variant == "rarely-fails"]
    assert any(f"{len(failed)} of {len(found)} user requests failed (status 400)" in one for one in trial.reasons)


@pytest.mark.parametrize("variant", ["constant", "bimodal", "rarely-slow", "rarely-fails"])
def test_a_page_that_watches_is_told_the_worker_of_every_answer(
    watched: tuple[Lab, list[dict[str, Any]]], variant: str
) -> None:
    lab, rows_told = watched
    folder = latest(lab) / variant / "users" / "1"
    table = duckdb.read_parquet(str(folder / "requests.parquet")).filter("worker IS NOT NULL")

    told = [(row["worker"], row["thread"]) for row in rows_told if row["variant"] == variant and row["worker"]]
    assert len(told) > 20
    assert sorted(told) == sorted(table.project("worker, thread").fetchall())
    assert not [*folder.glob("points*.json")]  # they are compressed


PERCENTILES: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "avg": mean,
    "p50": lambda values: quantiles(values, n=100, method="inclusive")[49],
    "p90": lambda values: quantiles(values, n=100, method="inclusive")[89],
    "p99": lambda values: quantiles(values, n=100, method="inclusive")[98],
}


@pytest.mark.parametrize("variant", ["constant", "bimodal", "rarely-slow"])
def test_every_figure_is_what_k6s_own_points_say(scripted: Lab, variant: str) -> None:
    """Read again without any of our code: k6's own http_req_duration, one line at a time, percentiles by Python's."""
    durations: list[float] = []
    with gzip.open(latest(scripted) / variant / "users" / "1" / "points.json.gz", "rt") as points:
        for line in points:
            point: dict[str, Any] = json.loads(line)
            if point["metric"] == "http_req_duration" and point["type"] == "Point":
                durations.append(point["data"]["value"])

    for stat, function in PERCENTILES.items():
        assert measured(scripted, variant, "response_time", stat) == pytest.approx(function(durations), rel=1e-9)


def test_the_table_and_the_report_print_the_summarys_figures(scripted: Lab) -> None:
    report = (latest(scripted) / "report.html").read_text()
    printed = scripted.run("report", str(latest(scripted)), "--tables").stdout

    for variant in ("constant", "bimodal", "rarely-slow", "rarely-fails"):
        p50 = number(measured(scripted, variant, "overhead", "p50"))
        assert f"<td>{p50}</td>" in report
        _, _, below = printed.partition(f"\n{variant} ")  # the predicted line comes first, and has the name
        line = next(line for line in below.splitlines() if "measured" in line)
        assert p50 in line.split()
    assert len(list(quantity_tables(read_run(latest(scripted)), summary(scripted)))) == 1


def test_a_real_run_verifies(scripted: Lab) -> None:
    """To verify a run, the lab computes the results again, and compares."""
    done = scripted.run("verify", str(latest(scripted)))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(
        "; predicted.json, summary.json, report.html and requests.parquet follow from these files."
    )

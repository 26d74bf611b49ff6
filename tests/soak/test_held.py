"""How much load the lab holds: ten thousand requests a second, two thousand users, and memory that stays flat."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Lab

pytestmark = pytest.mark.usefixtures("nothing_left")

EXPERIMENT = """\
title: How much load does the lab hold?
question: Is it sent, counted and analysed whole, or does the lab say what gave out?
load:
  {load}
  duration: {{short: 60s, full: 5m}}
variants:
  four: {{server: gunicorn-gthread, workers: 4, threads: 16, cpus: 2}}
"""
CROWD = "classes: {user: {users: 2000, takes_s: {least: 0.05, most: 0.15}, pause_s: 8}}"
FLOOD = "classes: {arrival: {per_second: 10000, users_max: 400}}"
STEADY = FLOOD.replace("10000", "800")
GAVE_OUT = (
    "the load generator dropped ",
    "the load generator waited for a processor ",
    "the machine was ",
    "gunicorn-1 was kept from computing ",
    "the listen queue of ",
)


def measured(lab: Lab, load: str, duration: str = "60s") -> tuple[dict[str, Any], Path, int]:
    """Measure a load; return the summary, the trial's folder and the most memory that the lab had, in KiB."""
    (lab.root / "experiments" / "held.yaml").write_text(EXPERIMENT.format(load=load))
    environment = os.environ | {"PYTHONPATH": str(lab.root)}
    options = ["--trials", "1", "--duration", duration, "--results", str(lab.results)]
    process = subprocess.Popen(
        [sys.executable, "-m", "stampede", "run", "held", *options],
        cwd=lab.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    run = (lab.results / "held" / "latest").resolve()
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    assert process.returncode == (1 if summary["validity"]["verdict"] == "invalid" else 0)
    [points] = run.glob("four/*/1/points.json.gz")
    return summary, points.parent, usage.ru_maxrss


def test_two_thousand_users_are_held(copied_lab: Lab) -> None:
    """Each asks about seven times a minute: 2000 connections, some 240 requests a second."""
    summary, _, _ = measured(copied_lab, CROWD)

    [trial] = summary["trials"]
    assert trial["verdict"] == "valid" or any(reason.startswith(GAVE_OUT) for reason in trial["reasons"])
    [requests] = [row["n"] for row in summary["rows"] if row["request_class"] == "user" and row["stat"] == "p50"
                  and row["metric"] == "overhead"]  # fmt: skip
    assert requests > 2000 * 60 / 8.2
    assert not any(reason.startswith("the counts disagree") for reason in trial["reasons"])


def test_ten_thousand_requests_a_second_are_held_or_the_lab_says_what_gave_out(copied_lab: Lab) -> None:
    summary, folder, _ = measured(copied_lab, FLOOD)

    [trial] = summary["trials"]
    assert trial["verdict"] == "valid" or any(reason.startswith(GAVE_OUT) for reason in trial["reasons"])
    assert not any(reason.startswith("the counts disagree") or "status 502" in reason for reason in trial["reasons"])
    assert (folder / "requests.parquet").exists()
    if trial["verdict"] == "invalid":
        assert {row["measured"] for row in summary["rows"]} <= {None}


def test_memory_stays_flat(copied_lab: Lab) -> None:
    """Six times as many requests: the runner and the analysis take less than half as much memory again."""
    summary, short_folder, short = measured(copied_lab, STEADY, "10s")
    longer, long_folder, long = measured(copied_lab, STEADY, "60s")

    assert not [reason for one in (summary, longer) for reason in one["trials"][0]["reasons"] if "failed" in reason]
    sizes = [(folder / "points.json.gz").stat().st_size for folder in (short_folder, long_folder)]
    assert sizes[1] > 4 * sizes[0]
    assert long < 1.5 * short

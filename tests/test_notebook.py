"""analysis/explore.ipynb runs from top to bottom over several runs."""

import shutil
from pathlib import Path

import duckdb
import nbformat
import pytest
from nbclient import NotebookClient

from analysis import collection
from analysis.pipeline import derive_summary
from analysis.quantities import Claim, Quantity
from lab.paths import ROOT
from tests.synthetic import Request, make_run

TAIL = Quantity(variant="one", request="light", metric="overhead", stat="p99")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs whose tails differ, one of which keeps the claim."""
    results = tmp_path_factory.mktemp("results")
    claims = [Claim(says="the tail is short", value=TAIL, at_most=150)]
    for name, factor in (("20260101T000000Z", 1), ("20260102T000000Z", 2)):
        requests = [Request(overhead_ms=n * factor) for n in range(1, 101)]
        run = results / "made-up" / name
        derive_summary(make_run(run, {"one": requests, "two": requests}, claims=claims, times=2))
    (results / "made-up" / "latest").symlink_to("20260102T000000Z")
    return collection.find_runs(results, "made-up")


def test_runs_are_found_once_and_in_order(runs: list[Path]) -> None:
    assert [run.name for run in runs] == ["20260101T000000Z", "20260102T000000Z"]
    assert [row["validity"] for row in collection.describe(runs)] == ["valid", "valid"]


def test_verdicts_stand_side_by_side(runs: list[Path]) -> None:
    assert collection.verdicts(runs) == [
        {"claim": "the tail is short", "20260101T000000Z": "reproduced", "20260102T000000Z": "not reproduced"}
    ]


def test_a_statistic_is_collected_over_runs(runs: list[Path]) -> None:
    rows = collection.measured(runs, "overhead", "p99", "light")

    values = {row["run"]: row["value"] for row in rows if row["variant"] == "one"}
    assert values == pytest.approx({"20260101T000000Z": 99.01, "20260102T000000Z": 198.02})


def test_requests_know_their_run(runs: list[Path]) -> None:
    counted = collection.requests(runs).query("r", "SELECT run, count(*) FROM r GROUP BY run ORDER BY run")

    assert counted is not None
    assert counted.fetchall() == [("20260101T000000Z", 400), ("20260102T000000Z", 400)]


def test_requests_of_an_older_run_lack_what_nobody_wrote_down(runs: list[Path], tmp_path: Path) -> None:
    older = shutil.copytree(runs[1], tmp_path / runs[1].name)
    table = older / "one" / "mix" / "1" / "requests.parquet"
    duckdb.sql(f"COPY (SELECT * EXCLUDE (visit) FROM '{table}') TO '{table}.older' (FORMAT parquet)")
    Path(f"{table}.older").rename(table)

    counted = collection.requests([runs[0], older]).query("r", "SELECT count(*), count(visit) FROM r")

    assert counted is not None
    assert counted.fetchall() == [(800, 0)]


def test_the_notebook_runs_from_top_to_bottom(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESULTS", str(runs[0].parent.parent))
    monkeypatch.setenv("NAME", "made-up")
    notebook = nbformat.read(ROOT / "analysis" / "explore.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are never committed"

    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "analysis")}}).execute()

    shown = [
        "".join(output.get("data", {})) + output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    ]
    assert len(shown) >= 5
    assert any("image/svg+xml" in kind for kind in shown)
    assert "A made-up question" in shown[0]

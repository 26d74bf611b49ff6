"""analysis/explore.ipynb runs from top to bottom over several runs, and its answers are right."""

from pathlib import Path
from typing import Any

import duckdb
import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

from stampede.paths import ROOT
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Quantity
from tests.conftest import PATIENCE_S
from tests.synthetic import Request, make_run
from tools.real_runs import NAMES, unpack

NOTEBOOK = ROOT / "analysis" / "explore.ipynb"
TAIL = Quantity(variant="one", request_class="light", metric="overhead", stat="p99")


def cells() -> list[str]:
    """Return the code of the notebook, whose outputs are never committed."""
    every = nbformat.read(NOTEBOOK, as_version=4).cells  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in every)
    return [cell.source for cell in every if cell.cell_type == "code"]


def ask(results: Path, monkeypatch: pytest.MonkeyPatch, name: str = "") -> dict[str, Any]:
    """Run the cells without a kernel, and return the variables that they leave."""
    monkeypatch.setenv("RESULTS", str(results))
    monkeypatch.setenv("NAME", name)
    names: dict[str, Any] = {}
    exec(compile("\n".join(cells()).removeprefix("%cd -q ..\n"), NOTEBOOK, "exec"), names)
    return names


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose tails differ, one of which keeps the claim. The older one lacks a column."""
    results = tmp_path_factory.mktemp("results")
    claims = [Claim(says="the tail is short", value=TAIL, at_most=150)]
    for name, factor in (("20260101T000000Z", 1), ("20260102T000000Z", 2)):
        requests = [Request(overhead_ms=n * factor) for n in range(1, 101)]
        run = results / "made-up" / name
        derive_summary(make_run(run, {"one": requests, "two": requests}, claims=claims, times=2))
    for table in (results / "made-up" / "20260101T000000Z").glob("*/*/*/requests.parquet"):
        duckdb.sql(f"COPY (SELECT * EXCLUDE (visit) FROM '{table}') TO '{table}.older' (FORMAT parquet)")
        Path(f"{table}.older").rename(table)
    (results / "made-up" / "latest").symlink_to("20260102T000000Z")
    return results


def test_all_runs_are_asked_once(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ask(results, monkeypatch)

    counted = names["requests"].aggregate("run, count(*)", "run").order("run").fetchall()
    assert counted == [("20260101T000000Z", 400), ("20260102T000000Z", 400)]
    tails = (
        names["rows"]
        .filter("variant = 'one' AND request_class = 'light' AND metric = 'overhead' AND stat = 'p99'")
        .order("run")
    )
    assert [row[0] for row in tails.project("measured").fetchall()] == pytest.approx([99.01, 198.02])
    assert "the tail is short │ reproduced       │ not reproduced" in capsys.readouterr().out
    [middle] = names["quantiles"].filter("variant = 'one' AND share = 0.5").project("response_time_ms").fetchall()
    assert [middle] == names["requests"].filter("variant = 'one'").aggregate("median(duration_ms)").fetchall()


def test_without_a_run_the_notebook_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="has no run with a summary; measure one: make experiment NAME=heavy-mix"):
        ask(tmp_path, monkeypatch)


@pytest.mark.parametrize("experiment", NAMES)
def test_every_question_gets_an_answer_from_a_real_run(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive_summary(unpack(experiment, tmp_path))

    names = ask(tmp_path, monkeypatch, experiment)

    for answer in ("claims", "rows", "requests", "quantiles", "waits"):
        assert names["drawn"](names[answer].limit(10)).data.values, answer


def test_the_notebook_runs_from_top_to_bottom(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESULTS", str(results))
    shown: list[Any] = []
    kernel, client = start_new_kernel(cwd=str(NOTEBOOK.parent))
    try:
        for source in cells():
            reply = client.execute_interactive(source, timeout=PATIENCE_S, output_hook=shown.append)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert sum("image/svg+xml" in message["content"].get("data", {}) for message in shown) == 3

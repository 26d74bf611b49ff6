"""analysis/explore.ipynb runs from top to bottom over several runs."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import nbformat
import pytest
from IPython.display import HTML, SVG
from jupyter_client.manager import start_new_kernel
from rich.table import Table

from analysis.pipeline import derive_summary
from analysis.records.claims import Claim, Quantity
from analysis.records.folder import BadRun
from lab.apps.notebook import queries, widgets
from lab.apps.notebook.queries import Chosen
from lab.apps.notebook.widgets import Choice
from lab.paths import ROOT
from tests.real_runs import NAMES, unpack
from tests.synthetic import Request, make_run

pytestmark = pytest.mark.long

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
    return queries.find_runs(results, "made-up")


def test_runs_are_found_once_and_in_order(runs: list[Path]) -> None:
    assert [run.name for run in runs] == ["20260101T000000Z", "20260102T000000Z"]
    assert [row["validity"] for row in queries.describe(runs)] == ["valid", "valid"]


def test_verdicts_stand_side_by_side(runs: list[Path]) -> None:
    assert queries.verdicts(runs) == [
        {"claim": "the tail is short", "20260101T000000Z": "reproduced", "20260102T000000Z": "not reproduced"}
    ]


def test_a_statistic_is_collected_over_runs(runs: list[Path]) -> None:
    rows = queries.measured(Chosen(runs, "mix", ["one", "two"], "light", 0, 1), "overhead", "p99")

    values = {row["run"]: row["value"] for row in rows if row["variant"] == "one"}
    assert values == pytest.approx({"20260101T000000Z": 99.01, "20260102T000000Z": 198.02})


def test_requests_know_their_run(runs: list[Path]) -> None:
    counted = queries.requests(runs).query("r", "SELECT run, count(*) FROM r GROUP BY run ORDER BY run")

    assert counted is not None
    assert counted.fetchall() == [("20260101T000000Z", 400), ("20260102T000000Z", 400)]


def test_requests_of_an_older_run_lack_what_nobody_wrote_down(runs: list[Path], tmp_path: Path) -> None:
    older = shutil.copytree(runs[1], tmp_path / runs[1].name)
    table = older / "one" / "mix" / "1" / "requests.parquet"
    duckdb.sql(f"COPY (SELECT * EXCLUDE (visit) FROM '{table}') TO '{table}.older' (FORMAT parquet)")
    Path(f"{table}.older").rename(table)

    counted = queries.requests([runs[0], older]).query("r", "SELECT count(*), count(visit) FROM r")

    assert counted is not None
    assert counted.fetchall() == [(800, 0)]


def test_the_distribution_has_every_request_of_its_class_and_time(runs: list[Path]) -> None:
    chosen = Chosen(runs[:1], "mix", ["one"], "light", 0, 1000)
    rows = queries.quantiles(chosen)

    assert [row["share"] for row in rows] == pytest.approx([(place + 1) / 200 for place in range(200)])
    assert [row["value"] for row in rows] == sorted(row["value"] for row in rows)
    assert sum(row["told"] for row in rows) == 10
    assert queries.quantiles(chosen._replace(request="heavy")) == []
    assert queries.quantiles(chosen._replace(from_s=900)) == []


def test_waits_leave_out_the_shortest(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Chosen(runs[:1], "mix", ["two", "one"], None, 0, 1000)
    every, left_out = queries.waits(chosen)
    monkeypatch.setattr(queries, "MOST_WAITS", 10)
    longest, then_left_out = queries.waits(chosen)

    assert (len(every), left_out) == (400, 0)
    assert (len(longest), then_left_out) == (20, 380)
    assert [row["variant"] for row in longest] == ["two"] * 10 + ["one"] * 10, "in the order in which they were chosen"
    assert min(row["wait_ms"] for row in longest) >= sorted(row["wait_ms"] for row in every)[-20]


def test_what_is_offered_follows_the_experiment(runs: list[Path]) -> None:
    choice = Choice(runs[0].parent.parent, "made-up")

    assert choice.experiment.options == ("made-up",)
    assert choice.chosen.runs == runs
    assert choice.chosen.variants == ["one", "two"]
    assert choice.request.options == ("light", widgets.ALL)
    choice.runs.value = [runs[1].name]
    choice.request.value = widgets.ALL
    assert choice.chosen.runs == runs[1:]
    assert choice.chosen.request is None


def test_each_load_offers_its_own_variants_and_classes(tmp_path: Path) -> None:
    """worker-types has a load for every shape of burst, and one in which a request crashes its worker."""
    derive_summary(unpack("worker-types", tmp_path))
    choice = Choice(tmp_path)
    assert len(choice.load.options) > 1
    first = choice.request.options

    choice.load.value = "crash"

    assert choice.chosen.load == "crash"
    assert choice.request.options == ("after", "before", "crash", widgets.ALL) != first
    failed, of = queries.failed(choice.chosen._replace(request=None))
    assert 0 < failed <= of
    title = widgets.waits(choice.chosen._replace(request=None)).data
    assert f"{failed} of {of} failed, and are left out" in title


def test_a_run_without_requests_offers_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    run = tmp_path / "made-up" / "20260101T000000Z"
    run.mkdir(parents=True)
    derive_summary(make_run(run, {}, outcome="interrupted"))

    choice = Choice(tmp_path)

    assert choice.chosen.variants == []
    assert widgets._answered(widgets.waits, choice.chosen, {}).data == (
        "Choose a run with requests, and a variant, above."
    )


def test_a_claim_in_other_words_is_the_same_claim(runs: list[Path], tmp_path: Path) -> None:
    reworded = tmp_path / "made-up" / "20260103T000000Z"
    claims = [Claim(says="in other words", value=TAIL, at_most=150)]
    derive_summary(make_run(reworded, {"one": [Request()]}, claims=claims))

    [row] = queries.verdicts([*runs, reworded])

    assert row["claim"] == "in other words"
    assert len(row) == 4


def test_an_older_summary_is_named_instead_of_an_answer(runs: list[Path], tmp_path: Path) -> None:
    older = shutil.copytree(runs[0], tmp_path / "made-up" / runs[0].name)
    text = (older / "summary.json").read_text()
    (older / "summary.json").write_text(text.replace('"values"', '"value"'))
    chosen = Chosen([older], "mix", ["one"], None, 0, 1)

    said = widgets._answered(widgets.lanes, chosen, {}).data

    assert said.startswith(f"{older}/summary.json: rows.0.values: Field required")
    assert said.endswith(f"To compute its results again: make report RUN={older}")


def test_an_answer_is_given_once_for_each_change(runs: list[Path]) -> None:
    choice = Choice(runs[0].parent.parent, "made-up")
    asked: list[Chosen] = []
    choice.ask(asked.append)
    assert len(asked) == 1

    choice.runs.value = [runs[0].name]
    choice.time.value = (0.0, 0.05)

    assert [len(chosen.runs) for chosen in asked] == [2, 1, 1]
    assert asked[-1].to_s == 0.05


def test_answers_say_what_they_have_nothing_for(runs: list[Path]) -> None:
    nothing = Chosen(runs, "mix", ["one"], "heavy", 0, 1000)

    assert widgets.waits(nothing).data == widgets.distribution(nothing, 99).data
    assert widgets.waits(nothing).data == "No such request was answered in this time."
    assert widgets.run_by_run(nothing, ("overhead", "p99")).data == "No run has overhead, p99 for heavy."


def test_without_a_run_the_notebook_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="has no run with a summary; measure one: make experiment NAME=heavy-mix"):
        Choice(tmp_path)


@pytest.mark.parametrize("experiment", NAMES)
def test_every_question_of_the_notebook_gets_an_answer(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive_summary(unpack(experiment, tmp_path))
    answers: list[object] = []
    monkeypatch.setattr(widgets, "display", answers.append)
    monkeypatch.setenv("RESULTS", str(tmp_path))
    monkeypatch.setenv("NAME", experiment)
    cells = "\n".join(cell.source for cell in notebook().cells if cell.cell_type == "code")

    exec(compile(cells.removeprefix("%cd -q ..\n"), "explore.ipynb", "exec"), {})

    *others, last = answers
    assert [type(answer) for answer in others] == [Table, Table, HTML, SVG, SVG]
    if experiment == "keep-alive":
        assert isinstance(last, SVG)
    else:  # the default statistic is p99, for which their classes have too few requests
        assert isinstance(last, HTML)
        assert last.data.startswith("No run has overhead, p99 for ")


def test_the_notebook_runs_from_top_to_bottom(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESULTS", str(runs[0].parent.parent))
    every = notebook()
    assert all(not cell.get("outputs") for cell in every.cells), "outputs are never committed"

    kernel, client = start_new_kernel(cwd=str(ROOT / "analysis"))
    try:
        for cell in every.cells:
            if cell.cell_type == "code":
                reply = client.execute_interactive(cell.source, timeout=60, output_hook=lambda _: None)
                assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def notebook() -> Any:
    return nbformat.read(ROOT / "analysis" / "explore.ipynb", as_version=4)  # type: ignore[no-untyped-call]

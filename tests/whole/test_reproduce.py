"""stampede reproduce: every experiment once by default, and one picture of everything that was published."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from stampede.cli import measure as measuring
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.run import METHOD, SourceRecord
from stampede.reproduce.reproduction import (
    Reproduced,
    Reproduction,
    default_run,
    ratio_picture,
    read_reproduced,
    read_reproduction,
    write_reproduction,
)
from stampede.reproduce.shown import ShownTable
from stampede.run.options import RunRequest
from tests.synthetic import Request, make_run
from tools.pages import keep_for_page, with_block

P50 = Quantity(variant="one", metric="overhead", stat="p50", request_class="light")


def measured(results: Path, experiment: str = "made-up", time: str = "20260101T000000Z", **changed: Any) -> Path:
    """Write a run of five trials, whose requests lose 1 to 20 ms."""
    folder = results / experiment / time
    requests = {name: [Request(overhead_ms=n) for n in range(1, 21)] for name in changed.pop("names", ["one"])}
    values: dict[str, Any] = {
        "experiment": experiment, "method": METHOD, "times": 5,
        "published": [
            Published(variant="one", request_class="light", metric="overhead", stats={"p50": 10.5, "max": 100}),
            Published(variant="one", request_class="light", metric="requests_by_worker", counts=[3, 1]),
        ],
        "claims": [Claim(says="It is so", value=P50, at_most=20)],
        "source": SourceRecord(title="An article", publisher="A blog", year=2020, address="https://example.org/an-article"),
    }  # fmt: skip
    values["command"] = f"make experiment NAME={experiment}"
    derive_summary(make_run(folder, requests, **(values | changed)))
    return folder


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one variant, in whose folder tests write nothing."""
    return measured(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def reproduced(made_up: Path) -> Reproduced:
    """What the run says of what was published."""
    return read_reproduced(made_up)


def test_every_published_figure_is_judged_also_without_a_tolerance(reproduced: Reproduced) -> None:
    """The measured p50 equals the published one, and the maximum is a fifth; all requests went to one worker."""
    assert [(figure.stat, figure.verdict, figure.within) for figure in reproduced.figures] == [
        ("p50", "reproduced", 0.25), ("max", "contradicted", 0.25),
        ("largest_share", "contradicted", 0.25), ("max_over_mean", "contradicted", 0.25),
        ("jain_index", "contradicted", 0.25),
    ]  # fmt: skip
    assert reproduced.figures[1].ratio == pytest.approx(0.2)
    assert reproduced.claims == {"reproduced": 1}


def test_a_figure_of_all_trials_together_is_judged_too(tmp_path: Path) -> None:
    """Five trials of 20 requests have a p99 together only."""
    p99 = Published(variant="one", request_class="light", metric="overhead", stats={"p99": 20})
    folder = measured(tmp_path, published=[p99])

    assert [(figure.stat, figure.pooled) for figure in read_reproduced(folder).figures] == [("p99", True)]


def test_the_picture_says_how_many_figures_agree_on_which_machine(reproduced: Reproduced) -> None:
    said = "1 of 5 measured figures agree with the articles, 4 contradict them: a processor, 2 cores"

    assert said in (ratio_picture([reproduced]) or "")
    assert ratio_picture([reproduced.model_copy(update={"figures": []})]) is None


BLOCK = "# made-up\n\n<!-- generated: results of made-up -->\n\n<!-- end -->\n\nWhy it is so.\n"


def test_a_run_is_put_into_the_reference_and_into_the_page_of_its_experiment(
    made_up: Path, reproduced: Reproduced, tmp_path: Path
) -> None:
    """Other experiments stay in the reference, and words of the page outside of the block stay as they are."""
    page = tmp_path / "made-up.md"
    other = reproduced.model_copy(update={"experiment": "other"})
    write_reproduction(tmp_path / "reference.json", Reproduction(experiments=[other]))
    page.write_text(BLOCK)

    assert keep_for_page(made_up, tmp_path / "reference.json") == page
    text = page.read_text()
    kept = {each.experiment: each for each in read_reproduction(tmp_path / "reference.json").experiments}

    assert "Measured on 2026-01-02, 5 trials of each variant, on a processor, 2 cores" in text
    assert "| reproduced | It is so | p50 10.5 ms (10.5 to 10.5) | \\<= 20 ms |" in text
    assert text.endswith("<!-- end -->\n\nWhy it is so.\n")
    assert [*kept] == ["other", "made-up"]
    assert kept["made-up"].shown
    assert with_block(text, "results of made-up", kept["made-up"].shown.lines()) == text


def test_a_page_that_was_never_measured_has_two_lines_for_its_results() -> None:
    page = "Why.\n\n<!-- generated: results of made-up -->\n<!-- end -->\n"
    [before, after] = page.splitlines()[2:]

    assert with_block(page, "results of made-up", ["A table."]) == f"Why.\n\n{before}\nA table.\n\n{after}\n"


def test_tables_of_further_runs_stay_on_the_page_when_a_newer_run_comes(
    made_up: Path, reproduced: Reproduced, tmp_path: Path
) -> None:
    assert reproduced.shown
    longer = ShownTable(title="Twenty trials", head=["variant", "p99"], rows=[["one", "8582"]])
    shown = reproduced.shown.model_copy(update={"tables": [], "further": [longer]})
    kept = reproduced.model_copy(update={"shown": shown})
    write_reproduction(tmp_path / "reference.json", Reproduction(experiments=[kept]))
    (tmp_path / "made-up.md").write_text(BLOCK)

    text = keep_for_page(made_up, tmp_path / "reference.json").read_text()

    assert text.index("| reproduced | It is so |") < text.index("| one | 8582 |")


def test_a_page_without_a_block_is_refused_and_nothing_is_written(made_up: Path, tmp_path: Path) -> None:
    write_reproduction(tmp_path / "reference.json", Reproduction(experiments=[]))
    (tmp_path / "made-up.md").write_text("# made-up\n")

    with pytest.raises(WrongUse, match=r"made-up\.md has no block for results") as caught:
        keep_for_page(made_up, tmp_path / "reference.json")

    assert "<!-- generated: results of made-up -->" in str(caught.value.hint)
    assert read_reproduction(tmp_path / "reference.json").experiments == []


@pytest.mark.parametrize(
    "changed",
    [{"outcome": "interrupted"}, {"method": METHOD - 1}, {"command": "make experiment NAME=made-up DURATION=5s"},
     {"times": 4}, {"names": ["other"], "published": [], "claims": []}],
    ids=["interrupted", "another method", "another duration", "too few trials", "other variants"],
)  # fmt: skip
def test_only_a_whole_default_run_counts(made_up: Path, tmp_path: Path, changed: dict[str, Any]) -> None:
    shutil.copytree(made_up.parents[1], tmp_path, dirs_exist_ok=True)
    whole = tmp_path / made_up.relative_to(made_up.parents[1])
    assert default_run(tmp_path, "made-up", ["one"], 5) == whole

    measured(tmp_path, time="20260102T000000Z", **changed)

    assert default_run(tmp_path, "made-up", ["one"], 5) == whole


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let there be three experiments, and return the names of those that are measured."""
    monkeypatch.setattr(measuring, "names", lambda: ["heavy-mix", "one-gpu", "ten-at-once"])
    asked: list[str] = []
    monkeypatch.setattr(measuring, "measure", lambda request, *_, **__: asked.append(request.name))
    return asked


def measured_whole(results: Path, name: str) -> None:
    """Write a run of all variants of an experiment of the lab, with a published figure of the first."""
    variants = list(load_experiment(name).variants)
    figure = Published(variant=variants[0], request_class="light", metric="overhead", stats={"p50": 10.5})
    measured(results, name, names=variants, published=[figure], claims=[])


def test_what_was_measured_is_not_measured_again_unless_asked(tmp_path: Path, three: list[str]) -> None:
    measured_whole(tmp_path, "ten-at-once")

    measuring.reproduce(fresh=False, show=False, results=tmp_path)
    rest = three.copy()
    measuring.reproduce(fresh=False, show=True, results=tmp_path)
    measuring.reproduce(fresh=True, show=False, results=tmp_path)

    assert sorted(rest) == ["heavy-mix", "one-gpu"]
    assert sorted(three[2:]) == ["heavy-mix", "one-gpu", "ten-at-once"]
    assert three[2] == "ten-at-once", "the shortest first"


@pytest.mark.usefixtures("three")
def test_what_the_runs_say_is_kept_as_a_file_and_a_picture(tmp_path: Path) -> None:
    measured_whole(tmp_path, "ten-at-once")

    measuring.reproduce(fresh=False, show=True, results=tmp_path)

    [kept] = read_reproduction(tmp_path / "reproduce.json").experiments
    assert (kept.experiment, len(kept.figures)) == ("ten-at-once", 1)
    picture = (tmp_path / "reproduce.svg").read_text()
    assert "1 of 1 measured figures agree with the articles: a processor, 2 cores" in picture


def test_an_interrupt_ends_the_whole_reproduction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, three: list[str]
) -> None:
    """An experiment whose results are invalid does not. What was measured before the interrupt is written."""

    def measure(request: RunRequest, *_: Any, **__: Any) -> None:
        three.append(request.name)
        if len(three) < 2:
            measured_whole(tmp_path, request.name)
        raise typer.Exit(1 if len(three) < 2 else 130)

    monkeypatch.setattr(measuring, "measure", measure)

    with pytest.raises(typer.Exit) as stopped:
        measuring.reproduce(fresh=True, show=False, results=tmp_path)

    assert stopped.value.exit_code == 130
    assert len(three) == 2
    assert [one.experiment for one in read_reproduction(tmp_path / "reproduce.json").experiments] == three[:1]
    assert (tmp_path / "reproduce.svg").exists()


@pytest.mark.usefixtures("three")
def test_invalid_results_are_named_at_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(request: RunRequest, *_: Any, **__: Any) -> None:
        if request.name == "heavy-mix":
            raise typer.Exit(1)

    monkeypatch.setattr(measuring, "measure", measure)

    with pytest.raises(typer.Exit) as stopped:
        measuring.reproduce(fresh=False, show=False, results=tmp_path)

    assert stopped.value.exit_code == 1
    said = capsys.readouterr().err
    assert "3 experiments to measure, about " in said
    assert "The results of heavy-mix are invalid; the tables above say why." in said
    assert f"0 of 3 experiments are in {tmp_path / 'reproduce.json'}." in said
    assert not (tmp_path / "reproduce.svg").exists(), "nothing that was published was measured"

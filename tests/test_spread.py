"""How tables, reports and pictures show the spread of a value: intervals from three trials on, else the trials."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from analysis.pipeline import derive
from analysis.records.claims import Claim, Quantity
from analysis.records.folder import read_run
from analysis.records.summary import Summary
from analysis.report.markdown import markdown
from analysis.report.tables.quantities import quantity_tables
from analysis.report.terminal import print_tables
from analysis.statistics.stopping import has_interval
from tests.synthetic import Request, make_run, make_trial

P99 = Quantity(variant="one", request_class="light", metric="overhead", stat="p99")


def slow(overhead_ms: float) -> list[Request]:
    """Return a hundred requests, of which one in fifty waits."""
    return [Request(overhead_ms=overhead_ms if number % 50 == 0 else 1, sent_s=number) for number in range(100)]


def told(tmp_path: Path, *waits_ms: float) -> tuple[Summary, dict[str, str]]:
    """Return the summary of a run with a trial for each wait, and what the terminal, Markdown and the report say."""
    claim = Claim(says="it waits", value=P99, at_least=1)
    run = make_run(tmp_path, {"one": slow(waits_ms[0])}, claims=[claim], trials=len(waits_ms))
    for number, wait_ms in enumerate(waits_ms, start=1):
        make_trial(run, "one", number, slow(wait_ms))
    summary = derive(run)
    console = Console(width=80, record=True, file=io.StringIO())
    print_tables(console, read_run(run), summary)
    page = (run / "report.html").read_text(encoding="utf-8")
    tables = page[page.index('<h2 id="verdicts">') : page.index('<h2 id="figures">')]
    return summary, {
        "terminal": console.export_text(), "Markdown": markdown(read_run(run), summary),
        "report": tables + page[page.index('<h2 id="figures-in-numbers">') : page.index('<h2 id="variants">')],
    }  # fmt: skip


def words_of(summary: Summary, tmp_path: Path) -> list[str]:
    """Return the first words of the lines below the measured line of the overhead."""
    return [row[1] for row in next(quantity_tables(read_run(tmp_path), summary)).rows]


def test_two_trials_have_a_line_each_and_no_interval(tmp_path: Path) -> None:
    summary, said = told(tmp_path, 142, 3219)

    assert words_of(summary, tmp_path) == ["measured", "trial 1", "trial 2"]
    [row] = [one for one in summary.rows if (one.metric, one.stat) == ("overhead", "p99") and one.request_class]
    assert row.high is not None
    assert row.high > 100_000  # what was computed stays in summary.json
    for where, text in said.items():
        assert not re.search(r"\d{6}", re.sub(r"20\d{6}T?", "", text)), where
        assert "142 and 3219" in text, where  # the claim


def test_a_single_trial_has_only_its_value(tmp_path: Path) -> None:
    summary, _ = told(tmp_path, 142)

    assert words_of(summary, tmp_path) == ["measured"]


def test_three_trials_have_an_interval(tmp_path: Path) -> None:
    summary, said = told(tmp_path, 142, 150, 160)

    assert words_of(summary, tmp_path) == ["measured", "low", "high"]
    assert all(re.search(r"\d to \d{4}", text) for text in said.values())


def test_three_trials_that_differ_a_thousandfold_have_no_interval(tmp_path: Path) -> None:
    summary, _ = told(tmp_path, 4, 90, 9000)

    table = next(quantity_tables(read_run(tmp_path), summary))
    p99 = [(row[1], row[table.head.index("p99")]) for row in table.rows]
    assert [value for word, value in p99 if word in ("low", "high")] in ([], ["–", "–"])
    trials = [float(value) for word, value in p99 if word.startswith("trial")]
    assert trials == pytest.approx([4, 90, 9000], rel=0.1)


@pytest.mark.parametrize(
    ("values", "low", "high", "shown"),
    [
        ([1, 2], 0.5, 4, False), ([1, 2, 3], 0.5, 4, True), ([1, 2, 3], 0.5, 301, False), ([1, 2, 3], 0.009, 4, False),
        ([0, 0, 0], 0, 0.01, True), ([1, 2, 3], None, None, False),
    ],
)  # fmt: skip
def test_an_interval_is_shown_if_it_tells_something(
    values: list[float], low: float | None, high: float | None, shown: bool
) -> None:
    assert has_interval(values, low, high) == shown

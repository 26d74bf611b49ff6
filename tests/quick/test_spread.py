"""How tables, reports and pictures show the spread of a value: intervals from three trials on, else the trials."""

import io
import re
from collections.abc import Sequence
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


def cells(summary: Summary, run: Path) -> dict[str, str]:
    """Return what the measured line of the overhead has for each statistic."""
    table = next(quantity_tables(read_run(run), summary))
    return {name: cell for row in table.rows if "measured" in row for name, cell in zip(table.head, row, strict=True)}


@pytest.mark.parametrize(
    ("waits_ms", "p50", "p99"),
    [
        ((142,), "1.0", "142"),
        ((142, 3219), "1.0", "142 and 3219"),
        ((142, 150, 160), "1.0", "150\n3.8 to 5928"),
        ((4, 90, 9000), "1.0", "4.0, 90.0 and 9000"),
    ],
)
def test_a_cell_has_the_interval_or_the_trials_and_equal_numbers_once(
    tmp_path: Path, waits_ms: Sequence[float], p50: str, p99: str
) -> None:
    """One trial has its value, two have theirs, and three that differ a thousandfold have no interval that tells."""
    summary, _ = told(tmp_path, *waits_ms)

    found = cells(summary, tmp_path)

    assert (found["p50"], found["p99"]) == (p50, p99)
    assert "" in found  # one line of kind measured, and none of another kind
    assert len(next(quantity_tables(read_run(tmp_path), summary)).rows) == 1


def test_two_trials_have_no_interval(tmp_path: Path) -> None:
    summary, said = told(tmp_path, 142, 3219)

    [row] = [one for one in summary.rows if (one.metric, one.stat) == ("overhead", "p99") and one.request_class]
    assert row.high is not None
    assert row.high > 100_000  # what was computed stays in summary.json
    for where, text in said.items():
        assert not re.search(r"\d{6}", re.sub(r"20\d{6}T?", "", text)), where
        assert text.count("142 and 3219") == 2, where  # the figure and the claim


def test_three_trials_have_an_interval_in_the_cell_of_the_value(tmp_path: Path) -> None:
    """A terminal has it below the value, Markdown and the report beside it."""
    _, said = told(tmp_path, 142, 150, 160)

    assert "| one | measured | 1.0 | 1.0 | 1.0 | 150 (3.8 to 5928) | 300 |" in said["Markdown"]
    assert "<td>150 <small>(3.8 to 5928)</small></td>" in said["report"]
    lines = [line.split() for line in said["terminal"].splitlines()]
    assert lines[lines.index(["one", "measured", "1.0", "1.0", "1.0", "150", "300"]) + 1] == ["3.8", "to", "5928"]


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

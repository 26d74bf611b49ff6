"""How tables, reports and pictures show the spread of a value: intervals from three trials on, else the trials."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from stampede.evaluate.statistics.stopping import has_interval
from stampede.records.claims import Claim, Quantity
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.markdown import markdown
from stampede.report.tables.quantities import quantity_tables
from tests.in_memory import conclude, page_of, printed, values_of
from tests.synthetic import run_record

P99 = Quantity(variant="one", request_class="light", metric="overhead", stat="p99")


def told(tmp_path: Path, *waits_ms: float) -> tuple[Run, Summary, dict[str, str]]:
    """Return a run in whose trials one request in fifty waits, its results, and what the lab says of them."""
    run = run_record(["one"], len(waits_ms), claims=[Claim(says="it waits", value=P99, at_least=1)])
    values = [values_of(n, min=1, p50=1, p90=1, p99=wait_ms) for n, wait_ms in enumerate(waits_ms, start=1)]
    summary = conclude(run, {("one", "mix", "light"): values})
    page = page_of(tmp_path, run, summary)
    tables = page[page.index('<h2 id="verdicts">') : page.index('<h2 id="figures">')]
    return run, summary, {
        "terminal": printed(run, summary), "Markdown": markdown(run, summary),
        "report": tables + page[page.index('<h2 id="figures-in-numbers">') : page.index('<h2 id="variants">')],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("waits_ms", "p50", "p99"),
    [
        ((142,), "1.0", "142"),
        ((142, 3219), "1.0", "142 and 3219"),
        ((142, 150, 160), "1.0", "150\n130 to 175"),
        ((4, 90, 9000), "1.0", "4.0, 90.0 and 9000"),
    ],
)
def test_a_cell_has_the_interval_or_the_trials_and_equal_numbers_once(
    tmp_path: Path, waits_ms: Sequence[float], p50: str, p99: str
) -> None:
    """One trial has its value, two have theirs, and three that differ a thousandfold have no interval that tells."""
    run, summary, _ = told(tmp_path, *waits_ms)

    table = next(quantity_tables(run, summary))

    [row] = table.rows  # one line of kind measured, and none of another kind
    found = dict(zip(table.head, row, strict=True))
    assert (found["p50"], found["p99"], found[""]) == (p50, p99, "measured")


def test_two_trials_have_no_interval(tmp_path: Path) -> None:
    _, summary, said = told(tmp_path, 142, 3219)

    [row] = [one for one in summary.rows if (one.metric, one.stat) == ("overhead", "p99") and one.request_class]
    assert row.high is not None
    assert row.high > 100_000  # what was computed stays in summary.json
    for where, text in said.items():
        assert not re.search(r"\d{6}", re.sub(r"20\d{6}T?", "", text)), where
        assert text.count("142 and 3219") == 2, where  # the figure and the claim


def test_three_trials_have_an_interval_in_the_cell_of_the_value(tmp_path: Path) -> None:
    """A terminal has it below the value, Markdown and the report beside it."""
    *_, said = told(tmp_path, 142, 150, 160)

    assert "| one | measured | 1.0 | 1.0 | 1.0 | 150 (130 to 175) | 300 |" in said["Markdown"]
    assert "<td>150 <small>(130 to 175)</small></td>" in said["report"]
    lines = [line.split() for line in said["terminal"].splitlines()]
    assert lines[lines.index(["one", "measured", "1.0", "1.0", "150", "300"]) + 1] == ["130", "to", "175"]


def test_an_interval_is_shown_if_it_tells_something() -> None:
    told = [([1, 2, 3], 0.5, 4), ([0, 0, 0], 0, 0.01)]
    says_nothing = [([1, 2], 0.5, 4), ([1, 2, 3], 0.5, 301), ([1, 2, 3], 0.009, 4), ([1, 2, 3], None, None)]

    assert [has_interval(*each) for each in (*told, *says_nothing)] == [True] * 2 + [False] * 4

"""evaluate.statistics.compare: differences that are more than chance are named, and other differences are not."""

import io
import random
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stampede.evaluate.metrics import unit
from stampede.evaluate.statistics.compare import (
    Change,
    Side,
    changes,
    obstacles,
    parse_side,
    suspect_sides,
    welch,
    what_differs,
)
from stampede.evaluate.statistics.estimates import Cells
from stampede.paths import ROOT
from stampede.pipeline import derive_summary
from stampede.records.folder import read_run
from stampede.records.run import LoadRecord, Run
from stampede.records.summary import Estimate, Summary
from stampede.report.tables.comparison import comparison_answer, comparison_tables
from stampede.report.terminal import terminal_table
from tests.synthetic import Request, make_run
from tools.study import read

FEW = [Request(overhead_ms=n) for n in range(1, 21)]
STUDY = ROOT / "docs" / "experiments" / "heavy-mix-study.json.gz"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """Return one side: a run of two trials of the variants ``one`` and ``two``."""
    folder = make_run(tmp_path_factory.mktemp("run"), {"one": FEW, "two": FEW}, times=2)
    return Side("a", read_run(folder), derive_summary(folder))


def other_than(one: Side, **changed: Any) -> Side:
    """Return the other side: the same, but for what is changed in its record."""
    return Side("b", one.run.model_copy(update=changed), one.summary)


def a_load(**changed: Any) -> list[LoadRecord]:
    """Return the load ``mix``, a little changed."""
    return [LoadRecord(**({"name": "mix", "script": "mix.js", "duration": "60s", "settings": {"VUS": "1"}} | changed))]


def test_equal_runs_differ_in_nothing(one: Side) -> None:
    other = other_than(one)

    assert list(obstacles(one, other)) == []
    assert list(what_differs(one, other)) == []
    found = changes(one, other)
    assert {difference.variant for difference in found} == {"one", "two"}
    assert {difference.verdict for difference in found} == {"~"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"loads": a_load(loop="open")}, "mix is a closed loop in a and an open loop in b"),
        ({"loads": a_load(script="users.js")}, "mix is sent by mix.js in a and by users.js in b"),
        (
            {"loads": a_load(settings={"VUS": "1", "CPU": "burn"})},
            "requests of mix compute in another way: CPU=no in a, CPU=burn in b",
        ),
        ({"method": 7}, "a was measured by method 1 and b by method 7 (see Method in CHANGELOG.md)"),
        ({"loads": a_load(name="rush")}, "a and b have no variant and load in common"),
        ({"variants": []}, "a and b have no variant and load in common"),
    ],
    ids=["loop", "script", "processor", "method", "load", "variants"],
)
def test_what_cannot_be_compared_is_said(one: Side, changed: dict[str, Any], reason: str) -> None:
    assert list(obstacles(one, other_than(one, **changed))) == [reason]


def judged_otherwise(one: Side, *trials: tuple[str, int], verdict: str = "invalid", reason: str = "") -> Side:
    """Return the other side, some trials of which have another verdict."""
    found = [
        trial.model_copy(update={"verdict": verdict, "reasons": [reason]} if trial.key[::2] in trials else {})
        for trial in one.summary.trials
    ]
    return Side("b", one.run, one.summary.model_copy(update={"trials": found}))


FEW_TRUSTED = "b has fewer than two trusted trials, and one trial does not show how far trials differ"


@pytest.mark.parametrize(
    ("invalid", "variant", "reasons"),
    [
        ([("one", 2)], None, ["1 of 4 trials of b are invalid"]),
        ([("one", 2), ("two", 2)], None, [FEW_TRUSTED]),
        ([("two", 1), ("two", 2)], "two", [FEW_TRUSTED]),
        ([("two", 1), ("two", 2)], "one", []),
    ],
    ids=["one", "too many", "all of the variant", "of a variant that is not compared"],
)
def test_trials_that_cannot_be_trusted_are_an_obstacle(
    one: Side, invalid: list[tuple[str, int]], variant: str | None, reasons: list[str]
) -> None:
    other = judged_otherwise(one, *invalid)._replace(variant=variant)

    assert list(obstacles(one._replace(variant=variant), other)) == reasons


def test_a_variant_that_only_one_run_has_cannot_be_compared(one: Side) -> None:
    first, other = one._replace(variant="one"), other_than(one, variants=one.run.variants[1:])

    assert list(obstacles(first, other)) == ["a and b have no variant and load in common"]
    assert changes(first, other) == []


def test_what_else_differs_is_listed_once(one: Side) -> None:
    other = other_than(one, loads=a_load(duration="20s", settings={"VUS": "4"}), jobs=3)

    assert list(what_differs(one, other)) == [
        ("side by side", "1", "3"), ("mix: duration", "60s", "20s"), ("mix: VUS", "1", "4"),
    ]  # fmt: skip


def test_a_capacity_that_a_table_shows_widens_no_interval(one: Side) -> None:
    told = {"metric": "capacity", "stat": "per_second", "request_class": None, "unit": "visits/s"}
    more = one.summary.model_copy(update={"rows": [*one.summary.rows, one.summary.rows[0].model_copy(update=told)]})
    other = other_than(one)

    assert changes(Side("a", one.run, more), Side("b", other.run, more)) == changes(one, other)


def test_two_variants_of_a_run_are_compared_under_their_names(one: Side) -> None:
    assert {each.variant for each in changes(one._replace(variant="one"), one._replace(variant="two"))} == {"one | two"}


def test_a_side_is_a_folder_and_perhaps_a_variant(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()

    assert parse_side(f"{tmp_path}/a:b") == (tmp_path / "a:b", None)
    assert parse_side(f"{tmp_path}/a:b:one") == (tmp_path / "a:b", "one")
    assert parse_side("latest") == (Path("latest"), None)


def test_the_error_of_a_difference_comes_from_both_sides() -> None:
    """Variances 1 and 4 of three values each: sqrt(5/3), and 25/9 over 1/18 + 16/18 degrees of freedom."""
    assert welch([1, 2, 3], [2, 4, 6]) == pytest.approx(((5 / 3) ** 0.5, 50 / 17))
    assert welch([1, 1], [1, 1, 1]) == (0, 1)


def drawn(run: Run, cells: Cells, variant: str, trials: list[int], times: float = 1) -> Side:
    """Return a side of these trials of a variant; ``times`` multiplies its times and divides its throughput."""
    rows = []
    for (name, _, request_class), measured in cells.items():
        if name != variant or request_class is None:
            continue
        chosen = [one for one in measured if one.trial in trials]
        for metric, stat in chosen[0].draws if chosen else ():
            factor = {"overhead": times, "throughput": 1 / times}.get(metric, 1)
            values = {
                one.trial: one.draws[metric, stat].value * factor for one in chosen if (metric, stat) in one.draws
            }
            rows.append(Estimate(
                variant="it", load="heavy-mix", request_class=request_class, metric=metric, stat=stat, published=None,
                unit=unit(metric, stat), predicted=None, measured=1, low=None, high=None, n=1, trials=len(values),
                values=values,
            ))  # fmt: skip
    known = run.model_copy(update={"variants": [run.variant(variant).model_copy(update={"name": "it"})]})
    return Side("drawn", known, Summary.of_nothing("drawn").model_copy(update={"rows": rows}))


def compared(seed: int, times: float) -> list[list[Change]]:
    """Compare five trials of a variant of heavy-mix with five other trials of it, a hundred times."""
    run, windows = read(STUDY)
    cells = windows[20]
    chance = random.Random(seed)
    found = []
    for _ in range(100):
        variant = chance.choice([one.name for one in run.variants])
        trials = chance.sample(range(1, run.trials + 1), 10)
        one, other = drawn(run, cells, variant, trials[:5]), drawn(run, cells, variant, trials[5:], times)
        found.append(changes(one, other))
    return found


def test_of_a_hundred_comparisons_of_the_same_at_most_five_name_a_difference() -> None:
    every = compared(1, 1)

    assert all(len(found) >= 8 for found in every)
    assert sum(any(one.verdict != "~" for one in found) for found in every) <= 5


def test_a_doubling_is_found_in_at_least_95_of_a_hundred_comparisons() -> None:
    """All times are doubled and throughput is halved; how much a variant's trials vary decides which rows show it."""
    found = [{(one.metric, one.verdict) for one in every if one.verdict != "~"} for every in compared(2, 2)]

    assert sum(bool(named) for named in found) >= 95
    assert set.union(*found) <= {("overhead", "higher"), ("throughput", "lower")}


def shown(*found: Change) -> str:
    """Return a comparison as it is printed."""
    console = Console(width=80, record=True, file=io.StringIO())
    for table in comparison_tables(found, []):
        console.print(terminal_table(table))
    return console.export_text()


def a_difference(of_a: list[float], of_b: list[float]) -> Change:
    """Return a difference of p99 whose interval reaches far."""
    return Change(
        "one", "mix", "light", "overhead", "p99", "ms", of_a[0], of_b[0], False, 0.001, 1000, 1000, "~", of_a, of_b
    )  # fmt: skip


def test_two_trials_of_a_side_show_their_values_and_no_interval() -> None:
    said = shown(a_difference([142, 219], [31.5, 61.5]))
    assert re.search(r"142; 219 +31\.5; 61\.5 +– +– +~", said)
    assert "×1000" not in said

    assert "÷1000+ to ×1000+" in shown(a_difference([142, 219, 150], [31, 61, 40]))


def test_a_comparison_says_first_what_changes_most(one: Side) -> None:
    small = a_difference([3.0] * 3, [2.0] * 3)._replace(low=0.5, high=0.9, verdict="lower")
    large = small._replace(stat="p90", a=1355, b=4.1, low=0.001, high=0.004)
    said = comparison_answer(one._replace(variant="queue"), one._replace(variant="cure"), [small, large])
    assert said == (
        "Overhead of light requests p90: 1355 ms in queue, 4.1 ms in cure: ÷250 to ÷1000+. "
        "2 of 2 measured values differ by more than chance."
    )
    assert "No measured value differs" in comparison_answer(one, one, [small._replace(verdict="~")])


def test_suspect_trials_of_a_side_are_named(one: Side) -> None:
    why = "the machine was 95% busy during the load"

    assert list(suspect_sides(one, judged_otherwise(one, ("one", 1), verdict="suspect", reason=why))) == [
        f"1 of 4 trials of b is suspect: {why}"
    ]

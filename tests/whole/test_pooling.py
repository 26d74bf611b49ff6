"""Percentiles of all trials together, where single trials have too few requests: their values, intervals and words."""

import io
from collections.abc import Callable, Sequence
from math import e, exp, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from stampede.evaluate.statistics.pooling import _percentiles_of_resamples, _resamples, pooled_percentile
from stampede.pipeline import derive, derive_summary
from stampede.records.checksums import seal
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import read_run
from stampede.records.summary import Estimate, Summary
from stampede.report.markdown import markdown
from stampede.report.screen import LINES, screen_lines
from stampede.report.spread import POOLED
from stampede.report.terminal import print_tables
from stampede.report.wording import figures_phrase
from stampede.verification import verify_run
from tests.synthetic import Request, make_run, make_trial, visit
from tools.study import pooled_table

P99 = Quantity(variant="one", request_class="light", metric="overhead", stat="p99")


def made(folder: Path, trials: Sequence[Sequence[Request]], claims: Sequence[Claim] = (), **changed: Any) -> Path:
    """Write a run with these trials of a variant, and return the run's folder."""
    make_run(folder, {"one": [*trials[0]]}, claims=claims, trials=len(trials), **changed)
    for number, requests in enumerate(trials, start=1):
        make_trial(folder, "one", number, requests)
    return folder


def dealt(count: int, trials: int = 3) -> list[list[Request]]:
    """Return requests that lose 1, 2, … ms, dealt to trials in turns."""
    return [[Request(overhead_ms=n, sent_s=n / 10) for n in range(first, count + 1, trials)]
            for first in range(1, trials + 1)]  # fmt: skip


def row(summary: Summary, stat: str, request_class: str | None = "light", metric: str = "overhead") -> Estimate | None:
    """Return the row of a statistic of the only variant."""
    return summary.row("one", "mix", request_class, metric, stat)


def test_a_percentile_that_single_trials_cannot_carry_is_that_of_all_their_requests(tmp_path: Path) -> None:
    """Of 1, 2, … 101 ms in three trials, one in a hundred is larger than 100 ms; no trial has 100 requests."""
    found = row(derive_summary(made(tmp_path, dealt(101))), "p99")

    assert found
    assert (found.measured, found.pooled, found.n, found.trials, found.values) == (100, True, 101, 3, {})
    assert found.median is None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 100 < found.high


def test_what_single_trials_carry_stays_the_median_over_trials(tmp_path: Path) -> None:
    summary = derive_summary(made(tmp_path, dealt(101)))

    found = row(summary, "p90")
    assert found
    assert (found.pooled, found.measured, len(found.values)) == (False, found.values[1], 3)
    assert '"pooled": false' not in (tmp_path / "summary.json").read_text()


@pytest.mark.parametrize(("requests", "stat"), [(99, "p99"), (101, "p99.9")])
def test_what_all_trials_together_cannot_carry_is_absent(tmp_path: Path, requests: int, stat: str) -> None:
    assert row(derive_summary(made(tmp_path, dealt(requests))), stat) is None


def test_two_trials_are_not_pooled(tmp_path: Path) -> None:
    assert row(derive_summary(made(tmp_path, dealt(180, trials=2))), "p99") is None


def test_an_invalid_trial_is_left_out(tmp_path: Path) -> None:
    """The clock of the fourth trial was set, so its slow requests do not count."""
    run = made(tmp_path, [*dealt(101), [Request(overhead_ms=9000)] * 50])
    make_trial(run, "one", 4, [Request(overhead_ms=9000)] * 50, clock_step_s=1.0)

    found = row(derive_summary(run), "p99")

    assert found
    assert (found.measured, found.n, found.trials) == (100, 101, 3)


@pytest.mark.parametrize(("failed", "is_there"), [(1, True), (2, False)])
def test_failures_count_against_all_trials_together(tmp_path: Path, failed: int, is_there: bool) -> None:
    """If 1 % of the requests of all trials or more failed, these might have been the slowest."""
    first, *others = dealt(150)
    first[:failed] = [Request(error="refused", sent_s=n) for n in range(failed)]

    found = row(derive_summary(made(tmp_path, [first, *others])), "p99")

    assert (found is not None) == is_there
    if found:
        assert found.n == 149


def test_times_of_visits_are_pooled(tmp_path: Path) -> None:
    """Of 120 visits in three trials, the p99 lies at place 117.81 of the sorted times."""
    trials = [[request for n in range(first, 121, 3) for request in visit(str(n), n, took_ms=(n, 0, 0))]
              for first in (1, 2, 3)]  # fmt: skip

    found = row(derive_summary(made(tmp_path, trials)), "p99", None, "visit")

    assert found
    assert (found.pooled, found.n, found.trials) == (True, 120, 3)
    assert found.measured == pytest.approx(118.81 + 3 * 0.15, abs=0.5)


def test_the_interval_is_students_with_the_error_of_whole_trials() -> None:
    """By hand: each time of three trials is 1, e or e². A resample's p99 is that of its slowest trial.

    Its logarithm is 0, 1 or 2 in 1, 7 and 19 of 27 resamples, with a variance of 8/27. Student's t is 4.303.
    """
    value, ends = pooled_percentile([np.full(40, e**power) for power in (0, 1, 2)], 0.99)

    factor = exp(4.303 * sqrt(3 / 2) * sqrt(8 / 27))
    assert value == pytest.approx(e**2)
    assert ends == pytest.approx((e**2 / factor, e**2 * factor), rel=0.1)


def test_a_resample_has_the_percentile_of_its_requests() -> None:
    """All that resamples share is where the slow requests are; a tie between trials changes nothing."""
    times = [np.array([1.0, 1.0, 2.0, 5.0]), np.array([1.0, 2.0, 2.0]), np.array([])]

    value, (low, high) = pooled_percentile(times, 0.5)

    assert value == np.median(np.concatenate(times)) == 2
    assert 0 < low < 2 < high


@pytest.mark.parametrize("level", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("lengths", [(40, 40, 40), (1, 0, 7), (99, 5, 30, 2)])
def test_resamples_are_exactly_what_numpy_makes_of_them(lengths: tuple[int, ...], level: float) -> None:
    """A resample of no times is left out, and the others keep their counts."""
    chance = np.random.default_rng(sum(lengths))
    times = [chance.exponential(100, length).round(place) for place, length in enumerate(lengths)]
    drawn, counts = _resamples(len(times))
    laid_out = [np.concatenate([*map(np.tile, times, row)]) for row in drawn]

    found, kept = _percentiles_of_resamples(times, level)

    assert found.tolist() == [np.quantile(one, level) for one in laid_out if one.size]
    assert kept.tolist() == [count for one, count in zip(laid_out, counts, strict=True) if one.size]


def test_times_that_may_be_zero_have_an_interval_that_does_not_reach_below_zero() -> None:
    value, (low, high) = pooled_percentile([np.array([0.0, 0.0]), np.array([0.0, 8.0]), np.array([8.0, 0.0])], 0.5)

    assert (value, low) == (0, 0)
    assert high > 0


def test_the_same_trials_give_the_same_interval_and_their_order_does_not_matter_much() -> None:
    times = [np.random.default_rng(seed).exponential(100, 40) for seed in range(5)]

    first, again, turned = (pooled_percentile(some, 0.99) for some in (times, times, times[::-1]))

    assert first == again
    assert turned[0] == first[0]
    assert turned[1][0] == pytest.approx(first[1][0], rel=0.1)


def test_a_pooled_value_decides_no_claim_but_is_compared_with_the_published_figure(tmp_path: Path) -> None:
    """What even all trials together cannot carry was not measured in a short run."""
    published = [
        Published(variant="one", load="mix", request_class="light", metric="overhead", stats={"p99": 100, "p99.9": 100},
                  within=0.5)
    ]  # fmt: skip
    claims = [Claim(says="the tail is long", value=P99, at_least=1)]

    summary = derive_summary(made(tmp_path, dealt(101), claims, published=published))

    reason = "p99 needs 100 requests a trial; there were 34 at most"
    assert [(one.verdict, one.measured, one.reason) for one in summary.claims] == [("undecided", None, reason)]
    [p99, longest] = summary.published[0].figures
    pooled = row(summary, "p99")
    assert pooled
    assert (p99.measured, p99.interval, p99.trials, p99.pooled) == (100, (pooled.low, pooled.high), 3, True)
    assert (p99.verdict, longest.verdict) == ("reproduced", "not measured in a short run")
    assert figures_phrase(summary.published[0]) == "1 of 2 within 50 %; not measured in a short run: p99.9"


def test_a_percentile_that_is_pooled_is_not_said_to_be_missing(tmp_path: Path) -> None:
    reasons = derive_summary(made(tmp_path, dealt(101))).validity.reasons

    assert not [reason for reason in reasons if "p99" in reason]


def said_on_terminal(run: Path, summary: Summary) -> str:
    """Return what the terminal says with all tables."""
    console = Console(width=80, record=True, file=io.StringIO())
    print_tables(console, read_run(run), summary)
    return " ".join(console.export_text().split())


def said_in_report(run: Path, _: Summary) -> str:
    """Return report.html, without the space before the cells of tables."""
    return " ".join((run / "report.html").read_text(encoding="utf-8").split()).replace("> <", "><")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (said_on_terminal, "pooled – – 100 101"),
        (lambda run, summary: " ".join(markdown(read_run(run), summary).split()), "| pooled | – | – | – | 100 ("),
        (said_in_report, '<tr class="pooled"><td class="text">pooled</td>'),
    ],
)
def test_tables_mark_a_pooled_value_and_say_what_it_is(
    tmp_path: Path, said: Callable[[Path, Summary], str], line: str
) -> None:
    run = made(tmp_path, dealt(101))

    text = said(run, derive(run))

    assert line in text
    assert POOLED[1:] in text


def test_tables_without_a_pooled_value_do_not_explain_it(tmp_path: Path) -> None:
    run = made(tmp_path, dealt(303))

    assert "pooled" not in said_on_terminal(run, derive_summary(run))


def test_the_screen_marks_a_pooled_value(tmp_path: Path) -> None:
    run = made(
        tmp_path, dealt(101), [Claim(says="it is slow", value=P99.model_copy(update={"stat": "p90"}), at_least=1)]
    )

    lines = [
        line.plain
        for line in screen_lines(read_run(run), derive_summary(run), "report.html", "stampede report --tables")
    ]

    assert any(" 100*" in line for line in lines)
    assert any(line.startswith("* pooled over all trials") for line in lines)
    assert len(lines) <= LINES


def test_a_run_with_pooled_values_can_be_verified(tmp_path: Path) -> None:
    run = made(tmp_path, dealt(101))
    seal(run)
    derive(run)

    assert verify_run(run).differences == []


def test_the_study_tells_what_pooled_values_would_decide_and_how_often_falsely() -> None:
    """By hand: all requests lose 2 s, which is certain, at least 1 s, and far from the article's 10.55 s."""
    [_, _, line] = pooled_table("heavy-mix", {"shared-socket": [np.full(40, 2000.0)] * 5}, [3], runs=10)

    assert line == "| shared-socket | 2000 | 3 | 100% | 100.0% / 0.0% | 100.0% / 0.0% |"

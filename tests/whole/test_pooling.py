"""Percentiles of all trials together, where single trials have too few requests: their values, intervals and words."""

from collections.abc import Sequence
from math import e, exp, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stampede.evaluate.statistics import estimates
from stampede.evaluate.statistics.pooling import _percentiles_of_resamples, _resamples, pooled_percentile
from stampede.pipeline import derive, derive_summary
from stampede.records.checksums import seal
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import read_run
from stampede.records.summary import Estimate, Summary
from stampede.report.markdown import markdown
from stampede.report.screen import LINES, screen_lines
from stampede.report.spread import POOLED
from stampede.report.wording import figures_phrase
from stampede.verification import verify_run
from tests.in_memory import printed
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
    """Of 1, 2, … 101 ms in three trials, one in a hundred is larger than 100 ms; no trial has 100 requests.

    The clock of a fourth trial was set, so its slow requests do not count. What single trials carry stays the median.
    """
    run = made(tmp_path, [*dealt(101), [Request(overhead_ms=9000)] * 50])
    make_trial(run, "one", 4, [Request(overhead_ms=9000)] * 50, clock_step_s=1.0)
    summary = derive_summary(run)

    found, p90 = row(summary, "p99"), row(summary, "p90")
    assert found
    assert (found.measured, found.pooled, found.n, found.trials, found.values) == (100, True, 101, 3, {})
    assert found.median is None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 100 < found.high
    assert p90
    assert (p90.pooled, p90.measured, len(p90.values)) == (False, p90.values[1], 3)
    assert '"pooled": false' not in (tmp_path / "summary.json").read_text()
    assert not [reason for reason in summary.validity.reasons if "p99" in reason]


@pytest.mark.parametrize(
    ("requests", "trials", "stat"), [(99, 3, "p99"), (101, 3, "p99.9"), (180, 2, "p99")],
    ids=["too few", "too few for p99.9", "two trials"],
)  # fmt: skip
def test_what_all_trials_together_cannot_carry_is_absent(tmp_path: Path, requests: int, trials: int, stat: str) -> None:
    assert row(derive_summary(made(tmp_path, dealt(requests, trials))), stat) is None


def test_a_small_trial_is_not_pooled_with_one_whose_times_are_too_many_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [*dealt(101, 2), [Request(overhead_ms=n, sent_s=n) for n in range(99)]]
    kept = row(derive_summary(made(tmp_path / "kept", trials)), "p99")
    monkeypatch.setattr(estimates, "KEPT", 98)

    assert kept
    assert row(derive_summary(made(tmp_path / "not kept", trials)), "p99") is None


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


def test_tables_and_the_screen_mark_a_pooled_value_and_say_what_it_is(tmp_path: Path) -> None:
    of_p90 = Claim(says="it is slow", value=P99.model_copy(update={"stat": "p90"}), at_least=1)
    folder = made(tmp_path / "pooled", dealt(101), [of_p90])
    seal(folder)
    summary, run = derive(folder), read_run(folder)
    page = " ".join((folder / "report.html").read_text(encoding="utf-8").split()).replace("> <", "><")
    screen = [line.plain for line in screen_lines(run, summary, "report.html", "stampede report --tables")]

    said = {
        "pooled – – 100 101": " ".join(printed(run, summary).split()),
        "| pooled | – | – | – | 100 (": " ".join(markdown(run, summary).split()),
        '<tr class="pooled"><td class="text">pooled</td>': page,
    }
    for line, text in said.items():
        assert line in text
        assert POOLED[1:] in text
    assert any(" 100*" in line for line in screen)
    assert any(line.startswith("* pooled over all trials") for line in screen)
    assert len(screen) <= LINES
    assert verify_run(folder).differences == []
    others = made(tmp_path / "not pooled", dealt(303))
    assert "pooled" not in printed(read_run(others), derive_summary(others))


def test_the_study_tells_what_pooled_values_would_decide_and_how_often_falsely() -> None:
    """By hand: all requests lose 2 s, which is certain, at least 1 s, and far from the article's 10.55 s."""
    [_, _, line] = pooled_table("heavy-mix", {"shared-socket": [np.full(40, 2000.0)] * 5}, [3], runs=10)

    assert line == "| shared-socket | 2000 | 3 | 100% | 100.0% / 0.0% | 100.0% / 0.0% |"

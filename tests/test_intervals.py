"""analysis.intervals: known answers, and intervals that hold what they promise to hold."""

import random
from statistics import median

import pytest

from analysis import intervals


def test_the_interval_of_equal_values_is_a_point() -> None:
    assert intervals.of_medians([[4.0] * 5]) == [(4.0, 4.0)]


def test_two_trials_give_their_range() -> None:
    assert intervals.of_medians([[3.0, 9.0], [8.0, 2.0]]) == [(3.0, 9.0), (2.0, 8.0)]


def test_five_trials_give_their_range_because_three_of_five_draws_may_be_the_same() -> None:
    """P(median of a resample is the smallest) = P(at least 3 of 5 draws are it) = 181/3125, more than 2.5 %."""
    assert intervals.of_medians([[1.0, 2.0, 3.0, 4.0, 50.0]]) == [(1.0, 50.0)]


def test_many_trials_give_less_than_their_range() -> None:
    values = [float(n) for n in range(21)]

    [(low, high)] = intervals.of_medians([values])

    assert 0 < low < median(values) < high < 20


def test_the_same_values_give_the_same_interval() -> None:
    values = [[random.Random(n).random() for n in range(9)]]

    assert intervals.of_medians(values) == intervals.of_medians(values)


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    """Five draws from a skewed distribution, 400 times over: between 90 and 98 of a hundred hold its median."""
    draw = random.Random(3).lognormvariate
    rows = [[draw(0, 1) for _ in range(intervals.NOMINAL_FROM)] for _ in range(400)]

    held = [low <= 1 <= high for low, high in intervals.of_medians(rows)]

    assert 0.90 < sum(held) / len(held) < 0.98
    assert intervals.coverage(5) == 0.9375


def test_a_ratio_of_equal_trials_is_a_point() -> None:
    assert intervals.of_ratio([6.0, 6.0, 6.0], [3.0, 3.0]) == (2.0, 2.0)


def test_a_ratio_spans_what_both_sides_allow() -> None:
    assert intervals.of_ratio([4.0, 8.0], [1.0, 2.0]) == (2.0, 8.0)


def test_the_difference_of_a_thing_from_itself_spans_zero() -> None:
    low, high = intervals.of_difference([1.0, 2.0, 3.0], [1.5, 2.0, 2.5])

    assert low < 0 < high


@pytest.mark.parametrize(("trials", "share"), [(2, 0.5), (3, 0.75), (4, 0.875)])
def test_few_trials_promise_less(trials: int, share: float) -> None:
    assert share == intervals.coverage(trials)

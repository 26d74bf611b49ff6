"""stampede.evaluate.statistics.intervals: known answers, and intervals that hold what they promise to hold."""

import math
import random
from statistics import median

import numpy as np
import pytest

from stampede.evaluate.metrics import likely
from stampede.evaluate.metrics.likely import BLOCKS
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.intervals import Draw


def draws(*values: float) -> list[Draw]:
    """Return trials of which only the values are known."""
    return [Draw(value) for value in values]


def test_one_trial_alone_has_an_interval_only_if_its_likely_values_are_known() -> None:
    assert intervals.of_median(draws(4)) is None
    assert intervals.of_median([Draw(4, (3, 4, 6))]) == (3, 6)


@pytest.mark.parametrize("trials", [2, 3, 4, 5, 9])
def test_the_interval_of_equal_values_is_a_point(trials: int) -> None:
    assert intervals.of_median(draws(*[20.0] * trials)) == (20, 20)
    assert intervals.of_median(draws(*[0.0] * trials)) == (0, 0)


def test_two_to_four_trials_have_students_interval_of_the_logarithms() -> None:
    """By hand: the logarithms of 1, e and e² have the mean 1 and the standard deviation 1; t is 4.303.

    So have 0, 1 and 2 themselves, which may be zero. A count is never negative.
    """
    reach = 4.303 / math.sqrt(3)

    assert intervals.of_median(draws(1, math.e, math.e**2)) == pytest.approx((math.exp(1 - reach), math.exp(1 + reach)))
    assert intervals.of_median(draws(0, 1, 2)) == pytest.approx((0, 1 + reach))
    assert intervals.of_median(draws(-1, 0, 1)) == pytest.approx((-reach, reach))


def test_five_trials_give_their_range_because_three_of_five_draws_may_be_the_same() -> None:
    """P(median of a resample is the smallest) = P(at least 3 of 5 draws are it) = 181/3125, more than 2.5 %."""
    assert intervals.of_median(draws(1, 2, 3, 4, 50)) == (1, 50)


def test_many_trials_give_less_than_their_range() -> None:
    values = [float(n) for n in range(21)]

    found = intervals.of_median(draws(*values))

    assert found
    assert 0 < found[0] < median(values) < found[1] < 20


@pytest.mark.parametrize("trials", [2, 3, 5, 8])
def test_trials_that_are_unsure_of_themselves_make_the_interval_wider(trials: int) -> None:
    """Both sources of chance count: how far trials differ, and which requests fell into each."""
    values = [10.0 + place for place in range(trials)]
    sure = intervals.of_median(draws(*values))
    unsure = intervals.of_median([Draw(value, (value / 2, value, 2 * value)) for value in values])

    assert sure
    assert unsure
    assert unsure[0] < sure[0]
    assert sure[1] < unsure[1]


@pytest.mark.parametrize(("trials", "least"), [(2, 0.93), (3, 0.93), (5, 0.9), (8, 0.9)])
def test_the_interval_holds_the_true_median_about_as_often_as_it_says(trials: int, least: float) -> None:
    """Draws from a skewed distribution, 400 times over."""
    draw = random.Random(3).lognormvariate
    found = [intervals.of_median(draws(*(draw(0, 1) for _ in range(trials)))) for _ in range(400)]

    held = [low <= 1 <= high for low, high in filter(None, found)]

    assert least < sum(held) / 400 < 0.99


def test_a_ratio_has_the_interval_that_both_sides_allow() -> None:
    """By hand: the means of the logarithms differ by log 8, each with a variance of (log 2)² / 4; t is 12.706."""
    reach = 12.706 * math.log(2) / math.sqrt(2)
    many = intervals.of_ratio(draws(4, 5, 6, 7, 8), draws(1, 1, 1, 1, 2))

    assert intervals.of_ratio(draws(8, 16), draws(1, 2)) == pytest.approx((8 / math.exp(reach), 8 * math.exp(reach)))
    assert intervals.of_ratio(draws(6, 6, 6), draws(3, 3)) == pytest.approx((2, 2))
    assert many
    assert many[0] <= 4
    assert many[1] == 8
    assert intervals.of_ratio(draws(0, 0), draws(2, 2)) == (0, 0)
    for divisors in ([Draw(2)], draws(0, 2), [Draw(2, (0, 2)), Draw(2, (0, 2))]):
        assert intervals.of_ratio(draws(0, 1), divisors) is None


def test_a_trial_is_divided_into_blocks_of_equal_length() -> None:
    assert likely.blocks(np.array([5.0, 5.9, 14.0, 15.0])).tolist() == [0, 0, 9, BLOCKS - 1]
    assert likely.blocks(np.array([5.0, 5.0])).tolist() == [0, 0]
    assert likely.blocks(np.array([])).tolist() == []


def test_likely_percentiles_of_equal_blocks_are_the_percentile() -> None:
    """Every block has the same values, so the share below the median is the same in each."""
    values, block = np.tile([1.0, 2.0, 3.0, 4.0], BLOCKS), np.repeat(np.arange(BLOCKS), 4)

    [found] = likely.likely_percentiles(values, block, [0.5])

    assert set(found) == {2.5}


def test_likely_percentiles_know_that_slow_requests_come_together() -> None:
    """A hundred slow requests of a thousand, all at once or here and there: the same p95, but not as sure."""
    block = np.repeat(np.arange(BLOCKS), 100)
    together, scattered = np.where(np.arange(1000) < 100, 900.0, 1.0), np.where(np.arange(1000) % 10, 1.0, 900.0)

    [of_together] = likely.likely_percentiles(together, block, [0.95])
    [of_scattered] = likely.likely_percentiles(scattered, block, [0.95])

    assert (min(of_together), max(of_together)) == (1, 900)
    assert set(of_scattered) == {900}


def test_likely_shares_are_by_blocks_too() -> None:
    block = np.repeat(np.arange(BLOCKS), 10)

    assert set(likely.likely_share(np.tile([True, False], 50), block)) == {0.5}
    together = likely.likely_share(np.arange(100) < 10, block)
    assert min(together) == 0
    assert max(together) == pytest.approx(0.1 + 2.262 * 0.1, rel=0.02)
    assert likely.likely_share(np.array([], dtype=np.bool_), np.array([], dtype=np.intp)) == ()
    assert likely.likely_percentiles(np.array([]), np.array([], dtype=np.intp), [0.5]) == []

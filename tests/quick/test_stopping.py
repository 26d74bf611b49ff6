"""evaluate.statistics.stopping: how many trials decide, and looking after every trial without deceiving oneself."""

import random

import pytest

from stampede.evaluate.statistics.stopping import ERROR, LEAST, MOST, sequential_verdict, trials_needed


def test_one_trial_does_not_show_how_far_trials_differ() -> None:
    assert trials_needed(1, 3.0, None, [100]) == 5
    assert trials_needed(1, 3.0, (2.9, 3.1), [100]) == 5


@pytest.mark.parametrize(
    ("interval", "bounds", "needed"),
    [((9.9, 10.1), [100], LEAST), ((5, 20), [30], 4), ((5, 20), [15], 15), ((5, 20), [1, 15], 15),
     ((5, 20), [10.5], None)],
)  # fmt: skip
def test_the_nearer_the_nearest_bound_the_more_trials(
    interval: tuple[float, float], bounds: list[float], needed: int | None
) -> None:
    """By hand: five trials reach log 2 far, and the bound 15 is log 1.5 away, so 5 · (log 2 / log 1.5)² = 14.6."""
    assert trials_needed(5, 10, interval, bounds) == needed


def test_values_that_may_be_zero_are_compared_as_they_are() -> None:
    """By hand: eight trials reach 1, and a bound at 1.9 is 0.9 away: 8 / 0.9² = 9.9."""
    assert trials_needed(8, 1, (0, 2), [1.9]) == 10
    assert trials_needed(5, 0, (0, 0), [0.5]) == LEAST
    assert trials_needed(5, 0, (0, 0), [0]) is None


def test_trials_that_agree_decide_at_the_first_look_and_a_dissent_takes_more() -> None:
    """A decision stands whatever comes afterwards."""
    agree = [sequential_verdict(sides) for sides in ([True] * 4, [True] * 5, [False] * 5, [True] * 5 + [False] * 3)]
    late = [count for count in range(5, 20) if sequential_verdict([False, *[True] * (count - 1)])]

    assert agree == [None, True, False, True]
    assert late[0] > 7


def test_looking_after_every_trial_decides_falsely_no_more_often_than_promised() -> None:
    """The median is the bound, so that every decision on one side is false: the worst case."""
    coin, false = random.Random(5), 0
    for _ in range(3000):
        false += sequential_verdict([coin.random() < 0.5 for _ in range(60)]) is True

    assert 0.6 * ERROR < false / 3000 < 1.2 * ERROR


def test_looking_long_enough_decides_what_is_not_at_the_bound() -> None:
    coin = random.Random(6)

    decided = [sequential_verdict([coin.random() < 0.8 for _ in range(MOST)]) for _ in range(300)]

    assert decided.count(True) > 290

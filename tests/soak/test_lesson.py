"""The first step of the lesson on real containers, in the time that it promises."""

import time

from tests.conftest import Lab

LONGEST_S = 180
"""The longest that a step may take, by plan."""


def test_a_step_and_its_exercise_take_at_most_three_minutes_each(lab: Lab) -> None:
    """On real containers. The check tells a change that works from one that does not."""
    began = time.monotonic()
    with_prediction = lab.run_for(LONGEST_S, "lesson", "1", "--predict", "3000,1000")
    step_s = time.monotonic() - began
    wrong = lab.run_for(LONGEST_S, "lesson", "1", "--set", "threads=4")
    right = lab.run_for(LONGEST_S, "lesson", "1", "--set", "threads=5")

    assert (with_prediction.returncode, wrong.returncode, right.returncode) == (0, 0, 0), with_prediction.stderr
    assert step_s < LONGEST_S
    assert with_prediction.stdout.count("reproduced: ") == 2
    assert "not reproduced" not in with_prediction.stdout
    assert wrong.stdout.startswith("threads=4: it did not do what it should.\n")
    assert right.stdout.startswith("threads=5: it did what it should.\n")

"""Whether another way to serve is better: three answers, each consistent with the table above it."""

import re
from collections.abc import Sequence

import pytest

from stampede.diagnosis.improvement import find_improvement
from stampede.diagnosis.model import Diagnosis
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.intervals import Draw
from stampede.records.run import TODAY
from stampede.records.summary import Estimate, Summary, TrialValidity
from stampede.report.spread import spread, value_and_spread

LIMIT, QUEUE = "limit-4x2", "queue-4x2"
WELL = Diagnosis(alarm=False, sentences=[])


def row(variant: str, request_class: str, *values: float, metric: str = "overhead", stat: str = "p99") -> Estimate:
    """Return a row with the interval that the lab computes from the values of the trials."""
    low, high = intervals.of_median([Draw(value) for value in values]) or (None, None)
    if len(values) == 1:  # the interval within the trial, which says nothing about another start
        low, high = 0.9 * values[0], 1.1 * values[0]
    return Estimate(
        variant=variant, load="own", request_class=request_class, metric=metric, stat=stat, unit="ms", published=None,
        predicted=None, measured=sorted(values)[len(values) // 2], low=low, high=high, n=500, trials=len(values),
        values=dict(enumerate(values, start=1)),
    )  # fmt: skip


def summary_of(*rows: Estimate, suspect: Sequence[str] = ()) -> Summary:
    """Return a summary in which the first trial of some ways is suspect."""
    trials = [
        TrialValidity(
            variant=name, load="own", trial=1, verdict="suspect" if name in suspect else "valid",
            reasons=["the machine was 95% busy during the load"] if name in suspect else [],
        )
        for name in dict.fromkeys(one.variant for one in rows)
    ]  # fmt: skip
    return Summary.of_nothing("mine").model_copy(update={"rows": list(rows), "trials": trials, "round_s": 30.0})


def said(*rows: Estimate, suspect: Sequence[str] = ()) -> list[str]:
    """Return what is said of the ways in the rows."""
    ways = list(dict.fromkeys(one.variant for one in rows))
    return [*find_improvement(summary_of(*rows, suspect=suspect), WELL, ways).sentences]


WAITS, CURED = row(TODAY, "home", 900, 1000, 1100), row(LIMIT, "home", 26, 28, 30)
BETTER, FASTER = row(TODAY, "home", 900, 910, 920), row(LIMIT, "home", 5, 5.1, 5.2)
MIXED = ["Limit = threads is better than today's way for home, and worse for report."]


def test_three_trials_that_lie_apart_are_better_and_say_how_sure() -> None:
    main, sure = said(WAITS, CURED)

    assert main == "Better than today's, and the best that was tried: limit = threads."
    assert re.fullmatch(
        r"How sure: in 3 trials, home p99 is 28\.0 \([\d.]+ to [\d.]+\) ms "
        r"with limit = threads, and 1000 \(\d+ to \d+\) ms today\.",
        sure,
    )


def test_classes_that_are_too_many_to_show_are_counted() -> None:
    waits = [row(TODAY, f"page-{n}", 900, 910, 920) for n in range(5)]

    _, sure = said(*waits, *(row(LIMIT, f"page-{n}", 5, 5.1, 5.2) for n in range(5)))

    assert sure.endswith("today; 2 further classes save, too.")


def test_two_trials_that_promise_much_are_too_few_to_tell_and_say_how_many_would() -> None:
    main, many = said(row(TODAY, "home", 142, 219), row(LIMIT, "home", 31, 61))

    assert main == (
        "Too few trials to tell whether another way is better: in 2 trials, home p99 is 31.0 and 61.0 ms with "
        "limit = threads, and 142 and 219 ms today."
    )
    told = re.fullmatch(r"About (\d+) trials \(\d+ min\) would tell: --trials \1", many)
    assert told
    assert 3 <= int(told[1]) <= 10


@pytest.mark.parametrize("suspect", [(), (TODAY,), (LIMIT,)])
def test_a_single_trial_never_says_better(suspect: tuple[str, ...]) -> None:
    main, many = said(row(TODAY, "home", 289), row(LIMIT, "home", 21.6), suspect=suspect)

    doubt = " (1 of 2 trials is suspect: the machine was 95% busy during the load)" if suspect else ""
    assert main == (
        f"Too few trials to tell whether another way is better{doubt}: in one trial, home p99 is 21.6 ms with "
        "limit = threads, and 289 ms today."
    )
    assert "--trials 5" in many


def test_a_suspect_trial_is_named_in_the_sentence_that_says_better() -> None:
    assert (
        "limit = threads (1 of 2 trials is suspect: the machine was 95% busy" in said(WAITS, CURED, suspect=[LIMIT])[0]
    )
    main, *_ = said(WAITS, CURED, row(QUEUE, "home", 990, 1000, 1010), suspect=[QUEUE])
    assert "suspect" not in main  # the answer does not rest on this way


def test_nothing_is_better_only_if_no_room_is_left() -> None:
    main, why = said(row(TODAY, "home", 29, 30, 31), row(LIMIT, "home", 30, 30, 31))
    assert main == "Nothing that was tried is better than today's way to serve."
    assert "10 % and 5 ms" in why
    open_ways = row(LIMIT, "home", 26, 28, 3000), row(QUEUE, "home", 990, 1000, 2500)
    main, *_ = said(WAITS, *open_ways, suspect=[QUEUE])
    assert main.startswith("Too few trials to tell ")
    assert "suspect" not in main  # the answer rests on the way that promises more


def test_nothing_is_to_be_gained_if_no_request_waits_today() -> None:
    """More trials would only tell differences that nobody notices; with an alarm, they may tell more."""
    rows = [row(TODAY, "home", 5, 6, 40), row(LIMIT, "home", 5, 7, 38)]
    main, why = said(*rows)
    assert main == "Nothing that was tried is better than today's way to serve."
    assert "no request waits noticeably today" in why

    alarm = Diagnosis(alarm=True, sentences=[])
    assert find_improvement(summary_of(*rows), alarm, [TODAY, LIMIT]).sentences[0].startswith("Too few trials to tell")


def test_better_for_a_class_and_worse_for_another_is_said_with_both() -> None:
    rows = [BETTER, FASTER, row(TODAY, "report", 5, 5.1, 5.2), row(LIMIT, "report", 900, 910, 920)]

    assert said(*rows) == MIXED
    assert "suspect" in said(*rows, suspect=[TODAY])[0]


def test_a_way_that_fails_requests_is_not_better() -> None:
    """All requests of a class fail, so no time is measured of them, and the other class is faster."""
    failed = row(LIMIT, "report", 1, 1, 1, metric="failures", stat="share")

    assert said(BETTER, FASTER, row(TODAY, "report", 20, 21, 22), failed) == MIXED


def test_ways_without_a_common_figure_are_not_compared() -> None:
    assert "unknown" in said(row(TODAY, "home", 900, 910), row(LIMIT, "other", 5, 6))[0]


def test_as_good_are_the_ways_that_lose_noticeably_more_for_no_class() -> None:
    rows = [BETTER, FASTER, row(QUEUE, "home", 6, 6.1, 6.2)]

    found = find_improvement(summary_of(*rows), WELL, [TODAY, LIMIT, QUEUE])

    assert (found.best, found.as_good) == (LIMIT, [QUEUE])


@pytest.mark.parametrize(
    ("values", "shown"),
    [((142,), "142"), ((142, 219), "142 and 219"), ((-210, 123), "-210 and 123"), ((1.5, 2.5, 999), "1.5, 2.5 and 999"),
     ((26, 28, 30), "28.0 (23.4 to 33.4)")],
)  # fmt: skip
def test_an_interval_that_tells_nothing_is_not_shown(values: tuple[float, ...], shown: str) -> None:
    """One or two trials, or three whose interval reaches a hundred times beyond everything that was measured."""
    one = row(TODAY, "home", *values)

    assert value_and_spread(one.measured or 0, list(values), one.low, one.high) == shown
    assert spread(list(values), one.low, one.high) == (
        "" if len(values) == 1 else shown.removeprefix("28.0 (").strip(")")
    )

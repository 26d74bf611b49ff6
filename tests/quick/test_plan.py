"""stampede.plan: which trials, in which order, which side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.docker.images import images_of
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment
from stampede.experiment.variations import computing
from stampede.plan import PlannedTrial, lay_out, timing

HEAVY_MIX = load_experiment("heavy-mix")


def test_every_variant_is_measured_once_side_by_side() -> None:
    planned = lay_out(HEAVY_MIX, jobs=8)

    assert len(planned.batches) == 1
    assert sorted(HEAVY_MIX.variants) == sorted(trial.variant_name for trial in planned.trials)
    assert {"20s"} == {trial.duration for trial in planned.trials}


@given(jobs=st.integers(1, 12), trials=st.integers(1, 4), seed=st.integers())
def test_no_batch_is_larger_than_asked_and_no_trial_is_lost(jobs: int, trials: int, seed: int) -> None:
    planned = lay_out(HEAVY_MIX, jobs=jobs, trials=trials, seed=seed)

    assert all(len(batch) <= jobs for batch in planned.batches)
    measured = [(trial.variant_name, trial.number) for trial in planned.trials]
    assert sorted(measured) == sorted((name, n) for name in HEAVY_MIX.variants for n in range(1, trials + 1))
    assert planned == lay_out(HEAVY_MIX, jobs=jobs, trials=trials, seed=seed)


def test_batches_of_one_round_are_about_as_large_as_each_other() -> None:
    """Eight variants, five side by side at most: four and four, so that both batches are equally disturbed."""
    assert [len(batch) for batch in lay_out(HEAVY_MIX, jobs=5).batches] == [4, 4]


def test_burning_is_one_variant_at_a_time() -> None:
    """Of the four loads two are for other variants."""
    experiment = load_experiment("gil-sharing").model_copy(update={"parallel": True})

    side_by_side, alone = (lay_out(computing(experiment, cpu), jobs=8) for cpu in ("hold", "burn"))

    assert (len(side_by_side.trials), len(side_by_side.batches)) == (28, 6)
    assert (len(alone.trials), len(alone.batches)) == (28, 28)


def test_repeats_interleave_the_variants() -> None:
    """All variants are measured once before any is measured again."""
    numbers = [trial.number for trial in lay_out(HEAVY_MIX, jobs=1, trials=3).trials]

    assert numbers == [1] * 8 + [2] * 8 + [3] * 8


def test_another_seed_is_another_order() -> None:
    orders = {tuple(trial.variant_name for trial in lay_out(HEAVY_MIX, seed=seed).trials) for seed in range(5)}

    assert len(orders) > 1


def test_what_was_asked_for_is_planned() -> None:
    full = lay_out(HEAVY_MIX, variants=["one-process"], full=True)
    assert [(trial.variant_name, trial.duration) for trial in full.trials] == [("one-process", "5m")]
    assert [trial.duration for trial in lay_out(HEAVY_MIX, variants=["one-process"], duration="7s").trials] == ["7s"]


@pytest.mark.parametrize("duration", ["5", "0s", "5h", "-1s", "1.5m", "s"])
def test_a_duration_that_is_none_is_refused(duration: str) -> None:
    with pytest.raises(WrongUse) as caught:
        lay_out(HEAVY_MIX, duration=duration)

    assert caught.value.message == f"The duration {duration!r} must be whole seconds or minutes, such as 90s or 5m."


def test_a_load_may_be_for_some_variants_only() -> None:
    """One and two connections are for the two single processes; the other variants have the other loads."""
    experiment = load_experiment("gil-sharing")

    planned = lay_out(experiment, variants=["1x4", "4x4"])

    measured = sorted((trial.variant_name, trial.load_name.removesuffix("-connections")) for trial in planned.trials)
    assert measured == [
        ("1x4", "eight"), ("1x4", "four"), ("1x4", "one-connection"), ("1x4", "two"), ("4x4", "eight"), ("4x4", "four"),
    ]  # fmt: skip


DJANGO = load_experiment("django-fastcgi")


def test_a_relative_rate_follows_from_the_capacity_of_the_same_round() -> None:
    """Whatever the order of the variants: their capacities are measured before any overload of the round."""
    planned = lay_out(DJANGO, trials=2, seed=3)

    for trial in planned.trials:
        if trial.load_name == "capacity":
            assert trial.follows is None
        else:
            assert trial.follows
            followed = (trial.follows.variant_name, trial.follows.load_name, trial.follows.number)
            assert followed == ("gunicorn-5", "capacity", trial.number)
            assert planned.trials.index(trial.follows) < planned.trials.index(trial)
    assert len(planned.trials) == 2 * 2 * len(DJANGO.variants)


def test_no_relative_rate_is_planned_before_its_capacity() -> None:
    """The reader of experiments refuses such a file already. The trial would start without a rate."""
    with pytest.raises(KeyError):
        lay_out(DJANGO.model_copy(update={"loads": dict(reversed(DJANGO.loads.items()))}))


def test_a_rate_that_follows_from_a_variant_that_is_not_chosen_is_refused() -> None:
    with pytest.raises(WrongUse) as caught:
        lay_out(DJANGO, variants=["uwsgi-5", "uvicorn-5"])

    assert caught.value.message == (
        "The rate of load overload follows from the capacity of gunicorn-5, which VARIANTS leaves out."
    )
    assert caught.value.hint == "--variants gunicorn-5,uwsgi-5,uvicorn-5"
    assert {trial.variant_name for trial in lay_out(DJANGO, variants=["gunicorn-5", "uwsgi-5"]).trials} == {
        "gunicorn-5", "uwsgi-5",
    }  # fmt: skip


def test_a_variant_that_the_relative_load_is_not_for_needs_no_capacity() -> None:
    loads = DJANGO.loads | {"overload": DJANGO.loads["overload"].model_copy(update={"variants": ["gunicorn-5"]})}
    experiment = DJANGO.model_copy(update={"loads": loads})

    assert [trial.load_name for trial in lay_out(experiment, variants=["uwsgi-5"]).trials] == ["capacity"]


@pytest.mark.parametrize(
    ("experiment", "variants", "images"),
    [
        ("django-fastcgi", ["gunicorn-5", "fastcgi-prefork"], "flup:1.1.1 gunicorn:27.0.1 mariadb:trixie nginx:trixie"),
        ("one-gpu", ["fastapi-sync"], "api:trixie gunicorn:27.0.1"),  # without a balancer
        ("worker-types", ["eventlet"], "gunicorn:25.3.0"),
        ("two-choices", ["one-queue"], "gunicorn:27.0.1 haproxy:trixie"),
    ],
)
def test_a_plan_needs_the_images_of_its_servers_and_of_what_stands_beside_them(
    experiment: str, variants: list[str], images: str
) -> None:
    found = images_of(lay_out(load_experiment(experiment), variants=variants))

    assert " ".join(sorted(one.name.removeprefix("stampede/") for one in found)) == images
    assert all(one.name.startswith(f"stampede/{one.service}:") for one in found)


def planned(
    experiment: str, variant: str, load: str | None = None, *, full: bool = False, duration: str | None = None
) -> PlannedTrial:
    laid_out = lay_out(load_experiment(experiment), variants=[variant], full=full, duration=duration)
    return next(trial for trial in laid_out.trials if load in (None, trial.load_name))


def answered_after_s(trial: PlannedTrial) -> float:
    """Return after how many seconds the last request of a load should be answered."""
    return timing.load_s(trial) - timing.GENERATOR_DOWN_S


@pytest.mark.parametrize(
    ("trial", "seconds"),
    [
        (planned("ten-at-once", "uvicorn-fastapi-async"), 2 + 1),  # the loop serves all ten at the same time
        (planned("ten-at-once", "gunicorn-flask-sync"), 2 + 10 * 1),  # one after the other
        (planned("ten-at-once", "gunicorn-flask-sync", full=True), 2 + 4 * 12 + 10 * 1),  # the fifth burst
        (planned("thousand-at-once", "uvicorn-fastapi-sync"), 2 + 5 * 1),  # 200 threads
        (planned("worker-types", "gthread", "waiting-10"), 2 + 5 * 2),  # two threads
        (planned("worker-types", "tornado", "waiting-10"), 2 + 10 * 2),  # a blocked loop
        (planned("worker-types", "gevent", "computing-10"), 2 + 10 * 1.5),  # one interpreter lock
        (planned("one-gpu", "fastapi-sync", "two-at-once"), 2 + 8 + 2 * 3),  # one device
        (planned("worker-types", "sync", "crash"), 2 + 0.5 + 10 * 1),
        (planned("heavy-mix", "one-process"), 20 + 0.15 * 10),  # two heavy requests, which may wait
        (planned("heavy-mix", "one-process", duration="8s"), 10 + 0.15 * 10),
        (planned("pid-skew", "least-conn"), 30 + (0.5 + 0.15) * 0.5),  # somewhere in a request
        (planned("connection-deadlock", "limit-23"), 10 + 60),  # nobody is answered any more
        (planned("connection-deadlock", "limit-24"), 10 + (0.5 + 0.15) * 0.1),
        (planned("connection-limit", "gevent"), 25 + 2 * 5),  # 24 users in turns of eight, which idle connections hold
        (planned("connection-limit", "granian"), 60),  # it keeps idle connections for longer than users wait
        (planned("connection-limit", "granian-closed"), 25 + (0.5 + 0.15) * 0.05),
        (planned("django-fastcgi", "gunicorn-5", "capacity"), 7),
    ],
)  # fmt: skip
def test_a_load_ends_when_its_last_requests_are_answered(trial: PlannedTrial, seconds: float) -> None:
    assert answered_after_s(trial) == pytest.approx(seconds)


def test_what_comes_at_twice_the_capacity_takes_as_long_again() -> None:
    laid_out = lay_out(DJANGO, variants=["gunicorn-5"])
    [overload] = [trial for trial in laid_out.trials if trial.load_name == "overload"]

    assert answered_after_s(overload) == pytest.approx(4 + 4)


def test_a_batch_takes_as_long_as_its_steps() -> None:
    """Two trials behind nginx have six containers, two without a balancer have four."""
    [mix], [ten] = (
        lay_out(load_experiment(name), variants=variants, jobs=8).batches
        for name, variants in (
            ("heavy-mix", ["one-process", "reuse-port"]),
            ("ten-at-once", ["gunicorn-flask-sync", "uvicorn-fastapi-sync"]),
        )
    )
    works_s = timing.UP_S + timing.OBSERVE_S + timing.COLLECT_S + timing.DOWN_S
    waits_s = timing.SETTLE_S + timing.GENERATOR_UP_S + timing.FURTHER_GENERATOR_UP_S
    each_s = timing.UP_EACH_S + timing.DOWN_EACH_S
    loads_s = (20 + 0.15 * 10 + timing.GENERATOR_DOWN_S, 12 + timing.GENERATOR_DOWN_S)

    assert timing.batch_s(mix) == pytest.approx(works_s + 6 * each_s + waits_s + loads_s[0])
    assert timing.batch_s(ten) == pytest.approx(works_s + 4 * each_s + waits_s + loads_s[1])
    slower_s = 0.5 * (works_s + 4 * each_s) + timing.SETTLE_BUSY_S - timing.SETTLE_S
    assert timing.batch_s(ten, busy=True) - timing.batch_s(ten) == pytest.approx(slower_s)


def test_trials_that_compute_are_calibrated_one_after_the_other() -> None:
    computing = planned("worker-types", "sync", "computing-2"), planned("worker-types", "gthread", "computing-2")
    short = planned("gil-sharing", "4x4", "four-connections")

    assert timing.calibrate_s(computing[0].load) == pytest.approx(4 * 1.6)
    assert timing.calibrate_s(short.load) == pytest.approx(11 * 0.2)
    shorter_s, longer_s = map(timing.batch_s, (computing[:1], computing))
    assert longer_s - shorter_s == pytest.approx(
        4 * 1.6 + timing.FURTHER_GENERATOR_UP_S + 2 * (timing.UP_EACH_S + timing.DOWN_EACH_S)
    )


def test_a_database_and_further_load_generators_take_time_to_start() -> None:
    trial = planned("django-fastcgi", "gunicorn-5", "capacity")  # nginx, gunicorn, MariaDB, and four of k6

    assert timing.up_s([trial]) == pytest.approx(timing.UP_S + 7 * timing.UP_EACH_S + timing.DATABASE_UP_S)
    assert timing.generators_up_s(trial.load, 2) == 0.5 + 7 * 0.3


def test_a_run_takes_as_long_as_its_batches_and_what_is_around_them() -> None:
    alone, together = lay_out(HEAVY_MIX, jobs=1), lay_out(HEAVY_MIX, jobs=8)
    around_s = timing.READY_S + 8 * timing.PREDICT_S + timing.REPORT_S + 8 * timing.REPORT_EACH_S

    assert timing.expected_s(together) == round(around_s + timing.batch_s(together.batches[0]))
    assert timing.expected_s(alone) == round(around_s + sum(map(timing.batch_s, alone.batches)))
    busy_s = 1.5 * around_s + timing.batch_s(together.batches[0], busy=True)
    assert timing.expected_s(together, busy=True) == round(busy_s)


def test_the_time_that_is_left_follows_from_the_batches_that_have_ended() -> None:
    """The first two batches were 5 s late on average, so the other two will be, too."""
    assert timing.left_s([20, 20, 30, 40], [24, 26], spent_s=10) == (30 + 5 - 10) + (40 + 5)
    assert timing.left_s([20, 20], [20], spent_s=60) == 0
    assert timing.left_s([20, 20], [], spent_s=0) == 40
    assert timing.left_s([20, 20], [20, 20], spent_s=5) == 0

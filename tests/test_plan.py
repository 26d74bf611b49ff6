"""lab.plan: which trials, in which order, which side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import WrongUse
from lab.experiment import Experiment, against_itself, load_experiment
from lab.plan import plan
from lab.run import lab_images

HEAVY_MIX = load_experiment("heavy-mix")
ALONE = Experiment.model_validate(HEAVY_MIX.model_dump(exclude_unset=True) | {"parallel": False})


def test_every_variant_is_measured_once_side_by_side() -> None:
    planned = plan(HEAVY_MIX, jobs=8)

    assert len(planned.batches) == 1
    assert sorted(HEAVY_MIX.variants) == sorted(trial.variant_name for trial in planned.trials)
    assert {"60s"} == {trial.duration for trial in planned.trials}


@given(jobs=st.integers(1, 12), trials=st.integers(1, 4), seed=st.integers())
def test_no_batch_is_larger_than_asked_and_no_trial_is_lost(jobs: int, trials: int, seed: int) -> None:
    planned = plan(HEAVY_MIX, jobs=jobs, trials=trials, seed=seed)

    assert all(len(batch) <= jobs for batch in planned.batches)
    measured = [(trial.variant_name, trial.number) for trial in planned.trials]
    assert sorted(measured) == sorted((name, n) for name in HEAVY_MIX.variants for n in range(1, trials + 1))
    assert planned == plan(HEAVY_MIX, jobs=jobs, trials=trials, seed=seed)


def test_batches_of_one_round_are_about_as_large_as_each_other() -> None:
    """Eight variants, five side by side at most: four and four, so that both batches are equally disturbed."""
    assert [len(batch) for batch in plan(HEAVY_MIX, jobs=5).batches] == [4, 4]


def test_repeats_interleave_the_variants() -> None:
    """All variants are measured once before any is measured again."""
    numbers = [trial.number for trial in plan(HEAVY_MIX, jobs=1, trials=3).trials]

    assert numbers == [1] * 8 + [2] * 8 + [3] * 8


def test_another_seed_is_another_order() -> None:
    orders = {tuple(trial.variant_name for trial in plan(HEAVY_MIX, seed=seed).trials) for seed in range(5)}

    assert len(orders) > 1


def test_an_experiment_that_computes_is_measured_one_by_one() -> None:
    assert {1} == {len(batch) for batch in plan(ALONE, jobs=8).batches}


def test_what_was_asked_for_is_planned() -> None:
    full = plan(HEAVY_MIX, variants=["one-process"], full=True)
    assert [(trial.variant_name, trial.duration) for trial in full.trials] == [("one-process", "5m")]
    assert [trial.duration for trial in plan(HEAVY_MIX, variants=["one-process"], duration="7s").trials] == ["7s"]


def test_an_unknown_variant_lists_the_known_ones_nearest_first() -> None:
    with pytest.raises(WrongUse) as caught:
        plan(HEAVY_MIX, variants=["one-proces"])

    assert caught.value.message == "There is no variant 'one-proces'."
    assert caught.value.hint.startswith("VARIANTS=…, any of one-process, busy-accept,")


@pytest.mark.parametrize("duration", ["5", "0s", "5h", "-1s", "1.5m", "s"])
def test_a_duration_that_is_none_is_refused(duration: str) -> None:
    with pytest.raises(WrongUse) as caught:
        plan(HEAVY_MIX, duration=duration)

    assert caught.value.message == f"The duration {duration!r} is neither seconds nor minutes."


def test_the_expected_duration_counts_batches_not_trials() -> None:
    assert plan(HEAVY_MIX, jobs=8).expected_s == plan(HEAVY_MIX, jobs=1).expected_s / 8


def test_a_load_may_be_for_some_variants_only() -> None:
    """One and two connections are for the two single processes; the other variants have the other loads."""
    experiment = load_experiment("gil-sharing")

    planned = plan(experiment, variants=["1x4", "4x4"])

    measured = sorted((trial.variant_name, trial.load_name.removesuffix("-connections")) for trial in planned.trials)
    assert measured == [
        ("1x4", "eight"), ("1x4", "four"), ("1x4", "one-connection"), ("1x4", "two"), ("4x4", "eight"), ("4x4", "four"),
    ]  # fmt: skip
    itself = against_itself(experiment, "4x4")
    assert list(itself.all_loads) == ["four-connections", "eight-connections"]
    assert {trial.variant_name for trial in plan(itself).trials} == {"a", "b"}


def test_a_plan_needs_the_images_of_its_servers_and_of_a_balancer_only_where_there_is_one() -> None:
    experiment = Experiment.model_validate(
        {
            "title": "T",
            "question": "Q?",
            "loads": {
                "directly": {"script": "burst.js", "duration": {"short": "1s", "full": "1s"}, "variants": ["directly"],
                             "api": {"one_device": True}},
                "behind": {"script": "burst.js", "duration": {"short": "1s", "full": "1s"}, "variants": ["behind"]},
            },
            "variants": {
                "directly": {"server": "granian", "app": "fastapi-async", "workers": 1, "balancer": "none"},
                "behind": {"server": "gunicorn-eventlet", "release": "25.3.0", "workers": 1, "balancer": "haproxy"},
            },
        }
    )  # fmt: skip

    directly = lab_images(plan(experiment, variants=["directly"]))
    assert {image: one["service"] for image, one in directly.items()} == {
        "stampede/asgi:trixie": "asgi", "stampede/api:trixie": "api",
    }  # fmt: skip
    behind = lab_images(plan(experiment, variants=["behind"]))
    assert {image: one["service"] for image, one in behind.items()} == {
        "stampede/haproxy:trixie": "haproxy", "stampede/gunicorn:25.3.0": "gunicorn",
    }  # fmt: skip
    assert behind["stampede/gunicorn:25.3.0"]["LAB_RELEASE"] == "25.3.0"

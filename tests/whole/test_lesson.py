"""stampede lesson without containers: what simulated runs say of each step, and a lesson that is handed in."""

import io
import json
import tarfile
from collections import Counter
from functools import cache, lru_cache
from typing import Any

import pytest

from stampede.evaluate.read.requests import Requests
from stampede.evaluate.statistics.intervals import Draw, of_median, of_ratio
from stampede.experiment.model import Experiment
from stampede.pipeline import derive
from stampede.plan import lay_out
from stampede.predict.prediction import _trials, _values
from stampede.predict.system import system_of
from stampede.records.checksums import MANIFEST, seal, sha256
from stampede.records.claims import Claim, Quantity
from stampede.records.run import LoadRecord, VariantRecord
from stampede.run.record import record_of
from stampede.teach.lesson.model import experiment_with_change, step_experiment
from tests.conftest import Lab
from tests.lessons import Measuring, measuring
from tests.quick.test_lesson import LESSON, STEPS
from tests.synthetic import NOWHERE

__all__ = ["measuring"]

RUNS = 60


@lru_cache(maxsize=8)
def simulated_trials(variant: str, load: str, cores: int, count: int) -> list[Requests]:
    """Return simulated trials of a variant under a load, both as records in JSON. The same trials serve all claims."""
    recorded = VariantRecord.model_validate_json(variant), LoadRecord.model_validate_json(load)
    return [*_trials(system_of(*recorded, LESSON.jobs, cores), *recorded, count)]


@cache
def simulated_values(variant: str, load: str, cores: int, count: int) -> dict[tuple[str | None, str, str], list[float]]:
    """Return the values of each statistic in simulated trials."""
    recorded = VariantRecord.model_validate_json(variant), LoadRecord.model_validate_json(load)
    return _values(simulated_trials(variant, load, cores, count), *recorded)


def simulated(experiment: Experiment, cores: int, claim: Claim) -> Counter[bool | None]:
    """Return how many of sixty simulated runs on so many cores say that a claim holds, fails or is undecided (None)."""
    planned = lay_out(experiment, trials=experiment.trials, jobs=LESSON.jobs)
    host = NOWHERE.model_copy(update={"cores": cores})
    run = record_of("simulated", experiment, planned, full=False, command="", host=host, git=None, images=[])

    def draws(value: Quantity) -> list[list[Draw]]:
        """Return the trials of each run."""
        load, variant = run.load(value.load or run.loads[0].name), run.variant(value.variant)
        recorded = variant.model_dump_json(), load.model_dump_json()
        values = simulated_values(*recorded, cores, RUNS * experiment.trials)
        found = [Draw(one) for one in values[value.request_class, value.metric, value.stat]]
        return [found[start : start + experiment.trials] for start in range(0, len(found), experiment.trials)]

    values = draws(claim.value)
    intervals = (
        [of_ratio(*both) for both in zip(values, draws(claim.relative_to), strict=True)]
        if claim.relative_to
        else [of_median(one) for one in values]
    )
    kept = [{claim.holds(end) for end in interval} for interval in intervals if interval]
    assert len(kept) == RUNS
    return Counter(one.pop() if len(one) == 1 else None for one in kept)


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
@pytest.mark.parametrize("step", LESSON.steps, ids=STEPS)
def test_the_verdicts_of_at_least_95_of_100_simulated_runs_are_equal(step: Any, cores: int) -> None:
    """On a machine with so many cores, each claim is reproduced in so many of sixty runs.

    Theory does not know memory, so it says nothing of the one claim about memory.
    """
    experiment = step_experiment(LESSON, step)
    reckoned = [claim for claim in experiment.claims if claim.value.metric != "memory"]

    assert len(experiment.claims) - len(reckoned) == (step.name == "cures")
    for claim in reckoned:
        assert simulated(experiment, cores, claim)[True] >= 0.95 * RUNS, claim.says


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
@pytest.mark.parametrize("step", LESSON.steps, ids=STEPS)
def test_the_check_fails_before_the_change_and_passes_after_it_in_simulated_runs(step: Any, cores: int) -> None:
    experiment, check = step_experiment(LESSON, step), step.exercise.check
    after = experiment_with_change(experiment, step.exercise, *next(iter(step.exercise.answer.items())))

    assert simulated(experiment, cores, check)[False] >= 0.95 * RUNS
    assert simulated(after, cores, check)[True] >= 0.95 * RUNS


@pytest.mark.usefixtures("without_pictures")
def test_a_lesson_is_handed_in_as_one_file_which_the_class_can_read(lab: Lab, measuring: Measuring) -> None:
    assert not measuring.started
    lab.call("lesson", "2", "--predict", "15,20")
    lab.call("lesson", "2", "--explain", "I, dolores, think so.")
    lab.call("lesson", "2", "--set", "threads=7")
    runs = sorted(lab.results.glob("lesson-*/2*"))
    for run in runs:
        seal(run)
        derive(run)
    archive = lab.results / "mine.tar.gz"

    packed = lab.call("export", str(lab.results / "lesson"), "--to", str(archive))
    page = lab.call("class", str(archive))

    assert (packed.returncode, packed.stdout) == (0, f"{archive}\n"), packed.stderr
    manifest = sha256(runs[0] / MANIFEST)
    assert packed.stderr == (
        f"On the page of the class, your manifests begin with {manifest[:8]}.\n"
        "The file has the runs of 1 step and your predictions, but nothing that you wrote in words.\n"
    )
    with tarfile.open(archive) as file:
        names = file.getnames()
        kept = json.load(file.extractfile("lesson/lesson.json") or io.BytesIO())
    assert {name.split("/")[0] for name in names} == {"lesson", f"lesson-heavy-mix-{runs[0].name}"}
    assert kept["steps"]["heavy-mix"]["prediction"]["values"] == [15, 20]
    assert "dolores" not in json.dumps(kept)
    assert page.returncode == 0, page.stderr
    assert page.stderr.startswith("lesson-heavy-mix: 1 laptop; ")
    assert page.stderr.endswith("it shows them when two laptops have handed in a lesson.\n")

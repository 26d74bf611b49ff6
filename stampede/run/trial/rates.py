"""The rate of a load that is relative to a capacity, which another trial of the same round has measured."""

from pathlib import Path

from stampede.experiment.loads.script import WrongSetting
from stampede.plan import PlannedTrial
from stampede.records.folder import BadRun, read_trial, trial_folder
from stampede.run.trial.reasons import TrialFailed


def rate_after(trial: PlannedTrial, follows: PlannedTrial, run_folder: Path) -> float:
    """Return the rate of a trial that follows from another one of this round. Raise TrialFailed without a capacity."""
    # imported here because loading DuckDB takes as long as a whole set-up
    from stampede.evaluate.metrics.visits import measured_capacity_per_s  # noqa: PLC0415
    from stampede.evaluate.read.rows import UnreadablePoints  # noqa: PLC0415

    assert trial.load.relative
    which = f"{follows.variant_name} under {follows.load_name}"
    key = follows.variant_name, follows.load_name, follows.number
    folder = trial_folder(run_folder, *key)
    try:
        record = read_trial(folder)
        if record.reason:
            raise TrialFailed(f"the rate is relative to {which}, which was not measured: {record.reason}")
        capacity_per_s = measured_capacity_per_s(
            folder, key, follows.load.environment(), follows.duration, record.machines
        )
    except BadRun:
        raise TrialFailed(f"the rate is relative to {which}, which has no record") from None
    except (UnreadablePoints, ValueError) as error:
        reason = str(error).replace(f"{folder}/", "")
        raise TrialFailed(f"the rate is relative to {which}, which shows no capacity: {reason}") from None
    if not capacity_per_s:
        raise TrialFailed(f"the rate is relative to {which}, where visits already failed in the first step")
    rate_per_s = trial.load.relative.times * capacity_per_s
    try:
        trial.load.at(rate_per_s)
    except WrongSetting as error:
        raise TrialFailed(f"the rate is relative to {which}, and is too high: {error}") from None
    return rate_per_s

"""The experiment that measures an own service as it is served today, and in other ways."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from analysis.classes import asked_as_json
from analysis.folder import read_trial, trial_folder
from analysis.nearest import nearest_first
from analysis.record import OWN, REPLAY, TODAY
from analysis.result import Summary
from lab.advice.ways import Way
from lab.errors import WrongUse
from lab.experiment.model import Experiment, Load
from lab.measuring import measure_quietly, planner
from lab.own.replay import Replay
from lab.own.service import OwnService
from lab.own.variants import ADVISED, LIFTING, ONLY_IF_NAMED
from lab.terminal import say

LASTS = {"short": "20s", "full": "2m"}
REPLAY_LASTS_S = {"short": 60, "full": 600}
"""The most seconds of a log that are sent again."""
TRIALS = 3


def name_of(path: Path) -> str:
    """Return the name of the folder of results for a file that describes a service."""
    return (re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "service") + "-tried"


def chosen(ways: Sequence[Way], names: str, lifting: Sequence[str] = ()) -> list[Way]:
    """Return today's way and those that are named. If none is named, return the default ways and those of ``lifting``.

    The kinds in ``lifting`` lift a limit that was found. Raise WrongUse for an unknown name.
    """
    wanted = [one.strip() for one in names.split(",") if one.strip()]
    known = [ADVISED if way.name.startswith(ADVISED) else way.name.rpartition("-")[0] or TODAY for way in ways]
    for one in wanted:
        if one not in known:
            there = nearest_first(one, known)
            raise WrongUse(f"WAYS={names}: there is no way {one} for this service; there are {there}.")
    default = [one for one in known if one not in (*ONLY_IF_NAMED, *LIFTING)]
    taken = [TODAY, *wanted] if wanted else [*default, *lifting]
    return [way for way, name in zip(ways, known, strict=True) if name in taken]


def measure_first(
    name: str, experiment: Experiment, *, full: bool, duration: str, seed: int, command: str, results: Path
) -> tuple[Path, Summary]:
    """Measure today's way with one trial, in a run of its own, and say what limits it so far."""
    plan_for = planner(experiment, TODAY, full=full, duration=duration, trials=1, jobs=1, seed=seed)
    folder, summary = measure_quietly(name, experiment, plan_for, full=full, command=command, results=results)
    told, sentences = (
        "\nThe first trial is invalid, so it says nothing:",
        [reason for trial in summary.trials for reason in trial.reasons],
    )
    if summary.validity.verdict != "invalid" and summary.diagnosis:
        told, sentences = "\nSo far, after one trial of today's way:", summary.diagnosis.sentences
    say(told)
    for sentence in sentences:
        say(f"- {sentence}")
    say("")
    return folder, summary


def started(folder: Path, summary: Summary) -> bool:
    """Whether any trial of a run got as far as its load."""
    trials = [read_trial(trial_folder(folder, one.variant, one.load, one.trial)) for one in summary.trials]
    return any(trial.outcome != "failed" for trial in trials)


def limits_of(summary: Summary) -> list[str]:
    """Return what limits today's way, as far as a summary can be trusted."""
    if summary.diagnosis is None or summary.validity.verdict == "invalid":
        return []
    return [one.limit for one in summary.diagnosis.bottlenecks]


def experiment_of(path: Path, service: OwnService, ways: Sequence[Way], replay: Replay | None = None) -> Experiment:
    """Return the experiment, with the requests of the service or of a log. Raise WrongUse if k6 cannot send them."""
    asked = {"script": OWN, "settings": {"classes": asked_as_json(service.requests)}, "duration": LASTS}
    if replay:
        settings = {"classes": asked_as_json(replay.classes), "users_max": replay.users_max}
        lasts = {name: f"{min(most_s, replay.lasts_s)}s" for name, most_s in REPLAY_LASTS_S.items()}
        asked = {"script": REPLAY, "settings": settings, "duration": lasts}
    try:
        load = Load.model_validate(asked)
    except ValidationError as error:
        what = "replay" if replay else "requests"
        first = error.errors()[0]
        raise WrongUse(f"{path.name}: {what}: {first.get('ctx', {}).get('error', first['msg'])}.") from None
    return Experiment(
        title=f"{path.stem}, as it is served today and in other ways",
        question="Do requests wait for a worker although another worker has a free thread, and what helps?",
        load=load,
        trials=TRIALS,
        variants={way.name: way.variant for way in ways},
    )

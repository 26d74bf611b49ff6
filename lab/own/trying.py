"""The experiment that measures an own service as it is served today, and in other ways."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from analysis.classes import asked_as_json
from analysis.nearest import nearest_first
from analysis.record import OWN, REPLAY, TODAY
from lab.advice.ways import Way
from lab.errors import WrongUse
from lab.experiment.model import Experiment, Load
from lab.own.replay import Replay
from lab.own.service import OwnService
from lab.own.variants import ADVISED, ONLY_IF_NAMED

LASTS = {"short": "20s", "full": "2m"}
REPLAY_LASTS_S = {"short": 60, "full": 600}
"""The most seconds of a log that are sent again."""
TRIALS = 3


def name_of(path: Path) -> str:
    """Return the name of the folder of results for a file that describes a service."""
    return (re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "service") + "-tried"


def chosen(ways: Sequence[Way], names: str) -> list[Way]:
    """Return today's way and those that are named; if none is named, all but those of ONLY_IF_NAMED.

    Raise WrongUse for an unknown name.
    """
    wanted = [one.strip() for one in names.split(",") if one.strip()]
    known = [ADVISED if way.name.startswith(ADVISED) else way.name.rpartition("-")[0] or TODAY for way in ways]
    for one in wanted:
        if one not in known:
            there = nearest_first(one, known)
            raise WrongUse(f"WAYS={names}: there is no way {one} for this service; there are {there}.")
    taken = [TODAY, *wanted] if wanted else [one for one in known if one not in ONLY_IF_NAMED]
    return [way for way, name in zip(ways, known, strict=True) if name in taken]


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

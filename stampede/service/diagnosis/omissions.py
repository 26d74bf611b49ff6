"""What somebody's own service has and the lab leaves out, such as settings of its server."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from stampede.records.folder import read_trial, trial_folder
from stampede.records.run import TODAY, Run
from stampede.records.summary import Summary
from stampede.report.wording import number

LEFT_OUT = "left_out"
"""Where gunicorn's settings in force (servers/gunicorn/gunicorn.conf.py) and the variant's settings name them."""
_OF_UWSGI = re.compile(r"^; left out: (\S+) = (.*)$", re.MULTILINE)
_DEFAULTS = ("0", "False", "None")


class Omissions(NamedTuple):
    """Settings of the server that the lab leaves out, by name, in ``file``; ``further`` has other things in words."""

    file: str = ""
    settings: Mapping[str, str] = MappingProxyType({})
    further: tuple[str, ...] = ()

    def number(self, *names: str) -> float:
        """Return the value of the first of these settings that is a number; 0: none is."""
        return next((float(value) for name in names if (value := self.settings.get(name, "")).isdecimal()), 0.0)


def read_omissions(run_folder: Path, run: Run, summary: Summary) -> Omissions:
    """Return what the lab left out of the service as it is served today; older runs do not tell."""
    further = tuple(run.variant(TODAY).settings.get(LEFT_OUT) or ())
    folders = [trial_folder(run_folder, *trial.key) for trial in summary.trials if trial.variant == TODAY]
    for folder in folders:
        if not folder.exists():  # it was not measured
            continue
        for name, told in read_trial(folder).settings.items():
            if name.startswith("gunicorn") and (found := _of_gunicorn(told)):
                return Omissions("gunicorn.conf.py", found, further)
            if name.startswith("uwsgi") and (listed := _OF_UWSGI.findall(told)):
                in_force = ("max-requests", str(run.variant(TODAY).settings.get("max_requests")))
                return Omissions("uwsgi.ini", dict(each for each in listed if each != in_force), further)
    return Omissions(further=further)


def _of_gunicorn(told: str) -> dict[str, str]:
    try:
        values = json.loads(told).get(LEFT_OUT) or {}
    except (ValueError, AttributeError):  # an interrupt has cut the settings short
        return {}
    return {name: value for name, value in values.items() if value not in _DEFAULTS}


def omission_sentences(found: Omissions, per_second: float, workers: int) -> Iterator[str]:
    """Say what the lab leaves out of the service, and what is therefore not in its numbers."""
    most = found.number("max_requests", "max-requests")
    jitter = found.number("max_requests_jitter", "max-requests-delta")
    restarts = {name: value for name, value in found.settings.items() if name.startswith(("max_requests", "max-requ"))}
    others = {name: value for name, value in found.settings.items() if name not in restarts}
    if most:
        said = _restarts(found.file, most, jitter, per_second, workers)
        yield (f"{said} The lab leaves this out, so waits while workers are replaced are not in these numbers; with "
               "served.max_requests, they are.")  # fmt: skip
    else:
        others |= restarts
    if others:
        named = ", ".join(f"{name} = {value}" for name, value in others.items())
        yield f"The lab leaves out or replaces these settings of {found.file}: {named}."
    if found.further:
        yield f"The lab leaves out: {'; '.join(found.further)}."


def replacement_sentences(settings: Mapping[str, object], per_second: float, workers: int) -> Iterator[str]:
    """Say how often workers are replaced, which is in the numbers, if the variant's settings say that they are."""
    most, jitter = (int(str(settings.get(name) or 0)) for name in ("max_requests", "max_requests_jitter"))
    if most:
        said = _restarts("max_requests", most, jitter, per_second, workers)
        yield f"{said} Waits while workers are replaced are in these numbers."


_TOGETHER = 0.25
"""Workers are replaced at nearly the same moment if they differ by less than this part of the time between."""


def _restarts(file: str, most: float, jitter: float, per_second: float, workers: int) -> str:
    requests = f"{most:.0f}" if not jitter else f"{most:.0f} to {most + jitter:.0f}"
    said = f"{file} replaces each worker after {requests} requests"
    if not per_second:
        return f"{said}."
    each = per_second / workers
    if workers == 1:
        return f"{said}, at the measured rate about every {number((most + jitter / 2) / each)} s."
    said += f": at the measured rate, all {workers} workers about every {number((most + jitter / 2) / each)} s"
    if jitter >= _TOGETHER * most:
        return f"{said}."
    return f"{said}, and at nearly the same moment, because the jitter is only {jitter:.0f}."

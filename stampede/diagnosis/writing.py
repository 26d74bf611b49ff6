"""The diagnosis of a run of somebody's own service: from its trials to diagnosis.json."""

import re
from pathlib import Path
from statistics import median

from stampede.causes import failure
from stampede.diagnosis.deaths import read_deaths
from stampede.diagnosis.held import read_alone, read_held
from stampede.diagnosis.model import write_diagnosis
from stampede.diagnosis.rules import diagnose
from stampede.diagnosis.section import is_of_service, read_section
from stampede.evaluate.read.observation import read_containers
from stampede.evaluate.read.rows import opened
from stampede.records.folder import read_run, read_trial, trial_folder
from stampede.records.run import TODAY
from stampede.records.summary import Summary
from stampede.report.section import Section

_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\S+Z ", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"


def write_section(run_folder: Path, summary: Summary) -> Section | None:
    """Write diagnosis.json, if the run measured somebody's own service as it is served today, and return its section.

    Return None for a run of anything else.
    """
    run = read_run(run_folder)
    if not is_of_service(run):
        return None
    folders = [trial_folder(run_folder, *trial.key) for trial in summary.trials
               if trial.variant == TODAY and trial.is_trusted]  # fmt: skip
    shares = [share for folder in folders if (share := read_trial(folder).busy_during) is not None]
    logs = [folder / f"{container.name}.log" for folder in folders for container in read_containers(folder)
            if container.before and container.before.workers]  # fmt: skip
    texts = (_TIME.sub("", log.read_text(encoding="utf-8", errors="replace")) for log in logs if log.exists())
    thrown = next((told for text in texts if _TRACEBACK in text and (told := failure(text))), "")
    with opened(folders) as rows:
        alone_ms = read_alone(run_folder, summary, TODAY)
        loops = read_held(rows, run_folder, summary, TODAY, alone_ms)
        deaths = read_deaths(rows, run_folder, summary, run.variant(TODAY))
        busy = median(shares) if shares else None
        write_diagnosis(run_folder, diagnose(summary, run, rows, loops, alone_ms, busy, deaths, thrown))
    return read_section(run_folder, summary)

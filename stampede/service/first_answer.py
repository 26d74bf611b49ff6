"""The first answer of ``stampede try``: when it comes, what it says, and how it is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stampede.diagnosis.model import Diagnosis
from stampede.docker.machine_usage import is_busy
from stampede.experiment.model import Experiment
from stampede.plan import timing
from stampede.records.folder import read_trial, trial_folder
from stampede.records.plural import plural
from stampede.records.summary import Summary
from stampede.run.options import MeasureOptions
from stampede.terminal import interruptible, report_path, say, time_in_words


def say_parts(options: MeasureOptions, experiment: Experiment) -> None:
    """Say about how long each part of the measurement takes, and when the first answer comes."""
    [first, *ways] = experiment.variants
    today, every = replace(options, variants=first, trials=1).plan(experiment), options.plan(experiment)
    busy = is_busy()
    alone_s = timing.before_s(today, busy=busy, check=True)
    first_s, every_s = (
        sum(timing.batches_s(plan, busy=busy)) + timing.report_s(plan, busy=busy) for plan in (today, every)
    )
    ways_too = f" and {plural(len(ways), 'other way')}" if ways else ""
    say(
        f"1. The image of the application: about {time_in_words(timing.IMAGE_S)}, unless it is built already.\n"
        f"2. Each class of requests alone: about {time_in_words(round(alone_s))}.\n"
        f"3. Today's way, 1 trial: about {time_in_words(round(first_s))}. "
        "Then comes the first answer; Ctrl-C after it keeps it.\n"
        f"4. Today's way{ways_too}, {plural(len(every.rounds), 'trial')} each: about {time_in_words(round(every_s))}; "
        "longer if further ways may lift a limit."
    )


def say_first_findings(summary: Summary, diagnosis: Diagnosis | None) -> None:
    """Say what limits today's way after its first trial, or why the trial is invalid."""
    if not diagnosis:
        say("\nThe first trial is invalid, so its numbers do not count:")
        sentences = [reason for trial in summary.trials for reason in trial.reasons]
    else:
        say("\nSo far, after one trial of today's way:")
        sentences = diagnosis.sentences
    for sentence in sentences:
        say(f"- {sentence}")
    say("")


def reached_load(folder: Path, summary: Summary) -> bool:
    """Whether any trial of a run got as far as its load."""
    trials = [read_trial(trial_folder(folder, *trial.key)) for trial in summary.trials]
    return any(trial.outcome != "failed" for trial in trials)


@contextmanager
def keeping_first_answer(folder: Path, command: str) -> Iterator[None]:
    """If the block fails or is interrupted, say how to read the first answer, and how to measure the other ways."""
    try:
        with interruptible():
            yield
    except BaseException:
        say(f"The first answer is kept: {report_path(folder)}\n"
            f"To read it: stampede report {folder}\nTo measure the other ways: {command}")  # fmt: skip
        raise

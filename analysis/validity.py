"""Whether a measurement can be believed, decided before any of its numbers is shown."""

from typing import Literal, NamedTuple

from analysis.quantities import Model
from analysis.run_folder import Run, Trial

Verdict = Literal["valid", "suspect", "invalid"]

FAILURES_ALLOWED = 0.01
BUSY_BEFORE_ALLOWED = 0.25
STEAL_ALLOWED = 0.02
BUSY_DURING_ALLOWED = 0.85

_K6_MEASURED = {0, 99}  # 99: a threshold of the script was crossed, which is a finding


class TrialValidity(Model):
    """The verdict on one trial. ``reasons`` says why it is not valid, or what to keep in mind although it is."""

    variant: str
    load: str
    trial: int
    verdict: Verdict
    reasons: list[str]


class Validity(Model):
    """The verdict on a run: that of its worst trial, with everything that gives reason to doubt."""

    verdict: Verdict
    reasons: list[str]


class ClassCount(NamedTuple):
    """How many requests of one class a trial sent, and how many of them failed."""

    request: str
    sent: int
    failed: int


def judge_trial(
    trial: Trial, classes: list[ClassCount], errors: list[str], problem: str | None = None
) -> TrialValidity:
    """Judge one trial from its record, its requests by class, and the kinds of error they met, frequent ones first.

    Each class is judged by itself: few slow requests that all fail are not to vanish among many quick ones.
    ``problem`` is why the trial's points could not be read, if they could not.
    """
    invalid: list[str] = []
    suspect: list[str] = []
    notes: list[str] = []
    if trial.outcome != "measured":
        invalid.append(f"{trial.outcome}: {trial.reason}")
    elif trial.k6_exit_code not in _K6_MEASURED:
        invalid.append(f"k6 ended with exit code {trial.k6_exit_code}")
    elif problem is not None:
        invalid.append(problem)
    elif not classes:
        invalid.append("no request was sent")
    for one in classes:
        if one.failed == one.sent:
            invalid.append(f"all {one.sent} {one.request} requests failed ({_kinds(errors)})")
        elif one.failed:
            seriously = one.failed > FAILURES_ALLOWED * one.sent
            kind = suspect if seriously else notes
            kind.append(f"{one.failed} of {one.sent} {one.request} requests failed ({_kinds(errors)})")
    if trial.busy_before is not None and trial.busy_before > BUSY_BEFORE_ALLOWED:
        suspect.append(f"the machine was {trial.busy_before:.0%} busy before the load began")
    if trial.busy_during is not None and trial.busy_during > BUSY_DURING_ALLOWED:
        suspect.append(f"the machine was {trial.busy_during:.0%} busy during the load")
    if trial.steal_during is not None and trial.steal_during > STEAL_ALLOWED:
        suspect.append(f"other machines of this host took {trial.steal_during:.1%} of the processor time")
    if trial.k6_exit_code == 99:
        notes.append("a threshold of the load script was crossed (k6 exit code 99)")
    verdict: Verdict = "invalid" if invalid else "suspect" if suspect else "valid"
    return TrialValidity(
        variant=trial.variant,
        load=trial.load,
        trial=trial.trial,
        verdict=verdict,
        reasons=[*invalid, *suspect, *notes],
    )


def judge_missing(run: Run, judged: list[TrialValidity]) -> list[TrialValidity]:
    """Return an invalid verdict for every trial that was planned and left nothing behind."""
    there = {(one.variant, one.load, one.trial) for one in judged}
    planned = [(variant, load, int(number)) for variant, load, number in run.order]
    why = {
        "running": "the run is not over",
        "completed": "its folder is gone",
        "interrupted": "the run was interrupted before",
        "failed": f"the run failed before ({run.reason})",
    }[run.outcome]
    return [
        TrialValidity(variant=variant, load=load, trial=number, verdict="invalid", reasons=[f"not measured: {why}"])
        for variant, load, number in planned
        if (variant, load, number) not in there
    ]


def judge_run(run: Run, trials: list[TrialValidity]) -> Validity:
    """Judge a run from its trials and its record."""
    verdict: Verdict = "valid"
    for worse in ("suspect", "invalid"):
        if any(one.verdict == worse for one in trials):
            verdict = worse
    reasons = [
        f"{one.variant}{_which(run, one)}: {one.verdict}: {reason}" if one.verdict != "valid" else
        f"{one.variant}{_which(run, one)}: {reason}"
        for one in trials
        for reason in one.reasons
    ]  # fmt: skip
    if run.outcome == "running":
        reasons.append("the run did not end: its process was killed, or it is still at work")
    if run.trials == 1:
        reasons.append("one trial of each variant: there is no interval, and another run may differ")
    stand_ins = [f"{image.name} ({image.stand_in})" for image in run.images if image.stand_in]
    if stand_ins:
        reasons.append(f"stand-in base images were used: {', '.join(stand_ins)}")
    if run.git and run.git.dirty:
        reasons.append("the lab's own files had uncommitted changes")
    return Validity(verdict=verdict, reasons=reasons)


def _which(run: Run, one: TrialValidity) -> str:
    words = [one.load] if len(run.loads) > 1 else []
    words += [f"trial {one.trial}"] if run.trials > 1 else []
    return f" ({', '.join(words)})" if words else ""


def _kinds(errors: list[str]) -> str:
    return "; ".join(errors[:3]) or "no reason given"

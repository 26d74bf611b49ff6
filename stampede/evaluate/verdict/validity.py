"""Whether a trial or a run can be trusted. The lab decides this before it shows any numbers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median

from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.metrics.metric import Severity, ValidityIssue
from stampede.evaluate.metrics.servers import own_workers_ended
from stampede.evaluate.read.observation import Reading
from stampede.evaluate.read.trial_data import ClassTotals, RequestTotals, TrialData
from stampede.records.run import ALONE_ALLOWED, OTHERS_CORES, MachineRecord, Run, TrialRecord
from stampede.records.summary import TrialValidity, Validity, Verdict

FAILURES_ALLOWED = 0.01
DROPPED_ALLOWED = 0.01
BUSY_BEFORE_ALLOWED = 0.25
STEAL_ALLOWED = 0.02
BUSY_DURING_ALLOWED = 0.85
PRESSURE_ALLOWED = 0.25
GENERATOR_WAIT_ALLOWED_S = 0.1
LITTLE_ALLOWED = 0.05
CLOCK_STEP_ALLOWED_S = 0.05

_READINGS = 2
"""How many readings of a load generator it takes to know how long the load generator waited."""
_K6_MEASURED = {0, 99}  # 99: the load crossed a threshold of its script, which is a finding


def judge_trials(run: Run, trials: Sequence[TrialData]) -> list[TrialValidity]:
    """Judge every trial of a run; a planned trial that has no record is invalid."""
    judged = [judge_trial(trial) for trial in trials]
    recorded = {trial.key for trial in judged}
    why = {
        "running": "the run is not over", "completed": "its folder is gone",
        "interrupted": "the run was interrupted before", "failed": f"the run failed before ({run.reason})",
    }[run.outcome]  # fmt: skip
    for variant, load, number in run.order:
        if (variant, load, int(number)) not in recorded:
            lacks = {"verdict": "invalid", "reasons": [f"not measured: {why}"]}
            judged.append(TrialValidity(variant=variant, load=load, trial=int(number), **lacks))
    return judged


def judge_trial(trial: TrialData) -> TrialValidity:
    """Judge one trial from its record, its requests, its containers, and each family's doubts.

    The figures of a class of request that failed as a whole are invalid, unless something expected it.
    """
    record = trial.record
    rejected = {
        totals.request_class: f"all {totals.sent} {totals.request_class} requests failed ({_reasons([*totals.errors])})"
        for totals in trial.requests.of_k6
        if totals.failed == totals.sent and not _is_expected(trial, totals)
    }
    issues: list[ValidityIssue] = []
    if record.outcome != "measured":
        issues.append(("invalid", f"{record.outcome}: {record.reason}"))
    elif record.k6_exit_code not in _K6_MEASURED:
        issues.append(("invalid", f"k6 ended with exit code {record.k6_exit_code}"))
    elif trial.raw.problem is not None:
        issues.append(("invalid", trial.raw.problem))
    elif not trial.requests.of_k6:
        issues.append(("invalid", "no request was sent"))
    issues += [*_failures(trial, rejected), *_machine(trial)]
    if record.outcome == "measured" and trial.requests.of_k6:
        issues += [*_load(trial), *(issue for family in FAMILIES for issue in family.issues(trial)), *_work(trial)]
    if record.k6_exit_code == 99:
        issues.append(("note", "a threshold of the load script was crossed (k6 exit code 99)"))
    found = {severity for severity, _ in issues}
    return TrialValidity(
        variant=record.variant, load=record.load, trial=record.trial, verdict=_worst(found),
        reasons=[reason for wanted in ("invalid", "suspect", "note") for kind, reason in issues if kind == wanted],
        notes=[reason for severity, reason in issues if severity == "note"],
        classes={} if "invalid" in found else rejected,
    )  # fmt: skip


def _worst(found: Collection[str]) -> Verdict:
    return "invalid" if "invalid" in found else "suspect" if "suspect" in found else "valid"


def _failures(trial: TrialData, rejected: Mapping[str, str]) -> Iterator[ValidityIssue]:
    """Judge each class by itself, so that failures of a rare class stay visible among many other requests."""
    answered = any(totals.answered for totals in trial.requests.of_k6)
    for totals in trial.requests.classes:
        errors = _reasons([*totals.errors] if totals.of_client else trial.requests.errors)
        name, failed, sent = totals.request_class, totals.failed, totals.sent
        if name in rejected:
            effect = ": their figures are invalid, and the other requests met another load than planned"
            yield "suspect" if answered else "invalid", rejected[name] + (effect if answered else "")
        elif failed == sent:
            yield "note", f"all {sent} {name} requests failed ({errors})"
        elif failed:
            is_serious = failed > FAILURES_ALLOWED * sent and not _is_expected(trial, totals)
            yield "suspect" if is_serious else "note", f"{failed} of {sent} {name} requests failed ({errors})"


def _is_expected(trial: TrialData, totals: ClassTotals) -> bool:
    """Whether failures of a class of request are a finding, so that they are only a note."""
    variant, load, _ = trial.key
    claimed = any(claim.expects_failures_of(variant, load, totals.request_class) for claim in trial.run.claims)
    refused = trial.load.is_of_user_service and totals.refused == totals.failed
    meant = trial.load.crashes or trial.load.overloads or trial.variant.is_replaced or own_workers_ended(trial)
    return totals.of_client or claimed or meant or refused


def _reasons(errors: Sequence[str]) -> str:
    return "; ".join(errors[:3]) or "no reason given"


def _machine(trial: TrialData) -> Iterator[ValidityIssue]:
    record = trial.record
    if (record.busy_before or 0) > BUSY_BEFORE_ALLOWED:
        which = "the busiest machine" if record.machines else "the machine"
        yield "suspect", f"{which} was {record.busy_before:.0%} busy before the load began"
    seen: Sequence[MachineRecord | TrialRecord] = record.machines or [record]
    for machine in seen:
        name, on = (machine.name, f" on {machine.name}") if isinstance(machine, MachineRecord) else ("the machine", "")
        busy, stolen, pressure = (machine.busy_during or 0, machine.steal_during or 0, machine.pressure_during or 0)
        if busy > BUSY_DURING_ALLOWED:
            yield "suspect", f"{name} was {busy:.0%} busy during the load"
        if stolen > STEAL_ALLOWED:
            yield "suspect", f"other machines of this host took {stolen:.1%} of the processor time{on}"
        if trial.run.sleeping and pressure > PRESSURE_ALLOWED:
            yield "suspect", f"something{on} waited for a processor during {pressure:.0%} of the load"
    if record.clock_step_s and abs(record.clock_step_s) > CLOCK_STEP_ALLOWED_S:
        yield "invalid", f"the clock was set by {record.clock_step_s:+.2f} s during the load"


def _work(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that requests that compute take as long as they ask for when sent alone, and no less during the load."""
    calibration, of = trial.record.calibration, trial.load.calibrated
    if not calibration:
        return
    quickest_ms = min((each.quickest_ms for each in trial.requests.classes if each.quickest_ms is not None
                       and not each.of_client and of in (None, each.request_class)), default=None)  # fmt: skip
    asked = f"where it asked for {calibration.service_time_ms:.0f} ms"
    if not calibration.holds(float(trial.variant.settings.get("cpus") or 1)):
        yield "suspect", f"a request alone was at work for {median(calibration.alone_ms):.0f} ms {asked}"
    if quickest_ms is not None and quickest_ms < (1 - ALONE_ALLOWED) * calibration.service_time_ms:
        quickest = f"a request was at work for only {quickest_ms:.0f} ms {asked}"
        yield "suspect", f"{quickest}: the calibration does not hold under load"


def _load(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that the load was sent as planned, and that the load generators kept up."""
    requests, load, dropped = trial.requests, trial.load, trial.raw.dropped
    if load.generators > 1 and requests.generators != load.generators:
        yield "invalid", f"the points of {requests.generators} of {load.generators} load generators are there"
    if dropped:
        share = dropped / (dropped + requests.sent)
        severity: Severity = "invalid" if share > DROPPED_ALLOWED else "suspect"
        if "LATE_MS" in load.settings:  # it has so many users that all of them wait only if requests are late already
            severity = "note"
        elif own_workers_ended(trial):  # while places were empty, requests waited until the load had no free user
            severity = "suspect"
        yield severity, f"the load generator dropped {dropped} iterations, {share:.1%} of what it should have sent"
    known = [within for each in trial.raw.generators if len(within := _during(requests, each)) >= _READINGS]
    spans = ((within[-1].waited_s - within[0].waited_s, within[-1].at - within[0].at) for within in known)
    waited_s = max((waited_s / (span_s or 1.0) for waited_s, span_s in spans), default=0.0)
    if waited_s > GENERATOR_WAIT_ALLOWED_S:
        yield "suspect", f"the load generator waited for a processor {waited_s:.2f} s in every second of the load"
    many_failed = requests.sent - requests.answered > FAILURES_ALLOWED * requests.sent  # k6 does not time their waits
    if requests.in_flight and requests.little and not (load.overloads and many_failed):
        ratio = requests.in_flight / requests.little
        if abs(ratio - 1) > LITTLE_ALLOWED:
            under_way = f"{requests.in_flight:.2f} requests were under way on average"
            expected = f"throughput times response time is {requests.little:.2f}"
            yield "suspect", f"Little's law does not hold: {under_way}, {expected}"


def _during(requests: RequestTotals, readings: tuple[Reading, ...]) -> list[Reading]:
    """Return the readings since the first request, because k6 needs seconds to start a thousand virtual users."""
    return [reading for reading in readings if requests.began is not None and reading.at >= requests.began]


_RULES: dict[str, Callable[[TrialData], bool]] = {
    "whether something waited for a processor, because the kernel has no pressure information":
        lambda trial: trial.run.sleeping and trial.record.pressure_during is None,
    "whether other machines took processor time, because the kernel does not report it":
        lambda trial: trial.record.steal_during is None,
    "whether the load generator waited for a processor, because the kernel does not report it, or the load was too "
    "short": lambda trial: any(len(_during(trial.requests, each)) < _READINGS for each in trial.raw.generators or [()]),
    "whether a limit kept a container from computing, because the kernel does not report it":
        lambda trial: any(each.after and each.after.throttled_s is None for each in trial.containers),
    "whether a container ran out of memory, because the kernel does not report it":
        lambda trial: any(each.after and each.after.out_of_memory is None for each in trial.containers),
}  # fmt: skip
"""For each rule that needs something that not every machine reports: how a trial shows that it is missing."""


def unapplied(trials: Sequence[TrialData]) -> Iterator[str]:
    """Yield which rules could not be applied to which of the measured ``trials``."""
    measured = [trial for trial in trials if trial.record.outcome == "measured" and trial.requests.of_k6]
    for what, is_missing in _RULES.items():
        if missing := sum(map(is_missing, measured)):
            where = f" in {missing} of {len(measured)} trials" if missing < len(measured) else ""
            yield f"not checked{where}: {what}"


def seconds_of_round(trials: Sequence[TrialData]) -> float:
    """Return about how many seconds it took to measure every variant once under every load."""
    times = [datetime.fromisoformat(time) for trial in trials for time in (trial.record.began, trial.record.ended)]
    rounds = len({trial.record.trial for trial in trials})
    return (max(times) - min(times)).total_seconds() / rounds if rounds else 0.0


def several_clocks(trials: Sequence[TrialData]) -> Iterator[str]:
    """Yield how well the least certain clocks are known, if containers ran on several machines."""
    known = [trial.raw.clocks.worst for trial in trials if trial.raw.clocks]
    if least := max(filter(None, known), key=lambda pair: pair[2], default=None):
        asking, serving, seconds = least
        clocks = f"the clocks of {asking} and {serving} are known to within {1000 * seconds:.2f} ms of each other"
        yield f"times of several machines were compared: {clocks}"


def judge_run(run: Run, trials: Sequence[TrialValidity], further: Sequence[str]) -> Validity:
    """Judge a run from its trials and its record; ``further`` has more reasons to doubt its numbers."""
    of_trials = [
        (f"{trial_name(run, trial)}: {'' if reason in trial.notes else f'{trial.verdict}: '}{reason}", trial, reason)
        for trial in trials
        for reason in trial.reasons
    ]
    reasons: list[str] = []
    if run.outcome == "running":
        reasons.append("the run did not end: its process was killed, or it is still at work")
    if run.trials == 1:
        why = "no claim is decided, because another start of the servers may differ"
        reasons.append(f"one trial of each variant: {why}")
    ways = {load.settings.get("CPU") for load in run.loads}
    most = max((variant.workers for variant in run.variants), default=0)
    if "hold" in ways:
        reasons.append("computing was imitated: requests held the interpreter lock without using a core (CPU=hold)")
    if "burn" in ways and run.cores < most + OTHERS_CORES:
        reasons.append(f"{most} workers computed on {run.cores} cores (CPU=burn): they waited for cores, too")
    for what in ("cpu", "kernel", "engine"):
        having: dict[str, list[str]] = {}
        for machine in run.machines:
            if machine.role != "load":
                having.setdefault(getattr(machine.host, what), []).append(machine.name)
        if len(having) > 1:
            said = "; ".join(f"{value} on {', '.join(names)}" for value, names in having.items())
            reasons.append(f"the machines for servers differ in their {what}: {said}")
    reasons += further
    if stand_ins := [f"{image.name} ({image.stand_in})" for image in run.images if image.stand_in]:
        reasons.append(f"stand-in base images were used: {', '.join(stand_ins)}")
    if run.git and run.git.dirty:
        reasons.append("the lab's own files had uncommitted changes")
    return Validity(
        verdict=_worst({trial.verdict for trial in trials}),
        reasons=[*(told for told, *_ in of_trials), *reasons],
        of_run=reasons,
        notes=[told for told, trial, reason in of_trials if reason in trial.notes],
    )


def trial_name(run: Run, trial: TrialValidity) -> str:
    """Return the variant of a trial, with its load and its number if the run has several."""
    words = [trial.load] if len(run.loads) > 1 else []
    words += [f"trial {trial.trial}"] if run.trials > 1 else []
    return trial.variant + (f" ({', '.join(words)})" if words else "")

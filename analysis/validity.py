"""Whether a measurement can be believed, decided before any of its numbers is shown."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

from analysis.bursts import Sending
from analysis.intervals import NOMINAL_FROM, coverage
from analysis.read.observation import Container, Observation, Reading, balanced, counted_by_worker, database_of
from analysis.record import OTHERS_CORES, LoadRecord, Run, TrialRecord, VariantRecord
from analysis.result import TrialValidity, Validity, Verdict
from analysis.visits import Posts, written

FAILURES_ALLOWED = 0.01
DROPPED_ALLOWED = 0.01
BUSY_BEFORE_ALLOWED = 0.25
STEAL_ALLOWED = 0.02
BUSY_DURING_ALLOWED = 0.85
PRESSURE_ALLOWED = 0.25
GENERATOR_WAIT_ALLOWED_S = 0.1
THROTTLED_ALLOWED = 0.01
LITTLE_ALLOWED = 0.05
CLOCK_STEP_ALLOWED_S = 0.05
ALONE_ALLOWED = 0.05

_K6_MEASURED = {0, 99}  # 99: a threshold of the script was crossed, which is a finding

Doubt = tuple[Literal["invalid", "suspect", "note"], str]


class ClassCount(NamedTuple):
    """How many requests of one class a trial sent, and how many of them failed."""

    request: str
    sent: int
    failed: int


class Requests(NamedTuple):
    """What the rows of a trial say as a whole.

    ``began`` is when the first was sent, in epoch seconds. ``with_status`` had an answer of any kind. ``in_flight`` is
    the mean number of requests under way, from the times at which they were sent and answered; ``little`` what it
    should be: throughput times mean response time, by k6's own timings. ``by_worker`` counts answers by the worker
    (host:pid) that they name. ``quickest_ms`` is the shortest time that a worker was at work. ``direct_sent`` went
    past the balancer, ``direct_with_status`` of them were answered. ``sending`` is how bursts were sent;
    None: the load has none. ``generators`` is how many k6 there are requests of, ``posts`` what visits wrote.
    """

    began: float | None
    classes: list[ClassCount]
    errors: list[str]
    with_status: int
    by_worker: dict[str, int]
    in_flight: float | None
    little: float | None
    quickest_ms: float | None = None
    direct_sent: int = 0
    direct_with_status: int = 0
    sending: Sending | None = None
    generators: int = 1
    posts: Posts = Posts()

    @property
    def sent(self) -> int:
        """All requests."""
        return sum(one.sent for one in self.classes)

    @property
    def answered(self) -> int:
        """The requests that did not fail."""
        return sum(one.sent - one.failed for one in self.classes)


class Evidence(NamedTuple):
    """What else is known of a trial: its containers, its load generators, what the points say besides requests.

    ``generators`` has the readings of each. ``problem`` is why the raw files could not be read, if they could not.
    """

    containers: tuple[Container, ...] = ()
    generators: tuple[tuple[Reading, ...], ...] = ()
    dropped: int = 0
    problem: str | None = None


def judge_trial(run: Run, trial: TrialRecord, requests: Requests, evidence: Evidence) -> TrialValidity:
    """Judge one trial from its record, its requests, and what the containers said of themselves."""
    doubts = [*_record(trial, requests, evidence), *_failures(run, trial, requests), *_machine(run, trial)]
    if trial.outcome == "measured" and requests.sent:
        variant, load = run.variant(trial.variant), run.load(trial.load)
        doubts += _load(requests, load, evidence)
        doubts += _bursts(requests, load)
        doubts += _counts(requests, variant, load, evidence.containers)
        doubts += _servers(run, trial, variant, evidence.containers)
        doubts += _database(requests, load, evidence.containers)
        doubts += _work(trial, requests)
    if trial.k6_exit_code == 99:
        doubts.append(("note", "a threshold of the load script was crossed (k6 exit code 99)"))
    kinds = {kind for kind, _ in doubts}
    return TrialValidity(
        variant=trial.variant,
        load=trial.load,
        trial=trial.trial,
        verdict="invalid" if "invalid" in kinds else "suspect" if "suspect" in kinds else "valid",
        reasons=[reason for wanted in ("invalid", "suspect", "note") for kind, reason in doubts if kind == wanted],
    )


def _record(trial: TrialRecord, requests: Requests, evidence: Evidence) -> Iterator[Doubt]:
    if trial.outcome != "measured":
        yield "invalid", f"{trial.outcome}: {trial.reason}"
    elif trial.k6_exit_code not in _K6_MEASURED:
        yield "invalid", f"k6 ended with exit code {trial.k6_exit_code}"
    elif evidence.problem is not None:
        yield "invalid", evidence.problem
    elif not requests.sent:
        yield "invalid", "no request was sent"


def _failures(run: Run, trial: TrialRecord, requests: Requests) -> Iterator[Doubt]:
    """Judge each class by itself: few slow requests that all fail are not to vanish among many quick ones.

    Where a claim says that they fail, a request kills its worker, or the load is more than can be answered, failures
    are the finding, and no reason to doubt it.
    """
    load = run.load(trial.load)
    kinds = "; ".join(requests.errors[:3]) or "no reason given"
    for one in requests.classes:
        claimed = any(claim.expects_failures_of(trial.variant, trial.load, one.request) for claim in run.claims)
        expected = claimed or load.crashes or load.overloads
        if one.failed == one.sent:
            yield "note" if expected else "invalid", f"all {one.sent} {one.request} requests failed ({kinds})"
        elif one.failed:
            seriously = one.failed > FAILURES_ALLOWED * one.sent and not expected
            reason = f"{one.failed} of {one.sent} {one.request} requests failed ({kinds})"
            yield "suspect" if seriously else "note", reason


def _machine(run: Run, trial: TrialRecord) -> Iterator[Doubt]:
    if trial.busy_before is not None and trial.busy_before > BUSY_BEFORE_ALLOWED:
        yield "suspect", f"the machine was {trial.busy_before:.0%} busy before the load began"
    if trial.busy_during is not None and trial.busy_during > BUSY_DURING_ALLOWED:
        yield "suspect", f"the machine was {trial.busy_during:.0%} busy during the load"
    if trial.steal_during is not None and trial.steal_during > STEAL_ALLOWED:
        yield "suspect", f"other machines of this host took {trial.steal_during:.1%} of the processor time"
    if run.sleeping and trial.pressure_during is not None and trial.pressure_during > PRESSURE_ALLOWED:
        yield "suspect", f"something waited for a processor during {trial.pressure_during:.0%} of the load"
    if trial.clock_step_s is not None and abs(trial.clock_step_s) > CLOCK_STEP_ALLOWED_S:
        yield "invalid", f"the clock was set by {trial.clock_step_s:+.2f} s during the load"


def _work(trial: TrialRecord, requests: Requests) -> Iterator[Doubt]:
    """Did requests that compute do so for as long as they asked for: alone before the load, and no less during it?"""
    if not trial.calibration:
        return
    asked_ms, alone_ms = trial.calibration.asked_ms, median(trial.calibration.alone_ms)
    if abs(alone_ms - asked_ms) > ALONE_ALLOWED * asked_ms:
        yield "suspect", f"a request alone was at work for {alone_ms:.0f} ms where it asked for {asked_ms:.0f} ms"
    if requests.quickest_ms is not None and requests.quickest_ms < (1 - ALONE_ALLOWED) * asked_ms:
        quickest = f"{requests.quickest_ms:.0f} ms where it asked for {asked_ms:.0f} ms"
        yield "suspect", f"a request was at work for only {quickest}: the calibration does not hold under load"


def _load(requests: Requests, load: LoadRecord, evidence: Evidence) -> Iterator[Doubt]:
    """Was the load what was asked for, and did the load generators keep up?

    Where a load is more than can be answered, k6 does not time the waits of the many that failed.
    """
    if load.generators > 1 and requests.generators != load.generators:
        yield "invalid", f"the points of {requests.generators} of {load.generators} load generators are there"
    if evidence.dropped:
        share = evidence.dropped / (evidence.dropped + requests.sent)
        kind: Literal["invalid", "suspect"] = "invalid" if share > DROPPED_ALLOWED else "suspect"
        yield kind, f"the load generator dropped {evidence.dropped} iterations, {share:.1%} of what it should have sent"
    waited_s = max((_generator_wait(requests, readings) for readings in evidence.generators), default=0.0)
    if waited_s > GENERATOR_WAIT_ALLOWED_S:
        yield "suspect", f"the load generator waited for a processor {waited_s:.2f} s in every second of the load"
    many_failed = requests.sent - requests.answered > FAILURES_ALLOWED * requests.sent
    if requests.in_flight and requests.little and not (load.overloads and many_failed):
        ratio = requests.in_flight / requests.little
        if abs(ratio - 1) > LITTLE_ALLOWED:
            under_way = f"{requests.in_flight:.2f} requests were under way on average"
            expected = f"throughput times response time is {requests.little:.2f}"
            yield "suspect", f"Little's law does not hold: {under_way}, {expected}"


def _bursts(requests: Requests, load: LoadRecord) -> Iterator[Doubt]:
    """Were the requests of a burst all under way before one of them was answered?"""
    if not requests.sending:
        return
    bursts, early, in_last = requests.sending
    if early:
        yield "suspect", f"in {early} of {bursts} bursts a request was answered before the last one was sent"
    if in_last != load.burst:
        yield "suspect", f"the last burst has {in_last} of {load.burst} requests"


def _generator_wait(requests: Requests, readings: tuple[Reading, ...]) -> float:
    """Return how long k6's threads waited for a processor in a second of the load; 0 when too few readings tell.

    Starting up does not count: a thousand virtual users take seconds to be made.
    """
    within = [one for one in readings if requests.began is not None and one.at >= requests.began]
    if len(within) < 2:
        return 0.0
    return (within[-1].waited_s - within[0].waited_s) / (within[-1].at - within[0].at or 1.0)


def _counts(
    requests: Requests, variant: VariantRecord, load: LoadRecord, containers: tuple[Container, ...]
) -> Iterator[Doubt]:
    """Do the load generators, the balancer and the workers tell of the same requests?

    Where some failed, the load generators cannot know how far they got: then the counts must lie between what was sent
    and what was answered; otherwise they must be equal. Without a balancer there is one count less. A worker that is
    killed may have answered a request that it had no time to count.
    """
    asked_directly = variant.settings.get("balancer") == "none"
    passed = requests.sent - requests.direct_sent if asked_directly else balanced(containers)
    by_worker = counted_by_worker(containers, "served")
    wrong: Literal["invalid", "suspect"] = "suspect" if load.crashes else "invalid"
    if passed is None or not by_worker:
        yield "suspect", "the servers were not observed before and after the load: nothing confirms the counts"
        return
    workers = sum(by_worker.values())
    sent, with_status = requests.sent - requests.direct_sent, requests.with_status - requests.direct_with_status
    if not with_status <= passed <= sent:
        said = f"{sent} requests were sent and {with_status} answered"
        yield wrong, f"the counts disagree: {said}, the balancer served {passed}"
    if not requests.answered <= workers <= max(passed + requests.direct_sent, requests.answered):
        said = f"{requests.answered} requests were answered by a worker"
        said += ", the workers served" if asked_directly else f", the balancer served {passed}, the workers"
        yield wrong, f"the counts disagree: {said} {workers}"
    for worker in sorted(by_worker.keys() | requests.by_worker.keys()):
        named, counted = requests.by_worker.get(worker, 0), by_worker.get(worker, 0)
        if named > counted or (named < counted and requests.sent == requests.answered):
            yield wrong, f"the counts disagree: {named} answers name worker {worker}, which counted {counted}"


def _servers(
    run: Run, trial: TrialRecord, variant: VariantRecord, containers: tuple[Container, ...]
) -> Iterator[Doubt]:
    """Were the servers what the variant asks for, from the beginning to the end, and nothing else in their way?

    Where a request kills its worker, or the server is elastic, workers come and go. Where the load is more than can be
    answered, a full queue and a limit that is reached are the finding.
    """
    load = run.load(trial.load)
    living, living_after = 0, 0
    changed: Literal["invalid", "note"] = "note" if load.crashes else "invalid"
    full_kind: Literal["suspect", "note"] = "note" if load.overloads else "suspect"
    for one in containers:
        if one.before is None or one.after is None:
            yield "suspect", f"{one.name} was not observed {'before' if one.before is None else 'after'} the load"
            continue
        memory = " (out of memory)" if one.after.out_of_memory > one.before.out_of_memory else ""
        if variant.elastic:
            yield from _came_and_went(one.name, one.before, one.after, memory)
        else:
            if lost := one.before.workers - one.after.workers:
                yield changed, f"{one.name} lost {_workers(lost)} during the load{memory}"
            if new := one.after.workers - one.before.workers:
                yield changed, f"{one.name} started {_workers(new)} during the load"
        if full := one.after.listen_overflows - one.before.listen_overflows:
            yield full_kind, f"the listen queue of {one.name} was full for {full} connections"
        throttled_s = one.after.throttled_s - one.before.throttled_s
        if trial.seconds.load and throttled_s > THROTTLED_ALLOWED * trial.seconds.load:
            reason = f"{one.name} was kept from computing by its limit for {throttled_s:.1f} s"
            yield full_kind if run.sleeping else "note", reason
        living += len(one.before.workers)
        living_after += len(one.after.workers)
        if one.before.workers:
            yield from _accept_model(one.name, one.before, variant)
    if variant.elastic and (most := max(living, living_after)) > variant.workers:
        yield "invalid", f"{most} workers served where at most {variant.workers} were asked for"
    if not variant.elastic and living and living != variant.workers:
        yield "invalid", f"{living} workers served where {variant.workers} were asked for"


def _came_and_went(name: str, before: Observation, after: Observation, memory: str) -> Iterator[Doubt]:
    """Say how many workers an elastic server started and ended; of those that did both, the ones it remembers."""
    known = before.workers | before.counts.keys()
    started = (after.workers | after.counts.keys()) - known
    ended = (before.workers | started) - after.workers
    if started or ended:
        yield "note", f"{name} started {len(started)} and ended {len(ended)} workers during the load{memory}"


def _database(requests: Requests, load: LoadRecord, containers: tuple[Container, ...]) -> Iterator[Doubt]:
    """Does the database have a row of every visit that was told so, and of no other, and did it let everybody in?"""
    if load.database is None:
        return
    one = database_of(containers)
    if one is None or one.after is None or one.after.rows is None:
        yield "invalid", "the database was not observed after the load: nobody knows which rows were written"
        return
    if one.before and one.before.rows:
        yield "invalid", f"the database had {_rows(len(one.before.rows))} before the load"
    found = written(one.after.rows, requests.posts)
    if found.lost:
        yield "invalid", f"{_rows_are(len(found.lost))} lost: {_of_visits(found.lost)}"
    if found.doubled:
        yield "invalid", f"{_rows_are(len(found.doubled))} doubled: {_of_visits(found.doubled)}"
    if found.foreign:
        yield "invalid", f"{_rows(found.foreign)} belong{'s' if found.foreign == 1 else ''} to no visit"
    if found.unreported:
        were = f"{_rows(found.unreported)} {'was' if found.unreported == 1 else 'were'}"
        yield "note", f"{were} written for visits that were told of a failure"
    before = one.before.database if one.before else {}
    if refused := one.after.database.get("connections_refused", 0) - before.get("connections_refused", 0):
        connections = f"{refused} connection{'' if refused == 1 else 's'}"
        yield "note" if load.overloads else "suspect", f"the database refused {connections}"


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _rows_are(count: int) -> str:
    return f"{_rows(count)} {'is' if count == 1 else 'are'}"


def _of_visits(names: Sequence[str]) -> str:
    """Return the first three of some visits by name."""
    return f"visit{'' if len(names) == 1 else 's'} {', '.join(names[:3])}{', …' if len(names) > 3 else ''}"


def _accept_model(name: str, observed: Observation, variant: VariantRecord) -> Iterator[Doubt]:
    """Do the workers hold the listening sockets that the variant asks for?"""
    held = [observed.holds[worker] for worker in sorted(observed.workers)]
    sockets = frozenset[int]().union(*held)
    if variant.accept is None:
        return
    if variant.accept == "shared":
        right = len(sockets) == 1 and all(one == sockets for one in held)
        wanted = "one socket that all share"
    else:
        right = all(len(one) == 1 for one in held) and len(sockets) == len(held)
        wanted = "a socket of their own each"
    if not right:
        count = f"{len(sockets)} listening socket{'' if len(sockets) == 1 else 's'}"
        yield "invalid", f"the workers of {name} hold {count}, not {wanted}"


def _workers(some: set[int]) -> str:
    return f"worker{'s' if len(some) > 1 else ''} {', '.join(map(str, sorted(some)))}"


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


def judge_run(run: Run, trials: list[TrialValidity], too_few: list[str]) -> Validity:
    """Judge a run from its trials and its record; ``too_few`` says which percentiles its samples do not carry."""
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
    elif run.trials < NOMINAL_FROM:
        reasons.append(
            f"{run.trials} trials of each variant: the intervals are their range, "
            f"which holds the true median in {coverage(run.trials):.0%} of all cases"
        )
    reasons += [*_computing(run), *too_few]
    stand_ins = [f"{image.name} ({image.stand_in})" for image in run.images if image.stand_in]
    if stand_ins:
        reasons.append(f"stand-in base images were used: {', '.join(stand_ins)}")
    if run.git and run.git.dirty:
        reasons.append("the lab's own files had uncommitted changes")
    return Validity(verdict=verdict, reasons=reasons)


def _computing(run: Run) -> Iterator[str]:
    """Say how requests computed, where that is not what they do elsewhere."""
    ways = {load.settings.get("CPU") for load in run.loads}
    most = max((one.workers for one in run.variants), default=0)
    if "hold" in ways:
        yield "computing was imitated: requests held the interpreter lock without using a core (CPU=hold)"
    if "burn" in ways and run.host.cores < most + OTHERS_CORES:
        yield f"{most} workers computed on {run.host.cores} cores (CPU=burn): they waited for cores, too"


def _which(run: Run, one: TrialValidity) -> str:
    words = [one.load] if len(run.loads) > 1 else []
    words += [f"trial {one.trial}"] if run.trials > 1 else []
    return f" ({', '.join(words)})" if words else ""

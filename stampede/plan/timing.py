"""About how long the steps of a run take.

The constants are fitted to runs of all experiments on two cores. Only the load lasts as long on every machine.
"""

from collections.abc import Sequence
from math import ceil
from operator import sub
from statistics import fmean

from stampede.experiment.loads.script import ANSWER_WITHIN_S, numbers_of, service_time_ms
from stampede.experiment.model import Load
from stampede.plan import Plan, PlannedTrial
from stampede.records.traffic import TrafficClass, in_seconds
from stampede.servers.base import Variant

READY_S, PREDICT_S = 1, 0.15
"""From the plan to the first step, if engine and images are there; and to predict one variant under one load."""
REPORT_S, REPORT_EACH_S = 1.5, 0.1
"""How long it takes to compute and draw the results: in any case, and for each trial."""
UP_S, UP_EACH_S, DATABASE_UP_S = 1.8, 0.22, 3.5
"""How long servers take to start, further for each container of the batch, and further with a database."""
SETTLE_S, SETTLE_BUSY_S = 0.4, 10
"""How long the lab waits before each load until the machine is quiet: on a quiet machine, and on a busy one."""
BUSY = 1.5
"""How many times longer a busy machine takes for everything but waiting and loads."""
OBSERVE_S = 0.3
GENERATOR_UP_S, FURTHER_GENERATOR_UP_S = 0.5, 0.3
"""How long the load generators of a batch need to start up: the first, and each further one."""
COLLECT_S, DOWN_S, DOWN_EACH_S = 0.3, 0.5, 0.18
"""How long it takes to keep what was measured, and to remove containers: in any case, and for each container."""
SINGLE_S, CALIBRATE_SHORT, CALIBRATE_LONG, LONG_S = 0.1, 11, 4, 0.5
"""What a single request takes beside its work, and how many calibrate a trial: short ones, and those from LONG_S."""
ALONE_S, IMAGE_S = 2, 60
"""For somebody's own application: single requests of every class; and to install a few packages, and to load it."""
WAITS, GENERATOR_DOWN_S = 0.15, 0.7
"""How much longer than its work a long request takes, because it also waits; and to begin and end a generator."""


def expected_s(plan: Plan, *, busy: bool = False, check: bool = False) -> int:
    """Return about how long a run takes, from its plan to its results, if all images are there.

    ``busy``: other programs keep the machine busy. ``check``: somebody's own application is asked once before.
    """
    return round(before_s(plan, busy=busy, check=check) + sum(batches_s(plan, busy=busy)) + report_s(plan, busy=busy))


def report_s(plan: Plan, *, busy: bool = False) -> float:
    """Return about how long it takes until the results are there, after the last batch has ended."""
    return (BUSY if busy else 1) * (REPORT_S + REPORT_EACH_S * len(plan.trials))


def batches_s(plan: Plan, *, busy: bool = False) -> list[float]:
    """Return about how long each batch takes."""
    return [batch_s(batch, busy=busy) for batch in plan.batches]


def left_s(expected_s: Sequence[float], took_s: Sequence[float], spent_s: float) -> float:
    """Return about how long the batches of a run still take, in seconds.

    ``expected_s`` is how long each batch should take, and ``took_s`` how long the first batches did take; the others
    will be as late, or as early, as these were on average. ``spent_s`` has passed since the last of them ended.
    """
    late_s = fmean(map(sub, took_s, expected_s)) if took_s else 0.0
    now_s, *later = [*(each_s + late_s for each_s in expected_s[len(took_s) :]), 0]
    return max(now_s - spent_s, 0) + sum(later)


def before_s(plan: Plan, *, busy: bool = False, check: bool = False) -> float:
    """Return about how long it takes until the first batch begins."""
    cells = {(trial.variant_name, trial.load_name) for trial in plan.trials}
    first = [plan.batches[0][0]] if check and plan.trials[0].variant.workload else []
    checks_s = up_s(first) + ALONE_S + down_s(first) if first else 0
    return (BUSY if busy else 1) * (READY_S + PREDICT_S * len(cells) + checks_s)


def batch_s(batch: Sequence[PlannedTrial], *, busy: bool = False) -> float:
    """Return about how long the trials of a batch take side by side."""
    calibrated = [calibrate_s(trial.load) for trial in batch if trial.load.computes]
    settle_s = (SETTLE_BUSY_S if busy else SETTLE_S) * (2 if calibrated else 1)
    works_s = up_s(batch) + sum(calibrated) + OBSERVE_S + COLLECT_S + down_s(batch)
    waits_s = settle_s + generators_up_s(batch[0].load, len(batch)) + max(map(load_s, batch))
    return (BUSY if busy else 1) * works_s + waits_s


def up_s(batch: Sequence[PlannedTrial]) -> float:
    """Return about how long the servers of a batch take to start."""
    databases = sum(bool(trial.load.database) for trial in batch)
    return UP_S + UP_EACH_S * _containers(batch) + DATABASE_UP_S * databases


def down_s(batch: Sequence[PlannedTrial]) -> float:
    """Return about how long it takes to remove the containers of a batch."""
    return DOWN_S + DOWN_EACH_S * _containers(batch)


def _containers(batch: Sequence[PlannedTrial]) -> int:
    return sum(trial.variant.replicas + len(trial.services_beside) + trial.load.generators for trial in batch)


def calibrate_s(load: Load) -> float:
    """Return about how long it takes to calibrate requests that compute."""
    takes_s = service_time_ms(load.settings) / 1000
    return (CALIBRATE_LONG if takes_s >= LONG_S else CALIBRATE_SHORT) * (takes_s + SINGLE_S)


def generators_up_s(load: Load, trials: int) -> float:
    """Return how long before a load of trials its generators are started, so that all begin at the same time."""
    return GENERATOR_UP_S + FURTHER_GENERATOR_UP_S * (load.generators * trials - 1)


def load_s(trial: PlannedTrial) -> float:
    """Return about how long a load takes: until its last requests are sent, and until they are answered.

    If users keep more connections open than a server holds, the others are served when these have been idle for long
    enough, or give up a minute after they have asked.
    """
    load, variant, duration_s = trial.load, trial.variant, in_seconds(trial.duration)
    most, idle_s = variant.idle_limit if variant.idle_limit and variant.balancer == "none" else (0, 0.0)
    turns = ceil(load.declared.users_at_once(load.settings) / (most * variant.workers)) if most else 1
    if load.client and variant.can_deadlock:  # then k6 waits for as long as it ever does
        answers_s = load.grace_s(trial.duration)
    elif turns > 1 and idle_s and load.loop == "closed":
        answers_s = min((turns - 1) * idle_s, -duration_s % ANSWER_WITHIN_S)
    elif load.relative:  # what comes at twice the capacity takes as long again
        answers_s = max(load.relative.times - 1, 0) * duration_s
    elif load.declared.kind in ("burst", "crash"):
        answers_s = _burst_s(variant, load)
    else:
        traffic = load.declared.traffic(load.settings).classes
        answers_s = max((_under_way_s(asked, duration_s) for asked in traffic.values()), default=0.0)
    return load.declared.last_sent_s(numbers_of(load.settings), duration_s) + answers_s + GENERATOR_DOWN_S


def _under_way_s(asked: TrafficClass, duration_s: float) -> float:
    """Return about how long a request still takes that is under way when a load ends: half of its work.

    Users who never pause, and whose requests all take the same time, send them at known times.
    """
    takes_s = asked.rounds * sum(work.mean_s for work in asked.work)
    known = asked.users and not asked.pause_s and all(isinstance(work.takes_s, int | float) for work in asked.work)
    return WAITS * takes_s + (-duration_s % takes_s if known and takes_s else takes_s / 2)


def _burst_s(variant: Variant, load: Load) -> float:
    """Return how long requests take that come at once: in rounds of as many as the threads serve, if nobody races.

    On an event loop, all of them wait at the same time, but requests that compute or call take turns in each worker.
    """
    requests, takes_s = load.declared.users_at_once(load.settings), service_time_ms(load.settings) / 1000
    workers, queueing = variant.workers * variant.replicas, variant.queueing
    does = load.settings.get("does")
    if load.api and load.api.one_device:
        return requests * takes_s
    takes_turns = queueing.blocks_loop or (queueing.loop and does in ("compute", "call"))
    at_once = 1 if takes_turns else queueing.threads or (requests if queueing.loop else 1)
    computes_s = float(load.settings.get("rounds", 0)) * float(load.settings.get("cpu_ms", 0)) / 1000
    return max(ceil(requests / workers / at_once) * takes_s, ceil(requests / workers) * computes_s)

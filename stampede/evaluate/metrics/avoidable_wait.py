"""Which requests waited for a worker whose threads were all busy while another worker had a free thread.

``stampede.evaluate.metrics.waiting`` computes the waits for this family and for the picture of the waits.
"""

from collections.abc import Iterator
from statistics import fmean

import duckdb
import numpy as np

from stampede.evaluate.metrics import AVOIDABLE_WAIT, RECOVERY, waiting
from stampede.evaluate.metrics.likely import blocks, likely_share
from stampede.evaluate.metrics.metric import Family, MetricValues, ValidityIssue
from stampede.evaluate.metrics.simulated import SimulatedTrial
from stampede.evaluate.read.observation import stalls_within
from stampede.evaluate.read.trial_data import TrialData

CLEAR = 0.1
"""Clocks of several machines must be known to within this part of the shortest wait that counts."""


def _measure(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[MetricValues]:
    """Yield how long requests of each class waited beside a free thread, and how long the servers took to recover.

    Yield nothing if the load kills workers, because the number of workers at each moment is then unknown.
    """
    if trial.load.crashes or not (waiting.has_known_waits(trial.variant) or _has_stalls(trial)):
        return
    answered = waiting.read_answered(database, *trial.key)
    if waits := waiting.waits_of_variant(trial.variant, answered):
        of_class = [(name, answered.request_class == place) for place, name in enumerate(answered.classes)]
        for request_class, mine in [*of_class, (None, answered.request_class >= 0)]:
            beside_s = waits.beside_s[mine]
            likely = () if trial.load.burst else likely_share(beside_s > waiting.FROM_S, blocks(answered.sent_s[mine]))
            stats = AVOIDABLE_WAIT.keyed(waiting.wait_statistics(beside_s))
            yield MetricValues(request_class, stats, likely={(AVOIDABLE_WAIT.name, "share"): likely})
    stalls = stalls_within(trial.containers, answered.first, answered.last_sent)
    if found_s := list(waiting.recoveries_s(answered, stalls)):
        yield MetricValues(None, RECOVERY.keyed({"avg": 1000 * fmean(found_s), "max": 1000 * max(found_s)}))


def _has_stalls(trial: TrialData) -> bool:
    return any(container.after and container.after.stalls for container in trial.containers)


def _measure_simulated(trial: SimulatedTrial) -> Iterator[MetricValues]:
    done = trial.answered
    workers, worker = np.unique(trial.rows.worker[done], return_inverse=True)
    answered = waiting.Answered(
        workers=[str(place) for place in workers],
        classes=list(trial.classes),
        first=0.0,
        last=float(trial.rows.ended.max(initial=0)),
        last_sent=float(trial.rows.sent.max(initial=0)),
        worker=worker,
        request_class=trial.rows.of_class[done],
        sent_s=trial.rows.sent[done],
        began_s=trial.rows.began[done],
        ended_s=trial.rows.ended[done],
    )
    if waits := waiting.waits_of_variant(trial.variant, answered):
        for request_class, mine in trial.each_class():
            values = waiting.wait_statistics(waits.beside_s[mine[done]])
            yield MetricValues(request_class, AVOIDABLE_WAIT.keyed(values))


def _issues(trial: TrialData) -> Iterator[ValidityIssue]:
    """Check that the clocks of several machines are known well enough to tell which requests waited."""
    clocks = trial.raw.clocks
    if clocks is None or clocks.worst is None:
        return
    asking, serving, within_s = clocks.worst
    for from_s, what in ((waiting.FROM_S, "a wait counts"), (waiting.NOTICED_S, "a wait after a stall counts")):
        if within_s > CLEAR * from_s and (from_s == waiting.FROM_S or _has_stalls(trial)):
            known = f"the clocks of {asking} and {serving} are known to within {1000 * within_s:.1f} ms of each other"
            yield "suspect", f"{known}, but {what} from {1000 * from_s:.0f} ms on"


FAMILY = Family((AVOIDABLE_WAIT, RECOVERY), _measure, _issues, _measure_simulated)

"""Which requests waited for a worker whose threads were all busy while another worker had a free thread.

``stampede.evaluate.metrics.waiting`` computes the waits for this family and for the picture of the waits.
"""

from collections.abc import Iterator
from statistics import fmean

import duckdb

from stampede.evaluate.metrics import AVOIDABLE_WAIT, RECOVERY, waiting
from stampede.evaluate.metrics.likely import blocks, likely_share
from stampede.evaluate.metrics.metric import Family, Finding, ValidityIssue
from stampede.evaluate.read.observation import stalls_within
from stampede.evaluate.read.requests import Requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord

CLEAR = 0.1
"""Clocks of several machines must be known to within this part of the shortest wait that counts."""


def _measure(requests: Requests, variant: VariantRecord, load: LoadRecord) -> Iterator[Finding]:
    """Yield how long requests of each class waited; nothing if requests kill workers: nobody knows who is there."""
    if load.crashes or not waiting.has_known_waits(variant):
        return
    known, answered = waiting.answered_of(requests)
    if waits := waiting.waits_of_variant(variant, answered):
        in_blocks = not (requests.simulated or load.burst)
        for request_class, mine in requests.each_class():
            beside_s = waits.beside_s[mine[known]]
            counted, block = beside_s > waiting.FROM_S, blocks(answered.sent_s[mine[known]])
            likely = {"share": likely_share(counted, block)} if in_blocks else {}
            yield Finding(AVOIDABLE_WAIT, request_class, waiting.wait_statistics(beside_s), likely)


def _observe(database: duckdb.DuckDBPyConnection, trial: TrialData) -> Iterator[Finding]:
    """Yield how long the servers took to recover from the stalls of a service that they call."""
    if _has_stalls(trial) and not trial.load.crashes:
        answered = waiting.read_answered(database, *trial.key)
        stalls = stalls_within(trial.containers, answered.first, answered.last_sent)
        if found_s := list(waiting.recoveries_s(answered, stalls)):
            yield Finding(RECOVERY, None, {"avg": 1000 * fmean(found_s), "max": 1000 * max(found_s)})


def _has_stalls(trial: TrialData) -> bool:
    return any(container.after and container.after.stalls for container in trial.containers)


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


FAMILY = Family(_measure, _observe, _issues)

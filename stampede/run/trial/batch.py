"""Measure trials side by side, each in its own Compose project and network.

No load starts before all containers of the batch are up and the machine is quiet. No container is removed before all
loads have ended. Whatever happens, the containers are removed and the measured files are kept in the run's folder.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path

from stampede.docker.cluster.engines import Engines, UsageSamplers, UsageUnderLoad
from stampede.docker.cluster.probe import MachineLost
from stampede.docker.commands import Say
from stampede.docker.machine_usage import Progress, Quiet
from stampede.interruption import uninterrupted, wait_for_signal
from stampede.plan import Plan, PlannedTrial, timing
from stampede.records.duration import in_seconds
from stampede.records.run import TODAY, TrialRecord
from stampede.run.trial.checking import ask_for_each_class, log_in
from stampede.run.trial.containers import TrialContainers
from stampede.run.trial.early_end import end_late_loads, end_when_memory_is_short, end_with_servers
from stampede.run.trial.replacing import replace_workers
from stampede.typed import typed

K6_SLACK_S = 60
LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class BatchStep:
    """What is done for each trial at the same time, what the progress says of it, and how long it is expected to take.

    ``stop`` ends the step early after a signal. Without ``stop``, a step does not begin after a signal.
    """

    act: Callable[[TrialContainers], object]
    progress: str
    expected_s: float
    stop: Callable[[TrialContainers], object] | None = None


START = BatchStep(methodcaller("start"), "starting the servers", 4, methodcaller("abort_start"))
CALIBRATE = BatchStep(methodcaller("calibrate"), "calibrating", 2)
LOG_IN = BatchStep(log_in, "logging users in", 2, methodcaller("end_load"))
UNLOADED_LATENCY = BatchStep(methodcaller("measure_unloaded_latency"), "asking alone", 2)
OBSERVE = BatchStep(methodcaller("observe_before"), "observing the servers", 1)
WAIT_FOR_LOAD = BatchStep(methodcaller("wait_for_load"), "load", 0, methodcaller("end_load"))
COLLECT = BatchStep(methodcaller("collect"), "stopping the servers", 1)
REMOVE = BatchStep(methodcaller("remove"), "stopping the servers", 2)


@dataclass
class _Conditions:
    """How busy the machines were before the load and during it, as far as is known."""

    quiet: Quiet | None = None
    usage: UsageUnderLoad | None = None


def measure_plan(plan: Plan, run_folder: Path, progress: Progress, engines: Engines) -> Iterator[list[TrialRecord]]:
    """Measure all trials of a plan, and yield the records of each batch once its folders are complete.

    On an interrupt, stop the current batch, keep its measured files as interrupted trials, and raise KeyboardInterrupt.
    A trial that fails raises no error: its record has the outcome ``failed``.
    """
    for batch in plan.batches:
        yield _measure_batch(batch, run_folder, progress, engines)


def check(plan: Plan, run_folder: Path, progress: Progress, engines: Engines, say: Say) -> None:
    """Start somebody's own application once as it is served today, and send a request of each class, without a load.

    Say how each class was answered. Raise LabError if the application does not start, or if a class is not answered as
    it should be; then the record of the first trial says so.
    """
    own = [trial for trial in plan.trials if trial.variant.workload and trial.variant_name == TODAY]
    if not own:
        return
    start = replace(START, progress="starting your application")
    ask = BatchStep(lambda trial: ask_for_each_class(trial, say), "asking for each class alone", 2, LOG_IN.stop)
    with uninterrupted() as stop_signals:
        trial = TrialContainers(own[0], run_folder, 1, engines, stop_signals)
        with end_with_servers([trial], engines.machines):
            try:
                _do(start, [trial], progress, stop_signals)
                _do(ask, [trial], progress, stop_signals)
            except KeyboardInterrupt:
                trial.interrupt()
                raise
            finally:
                if trial.outcome == "failed" and trial.composed:
                    _do(COLLECT, [trial], progress)
                _do(REMOVE, [trial], progress)
                if not trial.gone or trial.outcome == "failed":
                    _save([trial], _Conditions())
                else:
                    shutil.rmtree(trial.part, ignore_errors=True)


def _measure_batch(
    batch: tuple[PlannedTrial, ...], run_folder: Path, progress: Progress, engines: Engines
) -> list[TrialRecord]:
    with uninterrupted() as stop_signals:  # signals count between two steps and during the load
        trials = [TrialContainers(planned, run_folder, len(batch), engines, stop_signals) for planned in batch]
        with end_with_servers(trials, engines.machines):
            conditions = _Conditions()
            try:
                _prepare(trials, conditions, progress, stop_signals, engines)
                if ready := _ready(trials):
                    conditions.usage = _load(ready, progress, stop_signals, engines)
            except MachineLost as error:
                for trial in trials:
                    trial.fail(f"{error.message[0].lower()}{error.message[1:].rstrip('.')}")
            except KeyboardInterrupt:
                for trial in trials:
                    if not trial.failed_by_itself:
                        trial.interrupt()
                raise
            finally:
                records = _finish(trials, conditions, progress, stop_signals)
            return records


def _ready(trials: list[TrialContainers]) -> list[TrialContainers]:
    return [trial for trial in trials if trial.outcome == "measured"]


def _prepare(
    trials: list[TrialContainers],
    conditions: _Conditions,
    progress: Progress,
    stop_signals: list[int],
    engines: Engines,
) -> None:
    """Start the servers, calibrate, log users in, observe, and wait until the machines are quiet."""

    def progress_until_stopped(what: str, passed_s: float, expected_s: float) -> None:
        if stop_signals:
            raise KeyboardInterrupt
        progress(what, passed_s, expected_s)

    def settle() -> None:
        quiet = engines.settle(progress_until_stopped)
        conditions.quiet = max(filter(None, (conditions.quiet, quiet)), key=lambda wait: wait.busy)

    planned = [trial.planned for trial in trials]
    _do(replace(START, expected_s=timing.up_s(planned)), trials, progress, stop_signals)
    if computing := [trial for trial in _ready(trials) if trial.planned.load.computes]:
        settle()
        for trial in computing:  # one after the other, because calibration needs requests that run alone
            expected_s = timing.calibrate_s(trial.planned.load)
            _do(replace(CALIBRATE, expected_s=expected_s), [trial], progress, stop_signals)
    _do(LOG_IN, [trial for trial in _ready(trials) if trial.login], progress, stop_signals)
    for trial in _ready(trials):
        if trial.measures_unloaded_latency:
            _do(UNLOADED_LATENCY, [trial], progress, stop_signals)
    if ready := _ready(trials):
        _do(OBSERVE, ready, progress, stop_signals)
        settle()


def _load(
    trials: list[TrialContainers], progress: Progress, stop_signals: list[int], engines: Engines
) -> UsageUnderLoad:
    """Start all loads at the same time, wait until the last load has ended, and return what the machines did then."""
    if stop_signals:
        raise KeyboardInterrupt
    samplers = UsageSamplers(engines)
    planned = [trial.planned for trial in trials]
    begins_at = time.time() + timing.generators_up_s(planned)
    start = partial(TrialContainers.start_load, at=begins_at, samplers=samplers)
    _do(BatchStep(start, "starting the load", 1), trials, progress)
    started = _ready(trials)
    for trial in trials:
        if trial not in started:  # some of its load generators may have started
            trial.end_load()
    if not started:
        return samplers.read()
    within_s = K6_SLACK_S + max(in_seconds(trial.duration) + trial.load.grace_s(trial.duration) for trial in planned)
    with end_late_loads(started, begins_at, within_s), end_when_memory_is_short(started, engines):
        wait_for_signal(stop_signals, begins_at - time.time())
        samplers.begin()
        with replace_workers(started):
            _do(replace(WAIT_FOR_LOAD, expected_s=max(map(timing.load_s, planned))), started, progress, stop_signals)
    return samplers.read()


def _finish(
    trials: list[TrialContainers], conditions: _Conditions, progress: Progress, stop_signals: list[int]
) -> list[TrialRecord]:
    """Collect, remove and save all trials; each of the three happens even if the one before it raised an error."""
    measured = _ready(trials)
    records: list[TrialRecord] = []

    def save() -> None:
        if stop_signals:  # Ctrl-C also kills docker's commands, so a failure after Ctrl-C is an interrupt
            for trial in measured:
                if trial.outcome == "failed":
                    trial.interrupt()
        records.extend(_save(trials, conditions))

    remove = replace(REMOVE, expected_s=timing.down_s([trial.planned for trial in trials]))
    with ExitStack() as steps:  # the last callback is called first
        steps.callback(save)
        steps.callback(_do, remove, trials, progress)
        steps.callback(_do, COLLECT, [trial for trial in trials if trial.composed], progress)
    return records


def _save(trials: list[TrialContainers], conditions: _Conditions) -> list[TrialRecord]:
    """Save every trial, even if another trial cannot be saved. Afterwards raise the first OSError, if there was any."""
    records: list[TrialRecord] = []
    problem: OSError | None = None
    for trial in trials:
        if not trial.gone:
            trial.fail(f"its containers could not be removed; {typed('down')} removes {trial.project}")
        try:
            if _is_worth_keeping(trial):
                records.append(trial.save(conditions.quiet, conditions.usage))
        except OSError as error:
            with suppress(OSError):  # renaming needs no disk space; keep the raw points, but never count them
                trial.part.rename(trial.part.with_name(f"unsaved-{trial.planned.number}"))
            problem = problem or error
    if problem:
        raise problem
    return records


def _is_worth_keeping(trial: TrialContainers) -> bool:
    """Whether to keep a trial's folder. Remove the folder of an interrupted trial that has measured nothing."""
    if trial.outcome == "interrupted" and not any(trial.part.glob("points*.json*")):
        shutil.rmtree(trial.part, ignore_errors=True)
        return False
    return True


def _do(
    step: BatchStep, trials: Sequence[TrialContainers], progress: Progress, stop_signals: Sequence[int] = ()
) -> None:
    """Do one step for all trials at the same time, and return or raise only after the step has ended for all of them.

    After a signal, raise KeyboardInterrupt. An unexpected error of one trial is raised after all trials have ended.
    """
    stop = step.stop
    if stop_signals and not stop:
        raise KeyboardInterrupt
    if not trials:
        return
    began = time.monotonic()
    with ThreadPoolExecutor(2 * len(trials)) as pool:
        waiting = futures = [pool.submit(step.act, trial) for trial in trials]
        while waiting:
            waiting = list(wait(waiting, timeout=LOOK_EVERY_S).not_done)
            progress(step.progress, time.monotonic() - began, step.expected_s)
            if stop_signals and stop:
                stopping = [pool.submit(stop, trial) for trial in trials]
                stop, waiting, futures = None, waiting + stopping, futures + stopping
    errors = [error for future in futures if (error := future.exception())]
    if stop_signals:
        raise KeyboardInterrupt from (errors[0] if errors else None)
    if errors:
        raise errors[0]

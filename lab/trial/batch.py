"""Measure trials side by side, each in its own Compose project and network.

No load starts before all stacks of the batch are up and the machine is quiet. No stack is removed before all loads have
ended. Whatever happens, the containers are removed and the measured files are kept in the run's folder.
"""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from analysis.records.run import TODAY, TrialRecord
from lab.engine.cluster.engines import Engines, UsageSamplers, UsageUnderLoad
from lab.engine.cluster.machines import Machine
from lab.engine.cluster.probe import MachineLost
from lab.engine.containers import OWNER_LABEL, PROJECT, owner
from lab.engine.machine_usage import Progress, Quiet
from lab.interruption import uninterrupted
from lab.loads import in_seconds
from lab.plan import TAIL_S, Plan, PlannedTrial
from lab.trial.compose import START_UP_S
from lab.trial.stack import TrialContainers

FURTHER_START_UP_S = 0.25
"""The start-up time of each further load generator of a trial; START_UP_S is the time of the first."""
K6_SLACK_S = 60
LOOK_AGAIN_S = 1
LOOK_EVERY_S = 0.5


def measure(plan: Plan, run_folder: Path, progress: Progress, engines: Engines) -> Iterator[list[TrialRecord]]:
    """Measure all trials of a plan, and yield the records of each batch once its folders are complete.

    On an interrupt, stop the current batch, keep its measured files as interrupted trials, and raise KeyboardInterrupt.
    A trial that fails raises no error: its record has the outcome ``failed``.
    """
    for batch in plan.batches:
        yield _measure_batch(batch, run_folder, progress, engines)


def check(plan: Plan, run_folder: Path, progress: Progress, engines: Engines) -> list[str]:
    """Start somebody's own application once as it is served today, and send a request of each class, without a load.

    Return what is worth a word. Raise LabError if the application does not start, or if a class is not answered as it
    should be; then the record of the first trial says so.
    """
    own = [one for one in plan.trials if one.variant.workload and one.variant_name == TODAY]
    if not own:
        return []
    with uninterrupted() as asked:
        stack = TrialContainers(own[0], run_folder, 1, engines, asked)
        words: list[str] = []
        stopping = partial(progress, "stopping the servers")
        with _watching([stack], engines.machines):
            try:
                starting = partial(progress, "starting your application")
                _together(TrialContainers.up, [stack], starting, expected_s=4, asked=asked, stop=TrialContainers.end_up)
                asking = partial(progress, "asking for each class alone")
                _together(lambda one: words.extend(one.check()), [stack], asking, expected_s=2, asked=asked)
            except KeyboardInterrupt:
                stack.interrupt()
                raise
            finally:
                if stack.outcome == "failed":
                    _together(TrialContainers.collect, [stack] if stack.composed else [], stopping, expected_s=1)
                _together(TrialContainers.down, [stack], stopping, expected_s=2)
                if not stack.gone or stack.outcome == "failed":
                    _save([stack], None, None)
                else:
                    shutil.rmtree(stack.part, ignore_errors=True)
    return words


def _measure_batch(
    batch: tuple[PlannedTrial, ...], run_folder: Path, progress: Progress, engines: Engines
) -> list[TrialRecord]:
    with uninterrupted() as asked:  # signals count between two steps and during the load
        stacks = [TrialContainers(trial, run_folder, len(batch), engines, asked) for trial in batch]
        with _watching(stacks, engines.machines):
            return _measure_stacks(stacks, progress, asked, engines)


def _measure_stacks(
    stacks: list[TrialContainers], progress: Progress, asked: list[int], engines: Engines
) -> list[TrialRecord]:
    quiet: Quiet | None = None
    load: UsageUnderLoad | None = None

    def settled() -> Quiet:
        return engines.settle(partial(_heeding, progress, asked))

    def ready() -> list[TrialContainers]:
        return [stack for stack in stacks if stack.outcome == "measured"]

    try:
        starting = partial(progress, "starting the servers")
        _together(
            TrialContainers.up, stacks, starting, expected_s=3 + len(stacks), asked=asked, stop=TrialContainers.end_up
        )
        if computing := [stack for stack in ready() if stack.trial.load.computes]:
            quiet = settled()
            for stack in computing:  # one after the other, because calibration needs requests that run alone
                _together(
                    TrialContainers.calibrate, [stack], partial(progress, "calibrating"), expected_s=2, asked=asked
                )
        for stack in [one for one in ready() if one.asks_alone]:
            _together(TrialContainers.ask_alone, [stack], partial(progress, "asking alone"), expected_s=2, asked=asked)
        if ready():
            _together(
                TrialContainers.look_before,
                ready(),
                partial(progress, "observing the servers"),
                expected_s=1,
                asked=asked,
            )
            quiet = max(filter(None, (quiet, settled())), key=lambda one: one.busy)
            if loaded := ready():
                load = _load(loaded, progress, asked, engines)
    except MachineLost as error:
        for stack in stacks:
            stack.fail(f"{error.message[0].lower()}{error.message[1:].rstrip('.')}")
    except KeyboardInterrupt:
        _interrupt(stack for stack in stacks if not stack.failed_by_itself)
        raise
    finally:
        stopping = partial(progress, "stopping the servers")
        measured = ready()
        try:
            _together(TrialContainers.collect, [stack for stack in stacks if stack.composed], stopping, expected_s=1)
        finally:
            try:
                _together(TrialContainers.down, stacks, stopping, expected_s=2)
            finally:
                if asked:  # Ctrl-C also kills docker's commands, so a failure after Ctrl-C is an interrupt
                    _interrupt(stack for stack in measured if stack.outcome == "failed")
                records = _save(stacks, quiet, load)
    return records


def _interrupt(stacks: Iterable[TrialContainers]) -> None:
    for stack in stacks:
        stack.interrupt()


def _heeding(progress: Progress, asked: list[int], what: str, passed_s: float, expected_s: float) -> None:
    if asked:
        raise KeyboardInterrupt
    progress(what, passed_s, expected_s)


def _save(stacks: list[TrialContainers], quiet: Quiet | None, load: UsageUnderLoad | None) -> list[TrialRecord]:
    """Save every stack, even if another stack cannot be saved. Afterwards raise the first OSError, if there was any."""
    records: list[TrialRecord] = []
    problem: OSError | None = None
    for stack in stacks:
        if not stack.gone:
            stack.fail(f"its containers could not be removed; make down removes {stack.project}")
        try:
            if _is_worth_keeping(stack):
                records.append(stack.save(quiet, load))
        except OSError as error:
            with suppress(OSError):  # renaming needs no disk space; keep the raw points, but never count them
                stack.part.rename(stack.part.with_name(f"unsaved-{stack.trial.number}"))
            problem = problem or error
    if problem:
        raise problem
    return records


def _load(stacks: list[TrialContainers], progress: Progress, asked: list[int], engines: Engines) -> UsageUnderLoad:
    """Start all loads at the same time, wait until the last load has ended, and return what the machines did then."""
    if asked:
        raise KeyboardInterrupt
    watches = UsageSamplers(engines)
    further = sum(stack.trial.load.generators - 1 for stack in stacks)
    begins = time.time() + START_UP_S * len(stacks) + FURTHER_START_UP_S * further
    _together(
        partial(TrialContainers.start_load, at=begins, watches=watches),
        stacks,
        partial(progress, "starting the load"),
        expected_s=1,
    )
    started = [stack for stack in stacks if stack.outcome == "measured"]
    for stack in stacks:
        if stack not in started:  # some of its load generators may have started
            stack.end_load()
    if not started:
        return watches.read()
    trials = [stack.trial for stack in stacks]
    duration_s = max(in_seconds(trial.duration) for trial in trials)
    deadline_s = K6_SLACK_S + max(in_seconds(one.duration) + one.load.grace_s(one.duration) for one in trials)

    def stop_late_ones() -> None:
        for stack in started:
            if "load" not in stack.took_s:
                stack.fail(f"the load did not end within {deadline_s:g} s")
                stack.end_load()

    late = threading.Timer(begins - time.time() + deadline_s, stop_late_ones)
    late.start()
    try:
        with _ending_when_memory_is_short(started, engines):
            while not asked and (left_s := begins - time.time()) > 0:
                time.sleep(min(left_s, LOOK_EVERY_S))
            watches.begin()
            loading = partial(progress, "load")
            _together(
                TrialContainers.wait_for_load,
                started,
                loading,
                duration_s + TAIL_S,
                asked,
                stop=TrialContainers.end_load,
            )
        return watches.read()
    finally:
        late.cancel()
        for stack in started:
            stack.loading = False


@contextmanager
def _watching(stacks: list[TrialContainers], machines: Sequence[Machine]) -> Iterator[None]:
    """End a stack's load as soon as one of its servers ends, or one of its containers reaches its memory limit.

    Otherwise k6 would send requests to a dead server for minutes, and the lab would wait in vain for a server whose
    workers are killed as they start. Only the first such event of each stack counts.
    """

    def heed(machine: Machine, lines: Iterable[str]) -> None:
        with ThreadPoolExecutor(len(stacks)) as pool:  # read the events of other stacks while one stack ends
            for line in lines:
                event = json.loads(line)
                of = event["Actor"]["Attributes"]
                for stack in stacks:
                    if of.get(PROJECT) == stack.project and stack.outcome == "measured":
                        pool.submit(stack.heed, event["Action"], machine, event["Actor"]["ID"], of)
            if not over.is_set() and len(machines) > 1:  # else the only engine has ended, and the load with it
                for stack in stacks:
                    pool.submit(stack.lose, machine)

    over = threading.Event()
    asked = ["events", "--since", f"{time.time():.3f}", "--filter", "event=die", "--filter", "event=oom",
             "--filter", f"label={OWNER_LABEL}={owner()}", "--format", "{{json .}}"]  # fmt: skip
    with ExitStack() as stack:
        watched = [
            stack.enter_context(
                subprocess.Popen(
                    [*machine.docker, *asked], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            )
            for machine in machines
        ]
        heeding = [
            threading.Thread(target=heed, args=(machine, events.stdout))
            for machine, events in zip(machines, watched, strict=True)
        ]
        for thread in heeding:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for events in watched:
                events.terminate()
            for thread in heeding:
                thread.join()


@contextmanager
def _ending_when_memory_is_short(stacks: list[TrialContainers], engines: Engines) -> Iterator[None]:
    """End all loads as soon as a machine has hardly any memory left."""
    over = threading.Event()

    def look() -> None:
        short = engines.memory()
        while not over.wait(LOOK_AGAIN_S):
            if shortage := short():
                loading = [stack for stack in stacks if "load" not in stack.took_s]
                for stack in loading:
                    stack.fail(shortage)
                with ThreadPoolExecutor(len(stacks)) as pool:
                    list(pool.map(TrialContainers.end_load, loading))
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _together(
    step: Callable[[TrialContainers], None],
    stacks: list[TrialContainers],
    progress: Callable[[float, float], None],
    expected_s: float,
    asked: Sequence[int] = (),
    stop: Callable[[TrialContainers], None] | None = None,
) -> None:
    """Do one step for all stacks at the same time, and return or raise only after the step has ended for all stacks.

    ``asked`` collects signals that ask to stop. With ``stop``, a signal makes the step end early by calling ``stop``
    for each stack. Without ``stop``, a step does not begin after a signal. In both cases raise KeyboardInterrupt. An
    unexpected error of one stack is raised after the step has ended for all stacks.
    """
    if asked and not stop:
        raise KeyboardInterrupt
    if not stacks:
        return
    began = time.monotonic()
    with ThreadPoolExecutor(2 * len(stacks)) as pool:
        waiting = futures = [pool.submit(step, stack) for stack in stacks]
        while waiting:
            waiting = list(wait(waiting, timeout=LOOK_EVERY_S).not_done)
            progress(time.monotonic() - began, expected_s)
            if asked and stop:
                stopping = [pool.submit(stop, stack) for stack in stacks]
                stop, waiting, futures = None, waiting + stopping, futures + stopping
    errors = [error for future in futures if (error := future.exception())]
    if asked:
        raise KeyboardInterrupt from (errors[0] if errors else None)
    if errors:
        raise errors[0]


def _is_worth_keeping(stack: TrialContainers) -> bool:
    """Whether to keep a trial's folder. Remove the folder of an interrupted trial that has measured nothing."""
    if stack.outcome == "interrupted" and not any(stack.part.glob("points*.json*")):
        shutil.rmtree(stack.part, ignore_errors=True)
        return False
    return True

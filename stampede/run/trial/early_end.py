"""What ends a load before its time: a server that ends, a machine that is lost or short of memory, a late load."""

import json
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.machines import Machine
from stampede.docker.containers import OWNER_LABEL, PROJECT, owner
from stampede.run.trial.containers import Phase, TrialContainers

CHECK_MEMORY_EVERY_S = 1


@contextmanager
def end_with_servers(trials: Sequence[TrialContainers], machines: Sequence[Machine]) -> Iterator[None]:
    """End a trial's load as soon as one of its servers ends, or one of its containers reaches its memory limit.

    Otherwise k6 would send requests to a dead server for minutes, and the lab would wait in vain for a server whose
    workers are killed as they start. Only the first such event of each trial counts.
    """
    over = threading.Event()
    command = ["events", "--since", f"{time.time():.3f}", "--filter", "event=die", "--filter", "event=oom",
               "--filter", f"label={OWNER_LABEL}={owner()}", "--format", "{{json .}}"]  # fmt: skip

    def follow(machine: Machine, lines: Iterable[str]) -> None:
        with ThreadPoolExecutor(len(trials)) as pool:  # read the events of other trials while one trial ends
            for line in lines:
                event = json.loads(line)
                labels = event["Actor"]["Attributes"]
                for trial in trials:
                    if labels.get(PROJECT) == trial.project and trial.outcome == "measured":
                        pool.submit(trial.react_to, event["Action"], machine, event["Actor"]["ID"], labels)
            if not over.is_set() and len(machines) > 1:  # else the only engine has ended, and the load with it
                for trial in trials:
                    pool.submit(trial.fail_lost, machine)

    with ExitStack() as at_end:
        for machine in machines:
            events = at_end.enter_context(
                subprocess.Popen(
                    [*machine.docker, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            )
            following = threading.Thread(target=follow, args=(machine, events.stdout))
            following.start()
            at_end.callback(following.join)
            at_end.callback(events.terminate)
        at_end.callback(over.set)
        yield


@contextmanager
def end_when_memory_is_short(trials: Sequence[TrialContainers], engines: Engines) -> Iterator[None]:
    """End all loads as soon as a machine has hardly any memory left."""
    over = threading.Event()

    def check() -> None:
        shortage_of = engines.watch_memory()
        while not over.wait(CHECK_MEMORY_EVERY_S):
            if shortage := shortage_of():
                _end_loads(trials, shortage)
                return

    checking = threading.Thread(target=check)
    checking.start()
    try:
        yield
    finally:
        over.set()
        checking.join()


@contextmanager
def end_late_loads(trials: Sequence[TrialContainers], begins_at: float, within_s: float) -> Iterator[None]:
    """End the loads that have not ended within a time after their beginning (epoch seconds)."""
    reason = f"the load did not end within {within_s:g} s"
    late = threading.Timer(begins_at - time.time() + within_s, _end_loads, (trials, reason))
    late.start()
    try:
        yield
    finally:
        late.cancel()


def _end_loads(trials: Sequence[TrialContainers], reason: str) -> None:
    loading = [trial for trial in trials if trial.phase is Phase.LOADING]
    for trial in loading:
        trial.fail(reason)
    with ThreadPoolExecutor(len(trials)) as pool:
        list(pool.map(TrialContainers.end_load, loading))

"""Send HUP to the servers of trials while their loads go on, so that they replace their workers."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lab.servers.replaced import Replaced
from lab.trial.containers import TrialContainers


@contextmanager
def reload_servers(trials: Sequence[TrialContainers]) -> Iterator[None]:
    """Reload the servers of each trial so long after the block begins as its variant says; at its end, give up."""
    timers = [
        threading.Timer(variant.hup_after_s, trial.reload)
        for trial in trials
        if isinstance(variant := trial.planned.variant, Replaced) and variant.hup_after_s
    ]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()

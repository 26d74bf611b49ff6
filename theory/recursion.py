"""One queue before the threads of one worker, request by request instead of event by event.

In such a model, a request begins when it has arrived and the first thread is free (Kiefer and Wolfowitz 1955), so
nothing else has to be remembered. The requests are the same, to the bit, as those of ``theory.events``.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit

from theory.events import CONSTANT, EXPONENTIAL, UNIFORM, Reals, Rows
from theory.model import Constant, Exponential, Open, QueueingSystem, Uniform, WorkStep

_KINDS = {Constant: CONSTANT, Exponential: EXPONENTIAL, Uniform: UNIFORM}
_MOST_THREADS = 256


def applies_to(model: QueueingSystem) -> bool:
    """Return whether a model is one open class of one step, served from one queue by one worker's threads."""
    servers = model.servers
    [class_, *others] = model.classes
    return (
        not others
        and isinstance(class_.arrivals, Open)
        and class_.arrivals.jitter == 0
        and len(class_.steps) == 1
        and type(class_.steps[0].takes) in _KINDS
        and class_.steps[0] == WorkStep(class_.steps[0].takes)
        and servers.all_workers == 1
        and servers.threads is not None
        and servers.threads <= _MOST_THREADS
        and servers.max_per_socket is None
        and model.transit == 0
        and servers.max_connections is None
    )


def serve_in_chunks(model: QueueingSystem, seconds: float, rng: np.random.Generator, size: int) -> Iterator[Rows]:
    """Yield the requests that arrive within ``seconds``, at most ``size`` at a time, in the order of arrival."""
    [class_] = model.classes
    assert isinstance(class_.arrivals, Open)
    takes = class_.steps[0].takes
    lower, upper = (takes.least, takes.most) if isinstance(takes, Uniform) else (takes.mean, takes.mean)
    regular, apart = class_.arrivals.regular, 1 / class_.arrivals.per_second
    free = np.zeros(model.servers.threads or 0)
    nothing = np.broadcast_to(np.int64(0), size)
    now, count = 0.0 if regular else apart * rng.standard_exponential(), 0
    while now < seconds:
        sent, began, asked = np.empty(size), np.empty(size), np.empty(size)
        thread = np.empty(size, dtype=np.int64)
        now, found = _serve(
            rng,
            _KINDS[type(takes)],
            lower,
            upper,
            apart,
            regular,
            seconds,
            free,
            now,
            count,
            sent,
            began,
            asked,
            thread,
        )
        yield Rows(
            of_class=nothing[:found],
            user=np.arange(count, count + found),
            worker=nothing[:found],
            thread=thread[:found],
            sent=sent[:found],
            began=began[:found],
            ended=began[:found] + asked[:found],
            asked=asked[:found],
        )
        count += found


@njit(cache=True)
def _serve(
    rng: np.random.Generator,
    kind: int,
    lower: float,
    upper: float,
    apart: float,
    regular: bool,
    until: float,
    free: Reals,
    now: float,
    first_number: int,
    sent: Reals,
    began: Reals,
    asked: Reals,
    thread: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> tuple[float, int]:
    """Fill the arrays with requests. Return when the next request arrives, and how many there are."""
    found = 0
    while found < len(sent) and now < until:
        if kind == EXPONENTIAL:
            takes = lower * rng.standard_exponential()
        elif kind == UNIFORM:
            takes = lower + (upper - lower) * rng.random()
        else:
            takes = lower
        first = 0
        for other in range(1, len(free)):
            if free[other] < free[first]:
                first = other
        begins = max(now, free[first])
        free[first] = begins + takes
        sent[found] = now
        began[found] = begins
        asked[found] = takes
        thread[found] = first
        found += 1
        now = (first_number + found) * apart if regular else now + apart * rng.standard_exponential()
    return now, found

"""The events of a simulation, one after the other, in code that Numba compiles.

All of them stand in this file, because Numba compiles a function again only after a change of its own file.

The state of a simulation is a set of arrays, so that a simulation can be interrupted, copied and continued. A request
has a slot from its arrival to its end. Slots that wait in the same queue form a linked list. A request passes through
these states, and the names of functions stand where it goes on:

    arrives ─ _arrive ─┬─> at the balancer: waits while every socket has max_per_socket requests, or is refused
                       │     │
                       │     └ _reach_socket ─> at a socket: waits in the listen queue while no worker accepts
                       │                          │
                       │                          └ _accept ─┐
                       └ on a kept connection ───────────────┴─> in a worker: waits while no thread is free
                                                                   │
       ┌── a step that requeues gives the thread back ─────────────┤ _start
       │                                                           v
    _end_step <── the events STEP_ENDS and LOCK_TURNS ──────── on a thread: _begin_step works, or waits for a lock
       │
       └ after the last step ─ _finish: the thread, the place at the socket and the connection are free for others

An event is a kind and an index in one number. The index is a class (CLASS_ARRIVES), a user of a closed loop
(USER_ARRIVES), a slot (STEP_ENDS), a lock and how often it had been passed on when the event was planned
(LOCK_TURNS): if it has been passed on since, the event is out of date; or a container that may compute again
(PERIOD_BEGINS).

A process that computes also needs a core. It runs for a slice, and then waits behind the others that want one. The
kernel's way with a quota is followed: a container gets ``quota`` of a period's time at the beginning of each period, a
process takes a slice of it before it runs, and gives back what is left.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stampede.theory.compiled import njit

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

CLOSED, POISSON, REGULAR, BURSTS, RECORDED = range(5)
CONSTANT, UNIFORM, EXPONENTIAL, GIVEN = range(4)
NO_LOCK, OF_WORKER, OF_LOOP, OF_DEVICE, OF_MACHINE = range(5)
HASH, TURNS, LEAST, TWO = range(4)
DONE, ROWS_FULL, NO_SLOT, NO_EVENT = range(4)
"""Why ``advance`` returned: nothing is left to do, or an array is too small to go on."""

CLASS_ARRIVES, USER_ARRIVES, STEP_ENDS, LOCK_TURNS, PERIOD_BEGINS = range(5)
_KINDS = 5
_NONE = -1
_TRIES = 16
_SLICE_S = 0.01
"""How long a device works on a call before it turns to the next call that waits."""
_CORE_SLICE_S = 0.005
"""How long a process keeps a core that another process wants, and the slice of a quota (the kernel's default)."""
PERIOD_S = 0.1
"""In each such period, a container may compute for its quota (the default of Docker and Kubernetes)."""
_REFUSAL_S = 0.001
"""How soon a user knows of a refusal, at the earliest."""


class CompiledSystem(NamedTuple):
    """A queueing system as arrays. A count of -1 means that there is no limit."""

    sockets: int
    balancers: int
    balance: int
    max_per_socket: int
    queues: bool
    idle_kept: int
    closes_idle_when_full: bool
    workers: int
    threads: int
    max_connections: int
    bias: float
    hesitates: bool
    cores: int
    containers: int
    quota: float
    switch: float
    transit: float

    # of each class of requests
    kind: Ints
    size: Ints
    apart: Reals
    every: Reals
    jitter: Reals
    keeps: Ints
    pause: Ints
    first_user: Ints
    sent_at: Ints
    works_at: Ints
    first_step: Ints
    steps: Ints

    class_of_user: Ints

    # of each step of each class
    takes: Ints
    lock: Ints
    requeues: Ints
    stalls: Reals

    # of each distribution
    drawn_as: Ints
    lower: Reals
    upper: Reals
    values_at: Ints
    values_of: Ints
    values: Reals


class SimulationState(NamedTuple):
    """Where a simulation is. ``numbers`` has the counters that ``EVENTS`` and its neighbours name."""

    numbers: Ints

    # a heap of events
    event_time: Reals
    event_order: Ints
    event: Ints

    # of each slot
    of_class: Ints
    user: Ints
    sent: Reals
    began: Reals
    asked: Reals
    left: Reals
    worker: Ints
    thread: Ints
    step: Ints
    balancer: Ints
    next: Ints

    # of the balancers: the queue of all, the requests at each socket that each has passed on, whose turn it is
    waiting_first: Ints
    waiting_last: Ints
    at_socket: Ints
    turn: Ints
    idle_connections: Ints

    # of each socket: its listen queue, and how many of its workers accept, and have a free thread
    listen_first: Ints
    listen_last: Ints
    accepting: Ints
    idle: Ints

    # of each worker: connections, threads, and the queue before the threads
    held: Ints
    free: Ints
    free_threads: Ints
    queue_first: Ints
    queue_last: Ints

    # of each lock
    holder: Ints
    held_since: Reals
    lock_first: Ints
    lock_last: Ints
    turns: Ints

    # the workers that wait for a core; of each container: those that wait for its next period, the time that is left
    # of its quota, and in which period
    core_first: Ints
    core_last: Ints
    next_worker: Ints
    throttled_first: Ints
    throttled_last: Ints
    quota_left: Reals
    period: Ints

    pinned: Ints  # of each user: the worker that has the user's connection
    arrived: Ints  # of each class: how many requests have arrived


EVENTS, ORDER, FREE_SLOT, IDLE_KEPT, RUNNING = range(5)


class Rows(NamedTuple):
    """The requests that ended, in the order of their ends. A refused request has worker -1."""

    of_class: Ints
    user: Ints
    worker: Ints
    thread: Ints
    sent: Reals
    began: Reals
    ended: Reals
    asked: Reals


_inlined = njit(cache=True, forceinline=True)


@_inlined
def _encode(kind: int, index: int) -> int:
    return kind + _KINDS * index


@_inlined
def _push(state: SimulationState, time: float, event: int) -> None:
    place = state.numbers[EVENTS]
    state.numbers[EVENTS] += 1
    order = state.numbers[ORDER]
    state.numbers[ORDER] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if state.event_time[parent] <= time:
            break
        state.event_time[place] = state.event_time[parent]
        state.event_order[place] = state.event_order[parent]
        state.event[place] = state.event[parent]
        place = parent
    state.event_time[place] = time
    state.event_order[place] = order
    state.event[place] = event


@_inlined
def _pop(state: SimulationState) -> None:
    """Remove the first event. Of events at the same time, the event that was pushed first comes first."""
    state.numbers[EVENTS] -= 1
    last = state.numbers[EVENTS]
    time, order, event = state.event_time[last], state.event_order[last], state.event[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and (
            state.event_time[child + 1] < state.event_time[child]
            or (
                state.event_time[child + 1] == state.event_time[child]
                and state.event_order[child + 1] < state.event_order[child]
            )
        ):
            child += 1
        if time < state.event_time[child] or (time == state.event_time[child] and order < state.event_order[child]):
            break
        state.event_time[place] = state.event_time[child]
        state.event_order[place] = state.event_order[child]
        state.event[place] = state.event[child]
        place = child
    state.event_time[place] = time
    state.event_order[place] = order
    state.event[place] = event


@_inlined
def _append(first: Ints, last: Ints, following: Ints, queue: int, slot: int) -> None:
    following[slot] = _NONE
    if first[queue] == _NONE:
        first[queue] = slot
    else:
        following[last[queue]] = slot
    last[queue] = slot


@_inlined
def _take(first: Ints, following: Ints, queue: int) -> int:
    slot = int(first[queue])
    first[queue] = following[slot]
    return slot


@_inlined
def _draw(system: CompiledSystem, rng: np.random.Generator, distribution: int) -> float:
    kind = system.drawn_as[distribution]
    lower, upper = system.lower[distribution], system.upper[distribution]
    if kind == CONSTANT:
        return float(lower)
    if kind == EXPONENTIAL:
        return float(lower * rng.standard_exponential())
    if kind == UNIFORM:
        return float(lower + (upper - lower) * rng.random())
    return float(system.values[system.values_at[distribution] + int(rng.random() * system.values_of[distribution])])


@_inlined
def _choose_socket(system: CompiledSystem, state: SimulationState, balancer: int, rng: np.random.Generator) -> int:
    """Return the socket for a balancer's next connection; -1: each socket has as many requests as it may have."""
    sockets, most = system.sockets, system.max_per_socket
    at_socket = state.at_socket[balancer * sockets : (balancer + 1) * sockets]
    if sockets == 1 or system.balance in (HASH, TWO):
        socket = 0 if sockets == 1 else int(rng.random() * sockets)
        if sockets > 1 and system.balance == TWO:
            second = int(rng.random() * (sockets - 1))
            if second >= socket:
                second += 1
            if at_socket[second] < at_socket[socket]:
                socket = second
        return socket if most < 0 or at_socket[socket] < most else _NONE
    best = _NONE
    for step in range(sockets):
        socket = (state.turn[balancer] + step) % sockets
        if most >= 0 and at_socket[socket] >= most:
            continue
        if best == _NONE or at_socket[socket] < at_socket[best]:
            best = socket
            if system.balance == TURNS or at_socket[socket] == 0:
                break
    if best != _NONE:
        state.turn[balancer] = (best + 1) % sockets
    return best


@_inlined
def _may_win(system: CompiledSystem, state: SimulationState, worker: int, idle_only: bool) -> bool:
    if system.max_connections >= 0 and state.held[worker] >= system.max_connections:
        return False
    return not idle_only or system.threads < 0 or state.free[worker] > 0


@_inlined
def _choose_worker(system: CompiledSystem, state: SimulationState, socket: int, rng: np.random.Generator) -> int:
    """Return which of a socket's accepting workers wins the race for a connection."""
    workers, first = system.workers, socket * system.workers
    if workers == 1:
        return first
    idle_only = system.hesitates and state.idle[socket] > 0
    keep = 1 - system.bias
    beyond = 1 - keep**workers
    for _ in range(_TRIES):
        if system.bias == 0:
            place = int(rng.random() * workers)
        else:
            place = min(int(np.log1p(-rng.random() * beyond) / np.log(keep)), workers - 1)
        if _may_win(system, state, first + place, idle_only):
            return first + place
    total = 0.0
    for place in range(workers):
        if _may_win(system, state, first + place, idle_only):
            total += keep**place
    until = rng.random() * total
    winner = first
    for place in range(workers):
        if _may_win(system, state, first + place, idle_only):
            winner = first + place
            until -= keep**place
            if until < 0:
                break
    return winner


@_inlined
def _locks(system: CompiledSystem) -> int:
    """Return how many locks there are: one for each worker, the device's and the machine's."""
    return system.sockets * system.workers + 2


@_inlined
def _switch(system: CompiledSystem, lock: int) -> float:
    """Return after how many seconds a lock is passed on if another request waits for it."""
    if lock == _locks(system) - 1:
        return np.inf
    return _SLICE_S if lock == _locks(system) - 2 else system.switch


@_inlined
def _plan_turn(system: CompiledSystem, state: SimulationState, lock: int, time: float) -> None:
    """Plan when a lock is passed on. Other plans for this lock are out of date then."""
    state.turns[lock] += 1
    _push(state, time, _encode(LOCK_TURNS, lock + _locks(system) * state.turns[lock]))


@_inlined
def _needs_core(system: CompiledSystem, state: SimulationState, slot: int) -> bool:
    """Whether a request now needs one of a limited number of cores, or a part of a quota."""
    step = system.first_step[state.of_class[slot]] + state.step[slot]
    return system.lock[step] == OF_WORKER and (system.cores >= 0 or system.quota < np.inf)


@_inlined
def _run(system: CompiledSystem, state: SimulationState, lock: int, now: float) -> None:
    """Let the holder of a lock go on until it ends, or until its turn does."""
    state.held_since[lock] = now
    lasts = state.left[state.holder[lock]]
    if state.lock_first[lock] != _NONE:
        lasts = min(lasts, _switch(system, lock))
    if _needs_core(system, state, state.holder[lock]):
        lasts = min(lasts, _CORE_SLICE_S)
        if system.quota < np.inf:
            container = lock * system.containers // (system.sockets * system.workers)
            lasts = min(lasts, state.quota_left[container])
            state.quota_left[container] -= lasts
        state.numbers[RUNNING] += 1
    _plan_turn(system, state, lock, now + lasts)


@njit(cache=True)
def _fill_cores(system: CompiledSystem, state: SimulationState, now: float) -> None:
    """Let processes that wait for a core run while there are cores, and a part of their quotas."""
    while state.core_first[0] != _NONE and (system.cores < 0 or state.numbers[RUNNING] < system.cores):
        lock = _take(state.core_first, state.next_worker, 0)
        container = lock * system.containers // (system.sockets * system.workers)
        period = int(now / PERIOD_S + 1e-9)
        if period != state.period[container]:
            state.period[container], state.quota_left[container] = period, system.quota * PERIOD_S
        if state.quota_left[container] > 1e-9:
            _run(system, state, lock, now)
            continue
        if state.throttled_first[container] == _NONE:
            _push(state, (period + 1) * PERIOD_S, _encode(PERIOD_BEGINS, container))
        _append(state.throttled_first, state.throttled_last, state.next_worker, container, lock)


@_inlined
def _go_on(system: CompiledSystem, state: SimulationState, lock: int, now: float) -> None:
    """Let the holder of a lock run, on a core if it needs one."""
    if not _needs_core(system, state, state.holder[lock]):
        _run(system, state, lock, now)
        return
    _append(state.core_first, state.core_last, state.next_worker, 0, lock)
    _fill_cores(system, state, now)


@_inlined
def _begin_step(system: CompiledSystem, state: SimulationState, slot: int, now: float) -> None:
    step = system.first_step[state.of_class[slot]] + state.step[slot]
    stalls = system.stalls[step]
    if now >= stalls[0] and (now - stalls[0]) % stalls[1] < stalls[2]:
        state.left[slot] = stalls[3]
    if system.lock[step] == NO_LOCK:
        _push(state, now + state.left[slot], _encode(STEP_ENDS, slot))
        return
    lock = state.worker[slot]
    if system.lock[step] > OF_LOOP:
        lock = _locks(system) - (2 if system.lock[step] == OF_DEVICE else 1)
    holder = state.holder[lock]
    if holder == _NONE:
        state.holder[lock] = slot
        _go_on(system, state, lock, now)
        return
    first_to_wait = state.lock_first[lock] == _NONE
    _append(state.lock_first, state.lock_last, state.next, lock, slot)
    switch = _switch(system, lock)
    if _needs_core(system, state, holder):
        return  # its turns are no longer than a switch
    if first_to_wait and state.held_since[lock] + state.left[holder] > now + switch:
        _plan_turn(system, state, lock, now + switch)


@_inlined
def _start(system: CompiledSystem, state: SimulationState, slot: int, now: float) -> None:
    worker = state.worker[slot]
    if system.threads >= 0:
        state.free[worker] -= 1
        state.thread[slot] = state.free_threads[worker * system.threads + state.free[worker]]
        if state.free[worker] == 0:
            state.idle[worker // system.workers] -= 1
            if system.closes_idle_when_full:
                left = 0
                for place in range(state.numbers[IDLE_KEPT]):
                    if state.idle_connections[place] != worker:
                        state.idle_connections[left] = state.idle_connections[place]
                        left += 1
                state.numbers[IDLE_KEPT] = left
    if state.step[slot] == 0:
        state.began[slot] = now
    _begin_step(system, state, slot, now)


@_inlined
def _to_thread(system: CompiledSystem, state: SimulationState, slot: int, now: float) -> None:
    worker = state.worker[slot]
    if system.threads < 0 or state.free[worker] > 0:
        _start(system, state, slot, now)
    else:
        _append(state.queue_first, state.queue_last, state.next, worker, slot)


@_inlined
def _give_thread_back(system: CompiledSystem, state: SimulationState, slot: int, now: float) -> None:
    """Free the thread of a slot, and start the first request of its worker's queue."""
    worker = state.worker[slot]
    if system.threads >= 0:
        state.free_threads[worker * system.threads + state.free[worker]] = state.thread[slot]
        state.free[worker] += 1
        if state.free[worker] == 1:
            state.idle[worker // system.workers] += 1
    if state.queue_first[worker] != _NONE:
        _start(system, state, _take(state.queue_first, state.next, worker), now)


@_inlined
def _hold_connection(system: CompiledSystem, state: SimulationState, worker: int) -> None:
    state.held[worker] += 1
    if state.held[worker] == system.max_connections:
        state.accepting[worker // system.workers] -= 1


@_inlined
def _accept(system: CompiledSystem, state: SimulationState, slot: int, worker: int, now: float) -> None:
    state.worker[slot] = worker
    _hold_connection(system, state, worker)
    if system.keeps[state.of_class[slot]]:
        state.pinned[state.user[slot]] = worker
    _to_thread(system, state, slot, now)


@_inlined
def _reach_socket(
    system: CompiledSystem, state: SimulationState, slot: int, socket: int, now: float, rng: np.random.Generator
) -> None:
    state.at_socket[state.balancer[slot] * system.sockets + socket] += 1
    if state.accepting[socket] > 0:
        _accept(system, state, slot, _choose_worker(system, state, socket, rng), now)
    else:
        _append(state.listen_first, state.listen_last, state.next, socket, slot)


@_inlined
def _finish(system: CompiledSystem, state: SimulationState, slot: int, now: float, rng: np.random.Generator) -> None:
    """Free what a request that ended has held, and let the requests in that waited for it."""
    worker = state.worker[slot]
    socket = worker // system.workers
    _give_thread_back(system, state, slot, now)
    if system.keeps[state.of_class[slot]]:
        return
    state.at_socket[state.balancer[slot] * system.sockets + socket] -= 1
    if state.numbers[IDLE_KEPT] < system.idle_kept:
        state.idle_connections[state.numbers[IDLE_KEPT]] = worker
        state.numbers[IDLE_KEPT] += 1
        if not system.closes_idle_when_full:
            return  # the worker goes on holding the connection
    state.held[worker] -= 1
    if state.held[worker] == system.max_connections - 1:
        state.accepting[socket] += 1
    if state.listen_first[socket] != _NONE and state.accepting[socket] > 0:
        _accept(system, state, _take(state.listen_first, state.next, socket), worker, now)
    may_have_more = system.max_per_socket < 0 or state.at_socket[socket] < system.max_per_socket
    if state.waiting_first[0] != _NONE and may_have_more:
        _reach_socket(system, state, _take(state.waiting_first, state.next, 0), socket, now, rng)


@_inlined
def _end_step(system: CompiledSystem, state: SimulationState, slot: int, now: float, rng: np.random.Generator) -> int:
    """Go on with the next step of a request. Return its slot if the request has ended instead, else -1."""
    class_ = state.of_class[slot]
    state.step[slot] += 1
    if state.step[slot] == system.steps[class_]:
        return slot
    step = system.first_step[class_] + state.step[slot]
    state.left[slot] = _draw(system, rng, system.takes[step])
    if system.lock[step] != OF_MACHINE:
        state.asked[slot] += state.left[slot]
    worker = state.worker[slot]
    if system.requeues[step] and system.threads >= 0 and state.queue_first[worker] != _NONE:
        _append(state.queue_first, state.queue_last, state.next, worker, slot)
        _give_thread_back(system, state, slot, now)
    else:
        _begin_step(system, state, slot, now)
    return _NONE


@_inlined
def _turn_lock(system: CompiledSystem, state: SimulationState, index: int, now: float, rng: np.random.Generator) -> int:
    """Pass a lock on. Return the slot whose request has ended, if any, else -1."""
    lock, turns = index % _locks(system), index // _locks(system)
    if turns != state.turns[lock]:
        return _NONE
    slot = state.holder[lock]
    left = state.left[slot] - (now - state.held_since[lock])
    ended = left <= 1e-9
    state.left[slot] = left
    needs_core = _needs_core(system, state, slot)
    if needs_core:
        state.numbers[RUNNING] -= 1
        if not ended and (system.switch > _CORE_SLICE_S or state.lock_first[lock] == _NONE):
            _go_on(system, state, lock, now)
            return _NONE
    state.holder[lock] = _NONE
    if not ended:
        _append(state.lock_first, state.lock_last, state.next, lock, slot)
    if state.lock_first[lock] != _NONE:
        state.holder[lock] = _take(state.lock_first, state.next, lock)
        _go_on(system, state, lock, now)
    elif needs_core:
        _fill_cores(system, state, now)
    return _end_step(system, state, slot, now, rng) if ended else _NONE


@_inlined
def _arrive(
    system: CompiledSystem, state: SimulationState, class_: int, user: int, now: float, rng: np.random.Generator
) -> int:
    """Let a request arrive. Return its slot if the request is refused, else -1."""
    slot = state.numbers[FREE_SLOT]
    state.numbers[FREE_SLOT] = state.next[slot]
    step, works = system.first_step[class_], system.works_at[class_]
    takes = system.values[works + user] if works >= 0 else _draw(system, rng, system.takes[step])
    state.of_class[slot], state.user[slot], state.step[slot] = class_, user, 0
    state.sent[slot], state.began[slot], state.left[slot] = now, np.nan, takes
    state.asked[slot] = takes if system.lock[step] != OF_MACHINE else 0.0
    state.worker[slot], state.thread[slot] = _NONE, _NONE
    if system.keeps[class_] and state.pinned[user] != _NONE:
        state.worker[slot] = state.pinned[user]
        _to_thread(system, state, slot, now)
        return _NONE
    state.balancer[slot] = int(rng.random() * system.balancers) if system.balancers > 1 else 0
    if state.numbers[IDLE_KEPT] > 0:
        state.numbers[IDLE_KEPT] -= 1
        worker = state.idle_connections[state.numbers[IDLE_KEPT]]
        state.worker[slot] = worker
        state.at_socket[worker // system.workers] += 1
        if system.closes_idle_when_full:
            _hold_connection(system, state, worker)
        _to_thread(system, state, slot, now)
        return _NONE
    socket = _choose_socket(system, state, state.balancer[slot], rng)
    if socket != _NONE:
        _reach_socket(system, state, slot, socket, now, rng)
    elif system.queues:
        _append(state.waiting_first, state.waiting_last, state.next, 0, slot)
    else:
        return int(slot)
    return _NONE


@_inlined
def _lateness(system: CompiledSystem, class_: int, rng: np.random.Generator) -> float:
    """Return how late a regular request comes."""
    return system.jitter[class_] * rng.random() if system.jitter[class_] > 0 else 0.0


@_inlined
def _plan_next(
    system: CompiledSystem, state: SimulationState, class_: int, now: float, rng: np.random.Generator
) -> None:
    """Plan the next arrival of a class without users."""
    state.arrived[class_] += 1
    number, apart = state.arrived[class_], system.apart[class_]
    if system.kind[class_] == POISSON:
        due = now + apart * rng.standard_exponential()
    elif system.kind[class_] == REGULAR:
        due = max(now, number * apart + _lateness(system, class_, rng))
    elif system.kind[class_] == BURSTS:
        burst, place = divmod(number, system.size[class_])
        due = burst * system.every[class_] + place * apart
    elif number < system.size[class_]:
        due = system.values[system.sent_at[class_] + number]
    else:
        return
    _push(state, due, _encode(CLASS_ARRIVES, class_))


@njit(cache=True, _nrt=False)  # type: ignore[call-overload]  # an option without a type
def begin(system: CompiledSystem, state: SimulationState, rng: np.random.Generator) -> None:
    """Plan the first arrivals: those of users, bursts and regular requests at once."""
    for class_ in range(len(system.kind)):
        kind, size = system.kind[class_], system.size[class_]
        if kind == CLOSED:
            for user in range(size):
                pause = _draw(system, rng, system.pause[class_])
                first = pause * rng.random() if pause > 0 else 0.0  # k6's users begin in the middle of a pause
                _push(state, first, _encode(USER_ARRIVES, system.first_user[class_] + user))
        elif kind == POISSON:
            _push(state, system.apart[class_] * rng.standard_exponential(), _encode(CLASS_ARRIVES, class_))
        elif kind != RECORDED:
            _push(state, _lateness(system, class_, rng), _encode(CLASS_ARRIVES, class_))
        elif size > 0:
            _push(state, system.values[system.sent_at[class_]], _encode(CLASS_ARRIVES, class_))


@njit(cache=True, _nrt=False)  # type: ignore[call-overload]  # an option without a type
def advance(  # noqa: PLR0912  # a branch for each kind of event and each reason to stop
    system: CompiledSystem, state: SimulationState, rng: np.random.Generator, rows: Rows, row: int, until: float
) -> tuple[int, int]:
    """Go on until all requests that arrive before ``until`` have ended, or an array is full.

    Return the number of rows and the reason to stop.
    """
    while state.numbers[EVENTS] > 0:
        if row + 2 > len(rows.sent):
            return row, ROWS_FULL
        if state.numbers[EVENTS] + 8 + _locks(system) > len(state.event_time):
            return row, NO_EVENT
        if state.numbers[FREE_SLOT] == _NONE:
            return row, NO_SLOT
        now = state.event_time[0]
        kind, index = state.event[0] % _KINDS, state.event[0] // _KINDS
        _pop(state)
        is_arrival = kind in (CLASS_ARRIVES, USER_ARRIVES)
        if is_arrival and now >= until:
            continue
        if kind == CLASS_ARRIVES:
            gone = _arrive(system, state, index, state.arrived[index], now, rng)
            _plan_next(system, state, index, now, rng)
        elif kind == USER_ARRIVES:
            gone = _arrive(system, state, system.class_of_user[index], index, now, rng)
        elif kind == STEP_ENDS:
            gone = _end_step(system, state, index, now, rng)
        elif kind == LOCK_TURNS:
            gone = _turn_lock(system, state, index, now, rng)
        else:
            gone = _NONE
            while state.throttled_first[index] != _NONE:  # a container that had used up its quota wants cores again
                lock = _take(state.throttled_first, state.next_worker, index)
                _append(state.core_first, state.core_last, state.next_worker, 0, lock)
            _fill_cores(system, state, now)
        if gone == _NONE:
            continue
        class_, user = state.of_class[gone], state.user[gone]
        known = now + system.transit
        if is_arrival:
            known += _REFUSAL_S
        else:
            _finish(system, state, gone, now, rng)
        rows.of_class[row], rows.user[row] = class_, user
        rows.worker[row], rows.thread[row] = state.worker[gone], state.thread[gone]
        rows.sent[row] = state.sent[gone] - system.transit  # a transit before it arrived
        rows.began[row], rows.ended[row], rows.asked[row] = state.began[gone], now, state.asked[gone]
        row += 1
        state.next[gone] = state.numbers[FREE_SLOT]
        state.numbers[FREE_SLOT] = gone
        if system.kind[class_] == CLOSED:
            _push(state, known + _draw(system, rng, system.pause[class_]), _encode(USER_ARRIVES, user))
    return row, DONE

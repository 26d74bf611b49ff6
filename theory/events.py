"""The events of a simulation, one after the other, in code that Numba compiles.

All of them stand in this file, because Numba compiles a function again only after a change of its own file.

The state of a simulation is a set of arrays, so that a simulation can be interrupted, copied and continued. Everything
that waits is a slot: a request from its arrival to its end. Slots that wait in the same queue form a linked list.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

CLOSED, POISSON, REGULAR, BURSTS, RECORDED = range(5)
CONSTANT, UNIFORM, EXPONENTIAL, GIVEN = range(4)
NO_LOCK, OF_WORKER, OF_DEVICE, OF_MACHINE = range(4)
HASH, TURNS, LEAST, TWO = range(4)
DONE, ROWS_FULL, NO_SLOT, NO_EVENT = range(4)
"""Why ``advance`` returned: nothing is left to do, or an array is too small to go on."""

_ARRIVAL, _STEP_ENDS, _LOCK_TURNS = range(3)
_NONE = -1
_TRIES = 16
_SLICE_S = 0.01
"""How long a device works on a call before it turns to the next call that waits."""
_REFUSAL_S = 0.001
"""How soon a user knows of a refusal, at the earliest."""


class Plan(NamedTuple):
    """A model as arrays. A count of -1 means that there is no limit."""

    sockets: int
    balancers: int
    balance: int
    most: int
    queues: bool
    kept: int
    closes: bool
    workers: int
    threads: int
    accepts: int
    bias: float
    hesitates: bool
    switch: float
    transit: float
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
    takes: Ints
    lock: Ints
    requeues: Ints
    stalls: Reals
    drawn_as: Ints
    lower: Reals
    upper: Reals
    values_at: Ints
    values_of: Ints
    values: Reals


class State(NamedTuple):
    """Where a simulation is. ``numbers`` has the counters that ``EVENTS`` and its neighbours name."""

    numbers: Ints
    event_time: Reals
    event_order: Ints
    event_what: Ints
    of_class: Ints
    user: Ints
    sent: Reals
    began: Reals
    asked: Reals
    left: Reals
    worker: Ints
    thread: Ints
    step: Ints
    beside: Ints
    next: Ints
    balancer: Ints
    counted: Ints
    turn: Ints
    listen_first: Ints
    listen_last: Ints
    accepting: Ints
    idle: Ints
    held: Ints
    free: Ints
    free_threads: Ints
    queue_first: Ints
    queue_last: Ints
    holder: Ints
    held_since: Reals
    lock_first: Ints
    lock_last: Ints
    turns: Ints
    pinned: Ints
    kept: Ints
    arrived: Ints


EVENTS, ORDER, FREE_SLOT, IDLE, WAITING_FIRST, WAITING_LAST, KEPT = range(7)


class Rows(NamedTuple):
    """The requests that ended, in the order of their ends. A refused request has worker -1."""

    of_class: Ints
    user: Ints
    worker: Ints
    thread: Ints
    beside: Ints
    sent: Reals
    began: Reals
    ended: Reals
    asked: Reals


@njit(cache=True, forceinline=True)
def _push(state: State, time: float, what: int) -> None:
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
        state.event_what[place] = state.event_what[parent]
        place = parent
    state.event_time[place] = time
    state.event_order[place] = order
    state.event_what[place] = what


@njit(cache=True, forceinline=True)
def _pop(state: State) -> None:
    """Remove the first event. Of events at the same time, the event that was pushed first comes first."""
    state.numbers[EVENTS] -= 1
    last = state.numbers[EVENTS]
    time, order, what = state.event_time[last], state.event_order[last], state.event_what[last]
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
        state.event_what[place] = state.event_what[child]
        place = child
    state.event_time[place] = time
    state.event_order[place] = order
    state.event_what[place] = what


@njit(cache=True, forceinline=True)
def _append(first: Ints, last: Ints, following: Ints, queue: int, slot: int) -> None:
    following[slot] = _NONE
    if first[queue] == _NONE:
        first[queue] = slot
    else:
        following[last[queue]] = slot
    last[queue] = slot


@njit(cache=True, forceinline=True)
def _take(first: Ints, following: Ints, queue: int) -> int:
    slot = int(first[queue])
    first[queue] = following[slot]
    return slot


@njit(cache=True, forceinline=True)
def _draw(plan: Plan, rng: np.random.Generator, distribution: int) -> float:
    kind = plan.drawn_as[distribution]
    if kind == CONSTANT:
        return float(plan.lower[distribution])
    if kind == EXPONENTIAL:
        return float(plan.lower[distribution] * rng.standard_exponential())
    if kind == UNIFORM:
        return float(plan.lower[distribution] + (plan.upper[distribution] - plan.lower[distribution]) * rng.random())
    return float(plan.values[plan.values_at[distribution] + int(rng.random() * plan.values_of[distribution])])


@njit(cache=True, forceinline=True)
def _choose_socket(plan: Plan, state: State, balancer: int, rng: np.random.Generator) -> int:
    """Return the socket for a balancer's next connection; -1: each socket has as many requests as it may have."""
    sockets = plan.sockets
    at_socket = state.counted[balancer * sockets : (balancer + 1) * sockets]
    if sockets == 1:
        return 0 if plan.most < 0 or at_socket[0] < plan.most else _NONE
    if plan.balance == HASH:
        socket = int(rng.random() * sockets)
        return socket if plan.most < 0 or at_socket[socket] < plan.most else _NONE
    if plan.balance == TWO:
        one = int(rng.random() * sockets)
        other = int(rng.random() * (sockets - 1))
        if other >= one:
            other += 1
        socket = one if at_socket[one] <= at_socket[other] else other
        return socket if plan.most < 0 or at_socket[socket] < plan.most else _NONE
    best = _NONE
    for step in range(sockets):
        socket = (state.turn[balancer] + step) % sockets
        if plan.most >= 0 and at_socket[socket] >= plan.most:
            continue
        if best == _NONE or at_socket[socket] < at_socket[best]:
            best = socket
            if plan.balance == TURNS or at_socket[socket] == 0:
                break
    if best != _NONE:
        state.turn[balancer] = (best + 1) % sockets
    return best


@njit(cache=True, forceinline=True)
def _may_win(plan: Plan, state: State, worker: int, idle_only: bool) -> bool:
    if plan.accepts >= 0 and state.held[worker] >= plan.accepts:
        return False
    return not idle_only or plan.threads < 0 or state.free[worker] > 0


@njit(cache=True, forceinline=True)
def _choose_worker(plan: Plan, state: State, socket: int, rng: np.random.Generator) -> int:
    """Return which of a socket's accepting workers wins the race for a connection."""
    workers, first = plan.workers, socket * plan.workers
    if workers == 1:
        return first
    idle_only = plan.hesitates and state.idle[socket] > 0
    keep = 1 - plan.bias
    beyond = 1 - keep**workers
    for _ in range(_TRIES):
        if plan.bias == 0:
            place = int(rng.random() * workers)
        else:
            place = min(int(np.log1p(-rng.random() * beyond) / np.log(keep)), workers - 1)
        if _may_win(plan, state, first + place, idle_only):
            return first + place
    total = 0.0
    for place in range(workers):
        if _may_win(plan, state, first + place, idle_only):
            total += keep**place
    until = rng.random() * total
    chosen = first
    for place in range(workers):
        if _may_win(plan, state, first + place, idle_only):
            chosen = first + place
            until -= keep**place
            if until < 0:
                break
    return chosen


@njit(cache=True, forceinline=True)
def _locks(plan: Plan) -> int:
    """Return how many locks there are: one for each worker, the device's and the machine's."""
    return plan.sockets * plan.workers + 2


@njit(cache=True, forceinline=True)
def _switch(plan: Plan, lock: int) -> float:
    """Return after how many seconds a lock is passed on if another request waits for it."""
    if lock == _locks(plan) - 1:
        return np.inf
    return _SLICE_S if lock == _locks(plan) - 2 else plan.switch


@njit(cache=True, forceinline=True)
def _hold_lock(plan: Plan, state: State, slot: int, lock: int, now: float) -> None:
    state.holder[lock] = slot
    state.held_since[lock] = now
    ends = state.left[slot]
    if state.lock_first[lock] != _NONE:
        ends = min(ends, _switch(plan, lock))
    state.turns[lock] += 1
    _push(state, now + ends, _LOCK_TURNS + 3 * (lock + _locks(plan) * state.turns[lock]))


@njit(cache=True, forceinline=True)
def _begin_step(plan: Plan, state: State, slot: int, now: float) -> None:
    step = plan.first_step[state.of_class[slot]] + state.step[slot]
    first, every = plan.stalls[4 * step], plan.stalls[4 * step + 1]
    if now >= first and (now - first) % every < plan.stalls[4 * step + 2]:
        state.left[slot] = plan.stalls[4 * step + 3]
    if plan.lock[step] == NO_LOCK:
        _push(state, now + state.left[slot], _STEP_ENDS + 3 * slot)
        return
    lock = state.worker[slot]
    if plan.lock[step] != OF_WORKER:
        lock = _locks(plan) - (2 if plan.lock[step] == OF_DEVICE else 1)
    holder = state.holder[lock]
    if holder == _NONE:
        _hold_lock(plan, state, slot, lock, now)
        return
    first_to_wait = state.lock_first[lock] == _NONE
    _append(state.lock_first, state.lock_last, state.next, lock, slot)
    switch = _switch(plan, lock)
    if first_to_wait and state.held_since[lock] + state.left[holder] > now + switch:
        state.turns[lock] += 1
        _push(state, now + switch, _LOCK_TURNS + 3 * (lock + _locks(plan) * state.turns[lock]))


@njit(cache=True, forceinline=True)
def _close_kept(state: State, worker: int) -> None:
    """Close the idle connections of a worker."""
    left = 0
    for place in range(state.numbers[KEPT]):
        if state.kept[place] != worker:
            state.kept[left] = state.kept[place]
            left += 1
    state.numbers[KEPT] = left


@njit(cache=True, forceinline=True)
def _start(plan: Plan, state: State, slot: int, now: float) -> None:
    worker = state.worker[slot]
    if plan.threads >= 0:
        state.free[worker] -= 1
        state.thread[slot] = state.free_threads[worker * plan.threads + state.free[worker]]
        if state.free[worker] == 0:
            state.idle[worker // plan.workers] -= 1
            state.numbers[IDLE] -= 1
            if plan.closes:
                _close_kept(state, worker)
    if state.step[slot] == 0:
        state.began[slot] = now
    _begin_step(plan, state, slot, now)


@njit(cache=True, forceinline=True)
def _to_thread(plan: Plan, state: State, slot: int, now: float) -> None:
    worker = state.worker[slot]
    if plan.threads < 0 or state.free[worker] > 0:
        _start(plan, state, slot, now)
    else:
        if state.numbers[IDLE] > 0:
            state.beside[slot] = 1
        _append(state.queue_first, state.queue_last, state.next, worker, slot)


@njit(cache=True, forceinline=True)
def _give_thread_back(plan: Plan, state: State, slot: int, now: float) -> None:
    """Free the thread of a slot, and start the first request of its worker's queue."""
    worker = state.worker[slot]
    if plan.threads >= 0:
        state.free_threads[worker * plan.threads + state.free[worker]] = state.thread[slot]
        state.free[worker] += 1
        if state.free[worker] == 1:
            state.idle[worker // plan.workers] += 1
            state.numbers[IDLE] += 1
    if state.queue_first[worker] != _NONE:
        _start(plan, state, _take(state.queue_first, state.next, worker), now)


@njit(cache=True, forceinline=True)
def _accept(plan: Plan, state: State, slot: int, worker: int, now: float) -> None:
    state.worker[slot] = worker
    state.held[worker] += 1
    if state.held[worker] == plan.accepts:
        state.accepting[worker // plan.workers] -= 1
    if plan.keeps[state.of_class[slot]]:
        state.pinned[state.user[slot]] = worker
    _to_thread(plan, state, slot, now)


@njit(cache=True, forceinline=True)
def _reach_socket(plan: Plan, state: State, slot: int, socket: int, now: float, rng: np.random.Generator) -> None:
    state.counted[state.balancer[slot] * plan.sockets + socket] += 1
    if state.accepting[socket] > 0:
        _accept(plan, state, slot, _choose_worker(plan, state, socket, rng), now)
    else:
        if state.numbers[IDLE] > 0:
            state.beside[slot] = 1
        _append(state.listen_first, state.listen_last, state.next, socket, slot)


@njit(cache=True, forceinline=True)
def _note(state: State, rows: Rows, row: int, slot: int, now: float, transit: float) -> None:
    """Write the row of a request, and free its slot. The request was sent a transit before it arrived."""
    one = state.of_class[slot]
    rows.of_class[row] = one
    rows.user[row] = state.user[slot]
    rows.worker[row] = state.worker[slot]
    rows.thread[row] = state.thread[slot]
    rows.beside[row] = state.beside[slot]
    rows.sent[row] = state.sent[slot] - transit
    rows.began[row] = state.began[slot]
    rows.ended[row] = now
    rows.asked[row] = state.asked[slot]
    state.next[slot] = state.numbers[FREE_SLOT]
    state.numbers[FREE_SLOT] = slot


@njit(cache=True, forceinline=True)
def _next_of_user(plan: Plan, state: State, one: int, user: int, soonest: float, rng: np.random.Generator) -> None:
    if plan.kind[one] == CLOSED:
        _push(state, soonest + _draw(plan, rng, plan.pause[one]), _ARRIVAL + 3 * (len(plan.kind) + user))


@njit(cache=True, forceinline=True)
def _finish(plan: Plan, state: State, slot: int, now: float, rng: np.random.Generator) -> None:
    """Free what a request that ended has held, and let the requests in that waited for it."""
    worker, one = state.worker[slot], state.of_class[slot]
    socket = worker // plan.workers
    _give_thread_back(plan, state, slot, now)
    if plan.keeps[one]:
        return
    state.counted[state.balancer[slot] * plan.sockets + socket] -= 1
    if state.numbers[KEPT] < plan.kept:
        state.kept[state.numbers[KEPT]] = worker
        state.numbers[KEPT] += 1
        if not plan.closes:
            return  # the worker goes on holding the connection
    state.held[worker] -= 1
    if state.held[worker] == plan.accepts - 1:
        state.accepting[socket] += 1
    if state.listen_first[socket] != _NONE and state.accepting[socket] > 0:
        _accept(plan, state, _take(state.listen_first, state.next, socket), worker, now)
    if state.numbers[WAITING_FIRST] != _NONE and (plan.most < 0 or state.counted[socket] < plan.most):
        waiting = state.numbers[WAITING_FIRST]
        state.numbers[WAITING_FIRST] = state.next[waiting]
        _reach_socket(plan, state, waiting, socket, now, rng)


@njit(cache=True, forceinline=True)
def _end_step(plan: Plan, state: State, slot: int, now: float, rng: np.random.Generator) -> bool:
    """Go on with the next step of a request. Return whether the request has ended instead."""
    one = state.of_class[slot]
    state.step[slot] += 1
    if state.step[slot] == plan.steps[one]:
        return True
    step = plan.first_step[one] + state.step[slot]
    state.left[slot] = _draw(plan, rng, plan.takes[step])
    if plan.lock[step] != OF_MACHINE:
        state.asked[slot] += state.left[slot]
    if plan.requeues[step] and plan.threads >= 0:
        worker = state.worker[slot]
        if state.queue_first[worker] == _NONE:
            _begin_step(plan, state, slot, now)
        else:
            _append(state.queue_first, state.queue_last, state.next, worker, slot)
            _give_thread_back(plan, state, slot, now)
    else:
        _begin_step(plan, state, slot, now)
    return False


@njit(cache=True, forceinline=True)
def _turn_lock(plan: Plan, state: State, what: int, now: float, rng: np.random.Generator) -> int:
    """Pass a lock on. Return the slot whose request has ended, if any, else -1."""
    lock, turns = what % _locks(plan), what // _locks(plan)
    if turns != state.turns[lock]:
        return _NONE  # since this event was planned, the lock has been passed on
    slot = state.holder[lock]
    left = state.left[slot] - (now - state.held_since[lock])
    state.holder[lock] = _NONE
    ended = left <= 1e-9
    if not ended:
        state.left[slot] = left
        _append(state.lock_first, state.lock_last, state.next, lock, slot)
    if state.lock_first[lock] != _NONE:
        _hold_lock(plan, state, _take(state.lock_first, state.next, lock), lock, now)
    return slot if ended and _end_step(plan, state, slot, now, rng) else _NONE


@njit(cache=True, forceinline=True)
def _arrive(
    plan: Plan, state: State, rows: Rows, row: int, one: int, user: int, now: float, rng: np.random.Generator
) -> int:
    """Let one request arrive. Return how many rows there are then: a refused request has its row at once."""
    slot = state.numbers[FREE_SLOT]
    state.numbers[FREE_SLOT] = state.next[slot]
    works = plan.works_at[one]
    takes = plan.values[works + user] if works >= 0 else _draw(plan, rng, plan.takes[plan.first_step[one]])
    state.of_class[slot], state.user[slot], state.step[slot] = one, user, 0
    state.sent[slot], state.began[slot], state.left[slot] = now, np.nan, takes
    state.asked[slot] = takes if plan.lock[plan.first_step[one]] != OF_MACHINE else 0.0
    state.worker[slot], state.thread[slot], state.beside[slot] = _NONE, _NONE, 0
    if plan.keeps[one] and state.pinned[user] != _NONE:
        state.worker[slot] = state.pinned[user]
        _to_thread(plan, state, slot, now)
        return row
    state.balancer[slot] = int(rng.random() * plan.balancers) if plan.balancers > 1 else 0
    if state.numbers[KEPT] > 0:
        state.numbers[KEPT] -= 1
        worker = state.kept[state.numbers[KEPT]]
        state.worker[slot] = worker
        state.counted[worker // plan.workers] += 1
        if plan.closes:
            state.held[worker] += 1
            if state.held[worker] == plan.accepts:
                state.accepting[worker // plan.workers] -= 1
        _to_thread(plan, state, slot, now)
        return row
    socket = _choose_socket(plan, state, state.balancer[slot], rng)
    if socket != _NONE:
        _reach_socket(plan, state, slot, socket, now, rng)
        return row
    if plan.queues:
        if state.numbers[IDLE] > 0:
            state.beside[slot] = 1
        state.next[slot] = _NONE
        if state.numbers[WAITING_FIRST] == _NONE:
            state.numbers[WAITING_FIRST] = slot
        else:
            state.next[state.numbers[WAITING_LAST]] = slot
        state.numbers[WAITING_LAST] = slot
        return row
    _note(state, rows, row, slot, now, plan.transit)
    _next_of_user(plan, state, one, user, now + plan.transit + _REFUSAL_S, rng)
    return row + 1


@njit(cache=True, forceinline=True)
def _late(plan: Plan, one: int, rng: np.random.Generator) -> float:
    """Return how late a regular request comes."""
    return plan.jitter[one] * rng.random() if plan.jitter[one] > 0 else 0.0


@njit(cache=True, forceinline=True)
def _plan_next(plan: Plan, state: State, one: int, now: float, rng: np.random.Generator) -> None:
    """Plan the next arrival of a class without users."""
    state.arrived[one] += 1
    if plan.kind[one] == POISSON:
        _push(state, now + plan.apart[one] * rng.standard_exponential(), _ARRIVAL + 3 * one)
    elif plan.kind[one] == REGULAR:
        due = state.arrived[one] * plan.apart[one] + _late(plan, one, rng)
        _push(state, max(now, due), _ARRIVAL + 3 * one)
    elif plan.kind[one] == BURSTS:
        burst, place = divmod(state.arrived[one], plan.size[one])
        _push(state, burst * plan.every[one] + place * plan.apart[one], _ARRIVAL + 3 * one)
    elif state.arrived[one] < plan.size[one]:
        _push(state, plan.values[plan.sent_at[one] + state.arrived[one]], _ARRIVAL + 3 * one)


@njit(cache=True, _nrt=False)  # type: ignore[call-overload]  # an option without a type
def begin(plan: Plan, state: State, rng: np.random.Generator) -> None:
    """Plan the first arrivals: those of users, bursts and regular requests at once."""
    for one in range(len(plan.kind)):
        kind = plan.kind[one]
        if kind == CLOSED:
            for user in range(plan.size[one]):
                pause = _draw(plan, rng, plan.pause[one])
                first = pause * rng.random() if pause > 0 else 0.0  # k6's users begin in the middle of a pause
                _push(state, first, _ARRIVAL + 3 * (len(plan.kind) + plan.first_user[one] + user))
        elif kind == POISSON:
            _push(state, plan.apart[one] * rng.standard_exponential(), _ARRIVAL + 3 * one)
        elif kind == RECORDED:
            if plan.size[one] > 0:
                _push(state, plan.values[plan.sent_at[one]], _ARRIVAL + 3 * one)
        else:
            _push(state, _late(plan, one, rng), _ARRIVAL + 3 * one)


@njit(cache=True, _nrt=False)  # type: ignore[call-overload]  # an option without a type
def advance(plan: Plan, state: State, rng: np.random.Generator, rows: Rows, row: int, until: float) -> tuple[int, int]:
    """Go on until all requests that arrive before ``until`` have ended, or an array is full.

    Return the number of rows and the reason to stop.
    """
    classes = len(plan.kind)
    while state.numbers[EVENTS] > 0:
        if row + 2 > len(rows.sent):
            return row, ROWS_FULL
        if state.numbers[EVENTS] + 8 > len(state.event_time):
            return row, NO_EVENT
        if state.numbers[FREE_SLOT] == _NONE:
            return row, NO_SLOT
        now, what = state.event_time[0], state.event_what[0]
        if what % 3 == _ARRIVAL:
            _pop(state)
            if now >= until:
                continue
            one = what // 3
            if one >= classes:
                user = one - classes
                one = classes - 1
                while plan.first_user[one] > user:
                    one -= 1
                row = _arrive(plan, state, rows, row, one, user, now, rng)
            else:
                row = _arrive(plan, state, rows, row, one, state.arrived[one], now, rng)
                _plan_next(plan, state, one, now, rng)
            continue
        _pop(state)
        if what % 3 == _STEP_ENDS:
            slot = what // 3
            ended = slot if _end_step(plan, state, slot, now, rng) else _NONE
        else:
            ended = _turn_lock(plan, state, what // 3, now, rng)
        if ended != _NONE:
            one, user = state.of_class[ended], state.user[ended]
            _finish(plan, state, ended, now, rng)
            _note(state, rows, row, ended, now, plan.transit)
            row += 1
            _next_of_user(plan, state, one, user, now + plan.transit, rng)
    return row, DONE

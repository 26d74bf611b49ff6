"""Simulate a queueing system: the same seed gives the same requests, to the bit."""

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, NamedTuple

import numpy as np

from stampede.theory import events, model
from stampede.theory.events import CompiledSystem, Rows, SimulationState
from stampede.theory.model import Class, Closed, Distribution, QueueingSystem, Recorded, WorkStep

_CHUNK = 1 << 16
_BALANCE = {"hash": events.HASH, "turns": events.TURNS, "least": events.LEAST, "two": events.TWO}


def simulate(system: QueueingSystem, seconds: float, seed: int) -> Rows:
    """Return all requests that arrive within ``seconds``, in the order in which they were sent.

    Times are in seconds since the first request could arrive. The simulation goes on until all have ended.
    """
    [rows] = simulate_trials(system, seconds, [seed])
    return rows


def simulate_trials(system: QueueingSystem, seconds: float, seeds: Iterable[int]) -> Iterator[Rows]:
    """Yield for each seed what ``simulate`` returns. What the trials have in common is prepared once."""
    prepared = _prepare(system)
    for seed in seeds:
        parts = list(_chunks(prepared, seconds, seed))
        rows = Rows._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((rows.user, rows.of_class, rows.sent))
        yield Rows._make(column[order] for column in rows)


def simulate_in_chunks(system: QueueingSystem, seconds: float, seed: int) -> Iterator[Rows]:
    """Yield the same requests in the order of their ends, some ten thousand at a time: the memory stays small."""
    return _chunks(_prepare(system), seconds, seed)


def warm_up() -> None:
    """Let Numba compile the simulator into its cache, so that no later command waits for it."""
    work = [WorkStep(model.Constant(0.1))]
    simulate(QueueingSystem(model.Servers(), [Class("one", model.Open(1.0), work)]), 1.0, 0)


_Prepared = tuple[CompiledSystem, SimulationState, Rows]
"""A system as arrays, the state before anything is drawn, and room for rows."""


def _prepare(system: QueueingSystem) -> _Prepared:
    compiled = _compile(system)
    times = {"sent", "began", "ended", "asked"}
    room = (np.zeros(_CHUNK, dtype=np.float64 if name in times else np.int64) for name in Rows._fields)
    return compiled, _blank(compiled), Rows._make(room)


def _chunks(prepared: _Prepared, seconds: float, seed: int) -> Iterator[Rows]:
    rng = np.random.Generator(np.random.SFC64(seed))
    compiled, blank, rows = prepared
    state = SimulationState._make(array.copy() for array in blank)
    state.turn[:] = rng.integers(0, compiled.sockets if compiled.balancers > 1 else 1, compiled.balancers)
    events.begin(compiled, state, rng)
    row, reason = 0, events.ROWS_FULL
    while reason != events.DONE:
        row, reason = events.advance(compiled, state, rng, rows, row, seconds)
        if reason in (events.ROWS_FULL, events.DONE):
            yield Rows._make(column[:row].copy() for column in rows)
            row = 0
        elif reason == events.NO_SLOT:
            slots = len(state.next)
            more = _doubled(state, _OF_A_SLOT)
            more.next[slots:] = [*range(slots + 1, 2 * slots), state.numbers[events.FREE_SLOT]]
            more.numbers[events.FREE_SLOT] = slots
            state = more
        else:
            state = _doubled(state, ("event_time", "event_order", "event"))


class _Drawn(NamedTuple):
    """How a distribution is drawn: its least and its most (both are a mean, if it has one), or the values to draw."""

    kind: int
    lower: float = 0.0
    upper: float = 0.0
    values: events.Reals = np.empty(0)


def _drawn(distribution: Distribution) -> _Drawn:
    match distribution:
        case model.Constant(seconds):
            return _Drawn(events.CONSTANT, seconds, seconds)
        case model.Uniform(least, most):
            return _Drawn(events.UNIFORM, least, most)
        case model.Exponential(mean):
            return _Drawn(events.EXPONENTIAL, mean, mean)
        case model.Given(values):
            return _Drawn(events.GIVEN, values=np.asarray(values, dtype=np.float64))


class _Compiled(NamedTuple):
    """The arrivals of a class: the columns of ``CompiledSystem`` that depend on their kind."""

    kind: int
    size: int = 1
    apart: float = 0.0
    every: float = 0.0
    jitter: float = 0.0
    keeps: bool = False


def _arrivals(class_: Class) -> _Compiled:
    match class_.arrivals:
        case model.Closed(users, _, keeps):
            return _Compiled(events.CLOSED, users, keeps=keeps)
        case model.Open(per_second, regular, jitter):
            return _Compiled(events.REGULAR if regular else events.POISSON, apart=1 / per_second, jitter=jitter)
        case model.Bursts(size, every, apart):
            return _Compiled(events.BURSTS, size, apart, every)
        case model.Recorded(sent):
            return _Compiled(events.RECORDED, len(sent))


def _compile(system: QueueingSystem) -> CompiledSystem:
    """Return a system as the arrays that ``stampede.theory.events`` works on."""
    servers, classes = system.servers, system.classes
    drawn: list[_Drawn] = []
    values: list[events.Reals] = [np.zeros(0)]

    def place(distribution: Distribution) -> int:
        drawn.append(_drawn(distribution))
        return len(drawn) - 1

    def keep(array: events.Reals | None) -> int:
        if array is None:
            return -1
        values.append(np.asarray(array, dtype=np.float64))
        return sum(map(len, values[:-1]))

    arrivals = [_arrivals(class_) for class_ in classes]
    users = [each.size if each.kind == events.CLOSED else 0 for each in arrivals]
    steps = [step for class_ in classes for step in class_.steps]
    return CompiledSystem(
        sockets=servers.sockets,
        balancers=servers.balancers,
        balance=_BALANCE[servers.balance],
        max_per_socket=_limit(servers.max_per_socket),
        queues=servers.queues,
        idle_kept=servers.idle_kept,
        closes_idle_when_full=servers.closes_idle_when_full,
        workers=servers.workers,
        threads=_limit(servers.threads),
        max_connections=_limit(servers.max_connections),
        bias=float(servers.bias),
        hesitates=servers.hesitates,
        cores=_limit(servers.cores),
        containers=servers.containers,
        quota=inf if servers.quota is None else float(servers.quota),
        transit=float(system.transit),
        switch=inf if servers.loop else float(servers.switch),
        kind=_ints(each.kind for each in arrivals),
        size=_ints(each.size for each in arrivals),
        apart=_reals(each.apart for each in arrivals),
        every=_reals(each.every for each in arrivals),
        jitter=_reals(each.jitter for each in arrivals),
        keeps=_ints(each.keeps for each in arrivals),
        pause=_ints(place(each.arrivals.pause) if isinstance(each.arrivals, Closed) else -1 for each in classes),
        first_user=_ints(np.cumsum([0, *users])[:-1]),
        sent_at=_ints(keep(each.arrivals.sent if isinstance(each.arrivals, Recorded) else None) for each in classes),
        works_at=_ints(keep(each.works) for each in classes),
        first_step=_ints(np.cumsum([0, *(len(each.steps) for each in classes)])[:-1]),
        steps=_ints(len(each.steps) for each in classes),
        class_of_user=np.repeat(np.arange(len(classes), dtype=np.int64), users),
        takes=_ints(place(step.takes) for step in steps),
        lock=_ints(_lock(step, system) for step in steps),
        requeues=_ints(step.queues for step in steps),
        stalls=np.array([_stalls(step) for step in steps], dtype=np.float64),
        drawn_as=_ints(each.kind for each in drawn),
        lower=_reals(each.lower for each in drawn),
        upper=_reals(each.upper for each in drawn),
        values_at=_ints(keep(each.values) for each in drawn),
        values_of=_ints(len(each.values) for each in drawn),
        values=np.concatenate(values),
    )


def _lock(step: WorkStep, system: QueueingSystem) -> int:
    """Return the lock that a step needs."""
    if step.does == "compute":
        return events.OF_WORKER
    if step.does == "call" and system.servers.loop:
        return events.OF_LOOP
    if step.does == "occupy":
        return events.OF_MACHINE
    return events.OF_DEVICE if step.does == "call" and system.one_device else events.NO_LOCK


def _stalls(step: WorkStep) -> tuple[float, float, float, float]:
    stalls = step.stalls
    return (stalls.first, stalls.every, stalls.lasts, stalls.takes) if stalls else (inf, 1.0, 0.0, 0.0)


_OF_A_SLOT = ("of_class", "user", "sent", "began", "asked", "left", "worker", "thread", "step", "balancer", "next")
_TIMES = {"event_time", "sent", "began", "asked", "left", "held_since", "quota_left"}


def _blank(system: CompiledSystem) -> SimulationState:
    """Return the state before anything is drawn."""
    classes, users = len(system.kind), len(system.class_of_user)
    sockets, workers, threads = system.sockets, system.sockets * system.workers, max(system.threads, 0)
    slots = 64 + users
    groups: tuple[tuple[int, int, tuple[str, ...]], ...] = (
        (64 + classes + users + 2 * slots, 0, ("event_time", "event_order", "event")),
        (slots, 0, _OF_A_SLOT),
        (1, -1, ("waiting_first", "waiting_last")),
        (system.balancers * sockets, 0, ("at_socket",)),
        (system.balancers, 0, ("turn",)),
        (system.idle_kept, 0, ("idle_connections",)),
        (sockets, -1, ("listen_first", "listen_last")),
        (sockets, system.workers, ("accepting", "idle")),
        (workers, 0, ("held",)),
        (workers, threads, ("free",)),
        (workers, -1, ("queue_first", "queue_last")),
        (workers + 2, -1, ("holder", "lock_first", "lock_last")),
        (workers + 2, 0, ("held_since", "turns", "next_worker")),
        (1, -1, ("core_first", "core_last")),
        (system.containers, -1, ("throttled_first", "throttled_last", "period")),
        (system.containers, 0, ("quota_left",)),
        (users, -1, ("pinned",)),
        (classes, 0, ("arrived",)),
    )
    arrays: dict[str, Any] = {
        name: np.full(count, value, dtype=np.float64 if name in _TIMES else np.int64)
        for count, value, names in groups
        for name in names
    }
    arrays["next"] = _ints([*range(1, slots), -1])
    arrays["free_threads"] = np.tile(np.arange(threads, dtype=np.int64)[::-1], workers)
    return SimulationState(numbers=_ints([0, 0, 0, 0, 0]), **arrays)


def _doubled(state: SimulationState, names: Iterable[str]) -> SimulationState:
    arrays = {name: getattr(state, name) for name in names}
    return state._replace(**{name: np.concatenate([array, np.zeros_like(array)]) for name, array in arrays.items()})


def _limit(count: int | None) -> int:
    return -1 if count is None else count


def _ints(values: Iterable[int]) -> events.Ints:
    return np.array(list(values), dtype=np.int64)


def _reals(values: Iterable[float]) -> events.Reals:
    return np.array(list(values), dtype=np.float64)

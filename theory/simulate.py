"""Simulate a model: the same seed gives the same requests, to the bit."""

from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple, TypeVar

import numpy as np

from theory import events, recursion
from theory.events import Plan, Rows, State
from theory.model import (
    Bursts,
    Class,
    Closed,
    Constant,
    Distribution,
    Exponential,
    Given,
    Model,
    Open,
    Recorded,
    Servers,
    Step,
    Uniform,
)

_CHUNK = 1 << 16
_BALANCE = {"hash": events.HASH, "turns": events.TURNS, "least": events.LEAST, "two": events.TWO}


def simulate(model: Model, seconds: float, seed: int) -> Rows:
    """Return all requests that arrive within ``seconds``, in the order in which they were sent.

    Times are in seconds since the first request could arrive. The simulation goes on until all have ended.
    """
    [found] = trials(model, seconds, [seed])
    return found


def trials(model: Model, seconds: float, seeds: Iterable[int]) -> Iterator[Rows]:
    """Yield for each seed what ``simulate`` returns. What the trials have in common is prepared once."""
    prepared = None if recursion.can(model) else Prepared.of(model)
    for seed in seeds:
        yield _in_order(model, list(_chunks(model, prepared, seconds, seed)))


def _in_order(model: Model, parts: list[Rows]) -> Rows:
    found = Rows._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
    if recursion.can(model):
        return found
    order = np.lexsort((found.user, found.of_class, found.sent))
    return Rows._make(column[order] for column in found)


def chunks(model: Model, seconds: float, seed: int) -> Iterator[Rows]:
    """Yield the same requests in the order of their ends, some ten thousand at a time: the memory stays small."""
    return _chunks(model, None if recursion.can(model) else Prepared.of(model), seconds, seed)


class Prepared(NamedTuple):
    """A model as arrays, the state before anything is drawn, and room for rows."""

    plan: Plan
    blank: State
    rows: Rows

    @classmethod
    def of(cls, model: Model) -> "Prepared":
        """Prepare the simulation of a model."""
        plan = compiled(model)
        return cls(plan, _blank(plan, model), _rows(_CHUNK))

    def begin(self, rng: np.random.Generator) -> State:
        """Return the state before the first arrival, whose time the random numbers decide in an open loop."""
        state = State._make(array.copy() for array in self.blank)
        sockets, balancers = self.plan.sockets, self.plan.balancers
        state.turn[:] = rng.integers(0, sockets if balancers > 1 else 1, balancers)
        events.begin(self.plan, state, rng)
        return state


def _chunks(model: Model, prepared: Prepared | None, seconds: float, seed: int) -> Iterator[Rows]:
    rng = np.random.Generator(np.random.SFC64(seed))
    if prepared is None:
        yield from recursion.chunks(model, seconds, rng, _CHUNK)
        return
    plan, _, rows = prepared
    state = prepared.begin(rng)
    row, reason = 0, events.ROWS_FULL
    while reason != events.DONE:
        row, reason = events.advance(plan, state, rng, rows, row, seconds)
        if reason in (events.ROWS_FULL, events.DONE):
            yield Rows._make(column[:row].copy() for column in rows)
            row = 0
        elif reason == events.NO_SLOT:
            state = _with_more_slots(state)
        else:
            state = state._replace(
                event_time=_doubled(state.event_time),
                event_order=_doubled(state.event_order),
                event_what=_doubled(state.event_what),
            )


def warm_up() -> None:
    """Let Numba compile the simulator into its cache, so that no later command waits for it."""
    for servers in (Servers(), Servers(workers=2)):
        simulate(Model(servers, [Class("one", Open(1.0), [Step(Constant(0.1))])]), 1.0, 0)


class _Drawn(NamedTuple):
    kind: int
    lower: float
    upper: float
    values: events.Reals


def _drawn(distribution: Distribution) -> _Drawn:
    nothing = np.empty(0)
    match distribution:
        case Constant(seconds):
            return _Drawn(events.CONSTANT, seconds, seconds, nothing)
        case Uniform(least, most):
            return _Drawn(events.UNIFORM, least, most, nothing)
        case Exponential(mean):
            return _Drawn(events.EXPONENTIAL, mean, mean, nothing)
        case Given(values):
            return _Drawn(events.GIVEN, 0.0, 0.0, np.asarray(values, dtype=np.float64))


def _arrivals(one: Class) -> tuple[int, int, float]:
    """Return the kind, the number of users or requests, and the time between arrivals."""
    match one.arrivals:
        case Closed(users):
            return events.CLOSED, users, 0.0
        case Open(per_second, regular, _):
            return events.REGULAR if regular else events.POISSON, 1, 1 / per_second
        case Bursts(size, _, apart):
            return events.BURSTS, size, apart
        case Recorded(sent):
            return events.RECORDED, len(sent), 0.0


def compiled(model: Model) -> Plan:
    """Return a model as the arrays that ``theory.events`` works on."""
    servers = model.servers
    drawn: list[_Drawn] = []
    values: list[events.Reals] = []

    def place(distribution: Distribution) -> int:
        drawn.append(_drawn(distribution))
        return len(drawn) - 1

    def keep(array: events.Reals) -> int:
        start = sum(map(len, values))
        values.append(np.asarray(array, dtype=np.float64))
        return start

    kinds = [_arrivals(one) for one in model.classes]
    closed = [one.arrivals if isinstance(one.arrivals, Closed) else None for one in model.classes]
    users = [one.users if one else 0 for one in closed]
    steps = [step for one in model.classes for step in one.steps]
    pauses = [place(one.pause) if one else -1 for one in closed]
    takes = [place(step.takes) for step in steps]
    lengths = [len(one.steps) for one in model.classes]
    values_at = [keep(one.values) for one in drawn]
    sent_at = [keep(one.arrivals.sent) if isinstance(one.arrivals, Recorded) else -1 for one in model.classes]
    works_at = [keep(one.works) if one.works is not None else -1 for one in model.classes]
    return Plan(
        sockets=servers.sockets,
        balancers=servers.balancers,
        balance=_BALANCE[servers.balance],
        most=_limit(servers.most),
        queues=servers.queues,
        kept=servers.kept,
        closes=servers.closes,
        workers=servers.workers,
        threads=_limit(servers.threads),
        accepts=_limit(servers.accepts),
        bias=float(servers.bias),
        hesitates=servers.hesitates,
        transit=float(model.transit),
        switch=inf if servers.loop else float(servers.switch),
        kind=_ints([kind for kind, _, _ in kinds]),
        size=_ints([size for _, size, _ in kinds]),
        apart=np.array([apart for _, _, apart in kinds], dtype=np.float64),
        every=np.array([one.arrivals.every if isinstance(one.arrivals, Bursts) else 0.0 for one in model.classes]),
        jitter=np.array([one.arrivals.jitter if isinstance(one.arrivals, Open) else 0.0 for one in model.classes]),
        keeps=_ints([one is not None and one.keeps for one in closed]),
        pause=_ints(pauses),
        first_user=_ints(np.cumsum([0, *users])[:-1].tolist()),
        sent_at=_ints(sent_at),
        works_at=_ints(works_at),
        first_step=_ints(np.cumsum([0, *lengths])[:-1].tolist()),
        steps=_ints(lengths),
        takes=_ints(takes),
        lock=_ints([_lock(step, model) for step in steps]),
        requeues=_ints([step.queues for step in steps]),
        stalls=np.array([time for step in steps for time in _stalls(step)], dtype=np.float64),
        drawn_as=_ints([one.kind for one in drawn]),
        lower=np.array([one.lower for one in drawn], dtype=np.float64),
        upper=np.array([one.upper for one in drawn], dtype=np.float64),
        values_at=_ints(values_at),
        values_of=_ints([len(one.values) for one in drawn]),
        values=np.concatenate([np.zeros(1), *values])[1:] if values else np.zeros(0),
    )


def _lock(step: Step, model: Model) -> int:
    """Return the lock that a step needs."""
    if step.does == "compute" or (step.does == "call" and model.servers.loop):
        return events.OF_WORKER
    if step.does == "occupy":
        return events.OF_MACHINE
    return events.OF_DEVICE if step.does == "call" and model.one_device else events.NO_LOCK


def _stalls(step: Step) -> tuple[float, float, float, float]:
    one = step.stalls
    return (inf, 1.0, 0.0, 0.0) if one is None else (one.first, one.every, one.lasts, one.takes)


def _blank(plan: Plan, model: Model) -> State:
    """Return the state before anything is drawn."""
    classes, users = (
        len(plan.kind),
        sum(one.arrivals.users for one in model.classes if isinstance(one.arrivals, Closed)),
    )
    everyone = plan.sockets * plan.workers
    threads = max(plan.threads, 0)
    slots = 64 + users
    events_at_most = 64 + classes + users + 2 * slots
    nobody = {
        name: np.full(count, -1, dtype=np.int64)
        for names, count in (
            (("listen_first", "listen_last"), plan.sockets),
            (("queue_first", "queue_last"), everyone),
            (("holder", "lock_first", "lock_last"), everyone + 2),
            (("of_class", "user", "worker", "thread"), slots),
            (("pinned",), users),
        )
        for name in names
    }
    return State(
        numbers=_ints([0, 0, 0, everyone, -1, -1, 0]),
        event_time=np.zeros(events_at_most),
        event_order=np.zeros(events_at_most, dtype=np.int64),
        event_what=np.zeros(events_at_most, dtype=np.int64),
        sent=np.zeros(slots),
        began=np.zeros(slots),
        asked=np.zeros(slots),
        left=np.zeros(slots),
        step=np.zeros(slots, dtype=np.int64),
        beside=np.zeros(slots, dtype=np.int64),
        next=_ints([*range(1, slots), -1]),
        balancer=np.zeros(slots, dtype=np.int64),
        counted=np.zeros(plan.balancers * plan.sockets, dtype=np.int64),
        turn=np.zeros(plan.balancers, dtype=np.int64),
        accepting=np.full(plan.sockets, plan.workers, dtype=np.int64),
        idle=np.full(plan.sockets, plan.workers, dtype=np.int64),
        held=np.zeros(everyone, dtype=np.int64),
        free=np.full(everyone, threads, dtype=np.int64),
        free_threads=np.tile(np.arange(threads, dtype=np.int64)[::-1], everyone),
        held_since=np.zeros(everyone + 2),
        turns=np.zeros(everyone + 2, dtype=np.int64),
        kept=np.zeros(plan.kept, dtype=np.int64),
        arrived=np.zeros(classes, dtype=np.int64),
        **nobody,
    )


def _with_more_slots(state: State) -> State:
    """Return the state with twice as many slots; all of the new ones are free."""
    slots = len(state.next)
    names = (
        "of_class",
        "user",
        "worker",
        "thread",
        "sent",
        "began",
        "asked",
        "left",
        "step",
        "beside",
        "next",
        "balancer",
    )
    more = state._replace(**{name: _doubled(getattr(state, name)) for name in names})
    more.next[slots:] = [*range(slots + 1, 2 * slots), state.numbers[events.FREE_SLOT]]
    more.numbers[events.FREE_SLOT] = slots
    return more


_Array = TypeVar("_Array", events.Ints, events.Reals)


def _doubled(array: _Array) -> _Array:
    return np.concatenate([array, np.zeros_like(array)])


def _rows(count: int) -> Rows:
    times = {"sent", "began", "ended", "asked"}
    return Rows._make(np.zeros(count, dtype=np.float64 if name in times else np.int64) for name in Rows._fields)


def _limit(count: int | None) -> int:
    return -1 if count is None else count


def _ints(values: list[int] | list[bool]) -> events.Ints:
    return np.array(values, dtype=np.int64)

"""How far the clocks of several machines are apart, bounded by messages: no message arrives before it is sent.

A message is sent by the clock of one machine and arrives by the clock of another machine. The difference of the two
times bounds how far the second clock can be behind the first clock (Duda, Harrus, Haddad and Bernard 1987, Estimating
global time in distributed systems). A clock is taken to run at a steady rate during a trial. Then all bounds are
linear, and a linear program finds the extremes among all clocks that satisfy the bounds (Moon, Skelly and Towsley 1999,
Estimation and removal of clock skew from network delay measurements). Questions for the time before and after the load
tie each clock to the lab's clock (Cristian 1989, Probabilistic clock synchronization).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
Pair = tuple[str, str]
"""The names of two machines."""

MOST_DRIFT = 500e-6
"""The most that a clock gains or loses against the lab's clock, in seconds per second: the frequency tolerance of NTP
(RFC 5905), to which Linux, too, limits how it steers its clock."""
PRECISION_S = 2e-6
"""By how much a message may seem to arrive too early, because times are written in microseconds."""
_FARTHEST_S = 3600.0
"""How far a clock can be from where the questions for the time place it."""


class UnknownClock(ValueError):
    """The clocks of a trial's machines cannot be compared; the message names the machines and the reason."""


class Messages(NamedTuple):
    """Messages from machine ``origin`` to machine ``target``; None: the lab itself.

    ``sent`` has the times of sending by the clock of the origin, ``arrived`` the times of arrival by the clock of the
    target, in epoch seconds.
    """

    origin: str | None
    target: str | None
    sent: Times
    arrived: Times


class Clock(NamedTuple):
    """How far a clock is ahead of the lab's clock.

    When the clock shows ``since`` (epoch seconds), it is ``ahead_s`` ahead; in every second it gains ``drift`` seconds.
    """

    ahead_s: float
    drift: float
    since: float

    def corrected(self, shown: float) -> float:
        """Return the time by the lab's clock at which this clock shows a time; both in epoch seconds."""
        return shown - self.ahead_s - self.drift * (shown - self.since)


class ClockEstimates(NamedTuple):
    """The clocks of machines, by name, and how well they are known.

    ``uncertain_s`` is how far each clock may be from its estimate during the load, ``apart_s`` how far the difference
    between the two clocks of each pair may be from the difference between their estimates.
    """

    clocks: dict[str, Clock]
    uncertain_s: dict[str, float]
    apart_s: dict[Pair, float]


class _Bounds(NamedTuple):
    """Linear bounds on the lines of all clocks: ``rows @ lines <= most``. ``owners``: the machines of each bound.

    The line of a clock is how far it is from its rough estimate at the beginning of the load, and at its end.
    """

    rows: Times
    most: Times
    owners: list[frozenset[str]]

    def within(self, machines: frozenset[str]) -> "_Bounds":
        """Return the bounds that are about these machines alone."""
        mine = [place for place, owners in enumerate(self.owners) if owners <= machines]
        return _Bounds(self.rows[mine], self.most[mine], [self.owners[place] for place in mine])


def find(messages: Sequence[Messages], pairs: Sequence[Pair]) -> ClockEstimates:
    """Return the clocks of all machines that messages come from or go to, and how well they are known.

    ``pairs`` are the machines whose times are compared. Raise UnknownClock if the lab did not ask a machine for its
    time, or if no steady clocks satisfy all bounds.
    """
    names = sorted({name for message in messages for name in (message.origin, message.target) if name is not None})
    rough_s = {name: _rough(name, messages) for name in names}
    load = [message for message in messages if message.origin is not None and message.target is not None] or messages
    first = min(float(message.sent.min()) - rough_s.get(message.origin or "", 0.0) for message in load)
    last = max(float(message.arrived.max()) - rough_s.get(message.target or "", 0.0) for message in load)
    span_s = max(last - first, 1.0)
    bounds = _bounds(names, messages, rough_s, first, span_s)
    wanted = [*_directions(names, [(None, name) for name in names]), *_directions(names, pairs)]
    ends = [end for direction in wanted if (end := _farthest(bounds, direction)) is not None]
    if len(ends) < len(wanted):
        few = (machines for size in (1, 2) for machines in combinations(names, size))
        contradictory = (m for m in few if _farthest(bounds.within(frozenset(m)), wanted[0]) is None)
        *others, one = next(contradictory, names)
        rate = f"gained or lost more than {1e6 * MOST_DRIFT:.0f} ppm"
        if not others:
            raise UnknownClock(f"the clock of {one} was set during the load, or {rate}")
        which = f"the clocks of {', '.join(others)} and {one} contradict each other"
        raise UnknownClock(f"{which}: one of them was set during the load, or {rate}")
    middle = _middle(np.array(ends), len(names))
    beyond_s = [round(float(direction @ (end - middle)), 7) for direction, end in zip(wanted, ends, strict=True)]
    farthest_s = [max(beyond_s[place : place + 4]) for place in range(0, len(beyond_s), 4)]
    clocks = {}
    for name, (start_s, end_s) in zip(names, middle.reshape(-1, 2).tolist(), strict=True):
        ahead_s, since = round(rough_s[name] + start_s, 7), round(first + rough_s[name], 6)
        clocks[name] = Clock(ahead_s, round((end_s - start_s) / span_s, 12), since)
    return ClockEstimates(
        clocks=clocks,
        uncertain_s=dict(zip(names, farthest_s, strict=False)),
        apart_s=dict(zip(pairs, farthest_s[len(names) :], strict=True)),
    )


def _rough(name: str, messages: Iterable[Messages]) -> float:
    """Return about how far a clock is ahead of the lab's, by the questions for its time. Raise UnknownClock if none."""
    asked = [message for message in messages if (message.origin, message.target) == (None, name)]
    told = [message for message in messages if (message.origin, message.target) == (name, None)]
    if not asked or not told:
        raise UnknownClock(f"the clock of {name} is unknown: the lab did not ask {name} for its time")
    at_most = min(float((message.arrived - message.sent).min()) for message in asked)
    at_least = max(float((message.sent - message.arrived).max()) for message in told)
    return (at_most + at_least) / 2


def _bounds(
    names: Sequence[str], messages: Iterable[Messages], rough_s: Mapping[str, float], first: float, span_s: float
) -> _Bounds:
    """Return the bounds from messages, and on how far and how fast each clock is away from its rough estimate."""
    size = 2 * len(names)
    drifts = np.kron(np.eye(len(names)), [[-1.0, 1.0], [1.0, -1.0]])
    rows = [drifts]
    most = [np.full(size, MOST_DRIFT * span_s)]
    owners = [frozenset({names[place // 2]}) for place in range(size)]
    for message in messages:
        bounding = np.zeros((len(message.sent), size))
        taken_s = np.zeros(len(message.sent))
        for times, of, sign in ((message.sent, message.origin, -1), (message.arrived, message.target, 1)):
            roughly = times - rough_s.get(of or "", 0.0)
            taken_s += sign * roughly
            if of is not None:
                share, place = (roughly - first) / span_s, 2 * names.index(of)
                bounding[:, place], bounding[:, place + 1] = sign * (1 - share), sign * share
        rows.append(bounding)
        most.append(taken_s + PRECISION_S)
        owners += [frozenset(of for of in (message.origin, message.target) if of is not None)] * len(message.sent)
    return _Bounds(np.concatenate(rows), np.concatenate(most), owners)


def _directions(names: Sequence[str], pairs: Iterable[tuple[str | None, str]]) -> Iterator[Times]:
    """Yield four directions for each pair: its second clock far ahead or behind, at the beginning or end of the load.

    None stands for the lab's clock.
    """
    for origin, other in pairs:
        for sign in (1, -1):
            for end in (0, 1):
                direction = np.zeros(2 * len(names))
                direction[2 * names.index(other) + end] += sign
                if origin is not None:
                    direction[2 * names.index(origin) + end] -= sign
                yield direction


def _middle(ends: Times, machines: int) -> Times:
    """Return the unknowns in the middle of the ends of all directions, of which the first four are of each machine.

    The ends of pairs say how far clocks differ from each other, the ends of machines how far all clocks together are
    from the lab's clock.
    """
    alone, pairs = ends[: 4 * machines].reshape(machines, 4, machines, 2), ends[4 * machines :]
    of_each = np.array([(of[:2, place] + of[2:, place]).diagonal() / 2 for place, of in enumerate(alone)])
    if not len(pairs):
        return of_each.ravel()
    apart = pairs.mean(axis=0).reshape(-1, 2)
    return np.asarray((apart + (of_each - apart).mean(axis=0)).ravel())


def _farthest(bounds: _Bounds, direction: Times) -> Times | None:
    """Return the lines that are farthest in a direction and satisfy all bounds; None: no lines do."""
    from scipy.optimize import linprog  # noqa: PLC0415  # takes a fifth of a second

    tilt = 1e-7 * np.sqrt(np.arange(2.0, len(direction) + 2))  # makes no two corners equally far
    direction = direction + np.sign(direction @ tilt) * tilt
    options = {"presolve": False, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-10}
    found = linprog(-direction, bounds.rows, bounds.most, bounds=(-_FARTHEST_S, _FARTHEST_S), options=options)
    if found.status == 2:
        return None
    assert found.status == 0, found.message
    return np.asarray(found.x)

"""The best alignment of two logs in time: which line of the one is which line of the other, compiled.

It is a global alignment of two sequences with gaps (Needleman and Wunsch 1970, A general method applicable to the
search for similarities), for each path, among lines that end at about the same time.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stampede.logs.columns import Flags, Floats, Integers
from stampede.theory.compiled import njit

PRECISION_S = 0.002
"""By how much a request may seem to take longer in the server than in the balancer: nginx counts milliseconds by a time
that it reads once for all events that it handles together."""
ALIKE_S = 0.005
"""Differences of times below this say hardly anything."""
WEIGHT, GAP = 0.1, 0.5
"""What the logarithm of a difference costs, and what a line costs that is left out; to join two lines is worth 1."""
WIDEST, CHUNK = 2000, 4000
"""Among so many lines of the balancer, and for so many lines of the server at once, the best alignment is found."""
_LEAVE_SERVER, _JOIN, _LEAVE_BALANCER = 0, 1, 2


class Lines(NamedTuple):
    """The lines of a log, sorted by path and end. ``place`` is where each stands in the log.

    Times are in seconds; NaN, a duration that is unknown, fulfils every condition.
    """

    path: Integers
    ends: Floats
    took: Floats
    status: Integers
    place: Integers


class Limits(NamedTuple):
    """What the times allow, in seconds.

    The server's clock is ``ahead`` of the balancer's, as far as is known; both logs have a resolution (``tick``); and
    the balancer may note the end of a request ``later`` than the server.
    """

    ahead: float
    uncertain: float
    tick: float
    its_tick: float
    later: float


class Pairs(NamedTuple):
    """The place in the balancer's log of each line of the server, -1 if it has none; and which of them are taken."""

    found: Integers
    taken: Flags


class _Table(NamedTuple):
    """What is best for each line of the server (``row``) and each line of the balancer near it (``at``).

    ``first`` and ``size`` say which lines are near. ``scores`` are those of the last two rows.
    """

    step: npt.NDArray[np.int8]
    first: Integers
    size: Integers
    scores: Floats


@njit(cache=True)
def align(ours: Lines, its: Lines, limits: Limits, pairs: Pairs) -> None:
    """Join lines of a balancer (``ours``) and of a server so that their order stays, and their times fit best."""
    table = _Table(
        np.zeros((CHUNK, WIDEST + 2), dtype=np.int8), np.zeros(CHUNK, dtype=np.int64), np.zeros(CHUNK, dtype=np.int64),
        np.zeros((2, WIDEST + 2)),
    )  # fmt: skip
    start = first = 0
    while start < len(its.place):
        line = start
        while line < min(len(its.place), start + CHUNK) and its.path[line] == its.path[start]:
            first = _first_allowed(ours, its, line, limits, pairs, first)
            table.first[line - start] = first
            table.size[line - start] = _last_allowed(ours, its, line, limits, first) - first
            _fill(ours, its, line, line - start, limits, pairs, table)
            line += 1
        _trace(ours, its, start, line - start - 1, table, pairs)
        start = line


@njit(cache=True)
def join_rest(ours: Lines, its: Lines, limits: Limits, pairs: Pairs) -> None:
    """Join each line that is left with the first line of the balancer that the times allow."""
    first = 0
    for line in range(len(its.place)):
        first = _first_allowed(ours, its, line, limits, pairs, first)
        if pairs.found[its.place[line]] >= 0:
            continue
        for other in range(first, _last_allowed(ours, its, line, limits, first)):
            if not pairs.taken[ours.place[other]] and _likeness(ours, other, its, line, limits) > -np.inf:
                pairs.found[its.place[line]] = ours.place[other]
                pairs.taken[ours.place[other]] = True
                break


@njit(cache=True)
def _first_allowed(ours: Lines, its: Lines, line: int, limits: Limits, pairs: Pairs, first: int) -> int:
    """Return the first line of the balancer, from ``first`` on, that is free and did not end too early."""
    path, earliest = its.path[line], its.ends[line] - limits.ahead - limits.uncertain - limits.tick - PRECISION_S
    while first < len(ours.place) and (
        ours.path[first] < path
        or (ours.path[first] == path and (pairs.taken[ours.place[first]] or ours.ends[first] < earliest))
    ):
        first += 1
    return first


@njit(cache=True)
def _last_allowed(ours: Lines, its: Lines, line: int, limits: Limits, first: int) -> int:
    """Return the line of the balancer from which on all end too late; at most WIDEST lines after the first."""
    path = its.path[line]
    latest = its.ends[line] - limits.ahead + limits.its_tick + limits.uncertain + limits.later
    last = first
    while last < min(len(ours.place), first + WIDEST) and ours.path[last] == path and ours.ends[last] <= latest:
        last += 1
    return last


@njit(cache=True)
def _fill(ours: Lines, its: Lines, line: int, row: int, limits: Limits, pairs: Pairs, table: _Table) -> None:
    """Find what is best for a line of the server and each number of lines of the balancer that are behind."""
    scores, free = table.scores[row % 2], pairs.found[its.place[line]] < 0
    for at in range(table.size[row] + 1):
        other = table.first[row] + at - 1
        scores[at] = _score(table, row - 1, other + 1) - GAP
        table.step[row, at] = _LEAVE_SERVER
        if not at:
            continue
        if free and not pairs.taken[ours.place[other]]:
            joined = _score(table, row - 1, other) + _likeness(ours, other, its, line, limits)
            if joined > scores[at]:
                scores[at], table.step[row, at] = joined, _JOIN
        if scores[at - 1] - GAP > scores[at]:
            scores[at], table.step[row, at] = scores[at - 1] - GAP, _LEAVE_BALANCER


@njit(cache=True)
def _score(table: _Table, row: int, behind: int) -> float:
    """Return the best score of a row with all lines of the balancer before ``behind``."""
    if row < 0:
        return float(-GAP * (behind - table.first[0]))
    at = behind - table.first[row]
    if at < 0:
        return -np.inf
    beyond = max(0, at - table.size[row])
    return float(table.scores[row % 2][at - beyond] - GAP * beyond)


@njit(cache=True)
def _trace(ours: Lines, its: Lines, start: int, row: int, table: _Table, pairs: Pairs) -> None:
    """Follow the best steps from the last row back to the first, and join the lines on the way."""
    behind = table.first[row] + np.argmax(table.scores[row % 2][: table.size[row] + 1])
    while row >= 0:
        at = max(0, min(behind - table.first[row], table.size[row]))
        behind = table.first[row] + at
        step = table.step[row, at]
        if step == _LEAVE_BALANCER:
            behind -= 1
            continue
        if step == _JOIN:
            behind -= 1
            pairs.found[its.place[start + row]] = ours.place[behind]
            pairs.taken[ours.place[behind]] = True
        row -= 1


@njit(cache=True)
def _likeness(ours: Lines, other: int, its: Lines, line: int, limits: Limits) -> float:
    """Return how likely two lines are the same request, from about 0 to 1; minus infinity: the times forbid it.

    Most requests wait hardly at all, and most ends are noted at once. Both weigh by their logarithms. A balancer that
    gave up (499, 502, 504) has another status than the server; one that says 503 asked no server. 0 is a log that tells
    none.
    """
    waited = ours.took[other] - its.took[line]
    end, slack = its.ends[line] - limits.ahead, limits.uncertain + limits.its_tick
    status = ours.status[other]
    if waited < -PRECISION_S or ours.ends[other] - ours.took[other] > end + slack - its.took[line] + PRECISION_S:
        return -np.inf
    if its.status[line] and status not in (its.status[line], 0, 499, 502, 504):
        return -np.inf
    late = max(0.0, abs(ours.ends[other] - end) - slack - limits.tick)
    cost = 0.0 if np.isnan(waited) else float(np.log1p(max(0.0, waited) / ALIKE_S))
    return float(1 - WEIGHT * (cost + np.log1p(late / ALIKE_S)))

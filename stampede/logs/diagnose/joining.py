"""Which line of a server's log and which line of a balancer's log are the same request.

Lines with the same id are one request. All others are joined by their path, their status, and their times: what a
server did lies within what the balancer saw of it, and of all balancer's lines that the times allow, the first that
ended after the server's line is the most likely. A pairing that the times forbid is never made.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from stampede.logs.columns import COLUMNS, Flags, Integers
from stampede.logs.diagnose.aligning import ALIKE_S, PRECISION_S, Limits, Lines, Pairs, align, join_rest
from stampede.logs.diagnose.logs import COARSE_S, Log

LEFT = (499, 504)
"""The statuses of a balancer that left before the server answered: its client left, or its time limit was reached."""

SOON_S = 0.25
"""A balancer usually notes the end of a request so soon after the server does; later if its client is slow."""
MISSING = 0.01
"""If a larger share of the lines has no line in the other log, some pairs may be of two requests."""
DRIFT_S = 0.5
"""So far from its mean, a clock is found that drifts during logs without ids."""
BINS = (1 << 22) - 2
"""The patterns of two logs are compared among so many moments at most."""


class ClockDifference(NamedTuple):
    """How far a server's clock is ahead of the balancer's, in seconds, and how far it may be from that."""

    ahead_s: float
    uncertain_s: float


class Joined(NamedTuple):
    """The places of the same requests in a balancer's log and in a server's log.

    ``ambiguous`` is the share of the pairs for which the times allow another line of the balancer nearly as well.
    ``by_id`` is how many pairs have the same id.
    """

    balancer: Integers
    server: Integers
    clock: ClockDifference
    ambiguous: float
    by_id: int


Places = tuple[Integers, Integers]


def join_all(balancers: Sequence[Log], servers: Sequence[Log]) -> list[tuple[Log, Log, Joined]]:
    """Return which lines of balancers and of servers are the same requests: each line is of one request only."""
    if len(balancers) == len(servers) == 1:
        same = _same_ids(balancers[0].id, servers[0].id)
        server = _steady(balancers[0], servers[0], same)
        joined = join(balancers[0], server, same if server is servers[0] else None)
        return [(balancers[0], *(_joined_by_order(balancers[0], server, joined) or (server, joined)))]
    servers = [_steady(balancers[0], server, _same_ids(balancers[0].id, server.id)) for server in servers]
    its_ahead_s = [_first_clock(balancers[0], server).ahead_s for server in servers]
    our_ahead_s = [its_ahead_s[0] - _first_clock(each, servers[0]).ahead_s for each in balancers]
    found: dict[tuple[int, int], Joined] = {}
    for _ in range(2):  # the first time to know the clocks
        for (i, j), pairs in found.items():
            if i == 0:
                its_ahead_s[j] = pairs.clock.ahead_s
            elif j == 0:
                our_ahead_s[i] = its_ahead_s[0] - pairs.clock.ahead_s
        ours, of, place = _merged(balancers, our_ahead_s)
        its, its_of, its_place = _merged(servers, its_ahead_s)
        joined, found = join(ours, its), {}
        for i, j in product(range(len(balancers)), range(len(servers))):
            mine = (of[joined.balancer] == i) & (its_of[joined.server] == j)
            if mine.any():
                at, its_at = place[joined.balancer[mine]], its_place[joined.server[mine]]
                by_id = int(((balancers[i].id[at] == servers[j].id[its_at]) & (balancers[i].id[at] != 0)).sum())
                clock = _clock(balancers[i], servers[j], at, its_at)
                found[i, j] = Joined(at, its_at, clock, joined.ambiguous, by_id)
    later_s, least_s = [0.0] * len(balancers), [np.inf] * len(balancers)  # all times count by the first one's clock
    for (i, j), pairs in found.items():
        if i and (first := found.get((0, j))):
            by_s = pairs.clock.ahead_s - first.clock.ahead_s
            unsure_s = pairs.clock.uncertain_s + first.clock.uncertain_s
            if unsure_s < least_s[i]:
                least_s[i], later_s[i] = unsure_s, by_s if abs(by_s) > unsure_s else 0.0
    balancers = [replace(each, ends_s=each.ends_s + by_s, arrived_s=each.arrived_s + by_s)
                 for each, by_s in zip(balancers, later_s, strict=True)]  # fmt: skip
    return [(balancers[i], servers[j], pairs._replace(clock=ClockDifference(pairs.clock.ahead_s - later_s[i],
             pairs.clock.uncertain_s))) for (i, j), pairs in found.items()]  # fmt: skip


def _steady(balancer: Log, server: Log, same: Places) -> Log:
    """Return the log of a server whose clock drifts, or was set meanwhile, by the balancer's clock, as ids tell it.

    Fifty requests that end after each other tell how far the clock is ahead then.
    """
    stayed = ~np.isin(balancer.status[same[0]], LEFT)
    order = np.argsort(same[1][stayed], kind="stable")
    at, its = (places[stayed][order] for places in same)
    late_s, soon_s = server.ends_s[its] - balancer.ends_s[at], SOON_S + balancer.tick_s + server.tick_s
    if len(its) < 100:
        return server
    groups_s = late_s[: len(its) // 50 * 50].reshape(-1, 50)
    ahead_s = np.median(groups_s, axis=1)
    tells = np.median(np.abs(groups_s - ahead_s[:, None]), axis=1) <= soon_s / 4  # slow clients end at any time
    if tells.any():  # or all of them by as much later, which their durations allow
        spare_s = np.nan_to_num(balancer.took_s[at] - server.took_s[its])[: groups_s.size].reshape(-1, 50)
        later_s = ahead_s[tells].max() - ahead_s
        tells &= (later_s <= soon_s) | (later_s > np.median(spare_s, axis=1) + soon_s)
    if tells.mean() < 0.5 or np.ptp(ahead_s[tells]) <= soon_s:
        return server
    ahead_s = np.interp(np.arange(len(ahead_s)), np.flatnonzero(tells), ahead_s[tells])
    known_s = np.sort(ahead_s)
    place = np.clip(np.searchsorted(known_s, late_s), 1, len(known_s) - 1)
    low_s, high_s = late_s - known_s[place - 1], late_s - known_s[place]
    least_s = np.where(np.abs(low_s) < np.abs(high_s), low_s, high_s)
    own_s = ahead_s[np.minimum(np.arange(len(its)) // 50, len(ahead_s) - 1)]
    of_line_s = np.interp(np.arange(len(server)), its, np.where(np.abs(least_s) <= soon_s, late_s - least_s, own_s))
    tick_s = max(balancer.tick_s, server.tick_s)
    says = f"The times of {server.file} run unsteadily, and count by the balancer's clock, as ids tell it."
    return server.by_ends(server.ends_s - of_line_s, tick_s=tick_s, notes=(*server.notes, says))


def _joined_by_order(balancer: Log, server: Log, joined: Joined) -> tuple[Log, Joined] | None:
    """Return the log of a server whose clock drifts, by the balancer's clock, and what is joined then.

    Without ids, the order of lines tells it. None: nearly all lines are joined already, or are not joined then, either.
    """
    enough = (1 - 2 * MISSING) * len(server)
    if joined.by_id or len(joined.server) >= enough or max(balancer.tick_s, server.tick_s) >= COARSE_S:
        return None
    found = np.full(len(server), -1)
    _match(balancer, server, ClockDifference(joined.clock.ahead_s, DRIFT_S), SOON_S, found, by_id=False)
    its = np.flatnonzero(found >= 0)
    if len(its) < 100:
        return None
    lines, late_s = (each[: len(its) // 50 * 50].reshape(-1, 50)
                     for each in (its, server.ends_s[its] - balancer.ends_s[found[its]]))  # fmt: skip
    ahead_s = np.interp(np.arange(len(server)), lines.mean(axis=1), np.median(late_s, axis=1))
    says = f"The times of {server.file} run unsteadily, and count by the balancer's clock, as the order of lines says."
    steady = server.by_ends(server.ends_s - ahead_s, notes=(*server.notes, says))
    again = join(balancer, steady)
    return (steady, again) if len(again.server) >= enough else None


def _merged(logs: Sequence[Log], ahead_s: Sequence[float]) -> tuple[Log, Integers, Integers]:
    """Return several logs as one, by the clock of the first, and of which log and which of its lines each line is."""
    of = np.repeat(np.arange(len(logs)), [len(log) for log in logs])
    place = np.concatenate([np.arange(len(log)) for log in logs])
    columns: dict[str, Any] = {name: np.concatenate([getattr(log, name) for log in logs]) for name in COLUMNS}
    ends_s = columns["ends_s"] - np.array(ahead_s)[of]
    order = np.argsort(ends_s, kind="stable")
    log = replace(logs[0], tick_s=max(log.tick_s for log in logs), **columns | {"ends_s": ends_s})
    return log.take(order), of[order], place[order]


def _first_clock(balancer: Log, server: Log) -> ClockDifference:
    """Return the clock of a server before lines are joined: by ids, else by the pattern of the lines."""
    same = _same_ids(balancer.id, server.id)
    return _clock(balancer, server, *same) if len(same[0]) else _rough_clock(balancer, server)


def join(balancer: Log, server: Log, same: Places | None = None) -> Joined:
    """Return which lines of two logs are the same requests, in the order of the server's log.

    ``same`` are the places of the same ids, if they are known.
    """
    same = same or _same_ids(balancer.id, server.id)
    by_id = bool(len(same[0]))
    clock = _clock(balancer, server, *same) if by_id else _rough_clock(balancer, server)
    for _ in range(2):  # the first time to know the clock
        found = np.full(len(server), -1)
        found[same[1]] = same[0]
        _match(balancer, server, clock, SOON_S, found, by_id=by_id)
        pairs = np.flatnonzero(found >= 0)
        if len(pairs):
            clock = _clock(balancer, server, found[pairs], pairs)
    _match(balancer, server, clock, np.inf, found, by_id=by_id)
    pairs = np.flatnonzero(found >= 0)
    if not by_id and len(pairs) < (1 - MISSING) * len(server):
        late_s = np.abs(balancer.ends_s[found[pairs]] - server.ends_s[pairs] + clock.ahead_s)
        pairs = pairs[late_s <= ALIKE_S + balancer.tick_s + server.tick_s + clock.uncertain_s]  # others may be of two
    kept = found[pairs]
    if not by_id:
        found = np.full(len(server), -1)
        found[pairs] = kept
        _join_left(balancer, server, clock, found)
        pairs = np.flatnonzero(found >= 0)
    ambiguous = 0.0 if by_id else _ambiguous(balancer, server, clock, found[pairs], pairs)
    return Joined(found[pairs], pairs, clock, ambiguous, len(same[0]))


def _join_left(balancer: Log, server: Log, clock: ClockDifference, found: Integers) -> None:
    """Join the lines that the server wrote after the balancer had left: its work began before the balancer left.

    If that leaves lines, requests were in a queue when the balancer left, and the server took them up in their order.
    """
    ours = np.setdiff1d(np.flatnonzero(np.isin(balancer.status, LEFT)), found)
    ours = ours[np.argsort(balancer.ends_s[ours], kind="stable")]
    path, ends_s = balancer.path[ours], balancer.ends_s[ours]
    sent_s = ends_s - balancer.took_s[ours]
    longest_s = float(np.nanmax(balancer.took_s[ours], initial=0.0))
    slack_s = PRECISION_S + balancer.tick_s + server.tick_s + clock.uncertain_s
    its_began_s = server.ends_s - clock.ahead_s - server.took_s
    lines = np.flatnonzero((found < 0) & np.isin(server.path, path))
    lines = lines[np.argsort(its_began_s[lines], kind="stable")]
    if not len(lines):
        return
    for before_s in (0.0, 900.0):  # a server takes up what was left at most so long ago
        its, free = np.full(len(lines), -1), np.ones(len(ours), np.bool_)
        firsts, lasts = (np.searchsorted(ends_s, its_began_s[lines] + by_s)
                         for by_s in (-before_s - slack_s, longest_s + slack_s))  # fmt: skip
        if int((lasts - firsts).sum()) > 5_000_000_000:  # more are not compared
            return
        for at, (line, first, last) in enumerate(zip(lines, firsts, lasts, strict=True)):
            fits = free[first:last] & (path[first:last] == server.path[line])
            fits &= sent_s[first:last] <= its_began_s[line] + slack_s
            if fits.any():
                place = first + int(fits.argmax())
                its[at], free[place] = ours[place], False
        all_there = (its >= 0).mean() >= 1 - MISSING
        if all_there or not before_s:
            found[lines] = its
        if all_there:
            return


def _ambiguous(balancer: Log, server: Log, clock: ClockDifference, at_balancer: Integers, at_server: Integers) -> float:
    """Return the share of the pairs whose lines could be exchanged with those of the next request of the same path."""
    order = np.argsort(server.path[at_server], kind="stable")
    its, ours = at_server[order], at_balancer[order]
    latest = server.ends_s - clock.ahead_s + server.tick_s + clock.uncertain_s
    can = server.path[its[1:]] == server.path[its[:-1]]
    for mine, other in ((its[1:], ours[:-1]), (its[:-1], ours[1:])):
        ends_s, took_s, its_took_s = balancer.ends_s[other], balancer.took_s[other], server.took_s[mine]
        can &= (its_took_s <= took_s + PRECISION_S) & (ends_s - took_s <= latest[mine] - its_took_s + PRECISION_S)
        can &= (ends_s <= latest[mine] + SOON_S) & (ends_s >= server.ends_s[mine] - clock.ahead_s - clock.uncertain_s
                                                   - balancer.tick_s)  # fmt: skip
    return float(can.mean()) if len(can) else 0.0


def _same_ids(balancer: Integers, server: Integers) -> Places:
    """Return the places of the ids that each of two logs has once."""
    single = []
    for ids in (balancer, server):
        known, first, count = np.unique(ids, return_index=True, return_counts=True)
        single.append((known[(count == 1) & (known != 0)], first[(count == 1) & (known != 0)]))
    _, here, there = np.intersect1d(single[0][0], single[1][0], assume_unique=True, return_indices=True)
    return single[0][1][here], single[1][1][there]


def _clock(balancer: Log, server: Log, at_balancer: Integers, at_server: Integers) -> ClockDifference:
    """Return the clock of a server by requests that are joined: what it did lies within what the balancer saw.

    One bound in two hundred may be wrong, because lines are also written late.
    """
    stayed = ~np.isin(balancer.status[at_balancer], LEFT)
    if stayed.any():  # a server ends after a balancer that left
        at_balancer, at_server = at_balancer[stayed], at_server[stayed]
    late_s = server.ends_s[at_server] - balancer.ends_s[at_balancer]
    spare_s = balancer.took_s[at_balancer] - server.took_s[at_server]
    known = ~np.isnan(spare_s)
    within_s = late_s[known] + np.maximum(spare_s[known], 0) if known.any() else late_s
    least = float(np.quantile(late_s, 0.995)) - balancer.tick_s
    most = float(np.quantile(within_s, 0.005)) + server.tick_s
    return ClockDifference((least + most) / 2, abs(most - least) / 2)


def _rough_clock(balancer: Log, server: Log) -> ClockDifference:
    """Return the clock of a server by the pattern in which requests ended; no difference if no pattern stands out.

    Each path has a weight by chance, so that only the same requests add up when one log is shifted against the other.
    """
    ticks_s = [log.tick_s if log.tick_s >= COARSE_S else 0.0 for log in (balancer, server)]
    first = min(balancer.ends_s[0], server.ends_s[0])
    lasts_s = max(balancer.ends_s[-1], server.ends_s[-1]) - first + max(ticks_s)
    bin_s = max(0.05, lasts_s / BINS)
    size = 2 << int(lasts_s / bin_s + 1).bit_length()  # the transform of a power of two is quick
    spectra = []
    for log, tick_s in zip((balancer, server), ticks_s, strict=True):
        weights, width = (log.path >> 33) / 2.0**30, max(1, round(tick_s / bin_s))
        places = ((log.ends_s - first) / bin_s).astype(np.int64)
        turns = np.bincount(np.append(places, places + width), np.append(weights, -weights), size // 2 + width)
        spectrum = np.fft.rfft(np.cumsum(turns)[: size // 2], size)  # a whole second may be any moment of it
        spectrum[: int(size * bin_s / 20) + 1] = 0  # that more came in one minute than in another tells little
        spectra.append(spectrum)
    match = np.fft.irfft(spectra[1] * np.conj(spectra[0]), size)
    shifts = np.fft.fftfreq(size, 1 / size) * bin_s
    # clocks are hardly ever a minute apart, but for time zones that a log does not name
    deviation = float(match[np.abs(shifts) <= lasts_s + bin_s].std())
    peak, near = (int(np.where(np.abs(shifts) <= within_s, match, 0).argmax()) for within_s in (15 * 3600, 60))
    if match[near] >= max(6 * deviation, match[peak] / 2):
        peak = near
    elif match[peak] < 8 * deviation:
        return ClockDifference(0.0, max(bin_s, *ticks_s))
    uncertain_s = bin_s + max(ticks_s) / 4
    return ClockDifference(float(shifts[peak]), uncertain_s)


def _match(balancer: Log, server: Log, clock: ClockDifference, later_s: float, found: Integers, *, by_id: bool) -> None:
    """Join the lines that are not joined yet, if the balancer's ended at most ``later_s`` after the server's."""
    pairs = Pairs(found, np.zeros(len(balancer), dtype=np.bool_))
    pairs.taken[found[found >= 0]] = True
    limits = Limits(clock.ahead_s, clock.uncertain_s, balancer.tick_s, server.tick_s, later_s)
    ours, its = (
        _sorted(log, other, left, by_id=by_id)
        for log, other, left in ((balancer, server, ~pairs.taken), (server, balancer, found < 0))
    )
    if later_s == SOON_S:
        align(ours, its, limits, pairs)
        _align_by_starts(ours, its, limits, pairs)
    join_rest(ours, its, limits, pairs)


def _align_by_starts(ours: Lines, its: Lines, limits: Limits, pairs: Pairs) -> None:
    """Join the lines of paths whose clients are slow by their starts: they are alike, as the ends of most others are.

    Backwards in time, the starts are ends, and a slow client is a wait. The way that joins more lines is right.
    """
    paths, of = np.unique(its.path, return_inverse=True)
    at = pairs.found[its.place]
    took_s, its_took_s = np.full(len(pairs.taken), np.nan), its.took
    took_s[ours.place] = ours.took
    doubtful = (at < 0) | (took_s[at] - its_took_s > SOON_S)
    mean, alone = (np.bincount(of, which, len(paths)) / np.bincount(of, minlength=len(paths))
                   for which in (doubtful, at < 0))  # fmt: skip
    own = paths[(mean > 0.05) & (alone > MISSING)]  # its clients may be slow
    if not len(own):
        return
    found = Pairs(np.full_like(pairs.found, -1), np.zeros_like(pairs.taken))
    ours, theirs = _backwards(ours, limits.tick, own), _backwards(its, limits.its_tick, own)
    align(ours, theirs, limits._replace(ahead=-limits.ahead), found)
    more = np.bincount(of, found.found[its.place] >= 0, len(paths)) > np.bincount(of, at >= 0, len(paths))
    places = its.place[more[of]]
    pairs.taken[pairs.found[places][pairs.found[places] >= 0]] = False
    pairs.found[places] = found.found[places]
    pairs.taken[pairs.found[places][pairs.found[places] >= 0]] = True


def _backwards(lines: Lines, tick_s: float, paths: Integers) -> Lines:
    which = np.flatnonzero(np.isin(lines.path, paths) & ~np.isnan(lines.took))
    ends_s = lines.took[which] - lines.ends[which] - tick_s
    order = np.lexsort((ends_s, lines.path[which]))
    which, ends_s = which[order], ends_s[order]
    return Lines(lines.path[which], ends_s, lines.took[which], lines.status[which], lines.place[which])


def _sorted(log: Log, other: Log, left: Flags, *, by_id: bool) -> Lines:
    """Return the lines of a log that are left. If lines are joined by id, an id that another log lacks has no line."""
    which = np.flatnonzero(left)
    if by_id and len(which):
        which = which[(log.id[which] == 0) | np.isin(log.id[which], other.id)]
    order = which[np.lexsort((log.ends_s[which], log.path[which]))]
    return Lines(log.path[order], log.ends_s[order], log.took_s[order], log.status[order], order)

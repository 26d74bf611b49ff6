"""The requests of a service, from its logs: when each was sent, began and ended, and who served it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from stampede.errors import WrongUse
from stampede.evaluate.metrics.waiting import FROM_S, NEVER, Answered, Segments
from stampede.logs.columns import Bounds, Flags, Floats, Integers
from stampede.logs.diagnose.aligning import PRECISION_S
from stampede.logs.diagnose.joining import LEFT, SOON_S, ClockDifference, Joined, join_all
from stampede.logs.diagnose.logs import COARSE_S, SETUP, Log, Logs, tick_of

FEW = 0.01
"""At most this share of the requests may seem to take longer in the server than in the balancer."""
FEW_PAIRS = 0.5
"""If a smaller share of a server's lines is found in a balancer's log, the logs are of other requests."""
BAD_GATEWAY, TIMED_OUT = 502, 504
GAVE_UP = (499, BAD_GATEWAY, 503, TIMED_OUT)
"""What a balancer answers itself if it gets no answer; 499 is nginx's, for a client that left."""
LONG_S, MURDER_S = 5.0, 1.0
"""No server kills silent workers sooner (gunicorn's limit is 30 s unless it is set), and gunicorn looks so often."""

Join = tuple[Log, Log, Joined]
"""The log of a balancer, that of a server, and which of their lines are the same requests."""


class Noted(NamedTuple):
    """How many requests of a route ended with a status, and how long they took as the balancer saw it, in seconds.

    ``first`` and ``last`` are when the first and the last of them ended, in epoch seconds.
    """

    route: int
    status: int
    requests: int
    median_s: float
    first: float
    last: float


@dataclass(frozen=True)
class Requests:
    """Requests in the order of sending; times are seconds since the first was sent, at ``first`` (epoch seconds).

    Each may have waited by ``less_s`` shorter, or by ``more_s`` longer, and then nobody knows any better when it began
    and ended. ``tick_s`` is the resolution of the other times. ``worker`` is -1 where no log names the worker.
    ``in_both`` is the share of the balancer's lines that a server has, too; 0 if there is only one kind of log.

    ``joined`` says which requests are in both logs. All others are in a server's log only, so nobody knows when they
    were sent; they count as sent when their work began. ``refused`` are those that the balancer answered itself.
    ``unserved`` are the other requests in a balancer's log only, of routes that a server has (``unserved_route``): when
    each was sent and ended. ``killed`` are those whose worker ended with them: they held it for longer than the
    server's line says. ``turned_away`` are those to which a server said at once that it is too busy. ``left`` are
    those that a server went on with after the balancer had left them, which was ``left_work`` of all work.
    ``slow_clients`` is how many the server had done with long before the balancer. ``held`` is when requests were with
    a worker that ended, for which the balancer said 502, and ``hung`` when requests without a server's line may have
    held a thread, at least until the balancer or its client had left them.
    """

    first: float
    sent_s: Floats
    began_s: Floats
    ended_s: Floats
    less_s: Floats
    more_s: Floats
    route: Integers
    worker: Integers
    status: Integers
    tick_s: float
    in_both: float
    joined: Flags
    unserved: Segments
    joins: Sequence[Join] = ()
    refused: Sequence[Noted] = ()
    killed: Sequence[Noted] = ()
    turned_away: Sequence[Noted] = ()
    left: Sequence[Noted] = ()
    left_work: float = 0.0
    slow_clients: int = 0
    held: Segments = field(default_factory=NEVER.copy)
    hung: Segments = field(default_factory=NEVER.copy)
    unserved_route: Integers = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.sent_s)

    @property
    def waited_s(self) -> Floats:
        """How long each request waited from when it was sent until its work began."""
        return np.maximum(self.began_s - self.sent_s, 0)

    @property
    def waits_s(self) -> Bounds[Floats]:
        """How long each request waited, and at least and at most."""
        waited_s = self.waited_s
        return Bounds(np.maximum(waited_s - self.less_s, 0), waited_s, waited_s + self.more_s)

    @property
    def worked_s(self) -> Floats:
        """How long each request was at work."""
        return self.ended_s - self.began_s

    @property
    def is_coarse(self) -> bool:
        """Whether times do not say what was at work at a moment."""
        return self.tick_s >= COARSE_S

    @property
    def are_blurred(self) -> bool:
        """Whether times are precise, but not those of some requests."""
        return not self.is_coarse and bool((self.less_s > 0).any() or (self.more_s > 0).any())

    @property
    def at_work(self) -> Bounds["Requests"]:
        """The requests as if each was at work as shortly, and as long, as the logs allow."""
        by_s = np.maximum(self.less_s, self.more_s)
        least_s = np.minimum(by_s, self.worked_s / 2)
        return Bounds(
            replace(self, began_s=self.began_s + least_s, ended_s=self.ended_s - least_s),
            self,
            replace(self, began_s=self.began_s - by_s, ended_s=self.ended_s + by_s),
        )

    def answered(
        self, classes: Sequence[str], of_class: Integers, workers: int, place: Integers, shown: slice = slice(None)
    ) -> Answered:
        """Return some requests as the analysis takes those of a trial, with the class and the worker of each."""
        sent_s = self.sent_s[shown]
        from_s, until_s = float(sent_s[0]), float(self.ended_s[shown].max())
        return Answered(
            [str(worker) for worker in range(workers)], [*classes], self.first + from_s, self.first + until_s,
            self.first + float(sent_s[-1]), place[shown], of_class[shown], sent_s - from_s,
            self.began_s[shown] - from_s, self.ended_s[shown] - from_s,
        )  # fmt: skip


class Rows(NamedTuple):
    """Requests of a log or of a pair of logs, as the columns of Requests; times are epoch seconds."""

    sent_s: Floats
    began_s: Floats
    ended_s: Floats
    less_s: Floats
    more_s: Floats
    route: Integers
    worker: Integers
    status: Integers

    def take(self, which: Flags | Integers) -> "Rows":
        """Return some of the requests."""
        return Rows._make(column[which] for column in self)

    def since(self, from_s: float) -> "Rows":
        """Return the requests with times that count from another one on."""
        sent_s, began_s, ended_s = (times_s - from_s for times_s in self[:3])
        return self._replace(sent_s=sent_s, began_s=began_s, ended_s=ended_s)


def requests_of(logs: Logs) -> Requests:
    """Return the requests of logs. With logs of one kind only, no request waits: its work begins when it was sent.

    A server's log that says when the balancer got each request counts as a log of the balancer, too.

    Raise WrongUse if the logs of both kinds are not of the same requests, if the kinds are exchanged, or if no request
    has a duration in all logs.
    """
    if logs.balancers and logs.servers:
        joins = _joins(logs.balancers, logs.servers)
    elif not logs.balancers and all(has_header(server) and server.tick_s < COARSE_S for server in logs.servers):
        joins = [of_header(server) for server in logs.servers]
    else:  # nothing tells what they waited
        each = [*logs.balancers, *logs.servers]
        rows = [_alone(log) for log in each]
        rows = [of._replace(less_s=np.zeros_like(of.less_s), more_s=np.zeros_like(of.more_s)) for of in rows]
        return _requests(rows, max(log.tick_s for log in each))
    joins = _alike(logs, joins)
    killed, held_s = [], {id(server): server.took_s.copy() for _, server, _ in joins}
    for balancer, server, joined in joins:
        ends, at_least_s = _killed(balancer, server, joined)
        held_s[id(server)][joined.server[ends]] = at_least_s
        killed.append((balancer, joined.balancer[ends]))
    longer = {id(server): replace(server, took_s=held_s[id(server)]) for _, server, _ in joins}
    joins = [(balancer, longer[id(server)], joined) for balancer, server, joined in joins]
    rows, tick_s = [_joined(*each) for each in joins], max(min(ours.tick_s, its.tick_s) for ours, its, _ in joins)
    if not any(len(each.sent_s) for each in rows):
        return _requests(rows, tick_s)  # which says what is missing
    period_s = min(each.sent_s.min(initial=np.inf) for each in rows), max(each.ended_s.max(initial=0) for each in rows)
    left, busy, work_s, left_s = [], [], 0.0, 0.0
    for balancer, server, joined in joins:
        status, its_work_s = balancer.status[joined.balancer], np.nan_to_num(server.took_s[joined.server])
        went_on = np.isin(status, LEFT) & (status != server.status[joined.server])
        left.append((balancer, joined.balancer[went_on]))
        at_once = np.isin(status, (429, 503)) & (balancer.took_s[joined.balancer] <= FROM_S)
        busy.append((balancer, joined.balancer[at_once]))
        work_s, left_s = work_s + float(its_work_s.sum()), left_s + float(its_work_s[went_on].sum())
    found = _requests(rows, tick_s, _without_balancer(joins, period_s))
    said = _without_server(joins, period_s)
    return replace(
        found,
        **said | {name: said[name] - found.first for name in ("unserved", "held", "hung")},
        joins=joins,
        killed=_noted(killed),
        turned_away=_noted(busy),
        left=_noted(left),
        left_work=left_s / max(work_s, 1e-9),
        slow_clients=sum(int((_late_s(*each) > 0).sum()) for each in joins),
    )


def _without_balancer(joins: Sequence[Join], period_s: tuple[float, float]) -> Sequence[Rows]:
    """Return the requests of a period that only a server's log has, by the balancer's clock."""
    found = []
    for server in {id(server): server for _, server, _ in joins}.values():
        mine = [(balancer, joined) for balancer, its, joined in joins if its is server]
        timed = [joined.server[~np.isnan(balancer.took_s[joined.balancer])] for balancer, joined in mine]
        rows = _alone(server, ~np.isin(np.arange(len(server)), np.concatenate(timed)))
        rows = rows.since(mine[0][1].clock.ahead_s)
        found.append(rows.take((rows.ended_s >= period_s[0]) & (rows.began_s <= period_s[1])))
    return found


def _without_server(joins: Sequence[Join], period_s: tuple[float, float]) -> dict[str, Any]:
    """Return what is said in Requests of the lines of a period that only a balancer has; times are epoch seconds."""
    routes = np.unique(np.concatenate([server.route for _, server, _ in joins]))
    statuses = np.unique(np.concatenate([server.status for _, server, _ in joins]))
    unserved, of_unserved, refused, unknown, held, hung = [], [], [], 0, [NEVER], [NEVER]
    for balancer in {id(balancer): balancer for balancer, _, _ in joins}.values():
        found_in = np.concatenate([joined.balancer for its, _, joined in joins if its is balancer])
        alone, gave_up = ~np.isin(np.arange(len(balancer)), found_in), np.isin(balancer.status, GAVE_UP)
        before, after = balancer.ends_s < period_s[0], balancer.ends_s > period_s[1]
        within = ~(before | after)
        for outside in (before, after):  # if it gave up on all others, the server answered nobody
            if outside.any() and gave_up[outside].mean() > 1 - FEW:
                within |= outside
        # an answer at once that no server ever gave is the balancer's, such as a redirection
        itself = gave_up | ~np.isin(balancer.status, statuses) & (balancer.took_s <= FROM_S)
        refused.append((balancer, np.flatnonzero(alone & within & itself & (balancer.status >= 400))))
        unknown += int((alone & ~(within & itself)).sum())
        of_server, times = (
            np.isin(balancer.route, routes),
            np.stack([balancer.ends_s - balancer.took_s, balancer.ends_s]),
        )
        unanswered = alone & within & (balancer.took_s > FROM_S)
        held.append(times.T[unanswered & (balancer.status == BAD_GATEWAY)])
        hung.append(times.T[unanswered & ((balancer.status == TIMED_OUT) | np.isin(balancer.status, LEFT) & of_server)])
        others = _alone(balancer, alone & of_server & ~itself)
        others = others.take((others.ended_s >= period_s[0]) & (others.sent_s <= period_s[1]))
        unserved.append(np.stack([others.sent_s, others.ended_s], axis=1))
        of_unserved.append(others.route)
    pairs = sum(len(joined.server) for _, _, joined in joins)
    return {"unserved": np.concatenate(unserved), "unserved_route": np.concatenate(of_unserved),
            "held": np.concatenate(held), "hung": np.concatenate(hung), "refused": _noted(refused),
            "in_both": pairs / (pairs + unknown)}  # fmt: skip


def _joins(balancers: Sequence[Log], servers: Sequence[Log]) -> list[Join]:
    """Return how logs are joined; by starts, if the lines of a log that may have these are joined better so."""
    best = join_all(balancers, servers)
    ours_of_starts, its_of_starts = ([log.as_of_starts() for log in logs] for logs in (balancers, servers))
    for ours, its in ((ours_of_starts, servers), (balancers, its_of_starts)):
        most = min(sum(map(len, balancers)), sum(map(len, servers)))
        missing = most - sum(len(joined.server) for _, _, joined in best)
        if missing <= FEW * most or any(log.of_starts for log in (*balancers, *servers)):
            break
        joins = join_all(ours, its)
        if most - sum(len(joined.server) for _, _, joined in joins) < missing / 2:
            best = joins
    return best


def _alike(logs: Logs, joins: Sequence[Join]) -> list[Join]:
    """Return the joins of logs that are of the same requests. Raise WrongUse if none are, or if times contradict."""
    lines = sum(map(len, logs.balancers)) or sum(len(balancer) for balancer, _, _ in joins)
    pairs = {id(log): sum(len(joined.server) for _, its, joined in joins if its is log) for _, log, _ in joins}
    alike = [each for each in joins if pairs[id(each[1])] >= FEW_PAIRS * min(len(each[1]), lines)]
    if not alike:
        dated = [" to ".join(f"{datetime.fromtimestamp(at, UTC):%d %B %Y %H:%M:%S}" for at in log.ends_s[[0, -1]])
                 for log in (logs.servers[0], logs.balancers[0])]  # fmt: skip
        raise WrongUse(
            f"Hardly any line of {logs.servers[0].file} (from {dated[0]}) is in {logs.balancers[0].file} (from "
            f"{dated[1]}), so they are not of the same requests.",
            hint="Name the logs of a balancer and of the servers behind it, of the same time. If the balancer changes "
            "paths, both logs need the same id: stampede diagnose --setup. Durations without a unit may need "
            "--unit ms. Clocks that drift by more than half a second need ids, too.",
        )
    for balancer, server, joined in alike:
        took_s, its_took_s = balancer.took_s[joined.balancer], server.took_s[joined.server]
        if np.quantile(np.nan_to_num(took_s / its_took_s), FEW) > 300:
            raise WrongUse(f"Nearly all requests took more than 300 times as long in {balancer.file} as in "
                           f"{server.file}, so the durations of one of them are in another unit.",
                           hint="--unit ms says the unit of durations that are written without it.")  # fmt: skip
        more_s = (its_took_s - took_s)[~np.isin(balancer.status[joined.balancer], LEFT)]
        if len(more_s) and (more_s > PRECISION_S).mean() > max(FEW, (more_s < -PRECISION_S).mean()):
            raise WrongUse(
                f"Requests took longer in {server.file} than in {balancer.file}, so {server.file} is the balancer's "
                "log.",
                hint=f"--balancer {server.file} --server {balancer.file}"
                + (f", or --unit ms for {server.assumed}" if server.assumed else ""),
            )
    return alike


def has_header(server: Log) -> bool:
    """Return whether a server's log says of most requests when the balancer got them, and how long they took."""
    return float((~np.isnan(server.arrived_s) & ~np.isnan(server.took_s)).mean()) >= FEW_PAIRS


def of_header(server: Log) -> Join:
    """Return the log that the balancer would have written, as far as the server's log tells it, and their join.

    Nothing but the header tells the balancer's clock. So the server's clock counts as ahead by as much as the soonest
    request seems to wait, if that is long (some request of a log reaches a free thread at once), or as behind by as
    much as it seems to begin before it came.
    """
    known = np.flatnonzero(~np.isnan(server.arrived_s) & ~np.isnan(server.took_s))
    soonest_s = float((server.ends_s - server.took_s - server.arrived_s)[known].min())
    ahead_s = soonest_s if soonest_s < 0 or soonest_s > FROM_S else 0.0
    ends_s = server.ends_s[known] - ahead_s
    took_s = ends_s - server.arrived_s[known]
    balancer = server.take(known, clock="balancer", ends_s=ends_s, took_s=took_s, unreadable=0)
    return balancer, server, Joined(np.arange(len(known)), known, ClockDifference(ahead_s, 0.0), 0.0, len(known))


def _killed(balancer: Log, server: Log, joined: Joined) -> tuple[Integers, Floats]:
    """Return which pairs are of requests that were killed with their worker, and for how long each held it, in seconds.

    gunicorn kills a worker that is silent for longer than its timeout, and then logs a failure that took the time since
    the abort. Such a line is the last of its worker, and before it the worker was silent for as long as the balancer
    waited. If the log names no workers, most of such lines took as long as the shortest, because they met a time limit.
    """
    at, its = joined.balancer, joined.server
    order = np.lexsort((server.ends_s, server.worker))
    same = server.worker[order][1:] == server.worker[order][:-1]
    is_last, before_s = np.ones(len(server), dtype=np.bool_), np.full(len(server), -np.inf)
    is_last[order[:-1]], before_s[order[1:]] = ~same, np.where(same, server.ends_s[order[:-1]], -np.inf)
    names = bool((server.worker >= 0).all())
    took_s = balancer.took_s[at]
    most_s = np.minimum(took_s, (server.ends_s - before_s)[its]) if names else took_s
    pairs = np.flatnonzero((server.status[its] >= 500) & (most_s - server.took_s[its] > LONG_S)
                           & (is_last[its] | (not names)))  # fmt: skip
    limit_s = float(took_s[pairs].min(initial=np.inf)) + MURDER_S
    if not names and len(pairs) and float(np.median(took_s[pairs])) > limit_s + MURDER_S:
        pairs = pairs[:0]
    return pairs, np.minimum(most_s[pairs], limit_s)


def _noted(lines: Iterable[tuple[Log, Integers]]) -> list[Noted]:
    """Return lines of balancers by route and status, the most frequent first."""
    of: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for log, places in lines:
        columns = (log.route, log.status, log.took_s, log.ends_s)
        for route, status, *times in zip(*(column[places].tolist() for column in columns), strict=True):
            of.setdefault((route, status), []).append((times[0], times[1]))
    noted = []
    for key, each in of.items():
        took, ends = zip(*each, strict=True)
        median_s = float(np.median([took_s for took_s in took if took_s >= 0] or [np.nan]))
        noted.append(Noted(*key, len(took), median_s, min(ends), max(ends)))
    return sorted(noted, key=lambda each: -each.requests)


def _alone(log: Log, which: Flags | None = None) -> Rows:
    """Return the requests of a log, or some of them, as if none of them waited."""
    ends_s = spread(log.ends_s, log.tick_s)
    began_s = ends_s - log.took_s
    known = ~np.isnan(began_s) if which is None else which & ~np.isnan(began_s)
    unsure_s = np.full(int(known.sum()), (log.tick_s if log.tick_s >= COARSE_S else 0.0) + log.took_tick_s)
    return Rows(began_s[known], began_s[known], ends_s[known], unsure_s, unsure_s, log.route[known], log.worker[known],
                log.status[known])  # fmt: skip


def _joined(balancer: Log, server: Log, joined: Joined) -> Rows:
    """Return the requests that are in both logs: their times by the better clock, their durations by both.

    The balancer and the server note the end at nearly the same moment. So a request waited for the difference of its
    two durations, which are more precise than the times are. If one of them notes it much later, because a client was
    slow or the balancer had left, the server's own time says when its work ended. If the balancer says how long the
    server took as it saw it, the time of a client that sent slowly is no wait.
    """
    at, its = joined.balancer, joined.server
    took_s, its_took_s, half_s = balancer.took_s[at], server.took_s[its], server.took_tick_s / 2
    if half_s:  # whole seconds, as gunicorn's %(T)s: the middle of the second, and nobody knows which moment of it
        its_took_s = np.maximum(its_took_s, np.minimum(its_took_s + half_s, took_s))
    if balancer.tick_s <= server.tick_s:
        ends_s = spread(balancer.ends_s, balancer.tick_s)[at]
    else:
        ends_s = spread(server.ends_s, server.tick_s)[its] - joined.clock.ahead_s
    worker = np.where(server.worker[its] >= 0, server.worker[its], balancer.worker[at])
    late_s = _late_s(balancer, server, joined)
    apart = late_s != 0
    sent_s = np.where(apart, balancer.ends_s[at], ends_s) - took_s
    ends_s = np.where(apart, spread(server.ends_s, server.tick_s)[its] - joined.clock.ahead_s, ends_s)
    began_s = ends_s - its_took_s
    tick_s = balancer.tick_s + server.tick_s
    sent_s = np.where(apart & (tick_s >= COARSE_S) & (began_s - sent_s < tick_s), began_s, sent_s)  # nobody can tell
    seen_s = np.minimum(balancer.upstream_s[at], took_s)
    sent_s = np.where(np.isnan(seen_s), sent_s, np.minimum(ends_s - seen_s, began_s))
    coarse, may_be_late_s = apart & (tick_s >= COARSE_S), _may_be_late_s(balancer, server, joined, began_s - sent_s)
    less_s = np.where(coarse, tick_s, np.where(np.isnan(seen_s), may_be_late_s, 0.0)) + half_s
    longer_s = its_took_s - server.took_s[its]
    # with a slow client, a wait is no longer than the durations differ; if the balancer had left, they do not tell
    most_s = np.where(late_s < 0, np.inf, np.maximum(took_s - server.took_s[its] - (began_s - sent_s), 0))
    more_s = np.where(coarse, np.minimum(tick_s + half_s, most_s), longer_s) + balancer.took_tick_s
    if tick_s >= COARSE_S:  # the server may have gone on for a little while with what the balancer had left
        left = np.isin(balancer.status[at], LEFT)
        less_s, more_s = (np.where(left, np.maximum(each, tick_s), each) for each in (less_s, more_s))
    rows = Rows(sent_s, began_s, ends_s, less_s, more_s, balancer.route[at], worker, balancer.status[at])
    return rows.take(~np.isnan(began_s) & ~np.isnan(sent_s))


def _may_be_late_s(balancer: Log, server: Log, joined: Joined, waited_s: Floats) -> Floats:
    """Return for how much of its wait each request may have been with a slow client instead, if ends are whole seconds.

    Of a single request, such ends rarely tell it. But the balancer notes more of the ends too late for whole seconds if
    clients are slow than it does of requests that did not wait. Then each wait of the route may be one: the less late
    clients are, the fewer of their ends cross a second.
    """
    late_s = balancer.ends_s[joined.balancer] - server.ends_s[joined.server] + joined.clock.ahead_s
    of, long = balancer.route[joined.balancer], (waited_s > FROM_S) | (_late_s(balancer, server, joined) > 0)
    if balancer.tick_s + server.tick_s < COARSE_S or not long.any():
        return np.zeros_like(waited_s)
    are_whole = tick_of(balancer.ends_s) == tick_of(server.ends_s) == 1
    too_late = late_s > FROM_S + (server.tick_s / 2 if are_whole else server.tick_s + joined.clock.uncertain_s)
    waiting, late = (np.bincount(of[which], minlength=int(of.max()) + 1) for which in (long, long & too_late))
    by_chance = waiting * (float(too_late[~long].mean()) if not long.all() else 0.0)
    is_slow = late > by_chance + 3 * np.sqrt(by_chance + 1)
    latest_s = late_s + joined.clock.uncertain_s + (balancer.tick_s if balancer.tick_s >= COARSE_S else 0.0)
    return np.where(long & is_slow[of], np.clip(latest_s, 0, waited_s), 0.0)


def _late_s(balancer: Log, server: Log, joined: Joined) -> Floats:
    """Return how much later the balancer noted each end, less if the server did; 0: as soon as the clocks tell."""
    late_s = balancer.ends_s[joined.balancer] - server.ends_s[joined.server] + joined.clock.ahead_s
    return np.where(np.abs(late_s) > SOON_S + balancer.tick_s + server.tick_s + joined.clock.uncertain_s, late_s, 0.0)


def spread(ends_s: Floats, tick_s: float) -> Floats:
    """Return sorted times with those of one tick spread evenly over the tick."""
    if tick_s < COARSE_S or tick_of(ends_s) < COARSE_S:
        return ends_s
    _, first, count = np.unique(ends_s, return_index=True, return_counts=True)
    place = np.arange(len(ends_s)) - np.repeat(first, count)
    return ends_s + tick_s * (place + 0.5) / np.repeat(count, count)


def _requests(rows: Sequence[Rows], tick_s: float, unsent: Sequence[Rows] = ()) -> Requests:
    """Return requests whose times are epoch seconds; ``unsent`` are those of which nobody knows when they were sent."""
    known = sum(len(each.sent_s) for each in rows)
    if not known:
        raise WrongUse("No request has a duration in all logs, so nobody can tell how long it waited.", hint=SETUP)
    every = Rows._make(map(np.concatenate, zip(*rows, *unsent, strict=True)))
    order, first = np.argsort(every.sent_s, kind="stable"), float(every.sent_s.min())
    every = every.since(first).take(order)
    return Requests(first, *every, tick_s=tick_s, in_both=0.0, joined=order < known, unserved=NEVER)

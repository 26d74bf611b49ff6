"""Rank the options to serve a load by what theory predicts of them, and find how much of the load each carries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from stampede.advise.options import OfferedLoad, ServingOption, serving_options
from stampede.errors import WrongUse
from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.by_class import FAILURE_FAMILY, TIME_FAMILY
from stampede.evaluate.read.requests import simulated_requests
from stampede.evaluate.statistics.losses import AS_GOOD, AS_GOOD_MS
from stampede.predict.system import OF_CORES, NotModelled, system_for
from stampede.records.run import LoadRecord
from stampede.theory import COMPILED
from stampede.theory.simulate import simulate

REQUESTS, REQUESTS_OF_A_CLASS, MOST_REQUESTS = (20_000, 300, 300_000) if COMPILED else (300, 50, 2_000)
"""About how many requests are simulated for each option, at least of each class, and at most."""
LONGEST = 20
"""At least so many times the duration of the longest class is simulated."""
WAITS_MS = 20
"""A request that loses more than this waits; less is network, Python and balancer."""
REFUSES = 0.001
"""An option that refuses a larger share of the requests is worse than every option that does not."""
ALONE, MOST_TIMES, STEPS = 0.02, 32.0, 5
"""A load of so small a part is alone on the servers; the most times of a load that are tried; and how often the gap
between what is carried and what is not is halved."""


@dataclass(frozen=True)
class RankedOption:
    """An option and what theory predicts of it: what requests of each class lose, in ms; the rest are shares.

    ``response_ms`` is the p99 of the response time of each class, ``busy`` the share of threads at work.
    """

    option: ServingOption
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]
    response_ms: dict[str, float]
    beside: float
    refused: float
    busy: float

    @property
    def refuses(self) -> bool:
        """Whether it refuses more than a few requests."""
        return self.refused > REFUSES

    def slowdown(self, load: OfferedLoad) -> float:
        """Return what one request in a hundred loses, as a multiple of how long requests take, over all classes."""
        means = {each.name: each.mean for each in load.classes}
        lost = [lost_ms / 1000 / max(means[name], 0.001) for name, lost_ms in self.p99_ms.items()]
        return sum(lost) if lost else inf


@dataclass(frozen=True)
class Case:
    """A load, and what theory predicts of each option, by name.

    ``computes`` is the part of its time that a request computes where nobody says it; None: somebody does. ``ways`` is
    empty if no option carries the load then, and ``problem`` says why.
    """

    load: OfferedLoad
    ways: dict[str, RankedOption]
    computes: float | None = None
    problem: str = ""

    @property
    def ranked(self) -> list[RankedOption]:
        """The options, the best first. Raise WrongUse if none can carry the load."""
        return [self.ways[name] for name in ranked_names([self])[0]]

    @property
    def fastest(self) -> RankedOption:
        """The option with which requests lose least."""
        return min(self.ways.values(), key=lambda ranked: (ranked.refuses, ranked.slowdown(self.load)))

    def is_good(self, name: str) -> bool:
        """Whether an option is as good as the fastest: no class loses noticeably more."""
        way, fastest = self.ways[name], self.fastest
        if way.refused > fastest.refused + REFUSES:
            return False
        return all(lost <= AS_GOOD * fastest.p99_ms.get(each, inf) + AS_GOOD_MS for each, lost in way.p99_ms.items())

    def regret(self, name: str) -> tuple[bool, float]:
        """Return whether an option refuses requests, and how many times they lose what they lose with the fastest."""
        way = self.ways[name]
        return way.refuses, way.slowdown(self.load) / max(self.fastest.slowdown(self.load), 1e-9)


def predict_case(load: OfferedLoad, computes: float | None = None) -> Case:
    """Return what theory predicts of all options for a load."""
    found: list[RankedOption] = []
    problem = f"no worker fits into {load.memory_mib} MiB"
    for option in serving_options(load):
        try:
            found.append(predict_option(option, load))
        except NotModelled as reason:
            problem = str(reason)
    # an option starves the classes of which it has no p99, because other options serve enough of their requests
    served = {name for ranked in found for name in ranked.p99_ms}
    names = [each.name for each in load.classes if each.name in served]
    ways = {ranked.option.name: replace(ranked, p99_ms={name: ranked.p99_ms.get(name, inf) for name in names})
            for ranked in found}  # fmt: skip
    return Case(load, ways, computes, problem)


def ranked_names(cases: Sequence[Case]) -> tuple[list[str], list[str]]:
    """Return the names of the options, the best first, and of those that are as good as the fastest in all cases.

    If several are, the option that needs least memory comes first, and of those that need the same, the first in
    OPTION_KINDS; if none is, the option whose requests lose least compared with the fastest, where this is worst.
    Raise WrongUse if no option carries the load in any case.
    """
    possible = [case for case in cases if case.ways]
    if not possible:
        raise WrongUse(f"There is no way to serve this load: {cases[0].problem}.",
                       hint="Send fewer requests, or give more threads, cores or memory.")  # fmt: skip
    names = [name for name in possible[0].ways if all(name in case.ways for case in possible)]
    good = {name for name in names if all(case.is_good(name) for case in possible)}

    def key(name: str) -> tuple[bool, bool, float]:
        memory_mib = possible[0].ways[name].option.memory_mib
        return (False, False, memory_mib) if name in good else (True, *max(case.regret(name) for case in possible))

    names.sort(key=key)
    return names, [name for name in names if name in good]


def predict_option(option: ServingOption, load: OfferedLoad) -> RankedOption:
    """Return what theory predicts of an option. Raise NotModelled if it cannot carry the load."""
    variant = option.variant.record(option.name)
    rarest, longest_s = min(each.rate for each in load.classes), max(each.mean for each in load.classes)
    seconds = max(REQUESTS / load.rate, LONGEST * longest_s, REQUESTS_OF_A_CLASS / rarest)
    seconds = min(seconds, MOST_REQUESTS / load.rate)
    cores = int(load.cores) if load.computes and load.cpus is None else None
    quota = load.cpus / (1 if load.pods else option.variant.replicas) if load.computes and load.cpus else None
    system = system_for(variant, load.classes, at_once=OF_CORES / load.cores, cores=cores, quota=quota)
    rows = simulate(system, seconds, 1)
    record = LoadRecord(name="load", script="", duration=f"{max(seconds, 1):.0f}s", settings={})
    names = [each.name for each in load.classes]
    requests = simulated_requests(record, names, rows)
    stats = {
        (finding.request_class, finding.metric.name, stat): value
        for family in (TIME_FAMILY, waiting.FAMILY, FAILURE_FAMILY)
        for finding in family.measure(requests, variant, record)
        for stat, value in finding.stats.items()
    }

    p50_ms, p99_ms, response_ms = (
        {name: stats[name, *key] for name in names if (name, *key) in stats}
        for key in (("overhead", "p50"), ("overhead", "p99"), ("response_time", "p99"))
    )
    return RankedOption(
        option=option,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        response_ms=response_ms,
        beside=stats.get((None, "avoidable_wait", "share"), 0.0),
        refused=stats.get((None, "failures", "share"), 0.0),
        busy=float((rows.ended - rows.began).sum()) / (float(rows.ended.max()) * variant.workers * option.threads),
    )


@dataclass(frozen=True)
class Capacity:
    """How many ``times`` a load an option carries, and what theory predicts of it then; ``rate`` is in requests/s.

    ``alone``: the classes that take longer than the bound even if nobody else asks.
    """

    times: float
    rate: float
    at: RankedOption
    alone: list[str]


def capacity(option: ServingOption, load: OfferedLoad, p99_ms: float | None = None) -> Capacity | None:
    """Return how much of a load an option carries with a p99 response time of at most ``p99_ms`` in every class.

    None: until one request in a hundred of a class waits for more than WAITS_MS. Classes that take longer even alone
    do not count. Return None if the option carries hardly anything.
    """
    most_ms = p99_ms or WAITS_MS

    def within(way: RankedOption) -> dict[str, bool]:
        of_class = way.response_ms if p99_ms else way.p99_ms
        return {name: lasts_ms <= most_ms for name, lasts_ms in of_class.items()}

    def predicted(times: float) -> RankedOption | None:
        try:
            return predict_option(option, load.times(times))
        except NotModelled:
            return None

    least = predicted(ALONE)
    bounded = [name for name, is_within in within(least).items() if is_within] if least else []
    if not (least and bounded):
        return None

    def carried(times: float) -> RankedOption | None:
        way = predicted(times)
        return way if way and not way.refuses and all(within(way).get(name) for name in bounded) else None

    low, high, best = ALONE, 1.0, least
    while high <= MOST_TIMES and (way := carried(high)):
        low, high, best = high, 2 * high, way
    for _ in range(STEPS + (low == ALONE) * 3):
        middle = (low * high) ** 0.5
        if way := carried(middle):
            low, best = middle, way
        else:
            high = middle
    return Capacity(low, load.times(low).rate, best, [name for name in within(least) if name not in bounded])


def best_of(ranked: Sequence[RankedOption], count: int) -> list[RankedOption]:
    """Return the first options of different kinds, so that another kind is not hidden behind variations of the best."""
    first: dict[str, RankedOption] = {}
    for each in ranked:
        first.setdefault(each.option.kind.name, each)
    return [*first.values()][:count]

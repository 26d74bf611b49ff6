"""Rank the options to serve a load by what theory predicts of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from stampede.advise.offered import OfferedLoad
from stampede.advise.options import ServingOption, option_of_today, serving_options
from stampede.errors import WrongUse
from stampede.evaluate.metrics import avoidable_wait, failures, times
from stampede.evaluate.metrics.simulated import SimulatedTrial
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
HEADROOMS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True)
class RankedOption:
    """An option and what theory predicts of it: what requests of each class lose, in ms; the rest are shares.

    ``is_good``: it is as good as the fastest option with which it was ranked.
    """

    option: ServingOption
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]
    beside: float
    refused: float
    is_good: bool = False

    @property
    def refuses(self) -> bool:
        """Whether it refuses more than a few requests."""
        return self.refused > REFUSES

    def is_as_good_as(self, other: "RankedOption") -> bool:
        """Whether no class loses noticeably more than with the other option."""
        if self.refused > other.refused + REFUSES:
            return False
        return all(lost <= AS_GOOD * other.p99_ms.get(name, inf) + AS_GOOD_MS for name, lost in self.p99_ms.items())

    def slowdown(self, load: OfferedLoad) -> float:
        """Return what one request in a hundred loses, as a multiple of how long requests take, over all classes."""
        means = {each.name: each.mean for each in load.classes}
        lost = [lost_ms / 1000 / max(means[name], 0.001) for name, lost_ms in self.p99_ms.items()]
        return sum(lost) if lost else inf


def rank(load: OfferedLoad) -> list[RankedOption]:
    """Return all options, the best first. Raise WrongUse if none can carry the load.

    Options that are as fast as the fastest come first, and of them the option that needs the least memory, and of those
    that need the same, the first in OPTION_KINDS.
    """
    found = predict_options(load)
    fastest = fastest_of(found, load)
    found = [replace(ranked, is_good=ranked.is_as_good_as(fastest)) for ranked in found]

    def key(ranked: RankedOption) -> tuple[float, ...]:
        if ranked.is_good:
            return 0, 0, ranked.option.memory_mib
        return 1, ranked.refuses, ranked.slowdown(load)

    return sorted(found, key=key)


def predict_options(load: OfferedLoad) -> list[RankedOption]:
    """Return what theory predicts of all options. Raise WrongUse if none can carry the load."""
    found: list[RankedOption] = []
    problem = f"no worker fits into {load.memory_mib} MiB"
    for option in serving_options(load):
        try:
            found.append(predict_option(option, load))
        except NotModelled as reason:
            problem = str(reason)
    if not found:
        raise WrongUse(f"There is no way to serve this load: {problem}.",
                       hint="Send fewer requests, or give more threads, cores or memory.")  # fmt: skip
    # an option starves the classes of which it has no p99, because other options serve enough of their requests
    served = {name for ranked in found for name in ranked.p99_ms}
    names = [each.name for each in load.classes if each.name in served]
    return [replace(ranked, p99_ms={name: ranked.p99_ms.get(name, inf) for name in names}) for ranked in found]


def fastest_of(found: Sequence[RankedOption], load: OfferedLoad) -> RankedOption:
    """Return the option with which requests lose least."""
    return min(found, key=lambda ranked: (ranked.refuses, ranked.slowdown(load)))


def predict_today(load: OfferedLoad) -> RankedOption | None:
    """Return what theory predicts of today's variant; None: there is none, or theory does not know its server."""
    if load.today is None:
        return None
    try:
        return predict_option(option_of_today(load, load.today), load)
    except NotModelled:
        return None


def predict_option(option: ServingOption, load: OfferedLoad) -> RankedOption:
    """Return what theory predicts of an option. Raise NotModelled if it cannot carry the load."""
    variant = option.variant.record(option.name)
    rarest, longest_s = min(each.rate for each in load.classes), max(each.mean for each in load.classes)
    seconds = max(REQUESTS / load.rate, LONGEST * longest_s, REQUESTS_OF_A_CLASS / rarest)
    seconds = min(seconds, MOST_REQUESTS / load.rate)
    cores = load.cores if load.computes else None
    system = system_for(variant, load.classes, load.one_device, OF_CORES / load.cores, cores=cores)
    rows = simulate(system, seconds, 1)
    record = LoadRecord(name="load", script="", duration=f"{max(seconds, 1):.0f}s", settings={})
    names = [each.name for each in load.classes]
    trial = SimulatedTrial(variant, record, names, rows)
    stats = {
        (finding.request_class, *key): value
        for family in (times.FAMILY, avoidable_wait.FAMILY, failures.FAMILY)
        for finding in family.measure_simulated(trial)
        for key, value in finding.stats.items()
    }

    def of_each_class(stat: str) -> dict[str, float]:
        return {name: stats[name, "overhead", stat] for name in names if (name, "overhead", stat) in stats}

    return RankedOption(
        option=option,
        p50_ms=of_each_class("p50"),
        p99_ms=of_each_class("p99"),
        beside=stats.get((None, "avoidable_wait", "share"), 0.0),
        refused=stats.get((None, "failures", "share"), 0.0),
    )


def headroom(option: ServingOption, load: OfferedLoad) -> float | None:
    """Return how many times the load may come before a request in a hundred of some class waits; None: it waits now."""
    found = None
    for factor in (1.0, *HEADROOMS):
        try:
            ranked = predict_option(option, load.times(factor))
        except NotModelled:
            return found
        if ranked.refuses or max(ranked.p99_ms.values(), default=inf) > WAITS_MS:
            return found
        found = factor
    return found


def best_of(ranked: Sequence[RankedOption], count: int) -> list[RankedOption]:
    """Return the first options of different kinds, so that another kind is not hidden behind variations of the best."""
    first: dict[str, RankedOption] = {}
    for each in ranked:
        first.setdefault(each.option.kind.name, each)
    return [*first.values()][:count]

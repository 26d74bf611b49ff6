"""Rank ways to serve a load by what theory predicts of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from analysis.metrics import avoidable_wait, failures, times
from analysis.metrics.simulated import SimulatedTrial
from analysis.predict.system import OF_CORES, NotModelled, model_for
from analysis.records.run import LoadRecord
from analysis.statistics.losses import AS_GOOD, AS_GOOD_MS
from lab.apps.advise.load import Load
from lab.apps.advise.ways import Way, today, ways
from lab.errors import WrongUse
from theory.simulate import simulate

REQUESTS, REQUESTS_OF_A_CLASS, MOST_REQUESTS = 20_000, 300, 300_000
"""About how many requests are simulated for each way, at least of each class, and at most."""
LONGEST = 20
"""At least so many times the duration of the longest class is simulated."""
WAITS_MS = 20
"""A request that loses more than this waits; less is network, Python and balancer."""
HEADROOMS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True)
class Ranked:
    """A way and what theory predicts of it. Times are what the requests of a class lose, in ms; the rest are shares.

    ``headroom``: how many times the load may come before one request in a hundred of some class waits; None: it waits
    today already.
    """

    way: Way
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]
    beside: float
    refused: float
    headroom: float | None = field(default=None, compare=False)

    def is_as_good_as(self, other: "Ranked") -> bool:
        """Whether no class loses noticeably more than with the other way."""
        if self.refused > other.refused + 0.001:
            return False
        return all(lost <= AS_GOOD * other.p99_ms.get(name, inf) + AS_GOOD_MS for name, lost in self.p99_ms.items())


def rank(load: Load) -> list[Ranked]:
    """Return all ways, the best first. Raise WrongUse if none can carry the load.

    Ways that are as fast as the fastest come first, and of them the way that needs the least memory.
    """
    found = predict_ways(load)
    fastest = fastest_of(found, load)
    return sorted(found, key=lambda one: _key(one, fastest, load))


def predict_ways(load: Load) -> list[Ranked]:
    """Return what theory predicts of all ways. Raise WrongUse if none can carry the load."""
    found: list[Ranked] = []
    problems: list[str] = []
    for way in ways(load):
        try:
            found.append(predict_way(way, load))
        except NotModelled as reason:
            problems.append(str(reason))
    if not found:
        problem = problems[-1] if problems else f"no worker fits into {load.memory_mib} MiB"
        raise WrongUse(f"There is no way to serve this load: {problem}.",
                       hint="Send fewer requests, or give more threads, cores or memory.")  # fmt: skip
    return [_with_all_classes(one, found) for one in found]


def fastest_of(found: Sequence[Ranked], load: Load) -> Ranked:
    """Return the way with which requests lose least."""
    return min(found, key=lambda one: (one.refused > 0.001, slowdown(one, load)))


def _with_all_classes(one: Ranked, others: Sequence[Ranked]) -> Ranked:
    """Return a way with an endless p99 of each class that it starves: other ways serve enough of its requests."""
    starved = {name: inf for other in others for name in other.p99_ms.keys() - one.p99_ms.keys()}
    return replace(one, p99_ms=starved | one.p99_ms)


def predict_today(load: Load) -> Ranked | None:
    """Return what theory predicts of today's variant; None: there is none, or theory does not know its server."""
    if load.today is None:
        return None
    try:
        return predict_way(today(load, load.today), load)
    except NotModelled:
        return None


def _key(one: Ranked, fastest: Ranked, load: Load) -> tuple[float, ...]:
    if one.is_as_good_as(fastest):
        return 0, 0, one.way.memory_mib
    return 1, one.refused > 0.001, slowdown(one, load)


def slowdown(one: Ranked, load: Load) -> float:
    """Return what one request in a hundred loses, as a multiple of how long requests take, summed over the classes."""
    means = {each.name: each.mean for each in load.classes}
    return sum(lost / 1000 / max(means[name], 0.001) for name, lost in one.p99_ms.items()) if one.p99_ms else inf


def predict_way(way: Way, load: Load) -> Ranked:
    """Return what theory predicts of a way. Raise NotModelled if it cannot carry the load."""
    variant = way.variant.record(way.name)
    rarest, longest_s = min(one.rate for one in load.classes), max(one.mean for one in load.classes)
    seconds = max(REQUESTS / load.rate, LONGEST * longest_s, REQUESTS_OF_A_CLASS / rarest)
    seconds = min(seconds, MOST_REQUESTS / load.rate)
    rows = simulate(model_for(variant, load.classes, load.one_device, OF_CORES / load.cores), seconds, 1)
    record = LoadRecord(name="load", script="", duration=f"{max(seconds, 1):.0f}s", settings={})
    trial = SimulatedTrial.of(variant, record, [one.name for one in load.classes], rows)
    stats = {
        (finding.request_class, *key): value
        for family in (times.FAMILY, avoidable_wait.FAMILY, failures.FAMILY)
        for finding in family.measure_simulated(trial)
        for key, value in finding.stats.items()
    }
    names = [one.name for one in load.classes]
    return Ranked(
        way=way,
        p50_ms={name: stats[name, "overhead", "p50"] for name in names if (name, "overhead", "p50") in stats},
        p99_ms={name: stats[name, "overhead", "p99"] for name in names if (name, "overhead", "p99") in stats},
        beside=stats.get((None, "avoidable_wait", "share"), 0.0),
        refused=stats.get((None, "failures", "share"), 0.0),
    )


def headroom(way: Way, load: Load) -> float | None:
    """Return how many times the load may come before requests wait; None: they wait today already."""
    found = None
    for factor in (1.0, *HEADROOMS):
        try:
            one = predict_way(way, load.times(factor))
        except NotModelled:
            return found
        if one.refused > 0.001 or max(one.p99_ms.values(), default=inf) > WAITS_MS:
            return found
        found = factor
    return found


def best_of(ranked: Sequence[Ranked], count: int) -> list[Ranked]:
    """Return the first ways of different kinds, so that a choice of another kind is not hidden behind variations."""
    seen: list[str] = []
    chosen: list[Ranked] = []
    for one in ranked:
        if one.way.kind.name not in seen and len(chosen) < count:
            seen.append(one.way.kind.name)
            chosen.append(one)
    return chosen

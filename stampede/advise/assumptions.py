"""Advice for a service of which nobody says how much its requests compute: the ways that are good in any case."""

from collections.abc import Sequence
from dataclasses import dataclass

from stampede.advise.offered import OfferedLoad
from stampede.advise.ranking import RankedOption, fastest_of, predict_options
from stampede.advise.service import Service
from stampede.errors import WrongUse

COMPUTES = (0.0, 0.5, 1.0)
"""The parts of its time that a request may compute, for which the ways are ranked."""


@dataclass(frozen=True)
class Assumption:
    """What theory predicts of each way, by name, if requests compute this part of their time.

    ``ways`` is empty if no way can carry the load then.
    """

    computes: float
    load: OfferedLoad
    ways: dict[str, RankedOption]

    @property
    def fastest(self) -> RankedOption:
        """The way with which requests lose least."""
        return fastest_of(list(self.ways.values()), self.load)

    @property
    def best(self) -> RankedOption:
        """Of the ways that are as good as the fastest, the way that needs least memory."""
        as_good = [ranked for ranked in self.ways.values() if ranked.is_as_good_as(self.fastest)]
        return min(as_good, key=lambda ranked: ranked.option.memory_mib)

    def regret(self, name: str) -> float:
        """Return how many times the requests lose what they lose with the fastest way."""
        return self.ways[name].slowdown(self.load) / max(self.fastest.slowdown(self.load), 1e-9)


def assumptions(service: Service) -> list[Assumption]:
    """Return what theory predicts under each assumption. Raise WrongUse if no way can carry the load under any."""
    found = []
    for part in COMPUTES:
        load = service.load(part)
        try:
            ways = {ranked.option.name: ranked for ranked in predict_options(load)}
        except WrongUse:
            ways = {}
        found.append(Assumption(part, load, ways))
    if not any(assumption.ways for assumption in found):
        predict_options(service.load(COMPUTES[0]))
    return found


def ranked_for_all(found: Sequence[Assumption]) -> tuple[list[str], list[str]]:
    """Return the names of the ways, the best first, and of those that are good under all assumptions.

    A way is good if it is as good as the fastest. If several are, the way that needs least memory comes first; if none
    is, the way whose requests lose least compared with the fastest, where this is worst.
    """
    possible = [assumption for assumption in found if assumption.ways]
    names = [name for name in possible[0].ways if all(name in assumption.ways for assumption in possible)]

    def good(name: str) -> bool:
        return all(assumption.ways[name].is_as_good_as(assumption.fastest) for assumption in possible)

    def key(name: str) -> tuple[float, float]:
        worst = max(assumption.regret(name) for assumption in possible)
        return (0, possible[0].ways[name].option.memory_mib) if good(name) else (1, worst)

    names.sort(key=key)
    return names, [name for name in names if good(name)]

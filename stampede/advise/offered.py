"""The load that is offered to servers, and the machine that they run on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

from stampede.servers.base import WORKER_MIB, Balance
from stampede.theory.model import Bursts, Class, Closed, Open


@dataclass(frozen=True)
class OfferedLoad:
    """The classes of requests, and the machine.

    ``computes``: requests need cores. ``cores`` are those of all containers; ``cpus`` is how many each pod may use on
    average, or all containers together if there are no pods; None: there is no quota. ``pods``: so many containers,
    among which the ``balance`` chooses, have ``memory_mib`` each; None: one machine has them, and may start several
    servers. ``least_workers``: 2 if one process could be too few. ``threads`` is the most threads in all workers; None:
    as many as help.
    """

    classes: Sequence[Class]
    computes: bool = False
    cores: float = 1
    cpus: float | None = None
    pods: int | None = None
    balance: Balance = "round_robin"
    memory_mib: int = 1 << 20
    worker_mib: float = WORKER_MIB["wsgi"]
    least_workers: int = 1
    threads: int | None = None

    @property
    def busy(self) -> float:
        """About how many threads are busy at once at most."""
        return sum(map(_busy_threads, self.classes))

    @property
    def rate(self) -> float:
        """About how many requests come in a second, if none waits."""
        return sum(each.rate for each in self.classes)

    def times(self, factor: float) -> "OfferedLoad":
        """Return the load with more users, or with more requests per second or burst."""
        return replace(self, classes=[_more(each, factor) for each in self.classes])


def _busy_threads(asked: Class) -> float:
    match asked.arrivals:
        case Closed(users=users, pause=pause):
            mean = users * asked.mean / (asked.mean + pause.mean)
            return min(users, mean + 3 * sqrt(mean))
        case Open(per_second=rate):
            longest = max((step.stalls.takes for step in asked.steps if step.stalls), default=0.0)
            mean = rate * max(asked.mean, longest)
            return mean + 3 * sqrt(mean)
        case Bursts(size=size):
            return size
    return 1.0


def _more(asked: Class, factor: float) -> Class:
    arrivals = asked.arrivals
    match arrivals:
        case Closed(users=users):
            arrivals = replace(arrivals, users=ceil(users * factor))
        case Open(per_second=rate):
            arrivals = replace(arrivals, per_second=rate * factor)
        case Bursts(size=size):
            arrivals = replace(arrivals, size=ceil(size * factor))
    return replace(asked, arrivals=arrivals)

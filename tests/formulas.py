"""Results of queueing theory that hold exactly. Times are in seconds, rates per second.

Source of all of them: Leonard Kleinrock, Queueing Systems, volume 1 (1975), and for the machine-repair model Harchol-
Balter, Performance Modeling and Design of Computer Systems (2013).
"""

from collections.abc import Sequence
from math import exp, factorial


def erlang_c(rate: float, mean: float, servers: int) -> float:
    """Return the probability that a request of an M/M/c queue has to wait."""
    offered = rate * mean
    busy = offered / servers
    last = offered**servers / factorial(servers) / (1 - busy)
    return last / (sum(offered**k / factorial(k) for k in range(servers)) + last)


def mmc_wait(rate: float, mean: float, servers: int) -> float:
    """Return the mean wait of an M/M/c queue."""
    return erlang_c(rate, mean, servers) * mean / (servers - rate * mean)


def mmc_waits_longer(rate: float, mean: float, servers: int, than: float) -> float:
    """Return the probability that a request of an M/M/c queue waits longer than a time."""
    return erlang_c(rate, mean, servers) * exp(-(servers - rate * mean) * than / mean)


def mg1_wait(rate: float, mean: float, mean_square: float) -> float:
    """Return the mean wait of an M/G/1 queue (Pollaczek and Khinchine); ``mean_square`` is E[S²]."""
    return rate * mean_square / 2 / (1 - rate * mean)


def sharing_response(rate: float, mean: float, work: float) -> float:
    """Return the mean response time of a request with the given work, in M/G/1 with processor sharing."""
    return work / (1 - rate * mean)


def repair_throughput(users: int, think: float, mean: float, servers: int) -> float:
    """Return the requests per second of ``users`` who think for ``think`` and share one queue before the servers.

    Both times are exponential (the machine-repair model). The number of requests that wait or are served is a birth and
    death process.
    """
    weights: list[float] = [1.0]
    for there in range(1, users + 1):
        weights.append(weights[-1] * (users - there + 1) / think * mean / min(there, servers))
    busy = sum(weight * min(there, servers) for there, weight in enumerate(weights)) / sum(weights)
    return busy / mean


def of_mixture(means: Sequence[float], shares: Sequence[float]) -> tuple[float, float]:
    """Return E[S] and E[S²] of a mixture of exponential times."""
    return (
        sum(share * mean for mean, share in zip(means, shares, strict=True)),
        sum(share * 2 * mean**2 for mean, share in zip(means, shares, strict=True)),
    )

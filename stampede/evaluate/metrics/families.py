"""The families that compute the metrics; each is a module."""

from stampede.evaluate.metrics import (
    avoidable_wait,
    bursts,
    failures,
    rates,
    servers,
    spread,
    throughput,
    times,
    visits,
)

FAMILIES = (
    times.FAMILY,
    throughput.FAMILY,
    rates.FAMILY,
    spread.FAMILY,
    servers.FAMILY,
    failures.FAMILY,
    avoidable_wait.FAMILY,
    bursts.FAMILY,
    visits.FAMILY,
)

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

_MODULES = (times, throughput, rates, spread, servers, failures, avoidable_wait, bursts, visits)
FAMILIES = tuple(module.FAMILY for module in _MODULES)

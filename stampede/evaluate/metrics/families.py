"""The families that compute the metrics."""

from stampede.evaluate.metrics import avoidable_wait, bursts, rates, requests, servers, visits

FAMILIES = (
    requests.TIME_FAMILY, requests.THROUGHPUT_FAMILY, rates.FAMILY, requests.SPREAD_FAMILY, servers.FAMILY,
    requests.FAILURE_FAMILY, avoidable_wait.FAMILY, bursts.FAMILY, visits.FAMILY,
)  # fmt: skip

"""The families that compute the metrics."""

from stampede.evaluate.metrics import bursts, rates, requests, servers, visits, waiting

FAMILIES = (
    requests.TIME_FAMILY, requests.THROUGHPUT_FAMILY, rates.FAMILY, requests.SPREAD_FAMILY, servers.FAMILY,
    requests.FAILURE_FAMILY, waiting.FAMILY, bursts.FAMILY, visits.FAMILY,
)  # fmt: skip

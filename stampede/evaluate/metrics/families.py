"""The families that compute the metrics."""

from stampede.evaluate.metrics import bursts, by_class, rates, servers, visits, waiting

FAMILIES = (
    by_class.TIME_FAMILY, by_class.THROUGHPUT_FAMILY, rates.FAMILY, by_class.SPREAD_FAMILY, servers.FAMILY,
    by_class.FAILURE_FAMILY, waiting.FAMILY, bursts.FAMILY, visits.FAMILY,
)  # fmt: skip

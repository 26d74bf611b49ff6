"""What is measured: every metric with its statistics, their units, and how they are counted.

Tables, units, comparisons, the schema of experiment files and docs/reference/metrics.md follow from these declarations.
The families of the modules beside this one compute them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from stampede.evaluate.metrics.metric import TIMES, Metric
from stampede.records.words import nearest_first

OVERHEAD = Metric("overhead", TIMES, "response time minus service time of each answered request", shown="always")
RESPONSE_TIME = Metric("response_time", TIMES, "k6's `http_req_duration` of each answered request")
THROUGHPUT = Metric(
    "throughput",
    {"per_second": "requests/s", "of_ideal": "share"},
    {
        "per_second": "answered requests, divided by the time from the first request sent to the last answer",
        "of_ideal": "the throughput of a [closed loop](../explain/method.md#closed-and-open-loops), as a share of "
        "what it would be without waits: 1 − Σ overhead / Σ (time from a user's first request to its last answer)",
    },
    compared=("per_second",),
)
RATE_WITHIN = Metric(
    "rate_within",
    {"per_second": "requests/s"},
    "the highest rate up to which fewer than `late_share` of the requests of each step were late: they failed, or "
    "their overhead was more than `late_ms` ([the highest rate](../explain/measures.md#the-highest-rate))",
    of_all=True,
    sample=None,
    called="highest rate",
    compared=("per_second",),
)
REQUESTS_BY_WORKER = Metric(
    "requests_by_worker",
    {"largest_share": "share", "max_over_mean": "ratio", "jain_index": "index"},
    {
        "largest_share": "the share of the answered requests that the busiest worker served; 1 / workers is even",
        "max_over_mean": "the requests of the busiest worker, divided by the mean of all workers; 1 is even",
        "jain_index": "Jain's index of the requests by worker",
    },
    compared=("largest_share",),
)
CONNECTIONS_BY_WORKER = Metric(
    "connections_by_worker",
    {**REQUESTS_BY_WORKER.units, "correlation": "index"},
    dict.fromkeys(REQUESTS_BY_WORKER.units, "the same statistics of the connections by worker")
    | {"correlation": "the correlation of requests and connections"},
)
REQUESTS_BY_CONNECTION = Metric(
    "requests_by_connection",
    {"avg": "requests", "max": "requests"},
    "how many answered requests each connection carried",
)
ACCEPT_ATTEMPTS = Metric(
    "accept_attempts",
    {"per_connection": "attempts"},
    "the workers' attempts to accept, divided by the connections that they accepted; the workers count both",
    of_all=True,
)
ACCEPT_FAILURES = Metric(
    "accept_failures",
    {"per_connection": "failures"},
    "attempts that found no connection (EAGAIN), divided by the connections that the workers accepted",
    of_all=True,
)
PROCESSOR = Metric(
    "processor",
    {"per_request": "ms"},
    "the processor time of the servers' containers during the load, divided by the requests that they served; "
    "observing the containers before and after the load adds about 30 ms to the processor time",
    of_all=True,
)
THROTTLED = Metric(
    "throttled",
    {"share": "share"},
    "how long their limit of processor time (`cpus`) kept the servers' containers from computing, divided by the "
    "duration of the load; a container that is stopped on several cores counts for each",
    of_all=True,
    sample=None,
)
MEMORY = Metric(
    "memory",
    {"total": "MiB"},
    "the anonymous memory that the servers' processes hold after the load, in all containers together",
    of_all=True,
)
OUTPUT = Metric(
    "output",
    {"per_request": "bytes"},
    "what the servers' containers write to their standard output and standard error during the load, divided by the "
    "requests that they served; if the engine has dropped the beginning of a log, what their processes write() beyond "
    "what the containers send, files included",
    of_all=True,
)
SIGNALS = Metric(
    "signals",
    {"backlog": "share", "busy": "share", "waits": "share"},
    {
        "backlog": "of variants with `probe: true`, at which the lab looks ten times a second: the share of the looks, "
        "while any request is at work, at which a connection waited to be accepted (`Recv-Q`; gunicorn's backlog "
        "metric is the same number)",
        "busy": "the mean share of busy threads, as the probe sees them at these looks",
        "waits": "the share of the requests that waited avoidably, as the probe counts them",
    },
    of_all=True,
)
FAILURES = Metric(
    "failures",
    {"share": "share", "count": "requests", "in_a_row": "requests"},
    {
        "share": "requests that failed (refused, cut off, unanswered or answered with an error), divided by the "
        "requests sent",
        "count": "requests that failed",
        "in_a_row": "the most requests of a class that failed one after the other, in the order of sending",
    },
    compared=("share",),
)
AVOIDABLE_WAIT = Metric(
    "avoidable_wait",
    {"count": "requests", "share": "share", "total": "ms", "max": "ms"},
    {
        "count": "requests whose [avoidable wait](../explain/measures.md#avoidable-wait) was longer than 50 ms",
        "share": "the number of such requests, divided by the answered requests",
        "total": "how long all answered requests together waited avoidably",
        "max": "the longest avoidable wait of one request",
    },
    called="avoidable waits of {requests} requests",
    shown="if not 0",
    compared=("share",),
)
RECOVERY = Metric(
    "recovery",
    {"avg": "ms", "max": "ms"},
    "how long requests still waited for a thread after the end of a stall "
    "([recovery](../explain/measures.md#recovery))",
    of_all=True,
)
BURST = Metric(
    "burst",
    {"total": "ms", "largest_share": "share"},
    {
        "total": "the time from the first request of a [burst](../explain/measures.md#bursts) to the burst's "
        "last answer; the median over the bursts",
        "largest_share": "the share of a burst's answered requests that the busiest worker served; the median over the "
        "bursts",
    },
    of_all=True,
    shown="always",
)
VISIT = Metric(
    "visit",
    TIMES,
    "the time from the first request of a [visit](../explain/measures.md#visits) to the visit's last answer, for "
    "visits that succeeded",
    of_all=True,
    sample="visits",
    shown="always",
    compared=("p50", "p99"),
)
VISITS_FAILED = Metric(
    "visits_failed",
    {"share": "share", "count": "visits"},
    "visits that failed; the share is of the visits made",
    of_all=True,
    sample="visits",
    shown="always",
    compared=("share",),
)
CAPACITY = Metric(
    "capacity",
    {"per_second": "visits/s"},
    "the highest rate up to which fewer than 1 % of the visits failed ([capacity](../explain/measures.md#visits))",
    of_all=True,
    sample=None,
    shown="always",
    compared=(),
)
DATABASE_CONNECTIONS = Metric(
    "database_connections",
    {"max": "connections"},
    "the highest number of simultaneous connections since the database started, as the database counts them",
    of_all=True,
    sample=None,
)

METRICS = {metric.name: metric for metric in [*globals().values()] if isinstance(metric, Metric)}
"""The metrics of this module by name, in the order in which tables show them."""
STATISTICS = {name: tuple(metric.units) for name, metric in METRICS.items()}
OF_ALL_REQUESTS = tuple(name for name, metric in METRICS.items() if metric.of_all)
"""The metrics that exist for a trial as a whole, but not for each class of request."""
WHOLE_UNITS = frozenset(
    unit
    for metric in METRICS.values()
    for stat, unit in metric.units.items()
    if stat == "count" or (stat == "max" and unit != "ms")
)
"""The units of counts, whose values are whole numbers."""


def unit(metric: str, stat: str) -> str:
    """Return the unit of a statistic."""
    return METRICS[metric].units[stat]


def statistics_of(request_class: str | None) -> Iterator[tuple[str, str]]:
    """Yield every metric and statistic that a class of request can have; None: all classes together."""
    for metric in METRICS.values():
        if request_class is None or not metric.of_all:
            for stat in metric.units:
                yield metric.name, stat


_STATISTICS = dict.fromkeys(stat for metric in METRICS.values() for stat in metric.units)


def _known(what: str, known: Iterable[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"there is no {what} {name}; there are {nearest_first(name, [*known])}")
        return name

    return check


MetricName = Annotated[str, AfterValidator(_known("metric", METRICS)), Field(json_schema_extra={"enum": [*METRICS]})]
Statistic = Annotated[
    str, AfterValidator(_known("stat", _STATISTICS)), Field(json_schema_extra={"enum": [*_STATISTICS]})
]

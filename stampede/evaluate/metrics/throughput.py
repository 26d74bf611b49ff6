"""How many requests were answered per second, and how near this is to what would be possible without waits."""

from collections.abc import Iterator

import numpy as np

from stampede.evaluate.metrics import THROUGHPUT
from stampede.evaluate.metrics.metric import Family, MetricValues
from stampede.evaluate.read.requests import Requests
from stampede.records.run import LoadRecord, VariantRecord


def _measure(requests: Requests, _: VariantRecord, load: LoadRecord) -> Iterator[MetricValues]:
    """Yield the throughput of each class; ``of_ideal`` only in a closed loop, where a wait delays the next request.

    A user of a closed loop sends nothing while it waits. Without the overhead, the same requests would take that much
    less time.
    """
    sent_ms, answered_ms = requests.sent_us / 1000, requests.answered_us / 1000
    if not requests.simulated:  # whole milliseconds
        sent_ms, answered_ms = np.floor(sent_ms + 0.5), np.floor(answered_ms + 0.5)
    for request_class, mine in requests.each_class():
        answered = int(requests.answered[mine].sum())
        if not answered:
            continue
        stats: dict[str, float] = {}
        if seconds := float(requests.over_us[mine].max() / 1e6 - requests.sent_us[mine].min() / 1e6):
            stats["per_second"] = answered / seconds
        if load.loop == "closed":
            over = mine & np.isfinite(requests.answered_us)
            user = np.unique(requests.user[over], return_inverse=True)[1]
            first_ms, last_ms = np.full(user.max() + 1, np.inf), np.full(user.max() + 1, -np.inf)
            np.minimum.at(first_ms, user, sent_ms[over])
            np.maximum.at(last_ms, user, answered_ms[over])
            if span_ms := float((last_ms - first_ms).sum()):
                stats["of_ideal"] = 1 - float(np.nansum(requests.overhead_ms[over])) / span_ms
        yield MetricValues(request_class, THROUGHPUT.keyed(stats))


FAMILY = Family((THROUGHPUT,), _measure)

"""Which requests failed, and why. stampede.evaluate.verdict.validity decides whether failures make a trial doubtful."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from stampede.evaluate.metrics import FAILURES
from stampede.evaluate.metrics.metric import Family, MetricValues
from stampede.evaluate.read.requests import Requests
from stampede.evaluate.read.trial_data import TrialData
from stampede.records.run import LoadRecord, VariantRecord
from stampede.records.summary import ErrorRow


def _measure(requests: Requests, _: VariantRecord, __: LoadRecord) -> Iterator[MetricValues]:
    for request_class, mine in requests.each_class():
        failed = ~requests.answered[mine]
        if failed.size:
            count, runs = int(failed.sum()), groupby(failed.tolist() if failed.any() else ())
            in_a_row = max((len([*run]) for has_failed, run in runs if has_failed), default=0)
            stats = {"share": count / failed.size, "count": count, "in_a_row": in_a_row}
            yield MetricValues(request_class, FAILURES.keyed(stats))


def error_rows(trials: Iterable[TrialData]) -> list[ErrorRow]:
    """Return why requests failed in some trials, the most frequent reason first."""
    rows = [
        ErrorRow(**dict(zip(("variant", "load", "trial"), trial.key, strict=True)), request_class=totals.request_class,
                 error=error, requests=requests)
        for trial in trials
        for totals in trial.requests.classes
        for error, requests in totals.errors.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.requests, row.key, row.request_class, row.error))


FAMILY = Family((FAILURES,), _measure)

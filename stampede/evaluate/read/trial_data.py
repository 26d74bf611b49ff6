"""What is known of one trial: its record, totals over its rows, and the observations of its containers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from stampede.evaluate.read import BURSTS, CLIENT, OF_TRIAL, Key, of_trial
from stampede.evaluate.read.lab_time import Clocks, UnknownClock
from stampede.evaluate.read.observation import (
    Container,
    Reading,
    UnreadableObservation,
    read_containers,
    read_generators,
    stalls_by_lab_clock,
)
from stampede.evaluate.read.rows import UnreadablePoints, opened, write_requests
from stampede.records.checksums import Hashes, raw_files_problem
from stampede.records.folder import BadRun, read_trial
from stampede.records.run import LoadRecord, Run, TrialRecord, VariantRecord

READ_AT_ONCE = 2
"""How many trials are read at the same time; each may need as much memory as ``stampede.evaluate.read.rows`` allows."""


class ClassTotals(NamedTuple):
    """How many requests of one class a trial sent, and how many of them failed.

    ``refused`` of the failed requests got an error from somebody's own application. ``errors`` counts the reasons, the
    most frequent first. ``of_client``: a client that misbehaves sent them, and not k6. ``quickest_ms`` is the shortest
    time that a worker was at work on a request.
    """

    request_class: str
    sent: int
    failed: int
    refused: int = 0
    of_client: bool = False
    quickest_ms: float | None = None
    errors: Mapping[str, int] = {}

    @property
    def answered(self) -> int:
        """How many requests did not fail."""
        return self.sent - self.failed


class WorkerTotals(NamedTuple):
    """How many requests of one class a worker answered, and how many connections brought them; None: all classes."""

    request_class: str | None
    worker: str
    requests: int
    connections: int


class RequestTotals(NamedTuple):
    """Totals over the rows of a trial.

    ``began`` is when the first request was sent, in epoch seconds. ``with_status`` requests got an answer of any kind.
    ``in_flight`` is the mean number of k6's requests under way, by the clock; ``little`` is what it should be:
    throughput times mean response time, by k6's own timings. ``workers`` has the answers by class and by the worker
    (host:pid) that they name; the class None comes last, and in each class the worker with the fewest answers first.
    ``direct_sent`` requests did not go through the balancer. ``sending``: of how many bursts, in how many a request was
    answered (a refused connection does not count) before the last one was sent, and how many requests the last burst
    has. ``generators`` is how many k6 containers sent requests, ``of_visits`` how many requests are part of a visit.
    ``posts`` has each visit that posted a form, and whether the post succeeded.
    """

    began: float | None
    classes: list[ClassTotals]
    errors: list[str]
    with_status: int
    workers: list[WorkerTotals]
    in_flight: float | None
    little: float | None
    direct_sent: int = 0
    direct_with_status: int = 0
    sending: tuple[int, int, int] | None = None
    generators: int = 1
    of_visits: int = 0
    posts: Mapping[str, bool] = {}

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return sum(counts.sent for counts in self.classes)

    @property
    def answered(self) -> int:
        """How many requests did not fail."""
        return sum(counts.answered for counts in self.classes)

    @property
    def by_worker(self) -> dict[str, int]:
        """How many answers name each worker."""
        return {each.worker: each.requests for each in self.workers if each.request_class is None}

    @property
    def of_k6(self) -> list[ClassTotals]:
        """The counts of the classes that k6 sent."""
        return [counts for counts in self.classes if not counts.of_client]

    @property
    def names(self) -> list[str | None]:
        """The classes of request, and None for all classes together; empty if no request was sent."""
        return [*(counts.request_class for counts in self.classes), None] if self.classes else []

    def of_class(self, request_class: str | None) -> ClassTotals:
        """Return the counts of one class of request; None: of all classes together."""
        if request_class is None:
            return ClassTotals("", self.sent, self.sent - self.answered)
        return next(counts for counts in self.classes if counts.request_class == request_class)


class RawTrial(NamedTuple):
    """What a trial's raw files say besides requests: its containers, its load generators, and dropped iterations.

    ``problem`` is why the raw files could not be read, or the clocks of several machines not be compared. ``clocks``:
    all times were corrected to them; None: the containers ran on one machine.
    """

    containers: tuple[Container, ...] = ()
    generators: tuple[tuple[Reading, ...], ...] = ()
    dropped: int = 0
    problem: str | None = None
    clocks: Clocks | None = None


class TrialData(NamedTuple):
    """One trial of a run, with everything except the rows that its verdict and its metrics are computed from."""

    run: Run
    record: TrialRecord
    requests: RequestTotals
    raw: RawTrial

    @property
    def key(self) -> Key:
        """The trial's variant, load and number."""
        return self.record.key

    @property
    def variant(self) -> VariantRecord:
        """The variant that was measured."""
        return self.run.variant(self.record.variant)

    @property
    def load(self) -> LoadRecord:
        """The load under which the variant was measured."""
        return self.run.load(self.record.load)

    @property
    def containers(self) -> tuple[Container, ...]:
        """The trial's containers before and after the load."""
        return self.raw.containers


@contextmanager
def derive_rows(
    run_folder: Path, run: Run, folders: Sequence[Path], hashes: Hashes
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[TrialData]]]:
    """Write requests.parquet of some trials; yield the rows of all of them, and what is known of each."""
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:  # DuckDB reads without the interpreter lock
        raw = [*pool.map(lambda folder: derive_raw_trial(run_folder, folder, hashes), folders)]
    with opened(folders) as rows:
        yield rows, [read_trial_data(rows, run, *found) for found in zip(folders, raw, strict=True)]


def derive_raw_trial(run_folder: Path, folder: Path, hashes: Hashes) -> RawTrial:
    """Write a trial's requests.parquet, and return what the trial's raw files say besides requests.

    If the raw files cannot be read or differ from the manifest, or if the clocks of the trial's machines cannot be
    compared, remove requests.parquet instead.
    """
    trial = read_trial(folder)
    problem = raw_files_problem(run_folder, folder, hashes)
    if not problem:
        try:
            containers = read_containers(folder)
            stalled = [container.after.host for container in containers if container.after and container.after.stalls]
            dropped, clocks = write_requests(folder, *trial.key, trial.machines, stalled)
            return RawTrial(
                containers=stalls_by_lab_clock(containers, clocks.of_hosts) if clocks else containers,
                generators=read_generators(folder, clocks.of_generators if clocks else {}),
                dropped=dropped,
                clocks=clocks,
            )
        except (UnreadablePoints, UnreadableObservation, UnknownClock) as unreadable:
            problem = str(unreadable).replace(f"{run_folder}/", "")
    (folder / "requests.parquet").unlink(missing_ok=True)
    return RawTrial(problem=problem)


def read_trial_data(database: duckdb.DuckDBPyConnection, run: Run, folder: Path, raw: RawTrial) -> TrialData:
    """Return what is known of a trial. Raise BadRun if run.json lacks the trial's variant or load."""
    record = read_trial(folder)
    variants, loads = ({planned.name for planned in known} for known in (run.variants, run.loads))
    if record.variant not in variants or record.load not in loads:
        raise BadRun(f"{folder}/trial.json is of {record.variant} under {record.load}, which run.json does not know")
    return TrialData(run, record, _requests(database, record.key, run.load(record.load)), raw)


def _requests(database: duckdb.DuckDBPyConnection, key: Key, load: LoadRecord) -> RequestTotals:
    def rows(query: str, **further: object) -> list[tuple[Any, ...]]:
        return database.execute(query, of_trial(key) | further).fetchall()

    found = rows(_CLASSES)
    errors = rows(_ERRORS) if any(failed for _, _, failed, *_ in found) else []
    classes = [ClassTotals(*totals)._replace(errors=_most_frequent_first(errors, totals[0])) for *totals, _ in found]
    parts = [part for *_, part in found]
    directly = not (load.client is not None and load.client.through_balancer)
    of_visits = sum(part["visits"] for part in parts)
    [(in_flight, little)] = rows(_LITTLE)
    return RequestTotals(
        began=min((part["began"] for part in parts), default=None),
        classes=classes,
        errors=[*_most_frequent_first(errors)],
        with_status=sum(part["with_status"] for part in parts),
        workers=sorted(
            (WorkerTotals(*row) for row in rows(_WORKERS)),
            key=lambda each: (each.request_class is None, each.request_class, each.requests, each.worker),
        ),
        in_flight=in_flight,
        little=little,
        direct_sent=sum(part["client"] for part in parts if directly),
        direct_with_status=sum(part["client_with_status"] for part in parts if directly),
        sending=rows(_SENDING, size=load.burst)[0] if load.burst else None,
        generators=len({name for part in parts for name in part["generators"]} - {CLIENT}),
        of_visits=of_visits,
        posts=dict(rows(_POSTS)) if of_visits else {},
    )


def _most_frequent_first(errors: Iterable[tuple[str, str, int]], request_class: str | None = None) -> dict[str, int]:
    """Return how many requests of a class failed for which reason, or (None) of all classes."""
    counts = Counter[str]()
    for name, error, requests in errors:
        counts[error] += requests if request_class in (None, name) else 0
    return dict(sorted((+counts).items(), key=lambda count: (-count[1], count[0])))


_SENDING = f"""
{BURSTS}
SELECT count(*), count(*) FILTER (WHERE first_answered <= last_sent), coalesce(arg_max(requests, burst), 0)
FROM (SELECT burst, count(*) AS requests, max(sent) AS last_sent,
          min(answered) FILTER (WHERE status > 0) AS first_answered FROM bursts GROUP BY burst)
"""  # noqa: S608

_POSTS = f"""
SELECT visit, error IS NULL FROM requests WHERE {OF_TRIAL} AND visit IS NOT NULL AND request_class = 'post'
"""  # noqa: S608

_CLASSES = f"""
SELECT request_class, count(*), count(error), count(ended) FILTER (WHERE error IS NOT NULL AND status > 0),
    bool_and(generator = '{CLIENT}'), 1000 * min(ended - began), {{
        'began': epoch(min(sent)), 'with_status': count(*) FILTER (WHERE status > 0), 'visits': count(visit),
        'generators': list(DISTINCT generator), 'client': count(*) FILTER (WHERE generator = '{CLIENT}'),
        'client_with_status': count(*) FILTER (WHERE generator = '{CLIENT}' AND status > 0)}}
FROM requests WHERE {OF_TRIAL} GROUP BY request_class ORDER BY request_class
"""  # noqa: S608  # made of constants

_ERRORS = f"""
SELECT request_class, error, count(*) FROM requests WHERE {OF_TRIAL} AND error IS NOT NULL GROUP BY request_class, error
"""  # noqa: S608

_WORKERS = f"""
SELECT request_class, worker, sum(requests), count(connection)
FROM (SELECT request_class, worker, connection, count(*) AS requests FROM requests WHERE {OF_TRIAL} AND error IS NULL
      GROUP BY GROUPING SETS ((request_class, worker, connection), (worker, connection)))
GROUP BY request_class, worker
"""  # noqa: S608

# L = lambda W (Little 1961). L comes from the wall clock, W from k6's own timings, which use another clock. k6 itself
# needs about a quarter of a millisecond for each request, which its timings leave out. We add the median of this time
# to W. k6's blocked time includes the time of connecting. If a connection broke, k6 does not time the wait, so we leave
# out these requests (status 0). A client that misbehaves is no k6, and has timings of its own.
_LITTLE = f"""
SELECT under_way_us / span_us AS in_flight, requests / span_us * response_us AS little
FROM (SELECT count(*) AS requests, sum(under_way_us) AS under_way_us,
          nullif(max(epoch_us(answered)) - min(epoch_us(sent)), 0) AS span_us,
          avg(timed_us) + median(under_way_us - timed_us) AS response_us
      FROM (SELECT sent, answered, epoch_us(answered) - epoch_us(sent) AS under_way_us,
                1000 * (duration_ms + greatest(blocked_ms, connecting_ms)) AS timed_us
            FROM requests WHERE {OF_TRIAL} AND status > 0 AND generator <> '{CLIENT}'))
"""  # noqa: S608

"""Turn k6's points into one row per request."""

import atexit
import errno
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from stampede.evaluate.read.lab_time import Clocks, correct, find_clocks
from stampede.records.folder import POINTS, SERVED, NoTemporaryRoom
from stampede.records.run import MachineRecord

MEMORY = "768MB"
"""The memory that DuckDB may use to read points; it writes what does not fit into TMPDIR."""
THREADS = 2
"""The number of threads that read points. The table does not depend on it."""


class UnreadablePoints(Exception):
    """A file of points is missing, cut short or not from k6; the message names the file and the reason."""


COLUMNS = """
    variant VARCHAR, load VARCHAR, trial INTEGER, generator VARCHAR, id VARCHAR, visit VARCHAR,
    request_class VARCHAR, sent TIMESTAMP, answered TIMESTAMP,
    service_time_ms DOUBLE, duration_ms DOUBLE, overhead_ms DOUBLE, blocked_ms DOUBLE, connecting_ms DOUBLE,
    status INTEGER, error VARCHAR, worker VARCHAR, thread BIGINT, connection VARCHAR, began DOUBLE,
    ended DOUBLE, server VARCHAR
"""
"""requests.parquet, one row per request, in the order of sending.

``id`` is unique among the requests of one generator. ``visit`` names the visit that the request is part of, and is
unique in a trial; None: the load has no visits. ``sent`` and ``answered`` are UTC, taken just before and after the
request. ``began`` and ``ended`` are when the worker began and ended its work, in epoch seconds. All four times are by
one clock: if the containers ran on several machines, the times were corrected to the lab's clock (``read.lab_time``).
``service_time_ms`` is how long the request asked the worker to work, ``duration_ms`` is k6's http_req_duration, and
``overhead_ms`` is ``duration_ms`` minus ``service_time_ms``. ``connection`` is the connection that brought the request
to its worker; None: the server cannot tell. A request that failed has ``error`` and no ``overhead_ms``; a request that
the end of the run cut off has no ``duration_ms`` either.
"""

# The load scripts write two points for each request, see k6/lib/request.js. k6's own points are not read, except for
# dropped_iterations.
_READ = """
CREATE OR REPLACE TABLE points AS
SELECT metric, type, data.time::TIMESTAMP AS time, data.value, data.tags.request AS request_class,
    unnest(data.metadata)
FROM read_json($points, format = 'newline_delimited', compression = 'gzip', columns = {
    metric: 'VARCHAR', type: 'VARCHAR',
    data: 'STRUCT(time VARCHAR, value DOUBLE, tags STRUCT(request VARCHAR), metadata STRUCT(
        id VARCHAR, visit VARCHAR, asked_ms DOUBLE, status INTEGER, error VARCHAR,
        blocked_ms DOUBLE, connecting_ms DOUBLE,
        worker VARCHAR, thread BIGINT, connection VARCHAR, began DOUBLE, ended DOUBLE, server VARCHAR))'})
WHERE coalesce(metric, '') IN ('request_sent', 'request_answered', 'dropped_iterations', '')
    AND type IS DISTINCT FROM 'Metric'
"""

# As stampede.records.words, in DuckDB's own words. No picture can have such a character.
_UNPRINTABLE = r"[\x00-\x1f\x7f-\x{9f}\x{61c}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]"

# A value that is not a number could look like a fast answer. If two requests had the same id, one answer would count
# for both.
_CHECK = """
SELECT CASE
    WHEN bool_or(metric IS NULL OR type IS DISTINCT FROM 'Point') THEN 'a line is not one of k6'
    WHEN bool_or(NOT coalesce(year(time) BETWEEN 1970 AND 9998, false)) THEN 'a point has no time'
    WHEN bool_or(NOT coalesce(value BETWEEN 0 AND 1e15, false)) THEN 'the value of a point is not a number >= 0'
    WHEN bool_or(metric <> 'dropped_iterations' AND (id IS NULL OR request_class IS NULL))
        THEN 'a request has no id or no class'
    WHEN bool_or(regexp_matches(concat_ws(' ', request_class, worker), $unprintable))
        THEN 'the name of a class or of a worker has a control character'
    WHEN NOT $own AND bool_or(metric <> 'dropped_iterations' AND NOT coalesce(asked_ms BETWEEN 0 AND 1e15, false))
        THEN 'a request does not say what it asked for'
    WHEN NOT $own AND bool_or(metric = 'request_answered' AND error IS NULL AND NOT coalesce(
            status IN (200, 302) AND worker <> '' AND isfinite(began) AND isfinite(ended), false))
        THEN 'an answer does not say who gave it and when'
    WHEN count(*) FILTER (WHERE metric = 'request_sent')
        <> count(DISTINCT id) FILTER (WHERE metric = 'request_sent') THEN 'two requests have the same id'
END,
    count(*) FILTER (WHERE metric = 'request_sent'), count(*) FILTER (WHERE metric = 'request_answered'),
    coalesce(sum(value) FILTER (WHERE metric = 'dropped_iterations'), 0)
FROM points
"""

_CHECK_JOINED = """
SELECT CASE
    WHEN count(*) FILTER (WHERE generator = $generator) > $sent THEN 'two requests have the same id'
    WHEN count(answered) FILTER (WHERE generator = $generator) < $answered THEN 'an answer belongs to no request'
    WHEN count(visit) > count(DISTINCT (visit, request_class)) FILTER (WHERE visit IS NOT NULL)
        THEN 'a visit has two requests of the same class'
END
FROM requests
"""

# Somebody's own application does not say who gave an answer: stampede-probe has noted it on the worker's side (Rows in
# probe/stampede_probe/worker.py). The time at work stands in for the service time that a request of the lab's workload
# asks for. The lines of an end have the route and two waits where those of a beginning have the worker and its thread.
_SERVED = """
CREATE OR REPLACE TABLE served AS
SELECT id, arg_min(worker, time) FILTER (WHERE what = 'began') AS worker,
    arg_min(thread::BIGINT, time) FILTER (WHERE what = 'began') AS thread,
    arg_min(connection, time) FILTER (WHERE what = 'began') AS connection,
    min(time) FILTER (WHERE what = 'began') AS began, max(time) FILTER (WHERE what = 'ended') AS ended
FROM read_csv($files, header = false, delim = ',', columns = {
    'what': 'VARCHAR', 'id': 'VARCHAR', 'worker': 'VARCHAR', 'thread': 'DOUBLE', 'connection': 'VARCHAR',
    'time': 'DOUBLE'})
WHERE what IN ('began', 'ended') GROUP BY id
"""

_JOIN_SERVED = """
UPDATE requests SET
    worker = regexp_replace(served.worker, $unprintable, '\ufffd', 'g'),
    thread = served.thread, connection = served.connection,
    began = served.began, ended = served.ended,
    service_time_ms = coalesce(1000 * (served.ended - served.began), 0),
    overhead_ms = CASE WHEN requests.error IS NULL THEN duration_ms - 1000 * (served.ended - served.began) END
FROM served WHERE requests.id = served.id
"""

_NOBODY = """
UPDATE requests SET service_time_ms = coalesce(service_time_ms, 0),
    error = CASE WHEN error IS NULL AND ended IS NULL THEN 'no worker of the application answered' ELSE error END
"""

_JOIN = """
INSERT INTO requests BY NAME
SELECT
    $variant AS variant, $load AS load, $trial AS trial, $generator AS generator,
    sent.id AS id, sent.visit AS visit, sent.request_class,
    sent.time AS sent, answered.time AS answered,
    sent.asked_ms AS service_time_ms, answered.value AS duration_ms,
    CASE WHEN answered.error IS NULL THEN answered.value - sent.asked_ms END AS overhead_ms,
    answered.blocked_ms, answered.connecting_ms, answered.status,
    CASE WHEN answered.metric IS NULL THEN 'no answer before the end of the run'
         ELSE regexp_replace(answered.error, $unprintable, '\ufffd', 'g') END AS error,
    answered.worker, answered.thread, nullif(answered.connection, '') AS connection,
    answered.began, answered.ended, answered.server
FROM (FROM points WHERE metric = 'request_sent') AS sent
LEFT JOIN (FROM points WHERE metric = 'request_answered') AS answered ON sent.id = answered.id
"""


def write_requests(
    trial_folder: Path,
    variant: str,
    load: str,
    trial: int,
    machines: Sequence[MachineRecord] = (),
    others: Iterable[str] = (),
) -> tuple[int, Clocks | None]:
    """Rebuild a trial's requests from its points and write requests.parquet, whole or not at all.

    Return how many iterations the load generators dropped (requests that were due and never sent), and the clocks of
    ``machines`` to which times were corrected; None: one machine took part. The times of ``others`` matter, too.

    Raise UnknownClock if clocks cannot be compared. Raise UnreadablePoints if there are no points, or if a file is cut
    short, is not gzip, or has points that do not make sound rows. Raise NoTemporaryRoom if TMPDIR is full,
    and another OSError if the table cannot be written.
    """
    points_files = sorted(trial_folder.glob(POINTS))
    if not points_files:
        raise UnreadablePoints(f"{trial_folder} has no points.json.gz")
    served = [str(path) for path in sorted(trial_folder.glob(SERVED))]
    target = trial_folder / "requests.parquet"
    part = trial_folder / ".requests.parquet.part"
    dropped = 0.0
    with _spill() as spill, _used_again(_POINTS, threads=THREADS, memory_limit=MEMORY) as database:
        database.execute(f"SET temp_directory = '{_quoted(spill)}'")
        database.execute(f"CREATE TABLE requests ({COLUMNS})")
        for points in points_files:
            with _reading(points, spill):
                database.execute(_READ, {"points": str(points)})
                of_points = {"generator": points.name.split(".")[0]}
                [(problem, sent, answered, dropped_here)] = database.execute(
                    _CHECK, {"own": bool(served), "unprintable": _UNPRINTABLE}
                ).fetchall()
                _refuse(points, problem)
                cell = {"variant": variant, "load": load, "trial": trial, "unprintable": _UNPRINTABLE}
                database.execute(_JOIN, of_points | cell)
                counts = {"sent": sent, "answered": answered}
                [(problem,)] = database.execute(_CHECK_JOINED, of_points | counts).fetchall()
                _refuse(points, problem)
                dropped += dropped_here
        if served:
            with _reading(trial_folder / SERVED, spill):
                database.execute(_SERVED, {"files": served})
                database.execute(_JOIN_SERVED, {"unprintable": _UNPRINTABLE})
                database.execute(_NOBODY)
        if clocks := find_clocks(database, machines, others) if machines else None:
            correct(database, clocks, own=bool(served))
        try:
            database.execute(f"COPY (FROM requests ORDER BY sent, id, generator) TO '{_quoted(part)}' (FORMAT parquet)")
            part.replace(target)
        except duckdb.IOException as error:
            number = errno.ENOSPC if "No space left" in str(error) else errno.EIO
            raise OSError(number, _first_line(error)) from None
        finally:
            part.unlink(missing_ok=True)
        database.execute("DROP TABLE requests; DROP TABLE points; DROP TABLE IF EXISTS served")
    return round(dropped), clocks


IN_MEMORY = 16 * 2**20
"""The bytes of parquet up to which rows are held in memory, where a query takes half of the time."""


@contextmanager
def opened(trial_folders: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the rows of trials as the view ``requests``; a trial without requests.parquet has no rows."""
    files = [path for folder in trial_folders if (path := folder / "requests.parquet").exists()]
    # Several threads would add numbers in a different order each time, and rounding would differ. One thread adds them
    # in the order of the rows. It takes little longer: most of the time goes into reading points and drawing.
    kind = "VIEW" if sum(path.stat().st_size for path in files) >= IN_MEMORY else "TABLE"
    with _used_again(_ROWS, threads=1) as database:
        if files:
            rows = database.read_parquet([*map(str, files)])
            (rows.create if kind == "TABLE" else rows.create_view)("requests")
        else:
            database.execute(f"CREATE TABLE requests ({COLUMNS})")
        yield database
        database.execute(f"DROP {kind} requests")


_ROWS: list[duckdb.DuckDBPyConnection] = []
_POINTS: list[duckdb.DuckDBPyConnection] = []
for _idle in (_ROWS, _POINTS):
    atexit.register(_idle.clear)  # DuckDB would say on stderr that somebody still holds a database


@contextmanager
def _used_again(idle: list[duckdb.DuckDBPyConnection], **config: str | int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Take an idle database, or make one, which takes as long as five queries. Whoever takes it leaves it empty."""
    try:
        database = idle.pop()
    except IndexError:
        database = duckdb.connect(config={**config})
    try:
        yield database
    except BaseException:
        database.close()
        raise
    try:
        database.execute("RESET temp_directory")
    except duckdb.NotImplementedException:  # it wrote there, and cannot use another folder any more
        database.close()
    else:
        idle.append(database)


def _refuse(points: Path, problem: str | None) -> None:
    if problem:
        raise UnreadablePoints(f"{points} cannot be read: {problem}")


@contextmanager
def _spill() -> Iterator[Path]:
    """Make a folder for data that does not fit into memory. Raise NoTemporaryRoom if the folder has no room either."""
    place = "TMPDIR"
    try:
        place = tempfile.gettempdir()
        spill = tempfile.TemporaryDirectory(dir=place)
    except OSError as error:
        raise NoTemporaryRoom(error.errno, error.strerror, place) from None
    with spill as folder:
        try:
            yield Path(folder)
        except duckdb.OutOfMemoryException as error:  # DuckDB stops at nine tenths of the free disk
            raise NoTemporaryRoom(errno.ENOSPC, _first_line(error), place) from None


@contextmanager
def _reading(file: Path, spill: Path) -> Iterator[None]:
    """Raise UnreadablePoints if DuckDB cannot read a file, and NoTemporaryRoom if it has no room for the rows."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except (duckdb.Error, UnicodeDecodeError) as error:  # DuckDB may cut its message within a character
        if "No space left" in str(error):
            raise NoTemporaryRoom(errno.ENOSPC, _first_line(error), str(spill.parent)) from None
        raise UnreadablePoints(f"{file} cannot be read: {_first_line(error)}") from None


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__

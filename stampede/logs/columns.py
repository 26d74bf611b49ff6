"""Logs as columns: what both commands need of each line, and nothing of a person.

Of a request's target, only its route stays readable; the whole path and the request's id are kept as hashes, which join
the lines of two logs and are never shown.
"""

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from stampede.errors import LabError, WrongUse
from stampede.foreign import open_text
from stampede.logs.durations import DurationSource
from stampede.logs.error_log import Event, events_in
from stampede.logs.formats import Formats
from stampede.logs.reading import Batch, mapped, name_of, opened_log
from stampede.records.words import UNPRINTABLE

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]
COLUMNS = ("ends_s", "took_s", "route", "status", "path", "id", "worker", "arrived_s", "upstream_s")
"""What is known of each line: when the request ended (seconds since 1970), how long it took (seconds, or NaN), the
number of its route, its status, hashes of its path and of its id (0: unknown), the number of its worker (-1: unknown),
when the balancer got it, and how long the server took as the balancer saw it (or NaN)."""
FEW_BYTES = 1 << 27
"""If logs are smaller in all, one process reads them."""
_ZONE = re.compile(r":\d\d(?:[.,]\d+)? ?(?:Z|[+-]\d\d:?\d\d)\b|(?<![\d.])1\d{9}(?!\d*\.\d+\.)")
"""A time that names its zone, or counts seconds since 1970."""
_LONGEST = 256  # a longer text is hashed in another way, so that one long line does not make all of them take memory
_OF_THIS_PROCESS = re.compile(r"-$|/dev/(?:fd/|stdin)|/proc/")  # standard input, and what a shell opens for <(…)
T = TypeVar("T")
U = TypeVar("U")
Refused = Callable[[str, DurationSource], WrongUse | None]
PRIME = np.uint64(0x9E3779B97F4A7C15)
_FILES = re.compile(r".*\.(?:css|gif|ico|jpe?g|js|map|png|svg|ttf|txt|webp|woff2?|xml)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<=/)\d+(?=/|$)")
_NAME_OF_A_THING = re.compile(
    rf"\d+|[0-9a-fA-F]{{8,}}|[0-9a-fA-F-]{{32,}}|.*[@%].*|(?=.*\d).{{16,}}|.{{40,}}|.*{UNPRINTABLE}.*", re.DOTALL
)


class Bounds(NamedTuple, Generic[T]):
    """What is likely, and between which bounds it lies: a number, or an array with a value of each request."""

    low: T
    likely: T
    high: T

    @classmethod
    def exactly(cls, value: T) -> "Bounds[T]":
        """Return what is known for sure."""
        return cls(value, value, value)

    def map(self, function: Callable[[T], U]) -> "Bounds[U]":
        """Return what a function makes of the likely value and of the bounds."""
        return Bounds(function(self.low), function(self.likely), function(self.high))


class Names:
    """Numbers for names, in the order in which the names come."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: -1}

    def number(self, name: str | None) -> int:
        """Return the number of a name; -1: there is no name."""
        return self._numbers.setdefault(name, len(self._numbers) - 1)

    @property
    def names(self) -> list[str]:
        """The names, each at the place that is its number."""
        return [name for name in self._numbers if name is not None]


class LogFile(NamedTuple):
    """What a file says, in COLUMNS (only the first four, if nothing more is asked), with its own numbers for names."""

    columns: Columns
    routes: Sequence[str]
    workers: Sequence[str]
    unreadable: int
    source: DurationSource
    events: Sequence[Event]
    has_zone: bool


def read_files(
    paths: Sequence[Path], formats: Formats, unit: str, refused: Refused | None = None, *, identify: bool = False
) -> Mapping[Path, LogFile]:
    """Read files, large ones in a process for each processor.

    ``identify``: find ids, workers and precise times, too. ``refused`` says what is wrong with a log without durations;
    None: it is read nevertheless. Raise WrongUse if a file cannot be read, or has no line in one of the formats,
    and LabError if such a process is killed.
    """
    read = partial(read_file, formats=formats, unit=unit, refused=refused, identify=identify)
    shared = [path for path in paths if path.is_file() and not _OF_THIS_PROCESS.match(str(path))]
    if len(paths) == 1 or sum(path.stat().st_size for path in shared) <= FEW_BYTES:
        return {path: read(path) for path in paths}
    for path in shared:
        with open_text(path):  # else an error would be told when all other files are read
            pass
    found = {path: read(path) for path in paths if path not in shared}
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=gc.disable) as pool:
        try:
            found |= zip(shared, pool.map(read, shared), strict=True)
        except BrokenProcessPool:
            problem = "A process that read logs was killed, perhaps because memory ran out."
            raise LabError(problem, hint="Name fewer or shorter logs.") from None
    return {path: found[path] for path in paths}


def read_file(path: Path, formats: Formats, unit: str, refused: Refused | None = None, *, identify: bool) -> LogFile:
    """Read a file, as :func:`read_files` does."""
    routes, workers, unreadable, events = Names(), Names(), 0, list[Event]()
    batches = [_columns(Batch.empty(), routes, workers, identify=identify)]
    with opened_log(path, unit, formats, identify=identify) as reader:
        source = reader.source
        if refused and not source.says and (problem := refused(name_of(path), source)):
            raise problem
        reader.texts.unread("".join(first := reader.texts.take(100)))
        for batch in reader.batches():
            batches.append(_columns(batch, routes, workers, identify=identify))
            unreadable += len(batch.unreadable)
            events += events_in(batch.unreadable)
    has_zone = bool(_ZONE.search("".join(first)))
    return LogFile(joined_columns(batches), routes.names, workers.names, unreadable, source, events, has_zone)


def joined_columns(parts: Sequence[Columns]) -> dict[str, npt.NDArray[Any]]:
    """Return all lines."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _columns(batch: Batch, routes: Names, workers: Names, *, identify: bool) -> Columns:
    paths = [f"{method} {target.partition('?')[0]}" for method, target in zip(batch.method, batch.target, strict=True)]
    if identify:
        paths = [unquote(path) if "%" in path else path for path in paths]  # some servers log what they have decoded

    def route(path: str) -> int:
        method, _, target = path.partition(" ")
        return routes.number(f"{method} {route_of(target)}")

    columns = {
        "ends_s": np.array(batch.at, dtype=np.float64),
        "took_s": np.array(batch.took_s, dtype=np.float64),  # None becomes NaN
        "route": np.array(mapped(route, paths), dtype=np.int64),
        "status": np.array(batch.status, dtype=np.int64),
    }
    if identify:
        ids = [each.replace("-", "").lower() if each else "" for each in batch.id]  # a UUID is spelled in two ways
        columns |= {
            "path": hashes(paths),
            "id": hashes(ids),
            "worker": np.array(mapped(workers.number, batch.worker), dtype=np.int64),
            "arrived_s": np.array(batch.arrived, dtype=np.float64),
            "upstream_s": np.array(batch.upstream_s, dtype=np.float64),
        }
    return columns


def route_of(target: str) -> str:
    """Return the route of a request's target: its path, in which ids stand as {id} and files as {file}."""
    return _route_of_path(_NUMBER.sub("0", target.partition("?")[0]))  # paths that differ in numbers are of one route


@lru_cache(maxsize=1 << 16)
def _route_of_path(target: str) -> str:
    path = target
    with suppress(ValueError):  # no address at all, such as http://[/
        path = urlsplit(target).path
    parts = [part for part in path.split("/") if part]
    if parts and _FILES.fullmatch(parts[-1]):
        return "/{file}"
    return "/" + "/".join("{id}" if _NAME_OF_A_THING.fullmatch(part) else part for part in parts)


def hashes(texts: Sequence[str]) -> Integers:
    """Return a number for each text, the same in every process; 0: the text is empty."""
    short = [text.encode(errors="replace") for text in texts]
    if max(map(len, short), default=0) > _LONGEST:
        short = [each if len(each) <= _LONGEST else blake2b(each).hexdigest().encode() for each in short]
    words = max(map(len, short), default=0) // 8 + 1
    found = np.zeros(len(short), np.uint64)
    for word in np.array(short, dtype=f"S{8 * words}").view(np.uint64).reshape(len(short), words).T:
        mixed = (found ^ word) * PRIME
        found = np.where(word, mixed ^ (mixed >> np.uint64(29)), found)  # words beyond the end of a text are 0
    return found.view(np.int64)

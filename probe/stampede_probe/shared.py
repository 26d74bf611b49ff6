"""The memory that the workers of a server share: which of them are there, what they are doing, and what they counted.

The file has a header and a slot for each worker. A slot has some words of eight bytes, a ring with the times at which
the worker became full or ceased to be, and JSON with what the worker does and has counted. Each slot has one writer:
the process that claimed it, or whoever holds the lock of the file. New JSON is written beside the last, and then one
word says that it is complete, so a worker that dies while it writes leaves what it wrote before. The first slot has the
sums of workers whose slot another worker has taken since they ended.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import stat
import struct
import time
from bisect import bisect_left, bisect_right
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any, Iterator

WORD = 8
PAGE = 4096
MAGIC, VERSION = int.from_bytes(b"stampede", "little"), 4
WORKERS = 190
"""Slots for workers."""
RING, ROUTES, JSON_BYTES = 4096, 62, 49152
PREFIX = "stampede-probe-"
H_MAGIC, H_VERSION, H_CREATED, H_USED, H_CLAIMS, H_CREATOR, H_CREATOR_STARTED = range(7)

PID, STARTED, CLAIM, SINCE, UNTIL, SEEN, BUSY, IDLE_SINCE, HELD_SINCE, HEAD, FAULTS, WRITTEN = range(12)
"""Words of a slot. ``CLAIM`` is 0 while nothing in the slot counts; ``WRITTEN`` is how often JSON was written."""
RING_AT = 16
JSON_AT = RING_AT + RING
"""Two areas; each begins with the length of its JSON."""
SLOT_BYTES = -(-(JSON_AT * WORD + 2 * JSON_BYTES) // PAGE) * PAGE
SLOT_WORDS = SLOT_BYTES // WORD
SUMS = PAGE // WORD
"""The first word of the slot with the sums."""
FILE_BYTES = PAGE + (1 + WORKERS) * SLOT_BYTES

UNMATCHED, OTHER = "(unmatched)", "(other)"
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COUNTS = len(BUCKETS_S) + 1


def nothing() -> dict[str, Any]:
    """Return what a worker has counted before it has counted anything."""
    return {
        "routes": {},
        "seconds": {},  # by second: requests whose wait is known; with a wait, an avoidable wait of more than 50 ms
        "notes": {},  # by kind: seconds by name
        "unknown": {"no_header": 0, "no_time": 0, "clock_ahead": 0, "too_long_ago": 0},
        "clock_ahead_s": 0.0,
        "held_s": 0.0,
        "collected_s": 0.0,
        "faults": 0,
    }


def nothing_of_a_route() -> dict[str, Any]:
    """Return what a worker has counted of a route. The last two are by buckets."""
    counts = {"requests": 0, "known": 0, "avoidable": 0, "work_s": 0.0, "delay_s": 0.0, "avoidable_s": 0.0}
    return {**counts, "delays": [0] * (len(BUCKETS_S) + 1), "avoidables": [0] * (len(BUCKETS_S) + 1)}


def merged(one: Any, two: Any, name: str = "") -> Any:
    """Return what two workers counted together."""
    if isinstance(one, dict):
        both = {**one, **two}
        return {key: merged(one[key], two[key], key) if key in one and key in two else both[key] for key in both}
    if isinstance(one, list):
        return [first + second for first, second in zip(one, two)]
    return max(one, two) if name == "clock_ahead_s" else one + two


class Shared:
    """A mapping of the file, and what can be done with it."""

    def __init__(self, descriptor: int, path: str, *, is_new: bool = False) -> None:
        """Map a file, or memory of this process alone if the descriptor is -1."""
        self.descriptor, self.path = descriptor, path
        self.bytes = memoryview(mmap.mmap(descriptor, FILE_BYTES))
        self.q, self.d = self.bytes.cast("Q"), self.bytes.cast("d")
        if is_new or descriptor < 0:
            self.q[H_CREATOR], self.q[H_CREATOR_STARTED] = os.getpid(), started(os.getpid())
            self.d[H_CREATED], self.q[H_VERSION] = time.time(), VERSION
            self.q[H_MAGIC] = MAGIC

    @classmethod
    def create(cls, name: str = "") -> Shared:
        """Make the file where there is room: /dev/shm or a temporary folder; else memory of this process alone."""
        name = f"{PREFIX}{name or os.urandom(6).hex()}"
        for folder in filter(None, _folders()):
            path = str(Path(folder, name))
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                if os.lstat(path).st_uid != os.geteuid():  # also for root: whoever owns a file can cut it off
                    continue
                return cls.open(path)
            except OSError:
                continue
            try:
                os.ftruncate(descriptor, FILE_BYTES)
                _fill(descriptor, PAGE + SLOT_BYTES, 0)
                return cls(descriptor, path, is_new=True)
            except OSError:  # the folder is full
                os.close(descriptor)
                os.unlink(path)
        return cls(-1, "")

    @classmethod
    def open(cls, path: str, *, patience_s: float = 2.0) -> Shared:
        """Map a file that another process made.

        Raises:
            OSError: if it is not there, belongs to another user, or is of another version.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or (about.st_uid not in (os.geteuid(), 0) and os.geteuid()):
                raise PermissionError(f"{path} belongs to somebody else.")  # noqa: TRY301  # the file is closed below
            until = time.monotonic() + patience_s
            while True:
                head = os.pread(descriptor, 2 * WORD, 0)
                if len(head) == 2 * WORD and struct.unpack("<2Q", head) == (MAGIC, VERSION):
                    return cls(descriptor, path)
                if time.monotonic() > until:  # who makes it needs a moment
                    raise OSError(f"{path} is no file of this version of stampede-probe.")  # noqa: TRY301  # the same
                time.sleep(0.01)
        except BaseException:
            os.close(descriptor)
            raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all other processes from claiming a slot. The kernel ends the lock of a process that dies."""
        if self.descriptor >= 0:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self.descriptor >= 0:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def slots(self) -> range:
        """Return the first word of each worker's slot that was ever claimed."""
        return range(SUMS + SLOT_WORDS, SUMS + (1 + min(self.q[H_USED], WORKERS)) * SLOT_WORDS, SLOT_WORDS)

    def is_live(self, base: int) -> bool:
        """Whether the worker of a slot is still there; cheap enough to be asked at the beginning of a request."""
        if not self.q[base + PID] or self.d[base + UNTIL]:
            return False
        try:
            os.kill(self.q[base + PID], 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # it belongs to another user
        return True

    def is_same(self, base: int) -> bool:
        """Whether the worker of a slot is there, is no zombie, and no other process has got its id."""
        return self.is_live(base) and started(self.q[base + PID]) in (self.q[base + STARTED], -1)

    def claim(self, **about: Any) -> int | None:
        """Return the first word of a slot for this process, which tells others about it; None if all are taken.

        Raises:
            OSError: if there is no room for another slot.
        """
        q, d = self.q, self.d
        with self.locked():
            ended = [base for base in self.slots() if not (q[base + CLAIM] and self.is_same(base))]
            added = self.read(SUMS).get("added")
            for base in ended:  # who was killed has not said when
                d[base + UNTIL] = d[base + UNTIL] or d[base + SEEN]
                if q[base + CLAIM] == added:  # who added its counts was killed, too
                    q[base + CLAIM] = 0
            if ended:
                base = min(ended, key=lambda one: d[one + UNTIL])
                if q[base + CLAIM]:
                    self._add(base)
                q[base + CLAIM] = 0
                self.bytes[base * WORD : base * WORD + SLOT_BYTES] = bytes(SLOT_BYTES)
            elif q[H_USED] < WORKERS:
                base = SUMS + (1 + q[H_USED]) * SLOT_WORDS
                if self.descriptor >= 0:
                    _fill(self.descriptor, SLOT_BYTES, base * WORD)
                q[H_USED] += 1
            else:
                return None
            q[H_CLAIMS] += 1
            q[base + STARTED] = max(0, started(os.getpid()))
            d[base + SINCE] = d[base + SEEN] = d[base + IDLE_SINCE] = time.monotonic()
            self.write(base, {"worker": about, "counts": nothing()})
            q[base + PID] = os.getpid()
            q[base + CLAIM] = q[H_CLAIMS]
            return base

    def _add(self, base: int) -> None:
        """Add the counts of a worker that has ended to the sums."""
        counts = merged(self.read(SUMS)["counts"], self.read(base)["counts"])
        counts["seconds"] = {}
        routes = counts["routes"]
        for name in [one for one in routes if one != OTHER][ROUTES:]:
            routes.update(merged({OTHER: routes.pop(name)}, {OTHER: routes[OTHER]} if OTHER in routes else {}))
        self.write(SUMS, {"added": self.q[base + CLAIM], "counts": counts})

    def write(self, base: int, found: dict[str, Any]) -> None:
        """Write what a worker does and has counted; if there is no room, without the names with the fewest seconds."""
        written = self.q[base + WRITTEN] + 1
        at = (base + JSON_AT) * WORD + written % 2 * JSON_BYTES
        for most in (None, 200, 100, 30, 10, 0):
            if most is not None:
                notes = {kind: dict(sorted(of.items(), key=lambda one: -one[1])[:most])
                         for kind, of in found["counts"]["notes"].items()}  # fmt: skip
                found = {**found, "counts": {**found["counts"], "notes": notes}}
            data = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
            if len(data) <= JSON_BYTES - WORD:
                self.q[at // WORD] = len(data)
                self.bytes[at + WORD : at + WORD + len(data)] = data
                self.q[base + WRITTEN] = written
                return

    def read(self, base: int) -> dict[str, Any]:
        """Return what was last written into a slot."""
        found: dict[str, Any] = {}
        for _ in range(5):
            written = self.q[base + WRITTEN]
            at = (base + JSON_AT) * WORD + written % 2 * JSON_BYTES
            data = bytes(self.bytes[at + WORD : at + WORD + min(self.q[at // WORD], JSON_BYTES - WORD)])
            if self.q[base + WRITTEN] == written:  # else the next but one may have been written into this area
                with suppress(ValueError):  # another processor may see the word before the text
                    found = json.loads(data) if data else {}
                    break
        counts = found["counts"] = found.get("counts") or nothing()
        counts["faults"] += self.q[base + FAULTS]
        return found

    def counts(self) -> dict[str, Any]:
        """Return what all workers have counted, each worker once, those that have ended as well."""
        for _ in range(5):
            written, sums = self.q[SUMS + WRITTEN], self.read(SUMS)
            not_added = [base for base in self.slots() if self.q[base + CLAIM] not in (0, sums.get("added"))]
            counts = reduce(merged, [self.read(base)["counts"] for base in not_added], sums["counts"])
            if self.q[SUMS + WRITTEN] == written:
                break
        return counts  # type: ignore[no-any-return]

    def turn(self, base: int, now: float) -> int:
        """Note that a worker has become full, or is no longer; return how often. The time is there before it counts."""
        head = self.q[base + HEAD]
        self.d[base + RING_AT + head % RING] = now
        self.q[base + HEAD] = head + 1
        return head + 1

    def turns(self, base: int, from_s: float, to_s: float) -> tuple[bool, list[float]] | None:
        """Return whether a worker was full at a time, and when this changed until another; None if no longer known."""
        head = self.q[base + HEAD]
        ring, at = base + RING_AT, base + RING_AT + head % RING  # the oldest of all turns, or none, is at this word
        parts = [self.d[at : ring + RING], self.d[ring:at]] if head >= RING else [self.d[ring:at]]
        times = [when for part in parts for when in part[bisect_right(part, from_s) :]]
        before = head - len(times)
        if 0 < before <= self.q[base + HEAD] - RING:
            return None
        return before % 2 == 1, times[: bisect_left(times, to_s)]

    def avoidable(self, own: int, from_s: float, to_s: float) -> float | None:
        """Return for how long in a time the own worker was full while another worker was not; None if unknown."""
        q, d = self.q, self.d
        events: list[tuple[float, bool, int]] = []
        whole_s = 0.0
        for base in (own, *(base for base in self.slots() if base != own and q[base + CLAIM])):
            is_own, start, end = base == own, from_s, to_s
            if not is_own:  # who is not there has no free thread
                until = d[base + UNTIL] or (to_s if self.is_live(base) else d[base + SEEN])
                start, end = max(d[base + SINCE], from_s), min(until, to_s)
            known = self.turns(base, start, end) if start < end else (True, [])
            if known is None:
                return None
            full, times = known
            bounds = [start, *times] if full == is_own else times  # the own worker while full, the others while not
            bounds = [*bounds, end] if len(bounds) % 2 else bounds
            if is_own:
                whole_s = sum(bounds[1::2]) - sum(bounds[::2])
                if not whole_s:
                    return 0.0
            elif bounds == [from_s, to_s]:
                return whole_s
            events += [(when, is_own, -1 if place % 2 else 1) for place, when in enumerate(bounds)]
        avoidable_s, is_full, free, since = 0.0, 0, 0, from_s
        for when, is_own, change in sorted(events):
            avoidable_s += when - since if is_full and free else 0.0
            is_full, free, since = is_full + change * is_own, free + change * (not is_own), when
        return avoidable_s


def _fill(descriptor: int, size: int, at: int) -> None:
    """Make room in a file: a page of a mapping that has none would end the process."""
    while size:
        written = os.pwrite(descriptor, bytes(size), at)  # less than asked when the room ends
        size, at = size - written, at + written


def started(process: int) -> int:
    """Return when a process started, in ticks since the host started; 0: it is gone, -1: nobody tells."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except FileNotFoundError:
        return 0 if Path("/proc/self/stat").exists() else -1
    except (OSError, ValueError, IndexError):
        return -1


def _folders() -> list[str]:
    """Return where the file may be; the module tempfile would cost every worker more memory than the probe."""
    return list(dict.fromkeys(["/dev/shm", os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"]))  # noqa: S108


def find() -> list[str]:
    """Return the files of servers that run here, and remove files whose server has gone."""
    found = []
    for path in (path for folder in filter(None, _folders()) for path in sorted(Path(folder).glob(PREFIX + "*"))):
        try:
            shared = Shared.open(str(path), patience_s=0)
            creator = started(shared.q[H_CREATOR])
            if creator in (shared.q[H_CREATOR_STARTED], -1) or any(map(shared.is_same, shared.slots())):
                found.append(str(path))
            elif time.time() - shared.d[H_CREATED] > 60:
                path.unlink()
        except OSError:
            continue
    return found

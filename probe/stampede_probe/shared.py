"""The memory that the workers of a server share: which of them are there, what they are doing, and what they counted.

The file starts with a header, followed by a slot for each worker. All fields are words of eight bytes, and each field
has one writer: the process that claimed the slot, or whoever holds the lock of the file. A worker that dies in the
middle of a write therefore leaves at most its own last request behind, or its own notes. Slots 0 and 1 hold the sums of
workers whose slot another worker has taken since they ended: a new sum is written into the slot that nobody reads, and
then one word of the header says that it is complete.
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
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

WORDS = 8
PAGE = 4096
MAGIC, VERSION = int.from_bytes(b"stampede", "little"), 3
WORKERS = 190
"""Slots for workers."""
PLACES, RING, ROUTES, SECONDS, NOTES_BYTES = 64, 4096, 64, 64, 16384
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COUNTS = len(BUCKETS_S) + 1
PREFIX = "stampede-probe-"

H_MAGIC, H_VERSION, H_CREATED, H_USED, H_CLAIMS, H_SUMS, H_CREATOR, H_CREATOR_STARTED = range(8)
"""``H_SUMS`` is twice the claim that was added to the sums last, plus the slot with these sums: 0 or 1."""

# Words of a slot.
PID, STARTED, CLAIM, SINCE, UNTIL, SEEN, CAPACITY, WITHOUT_PLACE, HELD_SINCE, HEAD, ROUTE_COUNT = range(11)
NOTES_SEQUENCE, NOTES_LENGTH, SERVER, _, LOOP = range(11, 16)
NO_HEADER, NO_RING, AHEAD, FAULTS, COLLECTIONS, MISTOLD = range(17, 23)
HELD_S, COLLECTED_S, AHEAD_S, COLLECTED_MAX_S = range(23, 27)
MINUTE = 32
SECOND_WORDS = 4  # second, requests, waits of more than 50 ms, avoidable waits of more than 50 ms
PLACE_AT = MINUTE + SECONDS * SECOND_WORDS
PLACE_WORDS = 8
"""A cache line: since when a request is at work (negative: since when there is none). Some time later follow, of the
request that began at the last of these times: thread, queueing delay (negative: unknown), route, since."""
ROUTE_AT = PLACE_AT + PLACES * PLACE_WORDS
NAME_WORDS = 8
REQUESTS, KNOWN, AVOIDED, DELAY_S, AVOIDABLE_S, WORK_S = range(NAME_WORDS, NAME_WORDS + 6)
DELAYS = NAME_WORDS + 6
AVOIDABLES = DELAYS + COUNTS
ROUTE_WORDS = AVOIDABLES + COUNTS
ROUTE_S = (DELAY_S, AVOIDABLE_S, WORK_S)
COUNTED = {
    "requests": REQUESTS, "known": KNOWN, "avoidable": AVOIDED, "work_s": WORK_S, "delay_s": DELAY_S,
    "avoidable_s": AVOIDABLE_S,
}  # fmt: skip
RING_AT = ROUTE_AT + ROUTES * ROUTE_WORDS
NOTES_AT = RING_AT + RING
SLOT_BYTES = -(-(NOTES_AT * WORDS + NOTES_BYTES) // PAGE) * PAGE
SLOT_WORDS = SLOT_BYTES // WORDS
FILE_BYTES = PAGE + (WORKERS + 2) * SLOT_BYTES
UNMATCHED, OTHER = "(unmatched)", "(other)"


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
                _fill(descriptor, PAGE + 2 * SLOT_BYTES, 0)
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
                head = os.pread(descriptor, 2 * WORDS, 0)
                if len(head) == 2 * WORDS and struct.unpack("<2Q", head) == (MAGIC, VERSION):
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
        """Return the first word of each slot that was ever claimed."""
        return range(base_of(2), base_of(2 + min(self.q[H_USED], WORKERS)), SLOT_WORDS)

    def sums(self) -> list[int]:
        """Return the slots whose counts make up the sums of the server, each worker once."""
        added, place = divmod(self.q[H_SUMS], 2)
        return [base_of(place), *(base for base in self.slots() if self.q[base + CLAIM] not in (0, added))]

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

    def claim(self, capacity: int, server: str, *, loop: bool) -> int | None:
        """Return the first word of a slot for this process; None if all slots are taken.

        Raises:
            OSError: if there is no room for another slot.
        """
        with self.locked():
            ended = [base for base in self.slots() if not (self.q[base + CLAIM] and self.is_same(base))]
            for base in ended:  # who was killed has not said when
                self.d[base + UNTIL] = self.d[base + UNTIL] or self.d[base + SEEN]
                if self.q[base + CLAIM] == self.q[H_SUMS] // 2:  # who added its counts was killed, too
                    self.q[base + CLAIM] = 0
            if ended:
                base = min(ended, key=lambda one: self.d[one + UNTIL])
                if self.q[base + CLAIM]:
                    self._add(base)
                self.q[base + CLAIM] = 0
                self.bytes[base * WORDS : base * WORDS + SLOT_BYTES] = bytes(SLOT_BYTES)
            elif self.q[H_USED] < WORKERS:
                base = base_of(2 + self.q[H_USED])
                if self.descriptor >= 0:
                    _fill(self.descriptor, SLOT_BYTES, base * WORDS)
                self.q[H_USED] += 1
            else:
                return None
            self.q[H_CLAIMS] += 1
            self.q[base + STARTED], self.q[base + CAPACITY] = max(0, started(os.getpid())), capacity
            self.q[base + LOOP] = int(loop)
            self.d[base + SINCE] = self.d[base + SEEN] = time.monotonic()
            put_text(self.bytes, base + SERVER, 2, server)
            for name in (UNMATCHED, OTHER):
                self.add_route(base, name)
            self.q[base + PID] = os.getpid()
            self.q[base + CLAIM] = self.q[H_CLAIMS]
            return base

    def add_route(self, base: int, name: str) -> int:
        """Give a slot another route, and return its number; that of all other routes if there is no room."""
        count = self.q[base + ROUTE_COUNT]
        if count >= ROUTES:
            return 1
        put_text(self.bytes, base + ROUTE_AT + count * ROUTE_WORDS, NAME_WORDS, name)
        self.q[base + ROUTE_COUNT] = count + 1
        return count

    def routes(self, base: int) -> list[str]:
        """Return the names of a slot's routes."""
        count = min(self.q[base + ROUTE_COUNT], ROUTES)
        return [get_text(self.bytes, base + ROUTE_AT + one * ROUTE_WORDS, NAME_WORDS) for one in range(count)]

    def _add(self, base: int) -> None:
        """Add the counts of a worker that has ended to the sums."""
        q, d, place = self.q, self.d, self.q[H_SUMS] % 2
        old, to = base_of(place), base_of(1 - place)
        self.bytes[to * WORDS : to * WORDS + SLOT_BYTES] = self.bytes[old * WORDS : old * WORDS + SLOT_BYTES]
        for word in (NO_HEADER, NO_RING, AHEAD, FAULTS, COLLECTIONS, MISTOLD):
            q[to + word] += q[base + word]
        for word in (HELD_S, COLLECTED_S):
            d[to + word] += d[base + word]
        for word in (AHEAD_S, COLLECTED_MAX_S):
            d[to + word] = max(d[to + word], d[base + word])
        for name in (UNMATCHED, OTHER) if not q[to + ROUTE_COUNT] else ():
            self.add_route(to, name)
        known = self.routes(to)
        for number, name in enumerate(self.routes(base)):
            route = known.index(name) if name in known else self.add_route(to, name)
            source, target = (one + ROUTE_AT + at * ROUTE_WORDS for one, at in ((base, number), (to, route)))
            for word in range(NAME_WORDS, ROUTE_WORDS):
                if word in ROUTE_S:
                    d[target + word] += d[source + word]
                else:
                    q[target + word] += q[source + word]
        self.write_notes(to, merged([self.read_notes(to), self.read_notes(base)]))
        q[H_SUMS] = 2 * q[base + CLAIM] + 1 - place

    def write_notes(self, base: int, notes: dict[str, dict[str, float]]) -> None:
        """Write what a worker counted under names, the greatest counts first until the room is full."""
        entries = sorted(
            ((value, kind, name) for kind, of in notes.items() for name, value in of.items()), reverse=True
        )
        kept: dict[str, dict[str, float]] = {}
        room = NOTES_BYTES - 2
        for value, kind, name in entries:
            room -= len(json.dumps({kind: {name: round(value, 4)}})) + 2
            if room < 0:
                break
            kept.setdefault(kind, {})[name] = round(value, 4)
        data = json.dumps(kept).encode()
        at = (base + NOTES_AT) * WORDS
        self.q[base + NOTES_SEQUENCE] |= 1  # odd: it is being written, or who wrote it failed
        self.bytes[at : at + len(data)] = data
        self.q[base + NOTES_LENGTH] = len(data)
        self.q[base + NOTES_SEQUENCE] += 1

    def read_notes(self, base: int) -> dict[str, dict[str, float]]:
        """Return what a worker counted under names; nothing if it died while it wrote."""
        at = (base + NOTES_AT) * WORDS
        for _ in range(5):
            before = self.q[base + NOTES_SEQUENCE]
            data = bytes(self.bytes[at : at + min(self.q[base + NOTES_LENGTH], NOTES_BYTES)])
            if before % 2 == 0 and self.q[base + NOTES_SEQUENCE] == before:
                try:
                    return dict(json.loads(data)) if data else {}
                except ValueError:
                    return {}
            time.sleep(0.001)
        return {}

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


def merged(several: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the sums of what several workers counted under names."""
    found: dict[str, dict[str, float]] = {}
    for notes in several:
        for kind, of in notes.items():
            kept = found.setdefault(kind, {})
            for name, value in of.items():
                kept[name] = kept.get(name, 0.0) + value
    return found


def base_of(place: int) -> int:
    """Return the first word of a slot."""
    return PAGE // WORDS + place * SLOT_WORDS


def put_text(view: memoryview, word: int, words: int, text: str) -> None:
    """Write a text into a field of so many words; what is too long loses its end."""
    data = text.encode("utf-8", "replace")[: words * WORDS]
    view[word * WORDS : (word + words) * WORDS] = data.ljust(words * WORDS, b"\0")


def get_text(view: memoryview, word: int, words: int) -> str:
    """Return the text of a field of so many words."""
    return bytes(view[word * WORDS : (word + words) * WORDS]).rstrip(b"\0").decode("utf-8", "ignore")


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
